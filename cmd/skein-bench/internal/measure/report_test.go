package measure

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files")

// compareWithGolden compares an output with a golden file, which -update writes first.
func compareWithGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestReportMatchesGoldenFiles(t *testing.T) {
	report := &Report{
		Machine: Machine{
			CPU: "Model 7", Cores: 2, OS: "linux", Arch: "amd64", Go: "go1.26.0", Skein: "v0.1.0", Pebble: "v2.1.7",
			NATSServer: "v2.15.2", Connect: "v1.21.1", Redis: "7.0.15", GoRedis: "v9.23.0", Wrk: "4.1.0", FsyncMicros: 188,
		},
		Settings: Settings{Users: 100, Edges: 1000, Runs: 3, Seconds: 3, IngestedFollows: 10, BigUser: 100},
	}

	reads := &Row{ID: "check", Title: "point check", Unit: "requests/s", Note: "what to know."}
	for _, v := range []float64{70_100, 68_000, 72_345} {
		reads.SeriesOf("skein").Add(Measurement{Value: v, P50: 0.5, P99: v / 10_000})
	}
	for _, v := range []float64{100_000, 110_000, 99_000} {
		reads.SeriesOf("redis").Add(Measurement{Value: v, P50: 0.25, P99: 1})
	}
	reads.SeriesOf("service").Add(Measurement{Value: 50_000})
	reads.Compare("skein", "redis", 0.6, false)
	reads.Compare("skein", "service", 2, false)

	cost := &Row{ID: "cost", Title: "constant cost", Unit: "µs"}
	cost.SeriesOf("many").Add(Measurement{Value: 5.25})
	cost.SeriesOf("few").Add(Measurement{Value: 5})
	cost.Compare("many", "few", 1.5, true)
	cost.Compare("many", "", 5, true)
	cost.Compare("few", "many", 0, false)

	load := &Row{ID: "load", Title: "Check", Unit: "ms, p99", Load: &Load{Saturated: 20_000, Rate: 10_000, Entries: 1}}
	load.SeriesOf("quiet").Add(Measurement{Value: 0.9, P50: 0.25, P99: 0.9, P999: 2, WorstSecond: 1.5})
	load.SeriesOf("writes").Add(Measurement{Value: 1.8, P50: 0.5, P99: 1.8, P999: 12.34, WorstSecond: 20})
	load.SeriesOf("writes").Void = 1
	load.SeriesOf("at_least").Void = 2
	load.Compare("writes", "quiet", 0, true)

	report.Rows = []*Row{reads, cost, load}
	var markdown bytes.Buffer
	if err := report.WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	compareWithGolden(t, "report.md", markdown.Bytes())
	var encoded bytes.Buffer
	if err := report.WriteJSON(&encoded); err != nil {
		t.Fatal(err)
	}
	compareWithGolden(t, "report.json", encoded.Bytes())
}
