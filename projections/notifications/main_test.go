package notifications

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	goleak.VerifyTestMain(m)
}
