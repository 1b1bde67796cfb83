package seen

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

// microsOf parses a time.
func microsOf(t *testing.T, text string) events.Micros {
	t.Helper()
	at, err := time.Parse("2006-01-02T15:04:05.999999", text)
	if err != nil {
		t.Fatal(err)
	}
	return events.Micros(at.UnixMicro())
}

// TestMonthOfTime checks the months of times in and beyond the calendar.
func TestMonthOfTime(t *testing.T) {
	for text, want := range map[string]month{
		"1970-01-01T00:00:00":        0,
		"1970-01-31T23:59:59.999999": 0,
		"1970-02-01T00:00:00":        1,
		"1999-12-31T23:59:59.999999": 359,
		"2000-01-01T00:00:00":        360,
		"2000-02-29T23:59:59.999999": 361,
		"2000-03-01T00:00:00":        362,
		"2024-02-29T12:00:00":        649,
		"2024-03-01T00:00:00":        650,
		"2026-01-31T23:59:59.999999": 672,
		"2026-02-01T00:00:00":        673,
		"2100-02-28T23:59:59.999999": 1561,
		"2100-03-01T00:00:00":        1562,
		"7431-02-28T23:59:59.999999": lastMonth - 1,
		"7431-03-01T00:00:00":        lastMonth,
		"9999-12-31T23:59:59.999999": lastMonth,
	} {
		var c calendar
		if got := c.monthOf(microsOf(t, text)); got != want {
			t.Errorf("month of %s: got %d, want %d", text, got, want)
		}
	}

	var c calendar
	for at, want := range map[events.Micros]month{-1: 0, math.MinInt64: 0, 0: 0, math.MaxInt64: lastMonth} {
		if got := c.monthOf(at); got != want {
			t.Errorf("month of %d µs: got %d, want %d", at, got, want)
		}
	}

	if got, want := month(671).String(), "2025-12"; got != want {
		t.Errorf("name of month 671: got %s, want %s", got, want)
	}
}

// TestUsedCalendarAnswersAsNewOne checks that a calendar that was asked before gives the same
// answers as a new one.
func TestUsedCalendarAnswersAsNewOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var c calendar
	for range 20_000 {
		// A time near the start of a month, or anywhere in it.
		m := month(r.IntN(700))
		at := startOf(m) + events.Micros(r.IntN(3)-1)
		if r.IntN(2) == 0 {
			at += events.Micros(r.Int64N(int64(31 * 24 * time.Hour / time.Microsecond)))
		}

		var fresh calendar
		if got, want := c.monthOf(at), fresh.monthOf(at); got != want {
			t.Fatalf("month of %s: got %s, want %s", at.Time(), got, want)
		}

		// The calendar has the month, which package time computes in its own way.
		wantMonth := month(12*(max(at, 0).Time().Year()-1970)) + month(max(at, 0).Time().Month()) - 1
		if c.month != wantMonth {
			t.Fatalf("month of the calendar after %s: got %s, want %s", at.Time(), c.month, wantMonth)
		}
		if at >= 0 && (at < startOf(c.month) || at >= startOf(c.month+1)) {
			t.Fatalf("month of the calendar after %s: got %s, want one that contains the time", at.Time(), c.month)
		}
	}
}
