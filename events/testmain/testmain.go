// Package testmain prepares a process for the tests of a package.
package testmain

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"github.com/skein-feed/skein/events/leaktest"
)

// Run is for TestMain: it prepares the process with [Prepare], runs the tests, and ends the
// process. The tests fail if goroutines are left.
func Run(m *testing.M) {
	Prepare()
	code := m.Run()
	if code == 0 {
		if err := leaktest.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Prepare makes the tests of this process short, unless they are run with -short=false, and fast.
// Child processes use the same directory for temporary files.
func Prepare() {
	_ = flag.Set("test.short", "true")
	flag.Parse()

	// Otherwise garbage collection takes a third of the time: tests allocate much and keep little.
	debug.SetGCPercent(400)

	// Short tests create and remove tens of thousands of small files. What they check does not
	// depend on the disk: a process that is killed loses no file, and the tests of power cuts have a
	// file system of their own.
	if dir := memoryDisk(); dir != "" && os.Getenv("TMPDIR") == "" && testing.Short() {
		_ = os.Setenv("TMPDIR", dir)
	}
}
