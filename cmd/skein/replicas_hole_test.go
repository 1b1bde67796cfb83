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
	parts := []part{{"a damaged replica", r.repairDamagedReplica}, {"an accepted hole", r.acceptHole}}
	if testing.Short() {
		parts[0] = part{"stopped", func(_ context.Context, t *testing.T) {
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
	for i, s := range r.servers {
		if text, err := os.ReadFile(filepath.Join(s.dir, "server.log")); t.Failed() {
			t.Errorf("%v, the log of process %d:\n%s", err, i, text)
		}
	}
}

// repairDamagedReplica flips a bit in the replica of a server that does not lead, which then leads: the
// server does not copy the message from another. Nothing is folded across it until another server
// leads, and the replica is whole when it was copied anew. The message is the first one, which a
// reader asks the leader for. Others may come from any replica, and be whole there.
func (r *replicas) repairDamagedReplica(ctx context.Context, t *testing.T) {
	follow := func(i int, follower string) (position string) {
		t.Helper()
		position, err := r.publishAt(ctx, i, followWithEventID(follower, "star"))
		if err != nil {
			t.Fatal(err)
		}
		return position
	}
	if err := r.servers[1].stopGracefully(); err != nil {
		t.Fatal(err)
	}
	damagedPosition := follow(0, "damaged")
	hole := r.lastSequence(ctx, t, 0)
	if got, _, err := r.listFollowers(ctx, 0, "star", follow(0, "after")); err != nil || len(got) != 2 { // it has folded both by then
		t.Fatalf("%v, %v", got, err)
	}
	leader, err := r.cluster.findLeader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	damaged, intact := (leader+1)%3, (leader+2)%3
	r.cluster.stopServer(damaged)
	if err := flipBit(r.cluster.opts[damaged].StoreDir, "damaged", 1, filepath.Join(t.TempDir(), "whole")); err != nil {
		t.Fatal(err)
	}
	r.cluster.startServer(damaged)
	r.makeLeader(ctx, t, damaged)

	// A process that has yet to fold the message stands in front of it, and answers from there. The
	// other continues.
	if err := r.servers[1].launch(ctx); err != nil {
		t.Fatal(err)
	}
	r.waitUntilHeld(ctx, t, 1, hole)
	lastPosition := follow(1, "last")
	followers := []string{"damaged", "after", "last"}
	if got, _, err := r.listFollowers(ctx, 0, "star", lastPosition); err != nil || len(got) != len(followers) {
		t.Errorf("the process that has folded all answers %v, %v", got, err)
	}
	if got, _, err := r.listFollowers(ctx, 1, "star", ""); err != nil || len(got) > 0 {
		t.Errorf("in front of the hole it answers %v, %v", got, err)
	}
	if _, err := r.isFollowing(ctx, 1, "damaged", "star", damagedPosition); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("what is in the hole: %v", err)
	}

	// The leader steps down. Then its replica is moved away, and copied from the others.
	r.makeLeader(ctx, t, intact)
	if _, err := waitUntilReady(ctx, filepath.Join(r.servers[1].dir, "port")); err != nil {
		t.Fatal(err)
	}
	r.checkFollowers(ctx, t, "star", followers, lastPosition)
	r.cluster.stopServer(damaged)
	replica, err := filepath.Glob(filepath.Join(r.cluster.opts[damaged].StoreDir, "jetstream", "*", "streams", eventlog.StreamName))
	if err != nil || len(replica) != 1 {
		t.Fatal(replica, err)
	}
	if err := os.Rename(replica[0], filepath.Join(t.TempDir(), "damaged")); err != nil {
		t.Fatal(err)
	}
	r.cluster.startServer(damaged)
	if err := eventually(ctx, func(context.Context) error { return r.cluster.checkReplicaContains(damaged, followers) }); err != nil {
		t.Fatalf("the replica that was copied: %v", err)
	}
	r.checkRebuildEqualsFold(ctx, t, "star", followers, lastPosition)
}

// acceptHole deletes a message that neither process has read, and accepts the loss through one of
// them.
func (r *replicas) acceptHole(ctx context.Context, t *testing.T) {
	log, err := eventlog.Open(ctx, eventlog.Config{URL: r.cluster.urls(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := log.NewPublisher(eventlog.PublisherOptions{}) //nolint:contextcheck // it lives until it is closed
	if err != nil {
		t.Fatal(err)
	}
	var position string
	for _, follower := range []string{"one", "lost", "two"} {
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
	r.checkFollowers(ctx, t, "sun", []string{"one", "two"}, position)
	for i := range r.apis {
		if holes := r.mustGetLogStatus(ctx, t, i).GetAcceptedHoles(); len(holes) != 1 || holes[0].GetFirstSequence() != hole || holes[0].GetLastSequence() != hole {
			t.Errorf("process %d knows %v as accepted, not %d", i, holes, hole)
		}
	}
	r.checkRebuildEqualsFold(ctx, t, "sun", []string{"one", "two"}, position)
}

// checkRebuildEqualsFold has the second process build its stores again. They are those of the first, row for
// row. Both are stopped then.
func (r *replicas) checkRebuildEqualsFold(ctx context.Context, t *testing.T, user string, followers []string, atLeast string) {
	t.Helper()
	if err := r.servers[1].stopGracefully(); err != nil {
		t.Error(err)
	}
	folded := inspectRows(ctx, t, r.servers[1])
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
	want := inspectRows(ctx, t, r.servers[0])
	for what, got := range map[string][]byte{"folded": folded, "built again": inspectRows(ctx, t, r.servers[1])} {
		if !bytes.Equal(got, want) {
			t.Errorf("%s (-other process +this):\n%s", what, gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")))
		}
	}
}

func (r *replicas) status(ctx context.Context, i int) (*skeinv1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	status, err := getStatus(ctx, r.apis[i])
	if err != nil {
		return nil, err
	}
	return status, nil
}

func (r *replicas) mustGetLogStatus(ctx context.Context, t *testing.T, i int) *skeinv1.LogStatus {
	t.Helper()
	st, err := r.status(ctx, i)
	if err != nil {
		t.Fatal(err)
	}
	return st.GetLog()
}

func (r *replicas) lastSequence(ctx context.Context, t *testing.T, i int) uint64 {
	t.Helper()
	return r.mustGetLogStatus(ctx, t, i).GetLastSequence()
}

// waitUntilHeld waits until a process says that an envelope is missing, and stands in front of it with
// every projection.
func (r *replicas) waitUntilHeld(ctx context.Context, t *testing.T, i int, hole uint64) {
	t.Helper()
	if err := eventually(ctx, func(ctx context.Context) error {
		status, err := r.status(ctx, i)
		if err != nil {
			return err
		}
		if holes := status.GetLog().GetHoles(); len(holes) != 1 || holes[0].GetFirstSequence() != hole || holes[0].GetLastSequence() != hole {
			return fmt.Errorf("missing are %v, not %d", holes, hole)
		}
		for _, p := range status.GetProjections() {
			if p.GetState() != skeinv1.ProjectionState_PROJECTION_STATE_HELD || status.GetLog().GetLastSequence()-p.GetLagEnvelopes() != hole-1 {
				return fmt.Errorf("%s is %v, %d envelopes behind", p.GetName(), p.GetState(), p.GetLagEnvelopes())
			}
		}
		return nil
	}); err != nil {
		t.Fatalf("process %d: %v", i, err)
	}
}

// makeLeader makes a server the leader of the log.
func (r *replicas) makeLeader(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	c := r.cluster
	request := fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, c.servers[n].Name())
	timeout := 250 * time.Millisecond
	waitUntil(ctx, t, func(ctx context.Context) error {
		// While there is no leader, no server answers.
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		stream, err := c.js.Stream(ctx, eventlog.StreamName)
		if err == nil {
			info := stream.CachedInfo().Cluster
			if info.Leader == c.servers[n].Name() {
				return nil
			}
			for _, peer := range info.Replicas {
				if peer.Name == c.servers[n].Name() && !peer.Current {
					return fmt.Errorf("server %d is not current", n)
				}
			}
			_, err = c.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+eventlog.StreamName, request)
		}
		timeout = min(2*timeout, 10*time.Second)
		return fmt.Errorf("server %d does not lead: %w", n, err)
	})
}

// checkReplicaContains demands that the replica of a server has these texts.
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
