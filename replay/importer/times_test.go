package importer

import (
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

func TestParseTime(t *testing.T) {
	mustParse := func(s string) time.Time {
		parsed, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}

	for _, c := range []struct {
		in   string
		want time.Time
	}{
		{"0", mustParse("1970-01-01T00:00:00Z")},
		{"1254192988", mustParse("2009-09-29T02:56:28Z")},
		{"1254192988.5", mustParse("2009-09-29T02:56:28.5Z")},
		{"1254192988.1234567", mustParse("2009-09-29T02:56:28.123456Z")},
		{"1254192988.", mustParse("2009-09-29T02:56:28Z")},
		{"1254192988123", mustParse("2009-09-29T02:56:28.123Z")},
		{"1254192988123456", mustParse("2009-09-29T02:56:28.123456Z")},
		{"99999999999", mustParse("5138-11-16T09:46:39Z")},
		{"100000000000", mustParse("1973-03-03T09:46:40Z")},
		{"2009-09-29T02:56:28Z", mustParse("2009-09-29T02:56:28Z")},
		{"2009-09-29T04:56:28.000001+02:00", mustParse("2009-09-29T02:56:28.000001Z")},
		{"2009-09-29 02:56:28", mustParse("2009-09-29T02:56:28Z")},
		{"2009-09-29 02:56:28.25", mustParse("2009-09-29T02:56:28.25Z")},
		{"2009-09-29 04:56:28+02", mustParse("2009-09-29T02:56:28Z")},
		{"2009-09-29T02:56:28", mustParse("2009-09-29T02:56:28Z")},
		{"2009-09-29", mustParse("2009-09-29T00:00:00Z")},
	} {
		got, err := ParseTime(c.in)
		if err != nil || !got.Time().Equal(c.want) {
			t.Errorf("ParseTime(%q) = %v, %v, want %v", c.in, got.Time(), err, c.want)
		}
	}
}

func TestParseTimeRefuses(t *testing.T) {
	for _, in := range []string{
		"", "now", "-1", "1.2.3", "1254192988123.5", ".", "1e9", "100000000000000000", "18446744073709551616",
		"1969-12-31 23:59:59", "2009-13-01", "2009-09-29 25:00:00", "٣", " 1",
	} {
		if got, err := ParseTime(in); err == nil {
			t.Errorf("ParseTime(%q) = %v, want an error", in, got.Time())
		}
	}
}

func TestNumbersAreReadInTheirUnit(t *testing.T) {
	begin := microsOf(start)
	for _, c := range []struct {
		unit TimeUnit
		in   string
		want events.Micros
	}{
		{UnitAuto, "1254192988.5", 1254192988_500000},
		{UnitAuto, "2009-09-29", 1254182400_000000},
		{"s", "11", 11_000000},
		{"s", "0.1234567", 123456},
		{"ms", "1254192988123", 1254192988_123000},
		{"ms", "1254192988123.5", 1254192988_123500},
		{"us", "1254192988123456", 1254192988_123456},
		{"us", "5", 5},
		{"ms", "2009-09-29", 1254182400_000000},
	} {
		got, clamped, err := c.unit.parseRecordTime(c.in, begin)
		if err != nil || got != c.want || clamped {
			t.Errorf("%q in %q: got %d, clamped %v, error %v, want %d, not clamped", c.in, c.unit, got, clamped, err, c.want)
		}
	}

	for _, c := range []struct {
		unit TimeUnit
		in   string
		want string
	}{
		{UnitAuto, "631151999", "before 1990"},
		{UnitAuto, "20171121123000", "more than a day after the start"},
		{"s", "1709251200000", "too large for unix seconds"},
		{"s", "1900000000", "more than a day after the start"},
		{"ms", "99999999999999999999", "is no time"},
		{"s", "99999999999999", "too large for unix seconds"},
		{"s", "1.2.3", "is no time"},
		{"us", "soon", "is no time"},
	} {
		if got, _, err := c.unit.parseRecordTime(c.in, begin); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %q: got %d, %v, want an error with %q", c.in, c.unit, got, err, c.want)
		}
	}
}
