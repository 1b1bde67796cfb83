package live_test

import (
	"os"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
)

func TestMain(m *testing.M) {
	if os.Getenv(ownProcessEnv) != "" {
		testmain.Prepare()
		os.Exit(m.Run())
	}
	testmain.Run(m)
}

// ownProcessEnv is the environment variable of a process that runs a single test, which may leak
// goroutines.
const ownProcessEnv = "SKEIN_TEST_ALONE"

func newTally() projections.Projection { return tally.New() }

func foldStraight(t testing.TB, envs []*events.Envelope) conformance.Rows {
	t.Helper()
	return conformance.Straight(t, tally.New(), envs)
}
