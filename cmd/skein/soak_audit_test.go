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
// concern the same users, boards and items.
type eventGenerator struct{ random *rand.Rand }

// randomUser returns a user, more often one with a low number, so that a few users have many
// followers and pins.
func (g eventGenerator) randomUser() string {
	return fmt.Sprint("user", min(g.random.IntN(300), g.random.IntN(300)))
}

// randomUsers returns two different users.
func (g eventGenerator) randomUsers() (a, b string) {
	for a == b {
		a, b = g.randomUser(), g.randomUser()
	}
	return a, b
}

func (g eventGenerator) randomItem() string {
	return fmt.Sprint(1000 + min(g.random.IntN(200), g.random.IntN(200)))
}

func (g eventGenerator) randomPin(owner string) *skeinv1.Pin {
	return &skeinv1.Pin{OwnerId: owner, PinId: fmt.Sprint("pin", g.random.IntN(30))}
}

func (g eventGenerator) randomBoard(owner string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: owner, BoardId: [...]string{"", "art", "b2", "cats"}[g.random.IntN(4)]}
}

// randomNamedBoard returns a board that can be created and deleted, which the default board cannot.
func (g eventGenerator) randomNamedBoard(owner string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: owner, BoardId: [...]string{"art", "b2", "cats"}[g.random.IntN(3)]}
}

// nextEvent makes up the next event.
func (g eventGenerator) nextEvent() *skeinv1.Event {
	if g.random.IntN(3) == 0 {
		return g.itemEvent()
	}
	a, b := g.randomUsers()
	switch n := g.random.IntN(100); {
	case n < 25:
		return userFollowed(a, b)
	case n < 33:
		return userUnfollowed(a, b)
	case n < 45:
		return boardFollowed(a, b, g.randomBoard(b).GetBoardId())
	case n < 53:
		return &skeinv1.Event{Kind: &skeinv1.Event_BoardUnfollowed{
			BoardUnfollowed: &skeinv1.BoardUnfollowed{UserId: a, Board: g.randomBoard(b)},
		}}
	case n < 57:
		return boardCreated(a, g.randomNamedBoard(a).GetBoardId(), "a board")
	case n < 58:
		return &skeinv1.Event{Kind: &skeinv1.Event_BoardDeleted{BoardDeleted: &skeinv1.BoardDeleted{Board: g.randomNamedBoard(a)}}}
	case n < 80:
		return g.pinEvent(a, b)
	case n < 84:
		return &skeinv1.Event{Kind: &skeinv1.Event_PinMoved{
			PinMoved: &skeinv1.PinMoved{Pin: g.randomPin(a), BoardId: g.randomBoard(a).GetBoardId()},
		}}
	case n < 88:
		return &skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{Pin: g.randomPin(a)}}}
	case n < 90:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{
			UserBlocked: &skeinv1.UserBlocked{UserId: a, TargetUserId: b},
		}}
	case n < 91:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserUnblocked{
			UserUnblocked: &skeinv1.UserUnblocked{UserId: a, TargetUserId: b},
		}}
	case n < 93:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: a, TargetUserId: b}}}
	case n < 94:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserUnmuted{UserUnmuted: &skeinv1.UserUnmuted{UserId: a, TargetUserId: b}}}
	case n < 95 && g.random.IntN(3) == 0:
		return &skeinv1.Event{Kind: &skeinv1.Event_FollowSettingsSet{
			FollowSettingsSet: &skeinv1.FollowSettingsSet{UserId: a, TargetUserId: b, HideRepins: true},
		}}
	case n < 95 && g.random.IntN(5) == 0:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: a}}}
	}
	readTime := timestamppb.New(time.Unix(g.random.Int64N(2e9), 0))
	return &skeinv1.Event{Kind: &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{UserId: a, ReadTime: readTime}}}
}

// pinEvent returns a new pin of a, perhaps a repin of a pin of b.
func (g eventGenerator) pinEvent(a, b string) *skeinv1.Event {
	pin := &skeinv1.PinCreated{Pin: g.randomPin(a), BoardId: g.randomBoard(a).GetBoardId(), ItemId: g.randomItem()}
	if g.random.IntN(3) == 0 {
		pin.RepinOf = g.randomPin(b)
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: pin}}
}

// itemEvent makes up an event about an item.
func (g eventGenerator) itemEvent() *skeinv1.Event {
	user, item := g.randomUser(), g.randomItem()
	switch n := g.random.IntN(50); {
	case n < 25:
		return played(user, item)
	case n < 37:
		return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item}}}
	case n < 42:
		return &skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: user, ItemId: item}}}
	case n < 48:
		return &skeinv1.Event{Kind: &skeinv1.Event_Served{
			Served: &skeinv1.Served{UserId: user, ItemIds: []string{item, g.randomItem()}},
		}}
	case n < 49:
		return &skeinv1.Event{Kind: &skeinv1.Event_ItemScored{
			ItemScored: &skeinv1.ItemScored{ItemId: item, Score: g.random.Int64N(1000)},
		}}
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_SeenCleared{SeenCleared: &skeinv1.SeenCleared{UserId: user}}}
}

// auditTraffic is the traffic during the audit.
type auditTraffic struct {
	api *command.Client
	// ackedCalls counts the calls that were acknowledged.
	ackedCalls atomic.Uint64
}

// callsPerSecond is how many calls each writer makes at most, and meanEventsPerCall how many events
// a call has on average. With more events, the repair at the end could not fold an hour of log in
// minutes.
const (
	callsPerSecond    = 100
	meanEventsPerCall = 10
	// reportInterval is the time between two log lines about the progress.
	reportInterval = 30 * time.Second
)

// publishUntilDone publishes events until the context ends. Every eighth call has an imported
// event, which comes late.
func (f *auditTraffic) publishUntilDone(ctx context.Context, t *testing.T, seed uint64) {
	generator := eventGenerator{rand.New(rand.NewPCG(seed, 0))}
	tick := time.NewTicker(time.Second / callsPerSecond)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		// A late event may be about a user who was deleted, and is refused then.
		req := &skeinv1.PublishRequest{AllowPartial: true}
		for range 1 + generator.random.IntN(2*meanEventsPerCall-1) {
			req.Events = append(req.Events, generator.nextEvent())
		}
		if n%8 == 0 {
			late := userFollowed(generator.randomUsers())
			late.Source, late.Offset = fmt.Sprint("old", seed), n
			late.OccurredAt = timestamppb.New(time.Now().Add(-time.Duration(generator.random.IntN(1000)) * time.Hour))
			req.Events = append(req.Events, late)
		}
		res, err := f.api.Events().Publish(ctx, connect.NewRequest(req))
		if err == nil {
			for _, r := range res.Msg.GetRejections() {
				if r.GetReason() != skeinv1.Reason_REASON_INVALID_BACKFILL {
					t.Errorf("event %d was refused: %s", r.GetIndex(), r.GetMessage())
				}
			}
		}
		switch connect.CodeOf(err) {
		case connect.CodeDeadlineExceeded, connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeCanceled:
			// The machine is busy. Whether the events were taken does not matter here.
		default:
			if err != nil {
				t.Error(err)
				return
			}
			f.ackedCalls.Add(1)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// soakDuration returns how long the traffic lasts at least: 5 seconds, or what SKEIN_SOAK says.
func soakDuration(t *testing.T) time.Duration {
	text := os.Getenv("SKEIN_SOAK")
	if text == "" {
		return 5 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SKEIN_SOAK: %v", err)
	}
	return d
}

// TestAuditorFindsOnlyDamageUnderLoad runs the auditor while the service takes traffic of all
// kinds, until it has completed a round over all partitions and a verification of every projection.
// It must find and repair nothing. The test then damages a row, which must be found and repaired,
// under the same traffic if that still runs. The traffic lasts for seconds, or for as long as
// SKEIN_SOAK says: task soak:audit.
func TestAuditorFindsOnlyDamageUnderLoad(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	duration := soakDuration(t)
	t.Logf("it lasts %v", duration)

	ctx, cancel := context.WithTimeout(t.Context(), 3*duration+5*waitLimit)
	defer cancel()
	inboxSettings := inbox.DefaultSettings()
	// With these limits some authors are pushed, others are merged on reads, and inboxes are
	// trimmed.
	inboxSettings.Threshold, inboxSettings.Keep = 20, 50

	var running *service.Service
	var log syncBuffer
	api, stop := startService(t, t.TempDir(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		func(serviceOptions *service.Options) {
			serviceOptions.Settings = all.Settings{Inbox: inboxSettings}
			serviceOptions.Maintenance.AuditShare = 1
			serviceOptions.OfferedOperations = func(app *service.Service) service.OfferedOperations { running = app; return app.OfferedOperations() }
		})
	defer stop()

	mustPublish(t, api, userFollowed("quiet", "silent"))

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
		traffic.ackedCalls.Load(), status.Checks, status.Rounds, status.LastTook.Round(time.Millisecond), status.VerifiedAt)
	if t.Failed() {
		t.Fatalf("the log of the service:\n%s", log.String())
	}
	checkDamageIsFound(ctx, t, running, api, stopTraffic)
}

// checkNoFindings checks that the auditor finds nothing for this duration, and until it has
// completed a round that began in the second half of it, and has verified every projection. If that
// is not done in time, checkNoFindings stops the traffic and waits.
func checkNoFindings(ctx context.Context, t *testing.T, running *service.Service, duration time.Duration, stopTraffic func()) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for lastReport := began; ; {
		status := running.Auditor.Status()
		if time.Since(lastReport) > reportInterval {
			lastReport = time.Now()
			t.Logf("after %v: partition %d of round %d, %d checks, up to %v verified", time.Since(began).Round(time.Second),
				status.Partition, status.Rounds, status.Checks, status.VerifiedAt)
		}
		if len(status.Findings) > 0 || status.Unexplained > 0 || sumCounts(status.Differences) > 0 || sumCounts(status.Repaired) > 0 {
			t.Errorf("after %v: %+v", time.Since(began), status)
			return
		}
		if failed := running.Failed(); len(failed) > 0 {
			t.Errorf("after %v: %v failed", time.Since(began), failed)
			return
		}
		if time.Since(began) >= duration {
			// Earlier rounds covered almost no rows.
			if status.LastRound.Add(-status.LastTook).After(began.Add(duration/2)) && len(status.Verified) == len(running.Stores) {
				return
			}
			stopTraffic()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("%v after %v: %+v", ctx.Err(), time.Since(began), status)
			return
		}
	}
}

// checkDamageIsFound deletes a row from a store, and checks that the auditor finds the difference
// and repairs the row, and that nothing remains unexplained. A verification may happen to repair
// the row before an audit reads it. Then the row is deleted again, and after three attempts without
// traffic. Under traffic, so many rows wait to be audited that verifications would always be first.
func checkDamageIsFound(ctx context.Context, t *testing.T, running *service.Service, api *command.Client, stopTraffic func()) {
	t.Helper()
	graphStore := running.Store("graph")
	findFollower := func(rows projections.Reader) (key []byte, err error) {
		prefix := graph.FollowersPrefix(nil, "silent")
		it := rows.Iter(prefix, projections.PrefixEnd(prefix))
		if it.Next() {
			key = append(key, it.Key()...)
		}
		return key, it.Close()
	}

	for try := range 20 {
		if try == 3 {
			stopTraffic()
		}

		before := running.Auditor.Status()
		err := graphStore.Repair(ctx, func(_ events.Cursor, rows projections.Reader, repair *store.Repair) error {
			key, err := findFollower(rows)
			if err != nil {
				return err
			}
			if key == nil {
				return fmt.Errorf("try %d: silent has no follower", try)
			}
			repair.Delete(key)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		// Rows that were written recently are audited first. On a busy machine the event may not be
		// visible within the time of the call.
		_, err = api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{userFollowed("quiet", "loud")}}))
		if err != nil && connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Fatal(err)
		}

		status := waitForGraphRepair(ctx, t, running, before.Repaired["graph"])
		if status.Unexplained > 0 {
			t.Errorf("unexplained: %s", status.LastFinding)
		}
		if status.Findings["graph"] > 0 {
			t.Logf("found at try %d: %s", try, status.LastFinding)
			return
		}
		t.Logf("try %d: a verification repaired the row first", try)
	}
	t.Error("no audit found the missing row")
}

// waitForGraphRepair waits until the auditor has repaired more rows of the graph than before, and
// returns its status.
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
			t.Fatalf("the row is not repaired: %+v", status)
		}
	}
}

// sumCounts adds up the counts.
func sumCounts(counts map[string]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
