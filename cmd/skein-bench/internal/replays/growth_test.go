package replays

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
)

// TestGrowthLogHasDistinctFollowsAndAllProbes demands of a log of any size that no two follows are
// equal and that the probes have all of theirs.
func TestGrowthLogHasDistinctFollowsAndAllProbes(t *testing.T) {
	for _, size := range []int{10_000, 31_234} {
		t.Run(fmt.Sprint(size, " follows"), func(t *testing.T) {
			log := newGrowthLog(size)
			follows := map[workload.Edge]bool{}
			followsOfProbe := map[uint32]int{}
			lastProbe := 0 // how many follows there are up to the last one of a probe
			for e := range log.follows() {
				if e.Follower == e.Followee || follows[e] {
					t.Fatalf("follow %v: got one of oneself, or a repeat, want neither", e)
				}
				follows[e] = true

				// The probes have the numbers behind those of the other users.
				if int(e.Follower) >= log.users {
					followsOfProbe[e.Follower]++
					followsOfProbe[e.Followee]++
					lastProbe = len(follows)
				}
			}

			if len(follows) != size {
				t.Errorf("follows: got %d, want %d", len(follows), size)
			}
			if lastProbe < size*9/10 {
				t.Errorf("position of the last follow of a probe: got %d, want it in the last tenth of %d", lastProbe, size)
			}
			if got, want := len(followsOfProbe), 2*probes; got != want {
				t.Errorf("probes: got %d, want %d", got, want)
			}
			for probe, got := range followsOfProbe {
				if want := probes / 2; got != want {
					t.Errorf("follows of probe %d: got %d, want %d", probe, got, want)
				}
			}
		})
	}
}

// TestGrowthMeasuresGraphStores makes the measurement that is otherwise made with 10⁸ follows, with
// a few: it generates an archive, builds the graph from it, and asks the graph.
func TestGrowthMeasuresGraphStores(t *testing.T) {
	report := &measure.Report{}
	b := &measure.Bench{
		Opts: measure.Options{Growth: []int{10_000, 20_000}, GrowthAlone: true, Runs: 2, Quick: true}, Dir: t.TempDir(), Report: report,
	}
	if err := MeasureGrowth(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(report.Growth) != 2 {
		t.Fatalf("sizes: got %d, want 2", len(report.Growth))
	}
	for _, growth := range report.Growth {
		graph := growth.Stores["graph"]
		if got := graph.BytesPerFollow; got < 10 || got > 100 {
			t.Errorf("bytes per follow in the graph: got %v, want 10 to 100", got)
		}
		if got := growth.ArchiveBytesPerFollow; got < 1 || got > 20 {
			t.Errorf("bytes per follow in the archive: got %v, want 1 to 20", got)
		}
		if graph.FollowsPerSecond <= 0 {
			t.Errorf("follows per second: got %v, want more than 0", graph.FollowsPerSecond)
		}
		if graph.Memory < 1<<20 {
			t.Errorf("memory: got %v bytes, want at least 1 MiB", graph.Memory)
		}
		if got, want := len(growth.Micros), len(growthOps()); got != want {
			t.Errorf("times of reads: got %d, want %d", got, want)
		}

		// With GrowthAlone, no service is started.
		if growth.StartSeconds != 0 {
			t.Errorf("seconds of a start: got %v, want 0", growth.StartSeconds)
		}
	}
	for _, row := range report.Rows {
		if len(row.Series) != 2 {
			t.Errorf("series of %s: got %d, want 2", row.ID, len(row.Series))
		}
		if len(row.Comparisons) == 0 {
			t.Errorf("comparisons of %s: got none, want some", row.ID)
		}
	}
}

// TestGrowthArchiveHasAllFollows reads back the archive that was generated.
func TestGrowthArchiveHasAllFollows(t *testing.T) {
	dir := t.TempDir()
	log := newGrowthLog(10_050)
	if err := log.archive(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "log")); err != nil {
		t.Error(err)
	}

	// The archive must be whole.
	target, err := bucket.NewDir(filepath.Join(dir, "archive"))
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := archive.LogOf(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	a, err := archive.Open(t.Context(), target, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Check(t.Context(), func(uint64, uint64) {}); err != nil {
		t.Error(err)
	}
	if got, want := a.End().Epoch, uint32(growthEpoch+2); got != want {
		t.Errorf("epoch of the end: got %v, want %v", got, want)
	}
	wantEnvelopes := uint64((log.n + eventsPerEnvelope - 1) / eventsPerEnvelope)
	if got := a.End().Seq; got != wantEnvelopes {
		t.Errorf("sequence of the end: got %d, want %d", got, wantEnvelopes)
	}

	// A rebuild must read every follow.
	job := replayJob{Work: workRebuild, Log: dir, Projection: "graph", Archive: true}
	result, err := job.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if result.Events != log.n {
		t.Errorf("events of a rebuild: got %d, want %d", result.Events, log.n)
	}
}
