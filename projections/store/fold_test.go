package store_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// TestTallyConforms runs the conformance suite for tally, whose events are difficult for a store.
// The golden file also has the rows of the runtime.
func TestTallyConforms(t *testing.T) {
	n := 300
	if testing.Short() {
		n = 120
	}
	c := conformance.Case{
		New:  newTally,
		Tags: conformance.TagRange{First: 0xf0, Last: 0xf4},
		Histories: []conformance.History{
			{Name: "short", Envelopes: tally.History(1, 60)},
			{Name: "long", Envelopes: tally.History(2, n)},
		},
		Golden: "testdata/tally.golden",
	}
	conformance.Run(t, c)
}

// TestOnlyLargeEnvelopesTakeSeveralCommits checks that an envelope of small events is committed
// once.
func TestOnlyLargeEnvelopesTakeSeveralCommits(t *testing.T) {
	var list []events.Event
	for i := range 100 {
		list = append(list, storetest.Follow("ann", "p"+string(rune('0'+i/10))+string(rune('0'+i%10))))
	}
	// The values of commits are 1, or 2 for more than one.
	for _, test := range []struct{ bytes, commits int }{{1 << 20, 1}, {16 << 10, 1}, {4 << 10, 2}} {
		var info store.FoldInfo
		s := storetest.OpenTally(t, store.Options{
			Bounds:   store.Bounds{BatchBytes: test.bytes},
			Listener: store.Listener{Folded: func(i store.FoldInfo) { info = i }},
		})
		if err := s.Fold(storetest.Envelopes(list)); err != nil {
			t.Fatal(err)
		}
		if info.Events != 100 || info.Envelopes != 1 {
			t.Errorf("batches of %d bytes: got %+v, want 100 events of 1 envelope", test.bytes, info)
		}
		if (info.Commits > 1) != (test.commits > 1) {
			t.Errorf("batches of %d bytes: got %d commits, want more than one: %v", test.bytes, info.Commits, test.commits > 1)
		}
	}
}

// observedTally is a tally that calls beforeApply before it folds an event.
type observedTally struct {
	*tally.Tally
	beforeApply func()
}

func (o *observedTally) Apply(ev events.Event, b *projections.Batch) error {
	o.beforeApply()
	return o.Tally.Apply(ev, b)
}

// TestViewsShowWholeEnvelopes checks that every view shows the position before an envelope while it
// is folded in several commits.
func TestViewsShowWholeEnvelopes(t *testing.T) {
	var list []events.Event
	for i := range 100 {
		list = append(list, storetest.Follow("ann", "p"+string(rune('0'+i/10))+string(rune('0'+i%10))))
	}

	// The second envelope takes several commits. Before each of its events, a view must show the
	// position of the first.
	envs := storetest.Envelopes(storetest.One(storetest.Follow("ann", "bob")), list)
	observed := &observedTally{tally.New(), func() {}}
	var commits int
	s := storetest.OpenTally(t, store.Options{
		Projection: observed, Bounds: store.Bounds{BatchBytes: 1 << 10},
		Listener: store.Listener{Folded: func(i store.FoldInfo) { commits = i.Commits }},
	})
	if err := s.Fold(envs[:1]); err != nil {
		t.Fatal(err)
	}
	observed.beforeApply = func() {
		v := openView(t, s)
		count, ok, err := v.Get(tally.CountKey("ann"))
		if err != nil || !ok || binary.BigEndian.Uint64(count) != 1 || v.Cursor() != envs[0].Cursor {
			t.Fatalf("got count %x at %d, error %v, want count 1 at %d", count, v.Cursor().Seq, err, envs[0].Seq())
		}
	}
	if err := s.Fold(envs[1:]); err != nil {
		t.Fatal(err)
	}
	if commits < 2 {
		t.Errorf("got %d commits, want at least 2", commits)
	}
}

// TestFoldRefusesAnotherLog checks that a store folds no envelope of another log or of an earlier
// epoch.
func TestFoldRefusesAnotherLog(t *testing.T) {
	for name, change := range map[string]func(c *events.Cursor){
		"another log":    func(c *events.Cursor) { c.Log[0]++ },
		"an older epoch": func(c *events.Cursor) { c.Epoch-- },
		"without a log":  func(c *events.Cursor) { c.Log = events.LogID{} },
		"a new epoch":    func(c *events.Cursor) { c.Epoch++ },
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.OpenTally(t, store.Options{})
			envs := storetest.Follows(2)
			change(&envs[1].Cursor)
			err := s.Fold(envs)

			if name == "a new epoch" {
				if err != nil {
					t.Errorf("got error %v, want none", err)
				}
				return
			}
			if !errors.Is(err, projections.ErrLog) || !errors.Is(err, projections.ErrStopped) {
				t.Errorf("got error %v, want one that is %v and %v", err, projections.ErrLog, projections.ErrStopped)
			}
		})
	}
}

// TestFoldRequiresTheEnvelopeInProgress checks that after a crash inside an event, the fold fails
// if the log no longer has the envelope.
func TestFoldRequiresTheEnvelopeInProgress(t *testing.T) {
	envs, fs := crashInsideEvent(t)
	s := storetest.OpenTally(t, store.Options{FS: fs, Bounds: store.Bounds{BatchBytes: 1}})
	if _, err := s.View(); !errors.Is(err, projections.ErrNotReady) {
		t.Fatalf("view inside an event: got error %v, want %v", err, projections.ErrNotReady)
	}
	if err := s.Fold(envs[2:]); !errors.Is(err, projections.ErrLog) {
		t.Errorf("fold without the envelope in progress: got error %v, want %v", err, projections.ErrLog)
	}
}

// crashInsideEvent returns a log of three envelopes, and the disk after a crash that interrupted
// the fold of the second.
func crashInsideEvent(t *testing.T) ([]*events.Envelope, store.FS) {
	t.Helper()
	items := make([]string, 100)
	for i := range items {
		items[i] = "item" + string(rune('0'+i/10)) + string(rune('0'+i%10))
	}
	envs := storetest.Envelopes(
		storetest.One(storetest.Follow("ann", "bob")),
		[]events.Event{{Kind: events.Served, User: "ann", Items: items}, storetest.Follow("ann", "dan")},
		storetest.One(storetest.Follow("ann", "cid")))

	broken := tally.New()
	broken.FailAt = envs[1].Seq()
	broken.FailSlot = 1

	// The rows of the event fill several memtables, so the first flush ends inside the event.
	fs := vfs.NewCrashableMem()
	flushed := make(chan struct{}, 1000)
	s := storetest.OpenTally(t, store.Options{
		FS: fs, Projection: broken, Bounds: store.Bounds{BatchBytes: 1, FlushBytes: 8 << 10},
		Listener: store.Listener{Flushed: func(store.FlushInfo) { flushed <- struct{}{} }},
	})
	if err := s.Fold(envs); !errors.Is(err, tally.ErrFails) {
		t.Fatalf("fold: got error %v, want %v", err, tally.ErrFails)
	}
	<-flushed
	return envs, fs.CrashClone(vfs.CrashCloneCfg{})
}

// TestFailingFoldStopsProjection checks that a fold that fails stops the projection, which refuses
// all calls until it is opened again, with a fold that does not fail.
func TestFailingFoldStopsProjection(t *testing.T) {
	envs := storetest.Follows(5)
	for name, p := range map[string]*tally.Tally{
		"error": {Copies: 5, Chunk: 7, FailAt: envs[3].Seq()},
		"panic": {Copies: 5, Chunk: 7, PanicAt: envs[3].Seq()},
		"leak":  {Copies: 5, Chunk: 7, LeakAt: envs[3].Seq()},
		"write": {Copies: 5, Chunk: 7, MisuseAt: envs[3].Seq()},
	} {
		t.Run(name, func(t *testing.T) {
			var reported error
			fs := vfs.NewMem()
			s := storetest.OpenTally(t, store.Options{FS: fs, Projection: p, Listener: store.Listener{
				StateChanged: func(_ store.State, err error) { reported = err },
			}})

			// An iterator that is left open holds a table, so there must be one.
			if err := errors.Join(s.Fold(envs[:2]), s.Flush()); err != nil {
				t.Fatal(err)
			}

			err := s.Fold(envs[2:])
			if !errors.Is(err, projections.ErrStopped) || !strings.Contains(err.Error(), "envelope 4: slot 0") {
				t.Fatalf("fold: got error %v, want %v that names the event", err, projections.ErrStopped)
			}
			if reported == nil {
				t.Error("got no error for the listener, want one")
			}
			if st := s.Status(); st.State != store.Failed || st.Error == nil || st.Cursor.Seq != 2 {
				t.Errorf("got status %+v, want state failed at position 2 with an error", st)
			}

			// The failed store refuses calls.
			if _, err := s.View(); !errors.Is(err, projections.ErrStopped) {
				t.Errorf("view of a failed store: got error %v, want %v", err, projections.ErrStopped)
			}
			if err := s.WaitFor(t.Context(), 1); !errors.Is(err, projections.ErrStopped) {
				t.Errorf("wait for a failed store: got error %v, want %v", err, projections.ErrStopped)
			}
			if err := s.Fold(envs[2:]); !errors.Is(err, projections.ErrStopped) {
				t.Errorf("fold into a failed store: got error %v, want %v", err, projections.ErrStopped)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			// A store that is opened with a fold that does not fail continues at its position.
			s = storetest.OpenTally(t, store.Options{FS: fs})
			if err := s.Fold(envs); err != nil {
				t.Fatal(err)
			}
			conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "healed")
		})
	}
}
