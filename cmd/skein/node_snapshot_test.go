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
	check := func(want string, args ...string) {
		t.Helper()
		checkRunMatches(t, exitOK, want, args...)
	}
	publishSome := func() (position string) {
		t.Helper()
		for range 5 {
			var err error
			if position, err = c.publishEvents(ctx, rng); err != nil {
				t.Fatal(err)
			}
		}
		return position
	}
	checkSame := func(position string) {
		t.Helper()
		for range 40 {
			if err := c.compareAnswers(rng, gatewaytest.Question(rng, position)); err != nil {
				t.Fatal(err)
			}
		}
	}

	publishSome()
	// Lose the node that joined last. It has never had all partitions, as the first node had before
	// the others joined, and only a store with a part of the partitions is refused to a process
	// that is not a node.
	const lost = "n2"
	own := filepath.Join(target, "nodes", lost)
	for name, s := range c.inService {
		check("snapshot one in", "snapshot", "--name", "one", "--server", s.addr)
		check("^one +graph ", "snapshot", "list", "--server", s.addr)
		check("^snapshots "+regexp.QuoteMeta(filepath.Join(target, "nodes", name))+"$", "status", "--server", s.addr)
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
	check("0 snapshots cannot be restored", "snapshot", "check", "--target", own)
	check("graph from snapshot one .* read [1-9]", "restore", "--drill", "--data", data, "--target", own, "--snapshot", "one")
	check("graph: restored from snapshot one", "restore", "--data", data, "--target", own, "--snapshot", "one")

	if code, _, errOut := runInProcess("restore", "--data", data, "--target", own); code != exitFailed || !strings.Contains(errOut, "there is a store already") {
		t.Errorf("a second restore: exit code %d, %s", code, errOut)
	}
	if code, _, errOut := runInProcess("serve", "--data", data, "--listen", "127.0.0.1:0", "--nats", c.nats.urls()); code != exitFailed ||
		!strings.Contains(errOut, "start the process as that node of its cluster") {
		t.Errorf("a process that is not a node: exit code %d, %s", code, errOut)
	}

	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	c.putInService(lost, s.serverProcess)
	if err := c.waitUntilHealed(ctx); err != nil {
		t.Fatal(err)
	}

	// Call only the restored node, then all nodes.
	others := []*callableNode{c.takeOutOfService("n0"), c.takeOutOfService("n1")}
	checkSame(position)
	c.putInService("n0", others[0].serverProcess)
	c.putInService("n1", others[1].serverProcess)
	checkSame(publishSome())

	for _, s := range c.inService {
		// The restored node gets its partitions back, and a verification is refused if the
		// partitions of the node change meanwhile.
		waitUntil(ctx, t, func(context.Context) error {
			code, out, errOut := runInProcess("replay", "verify", "--server", s.addr) //nolint:contextcheck // a command line has no context
			if code == exitOK || !strings.Contains(errOut, "holds other partitions than when the verification began") {
				if code != exitOK {
					t.Errorf("skein replay verify: exit code %d, %s%s", code, out, errOut)
				}
				return nil
			}
			return errors.New(errOut)
		})
	}

	// Restore the snapshot for another process under the same name. The older process must stop.
	ports, err := findFreePorts(25000, 1)
	if err != nil {
		t.Fatal(err)
	}

	twin := &serverProcess{t: t, dir: t.TempDir(), flags: append(slices.Clone(s.flags), "--node-addr", fmt.Sprintf("127.0.0.1:%d", ports[0]))}
	t.Cleanup(twin.kill)
	check("graph: restored from snapshot one", "restore", "--data", twin.dataDir(), "--target", own, "--snapshot", "one")
	if err := twin.start(ctx); err != nil {
		t.Fatal(err)
	}

	if err := s.cmd.Wait(); err == nil {
		t.Error("the older process with the name ended without an error")
	}
	c.putInService(lost, twin)
	if err := c.waitUntilHealed(ctx); err != nil {
		t.Fatal(err)
	}

	checkSame(publishSome())
	check("snapshot two in", "snapshot", "--name", "two", "--server", twin.addr)
	check("removed 5 snapshots", "snapshot", "prune", "--target", own, "one")
}

// TestUnusableNodeNameIsRefusedWithSnapshots demands that a name of a node that cannot be the name
// of a folder is refused before anything is written, and that a router, which has nothing to copy,
// takes no snapshots.
func TestUnusableNodeNameIsRefusedWithSnapshots(t *testing.T) {
	t.Parallel()
	ns, target := startNATS(t), t.TempDir()
	args := []string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--nats", ns.ClientURL(), "--snapshots", target}
	for _, name := range []string{"-a", "_a", "../a", "a/b"} {
		code, _, errOut := runInProcess(append(args, "--node="+name, "--node-addr", "127.0.0.1:0")...)
		if code != exitFailed || !strings.Contains(errOut, "the name of a node that has snapshots") {
			t.Errorf("%q: exit code %d, %s", name, code, errOut)
		}
	}
	if code, _, errOut := runInProcess(append(args, "--router")...); code != exitUsage || !strings.Contains(errOut, "--router does not go with --snapshots") {
		t.Errorf("a router: exit code %d, %s", code, errOut)
	}
	if left, err := os.ReadDir(target); err != nil || len(left) > 0 {
		t.Errorf("the target has %v, %v, expected nothing", left, err)
	}
}
