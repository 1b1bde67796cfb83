package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/gateway/gatewaytest"
)

// TestLostNodeIsRestoredFromItsSnapshot demands that a node that has lost its data directory is
// restored from its snapshot, folds the rest of the log, and answers as before. The same holds for
// another process that is restored under the name of the node, which must then stop.
func TestLostNodeIsRestoredFromItsSnapshot(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	target := t.TempDir()
	c := startNodes(ctx, t, "", "--snapshots", target)

	rng := rand.New(rand.NewPCG(1, 1))
	checkSucceeds := func(want string, args ...string) {
		t.Helper()
		checkRunMatches(t, exitOK, want, args...)
	}
	publishSome := func() (position string) {
		t.Helper()
		for range 5 {
			var err error
			position, err = c.publishEvents(ctx, rng)
			if err != nil {
				t.Fatal(err)
			}
		}
		return position
	}
	checkSameAnswers := func(position string) {
		t.Helper()
		for range 40 {
			if err := c.compareAnswers(rng, gatewaytest.Question(rng, position)); err != nil {
				t.Fatal(err)
			}
		}
	}

	// Lose the node that joined last. It has never had all partitions, as the first node had before
	// the others joined, and only a store with a part of the partitions is refused to a process
	// that is not a node.
	const lost = "n2"
	lostSnapshots := filepath.Join(target, "nodes", lost)
	publishSome()
	for name, s := range c.inService {
		checkSucceeds("snapshot one in", "snapshot", "--name", "one", "--server", s.addr)
		checkSucceeds("^one +graph ", "snapshot", "list", "--server", s.addr)
		checkSucceeds("^snapshots "+regexp.QuoteMeta(filepath.Join(target, "nodes", name))+"$", "status", "--server", s.addr)
	}

	// Remove the data directory after more events, which the restored node must fold.
	publishSome()
	s := c.takeOutOfService(lost)
	s.kill()
	data := s.dataDir()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}

	position := publishSome()
	checkSucceeds("0 snapshots cannot be restored", "snapshot", "check", "--target", lostSnapshots)
	checkSucceeds("graph from snapshot one .* read [1-9]", "restore", "--drill", "--data", data, "--target", lostSnapshots, "--snapshot", "one")
	checkSucceeds("graph: restored from snapshot one", "restore", "--data", data, "--target", lostSnapshots, "--snapshot", "one")

	// A second restore must not replace the store, and only the node may open it.
	checkRun(t, exitFailed, "", "there is a store already", "restore", "--data", data, "--target", lostSnapshots)
	checkRun(t, exitFailed, "", "start the process as that node of its cluster",
		"serve", "--data", data, "--listen", "127.0.0.1:0", "--nats", c.nats.urls())

	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	c.putInService(lost, s.serverProcess)
	if err := c.waitUntilHealed(ctx); err != nil {
		t.Fatal(err)
	}

	// Call only the restored node, then all nodes.
	n0 := c.takeOutOfService("n0")
	n1 := c.takeOutOfService("n1")
	checkSameAnswers(position)
	c.putInService("n0", n0.serverProcess)
	c.putInService("n1", n1.serverProcess)
	checkSameAnswers(publishSome())

	// Verify every node. The restored node gets its partitions back, and a verification is refused
	// if the partitions of the node change meanwhile. Only that refusal is worth another attempt.
	for _, s := range c.inService {
		waitUntil(ctx, t, func(context.Context) error {
			code, out, errOut := runInProcess("replay", "verify", "--server", s.addr) //nolint:contextcheck // a command line has no context
			if code == exitOK {
				return nil
			}
			if strings.Contains(errOut, "holds other partitions than when the verification began") {
				return errors.New(errOut)
			}
			t.Errorf("skein replay verify: exit code %d, want %d\n%s%s", code, exitOK, out, errOut)
			return nil
		})
	}

	// Restore the snapshot for another process under the same name. The older process must stop.
	ports, err := findFreePorts(25000, 1)
	if err != nil {
		t.Fatal(err)
	}

	successor := &serverProcess{t: t, dir: t.TempDir(), flags: append(slices.Clone(s.flags), "--node-addr", fmt.Sprintf("127.0.0.1:%d", ports[0]))}
	t.Cleanup(successor.kill)
	checkSucceeds("graph: restored from snapshot one", "restore", "--data", successor.dataDir(), "--target", lostSnapshots, "--snapshot", "one")
	if err := successor.start(ctx); err != nil {
		t.Fatal(err)
	}

	if err := s.cmd.Wait(); err == nil {
		t.Error("the older process with the name ended without an error, want one")
	}
	c.putInService(lost, successor)
	if err := c.waitUntilHealed(ctx); err != nil {
		t.Fatal(err)
	}

	checkSameAnswers(publishSome())
	checkSucceeds("snapshot two in", "snapshot", "--name", "two", "--server", successor.addr)
	checkSucceeds("removed 5 snapshots", "snapshot", "prune", "--target", lostSnapshots, "one")
}

// TestUnusableNodeNameIsRefusedWithSnapshots demands that a name of a node that cannot be the name
// of a folder is refused before anything is written, and that a router, which has nothing to copy,
// takes no snapshots.
func TestUnusableNodeNameIsRefusedWithSnapshots(t *testing.T) {
	t.Parallel()
	ns := startNATS(t)
	target := t.TempDir()
	serve := []string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--nats", ns.ClientURL(), "--snapshots", target}
	for _, name := range []string{"-a", "_a", "../a", "a/b"} {
		checkRun(t, exitFailed, "", "the name of a node that has snapshots", append(serve, "--node="+name, "--node-addr", "127.0.0.1:0")...)
	}
	checkRun(t, exitUsage, "", "--router does not go with --snapshots", append(serve, "--router")...)

	written, err := os.ReadDir(target)
	if err != nil {
		t.Fatal(err)
	}
	if len(written) > 0 {
		t.Errorf("got %v in the directory of snapshots, want nothing", written)
	}
}
