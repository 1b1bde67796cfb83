package notifications

import (
	"flag"
	"testing"

	"github.com/skein-feed/skein/events/leaktest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	leaktest.Main(m)
}
