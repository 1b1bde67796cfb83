//go:build diskfull

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
)

// natsServerOnSmallDisk is a real NATS server whose store is on a small disk.
type natsServerOnSmallDisk struct {
	t    *testing.T
	disk *loopDisk
	url  string
	// program and config are the paths of the program and of its configuration.
	program, config string
	cmd             *exec.Cmd
}

// newNATSOnSmallDisk builds and starts a NATS server with a disk of this size.
func newNATSOnSmallDisk(t *testing.T, dir string, mib int64) *natsServerOnSmallDisk {
	t.Helper()
	data := filepath.Join(dir, "data")
	n := &natsServerOnSmallDisk{
		t:       t,
		disk:    mountLoopDisk(t, data, mib),
		program: buildProgram(t, dir, "nats-server", "github.com/nats-io/nats-server/v2"),
		config:  filepath.Join(dir, "nats.conf"),
	}

	// Find a free port, which the server has after each start.
	ports, err := findFreePorts(27000, 1)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	n.url = "nats://" + addr

	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q, sync_interval: always, max_file_store: 1GB }\n", addr, filepath.Join(data, "js"))
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	t.Cleanup(n.kill)
	return n
}

// start starts the server. It does not wait until the server is ready.
func (n *natsServerOnSmallDisk) start() {
	n.t.Helper()
	n.cmd = exec.CommandContext(context.WithoutCancel(n.t.Context()), n.program, "-c", n.config)
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

// kill ends the server with SIGKILL.
func (n *natsServerOnSmallDisk) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait() // "signal: killed"
}

// TestDiskFullAtNATSLosesNothing fills the disk of an external NATS server, which has the log, to
// the last byte. Publishing then fails or has an unknown outcome, questions are answered, and
// nothing that was acknowledged is lost once there is space again and the server is restarted.
func TestDiskFullAtNATSLosesNothing(t *testing.T) {
	dir := t.TempDir()
	n := newNATSOnSmallDisk(t, dir, 128)

	// The service itself has a directory on a large disk.
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	server := &serverProcess{t: t, dir: t.TempDir(), flags: []string{"--nats", n.url, "--audit-share", "0"}}
	d := &serverOnSmallDisk{serverProcess: server, ctx: ctx}
	t.Cleanup(func() {
		d.kill()
		cancel()
	})
	if err := d.start(ctx); err != nil {
		t.Fatal(err)
	}
	d.api = d.newClient()

	for range 40 {
		if err := d.publish(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.disk.fill(); err != nil {
		t.Fatal(err)
	}

	// Partly used blocks of the disk may still take some messages.
	err := d.publish()
	for err == nil {
		err = d.publish()
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeResourceExhausted:
		t.Logf("after %d follows: %v", d.ackedFollows, err)
	default:
		t.Errorf("Publish when not a byte is left: got %v, want unavailable, deadline exceeded or resource exhausted", err)
	}
	d.checkLastFollow("not a byte is left")

	// The projections still answer.
	n.kill()
	d.checkFirstFollow("the NATS server is killed")

	if err := n.disk.removeFiller(); err != nil {
		t.Fatal(err)
	}
	n.start()
	waitUntil(ctx, t, func(context.Context) error { return d.publish() })
	d.checkLastFollow("Publish has continued")
	d.checkGraphEqualsLog()
}
