package rebuild_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/rebuild"
)

// everyNth returns every n-th partition from the first one on.
func everyNth(first, n int) (s events.Partitions) {
	for p := first; p < events.NumPartitions; p += n {
		s.Add(uint8(p))
	}
	return s
}

// growingLog subscribes to the log. Envelopes are added whenever a subscription is closed.
func (w *testLog) growingLog(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	sub, err := w.subscribeKinds(from, kinds)

	n := 20
	if testing.Short() {
		n = 5
	}
	return &closingHook{sub, func() { w.publish(n) }}, err
}

// Every projection of a node takes and gives away partitions while the log grows and the projection
// is read. No read fails, and the rows are those of a fold for its partitions.
func TestResizedStoreHasTheRowsOfAFold(t *testing.T) {
	w := newTestLog(t)
	n := 300
	if testing.Short() {
		n = 100
	}
	first := w.publish(n)

	lives := w.openAll(store.Options{Partitioned: true})
	var stops []func() int
	for _, l := range lives {
		if held := l.Holds(); held.Len() != 0 {
			t.Errorf("%s begins with the partitions %s, expected none", l.Name(), &held)
		}
		if err := l.WaitFor(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		stops = append(stops, w.startReading(l))
	}

	for _, l := range lives {
		for _, to := range []events.Partitions{everyNth(0, 3), everyNth(0, 2), events.AllPartitions(), everyNth(1, 2), {}, everyNth(1, 5)} {
			report, err := rebuild.Resize(t.Context(), l, to, w.growingLog, rebuild.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(l.Name(), report)
			if held := l.Holds(); held != to {
				t.Errorf("got the partitions %s of %s, expected %s", &held, l.Name(), &to)
			}
			w.checkRows(l, w.publish(1))
		}

		was := l.Status().Generation
		if report, err := rebuild.Resize(t.Context(), l, everyNth(1, 5), w.subscribeKinds, rebuild.Options{}); err != nil ||
			report != "it holds these 51 partitions already" || l.Status().Generation != was {
			t.Errorf("for the same partitions, Resize returned %q and %v, expected no new generation", report, err)
		}

		if _, err := rebuild.Rebuild(t.Context(), l, w.subscribeKinds, rebuild.Options{}); err != nil || l.Holds() != everyNth(1, 5) {
			t.Errorf("after a rebuild, got %v, expected the same partitions", err)
		}
	}

	last := w.publish(1)
	for i, l := range lives {
		if stops[i]() == 0 {
			t.Errorf("expected reads of %s", l.Name())
		}
		w.checkRows(l, last)
	}
}

// Wherever a resize is interrupted, the present generation continues with its partitions, and
// nothing is left behind.
func TestStoppedResizeLeavesNothing(t *testing.T) {
	w := newTestLog(t)
	last := w.publish(2500)
	fs := vfs.NewMem()
	l := w.openLive(newGraph, store.Options{FS: fs, Partitioned: true})

	if _, err := rebuild.Resize(t.Context(), l, everyNth(0, 2), w.subscribeKinds, rebuild.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if _, err := rebuild.Resize(t.Context(), l, everyNth(0, 2), w.subscribeKinds, rebuild.Options{}); err != nil {
		t.Fatal(err)
	}

	for _, after := range []int{0, 100} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := rebuild.Resize(ctx, l, everyNth(0, 3), stopAfter(w.subscribeKinds, after, cancel), rebuild.Options{})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "resize graph from 128 partitions to 86: ") {
			t.Fatalf("got %v, expected context.Canceled with the partitions", err)
		}

		names, _ := fs.List("data/graph")
		slices.Sort(names)
		if strings.Join(names, " ") != "000001 000002 GENERATIONS" || l.Holds() != everyNth(0, 2) {
			t.Errorf("got the directories %v, expected only the two generations and the old partitions", names)
		}
		w.checkRows(l, w.publish(1))
	}

	if _, err := rebuild.Rollback(t.Context(), l, w.subscribeKinds, rebuild.Options{}); err != nil || l.Holds() != (events.Partitions{}) {
		t.Errorf("after a rollback, got %v, expected the generation without partitions", err)
	}
	w.checkRows(l, w.publish(1))
}

// A projection that holds all partitions, because it is not on a node of a cluster, cannot be
// resized.
func TestResizeOfUnpartitionedStoreIsRefused(t *testing.T) {
	w := newTestLog(t)
	l := w.openLive(newGraph, store.Options{})
	if _, err := rebuild.Resize(t.Context(), l, everyNth(0, 2), w.subscribeKinds, rebuild.Options{}); err == nil ||
		!strings.Contains(err.Error(), "it holds all partitions") {
		t.Errorf("got %v, expected an error", err)
	}
	w.checkRows(l, w.publish(1))
}
