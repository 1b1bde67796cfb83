package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// benchReport is the report of skein-bench from which pages quote figures.
const benchReport = "docs/performance/table.json"

// A marker directly follows the figure that it is about:
//
//	62.6 k/s<!-- figure: check: skein -->                  the median of a series of a row of the report
//	0.87<!-- figure: check: skein / redis-server -->       the ratio of two medians
//	10.1 ms<!-- figure: check p99: skein -->               the median of the p99 of all runs; also p50
//	0.83<!-- figure: ingest greatest: skein / redis -->    the greatest, or the least, of all runs
//	16 µs<!-- figure: check time: skein -->                the time of one operation at that rate
//	32 µs<!-- figure: check cost: skein -->                the same on all cores: an upper bound of its processor time
//	404 s<!-- measured: growth-1e8 -->                     names a figure that no report has
//	404 s<!-- figure: growth-1e8 -->                       quotes it elsewhere
//	50 a second<!-- figure: given -->                      a setting or an assumption, which nobody measured
//
// A quotation may have fewer digits than its source.
var figureMarker = regexp.MustCompile(`(?s)<!-- (figure|measured):\s(.*?) -->`)

// givenFigure is the source of a number that was not measured.
const givenFigure = "given"

// These lines mark a section as the only place of its figures: up to the next heading they need no
// marker.
const (
	measuredHere   = "<!-- measured here -->"
	calculatedHere = "<!-- calculated here -->"
)

// markedNumber is the last number before a marker, with the letter that multiplies it and its unit.
var markedNumber = regexp.MustCompile(`(\d{1,3}(?: \d{3})+|\d+)(\.\d+)?(?: ?([kM])\b)?(?: ?(µs|ms)\b)?\D{0,20}$`)

// claims match phrases that look like something that was measured.
var claims = []*regexp.Regexp{
	regexp.MustCompile(someNumber + `( ?[kMG]?B?( [a-z]+){0,2})/s\b`),
	regexp.MustCompile(someNumber + `( [kM])?( [a-z]+){0,2} (a|per) second\b`),
	regexp.MustCompile(someNumber + ` ?(µs|ms)\b`),
	regexp.MustCompile(someNumber + ` bytes (a|per) (delivery|event|fact|follow|pin|play)\b`),
	regexp.MustCompile(`\bp(50|99)\b[^|]*?\d ?s\b`),
}

// claimsBesideRedis match phrases that look measured only in a paragraph that mentions Redis, which
// then probably compares skein with Redis.
var claimsBesideRedis = []*regexp.Regexp{
	regexp.MustCompile(someNumber + ` times (as|the|more|less|faster|slower)\b`),
	regexp.MustCompile(`(?:^|[^.\d])\d+\.\d+(?:[^.\d]|\.\s|\.?$)`), // but not a version, 7.0.15
}

// someNumber is a number, with spaces between groups of digits.
const someNumber = `(?:\d[\d. ]*)?\d`

// records are the beginnings of the names of pages that record the past, or that are generated:
// tables and details of dated runs, decisions, the changelog, and references. Their figures need no
// marker.
var records = []string{"docs/performance/", "docs/decisions/", "CHANGELOG.md", "docs/api.md", "docs/configuration.md"}

// figure is a measured value that pages may quote.
type figure struct {
	value float64
	unit  string // "ms" or "µs" for a time; any other unit does not matter
}

// figureReport has the parts of the report of skein-bench that checkFigures needs.
type figureReport struct {
	Machine struct {
		Cores int `json:"cores"`
	} `json:"machine"`
	Rows []figureRow `json:"rows"`
}

type figureRow struct {
	ID     string         `json:"id"`
	Unit   string         `json:"unit"`
	Series []figureSeries `json:"series"`
}

type figureSeries struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	P50    []float64 `json:"p50_ms"`
	P99    []float64 `json:"p99_ms"`
}

// figureSources are all figures that pages may quote.
type figureSources struct {
	report figureReport
	named  map[string]figure
}

// checkFigures returns the measured figures in pages that differ from their source, and those that
// name no source. A figure has one source: the report of skein-bench, or the one place in a page
// where it is marked as measured.
func checkFigures(repo fs.FS) ([]string, error) {
	pages, err := readPages(repo)
	if err != nil {
		return nil, err
	}
	sources := figureSources{named: map[string]figure{}}
	report, err := fs.ReadFile(repo, benchReport)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(report, &sources.report); err != nil {
		return nil, fmt.Errorf("%s: %w", benchReport, err)
	}

	// First collect what all pages have measured, because any of them may quote it.
	var problems []string
	for _, p := range pages {
		problems = append(problems, p.collectNamedFigures(sources.named)...)
	}
	for _, p := range pages {
		problems = append(problems, p.checkQuotations(&sources)...)
		problems = append(problems, p.findUnsourcedClaims()...)
	}
	return problems, nil
}

// A page is a Markdown file, divided into paragraphs. Blocks of code are not part of it.
type page struct {
	name       string
	paragraphs []paragraph
}

// A paragraph is text without an empty line. Each heading, each row of a table and each item of a
// list is a paragraph, too.
type paragraph struct {
	line     int // of its first line
	text     string
	isSource bool // the section is the source of its figures, see measuredHere
}

// lineAt returns the number of the line in which an offset of the text is.
func (p *paragraph) lineAt(offset int) int {
	return p.line + strings.Count(p.text[:offset], "\n")
}

// readPages reads all pages of the repository.
func readPages(repo fs.FS) (pages []page, err error) {
	err = fs.WalkDir(repo, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if isForeign(name) || name == "bin" || path.Base(name) == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".md" {
			return nil
		}

		text, err := fs.ReadFile(repo, name)
		if err != nil {
			return err
		}
		pages = append(pages, page{name, splitParagraphs(string(text))})
		return nil
	})
	return pages, err
}

// splitParagraphs divides the text of a page.
func splitParagraphs(text string) (all []paragraph) {
	number := 0          // of the line, from 1
	inCode := false      // the line is in a block of code
	isSource := false    // the section is the source of its figures
	mayContinue := false // the line may continue the last paragraph
	for line := range strings.Lines(text) {
		number++
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			inCode = !inCode
			mayContinue = false
			continue
		case inCode:
			continue
		case trimmed == measuredHere, trimmed == calculatedHere:
			isSource = true
			continue
		case trimmed == "":
			mayContinue = false
			continue
		case strings.HasPrefix(line, "#"):
			isSource = false
		}

		isParagraphOfItsOwn := strings.HasPrefix(line, "#") || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "- ")
		if isParagraphOfItsOwn || !mayContinue {
			all = append(all, paragraph{line: number, isSource: isSource})
		}
		all[len(all)-1].text += line
		mayContinue = true
	}
	return all
}

// collectNamedFigures adds to named the figures that the page marks as measured there.
func (p *page) collectNamedFigures(named map[string]figure) (problems []string) {
	for _, par := range p.paragraphs {
		for _, q := range par.quotations() {
			if q.kind != "measured" {
				continue
			}
			at := fmt.Sprintf("%s:%d", p.name, par.lineAt(q.start))
			_, taken := named[q.source]
			switch {
			case q.number == nil:
				problems = append(problems, fmt.Sprintf("%s: no number stands before the marker of %q", at, q.source))
			case taken:
				problems = append(problems, fmt.Sprintf("%s: %q is measured in two places", at, q.source))
			default:
				named[q.source] = figure{q.number.value() * q.number.scale(), q.number.unit}
			}
		}
	}
	return problems
}

// checkQuotations compares what the page quotes with the sources.
func (p *page) checkQuotations(sources *figureSources) (problems []string) {
	for _, par := range p.paragraphs {
		for _, q := range par.quotations() {
			if q.kind != "figure" || q.source == givenFigure {
				continue
			}

			at := fmt.Sprintf("%s:%d", p.name, par.lineAt(q.start))
			if q.number == nil {
				problems = append(problems, fmt.Sprintf("%s: no number stands before the marker of %q", at, q.source))
				continue
			}
			source, err := sources.findFigure(q.source)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %q: %v", at, q.source, err))
				continue
			}
			if expected := q.number.formatLike(source); expected != q.number.digits {
				problems = append(problems, fmt.Sprintf("%s: figure %q: expected %s, found %s", at, q.source,
					q.number.withUnit(expected), q.number.withUnit(q.number.digits)))
			}
		}
	}
	return problems
}

// findUnsourcedClaims finds what looks like a measured figure and has no marker.
func (p *page) findUnsourcedClaims() (problems []string) {
	isRecord := slices.ContainsFunc(records, func(r string) bool { return strings.HasPrefix(p.name, r) })
	if isRecord {
		return nil
	}
	for _, par := range p.paragraphs {
		if par.isSource {
			continue
		}

		// Blank marked figures out. The text keeps its length, so that lineAt can count lines.
		text := par.text
		for _, q := range par.quotations() {
			text = text[:q.start] + blankOut(text[q.start:q.end]) + text[q.end:]
		}

		phrases := claims
		if strings.Contains(text, "Redis") {
			phrases = slices.Concat(claims, claimsBesideRedis)
		}
		for _, phrase := range phrases {
			if found := phrase.FindStringIndex(text); found != nil {
				problems = append(problems, fmt.Sprintf(
					"%s:%d: %q looks measured and has no source: quote it with <!-- figure: … -->, or link to its page instead",
					p.name, par.lineAt(found[0]), strings.Trim(text[found[0]:found[1]], " .,;:*|()\n")))
				break // one problem for each paragraph
			}
		}
	}
	return problems
}

// blankOut returns spaces, as many as the text has bytes, with its line ends.
func blankOut(text string) string {
	out := []byte(text)
	for i, b := range out {
		if b != '\n' {
			out[i] = ' '
		}
	}
	return string(out)
}

// A quotation is a marker and the number before it.
type quotation struct {
	kind, source string
	number       *quotedNumber // nil if there is no number
	start, end   int           // from the number to the end of the marker
}

// quotations returns the marked numbers of a paragraph in order, including those that are measured
// there.
func (p *paragraph) quotations() (all []quotation) {
	from := 0 // the end of the marker before
	for _, at := range figureMarker.FindAllStringSubmatchIndex(p.text, -1) {
		if strings.HasSuffix(p.text[:at[0]], "`") {
			continue // code that shows a marker
		}

		q := quotation{kind: p.text[at[2]:at[3]], source: strings.Join(strings.Fields(p.text[at[4]:at[5]]), " "), start: at[0], end: at[1]}
		if found := markedNumber.FindStringSubmatchIndex(p.text[from:at[0]]); found != nil {
			q.number = readNumber(p.text[from:at[0]], found)
			q.start = from + found[0]
		}
		all = append(all, q)
		from = at[1]
	}
	return all
}

// A quotedNumber is a number as a page writes it.
type quotedNumber struct {
	digits   string // without spaces: "62.6"
	multiple string // "k", "M" or nothing
	unit     string // "µs", "ms" or nothing
}

// readNumber returns the number that markedNumber has found in a text. at has the offsets of the
// groups, as FindStringSubmatchIndex returns them.
func readNumber(text string, at []int) *quotedNumber {
	group := func(i int) string {
		if at[2*i] < 0 {
			return ""
		}
		return text[at[2*i]:at[2*i+1]]
	}
	return &quotedNumber{digits: strings.ReplaceAll(group(1), " ", "") + group(2), multiple: group(3), unit: group(4)}
}

// value returns the number without its multiple: 62.6 for "62.6 k".
func (q *quotedNumber) value() float64 {
	v, err := strconv.ParseFloat(q.digits, 64)
	if err != nil {
		return math.NaN() // not reached: markedNumber matches only numbers
	}
	return v
}

// scale returns the factor that the multiple stands for.
func (q *quotedNumber) scale() float64 {
	switch q.multiple {
	case "k":
		return 1e3
	case "M":
		return 1e6
	}
	return 1
}

// formatLike returns the digits that the page should have: those of the source, in the multiple and
// the unit of the quotation, and with as many digits after the point.
func (q *quotedNumber) formatLike(source figure) string {
	v := source.value / q.scale()
	switch {
	case source.unit == "ms" && q.unit == "µs":
		v *= 1000
	case source.unit == "µs" && q.unit == "ms":
		v /= 1000
	}
	_, fraction, _ := strings.Cut(q.digits, ".")
	return strconv.FormatFloat(v, 'f', len(fraction), 64)
}

// withUnit returns digits with the multiple and the unit of the number.
func (q *quotedNumber) withUnit(digits string) string {
	return strings.Join(strings.Fields(digits+" "+q.multiple+" "+q.unit), " ")
}

// findFigure returns the figure that a marker names: a named figure, or one of the report in the
// form "ROW [STATISTIC]: SERIES [/ SERIES]".
func (s *figureSources) findFigure(source string) (figure, error) {
	head, series, ok := strings.Cut(source, ": ")
	if !ok {
		f, known := s.named[source]
		if !known {
			return figure{}, errors.New("no page has measured that")
		}
		return f, nil
	}

	id, statistic, _ := strings.Cut(head, " ")
	at := slices.IndexFunc(s.report.Rows, func(r figureRow) bool { return r.ID == id })
	if at < 0 {
		return figure{}, fmt.Errorf("%s has no row %q", benchReport, id)
	}
	row := &s.report.Rows[at]

	dividendName, divisorName, isRatio := strings.Cut(series, " / ")
	dividend, err := row.values(dividendName, statistic)
	if err != nil {
		return figure{}, err
	}
	if !isRatio {
		return row.summarize(dividend, statistic, s.report.Machine.Cores), nil
	}
	divisor, err := row.values(divisorName, statistic)
	if err != nil {
		return figure{}, err
	}

	// In one run, both contenders took turns under the same conditions. So the least and the
	// greatest ratio are those of single runs.
	if statistic == "least" || statistic == "greatest" {
		ratios := make([]float64, min(len(dividend), len(divisor)))
		for i := range ratios {
			ratios[i] = dividend[i] / divisor[i]
		}
		return figure{value: row.summarize(ratios, statistic, 0).value}, nil
	}

	// The number of cores cancels out.
	quotient := row.summarize(dividend, statistic, 1).value / row.summarize(divisor, statistic, 1).value
	return figure{value: quotient}, nil
}

// values returns the measurements of a series from which a statistic is taken.
func (r *figureRow) values(series, statistic string) ([]float64, error) {
	at := slices.IndexFunc(r.Series, func(s figureSeries) bool { return s.Name == series })
	if at < 0 {
		return nil, fmt.Errorf("the row %s has no series %q", r.ID, series)
	}
	values := r.Series[at].Values
	switch statistic {
	case "", "least", "greatest", "time", "cost":
	case "p50":
		values = r.Series[at].P50
	case "p99":
		values = r.Series[at].P99
	default:
		return nil, fmt.Errorf("%q is no statistic: write p50, p99, least, greatest, time or cost", statistic)
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("the series %q of %s has no %s", series, r.ID, statistic)
	}
	return values, nil
}

// summarize returns one figure for the measurements of all runs, as figureMarker describes. cores is
// the number of cores of the machine, which only the statistic "cost" needs.
func (r *figureRow) summarize(values []float64, statistic string, cores int) figure {
	if len(values) == 0 {
		return figure{}
	}
	switch statistic {
	case "p50", "p99":
		return figure{median(values), "ms"}
	case "least":
		return figure{slices.Min(values), r.Unit}
	case "greatest":
		return figure{slices.Max(values), r.Unit}
	case "time":
		return figure{1e6 / median(values), "µs"}
	case "cost":
		return figure{float64(cores) * 1e6 / median(values), "µs"}
	}
	return figure{median(values), r.Unit}
}

// median returns the middle of the values or, of an even number, the mean of the middle two, as the
// bench does.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
