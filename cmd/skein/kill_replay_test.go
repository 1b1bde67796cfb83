package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// restartTraffic publishes and reads continuously while the service is killed and restarted.
type restartTraffic struct {
	api *command.Client

	mu sync.Mutex // guards all below
	// ackedCalls are the calls of Publish that were acknowledged.
	ackedCalls []ackedCall
	readCount  int
	// refusedReads are the errors of reads that the service refused. A read that cannot connect,
	// because the service is down, is not one of them.
	refusedReads []error
}

// publishRepeatedly publishes batches of follows and plays of one writer until the context ends.
func (f *restartTraffic) publishRepeatedly(ctx context.Context, writer int) {
	for n := 0; ctx.Err() == nil; n++ {
		// The event ids let the writer send the events again until they are acknowledged.
		user := fmt.Sprintf("w%d-%d", writer, n)
		var evs []*skeinv1.Event
		for i := range 20 {
			follow := userFollowed(user, fmt.Sprintf("star%d", (n+i)%50))
			follow.EventId = fmt.Sprintf("%d-%d-%d", writer, n, i)
			play := &skeinv1.Event{
				EventId: "p" + follow.GetEventId(),
				Kind:    &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: user, ItemId: fmt.Sprint("film", i)}},
			}
			evs = append(evs, follow, play)
		}

		for ctx.Err() == nil {
			res, err := f.api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
			if err != nil {
				continue
			}
			f.mu.Lock()
			f.ackedCalls = append(f.ackedCalls, ackedCall{position: res.Msg.GetPosition(), events: evs})
			f.mu.Unlock()
			break
		}
	}
}

// readRepeatedly reads from three projections until the context ends.
func (f *restartTraffic) readRepeatedly(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		star := fmt.Sprintf("star%d", n%50)
		_, err := f.api.Graph().ListFollowers(ctx, connect.NewRequest(&skeinv1.ListFollowersRequest{UserId: star}))
		if err == nil {
			_, err = f.api.Feed().ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: "w0-1"}))
		}
		if err == nil {
			_, err = f.api.Counters().BatchGetCounters(ctx, connect.NewRequest(&skeinv1.BatchGetCountersRequest{
				Keys: []*skeinv1.CounterKey{userKey(star)},
			}))
		}

		f.mu.Lock()
		f.readCount++
		// On a busy machine the start takes so long that the service answers that it is starting.
		if connect.IsWireError(err) && !strings.Contains(err.Error(), "the service is starting") {
			f.refusedReads = append(f.refusedReads, err)
		}
		f.mu.Unlock()
	}
}

// lastAcked returns the last n calls that were acknowledged.
func (f *restartTraffic) lastAcked(n int) []ackedCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ackedCalls[max(0, len(f.ackedCalls)-n):])
}

// operationStarters returns functions that start operations: a rebuild, a repair and a rollback of
// each projection, and a snapshot.
func operationStarters(api *command.Client) []func(context.Context) error {
	var starters []func(context.Context) error
	for _, name := range []string{"graph", "inbox", "seen", "counters", "notifications"} {
		startRebuild := func(ctx context.Context) error {
			_, err := api.Admin().StartRebuild(ctx, connect.NewRequest(&skeinv1.StartRebuildRequest{Projection: name}))
			return err
		}
		repair := func(ctx context.Context) error {
			_, err := api.Admin().Repair(ctx, connect.NewRequest(&skeinv1.RepairRequest{Projection: name}))
			return err
		}
		rollBack := func(ctx context.Context) error {
			_, err := api.Admin().Rollback(ctx, connect.NewRequest(&skeinv1.RollbackRequest{Projection: name}))
			return err
		}
		starters = append(starters, startRebuild, repair, rollBack)
	}

	startSnapshot := func(ctx context.Context) error {
		_, err := api.Admin().TakeSnapshot(ctx, connect.NewRequest(&skeinv1.TakeSnapshotRequest{}))
		return err
	}
	return append(starters, startSnapshot)
}

// TestServerKilledDuringReplayLosesNothing kills the service again and again while it builds, cuts
// over, rolls back, repairs, takes snapshots and archives, under writes and reads. After each
// start, every projection must serve from a complete generation, nothing that was acknowledged may
// be missing, and no read may be refused. In the end every store must equal the log, and the
// archive and the snapshots must be complete.
func TestServerKilledDuringReplayLosesNothing(t *testing.T) {
	t.Parallel()
	kills := 20
	if testing.Short() {
		kills = 3
	}

	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))

	ctx, cancel := context.WithTimeout(t.Context(), 3*waitLimit)
	defer cancel()

	// Archive, trim and audit often, so that a kill may also interrupt these.
	dir := t.TempDir()
	snapshots := filepath.Join(dir, "snapshots")
	s := &serverProcess{t: t, dir: dir, flags: []string{
		"--archive-every", "50ms", "--log-retention", "1s", "--snapshots", snapshots, "--audit-share", "0.3",
	}}
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { s.kill() }()

	traffic := &restartTraffic{api: s.newClient()}
	trafficCtx, stopTraffic := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for writer := range 2 {
		wg.Go(func() { traffic.publishRepeatedly(trafficCtx, writer) })
	}
	wg.Go(func() { traffic.readRepeatedly(trafficCtx) })

	starters := operationStarters(traffic.api)
	acceptedOperations := 0
	for range kills {
		for range 3 {
			err := starters[rng.IntN(len(starters))](ctx)
			switch connect.CodeOf(err) {
			case connect.CodeFailedPrecondition, connect.CodeAborted, connect.CodeAlreadyExists:
				// Another operation is running, or there is nothing to roll back.
			default:
				if err != nil {
					t.Fatal(err)
				}
				acceptedOperations++
			}

			// The kill may come at any moment of the operations.
			<-time.After(time.Duration(rng.IntN(100_000)) * time.Microsecond)
		}

		s.kill()
		if err := s.start(ctx); err != nil {
			t.Fatal(err)
		}
		checkAcked(ctx, t, traffic.api, onlyFollows(traffic.lastAcked(5)))
		checkProjectionsLive(ctx, t, traffic.api)
	}

	stopTraffic()
	wg.Wait()
	t.Logf("%d operations were accepted, %d calls acknowledged, %d reads made", acceptedOperations, len(traffic.ackedCalls), traffic.readCount)

	if len(traffic.refusedReads) > 0 {
		t.Errorf("got %d refused reads, want none; the first: %v", len(traffic.refusedReads), traffic.refusedReads[0])
	}
	checkAcked(ctx, t, traffic.api, onlyFollows(traffic.ackedCalls))
	checkStoresEqualLog(ctx, t, traffic.api)
	for _, args := range [][]string{
		{"replay", "archive", "check", "--data", filepath.Join(dir, "data")},
		{"snapshot", "check", "--target", snapshots},
	} {
		out, err := exec.CommandContext(ctx, "skein", args...).CombinedOutput()
		if err != nil {
			t.Errorf("skein %s: got %v, want no error: %s", strings.Join(args, " "), err, out)
		}
	}
}

// onlyFollows returns the calls with their follows alone.
func onlyFollows(calls []ackedCall) (filteredCalls []ackedCall) {
	for _, call := range calls {
		filtered := ackedCall{position: call.position}
		for _, ev := range call.events {
			if ev.GetUserFollowed() != nil {
				filtered.events = append(filtered.events, ev)
			}
		}
		filteredCalls = append(filteredCalls, filtered)
	}
	return filteredCalls
}

// checkProjectionsLive checks that every projection is ready, rebuilt or catching up.
func checkProjectionsLive(ctx context.Context, t *testing.T, api *command.Client) {
	t.Helper()
	status, err := getStatus(ctx, api)
	if err != nil {
		t.Fatal(err)
	}
	for _, projection := range status.GetProjections() {
		switch projection.GetState() {
		case skeinv1.ProjectionState_PROJECTION_STATE_READY, skeinv1.ProjectionState_PROJECTION_STATE_REBUILDING,
			skeinv1.ProjectionState_PROJECTION_STATE_CATCHING_UP:
		default:
			t.Errorf("projection %s: got %v (%s), want ready, rebuilding or catching up", projection.GetName(), projection.GetState(), projection.GetError())
		}
	}
}

// checkStoresEqualLog lets the service verify that every store equals a fresh fold of the log.
func checkStoresEqualLog(ctx context.Context, t *testing.T, api *command.Client) {
	t.Helper()
	err := eventually(ctx, func(ctx context.Context) error {
		// The service refuses to verify while an earlier operation is still running.
		res, err := api.Admin().Verify(ctx, connect.NewRequest(&skeinv1.VerifyRequest{}))
		if err != nil {
			return err
		}

		stream, err := api.Admin().WatchOperation(ctx, connect.NewRequest(&skeinv1.WatchOperationRequest{
			OperationId: res.Msg.GetOperation().GetOperationId(),
		}))
		if err != nil {
			return err
		}
		defer stream.Close()

		var last *skeinv1.Operation
		for stream.Receive() {
			last = stream.Msg().GetOperation()
		}
		if err := stream.Err(); err != nil {
			return err
		}
		if want := skeinv1.OperationState_OPERATION_STATE_SUCCEEDED; last.GetState() != want {
			t.Errorf("verification: got %v, want %v: %s\n%s", last.GetState(), want, last.GetError(), last.GetReport())
		}
		return nil
	})
	if err != nil {
		t.Error(errors.Join(err, ctx.Err()))
	}
}
