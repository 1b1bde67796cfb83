package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// makeFollowersOfBob returns a log in which this many users follow bob.
func makeFollowersOfBob(w *memlog.World, users int) (envs []*events.Envelope) {
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
	for name, isDamaged := range map[string]bool{"sound": false, "damaged": true} {
		t.Run(name, func(t *testing.T) {
			w := memlog.NewWorld(1, 5)
			f := newTestStores(t, makeFollowersOfBob(w, users))
			if isDamaged {
				// The newest followers come first, so this one is far down the list.
				f.damage(graphStore, func(db *pebble.DB) error {
					return changeRow(t, db, "graph", "following A=user700 ", "drop")
				})
			}

			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			f.startFolding(ctx, &wg)
			defer wg.Wait()
			defer cancel()

			// Between the pieces, a user follows or unfollows bob. With the shortest Hold, the audit
			// continues at another position as often as it can.
			a, err := audit.Open(ctx, f.stores[graphStore], f.stores[inboxStore], f.stores[countersStore], audit.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			a.Hold = 1
			rests := 0
			a.Rest = func(ctx context.Context) error {
				rests++
				kind := events.UserUnfollowed
				if rests%2 == 1 {
					kind = events.UserFollowed
				}
				env := w.Envelope(events.Event{Kind: kind, User: fmt.Sprint("user", rests/2*3), Peer: "bob"})
				f.log.Append(env)
				return f.stores[graphStore].WaitFor(ctx, env.Seq())
			}

			firstSeq := a.Seq()
			if err := a.Check(ctx, audit.Entity{User: "bob"}); err != nil {
				t.Fatal(err)
			}
			if rests < users/100 {
				t.Errorf("got %d rests in a list of %d followers, expected at least %d", rests, users, users/100)
			}
			if a.Seq() == firstSeq {
				t.Errorf("the audit ended at sequence %d, at which it began, expected a later one", firstSeq)
			}

			found := a.Findings()
			if !isDamaged {
				if len(found) > 0 {
					t.Errorf("got the findings %v in sound stores, expected none", found)
				}
				return
			}
			if len(found) != 1 || found[0].Check != "mirror" || !strings.Contains(found[0].Text, "user700 ") {
				t.Errorf("got the findings %v, expected one of the check mirror about user700", found)
			}
		})
	}
}

// countersMissingAPin are counters that do not count one pin.
type countersMissingAPin struct{ *counters.Counters }

// Apply implements projections.Projection.
func (p countersMissingAPin) Apply(ev events.Event, b *projections.Batch) error {
	if ev.Pin == "pin7" {
		return nil
	}
	return p.Counters.Apply(ev, b)
}

// If a list is longer than what is read for recently written entities, a wrong count of it is found
// by the round, and does not disappear when the finding is checked again.
func TestWrongCountOfLongListStaysFound(t *testing.T) {
	t.Parallel()
	w := memlog.NewWorld(1, 5)
	var pins []*events.Envelope
	for n := range 2500 {
		id := fmt.Sprint("pin", n)
		pins = append(pins, w.Envelope(events.Event{Kind: events.PinCreated, User: "bob", Pin: id, Item: id}))
	}
	f := newTestStores(t, pins)

	// Replace the counters by ones with a wrong fold.
	conformance.Close(t, f.stores[countersStore])
	if err := f.fs.RemoveAll("data/counters"); err != nil {
		t.Fatal(err)
	}
	newCounters := func() projections.Projection { return countersMissingAPin{counters.New(counters.DefaultSettings())} }
	f.stores[countersStore] = conformance.Open(t, f.fs, newCounters(), store.Bounds{})
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

	// A shadow has the same wrong fold, so the finding stays unexplained and is logged.
	var recorder logRecorder
	statuses, stop := f.runAuditor(func(c *audit.Config) {
		c.Limits = audit.Limits{List: 1000, Feed: 200}
		c.Logger = slog.New(slog.NewTextHandler(&recorder, nil))
		defaultShadow := c.Shadow
		c.Shadow = func(name string) verify.Options {
			o := defaultShadow(name)
			if name == "counters" {
				o.New = newCounters
			}
			return o
		}
	})
	defer stop()

	const wantFinding = "user bob: counts: pins: the count of counters is 2499, the list is 2500 long"
	for s := range statuses {
		if recorder.hasLine("a fold is wrong", wantFinding) {
			return
		}
		if s.Rounds == 2 {
			t.Fatalf("after two rounds, the last finding is %q, expected %q in the log", s.LastFinding, wantFinding)
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
		isMissing := func(word string) bool { return !strings.Contains(line, word) }
		if !slices.ContainsFunc(words, isMissing) {
			return true
		}
	}
	return false
}
