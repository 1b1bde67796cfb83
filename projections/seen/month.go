package seen

import (
	"time" //nolint:depguard // for the calendar: no clock is read

	"github.com/skein-feed/skein/events"
)

// month is a calendar month in UTC, counted from January 1970, which is 0.
type month uint16

// lastMonth is the greatest month, below projections.StoreShard. It is in the year 7431.
const lastMonth = 0xfffe

// calendar finds the month of a time. It remembers the last month that it has found, because
// successive events are mostly of the same one.
type calendar struct {
	month      month
	start, end events.Micros
}

// monthOf returns the month of a time. Times before 1970 belong to the first month, and those after
// lastMonth to lastMonth.
func (c *calendar) monthOf(at events.Micros) month {
	if at >= c.start && at < c.end {
		return c.month
	}

	year, m, _ := max(at, 0).Time().Date()
	c.month = month(min((year-1970)*12+int(m)-1, lastMonth))
	c.start = startOf(c.month)
	c.end = startOf(c.month + 1)
	return c.month
}

// startOf returns the first microsecond of a month.
func startOf(m month) events.Micros {
	return events.Micros(time.Date(1970+int(m)/12, time.Month(1+int(m)%12), 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}

// String formats the month as in "2026-11".
func (m month) String() string { return startOf(m).Time().Format("2006-01") }
