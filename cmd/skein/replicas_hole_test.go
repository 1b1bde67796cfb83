package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events/eventlog"
	healthv1 "github.com/skein-feed/skein/proto/grpc/health/v1"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestHoleInReplicatedLogIsRepaired follows docs/runbook.md, SkeinLogHole, with two processes over
// a log on three NATS servers. First the replica of one server is damaged, found and repaired. Then
// all replicas lack a message, and the loss is accepted.
func TestHoleInReplicatedLogIsRepaired(t *testing.T) { //nolint:tparallel // its parts follow each other
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()
	r := startReplicas(ctx, t, "")

	type part struct {
		name string
		run  func(context.Context, *testing.T)
	}
	parts := []part{
		{"a damaged replica is repaired", r.repairDamagedReplica},
		{"a hole is accepted", r.acceptHole},
	}
	if testing.Short() {
		// The second part expects that both processes are stopped.
		parts[0] = part{"both processes stop", func(_ context.Context, t *testing.T) {
			if err := forBothProcesses(func(i int) error { return r.servers[i].stopGracefully() }); err != nil {
				t.Fatal(err)
			}
		}}
	}

	for _, part := range parts {
		if !t.Run(part.name, func(t *testing.T) { part.run(ctx, t) }) {
			break
		}
	}

	if !t.Failed() {
		return
	}
	for i, s := range r.servers {
		text, err := s.readLogFile()
		t.Logf("the log of process %d (%v):\n%s", i, err, text)
	}
}

// repairDamagedReplica flips a bit in the replica of a server that does not lead, and makes that
// server the leader: NATS servers do not compare replicas. No process may fold across the damaged
// message until another server leads, and the replica is intact again once it was copied anew. The
// damaged message is the first of the stream, which readers get from the leader. Later messages may
// come from any replica, and be intact there.
func (r *replicas) repairDamagedReplica(ctx context.Context, t *testing.T) {
	follow := func(i int, follower string) (position string) {
		t.Helper()
		position, err := r.publishAt(ctx, i, followWithEventID(follower, "star"))
		if err != nil {
			t.Fatal(err)
		}
		return position
	}

	// Publish two follows that only process 0 folds.
	if err := r.servers[1].stopGracefully(); err != nil {
		t.Fatal(err)
	}
	damagedPosition := follow(0, "damaged")
	hole := r.lastSequence(ctx, t, 0)
	afterPosition := follow(0, "after")
	followers, _, err := r.listFollowers(ctx, 0, "star", afterPosition)
	if err != nil {
		t.Fatal(err)
	}
	if len(followers) != 2 {
		t.Fatalf("process 0 lists %v, want 2 followers", followers)
	}

	// Damage the first of them in one replica.
	leader, err := r.cluster.findLeader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	damaged := (leader + 1) % 3
	intact := (leader + 2) % 3

	r.cluster.stopServer(damaged)
	if err := flipBit(r.cluster.opts[damaged].StoreDir, "damaged", 1, filepath.Join(t.TempDir(), "whole")); err != nil {
		t.Fatal(err)
	}
	r.cluster.startServer(damaged)
	r.makeLeader(ctx, t, damaged)

	// Process 1 has not folded the message. It must stop in front of the message and answer from
	// there, while process 0 continues.
	if err := r.servers[1].launch(ctx); err != nil {
		t.Fatal(err)
	}
	r.waitUntilHeld(ctx, t, 1, hole)

	lastPosition := follow(1, "last")
	wantFollowers := []string{"damaged", "after", "last"}
	if got, _, err := r.listFollowers(ctx, 0, "star", lastPosition); err != nil || len(got) != len(wantFollowers) {
		t.Errorf("process 0, which has folded everything, lists %v, %v, want %v", got, err, wantFollowers)
	}
	if got, _, err := r.listFollowers(ctx, 1, "star", ""); err != nil || len(got) > 0 {
		t.Errorf("process 1, in front of the hole, lists %v, %v, want nobody", got, err)
	}
	_, err = r.isFollowing(ctx, 1, "damaged", "star", damagedPosition)
	if code := connect.CodeOf(err); code != connect.CodeUnavailable {
		t.Errorf("a read that demands the message in the hole: got %v, want %v", err, connect.CodeUnavailable)
	}

	// Repair as the runbook says: another server becomes the leader, then the damaged replica is
	// moved away, and the server copies it from the others.
	r.makeLeader(ctx, t, intact)
	if _, err := waitUntilReady(ctx, filepath.Join(r.servers[1].dir, "port")); err != nil {
		t.Fatal(err)
	}
	r.checkFollowers(ctx, t, "star", wantFollowers, lastPosition)

	r.cluster.stopServer(damaged)
	replica := mustFindOneFile(t, r.cluster.opts[damaged].StoreDir, "jetstream", "*", "streams", eventlog.StreamName)
	if err := os.Rename(replica, filepath.Join(t.TempDir(), "damaged")); err != nil {
		t.Fatal(err)
	}
	r.cluster.startServer(damaged)

	checkCopy := func(context.Context) error { return r.cluster.checkReplicaContains(damaged, wantFollowers) }
	if err := eventually(ctx, checkCopy); err != nil {
		t.Fatalf("the replica that was copied: %v", err)
	}
	r.checkRebuildEqualsFold(ctx, t, "star", wantFollowers, lastPosition)
}

// acceptHole deletes a message that neither process has read, and accepts the loss through process
// 0. Both processes must then continue behind the hole.
func (r *replicas) acceptHole(ctx context.Context, t *testing.T) {
	// Publish three follows without a service, and delete the second one.
	log, err := eventlog.Open(ctx, eventlog.Config{URL: r.cluster.urls(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := log.NewPublisher(eventlog.PublisherOptions{}) //nolint:contextcheck // it lives until it is closed
	if err != nil {
		t.Fatal(err)
	}

	var position string
	for _, follower := range []string{"before", "lost", "after"} {
		res, err := publisher.Publish(ctx, []*skeinv1.Event{followWithEventID(follower, "sun")}, eventlog.PublishOptions{})
		if err != nil {
			t.Fatal(err)
		}
		position = res.Position.String()
	}
	head, err := log.Head(ctx)
	if err := errors.Join(err, publisher.Close(ctx), log.Close(ctx)); err != nil {
		t.Fatal(err)
	}

	hole := head.Last - 1
	stream, err := r.cluster.js.Stream(ctx, eventlog.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(ctx, hole); err != nil {
		t.Fatal(err)
	}

	// Both processes must stop in front of the hole, and continue once the loss is accepted.
	if err := forBothProcesses(func(i int) error { return r.servers[i].launch(ctx) }); err != nil {
		t.Fatal(err)
	}
	for i := range r.servers {
		r.waitUntilHeld(ctx, t, i, hole)
	}

	accept := exec.CommandContext(ctx, "skein", "replay", "log", "accept-hole", fmt.Sprint(hole), "--server", "http://"+r.servers[0].addr)
	if out, err := accept.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if err := forBothProcesses(func(i int) error {
		_, err := waitUntilReady(ctx, filepath.Join(r.servers[i].dir, "port"))
		return err
	}); err != nil {
		t.Fatal(err)
	}

	wantFollowers := []string{"before", "after"}
	r.checkFollowers(ctx, t, "sun", wantFollowers, position)
	for i := range r.apis {
		holes := r.mustGetLogStatus(ctx, t, i).GetAcceptedHoles()
		if !isOnlyHole(holes, hole) {
			t.Errorf("process %d: got the accepted holes %v, want only %d", i, holes, hole)
		}
	}
	r.checkRebuildEqualsFold(ctx, t, "sun", wantFollowers, position)
}

// isOnlyHole reports whether the list has one hole, which is the message with this sequence.
func isOnlyHole(holes []*skeinv1.LogHole, sequence uint64) bool {
	return len(holes) == 1 && holes[0].GetFirstSequence() == sequence && holes[0].GetLastSequence() == sequence
}

// checkRebuildEqualsFold lets process 1 build its stores again, and checks that the new rows, and
// the old ones, equal the rows of process 0. It stops both processes.
func (r *replicas) checkRebuildEqualsFold(ctx context.Context, t *testing.T, user string, followers []string, atLeast string) {
	t.Helper()
	if err := r.servers[1].stopGracefully(); err != nil {
		t.Error(err)
	}
	foldedRows := string(inspectRows(ctx, t, r.servers[1]))

	if err := os.RemoveAll(r.servers[1].dataDir()); err != nil {
		t.Fatal(err)
	}
	if err := r.servers[1].start(ctx); err != nil {
		t.Fatal(err)
	}
	r.checkFollowers(ctx, t, user, followers, atLeast)
	if err := forBothProcesses(func(i int) error { return r.servers[i].stopGracefully() }); err != nil {
		t.Error(err)
	}
	rebuiltRows := string(inspectRows(ctx, t, r.servers[1]))

	wantRows := string(inspectRows(ctx, t, r.servers[0]))
	for name, rows := range map[string]string{"folded": foldedRows, "built again": rebuiltRows} {
		if rows != wantRows {
			diff := gocmp.Diff(strings.Split(wantRows, "\n"), strings.Split(rows, "\n"))
			t.Errorf("rows of process 1 that were %s (-process 0 +process 1):\n%s", name, diff)
		}
	}
}

// status asks process i for its status.
func (r *replicas) status(ctx context.Context, i int) (*skeinv1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return getStatus(ctx, r.apis[i])
}

func (r *replicas) mustGetLogStatus(ctx context.Context, t *testing.T, i int) *skeinv1.LogStatus {
	t.Helper()
	status, err := r.status(ctx, i)
	if err != nil {
		t.Fatal(err)
	}
	return status.GetLog()
}

func (r *replicas) lastSequence(ctx context.Context, t *testing.T, i int) uint64 {
	t.Helper()
	return r.mustGetLogStatus(ctx, t, i).GetLastSequence()
}

// waitUntilHeld waits until process i reports that the envelope is missing, and that every
// projection is held right before it.
func (r *replicas) waitUntilHeld(ctx context.Context, t *testing.T, i int, hole uint64) {
	t.Helper()
	checkHeld := func(ctx context.Context) error {
		status, err := r.status(ctx, i)
		if err != nil {
			return err
		}
		if holes := status.GetLog().GetHoles(); !isOnlyHole(holes, hole) {
			return fmt.Errorf("missing are %v, want only %d", holes, hole)
		}
		for _, p := range status.GetProjections() {
			position := status.GetLog().GetLastSequence() - p.GetLagEnvelopes()
			if p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_HELD || position != hole-1 {
				return fmt.Errorf("%s is %v at %d, want held at %d", p.GetName(), p.GetState(), position, hole-1)
			}
		}
		return nil
	}
	if err := eventually(ctx, checkHeld); err != nil {
		t.Fatalf("process %d: %v", i, err)
	}

	// A load balancer that asks for the health over gRPC must send the process no calls.
	health := healthv1connect.NewHealthClient(r.apis[i].HTTP, r.apis[i].URL)
	got, err := health.Check(ctx, connect.NewRequest(&healthv1.HealthCheckRequest{}))
	if err != nil {
		t.Fatalf("process %d: %v", i, err)
	}
	if want := healthv1.HealthCheckResponse_NOT_SERVING; got.Msg.GetStatus() != want {
		t.Errorf("health of process %d: got %v, want %v", i, got.Msg.GetStatus(), want)
	}
}

// makeLeader makes server n the leader of the log.
func (r *replicas) makeLeader(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	c := r.cluster
	name := c.servers[n].Name()
	request := fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, name)

	// The cluster does not answer while it has no leader, so an attempt is short at first. Each
	// attempt has twice the time of the one before, in case the machine is slow.
	timeout := 250 * time.Millisecond
	waitUntil(ctx, t, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		timeout = min(2*timeout, 10*time.Second)

		stream, err := c.js.Stream(ctx, eventlog.StreamName)
		if err != nil {
			return err
		}
		info := stream.CachedInfo().Cluster
		if info.Leader == name {
			return nil
		}
		for _, peer := range info.Replicas {
			if peer.Name == name && !peer.Current {
				return fmt.Errorf("server %d is not current", n)
			}
		}

		_, err = c.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+eventlog.StreamName, request)
		return fmt.Errorf("server %d does not lead yet: %w", n, err)
	})
}

// checkReplicaContains returns an error unless the files of the replica of server n contain all
// texts.
func (c *natsCluster) checkReplicaContains(n int, texts []string) error {
	files, err := blockFiles(c.opts[n].StoreDir)
	if err != nil {
		return err
	}
	var data []byte
	for _, name := range files {
		block, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		data = append(data, block...)
	}
	for _, text := range texts {
		if !bytes.Contains(data, []byte(text)) {
			return fmt.Errorf("%q is not in %v", text, files)
		}
	}
	return nil
}
