// Plot draws what a report of `skein-bench` has of growth, nodes and latencies by second as SVG files (--only growth,nodes,latency).
// In this module:
//
//	go run ./plot report.json ../../docs/performance
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: plot REPORT.json DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(file, dir string) error {
	data, err := os.ReadFile(file) //nolint:gosec // the user of the program names it
	if err != nil {
		return err
	}
	var report measure.Report
	if err := json.Unmarshal(data, &report); err != nil {
		return err
	}
	all := growthCharts(report.Growth)
	if len(report.Nodes) > 1 {
		all["nodes"] = nodesChart(report.Nodes)
	}
	if len(report.Seconds) > 0 {
		all["latency"] = latencyChart(report.Seconds)
	}
	if len(all) == 0 {
		return errors.New("the report has nothing to be drawn: skein-bench --json FILE --only growth, nodes or latency")
	}
	for name, c := range all {
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(c.svg()), 0o644); err != nil { //nolint:gosec // to be read
			return err
		}
	}
	return nil
}

func growthCharts(growth []*measure.Growth) map[string]*chart {
	all := map[string]*chart{}
	if len(growth) < 2 {
		return all
	}
	for name, title := range map[string]string{
		"growth-operations": "Operations, p50, µs", "growth-bytes": "Bytes a follow", "growth-start": "From start to ready, s",
		"growth-memory": "Resident memory, MB", "growth-build": "Built from the archive, thousand follows/s",
		"growth-build-memory": "Greatest memory of a build, MB",
	} {
		all[name] = &chart{title: title, of: "follows", x: decades, y: decades, lines: map[string][]point{}}
	}
	for _, g := range growth {
		for op, micros := range g.Micros {
			all["growth-operations"].add(op, g.Follows, micros)
		}
		all["growth-bytes"].add("archive", g.Follows, g.ArchiveBytesPerFollow)
		for _, store := range []string{"graph", "inbox"} { // seen and counters keep nothing of a follow
			of := g.Stores[store]
			all["growth-bytes"].add(store, g.Follows, of.BytesPerFollow)
			all["growth-build"].add(store, g.Follows, of.FollowsPerSecond/1000)
			all["growth-build-memory"].add(store, g.Follows, of.Memory/1e6)
		}
		all["growth-start"].add("start", g.Follows, g.StartSeconds)
		all["growth-memory"].add("ready", g.Follows, g.ReadyBytes/1e6)
		all["growth-memory"].add("idle", g.Follows, g.IdleBytes/1e6)
		all["growth-memory"].add("idle, no auditor", g.Follows, g.UnauditedBytes/1e6)
	}
	maps.DeleteFunc(all, func(_ string, c *chart) bool { return len(c.lines) == 0 })
	return all
}

// latencyChart draws the latencies of each second, by what went on beside the calls.
func latencyChart(seconds []measure.Second) *chart {
	c := &chart{title: "Latency of each second, ms", of: "seconds", x: linear, y: decades, lines: map[string][]point{}}
	for i, s := range seconds {
		c.add("p50, "+s.Beside, i+1, s.P50)
		c.add("p99, "+s.Beside, i+1, s.P99)
	}
	return c
}

// nodesChart draws lines through the median nodes of clusters, and the others as dots.
func nodesChart(nodes []*measure.Node) *chart {
	c := &chart{
		title: "A node of N, two copies: its share of one that holds everything", of: "nodes", x: linear, y: linear,
		lines: map[string][]point{}, dots: map[string][]point{},
	}
	clusters := map[int][]*measure.Node{}
	for _, n := range nodes {
		clusters[n.Nodes] = append(clusters[n.Nodes], n)
	}
	for _, size := range slices.Sorted(maps.Keys(clusters)) {
		list := clusters[size] // from the smallest to the largest
		for i, n := range list {
			for name, share := range map[string]float64{"bytes": n.Bytes, "processor time": n.Fold} {
				if i == len(list)/2 {
					c.add(name, size, share)
				} else {
					c.dots[name] = append(c.dots[name], point{float64(size), share})
				}
			}
		}
		c.add("2/N", size, list[0].Ideal)
	}
	return c
}
