package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/events"
)

const (
	// maxColumns is the largest number of columns of a file. It limits the memory of a measurement.
	maxColumns = 1000
	// maxComments is the largest number of lines before the first record that begin with #.
	maxComments = 1000
	// observeEvery is how many records are read between two reports of progress.
	observeEvery = 1 << 12
)

// measurement is what was found in a whole file when it was read with one delimiter.
type measurement struct {
	delimiter Delimiter
	quotes    bool
	// comments are the lines before the first record that begin with #. They may be records.
	comments []commentLine
	// first and second are the fields of the first two records. The first record may name the
	// columns.
	first, second []string
	// records is the number of records, including the first. misfits is the number of records with
	// another number of fields than the first. differing is the number of those that fit and differ
	// from the first.
	records, misfits, differing uint64
	// columns describes the values of each column, in the records that fit, without the first.
	columns []columnValues
	// quoted is the number of fields in quotes. multiLine is the number of records that span lines.
	quoted, multiLine uint64
	// quoteError is set if quotes do not enclose fields, so that it is not certain where later
	// records begin. The rest of the file was not read.
	quoteError error
}

// commentLine is a line before the first record that begins with #.
type commentLine struct {
	number int
	text   string
}

// excerpt returns the beginning of the line, for a message.
func (c commentLine) excerpt() string {
	return c.text[:min(len(c.text), excerptBytes)]
}

// isRemark reports whether the line cannot begin with an id: no id contains a space, and no hashtag
// begins with two #.
func (c commentLine) isRemark() bool {
	rest := c.text[1:]
	return rest == "" || strings.ContainsAny(rest[:1], " \t#!")
}

// names returns the line without the # at its beginning, which may contain the names of the
// columns.
func (c commentLine) names() string {
	return strings.TrimSpace(strings.TrimLeft(c.text, "# "))
}

// columnValues describes the values of a column. Texts that may stand for an absent value are
// counted separately.
type columnValues struct {
	values, numbers uint64
	// dates counts times that are not numbers. unreadable counts values that look like times in a
	// form that is not read here. compact counts dates that are numbers, such as 20171121.
	dates, unreadable, compact uint64
	// units counts, for each unit, the numbers that give a time between 1990 and the start of the
	// import in this unit.
	units [len(timeUnits)]example
	// absent has the texts that may stand for an absent value.
	absent []example
	// equalToFirst counts the values that are equal to the value of the first record.
	equalToFirst uint64
}

// example is a text that occurs in a column: how often, and in which record first. Records count
// from 1.
type example struct {
	count, record uint64
	text          string
}

// add counts one more occurrence.
func (e *example) add(text string, record uint64) {
	e.count++
	if e.count == 1 || record < e.record {
		e.text = strings.Clone(text)
		e.record = record
	}
}

// shiftRecords adds n to the record numbers of all examples.
func (c *columnValues) shiftRecords(n int) {
	for i := range c.units {
		c.units[i].record += uint64(n)
	}
	for i := range c.absent {
		c.absent[i].record += uint64(n)
	}
}

// times returns the number of values that are times.
func (c *columnValues) times() uint64 {
	n := c.dates
	for i := range c.units {
		n += c.units[i].count
	}
	return n
}

// looksLikeTimes reports whether a column that is not used seems to contain the times of the
// records.
func (c *columnValues) looksLikeTimes() bool {
	if c.values == 0 {
		return false
	}
	for i := range c.units {
		if c.units[i].count == c.values {
			return true
		}
	}
	return 2*(c.dates+c.unreadable) > c.values || c.compact == c.values
}

// addValue counts the value of a record.
func (c *columnValues) addValue(value string, record uint64, start events.Micros) {
	if value == "" {
		return
	}
	if slices.Contains(absentTexts, value) {
		i := slices.IndexFunc(c.absent, func(e example) bool { return e.text == value })
		if i < 0 {
			i = len(c.absent)
			c.absent = append(c.absent, example{})
		}
		c.absent[i].add(value, record)
		return
	}

	c.values++
	if !isNumber(value) {
		if _, err := ParseTime(value); err == nil {
			c.dates++
		} else if looksLikeTime(value) {
			c.unreadable++
		}
		return
	}
	c.numbers++
	if isCompactDate(value) {
		c.compact++
	}
	at, err := ParseTime(value)
	if err != nil || at < minTime || at > start+maxTimeAfterStart {
		return
	}
	// The number of digits before the point determines the unit.
	whole, _, _ := strings.Cut(value, ".")
	unit := 0 // an index of timeUnits: seconds
	switch {
	case len(whole) >= len(strconv.Itoa(maxMillis)):
		unit = 2 // microseconds
	case len(whole) >= len(strconv.Itoa(maxSeconds)):
		unit = 1 // milliseconds
	}
	c.units[unit].add(value, record)
}

// absentTexts are texts that programs print for an absent value: MySQL, COPY of PostgreSQL,
// JavaScript, Python and R.
var absentTexts = []string{`\N`, "NULL", "null", "(null)", "<null>", "None", "undefined", "NaN"}

// otherTimePattern matches the beginning of times in forms that are not read here, such as
// 21.11.2017, 11/21/2017, Nov 21 2017 or Wed, 21 Nov 2017.
var otherTimePattern = regexp.MustCompile(`^(?:\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|` +
	`(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? )?(?:\d{1,2} )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? \d)`)

// looksLikeTime reports whether a text that ParseTime does not accept seems to be a time.
func looksLikeTime(s string) bool {
	if len(s) < len("1/1/17") || len(s) > 40 {
		return false
	}
	if c := s[0]; (c < '0' || c > '9') && !strings.ContainsRune("MTWFSJAOND", rune(c)) {
		return false // most values end here, because matching the expression takes time
	}
	return otherTimePattern.MatchString(s)
}

// isCompactDate reports whether a number is a date such as 20171121, perhaps with a time such as
// 20171121123000.
func isCompactDate(s string) bool {
	if len(s) != 8 && len(s) != 14 {
		return false
	}
	between := func(digits, low, high string) bool { return digits >= low && digits <= high }
	return between(s[:4], "1990", "2099") && between(s[4:6], "01", "12") && between(s[6:8], "01", "31") &&
		(len(s) == 8 || between(s[8:10], "00", "23") && between(s[10:12], "00", "59") && between(s[12:14], "00", "60"))
}

// measureFile reads a whole file with one delimiter. It returns nil if the first record has fewer
// than minFields fields.
func measureFile(ctx context.Context, f *file, s shape, minFields int, start events.Micros, observe func()) (*measurement, error) {
	me := &measurement{delimiter: s.delimiter, quotes: s.quotes}
	lines := newLineReader(f, s.lineEnd)
	if err := me.readComments(lines); err != nil {
		return nil, err
	}

	texts := &textReader{lines: lines, quotes: s.quotes, quoteScanner: quoteScanner{d: s.delimiter}}
	var fields []string
	for {
		if me.records%observeEvery == 0 {
			observe()
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}

		text, err := texts.nextText()
		me.quoted = texts.fields
		me.multiLine = texts.multiLine
		switch {
		case errors.Is(err, io.EOF):
			// If every line begins with #, the width is that of a line that may be a row.
			if width := me.width(); width > 0 && width < minFields {
				return nil, nil
			}
			return me, nil
		case errors.Is(err, errOpenQuote) || errors.Is(err, errAfterQuote):
			// Keep what was measured so far: the error may be the answer to whether quotes enclose
			// fields.
			if me.records == 0 {
				me.first, _ = s.delimiter.split(nil, text, false)
				if err := jsonError(text); err != nil {
					return nil, err
				}
			}
			me.quoteError = err
			return me, nil
		case err != nil:
			return nil, err
		}
		if me.records == 0 {
			if err := jsonError(text); err != nil {
				return nil, err
			}
		}

		fields, err = s.delimiter.split(fields[:0], text, s.quotes)
		if err != nil {
			return nil, err
		}

		me.records++
		switch me.records {
		case 1:
			if len(fields) < minFields {
				return nil, nil
			}
			if len(fields) > maxColumns {
				return nil, fmt.Errorf("the first row has %d fields with the delimiter %s: at most %d", len(fields), s.delimiter, maxColumns)
			}
			// The values of the first record are not counted yet, because they may be the names of
			// the columns.
			me.first = cloneAll(fields)
			me.columns = make([]columnValues, len(fields))
			continue
		case 2:
			me.second = cloneAll(fields)
		}
		me.addRecord(fields, start)
	}
}

// readComments reads the lines before the first record that begin with #.
func (me *measurement) readComments(lines *lineReader) error {
	for {
		line, err := lines.nextLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text := string(line)
		switch {
		case isBlank(text):
		case text[0] == '#' && len(me.comments) < maxComments:
			kept := strings.Clone(text[:min(len(text), maxKeptLine)])
			me.comments = append(me.comments, commentLine{number: lines.number, text: kept})
		default:
			lines.unreadLine()
			return nil
		}
	}
}

// firstFields returns the fields of the first record. If every line of the file begins with #, it
// returns those of the first line that may be a row.
func (me *measurement) firstFields() []string {
	if me.first != nil {
		return me.first
	}
	for _, c := range me.comments {
		if !c.isRemark() {
			fields, _ := me.delimiter.split(nil, c.text, me.quotes) // what cannot be split is no row
			return fields
		}
	}
	return nil
}

// width returns the number of fields of the first record.
func (me *measurement) width() int { return len(me.firstFields()) }

// addRecord counts the fields of a record that is not the first.
func (me *measurement) addRecord(fields []string, start events.Micros) {
	if len(fields) != len(me.first) {
		me.misfits++
		return
	}
	if !slices.Equal(fields, me.first) {
		me.differing++
	}
	for i, value := range fields {
		me.columns[i].addValue(value, me.records, start)
		if value != "" && value == me.first[i] {
			me.columns[i].equalToFirst++
		}
	}
}

// cloneAll copies strings that are parts of longer ones, so that these can be freed.
func cloneAll(fields []string) []string {
	all := make([]string, len(fields))
	for i, f := range fields {
		all[i] = strings.Clone(f)
	}
	return all
}
