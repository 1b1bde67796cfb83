package archiver

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

// damageEventIDFiles damages all files of event ids in the archive.
func (w *testLog) damageEventIDFiles() {
	w.t.Helper()
	n := 0
	for _, what := range []string{"recent-*", "repeats-*"} {
		names, err := filepath.Glob(filepath.Join(w.dir, "bucket", "archive", what))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(name, []byte("harmed"), 0o600); err != nil {
				w.t.Fatal(err)
			}
			n++
		}
	}

	if n == 0 {
		w.t.Fatal("expected the archive to have files of event ids")
	}
}

// A log is restored even if the files of event ids in its archive are damaged. If the stream still
// has the horizon before the end of the archive, no event can be accepted twice. Otherwise the
// report says which events might be.
func TestRestoreReplacesDamagedEventIDs(t *testing.T) {
	for name, test := range map[string]struct{ stream, archived, whole bool }{
		"nothing left of the stream": {false, true, false},
		"all of the stream":          {true, false, true},
		"the stream, all archived":   {true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := openLog(t, t.TempDir(), nil)

				// The event of sequence 13 is published a second time below. The last envelope, 14,
				// is archived or only in the stream.
				w.publish(12, time.Minute)
				w.publishFollow("x", "once")
				if test.archived {
					w.publishFollow("y", "y")
				}
				w.archiveUpTo(14 - map[bool]uint64{false: 1}[test.archived])
				if !test.archived {
					w.publishFollow("y", "y")
				}

				at := w.cursors(14)[14]
				repeats, err := w.log.RepeatsAt(t.Context(), at)
				if err != nil {
					t.Fatal(err)
				}

				w.damageEventIDFiles()
				w.stop()
				o := w.restoreOptions(nil)
				if test.stream {
					o.Damaged = w.moveLogAway()
				} else {
					w.deleteLog()
				}

				r := mustRestore(t, o)
				if r.Repeats == nil || r.Repeats.Complete != test.whole || len(r.Repeats.Damaged) == 0 || r.Head.Seq != 14 {
					t.Fatalf("got %+v, expected a restored log up to 14, damaged files, and whether no event can be accepted twice: %v", r, test.whole)
				}
				if said := strings.Contains(r.String(), "is taken a second time"); said == test.whole {
					t.Errorf("whether events can be accepted twice: expected %v, got the report %s", !test.whole, r)
				}
				if !test.whole && (r.Repeats.To != at.LastTime || r.Repeats.From >= at.LastTime) {
					t.Errorf("got %+v, expected a period that ends with the archive", r.Repeats)
				}

				w = openLog(t, w.dir, nil)
				defer func() { w.stop() }()
				if err := w.archive.Check(t.Context(), nil); err != nil {
					t.Error(err)
				}
				if kept, err := w.archive.Repeats(t.Context(), 2); err != nil || slices.Equal(kept, repeats) != test.whole {
					t.Errorf("got the event ids %v and %v, expected equal to %v: %v", kept, err, repeats, test.whole)
				}

				w.publishFollow("x", "once")
				if got := w.readEvents(15)[14]; len(got.Events) == 0 != test.whole {
					t.Errorf("after the event was published again, got %+v, expected that it is ignored: %v", got, test.whole)
				}
			})
		})
	}
}

// If the log itself is undamaged, damaged files of event ids are made again from it, and the log
// continues in its epoch.
func TestHealReplacesDamagedEventIDs(t *testing.T) {
	w := openLog(t, t.TempDir(), nil)
	w.publish(12, 0)
	w.publishFollow("x", "once")
	w.archiveUpTo(13)
	w.stop()

	o := w.restoreOptions(nil)
	if healed, err := RecoverIDs(t.Context(), o.Bucket, o.Stream); healed != nil || err != nil {
		t.Errorf("without damage, Heal returned %+v and %v, expected nothing", healed, err)
	}

	before := w.archive.End()
	w.damageEventIDFiles()
	if x, err := CheckStream(t.Context(), o.Bucket, o.Stream); err != nil || x.Problem != nil {
		t.Errorf("with damaged files of event ids, Examine returned %+v and %v, expected an undamaged log", x, err)
	}
	healed, err := RecoverIDs(t.Context(), o.Bucket, o.Stream)
	if err != nil || healed == nil || !healed.Complete || !strings.Contains(healed.String(), "nothing is taken twice") {
		t.Fatalf("got %+v and %v, expected complete event ids", healed, err)
	}

	w = openLog(t, w.dir, nil)
	defer func() { w.stop() }()
	if w.archive.End() != before {
		t.Errorf("got %+v as the end of the archive, expected %+v", w.archive.End(), before)
	}
	if err := w.archive.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
	want, err := w.log.RepeatsAt(t.Context(), before)
	if kept, kerr := w.archive.ReadRepeats(t.Context()); err != nil || kerr != nil || !slices.Equal(kept.Repeats, want) {
		t.Errorf("got the event ids %v and %v, expected %v (%v)", kept, kerr, want, err)
	}
	if w.log.Epoch() != 1 || w.log.EpochStart() != (events.Cursor{Log: w.log.ID(), Epoch: 1}) {
		t.Errorf("got epoch %d from %+v, expected the first epoch from its start", w.log.Epoch(), w.log.EpochStart())
	}
}

// An archive can be read if event ids from before the epoch cannot be read, but everything that
// they have decided is archived.
func TestArchiveIsReadWithoutEventIDsFromBeforeItsEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := openLog(t, t.TempDir(), nil)
		w.publish(5, 0)
		w.publishFollow("x", "once")
		w.archiveUpTo(6)
		w.stop()
		w.deleteLog()
		mustRestore(t, w.restoreOptions(nil))

		w = openLog(t, w.dir, nil)
		w.publishFollow("x", "once")
		letTimePass(20 * time.Minute)
		w.publishFollow("z", "z")
		w.archiveUpTo(8)
		w.publishFollow("z", "z")
		whole, at := w.readEvents(9), w.cursors(9)
		if whole[6].Repeats != 1 || whole[8].Repeats != 1 {
			t.Fatalf("got %+v, expected that envelopes 7 and 9 repeat one event each", whole)
		}
		w.stop()

		names, err := filepath.Glob(filepath.Join(w.dir, "bucket", "archive", "repeats-*"))
		if err != nil || len(names) != 1 {
			t.Fatalf("got the files %v and %v, expected one", names, err)
		}
		if err := os.Remove(names[0]); err != nil {
			t.Fatal(err)
		}

		w = openLog(t, w.dir, nil)
		defer func() { w.stop() }()
		for _, from := range []events.Cursor{w.log.EpochStart(), at[7], at[8], at[9]} {
			if err := w.log.CheckCursor(t.Context(), from); err != nil {
				t.Errorf("a store at %d cannot continue: %v", from.Seq, err)
			}
		}

		sub, err := w.hub.Subscribe(w.log.EpochStart())
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		if envs, err := sub.Next(t.Context(), 1<<20); err != nil || envs[0].Seq() != 7 || envs[0].Repeats != 1 {
			t.Errorf("the epoch begins with %+v and %v, expected envelope 7 with one repeated event", envs, err)
		}
		if got := w.readEvents(9); !reflect.DeepEqual(got, whole) {
			t.Errorf("got the envelopes\n%+v, expected\n%+v", got, whole)
		}
	})
}
