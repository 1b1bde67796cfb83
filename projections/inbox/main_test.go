package inbox_test

import (
	"flag"
	"testing"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	m.Run()
}
