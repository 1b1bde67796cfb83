package live_test

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/leaktest"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	debug.SetGCPercent(400)            // otherwise a third of the time is garbage collection
	if os.Getenv(ownProcessEnv) != "" {
		os.Exit(m.Run())
	}
	leaktest.Main(m)
}

// ownProcessEnv is the environment variable of a process that runs a single test, which may leak
// goroutines.
const ownProcessEnv = "SKEIN_TEST_ALONE"

func newTally() projections.Projection { return tally.New() }

func foldStraight(t testing.TB, envs []*events.Envelope) conformance.Rows {
	t.Helper()
	return conformance.Straight(t, tally.New(), envs)
}
