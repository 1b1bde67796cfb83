// Package storetest has helpers that tests of stores share: an in-memory log, envelopes, and a
// store of [tally.Tally].
package storetest

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/store"
)

// NewMemFS returns an empty file system in memory.
func NewMemFS() store.FS { return vfs.NewMem() }

// OpenTally opens a store that is closed at the end of the test. Without a file system in opts, the
// store is in memory; without a projection, it has the one of [tally.New]. The directory is always
// "data".
func OpenTally(t testing.TB, opts store.Options) *store.Store {
	t.Helper()
	if opts.FS == nil {
		opts.FS = vfs.NewMem()
	}
	if opts.Projection == nil {
		opts.Projection = tally.New()
	}
	opts.Dir = "data"
	s, err := store.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Envelopes returns one envelope for each list of events. Sequences start at 1 and slots at 0, and
// each event takes a microsecond. Live events get that time; backfills keep theirs.
func Envelopes(lists ...[]events.Event) []*events.Envelope {
	envs := make([]*events.Envelope, len(lists))
	c := events.Cursor{Log: events.LogID{1, 2, 3}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	for i, list := range lists {
		c.Seq++
		env := &events.Envelope{Bytes: 10}
		for slot, ev := range list {
			c.LastTime++
			ev.Seq = c.Seq
			ev.Slot = uint16(slot)
			if !ev.Backfill {
				ev.Time = c.LastTime
			}
			env.Events = append(env.Events, ev)
			env.Kinds |= events.Kinds(ev.Kind)
		}
		env.Cursor = c
		envs[i] = env
	}
	return envs
}

// One returns a list with one event, as an argument of [Envelopes].
func One(ev events.Event) []events.Event { return []events.Event{ev} }

// Follow returns the event that the user starts to follow the peer.
func Follow(user, peer string) events.Event {
	return events.Event{Kind: events.UserFollowed, User: user, Peer: peer}
}

// Follows returns n envelopes in which ann follows one peer each. All peers are different.
func Follows(n int) []*events.Envelope {
	lists := make([][]events.Event, n)
	for i := range lists {
		lists[i] = One(Follow("ann", string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676))))
	}
	return Envelopes(lists...)
}
