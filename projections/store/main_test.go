package store_test

import (
	"os"
	"os/exec"
	"strings"
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

// runInOwnProcess runs the calling test again, in a process of its own, and fails the test if that
// process fails. In that process it does nothing and returns false.
func runInOwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownProcessEnv) != "" {
		return false
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), ownProcessEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("the process of the test failed: %v\n%s", err, out)
	}
	return true
}

func newTally() projections.Projection { return tally.New() }

func foldStraight(t testing.TB, envs []*events.Envelope) conformance.Rows {
	t.Helper()
	return conformance.Straight(t, tally.New(), envs)
}
