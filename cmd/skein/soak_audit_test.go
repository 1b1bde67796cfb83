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

// soakWorld makes up what some hundred users do: all kinds of events, about so few of everything
// that they meet all the time.
type soakWorld struct{ random *rand.Rand }

// user returns a user: a few have much.
func (w soakWorld) user() string {
	return fmt.Sprint("user", min(w.random.IntN(300), w.random.IntN(300)))
}

func (w soakWorld) others() (a, b string) {
	for a == b {
		a, b = w.user(), w.user()
	}
	return a, b
}

func (w soakWorld) item() string {
	return fmt.Sprint(1000 + min(w.random.IntN(200), w.random.IntN(200)))
}

func (w soakWorld) pin(owner string) *skeinv1.Pin {
	return &skeinv1.Pin{OwnerId: owner, PinId: fmt.Sprint("pin", w.random.IntN(30))}
}

func (w soakWorld) board(owner string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: owner, BoardId: [...]string{"", "art", "b2", "cats"}[w.random.IntN(4)]}
}

// named is a board that can be created and deleted.
func (w soakWorld) named(owner string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: owner, BoardId: [...]string{"art", "b2", "cats"}[w.random.IntN(3)]}
}

// event returns the next event.
func (w soakWorld) event() *skeinv1.Event {
	if w.random.IntN(3) == 0 {
		return w.ofItem()
	}
	a, b := w.others()
	switch n := w.random.IntN(100); {
	case n < 25:
		return userFollowed(a, b)
	case n < 33:
		return unfollow(a, b)
	case n < 45:
		return boardFollowed(a, b, w.board(b).GetBoardId())
	case n < 53:
		return &skeinv1.Event{Kind: &skeinv1.Event_BoardUnfollowed{
			BoardUnfollowed: &skeinv1.BoardUnfollowed{UserId: a, Board: w.board(b)},
		}}
	case n < 57:
		return boardCreated(a, w.named(a).GetBoardId(), "a board")
	case n < 58:
		return &skeinv1.Event{Kind: &skeinv1.Event_BoardDeleted{BoardDeleted: &skeinv1.BoardDeleted{Board: w.named(a)}}}
	case n < 80:
		return w.pinned(a, b)
	case n < 84:
		return &skeinv1.Event{Kind: &skeinv1.Event_PinMoved{
			PinMoved: &skeinv1.PinMoved{Pin: w.pin(a), BoardId: w.board(a).GetBoardId()},
		}}
	case n < 88:
		return &skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{Pin: w.pin(a)}}}
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
	case n < 95 && w.random.IntN(3) == 0:
		return &skeinv1.Event{Kind: &skeinv1.Event_FollowSettingsSet{
			FollowSettingsSet: &skeinv1.FollowSettingsSet{UserId: a, TargetUserId: b, HideRepins: true},
		}}
	case n < 95 && w.random.IntN(5) == 0:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: a}}}
	}
	at := timestamppb.New(time.Unix(w.random.Int64N(2e9), 0))
	return &skeinv1.Event{Kind: &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{UserId: a, ReadTime: at}}}
}

// pinned is a pin of a's, perhaps one that b had.
func (w soakWorld) pinned(a, b string) *skeinv1.Event {
	pin := &skeinv1.PinCreated{Pin: w.pin(a), BoardId: w.board(a).GetBoardId(), ItemId: w.item()}
	if w.random.IntN(3) == 0 {
		pin.RepinOf = w.pin(b)
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: pin}}
}

func (w soakWorld) ofItem() *skeinv1.Event {
	user, item := w.user(), w.item()
	switch n := w.random.IntN(50); {
	case n < 25:
		return played(user, item)
	case n < 37:
		return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: user, ItemId: item}}}
	case n < 42:
		return &skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: user, ItemId: item}}}
	case n < 48:
		return &skeinv1.Event{Kind: &skeinv1.Event_Served{
			Served: &skeinv1.Served{UserId: user, ItemIds: []string{item, w.item()}},
		}}
	case n < 49:
		return &skeinv1.Event{Kind: &skeinv1.Event_ItemScored{
			ItemScored: &skeinv1.ItemScored{ItemId: item, Score: w.random.Int64N(1000)},
		}}
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_SeenCleared{SeenCleared: &skeinv1.SeenCleared{UserId: user}}}
}

// soaking is the traffic of one soak.
type soaking struct {
	api *command.Client
	// calls were acknowledged.
	calls atomic.Uint64
}

// soakCalls is how many calls a second each writer makes at most, soakEvents of how many events:
// more, and an hour of log could not be folded again in minutes, as the repair at the end does.
const (
	soakCalls  = 100
	soakEvents = 10
	// soakSays is the time between two reports on the progress of the soak.
	soakSays = 30 * time.Second
)

// write publishes what the world does until the context ends, some of it as history that comes
// late.
func (f *soaking) write(ctx context.Context, t *testing.T, seed uint64) {
	w := soakWorld{rand.New(rand.NewPCG(seed, 0))}
	tick := time.NewTicker(time.Second / soakCalls)
	defer tick.Stop()
	for n := uint64(1); ; n++ {
		// A late event may be about a user who was deleted, and is refused then.
		req := &skeinv1.PublishRequest{AllowPartial: true}
		for range 1 + w.random.IntN(2*soakEvents-1) {
			req.Events = append(req.Events, w.event())
		}
		if n%8 == 0 {
			late := userFollowed(w.others())
			late.Source, late.Offset = fmt.Sprint("old", seed), n
			late.OccurredAt = timestamppb.New(time.Now().Add(-time.Duration(w.random.IntN(1000)) * time.Hour))
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
			// A busy machine: whether these are facts, the log decides.
		default:
			if err != nil {
				t.Error(err)
				return
			}
			f.calls.Add(1)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// soakFor is how long traffic is audited; the environment may ask for more.
func soakFor(t *testing.T) time.Duration {
	text := os.Getenv("SKEIN_SOAK")
	if text == "" {
		return 5 * time.Second // and for as long as a round takes then
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
	duration := soakFor(t)
	t.Logf("it lasts %v", duration)
	ctx, cancel := context.WithTimeout(t.Context(), 3*duration+5*patience)
	defer cancel()
	small := inbox.DefaultSettings()
	small.Threshold, small.Keep = 20, 50 // so that outboxes are pushed and pulled, and inboxes trimmed
	var running *service.Service
	var log lockedBuffer
	api, stop := startApp(t, t.TempDir(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		func(o *service.Options) {
			o.Settings = all.Settings{Inbox: small}
			o.Maintenance.AuditShare = 1
			o.OfferedOperations = func(a *service.Service) service.OfferedOperations { running = a; return a.OfferedOperations() }
		})
	defer stop()
	publish(t, api, userFollowed("quiet", "silent"))

	f := &soaking{api: api}
	working, rest := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for writer := range uint64(2) {
		wg.Go(func() { f.write(working, t, seed+writer) })
	}
	defer wg.Wait()
	defer rest()
	began := time.Now()
	demandQuiet(ctx, t, running, duration, rest)
	st := running.Auditor.Status()
	t.Logf("%v: %d calls, %d checks, %d rounds, the last in %v, up to %v verified", time.Since(began).Round(time.Second),
		f.calls.Load(), st.Checks, st.Rounds, st.LastTook.Round(time.Millisecond), st.VerifiedAt)
	if t.Failed() {
		t.Fatalf("the service says:\n%s", log.String())
	}
	demandFound(ctx, t, running, api, rest)
}

// demandQuiet demands that nothing is found for this long, and until a round is done and every
// projection verified. If these are not done by then, they are done without traffic.
func demandQuiet(ctx context.Context, t *testing.T, running *service.Service, duration time.Duration, calm func()) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for said := began; ; {
		st := running.Auditor.Status()
		if time.Since(said) > soakSays {
			said = time.Now()
			t.Logf("after %v: partition %d of round %d, %d checks, up to %v verified", time.Since(began).Round(time.Second),
				st.Partition, st.Rounds, st.Checks, st.VerifiedAt)
		}
		if len(st.Findings) > 0 || st.Unexplained > 0 || sumOf(st.Differences) > 0 || sumOf(st.Repaired) > 0 {
			t.Errorf("after %v: %+v", time.Since(began), st)
			return
		}
		if failed := running.Failed(); len(failed) > 0 {
			t.Errorf("after %v: %v failed", time.Since(began), failed)
			return
		}
		if time.Since(began) >= duration {
			// The first rounds were over next to nothing.
			if st.LastRound.Add(-st.LastTook).After(began.Add(duration/2)) && len(st.Verified) == len(running.Stores) {
				return
			}
			calm()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("%v after %v: %+v", ctx.Err(), time.Since(began), st)
			return
		}
	}
}

// demandFound takes a row from a store, and demands that the stores are found to disagree, that the
// row comes back, and that nothing is left unexplained. A shadow may happen to repair the row
// before an audit meets it: then it is taken again, and in the end without traffic, of which so
// much may wait to be checked that shadows are always first.
func demandFound(ctx context.Context, t *testing.T, running *service.Service, api *command.Client, calm func()) {
	t.Helper()
	live := running.Store("graph")
	follower := func(rows projections.Reader) (key []byte, err error) {
		prefix := graph.FollowersPrefix(nil, "silent")
		it := rows.Iter(prefix, projections.PrefixEnd(prefix))
		if it.Next() {
			key = append(key, it.Key()...)
		}
		return key, it.Close()
	}
	for try := range 20 {
		if try == 3 {
			calm()
		}
		before := running.Auditor.Status()
		err := live.Repair(ctx, func(_ events.Cursor, rows projections.Reader, m *store.Repair) error {
			key, err := follower(rows)
			if err == nil && key == nil {
				err = fmt.Errorf("try %d: silent has no follower", try)
			}
			m.Delete(key)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		// What is written lately is audited first. On a busy machine the stores may show it late.
		_, err = api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{Events: []*skeinv1.Event{userFollowed("quiet", "loud")}}))
		if err != nil && connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Fatal(err)
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		var st audit.Status
		for st = running.Auditor.Status(); st.Repaired["graph"] == before.Repaired["graph"]; st = running.Auditor.Status() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("the row is not repaired: %+v", st)
			}
		}
		if st.Unexplained > 0 {
			t.Errorf("unexplained: %s", st.LastFinding)
		}
		if st.Findings["graph"] > 0 {
			t.Logf("found at try %d: %s", try, st.LastFinding)
			return
		}
		t.Logf("try %d: a shadow was first", try)
	}
	t.Error("an audit never met the row that was missing")
}

func sumOf(counts map[string]uint64) (sum uint64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
