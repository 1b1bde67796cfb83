package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/export"
)

// Both formats contain every row of every store, with all fields of its description.
func TestExportedRowsAreTheStore(t *testing.T) {
	envs := history(1, 300)
	for _, p := range allProjections() {
		t.Run(p.Name(), func(t *testing.T) {
			s := openStore(t, p, envs)
			want := conformance.RowsOf(t, s)

			text, n := exportRows(t, s, p, export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions})
			data, m := exportRows(t, s, p, export.RowsOptions{Format: export.Parquet, Partition: export.AllPartitions})
			lines := readLines[line](t, text)
			table, file := readParquet[export.Row](t, data)
			if len(lines) != len(want) || len(table) != len(want) || n.Rows != uint64(len(want)) || m.Rows != n.Rows {
				t.Fatalf("got %d and %d rows, and counts of %d and %d, expected %d", len(lines), len(table), n.Rows, m.Rows, len(want))
			}

			position := s.Cursor().Position().String()
			for i, row := range want {
				checkRow(t, p, row, lines[i], table[i], position)
			}

			for _, id := range oddIDs {
				of := func(r export.Row) bool { return r.Kind == "edge" && r.ID == id }
				if p.Name() == "graph" && !slices.ContainsFunc(table, of) {
					t.Errorf("expected an edge of %q", id)
				}
			}

			for key, value := range map[string]string{
				"skein.schema": "1", "skein.projection": p.Name(), "skein.position": position,
				"skein.fingerprint": s.Fingerprint().String(), "skein.version": fmt.Sprint(p.Version()),
			} {
				if got, ok := file.Lookup(key); !ok || got != value {
					t.Errorf("metadata %s: got %q, expected %q", key, got, value)
				}
			}
		})
	}
}

// checkRow compares a row in both formats with the row in the store.
func checkRow(t *testing.T, p projections.Projection, row conformance.Row, l line, r export.Row, position string) {
	t.Helper()
	d, err := all.DescribeRow(p.Name(), row.Key, row.Value)
	if err != nil {
		t.Fatal(err)
	}
	partition := int32(projections.PartitionOf(p, row.Key))
	if partition == projections.StoreWide {
		partition = -1
	}

	if l.Kind != d.Kind || l.Shard != int32(d.Shard) || l.ID != d.About || l.Position != position || l.Partition != partition {
		t.Errorf("%s: the object in NDJSON is %+v", d, l)
	}
	if r.Kind != l.Kind || r.Shard != l.Shard || r.ID != l.ID || r.Position != l.Position || r.Partition != l.Partition {
		t.Errorf("%s: the row in Parquet is %+v, the object in NDJSON %+v", d, r, l)
	}

	merged := maps.Clone(r.Key)
	maps.Copy(merged, r.Value)
	if len(merged) != len(d.Key())+len(d.Value()) || len(l.Fields) != len(merged) {
		t.Errorf("%s: %d fields in NDJSON, %d and %d in Parquet", d, len(l.Fields), len(r.Key), len(r.Value))
	}
	for _, f := range slices.Concat(d.Key(), d.Value()) {
		got, ok := merged[f.Name]
		if !ok || fmt.Sprint(l.Fields[f.Name]) != got {
			t.Errorf("%s: field %s is %v in NDJSON, %q in Parquet", d, f.Name, l.Fields[f.Name], got)
		}
		if id, is := f.Value.(string); is && got != id {
			t.Errorf("%s: field %s: got %q, expected %q", d, f.Name, got, id)
		}
	}
}

// The exports of all partitions together contain all rows, except those of the store as a whole.
func TestPartitionsTogetherAreAllRows(t *testing.T) {
	envs := history(2, 100)
	for _, p := range allProjections() {
		s := openStore(t, p, envs)
		whole, n := exportRows(t, s, p, export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions})

		var want, got []string
		for text := range strings.Lines(string(whole)) {
			if !strings.Contains(text, `"partition":-1,`) {
				want = append(want, text)
			}
		}
		if len(want) == 0 || uint64(len(want)) == n.Rows {
			t.Fatalf("%s: %d of %d rows have a partition", p.Name(), len(want), n.Rows)
		}

		for i := range events.NumPartitions {
			part, _ := exportRows(t, s, p, export.RowsOptions{Format: export.NDJSON, Partition: i})
			for text := range strings.Lines(string(part)) {
				if !strings.Contains(text, fmt.Sprintf(`"partition":%d,`, i)) {
					t.Fatalf("%s: the export of partition %d contains %s", p.Name(), i, text)
				}
				got = append(got, text)
			}
		}

		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %d rows of all partitions, expected these %d", p.Name(), len(got), len(want))
		}
	}
}

func TestExportOfSomeKinds(t *testing.T) {
	p := allProjections()[0]
	s := openStore(t, p, history(3, 50))

	_, n := exportRows(t, s, p, export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions})
	data, m := exportRows(t, s, p, export.RowsOptions{
		Format: export.Parquet, Partition: export.AllPartitions, Kinds: []string{"edge", "checkpoint"},
	})
	table, _ := readParquet[export.Row](t, data)
	if m.Kinds["edge"] != n.Kinds["edge"] || m.Kinds["checkpoint"] != 1 || len(m.Kinds) != 2 || uint64(len(table)) != m.Rows {
		t.Errorf("got %d rows and the counts %+v, expected the edges and the checkpoint of %+v", len(table), m, n)
	}
}

// Invalid options are refused with an error that names them, and a row that cannot be decoded ends
// the export.
func TestInvalidRowsOptionsAreRefused(t *testing.T) {
	p := allProjections()[0]
	s := openStore(t, p, history(4, 20))
	refused := func(want error, ctx context.Context, o export.RowsOptions) {
		t.Helper()
		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()

		o.Projection = p
		var out bytes.Buffer
		if _, err := export.Rows(ctx, &out, v, o); !errors.Is(err, want) {
			t.Errorf("options %+v: got %v, expected %v", o, err, want)
		}
	}

	whole := export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions}
	refused(export.ErrFormat, t.Context(), export.RowsOptions{Format: "csv", Partition: export.AllPartitions})
	refused(export.ErrPartition, t.Context(), export.RowsOptions{Format: export.NDJSON, Partition: events.NumPartitions})
	refused(export.ErrKind, t.Context(), export.RowsOptions{
		Format: export.NDJSON, Partition: export.AllPartitions, Kinds: []string{"edges"},
	})

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused(context.Canceled, ended, whole)

	err := s.Repair(t.Context(), func(_ events.Cursor, _ projections.Reader, m *store.Repair) error {
		m.Set(append(projections.AppendPrefix(nil, 1, projections.FirstGraphTag), "cut"...), []byte("x"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	refused(projections.ErrCorrupt, t.Context(), whole)
}

// TestExportWhileFoldingIsConsistent exports copies of a store that continues to fold. Each
// contains the rows of a fold up to its position, and no others.
func TestExportWhileFoldingIsConsistent(t *testing.T) {
	const copies = 4
	envs := history(5, 400)
	for i, p := range allProjections() {
		fs := vfs.NewMem()
		s := conformance.Open(t, fs, p, store.Bounds{FlushBytes: 32 << 10})
		conformance.Fold(t, s, envs[:10])

		done := make(chan error, 1)
		go func() {
			var err error
			for j := 10; j < len(envs) && err == nil; j++ {
				err = s.Fold(envs[j : j+1])
			}
			done <- err
		}()

		for c := range copies {
			dir := fmt.Sprintf("copy%d/%s/000001", c, p.Name())
			if err := fs.MkdirAll(fmt.Sprintf("copy%d/%s", c, p.Name()), 0o755); err != nil {
				t.Fatal(err)
			}
			at, err := s.Checkpoint(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			checkCopy(t, fs, fmt.Sprintf("copy%d", c), i, at, envs)
		}

		if err := <-done; err != nil {
			t.Fatal(err)
		}
		conformance.Close(t, s)
	}
}

// checkCopy checks that the copy of a store of the i-th projection exports the rows of a fold up to
// a cursor.
func checkCopy(t *testing.T, fs store.FS, dir string, i int, at events.Cursor, envs []*events.Envelope) {
	t.Helper()
	p := allProjections()[i]
	c, err := store.Open(store.Options{FS: fs, Dir: dir, Projection: p, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conformance.Close(t, c)
	got, _ := exportRows(t, c, p, export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions})

	fresh := allProjections()[i]
	straight := openStore(t, fresh, envs[:conformance.IndexAfter(envs, at)])
	want, _ := exportRows(t, straight, fresh, export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions})

	if !bytes.Equal(got, want) {
		t.Errorf("%s: the export at %d has %d bytes, which are not the %d bytes of a fold up to there", p.Name(), at.Seq, len(got), len(want))
	}
	if at.Position() != straight.Cursor().Position() {
		t.Errorf("%s: got the position %v, expected %v", p.Name(), at.Position(), straight.Cursor().Position())
	}
}
