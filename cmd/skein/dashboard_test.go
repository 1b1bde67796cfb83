//go:build alerts

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/statuscmd"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// dashboard is the part of a Grafana dashboard that the test reads.
type dashboard struct{ Panels []panel }

type panel struct {
	Title, Type string
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr, LegendFormat string }
	lines       []chartLine
}

// chartLine is one line of a chart, at seconds since the beginning.
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
	pictures, duration := os.Getenv("SKEIN_PICTURES"), 15*time.Second
	if pictures != "" {
		duration = 90 * time.Second
	}
	prometheus := startPrometheus(t)
	dir := t.TempDir()
	service := startScraped(t, prometheus, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "10s", "--snapshots", filepath.Join(dir, "snapshots"),
		"--snapshot-every", "10s", "--audit-share", "0.2", "--log-max-bytes", "1GiB")
	began := time.Now()
	ctx, stopTraffic := context.WithTimeout(t.Context(), duration)
	defer stopTraffic()
	var traffic sync.WaitGroup
	for n := range uint64(2) {
		traffic.Go(func() { (&auditTraffic{api: service.api}).publishUntilDone(ctx, t, n) })
		traffic.Go(func() { sendReads(ctx, service.api, n) })
	}
	watching, err := statuscmd.Scrape(t.Context(), service.api)
	if err != nil {
		t.Fatal(err)
	}
	last := watching
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
		watching = last
		if last, err = statuscmd.Scrape(t.Context(), service.api); err != nil {
			t.Fatal(err)
		}
	}
	screen := statuscmd.Screen("http://127.0.0.1:7411", watching, last)
	traffic.Wait()
	for i := range board.Panels {
		for _, target := range board.Panels[i].Targets {
			board.Panels[i].checkQuery(t, prometheus, target.Expr, target.LegendFormat, began, time.Now())
		}
	}
	if pictures == "" {
		return
	}
	for name, svg := range map[string]string{"dashboard.svg": board.drawSVG(began), "status.svg": drawScreenSVG(screen)} {
		if err := os.WriteFile(filepath.Join(pictures, name), []byte(svg), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sendReads makes the calls of a typical product until the context ends.
func sendReads(ctx context.Context, api *command.Client, seed uint64) {
	generator := eventGenerator{rand.New(rand.NewPCG(seed, 1))}
	for tick := time.NewTicker(3 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		a, b := generator.randomUsers()
		switch generator.random.IntN(6) {
		case 0:
			_, _ = api.Feed().ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: a, HideSeen: true}))
		case 1:
			_, _ = api.Seen().FilterSeen(ctx, connect.NewRequest(&skeinv1.FilterSeenRequest{
				UserId: a, ItemIds: []string{generator.randomItem(), generator.randomItem(), generator.randomItem()},
			}))
		case 2:
			_, _ = api.Counters().ListTrending(ctx, connect.NewRequest(&skeinv1.ListTrendingRequest{}))
		default:
			_, _ = api.Graph().CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{
				Pairs: []*skeinv1.FollowPair{userPair(a, b)},
			}))
		}
	}
}

// series is one time series of the answer to a query.
type series struct {
	Metric map[string]string
	Values [][2]any
}

// queryRange queries Prometheus as Grafana does.
func queryRange(t *testing.T, p *prometheusServer, expr string, from, to time.Time) ([]series, error) {
	t.Helper()
	query := strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*").Replace(expr)
	body, err := p.get(t.Context(), fmt.Sprintf("/api/v1/query_range?step=2&start=%d&end=%d&query=%s", from.Unix(), to.Unix(), url.QueryEscape(query)))
	if err != nil {
		return nil, err
	}
	var answer struct{ Data struct{ Result []series } }
	err = json.Unmarshal(body, &answer)
	return answer.Data.Result, err
}

// checkQuery checks that a query of the panel has a result, and records its lines.
func (pl *panel) checkQuery(t *testing.T, p *prometheusServer, expr, legend string, from, to time.Time) {
	t.Helper()
	result, err := queryRange(t, p, expr, from, to)
	if err != nil {
		t.Errorf("%s: %v", pl.Title, err)
		return
	}
	for _, r := range result {
		line := chartLine{name: legend}
		for k, v := range r.Metric {
			line.name = strings.ReplaceAll(line.name, "{{"+k+"}}", strings.TrimPrefix(strings.ReplaceAll(v, t.Name(), "a"), "skein.v1."))
		}
		for _, v := range r.Values {
			if y, err := strconv.ParseFloat(fmt.Sprint(v[1]), 64); err == nil && y == y { // not NaN: nothing was observed
				line.seconds, line.values = append(line.seconds, v[0].(float64)-float64(from.Unix())), append(line.values, y)
			}
		}
		if len(line.seconds) > 0 {
			pl.lines = append(pl.lines, line)
		}
	}
	if len(result) > 0 {
		return
	}
	for _, part := range queriesWithoutData {
		if strings.Contains(expr, part) {
			return
		}
	}

	// A query that shows only what is above 0 has no answer while all is well. What it compares
	// with 0 must be there.
	if all, ok := strings.CutSuffix(expr, " > 0"); ok {
		if result, err = queryRange(t, p, all, from, to); err == nil && len(result) > 0 {
			return
		}
	}
	t.Errorf("%s shows nothing: %s, %v", pl.Title, expr, err)
}

var colors = []string{"#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#b877d9", "#f2495c", "#8ab8ff", "#37872d", "#c4162a", "#a352cc"}

// drawSVG draws the panels at their places in the dashboard, though not as Grafana draws them.
func (d *dashboard) drawSVG(began time.Time) string {
	const unit, wide, high = 22, 52, 26 // pixels of a row and a column of the grid, and of the text above
	bottom := 0
	var b strings.Builder
	for _, p := range d.Panels {
		x, y, w, h := p.GridPos.X*wide, p.GridPos.Y*unit+high, p.GridPos.W*wide, p.GridPos.H*unit
		bottom = max(bottom, y+h)
		if p.Type == "row" {
			fmt.Fprintf(&b, `<text x="6" y="%d" class="r">%s</text>`+"\n", y+16, html.EscapeString(p.Title))
			continue
		}
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d"/><text x="%d" y="%d">%s</text>`+"\n", x+3, y+3, w-6, h-6, x+10, y+18,
			html.EscapeString(p.Title))
		maxValue, lastSecond := 0.0, 1.0
		for _, l := range p.lines {
			for i := range l.seconds {
				maxValue, lastSecond = max(maxValue, l.values[i]), max(lastSecond, l.seconds[i])
			}
		}
		if len(p.lines) == 0 {
			fmt.Fprintf(&b, `<text x="%d" y="%d" class="s">nothing to show</text>`+"\n", x+w/2-40, y+h/2)
			continue
		}
		top, left := float64(y+28), float64(x+62)
		height, width := float64(h-28-38), float64(w-62-14)
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" class="e">%s</text><text x="%.0f" y="%.0f" class="e">0</text>`+"\n", left-4, top+8,
			formatSample(maxValue, p.FieldConfig.Defaults.Unit), left-4, top+height)
		if maxValue == 0 {
			maxValue = 1
		}
		legend := left - 52
		for i, l := range p.lines {
			color := colors[i%len(colors)]
			fmt.Fprintf(&b, `<polyline stroke="%s" points="`, color)
			for k := range l.seconds {
				fmt.Fprintf(&b, "%.0f,%.1f ", left+width*l.seconds[k]/lastSecond, top+height-height*l.values[k]/maxValue)
			}
			b.WriteString("\"/>\n")
			if i < 10 && legend-float64(x)+float64(6*len(l.name)) < 2*float64(w)-120 {
				at, line := legend, float64(y+h-26)
				if at+float64(6*len(l.name)) > float64(x+w-10) { // the second row of the legend
					at, line = max(float64(x+10), at-float64(w)+70), float64(y+h-12)
				}
				fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" class="s" style="fill:%s">%s</text>`+"\n", at, line, color, html.EscapeString(l.name))
				legend += float64(6*len(l.name)) + 10
			}
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">
<style>svg{background:#111217}rect{fill:#181b1f;stroke:#2c3235}text{fill:#ccccdc;font-size:12px}.r{font-size:14px;font-weight:bold}`+
		`.s{font-size:10px;fill:#8e8e99}.e{font-size:10px;fill:#8e8e99;text-anchor:end}polyline{fill:none;stroke-width:1.2}</style>
<text x="6" y="18">skein: the queries of dashboard.json, answered by Prometheus for one service under the traffic of a test (%s)</text>
`, 24*wide, bottom+4, began.Format(time.DateOnly)) + b.String() + "</svg>\n"
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
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	widest := 0
	var b strings.Builder
	for i, l := range lines {
		widest = max(widest, len([]rune(l)))
		fmt.Fprintf(&b, `<text x="12" y="%d" xml:space="preserve">%s</text>`+"\n", 24+17*i, html.EscapeString(l))
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="DejaVu Sans Mono,monospace" font-size="13">
<rect width="100%%" height="100%%" fill="#111217"/><g fill="#ccccdc">
`, 24+8*widest, 24+17*len(lines)) + b.String() + "</g></svg>\n"
}
