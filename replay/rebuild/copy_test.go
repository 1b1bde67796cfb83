package rebuild_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/rebuild"
)

// newSource returns a node that has the rows of a projection. The log grows whenever the node has
// given rows.
func (w *testLog) newSource(l *live.Live) rebuild.Source {
	return rebuild.Source{
		Name: "node", Has: l.Holds(),
		Rows: func(ctx context.Context, _, fold string, of events.Partitions, do func(key, value []byte) error) error {
			defer w.publish(3) //nolint:contextcheck // the log grows even if the call is canceled
			return l.ExportPartitions(ctx, fold, of, do)
		},
	}
}

// subscribeTail subscribes to the growing log. It returns an error if the log is read from its
// start.
func (w *testLog) subscribeTail(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		return nil, errors.New("the log is read from its start")
	}
	return w.subscribeGrowing(from, kinds)
}

// mustResize resizes a projection, and returns what was logged, and the report.
func mustResize(
	t *testing.T, l *live.Live, to events.Partitions, subscribe rebuild.SubscribeFunc, sources ...rebuild.Source,
) (logged, report string) {
	t.Helper()
	var b strings.Builder
	report, err := rebuild.Resize(t.Context(), l, to, subscribe, rebuild.Options{
		Sources: func() []rebuild.Source { return sources },
		Logger:  slog.New(slog.NewTextHandler(&b, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if held := l.Holds(); held != to {
		t.Errorf("got the partitions %s of %s, expected %s: %s", &held, l.Name(), &to, report)
	}

	return b.String(), report
}

// A node copies the partitions that it gets from several other nodes while the log grows, and reads
// only the tail of the log. Its rows are those of a fold.
func TestResizeCopiesRowsOfOtherNodes(t *testing.T) {
	t.Parallel()
	w := newTestLog(t)
	w.publish(100)
	for _, p := range all.Constructors(all.Settings{}) {
		even := w.openLive(p, store.Options{Partitioned: true})
		odd := w.openLive(p, store.Options{Partitioned: true})
		mustResize(t, even, everyNth(0, 2), w.subscribeGrowing)
		mustResize(t, odd, everyNth(1, 2), w.subscribeGrowing)

		// A new store copies all its partitions from two nodes. Later it has some, and copies the
		// others.
		l := w.openLive(p, store.Options{Partitioned: true})
		mustResize(t, l, everyNth(0, 3), w.subscribeTail, w.newSource(even), w.newSource(odd))
		w.checkRows(l, w.publish(1))
		mustResize(t, l, everyNth(0, 5), w.subscribeTail, w.newSource(odd), w.newSource(even))
		w.checkRows(l, w.publish(1))

		// Two nodes with the same partitions give a share each. Partitions that no node has are
		// built from the log.
		mustResize(t, l, events.AllPartitions(), w.subscribeGrowing, w.newSource(odd), w.newSource(odd))
		w.checkRows(l, w.publish(1))
	}
}

// Partitions that a node does not give, or gives wrongly, are built from the log.
func TestResizeBuildsWhatNodesDoNotGive(t *testing.T) {
	w := newTestLog(t)
	w.publish(50)
	from := w.openLive(newGraph, store.Options{Partitioned: true})
	mustResize(t, from, everyNth(0, 2), w.subscribeKinds)

	type rowFunc = func(key, value []byte) error
	type rowsFunc = func(ctx context.Context, projection, fold string, of events.Partitions, do rowFunc) error
	good := w.newSource(from)
	for name, rows := range map[string]rowsFunc{
		"cut off": func(ctx context.Context, projection, fold string, of events.Partitions, do rowFunc) error {
			n := 0
			return good.Rows(ctx, projection, fold, of, func(key, value []byte) error {
				n++
				if n > 20 {
					return errors.New("the connection is cut")
				}
				return do(key, value)
			})
		},
		"of another fold": func(ctx context.Context, projection, _ string, of events.Partitions, do rowFunc) error {
			return good.Rows(ctx, projection, "another", of, do)
		},
		"of more partitions": func(ctx context.Context, projection, fold string, _ events.Partitions, do rowFunc) error {
			return good.Rows(ctx, projection, fold, everyNth(0, 2), do)
		},
		"of too many partitions": func(ctx context.Context, projection, fold string, _ events.Partitions, do rowFunc) error {
			return good.Rows(ctx, projection, fold, events.AllPartitions(), do)
		},
		"nothing": func(context.Context, string, string, events.Partitions, rowFunc) error {
			return nil
		},
	} {
		l := w.openLive(newGraph, store.Options{Partitioned: true})
		bad := rebuild.Source{Name: name, Has: everyNth(0, 4), Rows: rows}
		logged, report := mustResize(t, l, everyNth(0, 4), w.subscribeGrowing, bad)

		if want := "rows are built from the log"; !strings.Contains(logged, want) {
			t.Errorf("%s: got the log messages\n%s\nexpected %q in them", name, logged, want)
		}
		if want := ", 0 of them copied"; !strings.Contains(report, want) {
			t.Errorf("%s: got the report %q, expected %q in it", name, report, want)
		}
		w.checkRows(l, w.publish(1))
	}
}
