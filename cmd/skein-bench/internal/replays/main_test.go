package replays

import (
	"flag"
	"testing"
)

func TestMain(m *testing.M) {
	// Short is the default; -short=false runs everything at full length (docs/development.md).
	_ = flag.Set("test.short", "true")
	m.Run()
}
