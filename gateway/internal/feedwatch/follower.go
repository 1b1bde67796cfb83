package feedwatch

import (
	"context"
	"errors"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/wait"
)

const (
	// stepBytes limits the envelopes of one step, by their size in the log.
	stepBytes = 4 << 20
	// defaultPause is the default of Watchers.Pause. During the pause events collect, so that the
	// owners of all watchers are searched once per step and not once per event.
	defaultPause = 200 * time.Millisecond
)

// follower reads the log for watchers. It runs from when the first of them enters until the last of
// them leaves.
type follower struct {
	watchers *Watchers
	sub      *eventlog.Subscription
	cancel   context.CancelFunc
	// watcherCount is the number of watchers of this follower. watchers.mu guards it.
	watcherCount int
	// month is the month of the last envelope that was read.
	month int
	// now is the log time up to which watchers were woken. watchers.mu guards it.
	now events.Micros
	// err says why the follower ended. It is set before failed is closed.
	err error
	// failed is closed when the follower has ended, and ended when its goroutine is done.
	failed, ended chan struct{}
}

// run follows the log until ctx ends or an error occurs.
func (f *follower) run(ctx context.Context) {
	defer close(f.ended)
	defer f.sub.Close()
	err := f.followLog(ctx)

	f.watchers.mu.Lock()
	defer f.watchers.mu.Unlock()
	if f.watchers.follower == f {
		f.watchers.follower = nil // the next watcher starts another one
	}
	f.err = err
	close(f.failed)
}

func (f *follower) followLog(ctx context.Context) error {
	for {
		envs, err := f.sub.Next(ctx, stepBytes)
		isPastHole := err == nil && len(envs) == 0
		if errors.Is(err, events.ErrHole) || isPastHole {
			// The stores stop at the same hole, so there is nothing to wake anybody for. Next
			// pauses before it returns the error again.
			continue
		}
		if err != nil {
			return err
		}

		// A watcher that is woken must see the events in its next view.
		for _, store := range f.watchers.stores {
			if err := store.WaitFor(ctx, envs[len(envs)-1].Seq()); err != nil {
				return err
			}
		}
		f.dispatchEnvelopes(envs)

		// After a large step, more is waiting: the next step follows at once. Otherwise the
		// follower would fall behind a log that grows faster than one step per pause.
		bytes := 0
		for _, env := range envs {
			bytes += env.Bytes
		}
		if bytes >= stepBytes/2 {
			continue
		}
		if err := wait.For(ctx, f.watchers.Pause); err != nil {
			return err
		}
	}
}

// dispatchEnvelopes wakes the watchers that the envelopes concern.
func (f *follower) dispatchEnvelopes(envs []*events.Envelope) {
	// The lock is held for the whole step. A watcher that leaves or adds owners waits for that, but
	// no fold does.
	f.watchers.mu.Lock()
	defer f.watchers.mu.Unlock()

	// What an event changes for watchers of its own reader is signaled at once. What it changes for
	// others is collected, so that all watchers are searched once per step and not once per event.
	var c stepChanges
	for _, env := range envs {
		for i := range env.Events {
			f.watchers.dispatch(f.watchers, &env.Events[i], &c)
		}
	}
	if month := monthOf(envs[len(envs)-1].Cursor); month != f.month {
		f.month = month
		c.newMonth = true
	}

	// A mute ends when the log time reaches its end, whatever the event is about.
	f.now = envs[len(envs)-1].Cursor.LastTime
	muteEnds := f.watchers.hasMuteEnded(f.now)

	concernsOthers := c.concernsAll || c.newMonth || muteEnds || len(c.owners) > 0
	if !concernsOthers {
		return
	}
	for _, watchers := range f.watchers.byReader {
		for _, w := range watchers {
			if w.muteEnd != 0 && w.muteEnd <= f.now {
				w.muteEnd = 0
				w.signal()
			}
			if c.concernsAll || c.newMonth && w.hidesSeen || c.containsAny(w.owners) {
				w.signal()
			}
		}
	}
}

// dispatchEvent wakes the watchers whose reader is named in an event, and records in c what else
// the event changes. a.mu must be held.
func (a *Watchers) dispatchEvent(ev *events.Event, c *stepChanges) {
	switch ev.Kind.Topic() {
	case events.TopicSeen:
		for _, w := range a.byReader[ev.User] {
			if w.hidesSeen {
				w.signal()
			}
		}
	case events.TopicHidden:
		for _, w := range a.byReader[ev.User] {
			w.signal()
		}
	case events.TopicMarkers:
		for _, w := range a.byReader[ev.User] {
			if w.unreadOnly {
				w.signal()
			}
		}
	case events.TopicRelations:
		a.addFollowedOwner(ev.User, ev.Peer)
		if ev.Kind.IsMutual() {
			a.addFollowedOwner(ev.Peer, ev.User)
		}
	case events.TopicContent:
		if ev.Kind == events.PinEdited {
			return // it changes no number
		}
		if ev.Kind == events.UserDeleted {
			c.concernsAll = true // anybody may follow a user who re-pinned the deleted one
		}
		for _, w := range a.byReader[ev.User] {
			w.signal()
		}
		c.addOwner(a.hash(ev.User))
	case events.TopicItems, events.TopicNotificationMarkers:
		// Neither changes a feed. Reactions and scores change no number: they hide nothing, and the
		// number does not depend on the order of the feed.
	default:
		// The end of an import, or a topic of a later version.
		c.concernsAll = true
	}
}

// dispatchNotification is dispatchEvent for watchers of notifications. a.mu must be held.
func (a *Watchers) dispatchNotification(ev *events.Event, c *stepChanges) {
	wakeReader := func(reader string) {
		for _, w := range a.byReader[reader] {
			w.signal()
		}
	}
	switch ev.Kind.Topic() {
	case events.TopicNotificationMarkers:
		wakeReader(ev.User)
	case events.TopicItems:
		// A reaction concerns the owner of the pin that it names. A score concerns nobody.
		if ev.RepinUser != "" {
			wakeReader(ev.RepinUser)
		}
	case events.TopicRelations:
		// Follows are notifications of the peer. A mute or block hides notifications from the user,
		// and a block also from the peer.
		wakeReader(ev.User)
		wakeReader(ev.Peer)
	case events.TopicContent:
		if ev.Kind == events.UserDeleted {
			c.concernsAll = true // anybody may have notifications of the user
		}
		// The user's own pins decide about notifications, and a re-pin about those of the owner of
		// the original. The end of a re-pin need not name the original, so those who have counted a
		// re-pin of the user are woken.
		wakeReader(ev.User)
		if ev.RepinUser != "" {
			wakeReader(ev.RepinUser)
		}
		c.addOwner(a.hash(ev.User))
	case events.TopicSeen, events.TopicHidden, events.TopicMarkers:
		// None of these changes notifications.
	default:
		// The end of an import, or a topic of a later version.
		c.concernsAll = true
	}
}

// hasMuteEnded reports whether a mute of the reader of any watcher has ended at a log time. a.mu
// must be held.
func (a *Watchers) hasMuteEnded(now events.Micros) bool {
	for _, watchers := range a.byReader {
		for _, w := range watchers {
			if w.muteEnd != 0 && w.muteEnd <= now {
				return true
			}
		}
	}
	return false
}

// addFollowedOwner wakes the watchers of a reader whose relation to owner has changed, and adds the
// owner, whom the reader may follow now. a.mu must be held.
func (a *Watchers) addFollowedOwner(reader, owner string) {
	for _, w := range a.byReader[reader] {
		w.addOwner(a.hash(owner))
		w.signal()
	}
}

// stepChanges are the changes of one step that may concern watchers of other users than the events
// name.
type stepChanges struct {
	// concernsAll says that all watchers must be woken, and newMonth that those must be woken that
	// hide seen items.
	concernsAll, newMonth bool
	// owners has the hashes of the owners whose pins or boards have changed.
	owners map[uint32]struct{}
	// ownerBits has one bit per owner, at the low 16 bits of its hash. Most owners that watchers
	// look for are not in owners, and the bits say so without a lookup in the map.
	ownerBits [1024]uint64
}

// addOwner records that pins or boards of an owner have changed.
func (c *stepChanges) addOwner(hash uint32) {
	if c.owners == nil {
		c.owners = map[uint32]struct{}{}
	}
	c.owners[hash] = struct{}{}
	c.ownerBits[hash>>6%1024] |= 1 << (hash & 63)
}

// containsAny reports whether any of the owners has changed.
func (c *stepChanges) containsAny(owners []uint32) bool {
	for _, hash := range owners {
		if c.ownerBits[hash>>6%1024]>>(hash&63)&1 == 0 {
			continue
		}
		if _, ok := c.owners[hash]; ok {
			return true
		}
	}
	return false
}

// monthOf returns the number of the calendar month of a cursor's last time. Consecutive months have
// consecutive numbers.
func monthOf(c events.Cursor) int {
	t := c.LastTime.Time()
	return 12*t.Year() + int(t.Month())
}
