package replays

import (
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
	for _, n := range []int{10_000, 31_234} {
		l := newGrowthLog(n)
		seen, lists, lastProbe := map[workload.Edge]bool{}, map[uint32]int{}, 0
		for e := range l.follows() {
			if e.Follower == e.Followee || seen[e] {
				t.Fatalf("%d: follow %v is of oneself, or a repeat", n, e)
			}
			seen[e] = true
			if int(e.Follower) >= l.users {
				lists[e.Follower]++
				lists[e.Followee]++
				lastProbe = len(seen)
			}
		}
		if len(seen) != n || lastProbe < n*9/10 || len(lists) != 2*probes {
			t.Errorf("%d: %d follows, the last of %d probes at %d", n, len(seen), len(lists), lastProbe)
		}
		for user, have := range lists {
			if have != probes/2 {
				t.Errorf("%d: probe %d has %d", n, user, have)
			}
		}
	}
}

// TestGrowthMeasuresGraphStores is what measures 10⁸ follows, with few: an archive is generated,
// the graph built from it, and asked.
func TestGrowthMeasuresGraphStores(t *testing.T) {
	report := &measure.Report{}
	b := &measure.Bench{
		Opts: measure.Options{Growth: []int{10_000, 20_000}, GrowthAlone: true, Runs: 2, Quick: true}, Dir: t.TempDir(), Report: report,
	}
	if err := MeasureGrowth(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(report.Growth) != 2 {
		t.Fatalf("%d sizes", len(report.Growth))
	}
	for _, g := range report.Growth {
		graph := g.Stores["graph"]
		if graph.BytesPerFollow < 10 || graph.BytesPerFollow > 100 || g.ArchiveBytesPerFollow < 1 || g.ArchiveBytesPerFollow > 20 ||
			graph.FollowsPerSecond <= 0 || graph.Memory < 1<<20 || g.StartSeconds != 0 || len(g.Micros) != len(growthOps()) {
			t.Errorf("%+v", g)
		}
	}
	for _, row := range report.Rows {
		if len(row.Comparisons) == 0 || len(row.Series) != 2 {
			t.Errorf("%s: %d series, %d comparisons", row.ID, len(row.Series), len(row.Comparisons))
		}
	}
}

// TestGrowthArchiveHasAllFollows reads back what was generated.
func TestGrowthArchiveHasAllFollows(t *testing.T) {
	dir := t.TempDir()
	l := newGrowthLog(10_050)
	if err := l.archive(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "log")); err != nil {
		t.Error(err)
	}
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
	r := replayJob{Work: workRebuild, Log: dir, Projection: "graph", Archive: true}
	found, err := r.run(t.Context())
	if err != nil || found.Events != l.n {
		t.Errorf("%d events, %v", found.Events, err)
	}
	if got := a.Info(); a.End().Epoch != growthEpoch+1 || a.End().Seq != uint64((l.n+eventsPerEnvelope-1)/eventsPerEnvelope) {
		t.Errorf("%+v", got)
	}
}
