package importer

import (
	"errors"
	"fmt"
	"strings"
)

// Delimiter separates the fields of a record.
type Delimiter byte

// The delimiters that are detected. The caller may name any other single character. Space stands for any run of spaces and
// tabs.
const (
	Tab       Delimiter = '\t'
	Comma     Delimiter = ','
	Semicolon Delimiter = ';'
	Space     Delimiter = ' '
)

var delimiterNames = map[string]Delimiter{"tab": Tab, "comma": Comma, "semicolon": Semicolon, "space": Space}

// ErrDelimiter is returned for a text that is no delimiter.
var ErrDelimiter = errors.New("a delimiter is comma, tab, semicolon, space or one other ASCII character")

// ParseDelimiter reads the name of a delimiter, or the one character that it is.
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

// The errors of a record whose quotes do not enclose fields. The quotes of all later records are then not certain either: text of one user
// could be read as rows.
var (
	errOpenQuote  = errors.New("a quoted field does not end")
	errAfterQuote = errors.New("a quoted field is followed by text")
)

// split appends the fields of a record to dst, without the spaces around them. With quotes, a field may be enclosed in double quotes, with
// quotes inside doubled, and may then span lines.
//
// The package encoding/csv is not used: it reads a field whose quote is lost to the end of the file into memory, and it cannot tell such a
// field from one that has a quote in its middle, as in 5" nails.
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
			dst, text = append(dst, strings.TrimRight(text[:i], d.blanks())), text[i+1:]
		}
	}
}

// blanks are the characters around a field that do not count.
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

// quoteScanner finds out whether a record ends with its line, or continues on the next one within quotes.
type quoteScanner struct {
	d     Delimiter
	place quotePlace
	// fields is the number of quoted fields.
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

// scan reads the next line of a record. It reports whether the record continues on the line after it.
func (q *quoteScanner) scan(line string) (continues bool, err error) {
	if q.place != insideQuotes {
		q.place = fieldStart
		if strings.IndexByte(line, '"') < 0 {
			return false, nil
		}
	}
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
				i++
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

// cutQuoted reads a field after its opening quote.
func cutQuoted(s string) (field, rest string, err error) {
	var unquoted strings.Builder
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			return "", "", errOpenQuote
		}
		unquoted.WriteString(s[:i])
		if s = s[i+1:]; !strings.HasPrefix(s, `"`) {
			return unquoted.String(), s, nil
		}
		unquoted.WriteByte('"')
		s = s[1:]
	}
}
