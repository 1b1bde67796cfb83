//go:build diskfull

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
)

// natsServerOnSmallDisk is a real NATS server whose store is on a small disk.
type natsServerOnSmallDisk struct {
	t           *testing.T
	disk        *loopDisk
	bin, config string
	url         string
	cmd         *exec.Cmd
}

// newNATSOnSmallDisk builds and starts a NATS server with a disk of this size.
func newNATSOnSmallDisk(t *testing.T, dir string, mib int64) *natsServerOnSmallDisk {
	t.Helper()
	n := &natsServerOnSmallDisk{
		t: t, disk: mountLoopDisk(t, filepath.Join(dir, "data"), mib),
		bin: buildProgram(t, dir, "nats-server", "github.com/nats-io/nats-server/v2"), config: filepath.Join(dir, "nats.conf"),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.url = "nats://" + l.Addr().String()
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q, sync_interval: always, max_file_store: 1GB }\n", l.Addr(),
		filepath.Join(dir, "data", "js"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	t.Cleanup(n.kill)
	return n
}

func (n *natsServerOnSmallDisk) start() {
	n.t.Helper()
	n.cmd = exec.CommandContext(context.WithoutCancel(n.t.Context()), n.bin, "-c", n.config)
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
}

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

	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	d := &serverOnSmallDisk{ctx: ctx, serverProcess: &serverProcess{t: t, dir: t.TempDir(), flags: []string{"--nats", n.url, "--audit-share", "0"}}}
	t.Cleanup(func() { d.kill(); cancel() })
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

	var err error
	for err == nil {
		err = d.publish() // partly used blocks of the disk may still take some messages
	}
	if code := connect.CodeOf(err); code != connect.CodeUnavailable && code != connect.CodeDeadlineExceeded && code != connect.CodeResourceExhausted {
		t.Errorf("not a byte is left: %v", err)
	}
	t.Logf("after %d follows: %v", d.ackedFollows, err)
	d.checkLastFollow("not a byte is left")

	n.kill()
	d.checkFirstFollow("the NATS server is killed")

	if err := n.disk.removeFiller(); err != nil {
		t.Fatal(err)
	}
	n.start()
	waitUntil(ctx, t, func(context.Context) error { return d.publish() })
	d.checkLastFollow("it has gone on")
	d.checkGraphEqualsLog()
}
