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
	disk *loopDisk
	ctx  context.Context //nolint:containedctx // that of the test
	api  *command.Client
	// ackedFollows is how many follows were acknowledged.
	ackedFollows int
	// position is the position of the last acknowledged follow.
	position string
}

// startOnSmallDisk starts a server on a disk of this size. It does not archive or audit, so that
// nothing else uses the disk.
func startOnSmallDisk(t *testing.T, mib int64, flags ...string) *serverOnSmallDisk {
	t.Helper()
	dir := t.TempDir()
	disk := mountLoopDisk(t, filepath.Join(dir, "data"), mib)

	ctx, cancel := context.WithTimeout(t.Context(), 2*waitLimit)
	server := &serverProcess{t: t, dir: dir, flags: append(flags, "--archive", "off", "--audit-share", "0")}
	d := &serverOnSmallDisk{serverProcess: server, disk: disk, ctx: ctx}
	t.Cleanup(func() {
		d.kill()
		cancel()
	})
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
	const batch = 500
	req := &skeinv1.PublishRequest{}
	for n := d.ackedFollows; n < d.ackedFollows+batch; n++ {
		follower, followee := d.followUsers(n)
		req.Events = append(req.Events, &skeinv1.Event{
			EventId: followee, Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: follower, TargetUserId: followee}},
		})
	}

	res, err := d.api.Events().Publish(d.ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	d.position = res.Msg.GetPosition()
	d.ackedFollows += batch
	return nil
}

// checkLastFollow fails the test unless the last acknowledged follow is visible.
func (d *serverOnSmallDisk) checkLastFollow(when string) {
	d.t.Helper()
	if !d.hasFollow(when, d.ackedFollows-1, d.position) {
		d.t.Fatalf("%s: got no last follow, want the follow %d", when, d.ackedFollows-1)
	}
}

// checkFirstFollow fails the test unless questions are answered from any position. The first follow
// was visible long before.
func (d *serverOnSmallDisk) checkFirstFollow(when string) {
	d.t.Helper()
	if !d.hasFollow(when, 0, "") {
		d.t.Fatalf("%s: got no first follow, want it", when)
	}
}

// hasFollow asks whether the n-th follow is visible at a position or a later one. An empty position
// means any.
func (d *serverOnSmallDisk) hasFollow(when string, n int, atLeast string) bool {
	d.t.Helper()
	follower, followee := d.followUsers(n)
	follows, err := isFollowing(d.ctx, d.api, follower, followee, atLeast)
	if err != nil {
		d.t.Fatalf("%s: question for the follow %d: got %v, want no error", when, n, err)
	}
	return follows
}

// checkPublishRefused fails the test unless a publish is refused because the disk is nearly full.
func (d *serverOnSmallDisk) checkPublishRefused(when string) {
	d.t.Helper()
	err := d.publish()
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "nearly full") {
		d.t.Fatalf("%s: Publish: got %v, want an error because the disk is nearly full", when, err)
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
func (d *serverOnSmallDisk) waitForLog(want string) {
	d.t.Helper()
	for d.ctx.Err() == nil {
		text, err := d.readLogFile()
		if err != nil || !strings.Contains(text, want) {
			continue
		}
		if err := os.Truncate(filepath.Join(d.dir, "server.log"), 0); err != nil {
			d.t.Fatal(err)
		}
		return
	}
	d.t.Fatalf("log of the server: got no line with %q, want one", want)
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
		d.t.Errorf("verification of the graph: got %v, want that it is equal to the log: %s", err, out)
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

	// Publish while the disk fills, and once more when it is full.
	failedCalls := 0
	for isFull := false; !isFull; {
		select {
		case <-filled:
			isFull = true
		default:
		}
		if err := d.publish(); err != nil {
			failedCalls++
		}
	}
	t.Logf("%d calls failed while the disk filled", failedCalls)

	// The projections are paused, so the answer may be from an older position.
	d.checkFirstFollow("not a byte is left")

	d.freeDisk()
	freed := time.Now()
	for err := d.publish(); err != nil; err = d.publish() {
		if d.ctx.Err() != nil {
			t.Fatalf("Publish after space was freed: got %v, want that it succeeds in the end", err)
		}
	}
	timeToContinue := time.Since(freed)

	text, err := d.readLogFile()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Publish continued %v after space was freed; the log was started anew %d times", timeToContinue, strings.Count(text, "started anew"))
	d.checkLastFollow("Publish has continued")
	d.checkGraphEqualsLog()
}

// TestDiskFullRefusesFactsAndRecovers demands that a service on a disk that fills refuses facts and
// answers questions, and continues when there is space again. It is then killed and restarted
// without a free byte, and must lose nothing that was acknowledged.
func TestDiskFullRefusesFactsAndRecovers(t *testing.T) {
	d := startOnSmallDisk(t, 448, "--disk-reserve", "320MiB")
	// Publish until the free disk is less than the reserve.
	for d.publish() == nil {
	}
	d.checkPublishRefused("less than the reserve is free")
	t.Logf("%d follows were taken until Publish was refused", d.ackedFollows)
	d.checkLastFollow("less than the reserve is free")

	d.fill()
	d.checkPublishRefused("not a byte is left")
	d.checkLastFollow("not a byte is left")
	d.kill()

	// Start it twice without a free byte: it waits for space, and is killed again. A small reserve
	// lets it continue later, once the fillers are removed.
	d.flags[1] = "8MiB" // the value of --disk-reserve
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
	d.checkLastFollow("there is space again")
	if err := d.publish(); err != nil {
		t.Fatal(err)
	}
	d.checkLastFollow("Publish has continued")
	d.checkGraphEqualsLog()
}
