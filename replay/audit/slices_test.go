package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/audit"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/verify"
)

// manyFollowers returns a log in which this many users follow bob.
func manyFollowers(w *memlog.World, users int) (envs []*events.Envelope) {
	for n := range users {
		envs = append(envs, w.Envelope(events.Event{Kind: events.UserFollowed, User: fmt.Sprint("user", n), Peer: "bob"}))
	}
	return envs
}

// A user with a long list is checked in several pieces, with rests between them, at positions that
// advance while users follow and unfollow. Nothing is reported that is not true, and a row that is
// missing far down the list is found.
func TestLongListIsCheckedInPieces(t *testing.T) {
	const users = 3500
	for name, damaged := range map[string]bool{"sound": false, "damaged": true} {
		t.Run(name, func(t *testing.T) {
			w := memlog.NewWorld(1, 5)
			f := newTestStores(t, manyFollowers(w, users))
			if damaged {
				f.damage(graphStore, func(db *pebble.DB) error {
					return changeRow(t, db, "graph", "following A=user700 ", "drop") // the newest come first
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for _, s := range f.stores {
				wg.Go(func() {
					if err := s.Run(ctx, f.log.Subscribe); err != nil {
						t.Error(err)
					}
				})
			}
			defer wg.Wait()
			defer cancel()
			a, err := audit.Open(ctx, f.stores[graphStore], f.stores[inboxStore], f.stores[countersStore], audit.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			a.Hold = 1
			rests, from := 0, a.Seq()
			a.Rest = func(ctx context.Context) error {
				rests++
				env := w.Envelope(events.Event{
					Kind: []events.Kind{events.UserUnfollowed, events.UserFollowed}[rests%2], User: fmt.Sprint("user", rests/2*3),
					Peer: "bob",
				})
				f.log.Append(env)
				return f.stores[graphStore].WaitFor(ctx, env.Seq())
			}
			if err := a.Check(ctx, audit.Entity{User: "bob"}); err != nil {
				t.Fatal(err)
			}
			if rests < users/100 {
				t.Errorf("%d rests in a list of %d", rests, users)
			}
			if a.Seq() == from {
				t.Error("one position was held all the time")
			}
			found := a.Findings()
			if damaged != (len(found) == 1) || damaged && (found[0].Check != "mirror" || !strings.Contains(found[0].Text, "user700 ")) {
				t.Errorf("found: %v", found)
			}
		})
	}
}

// countersMissingAPin are counters that do not count one pin.
type countersMissingAPin struct{ *counters.Counters }

func (p countersMissingAPin) Apply(ev events.Event, b *projections.Batch) error {
	if ev.Pin == "pin7" {
		return nil
	}
	return p.Counters.Apply(ev, b)
}

// If a list is longer than what is read for recently written entities, a wrong count of it is found
// by the round, and does not disappear when the finding is checked again.
func TestWrongCountOfLongListStaysFound(t *testing.T) {
	w := memlog.NewWorld(1, 5)
	var pins []*events.Envelope
	for n := range 2500 {
		id := fmt.Sprint("pin", n)
		pins = append(pins, w.Envelope(events.Event{Kind: events.PinCreated, User: "bob", Pin: id, Item: id}))
	}
	f := newTestStores(t, pins)
	conformance.Close(t, f.stores[countersStore])
	if err := f.fs.RemoveAll("data/counters"); err != nil {
		t.Fatal(err)
	}
	counts := func() projections.Projection { return countersMissingAPin{counters.New(counters.DefaultSettings())} }
	f.stores[countersStore] = conformance.Open(t, f.fs, counts(), store.Bounds{})
	sub, err := f.log.Subscribe(events.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	for f.stores[countersStore].Cursor().Seq < 2500 {
		envs, err := sub.Next(t.Context(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		conformance.Fold(t, f.stores[countersStore], envs)
	}
	sub.Close()
	var said logRecorder
	told, stop := f.runAuditor(func(c *audit.Config) {
		c.Limits = audit.Limits{List: 1000, Feed: 200}
		c.Logger = slog.New(slog.NewTextHandler(&said, nil))
		others := c.Shadow
		c.Shadow = func(name string) verify.Options {
			o := others(name)
			if name == "counters" {
				o.New = counts
			}
			return o
		}
	})
	defer stop()
	for s := range told {
		if said.hasLine("a fold is wrong", "user bob: counts: pins: the count of counters is 2499, the list is 2500 long") {
			return
		}
		if s.Rounds == 2 {
			t.Fatalf("two rounds have not found it; the last finding: %s", s.LastFinding)
		}
	}
}

// logRecorder collects what is logged.
type logRecorder struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *logRecorder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

// hasLine reports whether a line contains all of some words.
func (s *logRecorder) hasLine(words ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(s.text.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}
