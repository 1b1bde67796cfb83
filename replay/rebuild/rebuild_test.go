package rebuild_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/rebuild"
)

// startLoad publishes as fast as projections follow, a thousand envelopes per call of publishMore,
// or 200 in short tests. If the log grew without end as fast as it can be folded, a rebuild might
// never catch up.
func (w *testLog) startLoad(lives []*live.Live) (publishMore, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	requests := make(chan struct{}, 100)
	rounds := 50
	if testing.Short() {
		rounds = 10
	}

	go func() {
		defer close(done)
		for {
			select {
			case <-requests:
			case <-ctx.Done():
				return
			}
			for n := 0; n < rounds && ctx.Err() == nil; n++ {
				seq := w.publish(20) //nolint:contextcheck // what is being published is finished
				for _, l := range lives {
					if err := l.WaitFor(ctx, seq); err != nil && ctx.Err() == nil {
						w.t.Errorf("%s: wait for sequence %d: got %v, expected no error", l.Name(), seq, err)
					}
				}
			}
		}
	}()

	publishMore = func() { requests <- struct{}{} }
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	return publishMore, stop
}

// TestRebuildUnderLoad rebuilds every projection while it is written and read, and goes back to the
// previous generation. No read fails, and the rows are those of a fold. The benchmark measures how
// short the pause is.
func TestRebuildUnderLoad(t *testing.T) {
	t.Parallel()
	w := newTestLog(t)
	n := 2500
	if testing.Short() {
		n = 200
	}

	first := w.publish(n)
	var cutOvers atomic.Int64
	lives := w.openAll(store.Options{Listener: store.Listener{
		CutOver: func(store.CutOverInfo) { cutOvers.Add(1) },
	}})
	var stopReading []func() int
	for _, l := range lives {
		if err := l.WaitFor(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		stopReading = append(stopReading, w.startReading(l))
	}

	publishMore, stopLoad := w.startLoad(lives)
	defer stopLoad()
	for _, l := range lives {
		// Build generation 2.
		publishMore()
		var p replay.Progress
		report, err := rebuild.Rebuild(t.Context(), l, w.subscribeKinds, rebuild.Options{Progress: &p})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(l.Name(), report)
		mustCountAll(t, report)
		got := p.Now()
		if got.Phase != replay.CatchingUp || got.Unit != "envelopes" || got.Done == 0 || got.Done > got.Total || got.Total < first {
			t.Errorf("got the progress %+v, expected phase %v, with some of %d envelopes or more done", got, replay.CatchingUp, first)
		}
		if st := l.Status(); st.Generation != 2 || st.Previous != 1 || st.State == store.Rebuilding {
			t.Errorf("after the rebuild: got %+v, expected generation 2 after 1", st)
		}

		// Go back to generation 1.
		publishMore()
		report, err = rebuild.Rollback(t.Context(), l, 1, w.subscribeKinds, rebuild.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(l.Name(), report)
		mustCountAll(t, report)
		if st := l.Status(); st.Generation != 1 || st.Previous != 2 {
			t.Errorf("after the rollback: got %+v, expected generation 1 after 2", st)
		}

		// Go back to generation 2.
		publishMore()
		if _, err = rebuild.Rollback(t.Context(), l, 2, w.subscribeKinds, rebuild.Options{}); err != nil {
			t.Fatal(err)
		}
	}

	stopLoad()
	last := w.publish(1)
	for i, l := range lives {
		if stopReading[i]() == 0 {
			t.Errorf("%s: got no reads, expected some", l.Name())
		}
		if st := l.Status(); st.Generation != 2 {
			t.Errorf("in the end: got %+v, expected generation 2", st)
		}
		w.checkRows(l, last)
	}
	if got, want := cutOvers.Load(), int64(3*len(lives)); got != want {
		t.Errorf("the listener got %d cut-overs, expected %d", got, want)
	}
}

// closingHook is a subscription that calls a function when it is closed.
type closingHook struct {
	store.Subscription
	beforeClose func()
}

// Close implements store.Subscription.
func (s *closingHook) Close() {
	s.beforeClose()
	s.Subscription.Close()
}

// What the log received while a generation was built is folded before the cut-over, if it is more
// than the cut-over may fold.
func TestRebuildCatchesUp(t *testing.T) {
	t.Parallel()
	w := newTestLog(t)
	l := w.openLive(newGraph, store.Options{})
	publishOnce := func(envelopes int) func() {
		return sync.OnceFunc(func() {
			seq := w.publish(envelopes)
			if err := l.WaitFor(t.Context(), seq); err != nil {
				t.Errorf("wait for sequence %d: got %v, expected no error", seq, err)
			}
		})
	}
	publishOnce(50)()

	// The log grows by 2200 envelopes while the generation is built, and by 50 when it has caught
	// up with those.
	publishMany := publishOnce(2200)
	publishFew := publishOnce(50)
	subscriptions := 0
	subscribe := func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
		subscriptions++
		if subscriptions == 2 {
			publishMany()
		}
		sub, err := w.subscribeKinds(from, kinds)
		return &closingHook{sub, publishFew}, err
	}
	if _, err := rebuild.Rebuild(t.Context(), l, subscribe, rebuild.Options{}); err != nil {
		t.Fatal(err)
	}
	if subscriptions != 2 {
		t.Errorf("got %d subscriptions, expected 2", subscriptions)
	}
	w.checkRows(l, w.publish(1))
}

// newGraph is the constructor of the projection graph.
func newGraph() projections.Projection { return graph.New() }

// stopAfter returns a SubscribeFunc whose subscription calls stop, which ends the context of the
// caller, after n envelopes.
func stopAfter(subscribe rebuild.SubscribeFunc, n int, stop func()) rebuild.SubscribeFunc {
	return func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
		sub, err := subscribe(from, kinds)
		return &stoppingSubscription{sub, n, stop}, err
	}
}

// stoppingSubscription returns single envelopes. It calls stop when none are left.
type stoppingSubscription struct {
	store.Subscription
	envelopesLeft int
	stop          func()
}

// Next implements store.Subscription.
func (s *stoppingSubscription) Next(ctx context.Context, _ int) ([]*events.Envelope, error) {
	s.envelopesLeft--
	if s.envelopesLeft < 0 {
		s.stop()
		return nil, context.Cause(ctx)
	}
	return s.Subscription.Next(ctx, 1)
}

// A rebuild that was stopped leaves nothing behind, and the next one starts from the beginning.
func TestStoppedRebuildLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newTestLog(t)
	last := w.publish(2200)
	fs := vfs.NewMem()
	l := w.openLive(newGraph, store.Options{FS: fs})
	if err := l.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	_, err := rebuild.Rebuild(ctx, l, stopAfter(w.subscribeKinds, 100, cancel), rebuild.Options{})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v from the stopped rebuild, expected %v", err, context.Canceled)
	}
	if st := l.Status(); st.Generation != 1 || st.State == store.Rebuilding {
		t.Errorf("got %+v, expected generation 1 and no rebuild", st)
	}
	names, _ := fs.List("data/graph")
	slices.Sort(names)
	if diff := cmp.Diff([]string{"000001", "GENERATIONS"}, names); diff != "" {
		t.Errorf("files of the projection (-want +got):\n%s", diff)
	}

	if _, err := rebuild.Rebuild(t.Context(), l, w.subscribeKinds, rebuild.Options{}); err != nil {
		t.Fatal(err)
	}
	w.checkRows(l, last)
}

// A rebuild for which there is too little free disk is refused before it begins, with both sizes.
func TestRebuildThatDoesNotFitIsRefused(t *testing.T) {
	w := newTestLog(t)
	last := w.publish(50)
	fs := vfs.NewMem()
	l := w.openLive(newGraph, store.Options{FS: fs})
	if err := l.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}

	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 100 << 20})
	_, err := rebuild.Rebuild(t.Context(), l, w.subscribeKinds, rebuild.Options{})
	if !errors.Is(err, replay.ErrDisk) || !strings.Contains(err.Error(), "256 MiB are needed, 100 MiB are free") {
		t.Errorf("got %v, expected %v with both sizes", err, replay.ErrDisk)
	}

	// With a smaller margin it fits.
	if _, err := rebuild.Rebuild(t.Context(), l, w.subscribeKinds, rebuild.Options{Margin: 1 << 20}); err != nil {
		t.Errorf("rebuild with a margin of 1 MiB: got %v, expected no error", err)
	}
}

// A store that cannot be opened is rebuilt while the others serve.
func TestBrokenStoreIsRebuiltWhileOthersServe(t *testing.T) {
	w := newTestLog(t)
	last := w.publish(300)
	lives := w.openAll(store.Options{})
	fs := vfs.NewMem()
	l := w.openLive(newGraph, store.Options{FS: fs})
	if err := l.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}

	// Remove the tables of a store.
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	names, _ := fs.List("data/graph/000001")
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			if err := fs.Remove("data/graph/000001/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}

	l = w.openLive(newGraph, store.Options{FS: fs})
	if st := l.Status(); st.State != store.Failed || !st.Damaged {
		t.Errorf("got %+v, expected a failed and damaged store", st)
	}

	steps, err := rebuild.Plan(append(lives, l), rebuild.Log{Head: last, Bytes: 100 << 20})
	if err != nil || len(steps) != 1 {
		t.Fatalf("got the plan %+v, %v, expected one step", steps, err)
	}
	step := steps[0]
	if step.Name != "graph" || step.Envelopes != last || step.Time != 10*time.Second {
		t.Errorf("got the step %+v, expected to rebuild graph from %d envelopes in 10 s", step, last)
	}
	if step.Need < 200<<20 || step.Answers {
		t.Errorf("got the step %+v, expected that it needs 200 MiB or more, and that the store does not answer", step)
	}
	t.Log(steps)

	for _, other := range lives {
		w.checkRows(other, last)
	}

	if _, err := rebuild.Rebuild(t.Context(), l, w.subscribeKinds, rebuild.Options{}); err != nil {
		t.Fatal(err)
	}
	w.checkRows(l, last)
	if st := l.Status(); st.Previous != 0 {
		t.Errorf("got %+v, expected that the damaged generation was deleted", st)
	}
}

// Without a previous generation there is nothing to go back to.
func TestRollbackWithoutPreviousIsRefused(t *testing.T) {
	w := newTestLog(t)
	l := w.openLive(newGraph, store.Options{})
	if _, err := rebuild.Rollback(t.Context(), l, 2, w.subscribeKinds, rebuild.Options{}); !errors.Is(err, live.ErrNoPrevious) {
		t.Errorf("got %v, expected %v", err, live.ErrNoPrevious)
	}
}

// A rollback goes to its target and nowhere else: it does nothing if the target serves already, and
// is refused if another generation is the previous one.
func TestRollbackGoesToItsTargetOnly(t *testing.T) {
	w := newTestLog(t)
	last := w.publish(20)
	l := w.openLive(newGraph, store.Options{})
	if _, err := rebuild.Rebuild(t.Context(), l, w.subscribeKinds, rebuild.Options{}); err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name       string
		target     uint32
		want       error
		generation uint32
		previous   uint32
	}{
		{name: "serves already", target: 2, generation: 2, previous: 1},
		{name: "not the previous one", target: 3, want: live.ErrNoPrevious, generation: 2, previous: 1},
		{name: "the previous one", target: 1, generation: 1, previous: 2},
		{name: "repeated", target: 1, generation: 1, previous: 2},
	} {
		if _, err := rebuild.Rollback(t.Context(), l, test.target, w.subscribeKinds, rebuild.Options{}); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, expected %v", test.name, err, test.want)
		}
		if st := l.Status(); st.Generation != test.generation || st.Previous != test.previous {
			t.Errorf("%s: got generation %d, previous %d, expected %d, %d", test.name, st.Generation, st.Previous, test.generation, test.previous)
		}
	}
	w.checkRows(l, last)
}

// mustCountAll checks that the parts in a report add up to the whole log, up to where the
// generation began to serve.
func mustCountAll(t *testing.T, report string) {
	t.Helper()

	// findNumber returns 0 if the report does not have the number.
	findNumber := func(pattern string) (n uint64) {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(report); found != nil {
			n, _ = strconv.ParseUint(found[1], 10, 64)
		}
		return n
	}
	servesSince := findNumber(`since (\d+), after`)
	continuedFrom := findNumber(`continued from (\d+),`)
	passed := findNumber(`(\d+) envelopes of the log passed`)
	atCutOver := findNumber(`(\d+) more while it cut over`)
	if servesSince == 0 || continuedFrom+passed+atCutOver != servesSince {
		t.Errorf("got %d + %d + %d envelopes in the report, expected %d in all, and at least one: %s",
			continuedFrom, passed, atCutOver, servesSince, report)
	}
}
