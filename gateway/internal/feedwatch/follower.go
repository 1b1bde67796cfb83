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
	// stepBytes bounds the envelopes of one step, as they stand in the log.
	stepBytes = 4 << 20
	// pause is that of Watchers. Events that come one by one are looked for in the owners of all watchers together. A step that was
	// full is followed by the next one at once.
	defaultPause = 200 * time.Millisecond
)

// follower reads the log for watchers, from its start until the last of them leaves.
type follower struct {
	all    *Watchers
	sub    *eventlog.Subscription
	cancel context.CancelFunc
	// watchers counts them. Guarded by all.mu.
	watcherCount int
	// month is that of the log.
	month int
	// err is set before failed is closed.
	err           error
	failed, ended chan struct{}
}

func (f *follower) run(ctx context.Context) {
	defer close(f.ended)
	defer f.sub.Close()
	err := f.follow(ctx)
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	if f.all.follower == f {
		f.all.follower = nil
	}
	f.err = err
	close(f.failed)
}

func (f *follower) follow(ctx context.Context) error {
	for {
		envs, err := f.sub.Next(ctx, stepBytes)
		if errors.Is(err, events.ErrHole) || err == nil && len(envs) == 0 {
			continue // the inbox is in front of it, too
		}
		if err != nil {
			return err
		}
		if err := f.all.inbox.WaitFor(ctx, envs[len(envs)-1].Seq()); err != nil {
			return err
		}
		f.dispatchEnvelopes(envs)
		bytes := 0
		for _, env := range envs {
			bytes += env.Bytes
		}
		if bytes >= stepBytes/2 {
			continue
		}
		if err := wait.For(ctx, f.all.Pause); err != nil {
			return err
		}
	}
}

// step wakes the watchers that envelopes concern.
func (f *follower) dispatchEnvelopes(envs []*events.Envelope) {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	var c stepChanges
	for _, env := range envs {
		for i := range env.Events {
			f.all.dispatchEvent(&env.Events[i], &c)
		}
	}
	if month := monthOf(envs[len(envs)-1].Cursor); month != f.month {
		f.month, c.newMonth = month, true
	}
	if !c.everything && !c.newMonth && len(c.owners) == 0 {
		return
	}
	for _, watchers := range f.all.byReader {
		for _, w := range watchers {
			if c.everything || c.newMonth && w.hidesSeen || c.containsAny(w.owners) {
				w.signal()
			}
		}
	}
}

// look wakes the watchers of the users of an event, and notes what else has changed. a.mu is held.
func (a *Watchers) dispatchEvent(ev *events.Event, c *stepChanges) {
	switch ev.Kind.Topic() {
	case events.TopicSeen:
		for _, w := range a.byReader[ev.User] {
			if w.hidesSeen {
				w.signal()
			}
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
		for _, w := range a.byReader[ev.User] {
			w.signal()
		}
		c.addOwner(a.hash(ev.User))
	case events.TopicItems: // no number changes: the order is that of time, and likes and scores hide nothing
	default: // the end of an import, and what a later version adds
		c.everything = true
	}
}

// related wakes the watchers of a reader, who may follow an owner now. a.mu is held.
func (a *Watchers) addFollowedOwner(reader, owner string) {
	for _, w := range a.byReader[reader] {
		w.addOwner(a.hash(owner))
		w.signal()
	}
}

// changes are those of a step that concern more than the users whom events name.
type stepChanges struct {
	everything, newMonth bool
	// owners are hashes of owners with changed pins, and near has the lower bits of these: most owners are not in there.
	owners    map[uint32]struct{}
	ownerBits [1024]uint64
}

func (c *stepChanges) addOwner(h uint32) {
	if c.owners == nil {
		c.owners = map[uint32]struct{}{}
	}
	c.owners[h] = struct{}{}
	c.ownerBits[h>>6%1024] |= 1 << (h & 63)
}

// concern reports whether any of some owners has changed.
func (c *stepChanges) containsAny(owners []uint32) bool {
	for _, h := range owners {
		if c.ownerBits[h>>6%1024]>>(h&63)&1 == 0 {
			continue
		}
		if _, ok := c.owners[h]; ok {
			return true
		}
	}
	return false
}

// monthOf numbers the calendar month of the last time of a cursor.
func monthOf(c events.Cursor) int {
	t := c.LastTime.Time()
	return 12*t.Year() + int(t.Month())
}
