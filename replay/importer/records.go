package importer

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events"
)

// Format says how a file is read. Its zero value detects everything from the first lines.
type Format struct {
	// Delimiter is the delimiter between fields; 0 means that it is detected.
	Delimiter Delimiter
	// Columns maps roles to columns: names of roles by position ("-" for others), or role=column.
	Columns []string
	// Header says whether the first line names the columns; empty means HeaderAuto.
	Header Header
}

// shapeLines is the number of lines from which the shape of a file is learned.
const shapeLines = 100

// shape says how the lines of a file become records.
type shape struct {
	delimiter Delimiter
	columns   columns
	// fields is the number of fields of every record.
	fields int
	// skip is the number of lines before the first record: comments, blank lines, the header.
	skip int
	// header are the names of the columns; nil means the file has none.
	header []string
	// first is the line of the first record; empty means there is none near the beginning.
	first string
}

// String describes the roles of the columns for people.
func (s *shape) String() string {
	var b strings.Builder
	for r, i := range s.columns {
		if i < 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
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
	return b.String() + ", delimiter " + s.delimiter.String()
}

var errNoRecords = errors.New("the file has no rows")

// learn detects the shape of a file from its first lines. Lines before the first record that begin with # are comments; the last of them
// may name the columns.
func learn(kind Kind, f Format, lines []string) (*shape, error) {
	k, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("cannot import %q", kind)
	}
	m, err := k.parse(f.Columns)
	if err != nil {
		return nil, err
	}
	s := &shape{delimiter: f.Delimiter}
	comment := ""
	for s.skip < len(lines) && isComment(lines[s.skip]) {
		if c := strings.TrimSpace(strings.TrimLeft(lines[s.skip], "# ")); c != "" {
			comment = c
		}
		s.skip++
	}
	data := withoutBlank(lines[s.skip:])
	if len(data) == 0 {
		return nil, errNoRecords
	}
	if err := jsonShape(data[0]); err != nil {
		return nil, err
	}
	if s.delimiter == 0 {
		if s.delimiter, err = detectDelimiter(data); err != nil {
			return nil, err
		}
	}
	fields, err := s.delimiter.split(nil, data[0])
	if err != nil {
		return nil, fmt.Errorf("the first row: %w", err)
	}
	s.fields = len(fields)
	var second []string
	if len(data) > 1 {
		second, _ = s.delimiter.split(nil, data[1])
	}
	names, _ := s.delimiter.split(nil, comment) // a comment that cannot be split names no columns
	header, err := k.isHeader(f.Header, m, fields, second, names)
	switch {
	case err != nil:
		return nil, err
	case header:
		s.header, data = fields, data[1:]
		s.skip++
	case len(names) == s.fields:
		s.header = names
	}
	if len(data) > 0 {
		s.first = data[0]
	}
	return s, k.resolve(s, m, data)
}

func isBlank(line string) bool { return strings.TrimSpace(line) == "" }

func isComment(line string) bool { return isBlank(line) || strings.HasPrefix(line, "#") }

func withoutBlank(lines []string) []string {
	var kept []string
	for _, line := range lines {
		if !isBlank(line) && len(kept) < shapeLines {
			kept = append(kept, line)
		}
	}
	return kept
}

// resolve finds the columns: by --columns, by the names in the file, or by position where no other order fits.
func (k kindColumns) resolve(s *shape, m *mapping, data []string) (err error) {
	if m != nil {
		s.columns, err = m.resolve(s.header)
	} else if s.columns, err = k.byName(s.header); err == nil {
		missing := s.columns.missing(k.required)
		switch {
		case len(missing) == 0:
		case len(missing) == len(k.required) && s.byPosition(k.positions, data):
		default:
			return fmt.Errorf("cannot tell which of the %d columns is the %s: give --columns (%s)\n%s",
				s.fields, strings.Join(missing, " or the "), k.describe(), k.understood())
		}
	}
	if err != nil {
		return err
	}
	for r, i := range s.columns {
		if i >= s.fields {
			return fmt.Errorf("%w: %s would be column %d, but the first row has %d", ErrColumns, role(r), i+1, s.fields)
		}
	}
	return nil
}

// earliest is the earliest time that is recognized in a file without names of columns: smaller numbers may be weights, ranks or ids.
const earliest events.Micros = 631_152_000_000_000 // 1990

// byPosition assigns the usual order to the columns of a file without names. It reports whether the data fits.
func (s *shape) byPosition(positions []role, data []string) bool {
	if s.fields < 2 || s.fields > len(positions) {
		return false
	}
	c := noColumns()
	for i, r := range positions[:s.fields] {
		c[r] = i
	}
	for _, line := range data {
		fields, err := s.delimiter.split(nil, line)
		if err != nil || c[when] < 0 || c[when] >= len(fields) {
			continue
		}
		if at, err := ParseTime(fields[c[when]]); err != nil || at < earliest {
			return false
		}
	}
	s.columns = c
	return true
}

// record is one data record.
type record struct {
	// number counts data records from 1; blank lines, comments and the header do not count. It is the record's offset.
	number uint64
	// line is the line of the record, or the beginning of a very long one.
	line string
	// fields are the fields by role; the field of a role without a column is empty.
	fields [numRoles]string
	// err says why the record cannot be read.
	err error
}

// recordReader reads the records of a file.
type recordReader struct {
	shape *shape
	lines *lineReader
	n     uint64
	split []string
}

func newRecordReader(r io.Reader, kind Kind, f Format) (*recordReader, error) {
	rr := &recordReader{lines: newLineReader(r)}
	head, err := rr.lines.peek()
	if err != nil {
		return nil, err
	}
	if len(head) == 0 {
		return nil, errNoRecords
	}
	lines := make([]string, len(head))
	for i, line := range head {
		lines[i] = string(line)
	}
	if rr.shape, err = learn(kind, f, lines); err != nil {
		return nil, err
	}
	for range rr.shape.skip {
		if _, _, err := rr.lines.next(); err != nil {
			return nil, err
		}
	}
	return rr, nil
}

// next returns the next record, or io.EOF. The err of a record says that this record is bad; a returned error means that the file cannot be
// read.
func (rr *recordReader) next() (record, error) {
	for {
		line, tooLong, err := rr.lines.next()
		if err != nil {
			return record{}, err
		}
		r := record{line: string(line)}
		if !tooLong && isBlank(r.line) {
			continue
		}
		rr.n++
		r.number = rr.n
		if tooLong {
			r.err = fmt.Errorf("the line is longer than %d bytes", maxLine)
			return r, nil
		}
		rr.fill(&r)
		return r, nil
	}
}

// fill splits the line of a record into its fields.
func (rr *recordReader) fill(r *record) {
	rr.split, r.err = rr.shape.delimiter.split(rr.split[:0], r.line)
	switch {
	case r.err != nil:
	case len(rr.split) != rr.shape.fields:
		r.err = fmt.Errorf("it has %d fields, not %d as the first row", len(rr.split), rr.shape.fields)
	default:
		for role, i := range rr.shape.columns {
			if i >= 0 {
				r.fields[role] = rr.split[i]
			}
		}
	}
}
