package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/projections"
)

// TestFormatThatOnlyPebbleKnowsIsRefused checks that a format is refused that Pebble knows but this
// release does not.
func TestFormatThatOnlyPebbleKnowsIsRefused(t *testing.T) {
	if err := checkFormat(newFormat, newFormat); err != nil {
		t.Error(err)
	}
	err := checkFormat(pebble.FormatNewest, newFormat)
	if !errors.Is(err, projections.ErrFormat) || !strings.Contains(err.Error(), "has format 24, this one knows up to 21") {
		t.Errorf("got error %v, want %v with both formats", err, projections.ErrFormat)
	}
}
