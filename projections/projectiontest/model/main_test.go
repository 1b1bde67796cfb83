package model_test

import (
	"flag"
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	debug.SetGCPercent(400)            // otherwise a third of the time is garbage collection
	m.Run()
}
