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

// errQuote is the error for a field that begins with a quote and does not end with one. A quoted field must not continue on the next
// line: otherwise a single lost quote would swallow the rest of the file.
var errQuote = errors.New("a quoted field does not end")

// split appends the fields of a line to dst, without the spaces around them. A field may be in double quotes, with quotes inside doubled,
// unless the delimiter is a tab or space: such files do not use quotes.
func (d Delimiter) split(dst []string, line string) ([]string, error) {
	if d == Space {
		return appendWords(dst, line), nil
	}
	for {
		rest := strings.TrimLeft(line, " ")
		if d != Tab && strings.HasPrefix(rest, `"`) {
			field, after, err := cutQuoted(rest[1:])
			if err != nil {
				return dst, err
			}
			dst, line = append(dst, field), strings.TrimLeft(after, " ")
			if line == "" {
				return dst, nil
			}
			if line[0] != byte(d) {
				return dst, errQuote
			}
			line = line[1:]
			continue
		}
		i := strings.IndexByte(line, byte(d))
		if i < 0 {
			return append(dst, strings.Trim(line, " ")), nil
		}
		dst, line = append(dst, strings.Trim(line[:i], " ")), line[i+1:]
	}
}

func appendWords(dst []string, line string) []string {
	start := -1
	for i := range len(line) {
		if space := line[i] == ' ' || line[i] == '\t'; space && start >= 0 {
			dst, start = append(dst, line[start:i]), -1
		} else if !space && start < 0 {
			start = i
		}
	}
	if start >= 0 {
		dst = append(dst, line[start:])
	}
	return dst
}

// cutQuoted reads a field after its opening quote.
func cutQuoted(s string) (field, rest string, err error) {
	var unquoted strings.Builder
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			return "", "", errQuote
		}
		unquoted.WriteString(s[:i])
		if s = s[i+1:]; !strings.HasPrefix(s, `"`) {
			return unquoted.String(), s, nil
		}
		unquoted.WriteByte('"')
		s = s[1:]
	}
}

// detectDelimiter returns the delimiter with which most lines have the same number of fields, at least two.
func detectDelimiter(lines []string) (Delimiter, error) {
	var best Delimiter
	bestLines := 0
	for _, d := range []Delimiter{Tab, Comma, Semicolon, Space} {
		byCount := map[int]int{}
		agree := 0
		for _, line := range lines {
			fields, err := d.split(nil, line)
			if err != nil || len(fields) < 2 {
				continue
			}
			byCount[len(fields)]++
			agree = max(agree, byCount[len(fields)])
		}
		if agree > bestLines {
			best, bestLines = d, agree
		}
	}
	if bestLines == 0 || 2*bestLines < len(lines) {
		return 0, errors.New("the first lines have no common delimiter (tab, comma, semicolon, space): give --delimiter")
	}
	return best, nil
}
