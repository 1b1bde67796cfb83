package importer

import (
	"errors"
	"fmt"
	"strings"
)

// Delimiter separates the fields of a record.
type Delimiter byte

// The delimiters that are detected. The caller may choose any other single character. Space stands
// for one or more spaces and tabs.
const (
	Tab       Delimiter = '\t'
	Comma     Delimiter = ','
	Semicolon Delimiter = ';'
	Space     Delimiter = ' '
)

var delimiterNames = map[string]Delimiter{"tab": Tab, "comma": Comma, "semicolon": Semicolon, "space": Space}

// ErrDelimiter means that a text does not name a delimiter.
var ErrDelimiter = errors.New("a delimiter is comma, tab, semicolon, space or one other ASCII character")

// ParseDelimiter parses the name of a delimiter, or the single character that is one.
func ParseDelimiter(s string) (Delimiter, error) {
	if d, ok := delimiterNames[s]; ok {
		return d, nil
	}
	if len(s) != 1 || s[0] >= 0x80 || s[0] == '"' || s[0] == '\n' || s[0] == '\r' {
		return 0, fmt.Errorf("%w: not %q", ErrDelimiter, s)
	}
	return Delimiter(s[0]), nil
}

// String returns the name of the delimiter.
func (d Delimiter) String() string {
	for name, c := range delimiterNames {
		if c == d {
			return name
		}
	}
	return fmt.Sprintf("%q", byte(d))
}

// Errors of records whose quotes do not enclose fields. It is not certain then where later records
// begin: text that a user wrote could be read as records.
var (
	errOpenQuote  = errors.New("a quoted field does not end")
	errAfterQuote = errors.New("a quoted field is followed by text")
)

// split appends the fields of a record to dst, without the spaces around them. If quotes is true, a
// field may be enclosed in double quotes. It may span lines then, and a quote inside it is doubled.
//
// The package encoding/csv is not used. If a closing quote is missing, it reads the rest of the
// file into memory, and it cannot distinguish such a field from one that has a quote in its middle,
// such as 5" nails.
func (d Delimiter) split(dst []string, text string, quotes bool) ([]string, error) {
	for {
		text = strings.TrimLeft(text, d.blanks())
		switch {
		case d == Space && text == "":
			return dst, nil
		case quotes && strings.HasPrefix(text, `"`):
			field, after, err := cutQuoted(text[1:])
			if err != nil {
				return dst, err
			}
			dst = append(dst, field)
			// After the closing quote, only blanks may stand before the next delimiter.
			rest := strings.TrimLeft(after, d.blanks())
			switch {
			case rest == "":
				return dst, nil
			case d == Space && rest != after:
				text = rest
			case d != Space && rest[0] == byte(d):
				text = rest[1:]
			default:
				return dst, errAfterQuote
			}
		default:
			i := d.index(text)
			if i < 0 {
				return append(dst, strings.TrimRight(text, d.blanks())), nil
			}
			dst = append(dst, strings.TrimRight(text[:i], d.blanks()))
			text = text[i+1:]
		}
	}
}

// blanks returns the characters around a field that do not belong to it.
func (d Delimiter) blanks() string {
	if d == Space {
		return " \t"
	}
	return " "
}

// index returns the index of the next delimiter in a text, or -1.
func (d Delimiter) index(text string) int {
	if d == Space {
		return strings.IndexAny(text, " \t")
	}
	return strings.IndexByte(text, byte(d))
}

// quoteScanner finds out whether a record ends with its line, or continues on the next line because
// a quoted field spans lines.
type quoteScanner struct {
	d     Delimiter
	place quotePlace
	// fields is the number of quoted fields so far.
	fields uint64
}

// quotePlace is a place in a record.
type quotePlace uint8

const (
	fieldStart quotePlace = iota
	insideField
	insideQuotes
	afterQuotes
)

// scan reads the next line of a record. It reports whether the record continues on the following
// line.
func (q *quoteScanner) scan(line string) (continues bool, err error) {
	if q.place != insideQuotes {
		q.place = fieldStart
		if strings.IndexByte(line, '"') < 0 {
			return false, nil
		}
	}
	// A quote has a meaning only at the beginning of a field. Elsewhere it is a character like
	// others, as in 5" nails.
	for i := 0; i < len(line); i++ {
		c := line[i]
		delimits := c == byte(q.d) || q.d == Space && c == '\t'
		switch q.place {
		case fieldStart:
			switch {
			case delimits || c == ' ':
			case c == '"':
				q.place = insideQuotes
				q.fields++
			default:
				q.place = insideField
			}
		case insideField:
			if delimits {
				q.place = fieldStart
			}
		case insideQuotes:
			switch {
			case c != '"':
			case i+1 < len(line) && line[i+1] == '"':
				i++ // a doubled quote stands for one quote
			default:
				q.place = afterQuotes
			}
		case afterQuotes:
			switch {
			case delimits:
				q.place = fieldStart
			case c != ' ':
				return false, errAfterQuote
			}
		}
	}
	return q.place == insideQuotes, nil
}

// cutQuoted reads a quoted field. s begins after the opening quote, and rest after the closing one.
func cutQuoted(s string) (field, rest string, err error) {
	var unquoted strings.Builder
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			return "", "", errOpenQuote
		}
		unquoted.WriteString(s[:i])
		s = s[i+1:]
		if !strings.HasPrefix(s, `"`) {
			return unquoted.String(), s, nil
		}
		unquoted.WriteByte('"')
		s = s[1:]
	}
}
