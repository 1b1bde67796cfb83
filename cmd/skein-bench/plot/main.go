// Plot draws the growth in a report of `skein-bench --only growth` as SVG files. In this module:
//
//	go run ./plot report.json ../../docs/performance
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
	if len(report.Growth) < 2 {
		return errors.New("the report has no growth to be drawn: skein-bench --only growth --json FILE")
	}
	for name, c := range charts(report.Growth) {
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(c.svg()), 0o644); err != nil { //nolint:gosec // to be read
			return err
		}
	}
	return nil
}

// point is a number of follows and what it costs.
type point struct{ x, y float64 }

// chart is a set of lines over the number of follows, both axes by powers of ten.
type chart struct {
	title string
	lines map[string][]point
}

func (c *chart) add(line string, x int, y float64) {
	if y > 0 {
		c.lines[line] = append(c.lines[line], point{float64(x), y})
	}
}

func charts(growth []*measure.Growth) map[string]*chart {
	all := map[string]*chart{}
	for name, title := range map[string]string{
		"growth-operations": "Operations, p50, µs", "growth-bytes": "Bytes a follow", "growth-start": "From start to ready, s",
		"growth-memory": "Resident memory, MB",
	} {
		all[name] = &chart{title: title, lines: map[string][]point{}}
	}
	for _, g := range growth {
		for op, micros := range g.Micros {
			all["growth-operations"].add(op, g.Follows, micros)
		}
		all["growth-bytes"].add("graph, compacted", g.Follows, g.BytesPerFollow)
		all["growth-bytes"].add("archive", g.Follows, g.ArchiveBytesPerFollow)
		for _, store := range []string{"inbox", "counters"} { // what seen has of follows is nothing
			all["growth-bytes"].add(store, g.Follows, g.OtherBytesPerFollow[store])
		}
		all["growth-start"].add("start", g.Follows, g.StartSeconds)
		all["growth-memory"].add("ready", g.Follows, g.ReadyBytes/1e6)
		all["growth-memory"].add("idle", g.Follows, g.IdleBytes/1e6)
		all["growth-memory"].add("idle, no auditor", g.Follows, g.UnauditedBytes/1e6)
	}
	maps.DeleteFunc(all, func(_ string, c *chart) bool { return len(c.lines) == 0 })
	return all
}

// The size of a chart, and where its lines are.
const (
	width, height            = 640, 360
	left, right, top, bottom = 60, 150, 40, 40
)

// colors of lines, by their order.
func colors() []string {
	return []string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"}
}

// decades are the powers of ten that hold all values.
func decades(values []float64) (from, to int) {
	from = int(math.Floor(math.Log10(slices.Min(values))))
	to = max(from+1, int(math.Ceil(math.Log10(slices.Max(values)))))
	return from, to
}

func (c *chart) svg() string {
	var xs, ys []float64
	for _, line := range c.lines {
		for _, p := range line {
			xs, ys = append(xs, p.x), append(ys, p.y)
		}
	}
	x0, x1 := decades(xs)
	y0, y1 := decades(ys)
	at := func(p point) (x, y float64) {
		x = left + (math.Log10(p.x)-float64(x0))/float64(x1-x0)*(width-left-right)
		return x, height - bottom - (math.Log10(p.y)-float64(y0))/float64(y1-y0)*(height-top-bottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="24" font-size="14">%s</text>`+"\n",
		width, height, left, c.title)
	for d := x0; d <= x1; d++ {
		x, _ := at(point{math.Pow10(d), math.Pow10(y0)})
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+
			`<text x="%.1f" y="%d" text-anchor="middle">10<tspan dy="-5" font-size="9">%d</tspan></text>`+"\n",
			x, top, x, height-bottom, x, height-bottom+18, d)
	}
	for d := y0; d <= y1; d++ {
		_, y := at(point{math.Pow10(x0), math.Pow10(d)})
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			left, y, width-right, y, left-8, y+4, math.Pow10(d))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">follows</text>`+"\n", left+(width-left-right)/2, height-6)
	for i, name := range slices.Sorted(maps.Keys(c.lines)) {
		color := colors()[i%len(colors())]
		var path []string
		for _, p := range c.lines[name] {
			x, y := at(p)
			path = append(path, fmt.Sprintf("%.1f,%.1f", x, y))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %.3g</title></circle>`+"\n", x, y, color, name, p.y)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), color)
		y := top + 10 + 18*i
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			width-right+12, y-4, color, width-right+30, y+2, name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
