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

// ParseTime parses a time in a file. It is a number of seconds, milliseconds or microseconds since 1970, distinguished by its magnitude
// (seconds may have a fraction), or one of the layouts. A time before 1970 is an error.
func ParseTime(s string) (events.Micros, error) {
	if s == "" {
		return 0, fmt.Errorf("%q %w", s, errTime)
	}
	if isNumber(s) {
		return parseUnix(s)
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
