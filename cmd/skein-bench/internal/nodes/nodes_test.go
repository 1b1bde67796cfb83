package nodes

import (
	"bytes"
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
	for _, p.withEventIDs = range []bool{false, true} {
		g := p.newGenerator(1)
		again := p.newGenerator(1)
		d := events.NewDecoder(events.Cursor{})
		for i := range 3 {
			data := g.envelope()
			if !bytes.Equal(data, again.envelope()) {
				t.Fatal("the same seed gave another envelope")
			}
			var batch skeinv1.EventBatch
			if err := proto.Unmarshal(data, &batch); err != nil {
				t.Fatal(err)
			}
			if want, err := events.EncodeEnvelope(batch.Events); err != nil || !bytes.Equal(data, want) {
				t.Fatalf("the encoding is not that of the log, %v", err)
			}
			env, err := d.Decode(uint64(i+1), 1, data)
			if err != nil || len(env.Events) != eventsPerEnvelope || len(env.Rejects) > 0 {
				t.Fatalf("%v, %v", env, err)
			}
			if want := events.Kinds(events.Played, events.Reacted, events.UserFollowed, events.PinCreated,
				events.ItemScored); env.Kinds != want {
				t.Errorf("kinds %v", env.Kinds.Slice())
			}
			if (env.Events[0].ID != "") != p.withEventIDs {
				t.Errorf("event id %q", env.Events[0].ID)
			}
		}
	}
}

func TestEachPartitionHasItsCopies(t *testing.T) {
	for _, n := range append(clusterSizes(), largeNodes) {
		sets := partitionsOfNodes(n)
		sum := 0
		var together events.Partitions
		for i := range sets {
			sum += sets[i].Len()
			together.AddSet(&sets[i])
			if i > 0 && sets[i].Len() < sets[i-1].Len() {
				t.Errorf("of %d nodes, one comes after a larger one", n)
			}
		}
		if sum != min(n, copies)*events.NumPartitions || together != events.AllPartitions() {
			t.Errorf("%d nodes hold %d partitions", n, sum)
		}
	}
}

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
			t.Errorf("%s compares nothing", r.ID)
		}
		for _, s := range r.Series {
			if s.Median <= 0 {
				t.Errorf("%s: %s: got %v, want more than 0", r.ID, s.Name, s.Median)
			}
		}
	}
}
