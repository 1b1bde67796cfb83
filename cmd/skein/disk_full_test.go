//go:build diskfull

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// serverOnSmallDisk is a server whose data directory is on a small disk, with the follows that it
// has acknowledged.
type serverOnSmallDisk struct {
	*serverProcess
	ctx context.Context //nolint:containedctx // that of the test
	api *command.Client
	// ackedFollows is how many follows were acknowledged, and position the position of the last
	// one.
	ackedFollows int
	position     string
	disk         *loopDisk
}

// startOnSmallDisk starts a server on a disk of this size. It does not archive or audit, so that
// nothing else uses the disk.
func startOnSmallDisk(t *testing.T, mib int64, flags ...string) *serverOnSmallDisk {
	t.Helper()
	dir := t.TempDir()
	disk := mountLoopDisk(t, filepath.Join(dir, "data"), mib)
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	d := &serverOnSmallDisk{ctx: ctx, disk: disk, serverProcess: &serverProcess{t: t, dir: dir, flags: append(flags, "--archive", "off", "--audit-share", "0")}}
	t.Cleanup(func() { d.kill(); cancel() })
	if err := d.start(ctx); err != nil {
		t.Fatal(err)
	}
	d.api = d.newClient()
	return d
}

// followUsers returns the users of the n-th follow. The followee is also the event id.
func (*serverOnSmallDisk) followUsers(n int) (follower, user string) {
	return fmt.Sprintf("follower-%08d", n/50), fmt.Sprintf("user-with-a-long-name-%08d", n)
}

// publish publishes the next 500 follows. If that fails, the next call publishes the same follows
// again with the same event ids, because the log may have taken them.
func (d *serverOnSmallDisk) publish() error {
	req := &skeinv1.PublishRequest{}
	for n := d.ackedFollows; n < d.ackedFollows+500; n++ {
		follower, followee := d.followUsers(n)
		req.Events = append(req.Events, &skeinv1.Event{
			EventId: followee, Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: follower, TargetUserId: followee}},
		})
	}
	res, err := d.api.Events().Publish(d.ctx, connect.NewRequest(req))
	if err == nil {
		d.position = res.Msg.GetPosition()
		d.ackedFollows += 500
	}
	return err
}

// checkLastFollow fails the test unless the last acknowledged follow is visible.
func (d *serverOnSmallDisk) checkLastFollow(when string) {
	d.t.Helper()
	if !d.hasFollow(when, d.ackedFollows-1, d.position) {
		d.t.Fatalf("%s: the last follow is not there", when)
	}
}

// checkFirstFollow fails the test unless questions are answered from any position. The first follow
// was visible long before.
func (d *serverOnSmallDisk) checkFirstFollow(when string) {
	d.t.Helper()
	if !d.hasFollow(when, 0, "") {
		d.t.Fatalf("%s: the first follow is not there", when)
	}
}

// hasFollow asks for the n-th follow.
func (d *serverOnSmallDisk) hasFollow(when string, n int, atLeast string) bool {
	d.t.Helper()
	follower, followee := d.followUsers(n)
	follows, err := isFollowing(d.ctx, d.api, follower, followee, atLeast)
	if err != nil {
		d.t.Fatalf("%s: %v", when, err)
	}
	return follows
}

// checkPublishRefused fails the test unless a publish is refused because the disk is nearly full.
func (d *serverOnSmallDisk) checkPublishRefused(when string) {
	d.t.Helper()
	err := d.publish()
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "nearly full") {
		d.t.Fatalf("%s: %v", when, err)
	}
}

// fill takes all space that is left on the disk.
func (d *serverOnSmallDisk) fill() {
	d.t.Helper()
	if err := d.disk.fill(); err != nil {
		d.t.Error(err)
	}
}

// waitForLog waits until the log of the process contains a text, and then empties the log, so that
// the next wait is for a new line.
func (d *serverOnSmallDisk) waitForLog(what string) {
	d.t.Helper()
	path := filepath.Join(d.dir, "server.log")
	for d.ctx.Err() == nil {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), what) {
			if err := os.Truncate(path, 0); err != nil {
				d.t.Fatal(err)
			}
			return
		}
	}
	d.t.Fatalf("the log never said %q", what)
}

// freeDisk gives the space back that fill has taken.
func (d *serverOnSmallDisk) freeDisk() {
	d.t.Helper()
	if err := d.disk.removeFiller(); err != nil {
		d.t.Fatal(err)
	}
}

// checkGraphEqualsLog lets the server verify that the graph equals the log.
func (d *serverOnSmallDisk) checkGraphEqualsLog() {
	d.t.Helper()
	out, err := exec.CommandContext(d.ctx, "skein", "replay", "verify", "graph", "--server", d.addr).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "equal") {
		d.t.Errorf("%v: %s", err, out)
	}
}

// TestDiskFilledByOthersLosesNothing takes the last byte of the disk at once, while facts are
// published. Nothing that was acknowledged may be lost, and the service must continue by itself
// when there is space again.
func TestDiskFilledByOthersLosesNothing(t *testing.T) {
	d := startOnSmallDisk(t, 448, "--disk-reserve", "8MiB")
	for range 40 {
		if err := d.publish(); err != nil {
			t.Fatal(err)
		}
	}

	filled := make(chan struct{})
	go func() {
		defer close(filled)
		d.fill()
	}()

	failed := 0
	for stop := false; !stop; {
		select {
		case <-filled:
			stop = true
		default:
		}
		if d.publish() != nil {
			failed++
		}
	}

	t.Logf("%d calls failed while the disk filled", failed)
	// The projections are paused, so the answer may be from an older position.
	d.checkFirstFollow("not a byte is left")

	d.freeDisk()
	took := time.Now()
	for err := d.publish(); err != nil; err = d.publish() {
		if d.ctx.Err() != nil {
			t.Fatal(err)
		}
	}

	text, err := d.readLogFile()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Publish continued %v after there was room; the log was started anew %d times", time.Since(took), strings.Count(text, "started anew"))
	d.checkLastFollow("it has gone on")
	d.checkGraphEqualsLog()
}

// TestDiskFullRefusesFactsAndRecovers demands that a service on a disk that fills refuses facts and
// answers questions, and continues when there is space again. It is then killed and restarted
// without a free byte, and must lose nothing that was acknowledged.
func TestDiskFullRefusesFactsAndRecovers(t *testing.T) {
	d := startOnSmallDisk(t, 448, "--disk-reserve", "320MiB")
	for d.publish() == nil {
	}

	d.checkPublishRefused("the disk has filled")
	t.Logf("%d follows were taken until Publish was refused", d.ackedFollows)
	d.checkLastFollow("refused")

	d.fill()
	d.checkPublishRefused("not a byte is left")
	d.checkLastFollow("not a byte is left")

	d.kill()

	// Start it twice without a free byte: it waits for space, and is killed again. A small reserve
	// lets it continue later, once the fillers are removed.
	d.flags[1] = "8MiB"
	for range 2 {
		if err := d.launch(d.ctx); err != nil {
			t.Fatal(err)
		}
		d.waitForLog("the projections are paused")
		d.kill()
		d.fill() // the start may have removed files
	}

	d.freeDisk()
	if err := d.start(d.ctx); err != nil {
		t.Fatal(err)
	}
	d.checkLastFollow("there is room again")

	if err := d.publish(); err != nil {
		t.Fatal(err)
	}
	d.checkLastFollow("it has gone on")
	d.checkGraphEqualsLog()
}
