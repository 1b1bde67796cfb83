package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/projections"
)

// TestFormatBeyondWhatIsKnown: also where the storage engine knows the format, a release opens no newer one than it was tried with.
func TestFormatBeyondWhatIsKnown(t *testing.T) {
	if err := checkFormat(newFormat, newFormat); err != nil {
		t.Error(err)
	}
	err := checkFormat(pebble.FormatNewest, newFormat)
	if !errors.Is(err, projections.ErrFormat) || !strings.Contains(err.Error(), "has format 24, this one knows up to 21") {
		t.Errorf("%v", err)
	}
}
