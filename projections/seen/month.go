package seen

import (
	"time" //nolint:depguard // for the calendar: no clock is read

	"github.com/skein-feed/skein/events"
)

// month is a calendar month, UTC, counted from January 1970.
type month uint16

// lastMonth keeps months below projections.StoreShard. It begins in the year 7431.
const lastMonth = 0xfffe

// calendar tells months. It remembers the last one it was asked for.
type calendar struct {
	month      month
	start, end events.Micros
}

// of returns the month of a time. A time before 1970 is in the first month of 1970.
func (c *calendar) of(at events.Micros) month {
	if at >= c.start && at < c.end {
		return c.month
	}
	year, m, _ := max(at, 0).Time().Date()
	c.month = month(min((year-1970)*12+int(m)-1, lastMonth))
	c.start, c.end = start(c.month), start(c.month+1)
	return c.month
}

// start returns the first microsecond of a month.
func start(m month) events.Micros {
	return events.Micros(time.Date(1970+int(m)/12, time.Month(1+int(m)%12), 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}

// String returns the month as in "2026-11".
func (m month) String() string { return start(m).Time().Format("2006-01") }
