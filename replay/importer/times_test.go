package importer

import (
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	at := func(s string) time.Time {
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
		{"0", at("1970-01-01T00:00:00Z")},
		{"1254192988", at("2009-09-29T02:56:28Z")},
		{"1254192988.5", at("2009-09-29T02:56:28.5Z")},
		{"1254192988.1234567", at("2009-09-29T02:56:28.123456Z")},
		{"1254192988.", at("2009-09-29T02:56:28Z")},
		{"1254192988123", at("2009-09-29T02:56:28.123Z")},
		{"1254192988123456", at("2009-09-29T02:56:28.123456Z")},
		{"99999999999", at("5138-11-16T09:46:39Z")},
		{"100000000000", at("1973-03-03T09:46:40Z")},
		{"2009-09-29T02:56:28Z", at("2009-09-29T02:56:28Z")},
		{"2009-09-29T04:56:28.000001+02:00", at("2009-09-29T02:56:28.000001Z")},
		{"2009-09-29 02:56:28", at("2009-09-29T02:56:28Z")},
		{"2009-09-29 02:56:28.25", at("2009-09-29T02:56:28.25Z")},
		{"2009-09-29 04:56:28+02", at("2009-09-29T02:56:28Z")},
		{"2009-09-29T02:56:28", at("2009-09-29T02:56:28Z")},
		{"2009-09-29", at("2009-09-29T00:00:00Z")},
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
