package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

func TestPlot(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "report.json")
	write := func(r measure.Report) {
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(measure.Report{})
	if err := run(file, dir); err == nil {
		t.Error("drawn from nothing")
	}
	grown := func(bytes, rate float64) map[string]measure.GrownStore {
		return map[string]measure.GrownStore{"graph": {BytesPerFollow: bytes, FollowsPerSecond: rate, Memory: 1e8}}
	}
	write(measure.Report{Growth: []*measure.Growth{
		{
			Follows: 1000, Micros: map[string]float64{"check": 1, "list": 20}, Stores: grown(40, 1e5), ArchiveBytesPerFollow: 5,
			StartSeconds: 0.1, ReadyBytes: 8e7,
		},
		{
			Follows: 100_000, Micros: map[string]float64{"check": 1.5, "list": 30}, Stores: grown(20, 2e5), ArchiveBytesPerFollow: 5,
			StartSeconds: 0.2, ReadyBytes: 9e7,
		},
	}, Nodes: []*measure.Node{
		{Nodes: 1, Ideal: 1, Bytes: 1, Fold: 1}, {Nodes: 3, Ideal: 0.67, Bytes: 0.65, Fold: 0.7}, {Nodes: 3, Ideal: 0.67, Bytes: 0.69, Fold: 0.71},
	}, Seconds: []measure.Second{{Beside: "quiet", P50: 0.2, P99: 2}, {Beside: "quiet", P50: 0.2, P99: 3}, {Beside: "writes", P50: 0.3, P99: 5}}})
	if err := run(file, dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil || len(files) != 8 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
				lines++
			}
		}
		if want := map[string]int{"growth-operations.svg": 2, "growth-bytes.svg": 2, "nodes.svg": 3, "latency.svg": 4}[filepath.Base(f)]; lines != max(1, want) {
			t.Errorf("%s has %d lines", f, lines)
		}
	}
}
