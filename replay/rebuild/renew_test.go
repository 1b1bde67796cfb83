package rebuild_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/rebuild"
)

// Every projection is renewed while the log grows and the projection is read: with partitions from
// the log, with some of them, and with none. No read fails, and the rows are those of a fold.
func TestRenewedStoreHasTheRowsOfAFold(t *testing.T) {
	t.Parallel()
	w := newTestLog(t)
	n := 300
	if testing.Short() {
		n = 100
	}
	first := w.publish(n)

	for _, l := range w.openAll(store.Options{}) {
		if err := l.WaitFor(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		stopReading := w.startReading(l)

		for _, fromLog := range []events.Partitions{everyNth(0, 3), {}, events.AllPartitions()} {
			before := l.Status().Generation
			report, err := rebuild.Renew(t.Context(), l, fromLog, w.subscribeGrowing, rebuild.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(l.Name(), report)

			want := fmt.Sprintf("%d of 256 partitions were built from the log", fromLog.Len())
			if fromLog.Len() < events.NumPartitions && !strings.Contains(report, want) {
				t.Errorf("got the report %q of %s, expected %q", report, l.Name(), want)
			}
			if got := l.Status().Generation; got == before {
				t.Errorf("got generation %d of %s, expected a new one", got, l.Name())
			}
			w.checkRows(l, w.publish(1))
		}

		if stopReading() == 0 {
			t.Errorf("%s: got no reads, expected some", l.Name())
		}
	}
}
