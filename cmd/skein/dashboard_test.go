//go:build alerts

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/statuscmd"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// dashboard is the part of a Grafana dashboard that the test reads.
type dashboard struct{ Panels []panel }

// panel is a chart of the dashboard, or the title of a row of charts.
type panel struct {
	Title, Type string
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr, LegendFormat string }
	// lines are what Prometheus has answered to the queries of the targets.
	lines []chartLine
}

// chartLine is one line of a chart. values[i] was measured seconds[i] after the test began.
type chartLine struct {
	name            string
	seconds, values []float64
}

// queriesWithoutData are parts of queries that have no result as long as the service is healthy, or
// in such a short test.
var queriesWithoutData = []string{
	"skein_log_full_in_seconds", `state!="ready"`, `code!="ok"`, "skein_access_file_stale", "skein_certificate_expiry",
	"skein_projection_verified_age", "skein_snapshot_age", "skein_publish_rejections",
	"skein_rpc_refusals", "skein_rpc_internal_errors", "skein_operation_", "skein_cluster_",
}

// TestDashboardQueriesHaveFigures demands that Prometheus answers every query of the dashboard with
// figures of a service under traffic. With SKEIN_PICTURES=DIR the test runs for longer, and writes
// pictures of the dashboard and the screen of `skein status --watch` to files in DIR.
func TestDashboardQueriesHaveFigures(t *testing.T) {
	data, err := os.ReadFile("../../docs/observability/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board dashboard
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}

	pictureDir := os.Getenv("SKEIN_PICTURES")
	duration := 15 * time.Second
	if pictureDir != "" {
		duration = 90 * time.Second
	}

	// Archive, take snapshots and audit often, so that the queries about these have figures.
	prometheus := startPrometheus(t)
	dir := t.TempDir()
	service := startScraped(t, prometheus, dir,
		"--archive", filepath.Join(dir, "archive"), "--archive-every", "10s",
		"--snapshots", filepath.Join(dir, "snapshots"), "--snapshot-every", "10s",
		"--audit-share", "0.2", "--log-max-bytes", "1GiB")
	began := time.Now()

	ctx, stopTraffic := context.WithTimeout(t.Context(), duration)
	defer stopTraffic()
	var traffic sync.WaitGroup
	for n := range uint64(2) {
		traffic.Go(func() { (&auditTraffic{api: service.api}).publishUntilDone(ctx, t, n) })
		traffic.Go(func() { sendReads(ctx, service.api, n) })
	}

	// Read the metrics each second, as the command does. The screen shows the last two readings.
	lastReading, err := statuscmd.Scrape(t.Context(), service.api)
	if err != nil {
		t.Fatal(err)
	}
	previousReading := lastReading
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
		previousReading = lastReading
		lastReading, err = statuscmd.Scrape(t.Context(), service.api)
		if err != nil {
			t.Fatal(err)
		}
	}
	screen := statuscmd.Screen("http://127.0.0.1:7411", previousReading, lastReading)
	traffic.Wait()

	for i := range board.Panels {
		for _, target := range board.Panels[i].Targets {
			board.Panels[i].checkQuery(t, prometheus, target.Expr, target.LegendFormat, began, time.Now())
		}
	}

	if pictureDir == "" {
		return
	}
	for name, svg := range map[string]string{"dashboard.svg": board.drawSVG(began), "status.svg": drawScreenSVG(screen)} {
		if err := os.WriteFile(filepath.Join(pictureDir, name), []byte(svg), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sendReads makes the calls of a typical product until the context ends.
func sendReads(ctx context.Context, api *command.Client, seed uint64) {
	generator := eventGenerator{rand.New(rand.NewPCG(seed, 1))}
	for tick := time.NewTicker(3 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		user, otherUser := generator.randomUsers()
		switch generator.random.IntN(6) {
		case 0:
			_, _ = api.Feed().ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: user, HideSeen: true}))
		case 1:
			_, _ = api.Seen().FilterSeen(ctx, connect.NewRequest(&skeinv1.FilterSeenRequest{
				UserId: user, ItemIds: []string{generator.randomItem(), generator.randomItem(), generator.randomItem()},
			}))
		case 2:
			_, _ = api.Counters().ListTrending(ctx, connect.NewRequest(&skeinv1.ListTrendingRequest{}))
		default:
			_, _ = api.Graph().CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{
				Pairs: []*skeinv1.FollowPair{userPair(user, otherUser)},
			}))
		}
	}
}

// series is one time series of the answer to a query. Each of its values is a pair of a time in
// seconds and a number as text.
type series struct {
	Metric map[string]string
	Values [][2]any
}

// queryRange queries Prometheus as Grafana does.
func queryRange(t *testing.T, p *prometheusServer, expr string, from, to time.Time) ([]series, error) {
	t.Helper()

	// Grafana replaces these variables.
	query := strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*").Replace(expr)
	page := fmt.Sprintf("/api/v1/query_range?step=2&start=%d&end=%d&query=%s", from.Unix(), to.Unix(), url.QueryEscape(query))
	body, err := p.get(t.Context(), page)
	if err != nil {
		return nil, err
	}

	var answer struct{ Data struct{ Result []series } }
	err = json.Unmarshal(body, &answer)
	return answer.Data.Result, err
}

// newChartLine returns the line of a series. The legend is a format of Grafana, with labels in
// double braces.
func newChartLine(t *testing.T, s series, legend string, from time.Time) chartLine {
	t.Helper()
	line := chartLine{name: legend}
	for label, value := range s.Metric {
		// The instance has the name of the test, which would not tell readers of the picture
		// anything. Names of methods are shown without their package.
		value = strings.ReplaceAll(value, t.Name(), "a")
		value = strings.TrimPrefix(value, "skein.v1.")
		line.name = strings.ReplaceAll(line.name, "{{"+label+"}}", value)
	}

	for _, sample := range s.Values {
		value, err := strconv.ParseFloat(fmt.Sprint(sample[1]), 64)
		// NaN means that nothing was observed in the interval.
		if err != nil || math.IsNaN(value) {
			continue
		}
		line.seconds = append(line.seconds, sample[0].(float64)-float64(from.Unix()))
		line.values = append(line.values, value)
	}
	return line
}

// checkQuery checks that a query of the panel has a result, and records its lines.
func (pl *panel) checkQuery(t *testing.T, p *prometheusServer, expr, legend string, from, to time.Time) {
	t.Helper()
	result, err := queryRange(t, p, expr, from, to)
	if err != nil {
		t.Errorf("%s: query %s: got %v, want no error", pl.Title, expr, err)
		return
	}

	for _, s := range result {
		if line := newChartLine(t, s, legend, from); len(line.seconds) > 0 {
			pl.lines = append(pl.lines, line)
		}
	}
	if len(result) > 0 {
		return
	}

	// Some queries have no result in this test.
	for _, part := range queriesWithoutData {
		if strings.Contains(expr, part) {
			return
		}
	}

	// A query that shows only what is above 0 has no answer while all is well. What it compares
	// with 0 must be there.
	if compared, ok := strings.CutSuffix(expr, " > 0"); ok {
		result, err = queryRange(t, p, compared, from, to)
		if err == nil && len(result) > 0 {
			return
		}
	}
	t.Errorf("%s: query %s: got no series (%v), want some", pl.Title, expr, err)
}

// These are the sizes of the picture, in pixels. The grid of Grafana has 24 columns.
const (
	columnWidth  = 52
	rowHeight    = 22
	headerHeight = 26 // of the title of the picture, above the grid
	letterWidth  = 6  // of a name in a legend, on average
)

// lineColors are the colors of the lines of a chart, in this order.
var lineColors = []string{
	"#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#b877d9", "#f2495c", "#8ab8ff", "#37872d", "#c4162a", "#a352cc",
}

// drawSVG draws the panels at their places in the dashboard, though not as Grafana draws them.
func (d *dashboard) drawSVG(began time.Time) string {
	bottom := 0
	var drawn strings.Builder
	for _, p := range d.Panels {
		p.draw(&drawn)
		_, y, _, height := p.bounds()
		bottom = max(bottom, y+height)
	}

	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">
<style>svg{background:#111217}rect{fill:#181b1f;stroke:#2c3235}text{fill:#ccccdc;font-size:12px}.r{font-size:14px;font-weight:bold}`+
		`.s{font-size:10px;fill:#8e8e99}.e{font-size:10px;fill:#8e8e99;text-anchor:end}polyline{fill:none;stroke-width:1.2}</style>
<text x="6" y="18">skein: the queries of dashboard.json, answered by Prometheus for one service under the traffic of a test (%s)</text>
`, 24*columnWidth, bottom+4, began.Format(time.DateOnly)) + drawn.String() + "</svg>\n"
}

// bounds returns the place of the panel in the picture.
func (pl *panel) bounds() (x, y, width, height int) {
	return pl.GridPos.X * columnWidth, pl.GridPos.Y*rowHeight + headerHeight, pl.GridPos.W * columnWidth, pl.GridPos.H * rowHeight
}

// draw draws the panel: its title, and unless it is the title of a row, its frame and lines.
func (pl *panel) draw(b *strings.Builder) {
	x, y, width, height := pl.bounds()
	title := html.EscapeString(pl.Title)
	if pl.Type == "row" {
		fmt.Fprintf(b, `<text x="6" y="%d" class="r">%s</text>`+"\n", y+16, title)
		return
	}

	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d"/><text x="%d" y="%d">%s</text>`+"\n",
		x+3, y+3, width-6, height-6, x+10, y+18, title)
	if len(pl.lines) == 0 {
		fmt.Fprintf(b, `<text x="%d" y="%d" class="s">nothing to show</text>`+"\n", x+width/2-40, y+height/2)
		return
	}
	pl.drawLines(b)
}

// drawLines draws the lines of the panel with their scale, from 0 to the largest value, and their
// legend.
func (pl *panel) drawLines(b *strings.Builder) {
	maxValue := 0.0
	lastSecond := 1.0
	for _, line := range pl.lines {
		maxValue = max(maxValue, slices.Max(line.values))
		lastSecond = max(lastSecond, slices.Max(line.seconds))
	}

	// The lines have the place that the title above, the scale at the left and the legend below
	// leave.
	x, y, width, height := pl.bounds()
	chartLeft := float64(x + 62)
	chartTop := float64(y + 28)
	chartWidth := float64(width - 62 - 14)
	chartHeight := float64(height - 28 - 38)

	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" class="e">%s</text><text x="%.0f" y="%.0f" class="e">0</text>`+"\n",
		chartLeft-4, chartTop+8, formatSample(maxValue, pl.FieldConfig.Defaults.Unit), chartLeft-4, chartTop+chartHeight)
	if maxValue == 0 {
		maxValue = 1 // it divides the values
	}

	// The second row of the legend continues the first. legendOffset is where the next name
	// begins, from the beginning of the first row.
	legendOffset := 0.0
	for i, line := range pl.lines {
		color := lineColors[i%len(lineColors)]
		fmt.Fprintf(b, `<polyline stroke="%s" points="`, color)
		for k := range line.seconds {
			fmt.Fprintf(b, "%.0f,%.1f ", chartLeft+chartWidth*line.seconds[k]/lastSecond, chartTop+chartHeight-chartHeight*line.values[k]/maxValue)
		}
		b.WriteString("\"/>\n")

		// Leave out the names of further lines, and those that the two rows have no space for.
		nameWidth := float64(letterWidth * len(line.name))
		if i >= len(lineColors) || 10+legendOffset+nameWidth >= 2*float64(width)-120 {
			continue
		}

		nameLeft := float64(x+10) + legendOffset
		baseline := float64(y + height - 26)
		if nameLeft+nameWidth > float64(x+width-10) { // it does not fit into the first row
			nameLeft = max(float64(x+10), nameLeft-float64(width)+70)
			baseline = float64(y + height - 12)
		}
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f" class="s" style="fill:%s">%s</text>`+"\n",
			nameLeft, baseline, color, html.EscapeString(line.name))
		legendOffset += nameWidth + 10
	}
}

// formatSample formats a value in the unit of its panel.
func formatSample(v float64, unit string) string {
	switch unit {
	case "s":
		if v >= 60 {
			return statuscmd.AgeText(v)
		}
		return statuscmd.LatencyText(v)
	case "bytes", "Bps":
		return statuscmd.BytesText(v)
	case "percentunit":
		return fmt.Sprintf("%.0f %%", 100*v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// drawScreenSVG draws text as a terminal shows it.
func drawScreenSVG(text string) string {
	// These are the sizes of the font in pixels.
	const charWidth, lineHeight = 8, 17

	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	longest := 0
	var drawn strings.Builder
	for i, line := range lines {
		longest = max(longest, utf8.RuneCountInString(line))
		fmt.Fprintf(&drawn, `<text x="12" y="%d" xml:space="preserve">%s</text>`+"\n", 24+lineHeight*i, html.EscapeString(line))
	}

	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="DejaVu Sans Mono,monospace" font-size="13">
<rect width="100%%" height="100%%" fill="#111217"/><g fill="#ccccdc">
`, 24+charWidth*longest, 24+lineHeight*len(lines)) + drawn.String() + "</g></svg>\n"
}
