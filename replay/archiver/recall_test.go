package archiver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
)

// damageEventIDFiles damages all files of event ids in the archive.
func (w *testLog) damageEventIDFiles() {
	w.t.Helper()
	damaged := 0
	for _, pattern := range []string{"recent-*", "repeats-*"} {
		names, err := filepath.Glob(filepath.Join(w.dir, "bucket", "archive", pattern))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(name, []byte("harmed"), 0o600); err != nil {
				w.t.Fatal(err)
			}
			damaged++
		}
	}

	if damaged == 0 {
		w.t.Fatal("the archive has no files of event ids, expected at least one")
	}
}

// A log is restored even if the files of event ids in its archive are damaged. If the stream still
// has the horizon before the end of the archive, no event can be accepted twice. Otherwise the
// report says which events might be.
func TestRestoreReplacesDamagedEventIDs(t *testing.T) {
	for name, test := range map[string]struct {
		hasStream    bool // the restore can read the stream
		allArchived  bool // the archive has the last envelope
		wantComplete bool // no event can be accepted twice after the restore
	}{
		"nothing left of the stream": {hasStream: false, allArchived: true, wantComplete: false},
		"all of the stream":          {hasStream: true, allArchived: false, wantComplete: true},
		"the stream, all archived":   {hasStream: true, allArchived: true, wantComplete: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := openLog(t, t.TempDir(), nil)

				// The event of sequence 13 is published a second time below. The last envelope, 14,
				// is archived or only in the stream.
				w.publish(12, time.Minute)
				w.publishFollow("x", "once")
				if test.allArchived {
					w.publishFollow("y", "y")
					w.archiveUpTo(14)
				} else {
					w.archiveUpTo(13)
					w.publishFollow("y", "y")
				}

				head := w.cursors(14)[14]
				repeats, err := w.log.RepeatsAt(t.Context(), head)
				if err != nil {
					t.Fatal(err)
				}

				w.damageEventIDFiles()
				w.stop()
				o := w.restoreOptions(nil)
				if test.hasStream {
					o.Damaged = w.moveLogAway()
				} else {
					w.deleteLog()
				}

				r := mustRestore(t, o)
				if r.Head.Seq != 14 {
					t.Fatalf("got a restored log up to %d, expected up to 14: %+v", r.Head.Seq, r)
				}
				if r.Repeats == nil || r.Repeats.Complete != test.wantComplete || len(r.Repeats.Damaged) == 0 {
					t.Fatalf("got the event ids %+v, expected damaged files and Complete %v", r.Repeats, test.wantComplete)
				}
				if warns := strings.Contains(r.String(), "is taken a second time"); warns == test.wantComplete {
					t.Errorf("expected a warning that events can be accepted twice: %v; got the report\n%s", !test.wantComplete, r)
				}
				if !test.wantComplete && (r.Repeats.To != head.LastTime || r.Repeats.From >= head.LastTime) {
					t.Errorf("got the unknown period %d to %d, expected one that ends with the archive at %d",
						r.Repeats.From, r.Repeats.To, head.LastTime)
				}

				w = openLog(t, w.dir, nil)
				defer func() { w.stop() }()
				if err := w.archive.Check(t.Context(), nil); err != nil {
					t.Error(err)
				}
				if kept, err := w.archive.Repeats(t.Context(), 2); err != nil || slices.Equal(kept, repeats) != test.wantComplete {
					t.Errorf("got the event ids %v and %v, expected equal to %v: %v", kept, err, repeats, test.wantComplete)
				}

				w.publishFollow("x", "once")
				got := w.readEvents(15)[14]
				isIgnored := len(got.Events) == 0
				if isIgnored != test.wantComplete {
					t.Errorf("after the event was published again, got %+v, expected that it is ignored: %v", got, test.wantComplete)
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
		t.Errorf("without damage, RecoverIDs returned %+v and %v, expected nothing", healed, err)
	}

	before := w.archive.End()
	w.damageEventIDFiles()
	if check, err := CheckStream(t.Context(), o.Bucket, o.Stream); err != nil || check.Problem != nil {
		t.Errorf("with damaged files of event ids, CheckStream returned %+v and %v, expected no problem", check, err)
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
	if err != nil {
		t.Fatal(err)
	}
	kept, err := w.archive.ReadRepeats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kept.Repeats, want) {
		t.Errorf("got the event ids %v, expected %v", kept.Repeats, want)
	}
	if w.log.Epoch() != 1 || w.log.EpochStart() != (events.Cursor{Log: w.log.ID(), Epoch: 1}) {
		t.Errorf("got epoch %d from %+v, expected the first epoch from its start", w.log.Epoch(), w.log.EpochStart())
	}
}

// An archive can be read if event ids from before the epoch cannot be read, but everything that
// they have decided is archived. The same is true after the damaged file was replaced.
func TestArchiveIsReadWithoutEventIDsFromBeforeItsEpoch(t *testing.T) {
	t.Run("damaged", func(t *testing.T) { testEventIDsFromBeforeEpoch(t, false) })
	t.Run("replaced", func(t *testing.T) { testEventIDsFromBeforeEpoch(t, true) })
}

func testEventIDsFromBeforeEpoch(t *testing.T, replaces bool) {
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
		originalEvents := w.readEvents(9)
		cursors := w.cursors(9)
		if originalEvents[6].Repeats != 1 || originalEvents[8].Repeats != 1 {
			t.Fatalf("got %+v, expected that envelopes 7 and 9 repeat one event each", originalEvents)
		}
		w.stop()

		names, err := filepath.Glob(filepath.Join(w.dir, "bucket", "archive", "repeats-*"))
		if err != nil || len(names) != 1 {
			t.Fatalf("got the files %v and %v, expected one", names, err)
		}
		if err := os.Remove(names[0]); err != nil {
			t.Fatal(err)
		}
		if replaces {
			o := w.restoreOptions(nil)
			if r, err := RecoverIDs(t.Context(), o.Bucket, o.Stream); err != nil || r == nil {
				t.Fatalf("got %+v and %v, expected a report of the damaged file", r, err)
			}
			if r, err := RecoverIDs(t.Context(), o.Bucket, o.Stream); err != nil || r != nil {
				t.Errorf("the second time, got %+v and %v, expected nothing", r, err)
			}
		}

		w = openLog(t, w.dir, nil)
		defer func() { w.stop() }()
		for _, from := range []events.Cursor{w.log.EpochStart(), cursors[7], cursors[8], cursors[9]} {
			if err := w.log.CheckCursor(t.Context(), from); err != nil {
				t.Errorf("cursor of a store at sequence %d: got %v, expected that it is accepted", from.Seq, err)
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
		if diff := cmp.Diff(originalEvents, w.readEvents(9)); diff != "" {
			t.Errorf("the log differs from the original (-original +got):\n%s", diff)
		}
		if err := w.archive.Check(t.Context(), nil); (err == nil) != replaces {
			t.Errorf("check of the archive: got %v, expected success: %v", err, replaces)
		}
	})
}
