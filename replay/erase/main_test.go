package erase

import (
	"flag"
	"runtime/debug"
	"testing"

	"github.com/skein-feed/skein/events/leaktest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	_ = flag.Set("test.parallel", "4") // parallel tests mostly wait, for disks
	debug.SetGCPercent(400)            // otherwise a third of the time is garbage collection
	leaktest.Main(m)
}
