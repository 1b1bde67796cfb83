package feedwatch

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/live"
)

// Watchers are those of a process. The methods are safe for concurrent use.
type Watchers struct {
	log   *eventlog.Log
	hub   *eventlog.Hub
	inbox *live.Live
	seed  maphash.Seed
	// Pause is the least time between two steps of the log. It is set before the first watcher enters.
	Pause time.Duration

	mu sync.Mutex
	// of are the watchers of a reader.
	byReader map[string][]*Watcher
	// follower is the one that new watchers enter; nil means none runs.
	follower *follower
}

// New returns no watchers yet.
func New(log *eventlog.Log, hub *eventlog.Hub, inbox *live.Live) *Watchers {
	return &Watchers{log: log, hub: hub, inbox: inbox, seed: maphash.MakeSeed(), Pause: defaultPause, byReader: map[string][]*Watcher{}}
}

// Watcher is one that watches the feed of a reader. It belongs to one goroutine.
type Watcher struct {
	all        *Watchers
	reader     string
	hidesSeen  bool
	unreadOnly bool
	wake       chan struct{}
	follower   *follower
	// owners are hashes of those whose pins may be in the feed, each once. Guarded by all.mu.
	owners []uint32
}

// Enter returns a watcher of a reader's feed, which hides seen items or not, and counts from the read marker on or not. It must leave. It
// opens its first view after it has entered, and gives the owners of that view to [Watcher.Follow].
func (a *Watchers) Enter(reader string, hides, unread bool) (*Watcher, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.follower == nil {
		f, err := a.startFollower()
		if err != nil {
			return nil, err
		}
		a.follower = f
	}
	w := &Watcher{all: a, reader: reader, hidesSeen: hides, unreadOnly: unread, wake: make(chan struct{}, 1), follower: a.follower}
	w.follower.watcherCount++
	a.byReader[reader] = append(a.byReader[reader], w)
	return w, nil
}

// begin starts a follower at a position that the inbox shows. a.mu is held.
func (a *Watchers) startFollower() (*follower, error) {
	at := a.inbox.Cursor()
	if at == (events.Cursor{}) {
		at = a.log.Start()
	}
	sub, err := a.hub.SubscribeBeside(at, events.AllKinds)
	if err != nil {
		return nil, err
	}
	f := &follower{all: a, sub: sub, month: monthOf(at), failed: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background()) // it lives until its last watcher leaves
	f.cancel = cancel
	go f.run(ctx)
	return f, nil
}

// Leave ends the watcher. The last one waits until the follower has ended.
func (w *Watcher) Leave() {
	a, f := w.all, w.follower
	a.mu.Lock()
	left := slices.DeleteFunc(a.byReader[w.reader], func(other *Watcher) bool { return other == w })
	if a.byReader[w.reader] = left; len(left) == 0 {
		delete(a.byReader, w.reader)
	}
	f.watcherCount--
	last := f.watcherCount == 0
	if last && a.follower == f {
		a.follower = nil
	}
	a.mu.Unlock()
	if last {
		f.cancel()
		<-f.ended
	}
}

// Follow adds owners whose pins may be in the feed.
func (w *Watcher) Follow(owners func(add func(owner string) error) error) error {
	var hashes []uint32
	err := owners(func(owner string) error {
		hashes = append(hashes, w.all.hash(owner))
		return nil
	})
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	hashes = append(hashes, w.owners...)
	slices.Sort(hashes)
	w.owners = slices.Clone(slices.Compact(hashes))
	return err
}

// Changed has an element when the feed may have changed since that was taken last.
func (w *Watcher) Changed() <-chan struct{} { return w.wake }

// Failed is closed when the watcher will be woken no more, for the reason that [Watcher.Err] returns.
func (w *Watcher) Failed() <-chan struct{} { return w.follower.failed }

// Err returns why the watcher failed. It is called after Failed is closed.
func (w *Watcher) Err() error { return w.follower.err }

func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// adds notes that pins of an owner may be in the feed from now on. The mutex of all is held.
func (w *Watcher) addOwner(owner uint32) {
	if !slices.Contains(w.owners, owner) {
		w.owners = append(w.owners, owner)
	}
}

func (a *Watchers) hash(owner string) uint32 { return uint32(maphash.String(a.seed, owner)) }
