package bench

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files")

func golden(t *testing.T, name string, got []byte) {
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

func TestReport(t *testing.T) {
	r := &Report{
		Machine: Machine{
			CPU: "Model 7", Cores: 2, OS: "linux", Arch: "amd64", Go: "go1.26.0", Skein: "v0.1.0", Pebble: "v2.1.7",
			NATSServer: "v2.15.2", Connect: "v1.21.1", Redis: "7.0.15", GoRedis: "v9.23.0", Wrk: "4.1.0", FsyncMicros: 188,
		},
		Settings: Settings{Users: 100, Edges: 1000, Runs: 3, Seconds: 3, IngestedFollows: 10, BigUser: 100},
	}
	reads := &Row{ID: "check", Title: "point check", Unit: "requests/s", Note: "what to know."}
	for _, v := range []float64{70_100, 68_000, 72_345} {
		reads.series("skein").add(measurement{value: v, p50: 0.5, p99: v / 10_000})
	}
	for _, v := range []float64{100_000, 110_000, 99_000} {
		reads.series("redis").add(measurement{value: v, p50: 0.25, p99: 1})
	}
	reads.series("service").add(measurement{value: 50_000})
	reads.compare("skein", "redis", 0.6, false)
	reads.compare("skein", "service", 2, false)
	cost := &Row{ID: "cost", Title: "constant cost", Unit: "µs"}
	cost.series("many").add(measurement{value: 5.25})
	cost.series("few").add(measurement{value: 5})
	cost.compare("many", "few", 1.5, true)
	cost.compare("many", "", 5, true)
	cost.compare("few", "many", 0, false)
	load := &Row{ID: "load", Title: "Check", Unit: "ms, p99", Load: &Load{Saturated: 20_000, Rate: 10_000, Entries: 1}}
	load.series("quiet").add(measurement{value: 0.9, p50: 0.25, p99: 0.9, p999: 2})
	load.series("writes").add(measurement{value: 1.8, p50: 0.5, p99: 1.8, p999: 12.34})
	load.compare("writes", "quiet", 0, true)
	r.Rows = []*Row{reads, cost, load}

	var md, js bytes.Buffer
	if err := r.WriteMarkdown(&md); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.md", md.Bytes())
	if err := r.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", js.Bytes())
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{9, 1, 5, 2, 7}, 5},
	} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.604: "0.60", 9.996: "10.0", 33.14: "33.1", 99.96: "100", 999.4: "999", 999.6: "1.00 k",
		104_166: "104 k", 1_050_000: "1.05 M", 2e9: "2.00 G", 7e12: "7000 G", -5.5: "-5.50",
	} {
		if got := figure(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}

func TestPick(t *testing.T) {
	apart := slices.ContainsFunc(rows, func(r rowGroup) bool { return r.apart })
	all, err := pick(nil)
	if err != nil || !apart || len(all) == 0 || slices.ContainsFunc(all, func(r rowGroup) bool { return r.apart }) {
		t.Errorf("without names: %v, %v", all, err)
	}
	if some, err := pick([]string{"disk", "reads"}); err != nil || len(some) != 2 || some[0].name != "disk" {
		t.Errorf("disk, reads: %v, %v", some, err)
	}
	if _, err := pick([]string{"nope"}); err == nil {
		t.Error("an unknown name was accepted")
	}
}
