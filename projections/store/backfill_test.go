package store_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

func newBackfill(kind events.Kind, source string, offset uint64) events.Event {
	return events.Event{Kind: kind, Backfill: true, Source: source, Offset: offset, User: "ann", Peer: "bob", Item: "x"}
}

func closeBackfills(source string) events.Event {
	return events.Event{Kind: events.BackfillClosed, Source: source}
}

// TestRepeatedBackfillsAreIgnored checks that a backfill is folded only if its offset is higher
// than those before of its source and kind, and only until its source is closed, also after a
// restart (I6).
func TestRepeatedBackfillsAreIgnored(t *testing.T) {
	const (
		played   = events.Played
		followed = events.UserFollowed
	)
	steps := []struct {
		ev      events.Event
		ignored bool
	}{
		{newBackfill(played, "old", 0), false}, // the first offset may be 0
		{newBackfill(played, "old", 0), true},
		{newBackfill(played, "old", 5), false},
		{newBackfill(played, "old", 5), true},
		{newBackfill(played, "old", 4), true},
		{newBackfill(followed, "old", 1), false}, // another kind
		{newBackfill(played, "older", 1), false},
		{events.Event{Kind: played, User: "ann", Item: "x"}, false}, // live
		{newBackfill(events.Reacted, "old", 9), false},              // of a kind that is not read: neither folded nor ignored
		{newBackfill(played, "old", 6), false},
		{closeBackfills("old"), false},
		{newBackfill(played, "old", 7), true},
		{newBackfill(followed, "old", 2), true},
		{newBackfill(played, "older", 2), false},
		{closeBackfills("old"), false},
		{closeBackfills(""), false},
		{newBackfill(played, "older", 3), true},
		{newBackfill(played, "unknown", 1), true},
		{events.Event{Kind: played, User: "ann", Item: "x"}, false},
	}

	var lists [][]events.Event
	for _, step := range steps {
		lists = append(lists, storetest.One(step.ev))
	}
	envs := storetest.Envelopes(lists...)

	for name, restart := range map[string]bool{"running": false, "restarted each time": true} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			var info store.FoldInfo
			opts := store.Options{FS: fs, Listener: store.Listener{
				Folded: func(i store.FoldInfo) { info = i },
			}}
			s := storetest.OpenTally(t, opts)
			for i, step := range steps {
				if restart {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = storetest.OpenTally(t, opts)
				}
				if err := s.Fold(envs[i : i+1]); err != nil {
					t.Fatal(err)
				}
				if (info.Ignored == 1) != step.ignored {
					t.Errorf("step %d, %+v: ignored %d backfills, want ignored: %v", i, step.ev, info.Ignored, step.ignored)
				}
			}
			conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "a fold in one call")
		})
	}
}

// TestFoldLearnsThatBackfillsAreClosed checks that a fold learns when no backfill can arrive any
// more.
func TestFoldLearnsThatBackfillsAreClosed(t *testing.T) {
	play := events.Event{Kind: events.Played, User: "ann", Item: "x"}
	envs := storetest.Envelopes(
		[]events.Event{play, closeBackfills("old"), play},
		[]events.Event{closeBackfills(""), play},
		storetest.One(play),
	)
	rows := foldStraight(t, envs).Own()
	if len(rows) != 1 {
		t.Fatalf("got %d rows, want 1:\n%v", len(rows), rows)
	}
	if rows[0].Value[7] != 4 || rows[0].Value[15] != 2 {
		t.Errorf("got the row %x, want 4 plays, 2 of them after the backfills were closed", rows[0].Value)
	}
}
