package nodes

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestGeneratorEncodesAsTheLogDoes decodes generated envelopes, and compares them with what the
// encoder of the log makes of the same events.
func TestGeneratorEncodesAsTheLogDoes(t *testing.T) {
	p := productLog{users: 50, items: 30, mix: eventMix{1, 2, 3, 4, 5}}
	wantKinds := events.Kinds(events.Played, events.Reacted, events.UserFollowed, events.PinCreated, events.ItemScored)
	for _, p.withEventIDs = range []bool{false, true} {
		t.Run(fmt.Sprint("with event ids ", p.withEventIDs), func(t *testing.T) {
			generator := p.newGenerator(1)
			sameSeed := p.newGenerator(1)
			decoder := events.NewDecoder(events.Cursor{})
			for i := range 3 {
				data := generator.envelope()
				if again := sameSeed.envelope(); !bytes.Equal(data, again) {
					t.Fatalf("envelope %d of the same seed: got %x, want %x", i, again, data)
				}

				var batch skeinv1.EventBatch
				if err := proto.Unmarshal(data, &batch); err != nil {
					t.Fatal(err)
				}
				want, err := events.EncodeEnvelope(batch.Events)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(data, want) {
					t.Fatalf("envelope %d: got %x, want that of the log, %x", i, data, want)
				}

				env, err := decoder.Decode(uint64(i+1), 1, data)
				if err != nil {
					t.Fatal(err)
				}
				if len(env.Events) != eventsPerEnvelope || len(env.Rejects) > 0 {
					t.Fatalf("envelope %d: got %d events and the rejects %v, want %d events and no rejects",
						i, len(env.Events), env.Rejects, eventsPerEnvelope)
				}
				if env.Kinds != wantKinds {
					t.Errorf("kinds of envelope %d: got %v, want %v", i, env.Kinds.Slice(), wantKinds.Slice())
				}
				if id := env.Events[0].ID; (id != "") != p.withEventIDs {
					t.Errorf("event id in envelope %d: got %q, want one: %v", i, id, p.withEventIDs)
				}
			}
		})
	}
}

// TestEachPartitionHasItsCopies checks that the nodes together hold every partition, as often as
// there are copies, and that they are sorted by how many they hold.
func TestEachPartitionHasItsCopies(t *testing.T) {
	for _, nodes := range append(clusterSizes(), largeNodes) {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			sets := partitionsOfNodes(nodes)
			heldCopies := 0
			var union events.Partitions
			for i := range sets {
				heldCopies += sets[i].Len()
				union.AddSet(&sets[i])
				if i > 0 && sets[i].Len() < sets[i-1].Len() {
					t.Errorf("partitions of node %d: got %d, want at least %d as of the node before it", i, sets[i].Len(), sets[i-1].Len())
				}
			}

			if want := min(nodes, copies) * events.NumPartitions; heldCopies != want {
				t.Errorf("copies of partitions: got %d, want %d", heldCopies, want)
			}
			if union != events.AllPartitions() {
				t.Errorf("partitions that some node holds: got %d, want all", union.Len())
			}
		})
	}
}

// TestNodesMeasuresEveryRow measures a small log, and checks that every row has values above 0.
func TestNodesMeasuresEveryRow(t *testing.T) {
	b := &measure.Bench{
		Dir: t.TempDir(), Report: &measure.Report{}, Opts: measure.Options{Runs: 1, Replayed: 2000, LogEvents: 1000},
	}
	if err := MeasureNodes(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(b.Report.Rows) != 8 {
		t.Fatalf("got %d rows, want 8", len(b.Report.Rows))
	}
	for _, r := range b.Report.Rows {
		if len(r.Comparisons) == 0 {
			t.Errorf("comparisons of %s: got none, want some", r.ID)
		}
		for _, s := range r.Series {
			if s.Median <= 0 {
				t.Errorf("%s: %s: got %v, want more than 0", r.ID, s.Name, s.Median)
			}
		}
	}
}
