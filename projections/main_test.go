package projections_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	if os.Getenv(alone) != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// alone is set in a process that runs a single test, after which goroutines may be left.
const alone = "SKEIN_TEST_ALONE"

func newTally() projections.Projection { return tally.New() }

// open opens a store of a tally, to be closed with the test.
func open(t testing.TB, opts projections.Options) *projections.Store {
	t.Helper()
	if opts.FS == nil {
		opts.FS = vfs.NewMem()
	}
	if opts.Projection == nil {
		opts.Projection = tally.New()
	}
	opts.Dir = "data"
	s, err := projections.Open(opts)
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

// logOf makes an envelope of each list of events.
func logOf(lists ...[]events.Event) []*events.Envelope {
	envs := make([]*events.Envelope, len(lists))
	c := events.Cursor{Log: events.LogID{1, 2, 3}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	for i, list := range lists {
		c.Seq++
		env := &events.Envelope{Bytes: 10}
		for slot, ev := range list {
			c.LastTime++
			ev.Seq, ev.Slot = c.Seq, uint16(slot)
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

func one(ev events.Event) []events.Event { return []events.Event{ev} }

func follow(user, peer string) events.Event {
	return events.Event{Kind: events.UserFollowed, User: user, Peer: peer}
}

// follows are n envelopes with one follow each.
func follows(n int) []*events.Envelope {
	lists := make([][]events.Event, n)
	for i := range lists {
		lists[i] = one(follow("ann", string(rune('a'+i%26))+string(rune('a'+i/26%26))+string(rune('a'+i/676))))
	}
	return logOf(lists...)
}

func straight(t testing.TB, envs []*events.Envelope) conformance.Rows {
	t.Helper()
	return conformance.Straight(t, tally.New(), envs)
}
