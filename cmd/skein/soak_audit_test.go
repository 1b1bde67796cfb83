package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/audit"
)

// eventGenerator makes up events of all kinds about a few hundred users, so that many events
// concern the same users, boards and items. The same random numbers lead to the same events.
type eventGenerator struct{ random *rand.Rand }

// randomUser returns a user, more often one with a low number, so that a few users have many
// followers and pins.
func (g eventGenerator) randomUser() string {
	return fmt.Sprint("user", min(g.random.IntN(300), g.random.IntN(300)))
}

// randomUsers returns two different users.
func (g eventGenerator) randomUsers() (a, b string) {
	for a == b {
		a = g.randomUser()
		b = g.randomUser()
	}
	return a, b
}

// randomItem returns an item, more often one with a low number, so that a few items are popular.
func (g eventGenerator) randomItem() string {
	return fmt.Sprint(1000 + min(g.random.IntN(200), g.random.IntN(200)))
}

// randomPin returns the name of a pin of the owner, which may never have been created.
func (g eventGenerator) randomPin(owner string) *skeinv1.Pin {
	return &skeinv1.Pin{OwnerId: owner, PinId: fmt.Sprint("pin", g.random.IntN(30))}
}

// randomBoard returns a board of the owner. The empty id is that of the default board.
func (g eventGenerator) randomBoard(owner string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: owner, BoardId: [...]string{"", "art", "b2", "cats"}[g.random.IntN(4)]}
}

// randomNamedBoard returns a board that can be created and deleted, which the default board cannot.
func (g eventGenerator) randomNamedBoard(owner string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: owner, BoardId: [...]string{"art", "b2", "cats"}[g.random.IntN(3)]}
}

// nextEvent makes up the next event. A third of the events are about items, and the others about
// users, boards and pins.
func (g eventGenerator) nextEvent() *skeinv1.Event {
	if g.random.IntN(3) == 0 {
		return g.itemEvent()
	}

	a, b := g.randomUsers()
	percent := g.random.IntN(100)
	switch {
	case percent < 25:
		return userFollowed(a, b)
	case percent < 33:
		return userUnfollowed(a, b)
	case percent < 45:
		return boardFollowed(a, b, g.randomBoard(b).GetBoardId())
	case percent < 53:
		return boardUnfollowed(a, b, g.randomBoard(b).GetBoardId())
	case percent < 57:
		return boardCreated(a, g.randomNamedBoard(a).GetBoardId(), "a board")
	case percent < 58:
		return &skeinv1.Event{Kind: &skeinv1.Event_BoardDeleted{BoardDeleted: &skeinv1.BoardDeleted{Board: g.randomNamedBoard(a)}}}
	case percent < 80:
		return g.pinEvent(a, b)
	case percent < 84:
		return &skeinv1.Event{Kind: &skeinv1.Event_PinMoved{
			PinMoved: &skeinv1.PinMoved{Pin: g.randomPin(a), BoardId: g.randomBoard(a).GetBoardId()},
		}}
	case percent < 88:
		return &skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{Pin: g.randomPin(a)}}}
	case percent < 90:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{
			UserBlocked: &skeinv1.UserBlocked{UserId: a, TargetUserId: b},
		}}
	case percent < 91:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserUnblocked{
			UserUnblocked: &skeinv1.UserUnblocked{UserId: a, TargetUserId: b},
		}}
	case percent < 93:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: a, TargetUserId: b}}}
	case percent < 94:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserUnmuted{UserUnmuted: &skeinv1.UserUnmuted{UserId: a, TargetUserId: b}}}
	// These two kinds are rarer than one percent of the events.
	case percent < 95 && g.random.IntN(3) == 0:
		return &skeinv1.Event{Kind: &skeinv1.Event_FollowSettingsSet{
			FollowSettingsSet: &skeinv1.FollowSettingsSet{UserId: a, TargetUserId: b, HideRepins: true},
		}}
	case percent < 95 && g.random.IntN(5) == 0:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: a}}}
	}

	readTime := timestamppb.New(time.Unix(g.random.Int64N(2e9), 0))
	return &skeinv1.Event{Kind: &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{UserId: a, ReadTime: readTime}}}
}

// pinEvent returns a new pin of a. A third of the pins are re-pins of a pin of b.
func (g eventGenerator) pinEvent(a, b string) *skeinv1.Event {
	pin := &skeinv1.PinCreated{Pin: g.randomPin(a), BoardId: g.randomBoard(a).GetBoardId(), ItemId: g.randomItem()}
	if g.random.IntN(3) == 0 {
		pin.RepinOf = g.randomPin(b)
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: pin}}
}

// itemEvent makes up an event about what a user does with an item.
func (g eventGenerator) itemEvent() *skeinv1.Event {
	user := g.randomUser()
	item := g.randomItem()
	kind := g.random.IntN(50)
	switch {
	case kind < 25:
		return played(user, item)
	case kind < 37:
		return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item}}}
	case kind < 42:
		return &skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: user, ItemId: item}}}
	case kind < 48:
		return &skeinv1.Event{Kind: &skeinv1.Event_Served{
			Served: &skeinv1.Served{UserId: user, ItemIds: []string{item, g.randomItem()}},
		}}
	case kind < 49:
		return &skeinv1.Event{Kind: &skeinv1.Event_ItemScored{
			ItemScored: &skeinv1.ItemScored{ItemId: item, Score: g.random.Int64N(1000)},
		}}
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_SeenCleared{SeenCleared: &skeinv1.SeenCleared{UserId: user}}}
}

// auditTraffic is the traffic during the audit.
type auditTraffic struct {
	api *command.Client
	// ackedCallCount is the number of calls of Publish that the service acknowledged.
	ackedCallCount atomic.Uint64
}

const (
	// callsPerSecond is how many calls each writer makes at most, and meanEventsPerCall is how many
	// events a call has on average. With more events, the repair at the end could not fold the log
	// of an hour within minutes.
	callsPerSecond    = 100
	meanEventsPerCall = 10
	// reportInterval is the time between two lines about the progress in the log of the test.
	reportInterval = 30 * time.Second
)

// publishUntilDone publishes events until the context ends. It fails the test if the service
// refuses events that it must accept.
func (a *auditTraffic) publishUntilDone(ctx context.Context, t *testing.T, seed uint64) {
	generator := eventGenerator{rand.New(rand.NewPCG(seed, 0))}
	tick := time.NewTicker(time.Second / callsPerSecond)
	defer tick.Stop()

	for n := uint64(1); ; n++ {
		// A call has from 1 to 2*meanEventsPerCall-1 events. AllowPartial lets the service accept
		// the others if it refuses one of them.
		req := &skeinv1.PublishRequest{AllowPartial: true}
		for range 1 + generator.random.IntN(2*meanEventsPerCall-1) {
			req.Events = append(req.Events, generator.nextEvent())
		}

		// Every eighth call also has an imported follow from up to 1000 hours ago, which must find
		// its place among the newer ones.
		if n%8 == 0 {
			imported := userFollowed(generator.randomUsers())
			imported.Source = fmt.Sprint("old", seed)
			imported.Offset = n
			imported.OccurredAt = timestamppb.New(time.Now().Add(-time.Duration(generator.random.IntN(1000)) * time.Hour))
			req.Events = append(req.Events, imported)
		}

		res, err := a.api.Events().Publish(ctx, connect.NewRequest(req))
		switch connect.CodeOf(err) {
		case connect.CodeDeadlineExceeded, connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeCanceled:
			// The machine is busy, or the test has ended the traffic. Whether the service took the
			// events does not matter here.
		default:
			if err != nil {
				t.Errorf("Publish with the seed %d: got %v, want no error", seed, err)
				return
			}
			a.ackedCallCount.Add(1)

			// An imported follow may be about a user who was deleted, and is refused then.
			for _, r := range res.Msg.GetRejections() {
				if want := skeinv1.Reason_REASON_INVALID_BACKFILL; r.GetReason() != want {
					t.Errorf("rejection of event %d: got %v (%s), want none or %v", r.GetIndex(), r.GetReason(), r.GetMessage(), want)
				}
			}
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// soakDuration returns for how long the auditor must find nothing, at least: 5 seconds, or the
// duration in the environment variable SKEIN_SOAK.
func soakDuration(t *testing.T) time.Duration {
	text := os.Getenv("SKEIN_SOAK")
	if text == "" {
		return 5 * time.Second
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SKEIN_SOAK: got %v, want a duration", err)
	}
	return duration
}

// TestAuditorFindsOnlyDamageUnderLoad runs the auditor while the service takes traffic of all
// kinds, until the auditor has completed a round over all partitions and a verification of every
// projection. The auditor must find and repair nothing. The test then damages a row, which the
// auditor must find and repair, under the same traffic if that still runs. The traffic lasts for
// seconds, or for as long as SKEIN_SOAK says: task soak:audit.
func TestAuditorFindsOnlyDamageUnderLoad(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	duration := soakDuration(t)
	t.Logf("the auditor must find nothing for %v", duration)

	ctx, cancel := context.WithTimeout(t.Context(), 3*duration+5*waitLimit)
	defer cancel()

	// With these limits some authors are pushed, others are merged on reads, and inboxes are
	// trimmed.
	inboxSettings := inbox.DefaultSettings()
	inboxSettings.Threshold = 20
	inboxSettings.Keep = 50

	var running *service.Service
	var log syncBuffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	api, stop := startService(t, t.TempDir(), logger, func(options *service.Options) {
		options.Settings = all.Settings{Inbox: inboxSettings}
		// The auditor may work all the time.
		options.Maintenance.AuditShare = 1
		// The service calls this function with itself, which is how the test gets at the auditor
		// and the stores.
		options.OfferedOperations = func(app *service.Service) service.OfferedOperations {
			running = app
			return app.OfferedOperations()
		}
	})
	defer stop()

	// This is the follow whose row is damaged in the end. No generated event is about these users.
	mustPublish(t, api, userFollowed("quiet", "silent"))

	// The writers must have ended before the service stops, or their calls would fail the test.
	traffic := &auditTraffic{api: api}
	trafficCtx, stopTraffic := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for writer := range uint64(2) {
		wg.Go(func() { traffic.publishUntilDone(trafficCtx, t, seed+writer) })
	}
	defer wg.Wait()
	defer stopTraffic()

	began := time.Now()
	checkNoFindings(ctx, t, running, duration, stopTraffic)
	status := running.Auditor.Status()
	t.Logf("%v: %d calls, %d checks, %d rounds, the last in %v, up to %v verified", time.Since(began).Round(time.Second),
		traffic.ackedCallCount.Load(), status.Checks, status.Rounds, status.LastTook.Round(time.Millisecond), status.VerifiedAt)
	if t.Failed() {
		t.Fatalf("the log of the service:\n%s", log.String())
	}
	checkDamageIsFound(ctx, t, running, api, stopTraffic)
}

// checkNoFindings checks that the auditor finds nothing for this duration, and until it has
// completed a round that began in the second half of the duration, and has verified every
// projection. If the auditor has not done so when the duration is over, checkNoFindings stops the
// traffic and waits for the auditor.
func checkNoFindings(ctx context.Context, t *testing.T, running *service.Service, duration time.Duration, stopTraffic func()) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	lastReport := began
	for {
		status := running.Auditor.Status()
		if time.Since(lastReport) > reportInterval {
			lastReport = time.Now()
			t.Logf("after %v: partition %d of round %d, %d checks, up to %v verified", time.Since(began).Round(time.Second),
				status.Partition, status.Rounds, status.Checks, status.VerifiedAt)
		}

		if len(status.Findings) > 0 || status.Unexplained > 0 || sumCounts(status.Differences) > 0 || sumCounts(status.Repaired) > 0 {
			t.Errorf("status of the auditor after %v: got %+v, want no findings, differences or repairs", time.Since(began), status)
			return
		}
		if failed := running.Failed(); len(failed) > 0 {
			t.Errorf("failed projections after %v: got %v, want none", time.Since(began), failed)
			return
		}

		if time.Since(began) >= duration {
			// Rounds that began earlier covered almost no rows: the stores were nearly empty.
			lastRoundBegan := status.LastRound.Add(-status.LastTook)
			if lastRoundBegan.After(began.Add(duration/2)) && len(status.Verified) == len(running.Stores) {
				return
			}
			stopTraffic()
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("status of the auditor after %v, when the test ended with %v: got %+v, want a late round and %d verified projections",
				time.Since(began), ctx.Err(), status, len(running.Stores))
			return
		}
	}
}

// checkDamageIsFound deletes a row from the graph, and checks that the auditor finds the difference
// and repairs the row, and that nothing remains unexplained. A verification may happen to repair
// the row before an audit reads it. Then the row is deleted again.
func checkDamageIsFound(ctx context.Context, t *testing.T, running *service.Service, api *command.Client, stopTraffic func()) {
	t.Helper()
	graphStore := running.Store("graph")
	findFollowerRow := func(rows projections.Reader) (key []byte, err error) {
		prefix := graph.FollowersPrefix(nil, "silent")
		it := rows.Iter(prefix, projections.PrefixEnd(prefix))
		if it.Next() {
			key = append(key, it.Key()...)
		}
		return key, it.Close()
	}

	for try := range 20 {
		// Under traffic, so many rows may wait to be audited that verifications are always first.
		if try == 3 {
			stopTraffic()
		}

		before := running.Auditor.Status()
		err := graphStore.Repair(ctx, func(_ events.Cursor, rows projections.Reader, repair *store.Repair) error {
			key, err := findFollowerRow(rows)
			if err != nil {
				return err
			}
			if key == nil {
				return fmt.Errorf("try %d: rows of followers of silent: got none, want one", try)
			}
			repair.Delete(key)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		// The auditor checks the users of new events before all others, so publish an event about
		// the follower. On a busy machine the call may time out, and the event comes later.
		_, err = api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{userFollowed("quiet", "loud")}}))
		if err != nil && connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Fatal(err)
		}

		status := waitForGraphRepair(ctx, t, running, before.Repaired["graph"])
		if status.Unexplained > 0 {
			t.Errorf("unexplained findings: got %d, want 0: %s", status.Unexplained, status.LastFinding)
		}
		if status.Findings["graph"] > 0 {
			t.Logf("found at try %d: %s", try, status.LastFinding)
			return
		}
		t.Logf("try %d: a verification repaired the row first", try)
	}
	t.Error("findings about the graph: got none, want that an audit finds the missing row")
}

// waitForGraphRepair waits until the auditor has repaired more rows of the graph than before, and
// returns the status of the auditor.
func waitForGraphRepair(ctx context.Context, t *testing.T, running *service.Service, before uint64) audit.Status {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status := running.Auditor.Status()
		if status.Repaired["graph"] != before {
			return status
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("repaired rows of the graph: got %d, want more: %+v", before, status)
		}
	}
}

// sumCounts adds up the counts of all projections.
func sumCounts(counts map[string]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
