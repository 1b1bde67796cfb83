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
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/export"
)

// Both formats contain every row of every store, with all fields of its description.
func TestExportedRowsAreTheStore(t *testing.T) {
	envs := makeHistory(1, 300)
	for _, p := range allProjections() {
		t.Run(p.Name(), func(t *testing.T) {
			s := openStore(t, p, envs)
			want := conformance.RowsOf(t, s)

			ndjson, ndjsonCounts := mustExportRows(t, s, p, export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions})
			lines := mustReadLines[line](t, ndjson)
			if len(lines) != len(want) || ndjsonCounts.Rows != uint64(len(want)) {
				t.Fatalf("NDJSON: got %d rows and a count of %d, expected %d", len(lines), ndjsonCounts.Rows, len(want))
			}
			data, tableCounts := mustExportRows(t, s, p, export.RowsOptions{Format: export.Parquet, Partition: export.AllPartitions})
			table, file := mustReadParquet[export.Row](t, data)
			if len(table) != len(want) || tableCounts.Rows != uint64(len(want)) {
				t.Fatalf("Parquet: got %d rows and a count of %d, expected %d", len(table), tableCounts.Rows, len(want))
			}

			position := s.Cursor().Position().String()
			for i, row := range want {
				checkRow(t, p, row, lines[i], table[i], position)
			}

			// The log has an edge of each odd id.
			for _, id := range oddIDs {
				isEdgeOfID := func(r export.Row) bool { return r.Kind == "edge" && r.ID == id }
				if p.Name() == "graph" && !slices.ContainsFunc(table, isEdgeOfID) {
					t.Errorf("got no edge of %q, expected at least one", id)
				}
			}

			for key, value := range map[string]string{
				"skein.schema":      "1",
				"skein.projection":  p.Name(),
				"skein.position":    position,
				"skein.fingerprint": s.Fingerprint().String(),
				"skein.version":     fmt.Sprint(p.Version()),
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

	// What both formats say about the row.
	want := line{Kind: d.Kind, Shard: int32(d.Shard), Partition: partition, ID: d.About, Position: position}
	inNDJSON := l
	inNDJSON.Fields = nil
	if diff := cmp.Diff(want, inNDJSON); diff != "" {
		t.Errorf("%s: object in NDJSON (-want +got):\n%s", d, diff)
	}
	inParquet := line{Kind: r.Kind, Shard: r.Shard, Partition: r.Partition, ID: r.ID, Position: r.Position}
	if diff := cmp.Diff(want, inParquet); diff != "" {
		t.Errorf("%s: row in Parquet (-want +got):\n%s", d, diff)
	}

	// The fields of the key and the value, which NDJSON has together.
	fields := maps.Clone(r.Key)
	maps.Copy(fields, r.Value)
	if wantFields := len(d.Key()) + len(d.Value()); len(fields) != wantFields || len(l.Fields) != wantFields {
		t.Errorf("%s: got %d fields in NDJSON and %d in Parquet, expected %d", d, len(l.Fields), len(fields), wantFields)
	}
	for _, f := range slices.Concat(d.Key(), d.Value()) {
		got, ok := fields[f.Name]
		if !ok || fmt.Sprint(l.Fields[f.Name]) != got {
			t.Errorf("%s: got field %s as %v in NDJSON and as %q in Parquet, expected the same", d, f.Name, l.Fields[f.Name], got)
		}
		if id, isText := f.Value.(string); isText && got != id {
			t.Errorf("%s: got field %s as %q, expected %q", d, f.Name, got, id)
		}
	}
}

// The exports of all partitions together contain all rows, except those of the store as a whole.
func TestPartitionsTogetherAreAllRows(t *testing.T) {
	envs := makeHistory(2, 100)
	for _, p := range allProjections() {
		s := openStore(t, p, envs)
		whole, counts := mustExportRows(t, s, p, export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions})

		// Rows of the store as a whole have partition -1.
		var want []string
		for text := range strings.Lines(string(whole)) {
			if !strings.Contains(text, `"partition":-1,`) {
				want = append(want, text)
			}
		}
		if len(want) == 0 || uint64(len(want)) == counts.Rows {
			t.Fatalf("%s: %d of %d rows have a partition, expected some but not all", p.Name(), len(want), counts.Rows)
		}

		var got []string
		for i := range events.NumPartitions {
			part, _ := mustExportRows(t, s, p, export.RowsOptions{Format: export.NDJSON, Partition: i})
			for text := range strings.Lines(string(part)) {
				if !strings.Contains(text, fmt.Sprintf(`"partition":%d,`, i)) {
					t.Fatalf("%s: got the row %s in the export of partition %d, expected only rows of this partition", p.Name(), text, i)
				}
				got = append(got, text)
			}
		}

		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: rows of all partitions (-want +got):\n%s", p.Name(), diff)
		}
	}
}

func TestExportOfSomeKinds(t *testing.T) {
	p := allProjections()[0]
	s := openStore(t, p, makeHistory(3, 50))

	_, allCounts := mustExportRows(t, s, p, export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions})
	data, counts := mustExportRows(t, s, p, export.RowsOptions{
		Format: export.Parquet, Partition: export.AllPartitions, Kinds: []string{"edge", "checkpoint"},
	})
	table, _ := mustReadParquet[export.Row](t, data)
	if counts.Kinds["edge"] != allCounts.Kinds["edge"] || counts.Kinds["checkpoint"] != 1 || len(counts.Kinds) != 2 {
		t.Errorf("got the counts %+v, expected only the %d edges and 1 checkpoint", counts, allCounts.Kinds["edge"])
	}
	if uint64(len(table)) != counts.Rows {
		t.Errorf("got %d rows and a count of %d, expected the same", len(table), counts.Rows)
	}
}

// Invalid options are refused with an error that names them, and a row that cannot be decoded ends
// the export.
func TestInvalidRowsOptionsAreRefused(t *testing.T) {
	p := allProjections()[0]
	s := openStore(t, p, makeHistory(4, 20))
	checkRefused := func(ctx context.Context, o export.RowsOptions, want error) {
		t.Helper()
		view, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		defer view.Close()

		o.Projection = p
		var out bytes.Buffer
		if _, err := export.Rows(ctx, &out, view, o); !errors.Is(err, want) {
			t.Errorf("options %+v: got %v, expected %v", o, err, want)
		}
	}

	valid := export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions}
	badFormat, badPartition, badKind := valid, valid, valid
	badFormat.Format = "csv"
	badPartition.Partition = events.NumPartitions
	badKind.Kinds = []string{"edges"}
	checkRefused(t.Context(), badFormat, export.ErrFormat)
	checkRefused(t.Context(), badPartition, export.ErrPartition)
	checkRefused(t.Context(), badKind, export.ErrKind)

	// An export ends with its context.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	checkRefused(ctx, valid, context.Canceled)

	// Write a row that cannot be decoded.
	err := s.Repair(t.Context(), func(_ events.Cursor, _ projections.Reader, m *store.Repair) error {
		m.Set(append(projections.AppendPrefix(nil, 1, projections.FirstGraphTag), "cut"...), []byte("x"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkRefused(t.Context(), valid, projections.ErrCorrupt)
}

// TestExportWhileFoldingIsConsistent exports copies of a store that continues to fold. Each
// contains the rows of a fold up to its position, and no others.
func TestExportWhileFoldingIsConsistent(t *testing.T) {
	const copies = 4
	envs := makeHistory(5, 400)
	for i, p := range allProjections() {
		fs := vfs.NewMem()
		s := conformance.Open(t, fs, p, store.Bounds{FlushBytes: 32 << 10})
		conformance.Fold(t, s, envs[:10])

		folded := make(chan error, 1)
		go func() {
			var err error
			for j := 10; j < len(envs) && err == nil; j++ {
				err = s.Fold(envs[j : j+1])
			}
			folded <- err
		}()

		for n := range copies {
			dir := fmt.Sprintf("copy%d", n)
			if err := fs.MkdirAll(dir+"/"+p.Name(), 0o755); err != nil {
				t.Fatal(err)
			}
			cursor, err := s.Checkpoint(t.Context(), dir+"/"+p.Name()+"/000001")
			if err != nil {
				t.Fatal(err)
			}
			checkCopy(t, fs, dir, i, cursor, envs)
		}

		if err := <-folded; err != nil {
			t.Fatal(err)
		}
		conformance.Close(t, s)
	}
}

// checkCopy checks that the copy of a store of the i-th projection exports the rows of a fold up to
// a cursor.
func checkCopy(t *testing.T, fs store.FS, dir string, i int, cursor events.Cursor, envs []*events.Envelope) {
	t.Helper()
	o := export.RowsOptions{Format: export.NDJSON, Partition: export.AllPartitions}

	// Export the copy.
	p := allProjections()[i]
	copied, err := store.Open(store.Options{FS: fs, Dir: dir, Projection: p, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conformance.Close(t, copied)
	got, _ := mustExportRows(t, copied, p, o)

	// Export a fold of the log up to there.
	p = allProjections()[i]
	folded := openStore(t, p, envs[:conformance.IndexAfter(envs, cursor)])
	want, _ := mustExportRows(t, folded, p, o)

	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: export at sequence %d (-want +got):\n%s", p.Name(), cursor.Seq, diff)
	}
	if got, want := cursor.Position(), folded.Cursor().Position(); got != want {
		t.Errorf("%s: got the position %v, expected %v", p.Name(), got, want)
	}
}
