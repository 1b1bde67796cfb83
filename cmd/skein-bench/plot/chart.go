package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// point is a number, of follows or nodes, and what it costs.
type point struct{ x, y float64 }

// chart is a set of lines over a number of something.
type chart struct {
	title, of string
	// x and y make the axes.
	x, y  func(values []float64) axis
	lines map[string][]point
	// dots are points of a line's color that the line does not pass through.
	dots map[string][]point
}

func (c *chart) add(line string, x int, y float64) {
	if y > 0 {
		c.lines[line] = append(c.lines[line], point{float64(x), y})
	}
}

// axis shows the values between its first and its last tick.
type axis struct {
	ticks []float64
	// by is what distances are proportional to.
	by func(float64) float64
	// label writes a tick as SVG text.
	label func(float64) string
}

func (a *axis) at(v float64) float64 {
	from, to := a.by(a.ticks[0]), a.by(a.ticks[len(a.ticks)-1])
	return (a.by(v) - from) / (to - from)
}

// decades is an axis by powers of ten that holds all values.
func decades(values []float64) axis {
	from := int(math.Floor(math.Log10(slices.Min(values))))
	to := max(from+1, int(math.Ceil(math.Log10(slices.Max(values)))))
	a := axis{by: math.Log10, label: func(v float64) string {
		return fmt.Sprintf(`10<tspan dy="-5" font-size="9">%d</tspan>`, int(math.Round(math.Log10(v))))
	}}
	for d := from; d <= to; d++ {
		a.ticks = append(a.ticks, math.Pow10(d))
	}
	return a
}

// linear is an axis from 0 that holds all values, with a tick at every number, at every tenth if they are small, and at every tenth number
// if they are large.
func linear(values []float64) axis {
	most, parts := slices.Max(values), 1.0
	if most < 2 {
		parts = 10
	} else if most > 20 {
		parts = 0.1
	}
	a := axis{by: func(v float64) float64 { return v }, label: func(v float64) string { return fmt.Sprintf("%g", v) }}
	for i := 0; i <= int(math.Ceil(most*parts)); i++ {
		a.ticks = append(a.ticks, float64(i)/parts)
	}
	return a
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

func (c *chart) svg() string {
	var xs, ys []float64
	for _, points := range []map[string][]point{c.lines, c.dots} {
		for _, line := range points {
			for _, p := range line {
				xs, ys = append(xs, p.x), append(ys, p.y)
			}
		}
	}
	ax, ay := c.x(xs), c.y(ys)
	at := func(p point) (x, y float64) {
		return left + ax.at(p.x)*(width-left-right), height - bottom - ay.at(p.y)*(height-top-bottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="24" font-size="14">%s</text>`+"\n",
		width, height, left, c.title)
	for _, v := range ax.ticks {
		x, _ := at(point{v, ay.ticks[0]})
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/>`+
			`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x, top, x, height-bottom, x, height-bottom+18, ax.label(v))
	}
	for _, v := range ay.ticks {
		_, y := at(point{ax.ticks[0], v})
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			left, y, width-right, y, left-8, y+4, v)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", left+(width-left-right)/2, height-6, c.of)
	for i, name := range slices.Sorted(maps.Keys(c.lines)) {
		color := colors()[i%len(colors())]
		var path []string
		for _, p := range c.lines[name] {
			x, y := at(p)
			path = append(path, fmt.Sprintf("%.1f,%.1f", x, y))
			dot(&b, name, color, p.y, x, y)
		}
		for _, p := range c.dots[name] {
			x, y := at(p)
			dot(&b, name, color, p.y, x, y)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), color)
		y := top + 10 + 18*i
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="12" height="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			width-right+12, y-4, color, width-right+30, y+2, name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func dot(b *strings.Builder, name, color string, value, x, y float64) {
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %.3g</title></circle>`+"\n", x, y, color, name, value)
}
