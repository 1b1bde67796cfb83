package build

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
)

// decodedEvent is what eachEvent passes to its callback.
type decodedEvent struct {
	Event   events.Event
	LogTime events.Micros
}

// TestPartitionsGetTheirEventsInOrder checks that each partition gets the events that were added
// for it, in order, except fields that no fold needs.
func TestPartitionsGetTheirEventsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := openScatterFile(vfs.NewMem(), "events", rapid.Bool().Draw(t, "in background"), 0)
		if err != nil {
			t.Fatal(err)
		}

		// Add the events to three partitions in turn, and flush one now and then.
		var want [3][]decodedEvent
		opt := rapid.SampledFrom([]histories.Options{{}, {Feeds: true}, {Plays: true}}).Draw(t, "kind")
		envs := histories.Envelopes(histories.History(t, opt))
		flush := rapid.Bool().Draw(t, "flush")
		for _, env := range envs {
			for i := range env.Events {
				ev := &env.Events[i]
				part := i % len(want)
				if err := s.addEvent(scatteredEvent{ev, env.Cursor.LastTime, uint8(part)}); err != nil {
					t.Fatal(err)
				}
				kept := *ev
				kept.ID = ""
				kept.Offset = 0
				want[part] = append(want[part], decodedEvent{kept, env.Cursor.LastTime})
				if !flush || i%5 != 0 {
					continue
				}
				if err := s.waitEncoded(); err != nil {
					t.Fatal(err)
				}
				if len(s.parts[part].buf) > 0 {
					if err := s.flushPartition(uint8(part)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := s.finish(); err != nil {
			t.Fatal(err)
		}

		for part := range want {
			var got []decodedEvent
			err := s.eachEvent(uint8(part), func(ev *events.Event, logTime events.Micros) error {
				got = append(got, decodedEvent{*ev, logTime})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[part], got); diff != "" {
				t.Fatalf("partition %d (-want +got):\n%s", part, diff)
			}
		}
	})
}

// TestBatchesKeepOrder checks that events of several batches stay in order, with and without
// encoding in the background, and in a partition with a single batch.
func TestBatchesKeepOrder(t *testing.T) {
	for _, inBackground := range []bool{false, true} {
		s, err := openScatterFile(vfs.NewMem(), "events", inBackground, 0)
		if err != nil {
			t.Fatal(err)
		}
		const all = 5*batchEvents + 7
		for i := range all {
			ev := &events.Event{Kind: events.Played, User: "ann", Item: "7", Seq: uint64(i), Time: events.Micros(i)}
			if err := s.addEvent(scatteredEvent{ev, events.Micros(2 * i), uint8(min(i, 1))}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.finish(); err != nil {
			t.Fatal(err)
		}

		next := 0
		for partition := range uint8(2) {
			err := s.eachEvent(partition, func(ev *events.Event, logTime events.Micros) error {
				if ev.Seq != uint64(next) || logTime != events.Micros(2*next) {
					t.Fatalf("got event %d with log time %d, want event %d with log time %d", ev.Seq, logTime, next, 2*next)
				}
				next++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}

		if next != all {
			t.Errorf("got %d events, want %d", next, all)
		}
		if s.parts[0].eventCount != 1 || s.parts[1].eventCount != all-1 {
			t.Errorf("got %d and %d events in the partitions, want 1 and %d", s.parts[0].eventCount, s.parts[1].eventCount, all-1)
		}
	}
}

// TestFailedWritesAreReported checks that adding events or finishing fails, whichever block cannot
// be written.
func TestFailedWritesAreReported(t *testing.T) {
	writeEvents := func(fs vfs.FS, inBackground bool) error {
		s, err := openScatterFile(fs, "events", inBackground, 0)
		if err != nil {
			return err
		}
		for i := range 4*batchEvents - 1 {
			ev := &events.Event{Kind: events.Played, User: "ann", Item: "7", Seq: uint64(i)}
			if err := s.addEvent(scatteredEvent{ev, 0, 0}); err != nil {
				return errors.Join(err, s.waitEncoded())
			}
		}
		return s.finish()
	}

	// Let each write fail, until there is none with that number.
	for _, inBackground := range []bool{false, true} {
		for fails := 0; ; fails++ {
			writes := 0
			err := writeEvents(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind != errorfs.OpFileWriteAt {
					return nil
				}
				writes++
				if writes == fails+1 {
					return errorfs.ErrInjected
				}
				return nil
			})), inBackground)
			if writes <= fails {
				// There were fewer writes, so none has failed.
				if err != nil || fails < 5 {
					t.Fatalf("got %d writes and error %v, want at least 5 writes and no error", fails, err)
				}
				break
			}
			if !errors.Is(err, errorfs.ErrInjected) {
				t.Fatalf("write %d fails: got error %v, want %v", fails, err, errorfs.ErrInjected)
			}
		}
	}
}

// FuzzScattered checks that damaged bytes cause an error and never a panic.
func FuzzScattered(f *testing.F) {
	var last deltaBase
	f.Add(appendEvent(nil, &events.Event{Kind: events.Served, User: "ann", Items: []string{"7", "i"}, Seq: 3, Time: 5}, 6, &last))
	f.Add([]byte{isBackfill | 111, 0, 0, 0, 0}) // a kind that does not exist
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_ = decodeEvents(raw, func(*events.Event, events.Micros) error { return nil })
	})
}
