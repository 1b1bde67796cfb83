package model_test

import (
	"runtime/debug"
	"testing"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // otherwise a third of the time is garbage collection
	m.Run()
}
