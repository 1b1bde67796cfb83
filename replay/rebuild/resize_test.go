package rebuild_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

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

// subscribeGrowing subscribes to the log. Envelopes are published whenever a subscription is closed.
func (w *testLog) subscribeGrowing(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	n := 20
	if testing.Short() {
		n = 5
	}
	sub, err := w.subscribeKinds(from, kinds)
	return &closingHook{sub, func() { w.publish(n) }}, err
}

// Every projection of a node takes and gives away partitions while the log grows and the projection
// is read. No read fails, and the rows are those of a fold for its partitions.
func TestResizedStoreHasTheRowsOfAFold(t *testing.T) {
	t.Parallel()
	w := newTestLog(t)
	n := 300
	if testing.Short() {
		n = 100
	}
	first := w.publish(n)

	lives := w.openAll(store.Options{Partitioned: true})
	var stopReading []func() int
	for _, l := range lives {
		if held := l.Holds(); held.Len() != 0 {
			t.Errorf("%s begins with the partitions %s, expected none", l.Name(), &held)
		}
		if err := l.WaitFor(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		stopReading = append(stopReading, w.startReading(l))
	}

	for _, l := range lives {
		for _, want := range []events.Partitions{
			everyNth(0, 3), everyNth(0, 2), events.AllPartitions(), everyNth(1, 2), {}, everyNth(1, 5),
		} {
			report, err := rebuild.Resize(t.Context(), l, want, w.subscribeGrowing, rebuild.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(l.Name(), report)
			if held := l.Holds(); held != want {
				t.Errorf("got the partitions %s of %s, expected %s", &held, l.Name(), &want)
			}
			w.checkRows(l, w.publish(1))
		}

		// A resize to the same partitions does nothing.
		before := l.Status().Generation
		report, err := rebuild.Resize(t.Context(), l, everyNth(1, 5), w.subscribeKinds, rebuild.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if want := "it holds these 51 partitions already"; report != want {
			t.Errorf("for the same partitions, got the report %q of %s, expected %q", report, l.Name(), want)
		}
		if got := l.Status().Generation; got != before {
			t.Errorf("for the same partitions, got generation %d of %s, expected still %d", got, l.Name(), before)
		}

		// A rebuild keeps the partitions.
		if _, err := rebuild.Rebuild(t.Context(), l, w.subscribeKinds, rebuild.Options{}); err != nil {
			t.Fatal(err)
		}
		if held, want := l.Holds(), everyNth(1, 5); held != want {
			t.Errorf("after a rebuild, got the partitions %s of %s, expected %s", &held, l.Name(), &want)
		}
	}

	last := w.publish(1)
	for i, l := range lives {
		if stopReading[i]() == 0 {
			t.Errorf("%s: got no reads, expected some", l.Name())
		}
		w.checkRows(l, last)
	}
}

// If a resize is interrupted, at the start of the log or later, the present generation continues
// with its partitions, and nothing is left behind.
func TestStoppedResizeLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newTestLog(t)
	last := w.publish(2200)
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

	for _, envelopes := range []int{0, 100} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := rebuild.Resize(ctx, l, everyNth(0, 3), stopAfter(w.subscribeKinds, envelopes, cancel), rebuild.Options{})
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "resize graph from 128 partitions to 86: ") {
			t.Fatalf("stopped after %d envelopes: got %v, expected context.Canceled with the partitions", envelopes, err)
		}

		names, _ := fs.List("data/graph")
		slices.Sort(names)
		if diff := cmp.Diff([]string{"000001", "000002", "GENERATIONS"}, names); diff != "" {
			t.Errorf("stopped after %d envelopes: files of the projection (-want +got):\n%s", envelopes, diff)
		}
		if held, want := l.Holds(), everyNth(0, 2); held != want {
			t.Errorf("stopped after %d envelopes: got the partitions %s, expected %s", envelopes, &held, &want)
		}
		w.checkRows(l, w.publish(1))
	}

	// The previous generation has no partitions.
	if _, err := rebuild.Rollback(t.Context(), l, l.Status().Previous, w.subscribeKinds, rebuild.Options{}); err != nil {
		t.Fatal(err)
	}
	if held := l.Holds(); held.Len() != 0 {
		t.Errorf("after a rollback, got the partitions %s, expected none", &held)
	}
	w.checkRows(l, w.publish(1))
}

// A projection that holds all partitions, because it is not on a node of a cluster, cannot be
// resized.
func TestResizeOfUnpartitionedStoreIsRefused(t *testing.T) {
	w := newTestLog(t)
	l := w.openLive(newGraph, store.Options{})

	const wantErr = "it holds all partitions"
	_, err := rebuild.Resize(t.Context(), l, everyNth(0, 2), w.subscribeKinds, rebuild.Options{})
	if err == nil || !strings.Contains(err.Error(), wantErr) {
		t.Errorf("got %v, expected an error with %q", err, wantErr)
	}
	w.checkRows(l, w.publish(1))
}
