//go:build diskfull

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// smallDisk mounts a file system of so many MiB where the data of a server will be. It needs a user
// who may mount.
func smallDisk(t *testing.T, dir string, mib int) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	data := filepath.Join(dir, "data")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, int64(mib)<<20)); err != nil {
		t.Fatal(err)
	}
	run("mkfs.ext4", "-q", "-m", "0", image)
	run("mount", "-o", "loop", image, data)
	t.Cleanup(func() { run("umount", data) })
}

// fill takes all that is left of a disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 64<<10); len(chunk) > 0; {
		switch _, err := f.Write(chunk); {
		case errors.Is(err, syscall.ENOSPC):
			chunk = chunk[:len(chunk)/8]
		case err != nil:
			t.Fatal(err)
		}
	}
}

// onSmallDisk is a server whose data are on a small disk, and what it has acknowledged.
type onSmallDisk struct {
	*server
	ctx context.Context //nolint:containedctx // that of the test
	api *command.Client
	// follows is how many were acknowledged, position the last.
	follows  int
	position string
	fillers  []string
}

func startOnSmallDisk(t *testing.T, mib int, flags ...string) *onSmallDisk {
	t.Helper()
	dir := t.TempDir()
	smallDisk(t, dir, mib)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	d := &onSmallDisk{ctx: ctx, server: &server{t: t, dir: dir, flags: append(flags, "--archive", "off", "--audit-share", "0")}}
	t.Cleanup(func() { d.kill(); cancel() })
	if err := d.start(ctx); err != nil {
		t.Fatal(err)
	}
	d.api = (&command.ClientFlags{Server: d.addr}).Client()
	return d
}

// follow is the n-th follow.
func (*onSmallDisk) follow(n int) (follower, user string) {
	return fmt.Sprintf("follower-%08d", n/50), fmt.Sprintf("user-with-a-long-name-%08d", n)
}

// publish publishes the next 500 follows. Those of a call that failed are published again by the
// next, with the same event ids: they may have been taken.
func (d *onSmallDisk) publish() error {
	req := &skeinv1.PublishRequest{}
	for n := d.follows; n < d.follows+500; n++ {
		a, b := d.follow(n)
		req.Events = append(req.Events, &skeinv1.Event{
			EventId: b, Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: a, TargetUserId: b}},
		})
	}
	res, err := d.api.Events().Publish(d.ctx, connect.NewRequest(req))
	if err == nil {
		d.position = res.Msg.GetPosition()
		d.follows += 500
	}
	return err
}

// holds fails unless the last follow is there.
func (d *onSmallDisk) holds(when string) {
	d.t.Helper()
	if !d.check(when, d.follows-1, d.position) {
		d.t.Fatalf("%s: the last follow is not there", when)
	}
}

// answers fails unless questions are answered, from whatever position: the first follow has been
// there for long.
func (d *onSmallDisk) answers(when string) {
	d.t.Helper()
	if !d.check(when, 0, "") {
		d.t.Fatalf("%s: the first follow is not there", when)
	}
}

// check asks for a follow.
func (d *onSmallDisk) check(when string, n int, atLeast string) bool {
	d.t.Helper()
	a, b := d.follow(n)
	res, err := d.api.Graph().CheckFollows(d.ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{
		AtLeast: atLeast,
		Pairs:   []*skeinv1.FollowPair{{UserId: a, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: b}}},
	}))
	if err != nil {
		d.t.Fatalf("%s: %v", when, err)
	}
	return res.Msg.GetKinds()[0] == skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
}

func (d *onSmallDisk) refused(when string) {
	d.t.Helper()
	err := d.publish()
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "nearly full") {
		d.t.Fatalf("%s: %v", when, err)
	}
}

// fill takes all that is left of the disk.
func (d *onSmallDisk) fill() {
	d.fillers = append(d.fillers, filepath.Join(d.dir, "data", fmt.Sprint("filler", len(d.fillers))))
	fill(d.t, d.fillers[len(d.fillers)-1])
}

// said waits until the log of a process says something, and forgets it.
func (d *onSmallDisk) said(what string) {
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

// empty gives it back.
func (d *onSmallDisk) empty() {
	d.t.Helper()
	for _, path := range d.fillers {
		if err := os.Remove(path); err != nil {
			d.t.Fatal(err)
		}
	}
}

// equal fails unless the graph is what the log says.
func (d *onSmallDisk) equal() {
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
	d.answers("not a byte is left") // perhaps from an older position: the projections are paused
	d.empty()
	took := time.Now()
	for err := d.publish(); err != nil; err = d.publish() {
		if d.ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(d.dir, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Publish continued %v after there was room; the log was started anew %d times", time.Since(took), strings.Count(string(text), "started anew"))
	d.holds("it has gone on")
	d.equal()
}

// TestDiskFullRefusesFactsAndRecovers demands that a service on a disk that fills refuses facts and
// answers questions, and continues when there is space again. It is then killed and restarted
// without a free byte, and must lose nothing that was acknowledged.
func TestDiskFullRefusesFactsAndRecovers(t *testing.T) {
	d := startOnSmallDisk(t, 448, "--disk-reserve", "320MiB")
	for d.publish() == nil {
	}
	d.refused("the disk has filled")
	t.Logf("%d follows were taken until Publish was refused", d.follows)
	d.holds("refused")

	d.fill()
	d.refused("not a byte is left")
	d.holds("not a byte is left")
	d.kill()
	// Killed once more while it waits for room, it starts when there is some. At the end the
	// reserve is free again.
	d.flags[1] = "8MiB"
	for range 2 {
		if err := d.launch(d.ctx); err != nil {
			t.Fatal(err)
		}
		d.said("the projections are paused")
		d.kill()
		d.fill() // what the start has tidied away
	}
	d.empty()
	if err := d.start(d.ctx); err != nil {
		t.Fatal(err)
	}
	d.holds("there is room again")
	if err := d.publish(); err != nil {
		t.Fatal(err)
	}
	d.holds("it has gone on")
	d.equal()
}
