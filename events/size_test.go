package events_test

import (
	"testing"

	"github.com/skein-feed/skein/events"
)

func TestFormattedSizesHaveUnits(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1025: "1025 B", 1 << 10: "1 KiB", 12345: "12 KiB", 3<<20 + 1: "3072 KiB", 4 << 20: "4 MiB",
		10<<30 - 1: "10239 MiB", 9 << 30: "9 GiB", 20<<30 + 1: "20 GiB",
	} {
		if got := events.FormatSize(n); got != want {
			t.Errorf("FormatSize(%d): got %s, want %s", n, got, want)
		}
	}
}
