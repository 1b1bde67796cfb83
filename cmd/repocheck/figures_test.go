package main

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestFiguresAgreeWithTheirSources compares all figures that the pages of the repository quote with
// their sources.
func TestFiguresAgreeWithTheirSources(t *testing.T) {
	problems, err := checkFigures(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// reportForTest is a report of the bench. One of its rows has rates with latencies, and the other
// one has times.
const reportForTest = `{"machine": {"cores": 2}, "rows": [
	{"id": "check", "unit": "requests/s", "series": [
		{"name": "skein", "values": [60000, 62568, 70000], "p99_ms": [9.4, 10.1, 10.9]},
		{"name": "redis", "values": [70000, 72064, 80000], "p99_ms": [1.1, 1.2, 1.3]}]},
	{"id": "page", "unit": "µs", "series": [{"name": "skein", "values": [2655.036]}]}]}`

// TestCheckFiguresAcceptsQuotationsInAnyPrecision checks pages that quote figures of the report and
// of other pages, all of them correctly.
func TestCheckFiguresAcceptsQuotationsInAnyPrecision(t *testing.T) {
	readme := `# Title

Redis and skein: 62.6 k/s<!-- figure: check: skein --> or 63 k/s<!-- figure: check: skein -->, which is **0.87**<!-- figure:
check: skein / redis --> and at most 0.88<!-- figure: check greatest: skein / redis --> of Redis.

| p99: 10.1 ms<!-- figure: check p99: skein -->, 8.4<!-- figure: check p99: skein / redis --> | 2.66 ms<!-- figure: page: skein --> |
| 16 µs<!-- figure: check time: skein -->, ≤ 32 µs<!-- figure: check cost: skein --> | 1.15<!-- figure: check time: skein / redis --> |
| 404 s<!-- figure: growth --> | 0.4 k<!-- figure: growth --> |

` + "```\nsent: 13360 a second\n```\nWrite `<!-- figure: check: skein -->`.\n"

	problems, err := checkFigures(fstest.MapFS{
		benchReport:                   {Data: []byte(reportForTest)},
		"README.md":                   {Data: []byte(readme)},
		"docs/performance/details.md": {Data: []byte("It took 404 s<!-- measured: growth -->, at 250 k/s.\n")},
		"docs/cluster.md":             {Data: []byte("## Measured\n\n<!-- measured here -->\n\nA node reads 5 k/s.\n")},
		"docs/access.md":              {Data: []byte("It allows 50 calls a second<!-- figure: given -->, with version 7.0.15 of Redis.\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string(nil), problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestCheckFiguresFindsEachKindOfProblem checks pages with one problem each.
func TestCheckFiguresFindsEachKindOfProblem(t *testing.T) {
	const unsourced = " looks measured and has no source: quote it with <!-- figure: … -->, or link to its page instead"
	for name, test := range map[string]struct{ text, want string }{
		"a changed number": {
			"One.\n\nTwo\nand 61.6 k/s<!-- figure: check: skein -->.\n",
			`docs/faq.md:4: figure "check: skein": expected 62.6 k, found 61.6 k`,
		},
		"a changed ratio": {
			"| **0.88**<!-- figure: check: skein / redis --> |\n",
			`docs/faq.md:1: figure "check: skein / redis": expected 0.87, found 0.88`,
		},
		"a changed tail": {
			"9.1 ms<!-- figure: check p99: skein -->\n",
			`docs/faq.md:1: figure "check p99: skein": expected 10.1 ms, found 9.1 ms`,
		},
		"a changed figure of another page": {
			"405 s<!-- figure: growth -->\n",
			`docs/faq.md:1: figure "growth": expected 404, found 405`,
		},
		"a rate without a source": {
			"One\nreads 400 k events/s.\n", `docs/faq.md:2: "400 k events/s"` + unsourced,
		},
		"a rate in words":           {"It takes 400 000 a second.\n", `docs/faq.md:1: "400 000 a second"` + unsourced},
		"a time without a source":   {"It takes 22 µs.\n", `docs/faq.md:1: "22 µs"` + unsourced},
		"a size without a source":   {"It takes 45 bytes a follow.\n", `docs/faq.md:1: "45 bytes a follow"` + unsourced},
		"a tail without a source":   {"Its p99 is 12 ms.\n", `docs/faq.md:1: "12 ms"` + unsourced},
		"a tail of seconds":         {"Its p99 is 2 s.\n", `docs/faq.md:1: "p99 is 2 s"` + unsourced},
		"a ratio without a source":  {"It has 0.53 of the rate\nof Redis.\n", `docs/faq.md:1: "0.53"` + unsourced},
		"a factor without a source": {"It is 3 times as fast as Redis.\n", `docs/faq.md:1: "3 times as"` + unsourced},
		"one of two without a source": {
			"62.6 k/s<!-- figure: check: skein --> and 19 k/s\n", `docs/faq.md:1: "19 k/s"` + unsourced,
		},
		"a section that begins after one that was measured there": {
			"## A\n\n<!-- measured here -->\n\n5 k/s\n\n## B\n\n6 k/s\n", `docs/faq.md:9: "6 k/s"` + unsourced,
		},
		"an unknown row":    {"5<!-- figure: chek: skein -->\n", `docs/faq.md:1: "chek: skein": docs/performance/table.json has no row "chek"`},
		"an unknown series": {"5<!-- figure: check: skien -->\n", `docs/faq.md:1: "check: skien": the row check has no series "skien"`},
		"an unknown statistic": {
			"5<!-- figure: check p98: skein -->\n",
			`docs/faq.md:1: "check p98: skein": "p98" is no statistic: write p50, p99, least, greatest, time or cost`,
		},
		"a missing statistic": {"5<!-- figure: page p99: skein -->\n", `docs/faq.md:1: "page p99: skein": the series "skein" of page has no p99`},
		"an unknown name":     {"5<!-- figure: grwth -->\n", `docs/faq.md:1: "grwth": no page has measured that`},
		"a marker of nothing": {"It.<!-- figure: growth -->\n", `docs/faq.md:1: no number stands before the marker of "growth"`},
		"a name given twice":  {"404 s<!-- measured: growth -->\n", `docs/performance/details.md:1: "growth" is measured in two places`},
	} {
		t.Run(name, func(t *testing.T) {
			problems, err := checkFigures(fstest.MapFS{
				benchReport:                   {Data: []byte(reportForTest)},
				"docs/performance/details.md": {Data: []byte("404 s<!-- measured: growth -->\n")},
				"docs/faq.md":                 {Data: []byte(test.text)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{test.want}, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
