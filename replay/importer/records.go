package importer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Format says how a file is read. The zero value detects everything from the content of the file.
type Format struct {
	// Delimiter is the delimiter between fields; 0 means that it is detected.
	Delimiter Delimiter
	// Columns says which columns have which roles: names of roles by position ("-" for unused
	// columns), or role=column.
	Columns []string
	// Constants are the values of roles for which the file has no column, because they are the same
	// in all records.
	Constants map[string]string
	// Header says whether the first line names the columns; empty means HeaderAuto.
	Header Header
	// Quotes says whether double quotes enclose fields; nil means that it is detected.
	Quotes *bool
	// Null are the texts that stand for an absent value, in addition to the empty text; nil means
	// that they are detected.
	Null []string
	// TimeUnit is the unit of times that are numbers.
	TimeUnit TimeUnit
}

// shape says how the lines of a file become records.
type shape struct {
	delimiter Delimiter
	quotes    bool
	lineEnd   byte
	columns   columns
	// constants has the values of roles that are the same in all records.
	constants [numRoles]string
	// fields is the number of fields of every record.
	fields int
	// comments is the number of lines before the first record that begin with #.
	comments int
	// headed is set if the first record names the columns. header are these names, or those in a
	// comment; nil means that there are none.
	headed bool
	header []string
	// absent are the texts that stand for an absent value, in addition to the empty text.
	absent   []string
	timeUnit TimeUnit
}

// String describes the shape to people. It is part of the default source of an import, so the
// description of a shape that an earlier version could read must not change.
func (s *shape) String() string {
	var b strings.Builder
	for r, i := range s.columns {
		if i < 0 && s.constants[r] == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		if i < 0 {
			fmt.Fprintf(&b, "%s always %s", role(r), s.constants[r])
			continue
		}
		fmt.Fprintf(&b, "%s from column %d", role(r), i+1)
		if i < len(s.header) {
			fmt.Fprintf(&b, " (%s)", s.header[i])
		}
	}
	for i, name := range s.header {
		if !slices.Contains(s.columns[:], i) {
			fmt.Fprintf(&b, ", nothing from column %d (%s)", i+1, name)
		}
	}
	b.WriteString(", delimiter " + s.delimiter.String())
	if !s.quotes && s.delimiter != Tab && s.delimiter != Space {
		b.WriteString(", no quotes")
	}
	if s.lineEnd == '\r' {
		b.WriteString(", lines that end with CR")
	}
	for _, text := range s.absent {
		if text == "" {
			continue
		}
		fmt.Fprintf(&b, ", %q for an absent value", text)
	}
	if s.timeUnit != UnitAuto {
		fmt.Fprintf(&b, ", times in %s", s.timeUnit)
	}
	return b.String()
}

// hasTime reports whether records have a time.
func (s *shape) hasTime() bool {
	return s.columns[when] >= 0 || s.constants[when] != ""
}

// columnName returns the number and the name of a column for people.
func (s *shape) columnName(i int) string {
	if i < len(s.header) {
		return fmt.Sprintf("column %d (%s)", i+1, s.header[i])
	}
	return fmt.Sprintf("column %d", i+1)
}

// isBlank reports whether a line contains only white space.
func isBlank(line string) bool { return strings.TrimSpace(line) == "" }

// record is one data record.
type record struct {
	// number counts data records from 1; blank lines, comments and the header do not count. It is
	// the record's offset.
	number uint64
	// line is the text of the record, or the beginning of a very long one.
	line string
	// fields are the fields by role; the field of a role without a column is empty.
	fields [numRoles]string
	// err says why the record cannot be read.
	err error
}

// textReader reads the texts of records. A record is one line, or several lines if a quoted field
// spans them.
type textReader struct {
	lines  *lineReader
	quotes bool
	quoteScanner
	// line is the number of the line on which the last record begins. multiLine is the number of
	// records that span lines.
	line      int
	multiLine uint64
}

// errNUL means that the file has a NUL byte, which text never contains.
var errNUL = errors.New("has a NUL byte, so the file is no text in UTF-8")

// nextText returns the text of the next record that is not blank, or io.EOF. After any other error,
// it is not certain where later records begin.
func (t *textReader) nextText() (string, error) {
	line := ""
	for isBlank(line) {
		next, err := t.readLine()
		if err != nil {
			return "", err
		}
		line = next
	}
	t.line = t.lines.number
	if !t.quotes {
		return line, nil
	}

	text := line
	var joined strings.Builder
	for {
		continues, err := t.scan(line)
		switch {
		case err != nil:
			return text, fmt.Errorf("line %d: %w", t.line, err)
		case !continues && joined.Len() == 0:
			return text, nil
		case !continues:
			t.multiLine++
			return joined.String(), nil
		}

		// The record continues on the next line.
		if joined.Len() == 0 {
			joined.WriteString(line)
		}
		line, err = t.readLine()
		if errors.Is(err, io.EOF) || joined.Len()+len(line) > maxRecordBytes {
			return text, fmt.Errorf("line %d: %w", t.line, errOpenQuote)
		}
		if err != nil {
			return text, err
		}
		joined.WriteByte('\n')
		joined.WriteString(line)
	}
}

// readLine returns the next line as a string.
func (t *textReader) readLine() (string, error) {
	line, err := t.lines.nextLine()
	if err != nil {
		return "", err
	}
	text := string(line)
	if strings.IndexByte(text, 0) >= 0 {
		return "", fmt.Errorf("line %d %w", t.lines.number, errNUL)
	}
	return text, nil
}

// recordReader reads the records of a file.
type recordReader struct {
	shape *shape
	texts *textReader
	// count is the number of records so far.
	count uint64
	// fields are the fields of the last record, in the order of the columns.
	fields []string
}

// newRecordReader returns a reader of the records of a file with this shape. It skips the comments
// and the header.
func newRecordReader(f *file, s *shape) (*recordReader, error) {
	lines := newLineReader(f, s.lineEnd)
	for skipped := 0; skipped < s.comments; {
		line, err := lines.nextLine()
		if err != nil {
			return nil, err
		}
		if !isBlank(string(line)) {
			skipped++
		}
	}

	rr := &recordReader{shape: s, texts: &textReader{lines: lines, quotes: s.quotes, quoteScanner: quoteScanner{d: s.delimiter}}}
	if s.headed {
		if _, err := rr.texts.nextText(); err != nil {
			return nil, err
		}
	}
	return rr, nil
}

// nextRecord returns the next record, or io.EOF. If only this record is bad, its err is set. A
// returned error means that the file cannot be read.
func (rr *recordReader) nextRecord() (record, error) {
	text, err := rr.texts.nextText()
	if err != nil {
		return record{}, err
	}
	rr.count++
	r := record{number: rr.count, line: text}
	rr.splitFields(&r)
	return r, nil
}

// splitFields splits the text of a record into its fields, or sets its err.
func (rr *recordReader) splitFields(r *record) {
	rr.fields, r.err = rr.shape.delimiter.split(rr.fields[:0], r.line, rr.shape.quotes)
	switch {
	case r.err != nil:
		return
	case len(rr.fields) != rr.shape.fields:
		r.err = fmt.Errorf("it has %d fields, not %d as the first row", len(rr.fields), rr.shape.fields)
		return
	case rr.shape.headed && slices.Equal(rr.fields, rr.shape.header):
		r.err = errors.New("it repeats the names of the columns")
		return
	}

	r.fields = rr.shape.constants
	for role, i := range rr.shape.columns {
		if i >= 0 && !slices.Contains(rr.shape.absent, rr.fields[i]) {
			r.fields[role] = rr.fields[i]
			// The events of a call must not keep a long line in memory.
			if len(r.line) > maxKeptLine {
				r.fields[role] = strings.Clone(rr.fields[i])
			}
		}
	}
}
