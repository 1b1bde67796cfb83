package export_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/parquet-go/parquet-go"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/export"
	"github.com/skein-feed/skein/replay/internal/memlog"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// oddIDs are ids that an export could lose, or take for others.
var oddIDs = []string{
	"a/b", `quo"te\`, "<&>", "12345678901234567890123", "007", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "ぱぱ", "naïve=1", "null",
	strings.Repeat("x", events.MaxIDBytes), strings.Repeat("é", events.MaxIDBytes/2), "{}", `""`, "🧶",
}

// makeHistory returns a log in which everything happens, with odd ids.
func makeHistory(seed uint64, n int) []*events.Envelope {
	w := memlog.NewWorld(seed, 60)
	envs := w.Envelopes(n)

	// Let each odd id be that of a user, a board, a pin and an item.
	for i, id := range oddIDs {
		peer := oddIDs[(i+1)%len(oddIDs)]
		envs = append(envs, w.Envelope(
			events.Event{Kind: events.UserFollowed, User: id, Peer: peer},
			events.Event{Kind: events.BoardCreated, User: peer, Board: id, Title: "no\nplain \"title\" <" + id},
			events.Event{Kind: events.BoardFollowed, User: id, Peer: peer, Board: id},
			events.Event{
				Kind: events.PinCreated, User: id, Pin: peer, Board: id, Item: peer, RepinUser: peer, RepinPin: id,
				Attributes: []byte{0, 0xff, '"'},
			},
			events.Event{Kind: events.Played, User: id, Item: peer},
			events.Event{Kind: events.Served, User: id, Items: []string{peer, id}},
			events.Event{Kind: events.ItemScored, Item: id, Score: 1<<53 + 1},
		))
	}
	return envs
}

// openStore returns a store that has folded the envelopes.
func openStore(t *testing.T, p projections.Projection, envs []*events.Envelope) *store.Store {
	t.Helper()
	s := conformance.Open(t, vfs.NewMem(), p, store.Bounds{})
	conformance.Fold(t, s, envs)
	t.Cleanup(func() { conformance.Close(t, s) })
	return s
}

func allProjections() []projections.Projection { return all.All(all.Settings{}) }

// mustExportRows exports a store, and returns the file and the counts.
func mustExportRows(t *testing.T, s *store.Store, p projections.Projection, o export.RowsOptions) ([]byte, export.Counts) {
	t.Helper()
	view, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := view.Close(); err != nil {
			t.Errorf("close the view: got %v, expected no error", err)
		}
	}()

	o.Projection = p
	o.Fingerprint = s.Fingerprint()
	var out bytes.Buffer
	counts, err := export.Rows(t.Context(), &out, view, o)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), counts
}

// line is a row of NDJSON.
type line struct {
	Kind      string         `json:"kind"`
	Shard     int32          `json:"shard"`
	Partition int32          `json:"partition"`
	ID        string         `json:"id"`
	Fields    map[string]any `json:"fields"`
	Position  string         `json:"position"`
}

// mustReadLines decodes the objects of an NDJSON file.
func mustReadLines[T any](t *testing.T, data []byte) (list []T) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()

	for {
		var v T
		err := decoder.Decode(&v)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
}

// mustReadParquet decodes the rows of a Parquet file. The returned file has its metadata.
func mustReadParquet[T any](t *testing.T, data []byte) (list []T, file *parquet.File) {
	t.Helper()
	file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	list, err = parquet.Read[T](bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return list, file
}
