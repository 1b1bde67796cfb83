//go:build upgrade

package main

import (
	"context"
	"testing"
)

// TestRollingUpgradeFailsNoCall replaces two processes of an older program, $SKEIN_OLD, over one
// cluster by the program under test, one after the other under load. Then it goes back, and forth
// again. No call may fail at both addresses, and both processes must have everything that was
// acknowledged.
func TestRollingUpgradeFailsNoCall(t *testing.T) {
	old := oldProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*waitLimit)
	defer cancel()

	r := startReplicas(ctx, t, old, "--auto-rebuild")
	l := r.startLoad(ctx, t, "upgraded", false)
	for _, program := range []string{"skein", old, "skein"} {
		before := l.failovers.Load()
		r.restartEach(ctx, t, l, program)
		t.Logf("both run %s; %d calls in all, %d were made again at the second address meanwhile",
			program, l.calls.Load(), l.failovers.Load()-before)
	}

	l.stopAndCheck(ctx)
	if err := forBothProcesses(func(i int) error { return r.servers[i].stopGracefully() }); err != nil {
		t.Error(err)
	}
	r.checkLogsHaveNoErrors(t)
}

// TestRollingUpgradeOfNodesFailsNoRead replaces the nodes of an older program, $SKEIN_OLD, by the
// program under test, one after the other. Then it goes back, and forth again. Each question that
// is asked meanwhile must be answered as by a process that has all rows.
func TestRollingUpgradeOfNodesFailsNoRead(t *testing.T) {
	old := oldProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	c := startNodes(ctx, t, old)
	c.runUnderLoad(ctx, func(ctx context.Context) {
		for _, program := range []string{"skein", old, "skein"} {
			if !c.disrupt(ctx, disruption{"to " + program, func(ctx context.Context) error { return c.restartNodes(ctx, program) }}) {
				return
			}
		}
	})
}
