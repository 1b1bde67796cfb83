package redis

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay/importer"
)

// unit is the unit of a time in Redis.
type unit uint8

// The units. unitAuto stands for a number whose unit follows from its size, and for a time that is
// not a number.
const (
	unitNone unit = iota
	unitSeconds
	unitMillis
	unitMicros
	unitAuto
)

var unitNames = map[string]unit{
	"none": unitNone, "s": unitSeconds, "ms": unitMillis, "us": unitMicros, "µs": unitMicros, "μs": unitMicros, "auto": unitAuto,
}

// String returns the name of the unit.
func (u unit) String() string {
	return [...]string{"none", "s", "ms", "us", "auto"}[u]
}

// micros returns the number of microseconds in one unit.
func (u unit) micros() float64 {
	switch u {
	case unitSeconds:
		return 1e6
	case unitMillis:
		return 1e3
	}
	return 1
}

// maxTimeAfterStart is how far after the start of the import a time may be, which allows for clocks
// that differ. A number beyond it is not a time, or has another unit.
const maxTimeAfterStart = 24 * time.Hour

var errNumber = errors.New("is no number")

// parse parses the time in a score, field, value, member or element. The result is exact to the
// microsecond if the number is.
func (u unit) parse(s string, start events.Micros) (events.Micros, error) {
	if u == unitAuto {
		at, err := importer.ParseTime(s)
		if err != nil {
			return 0, fmt.Errorf("the time %w", err)
		}
		return at, checkNotTooLate(float64(at), start, s, u)
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(n) {
		return 0, fmt.Errorf("the time %q %w", s, errNumber)
	}
	if n < 0 {
		return 0, fmt.Errorf("the time %q is before 1970", s)
	}

	// Multiply whole and fraction separately. The product of the whole number would be rounded
	// twice.
	whole, fraction := math.Modf(n)
	at := whole*u.micros() + math.Round(fraction*u.micros())
	if err := checkNotTooLate(at, start, s, u); err != nil {
		return 0, err
	}
	return events.Micros(at), nil
}

// checkNotTooLate returns an error if the time at, in microseconds, is more than a day after the
// start. s and u describe it in the error.
func checkNotTooLate(at float64, start events.Micros, s string, u unit) error {
	if at <= float64(start)+float64(maxTimeAfterStart.Microseconds()) {
		return nil
	}
	return fmt.Errorf("the time %q, in %s, is more than a day after the start of the import: is that the unit?", s, u)
}
