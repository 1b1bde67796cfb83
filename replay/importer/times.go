package importer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
)

// Numbers below these limits are seconds, milliseconds and microseconds, respectively. In its own
// unit, each limit is in the year 5138. Only times before March 1973 would be read in a wrong unit.
const (
	maxSeconds = 100_000_000_000
	maxMillis  = maxSeconds * 1000
	maxMicros  = maxMillis * 1000
)

// layouts are the forms of times that are accepted. A time without a zone is in UTC. In all forms,
// seconds may have a fraction.
var layouts = []string{
	time.RFC3339,
	time.DateTime,
	"2006-01-02T15:04:05",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05Z07",
	"2006-01-02 15:04:05 UTC",
	time.DateOnly,
}

var errTime = errors.New("is no time: unix seconds, milliseconds or microseconds, or 2006-01-02 15:04:05, or RFC 3339")

// TimeUnit is the unit of the numbers in a column of times: UnitAuto, "s", "ms" or "us".
type TimeUnit string

// UnitAuto means that the size of a number determines its unit. Numbers that give a time before
// 1990 are rejected then, because they may be ranks, weights or ids.
const UnitAuto TimeUnit = ""

// timeUnits are the units of time, the largest first, with their names for people.
var timeUnits = [...]struct {
	unit   TimeUnit
	name   string
	micros uint64
}{{"s", "seconds", 1_000_000}, {"ms", "milliseconds", 1000}, {"us", "microseconds", 1}}

// ParseTimeUnit parses a unit of time.
func ParseTimeUnit(s string) (TimeUnit, error) {
	for _, u := range timeUnits {
		if string(u.unit) == s {
			return u.unit, nil
		}
	}
	return UnitAuto, fmt.Errorf("a unit of time is s, ms or us: not %q", s)
}

// minTime is the earliest time that a number without a unit may give. Smaller numbers may be
// weights, ranks or ids.
const minTime events.Micros = 631_152_000_000_000 // 1990

// maxTimeAfterStart is how far after the start of the import a time may be, which allows for clocks
// and zones that differ. A later time is not a time, or has another unit.
const maxTimeAfterStart = events.Micros(24 * time.Hour / time.Microsecond)

// parseRecordTime parses the time of a record. start is the recorded start of the import. A later
// time is replaced by start, which clamped reports.
func (u TimeUnit) parseRecordTime(s string, start events.Micros) (at events.Micros, clamped bool, err error) {
	number := isNumber(s)
	if number && u != UnitAuto {
		at, err = u.parseNumber(s)
	} else {
		at, err = ParseTime(s)
	}
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("the time %w", err)
	case number && u == UnitAuto && at < minTime:
		return 0, false, fmt.Errorf("the time %q would be %q, which is before 1990: give --time-unit if the column holds times, or leave it "+
			"out with --columns", s, formatTime(at))
	case at > start+maxTimeAfterStart:
		return 0, false, fmt.Errorf("the time %q would be %q, which is more than a day after the start of the import", s, formatTime(at))
	}
	return min(at, start), at > start, nil
}

// parseUntil parses the end of a mute, which may be in the future. It returns 0 for no text: the
// mute has no end.
func (u TimeUnit) parseUntil(s string) (at events.Micros, err error) {
	switch {
	case s == "":
		return 0, nil
	case isNumber(s) && u != UnitAuto:
		at, err = u.parseNumber(s)
	default:
		at, err = ParseTime(s)
	}
	if err != nil {
		return 0, fmt.Errorf("until %w", err)
	}
	return max(at, 1), nil // the first microsecond of all, because 0 means that there is no end
}

// parseNumber parses a number in this unit, which may have a fraction.
func (u TimeUnit) parseNumber(s string) (events.Micros, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || n >= maxMicros || strings.Contains(fraction, ".") {
		return 0, fmt.Errorf("%q %w", s, errTime)
	}
	for _, unit := range timeUnits {
		if unit.unit != u {
			continue
		}
		if n >= maxMicros/unit.micros {
			return 0, fmt.Errorf("%q is too large for unix %s", s, unit.name)
		}
		sixDigits, err := strconv.ParseUint((fraction + "000000")[:6], 10, 32)
		if err != nil {
			return 0, fmt.Errorf("%q %w", s, errTime)
		}
		return events.Micros(n*unit.micros + sixDigits*unit.micros/1_000_000), nil
	}
	return 0, fmt.Errorf("%q is no unit of time", u)
}

// ParseTime parses a time in a file. It is one of the layouts, or a number of seconds, milliseconds
// or microseconds since 1970, whose unit follows from its size; seconds may have a fraction. A time
// before 1970 is an error.
func ParseTime(s string) (events.Micros, error) {
	if s == "" {
		return 0, fmt.Errorf("%q %w", s, errTime)
	}
	if isNumber(s) {
		return parseUnix(s)
	}
	if len(s) < len(time.DateOnly) || s[4] != '-' {
		return 0, fmt.Errorf("%q %w", s, errTime) // no layout can match, and trying them all takes time
	}
	for _, layout := range layouts {
		t, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if t.Unix() < 0 {
			return 0, fmt.Errorf("%q is before 1970", s)
		}
		return events.Micros(t.UnixMicro()), nil
	}
	return 0, fmt.Errorf("%q %w", s, errTime)
}

// isNumber reports whether a text is a number without a sign. It may contain any number of points.
func isNumber(s string) bool {
	return s != "" && s[0] >= '0' && s[0] <= '9' && strings.Trim(s, "0123456789.") == ""
}

// parseUnix parses a number whose unit follows from its size.
func parseUnix(s string) (events.Micros, error) {
	whole, fraction, fractional := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if strings.Contains(fraction, ".") {
		return 0, fmt.Errorf("%q %w", s, errTime)
	}
	if err != nil || n >= maxMicros {
		return 0, fmt.Errorf("%q is too large for unix microseconds", s)
	}
	switch {
	case n < maxSeconds:
		micros, err := strconv.ParseUint((fraction + "000000")[:6], 10, 32)
		if err != nil {
			return 0, fmt.Errorf("%q %w", s, errTime)
		}
		return events.Micros(n*1_000_000 + micros), nil
	case n < maxMillis && !fractional:
		return events.Micros(n * 1000), nil
	case fractional:
		return 0, fmt.Errorf("%q %w", s, errTime)
	}
	return events.Micros(n), nil
}

// formatTime returns a time for people.
func formatTime(t events.Micros) string { return t.Time().Format("2006-01-02T15:04:05.999999Z") }
