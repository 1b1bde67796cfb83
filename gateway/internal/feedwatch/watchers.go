package feedwatch

import (
	"context"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/live"
)

// Watchers are the watchers of feeds of a process. Their methods may be called concurrently.
type Watchers struct {
	log *eventlog.Log
	hub *eventlog.Hub
	// stores are the projections that a view of a woken watcher reads.
	stores []*live.Live
	// dispatch wakes the watchers that an event concerns. mu must be held.
	dispatch func(a *Watchers, ev *events.Event, c *stepChanges)
	// seed is that of the hashes of owners.
	seed maphash.Seed
	// Pause is the time between two steps of reading the log. It must not be changed once a watcher
	// has entered.
	Pause time.Duration
	// CountInterval is the least time between two counts of one [Stream]. ResendAfter is the time
	// without a change after which a Stream sends the last number again. They must not be changed
	// once a watcher has entered.
	CountInterval, ResendAfter time.Duration
	// countSlots is a semaphore that limits how many Streams count at a time.
	countSlots chan struct{}

	mu sync.Mutex
	// byReader has the watchers of each reader.
	byReader map[string][]*Watcher
	// follower is the one that new watchers use. It is nil if none runs.
	follower *follower
}

// New returns Watchers of feeds without a watcher.
func New(log *eventlog.Log, hub *eventlog.Hub, inbox *live.Live) *Watchers {
	return newWatchers(log, hub, (*Watchers).dispatchEvent, inbox)
}

// NewForNotifications returns Watchers of notifications without a watcher. The stores are all
// projections that a count reads. The reader of a watcher is the recipient, and its owners are the
// users whose re-pins it has counted.
func NewForNotifications(log *eventlog.Log, hub *eventlog.Hub, stores ...*live.Live) *Watchers {
	return newWatchers(log, hub, (*Watchers).dispatchNotification, stores...)
}

func newWatchers(
	log *eventlog.Log, hub *eventlog.Hub, dispatch func(a *Watchers, ev *events.Event, c *stepChanges), stores ...*live.Live,
) *Watchers {
	return &Watchers{
		log: log, hub: hub, stores: stores, dispatch: dispatch, seed: maphash.MakeSeed(),
		Pause: defaultPause, CountInterval: defaultCountInterval, ResendAfter: defaultResendAfter,
		// Half of the processors may count for streams, so that the other calls always find one.
		countSlots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		byReader:   map[string][]*Watcher{},
	}
}

// Watcher watches the feed of one reader. Its methods must not be called concurrently.
type Watcher struct {
	watchers *Watchers
	reader   string
	// hidesSeen says that the feed hides seen items, and unreadOnly that the watcher counts from
	// the read marker on.
	hidesSeen  bool
	unreadOnly bool
	// wake has room for one wake-up. More of them before it is read count as one.
	wake     chan struct{}
	follower *follower
	// muteEnd is the first log time at which a mute of the reader ends by itself and adds pins to
	// the feed; 0 means that none does. Guarded by watchers.mu.
	muteEnd events.Micros
	// owners has the hash of each owner whose pins may be in the feed, without duplicates.
	// watchers.mu guards it.
	owners []uint32
}

// Enter returns a watcher of the feed of a reader. hidesSeen says that the feed hides seen items,
// and unreadOnly that the number counts from the read marker on. The caller must then open its
// first view, pass the owners of that view to [Watcher.AddOwners], and call [Watcher.Leave] in the
// end.
func (a *Watchers) Enter(reader string, hidesSeen, unreadOnly bool) (*Watcher, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.follower == nil {
		f, err := a.startFollower()
		if err != nil {
			return nil, err
		}
		a.follower = f
	}
	w := &Watcher{
		watchers: a, reader: reader, hidesSeen: hidesSeen, unreadOnly: unreadOnly,
		wake: make(chan struct{}, 1), follower: a.follower,
	}
	w.follower.watcherCount++
	a.byReader[reader] = append(a.byReader[reader], w)
	return w, nil
}

// startFollower starts a follower at a position that every store shows already. a.mu must be held.
func (a *Watchers) startFollower() (*follower, error) {
	cursor := a.stores[0].Cursor()
	for _, store := range a.stores[1:] {
		current := store.Cursor()
		if current.Seq < cursor.Seq {
			cursor = current
		}
	}
	if cursor == (events.Cursor{}) {
		cursor = a.log.Start() // a store that has folded nothing yet
	}

	// A detached subscription does not make the hub hold envelopes back, so watchers never delay a
	// fold.
	sub, err := a.hub.SubscribeDetached(cursor, events.AllKinds)
	if err != nil {
		return nil, err
	}
	f := &follower{watchers: a, sub: sub, month: monthOf(cursor), failed: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background()) // Leave of the last watcher cancels it
	f.cancel = cancel
	go f.run(ctx)
	return f, nil
}

// Leave ends the watcher. The last watcher of a follower stops the follower, and waits until it has
// ended.
func (w *Watcher) Leave() {
	a := w.watchers
	f := w.follower
	a.mu.Lock()
	remaining := slices.DeleteFunc(a.byReader[w.reader], func(other *Watcher) bool { return other == w })
	if len(remaining) > 0 {
		a.byReader[w.reader] = remaining
	} else {
		delete(a.byReader, w.reader)
	}
	f.watcherCount--
	isLast := f.watcherCount == 0
	if isLast && a.follower == f {
		a.follower = nil // a watcher that enters from now on must not use a follower that ends
	}
	a.mu.Unlock()

	// The follower needs a.mu to end, so it is waited for without it.
	if isLast {
		f.cancel()
		<-f.ended
	}
}

// AddOwners adds owners whose pins may be in the feed. owners calls its argument with each of them.
func (w *Watcher) AddOwners(owners func(add func(owner string) error) error) error {
	// The owners are read without the lock, because that reads a store.
	var hashes []uint32
	err := owners(func(owner string) error {
		hashes = append(hashes, w.watchers.hash(owner))
		return nil
	})

	w.watchers.mu.Lock()
	defer w.watchers.mu.Unlock()
	// Events may have added owners meanwhile, so the set is merged and not replaced.
	hashes = append(hashes, w.owners...)
	slices.Sort(hashes)
	// A copy without spare capacity, because there may be thousands of watchers.
	w.owners = slices.Clone(slices.Compact(hashes))
	return err
}

// WakeAt has the watcher woken once the log time is at least at, which is 0 for never. A later call
// replaces the time.
func (w *Watcher) WakeAt(at events.Micros) {
	w.watchers.mu.Lock()
	defer w.watchers.mu.Unlock()
	w.muteEnd = at
	// The log may have passed the time since the view was opened by which the caller knows it.
	if at != 0 && at <= w.follower.now {
		w.muteEnd = 0
		w.signal()
	}
}

// Changed returns a channel that delivers a value after the feed may have changed.
func (w *Watcher) Changed() <-chan struct{} { return w.wake }

// Failed returns a channel that is closed when the watcher will not be woken any more.
// [Watcher.Err] then returns the reason.
func (w *Watcher) Failed() <-chan struct{} { return w.follower.failed }

// Err returns why the watcher failed. It may be called only after the channel of Failed is closed.
func (w *Watcher) Err() error { return w.follower.err }

// signal wakes the watcher. It never blocks.
func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// addOwner adds the hash of an owner whose pins may be in the feed from now on. watchers.mu must be
// held.
func (w *Watcher) addOwner(owner uint32) {
	if !slices.Contains(w.owners, owner) {
		w.owners = append(w.owners, owner)
	}
}

// hash returns the hash of an owner. Two owners may share a hash, which only causes needless
// wake-ups.
func (a *Watchers) hash(owner string) uint32 { return uint32(maphash.String(a.seed, owner)) }
