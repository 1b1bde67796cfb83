package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Header says whether the first record of a file names its columns.
type Header string

// Whether there is a header.
const (
	// HeaderAuto means that the first record is a header if its names are known, or if it has no
	// time where all other records have one. If it could be a header as well as a row, that is an
	// error.
	HeaderAuto Header = "auto"
	HeaderYes  Header = "yes"
	HeaderNo   Header = "no"
)

// isHeader reports whether the first record names the columns. It returns an error if that is not
// certain: a header that is taken for a row becomes a false fact, and a row that is taken for a
// header is lost.
func (k kindColumns) isHeader(h Header, m *mapping, me *measurement, comment []string) (bool, error) {
	if h == HeaderYes || h == HeaderNo {
		return h == HeaderYes, nil
	}
	if m != nil && m.needsHeader() {
		return true, nil
	}

	// A first record that contains known names is a header.
	first := me.first
	c, err := k.columnsByName(first)
	missing := len(c.missingRoles(k.required))
	namesSome := m == nil && missing < len(k.required)
	if err != nil || namesSome || missing == 0 {
		return true, nil //nolint:nilerr // also when names clash or one is unknown: then placing the columns asks for help
	}

	// It is also a header if a column has a time in every other record, but not in this one.
	if m != nil {
		c, err = m.resolve(first)
		if err != nil {
			return false, nil //nolint:nilerr // placing the columns returns the error
		}
	} else {
		if len(first) > len(k.positions) {
			return false, nil // placing the columns asks for help
		}
		c = k.columnsByPosition(len(first))
	}
	if i := c[when]; m != nil && i >= 0 && i < len(first) {
		others := &me.columns[i]
		if _, err := ParseTime(first[i]); err == nil {
			return false, nil
		}
		if others.values > 0 && others.times() == others.values {
			return true, nil
		}
	}

	// It is a row if a comment before it contains the names, or if all rows have the same id as it
	// in some column.
	if named, err := k.columnsByName(comment); err == nil && len(comment) == len(first) && len(named.missingRoles(k.required)) == 0 {
		return false, nil
	}
	aboveNumbers := false
	for _, r := range k.required {
		if i := c[r]; i >= 0 && i < len(first) {
			others := &me.columns[i]
			if me.differing > 0 && others.equalToFirst == others.values {
				return false, nil
			}
			areNumbers := others.values > 0 && others.numbers == others.values
			if areNumbers && !isNumber(first[i]) {
				aboveNumbers = true
			}
		}
	}
	if !couldBeHeader(first, me.second) && !aboveNumbers {
		return false, nil
	}
	if m != nil {
		return false, fmt.Errorf("the first line (%s) could be a row or the names of the columns: give --no-header if it is a row, "+
			"--header if it is not", quoteAll(first))
	}
	return false, fmt.Errorf("the first line (%s) could be a row or the names of the columns, of which none is known: "+
		"give --no-header if it is a row, or %s if it is not\n%s",
		quoteAll(first), k.exampleColumns(), k.describeNames())
}

// couldBeHeader reports whether a line could name the columns: each of its fields consists of
// letters, perhaps with a short number at the end, and none has the same form as the field below it
// ("u1" above "u2" is a user).
func couldBeHeader(first, second []string) bool {
	for i, field := range first {
		letters := strings.TrimRight(field, "0123456789")
		digits := len(field) - len(letters)
		if digits > 2 || (letters == "" && digits > 0) || strings.ContainsFunc(letters, notInName) {
			return false
		}
		if digits > 0 && i < len(second) && letters == strings.TrimRight(second[i], "0123456789") {
			return false
		}
	}
	return true
}

// notInName reports whether a character does not occur in names of columns.
func notInName(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsMark(r) && !strings.ContainsRune(" _-./()#", r)
}

// quoteAll quotes fields for people.
func quoteAll(fields []string) string {
	q := make([]string, len(fields))
	for i, f := range fields {
		q[i] = fmt.Sprintf("%q", f)
	}
	return strings.Join(q, ", ")
}

// exampleColumns returns the flag --columns with the required columns of the kind.
func (k kindColumns) exampleColumns() string {
	var parts []string
	for _, r := range k.required {
		parts = append(parts, r.String()+"=NAME")
	}
	return "--columns " + strings.Join(parts, ",")
}

// describeNames lists the names by which the columns are found.
func (k kindColumns) describeNames() string {
	var b strings.Builder
	b.WriteString("Names that are known (case, spaces, punctuation, and an id at the end do not count):")
	for _, r := range slices.Concat(k.required, k.optional) {
		var shown []string
		for _, n := range k.names[r] {
			if base, ok := strings.CutSuffix(n, "id"); !ok || !slices.Contains(k.names[r], base) {
				shown = append(shown, n)
			}
		}
		fmt.Fprintf(&b, "\n  %s: %s", r, strings.Join(shown, ", "))
	}
	return b.String()
}

// jsonError returns an error if a file begins like JSON.
func jsonError(line string) error {
	line = strings.TrimSpace(line)
	var object map[string]json.RawMessage
	switch {
	case json.Unmarshal([]byte(line), &object) == nil && len(object) > 0:
		var fields, paths []string
		for name := range object {
			fields = append(fields, name)
		}
		slices.Sort(fields)
		for _, name := range fields {
			paths = append(paths, fmt.Sprintf(".[%q]", name))
		}
		return fmt.Errorf("it looks like a stream of JSON objects with the fields %s, and delimited text is read here: "+
			"jq -r '[%s] | @csv' makes rows of it, and --columns says what they hold; events as JSON are for skein publish",
			strings.Join(fields, ", "), strings.Join(paths, ", "))
	case line == "{", line == "[", line == "[{", strings.HasPrefix(line, `{"`), strings.HasPrefix(line, `[{"`),
		strings.HasPrefix(line, "[[") && json.Valid([]byte(line)):
		return errors.New("it looks like JSON, and delimited text is read here: jq -r with @csv makes rows of it; " +
			"events as JSON are for skein publish")
	}
	return nil
}
