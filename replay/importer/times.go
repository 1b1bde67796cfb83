package importer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
)

// Numbers below these bounds are seconds, milliseconds and microseconds. In its unit each bound is the year 5138. Only times before March
// 1973 would be read in a wrong unit.
const (
	maxSeconds = 100_000_000_000
	maxMillis  = maxSeconds * 1000
	maxMicros  = maxMillis * 1000
)

// layouts are the accepted forms of a time. A time without a zone is UTC. All forms may have fractions of seconds.
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

// UnitAuto means that the magnitude of a number determines its unit. Numbers that give a time before 1990 are then refused, because they
// may be ranks, weights or ids.
const UnitAuto TimeUnit = ""

// unitNames are the units of time, in the order of their magnitude, with their names for people.
var unitNames = [...]struct {
	unit   TimeUnit
	name   string
	micros uint64
}{{"s", "seconds", 1_000_000}, {"ms", "milliseconds", 1000}, {"us", "microseconds", 1}}

// ParseTimeUnit reads a unit of time.
func ParseTimeUnit(s string) (TimeUnit, error) {
	for _, u := range unitNames {
		if string(u.unit) == s {
			return u.unit, nil
		}
	}
	return UnitAuto, fmt.Errorf("a unit of time is s, ms or us: not %q", s)
}

// earliest is the earliest time that is recognized without a unit: smaller numbers may be weights, ranks or ids.
const earliest events.Micros = 631_152_000_000_000 // 1990

// latest is how far after the import's start a time may be, which allows for skewed clocks and zones. A later time is no time, or has
// another unit.
const latest = events.Micros(24 * time.Hour / time.Microsecond)

// parse parses the time of a record, which is no later than start, the recorded start of the import. It reports whether the time was later
// and was replaced by the start.
func (u TimeUnit) parse(s string, start events.Micros) (at events.Micros, clamped bool, err error) {
	number := isNumber(s)
	if number && u != UnitAuto {
		at, err = u.parseNumber(s)
	} else {
		at, err = ParseTime(s)
	}
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("the time %w", err)
	case number && u == UnitAuto && at < earliest:
		return 0, false, fmt.Errorf("the time %q would be %q, which is before 1990: give --time-unit if the column holds times, or leave it "+
			"out with --columns", s, stamp(at))
	case at > start+latest:
		return 0, false, fmt.Errorf("the time %q would be %q, which is more than a day after the start of the import", s, stamp(at))
	}
	return min(at, start), at > start, nil
}

// parseNumber parses a number of this unit, which may have a fraction.
func (u TimeUnit) parseNumber(s string) (events.Micros, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || n >= maxMicros || strings.Contains(fraction, ".") {
		return 0, fmt.Errorf("%q %w", s, errTime)
	}
	for _, unit := range unitNames {
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

// ParseTime parses a time in a file. It is a number of seconds, milliseconds or microseconds since 1970, distinguished by its magnitude
// (seconds may have a fraction), or one of the layouts. A time before 1970 is an error.
func ParseTime(s string) (events.Micros, error) {
	if s == "" {
		return 0, fmt.Errorf("%q %w", s, errTime)
	}
	if isNumber(s) {
		return parseUnix(s)
	}
	if len(s) < len(time.DateOnly) || s[4] != '-' {
		return 0, fmt.Errorf("%q %w", s, errTime) // no layout fits, and trying them all takes time
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

func isNumber(s string) bool {
	return s != "" && s[0] >= '0' && s[0] <= '9' && strings.Trim(s, "0123456789.") == ""
}

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

func stamp(t events.Micros) string { return t.Time().Format("2006-01-02T15:04:05.999999Z") }
