package serving

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// listLength is how many boards, excluded boards, blocked users and muted users each busy user
	// has.
	listLength = 20
	// watcherPlays is how many items each watcher has played, half of them in earlier months.
	watcherPlays = 200
	// pastMonths is how many months before this one have plays.
	pastMonths = 3
	// servedItems is how many items were served to each watcher.
	servedItems = 50
	// loadConnections is how many connections load events whose order does not matter.
	loadConnections = 4
)

// The ids of the boards that busy users exclude and follow, and the beginning of the ids of their
// own boards.
const excludedBoard, followedBoard, ownBoard = "videos", "clips", "board"

// loadWorld has the data of the service whose latencies are measured. Every method finds something
// in it.
type loadWorld struct {
	graph *workload.Graph
	// pins is how many pins there are. A pin shows an item with the number of the pin.
	pins int
	// authors has the owner of each pin.
	authors []uint32
	// busy has the users who have lists of every kind.
	busy []uint32
	// watchers is how many users have plays; they are the users with the lowest numbers.
	watchers int
	now      time.Time
}

// newLoadWorld makes the data of a product with a number of users and follows.
func newLoadWorld(users, edges int, now time.Time) *loadWorld {
	g := workload.NewGraph(users, edges, 41)
	w := &loadWorld{graph: g, pins: users, watchers: min(users, 2000), now: now}

	r := rand.New(rand.NewPCG(43, 0))
	for range w.pins {
		w.authors = append(w.authors, uint32(workload.PowerLaw(r, users, workload.FollowerSkew)))
	}
	w.busy = mostFollowing(g, min(users/10, 200))
	return w
}

// mostFollowing returns the n users who follow the most others.
func mostFollowing(g *workload.Graph, n int) []uint32 {
	byFollowees := make([]uint32, g.Users)
	for u := range byFollowees {
		byFollowees[u] = uint32(u)
	}
	slices.SortStableFunc(byFollowees, func(a, b uint32) int { return len(g.FolloweesOf(b)) - len(g.FolloweesOf(a)) })
	return byFollowees[:n]
}

// itemID returns the id of the item with a number.
func (w *loadWorld) itemID(item int) string { return strconv.Itoa(workload.FirstID + item) }

// itemCount returns how many items can be played: those that pins show, and as many again that no
// pin shows.
func (w *loadWorld) itemCount() int { return 2 * w.pins }

// load publishes the data in phases, and returns when reads show all of it. The events of a phase
// need those of the phases before.
func (w *loadWorld) load(ctx context.Context, s *programs.Skein) error {
	for _, phase := range [][]iter.Seq[*skeinv1.Event]{
		{w.graph.FollowEvents()},
		{w.listEvents()},
		{w.pinEvents(), w.recentActivity(), w.playHistory()},
	} {
		var sequences [][]*skeinv1.PublishRequest
		for _, evs := range phase {
			sequences = append(sequences, groupIntoCalls(evs, events.MaxEnvelopeEvents))
		}
		// In a phase with one list, no event needs another one, so several connections can load it.
		if len(sequences) == 1 {
			sequences = dealCalls(sequences[0], loadConnections)
		}
		if err := s.PublishSequences(ctx, sequences); err != nil {
			return err
		}
	}
	return nil
}

// groupIntoCalls puts events into calls that publish perCall events each.
func groupIntoCalls(evs iter.Seq[*skeinv1.Event], perCall int) (calls []*skeinv1.PublishRequest) {
	for ev := range evs {
		if len(calls) == 0 || len(calls[len(calls)-1].Events) == perCall {
			calls = append(calls, &skeinv1.PublishRequest{})
		}
		last := calls[len(calls)-1]
		last.Events = append(last.Events, ev)
	}
	return calls
}

// dealCalls gives calls to n sequences in turn.
func dealCalls(calls []*skeinv1.PublishRequest, n int) [][]*skeinv1.PublishRequest {
	sequences := make([][]*skeinv1.PublishRequest, n)
	for i, call := range calls {
		sequences[i%n] = append(sequences[i%n], call)
	}
	return sequences
}

// board returns the name of a board.
func board(owner uint32, id string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: workload.UserID(owner), BoardId: id}
}

// listEvents gives each busy user boards, followed and excluded boards, blocked and muted users.
func (w *loadWorld) listEvents() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		r := rand.New(rand.NewPCG(47, 0))
		for _, u := range w.busy {
			followees := w.graph.FolloweesOf(u)
			for i := range min(listLength, len(followees)) {
				followee := followees[i]
				nonFollowee := w.graph.RandomNonFollowee(r, u)
				for _, ev := range []*skeinv1.Event{
					{Kind: &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{
						Board: board(u, ownBoard+strconv.Itoa(i)), Title: "Board " + strconv.Itoa(i),
					}}},
					{Kind: &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{
						UserId: workload.UserID(u), Board: board(followee, excludedBoard),
					}}},
					{Kind: &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{
						UserId: workload.UserID(u), Board: board(nonFollowee, followedBoard),
					}}},
					{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{
						UserId: workload.UserID(u), TargetUserId: workload.UserID(followee),
					}}},
					// A block ends follows, so the blocked users are not in the graph.
					{Kind: &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{
						UserId: workload.UserID(u), TargetUserId: workload.UserID(uint32(w.graph.Users + i)),
					}}},
				} {
					if !yield(ev) {
						return
					}
				}
			}
		}
	}
}

// pinName returns the name of the pin with a number.
func (w *loadWorld) pinName(i int) *skeinv1.Pin {
	return &skeinv1.Pin{OwnerId: workload.UserID(w.authors[i%len(w.authors)]), PinId: w.itemID(i)}
}

// pinCreated returns the event that creates the pin with a number.
func (w *loadWorld) pinCreated(i int) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin:        w.pinName(i),
		Attributes: []byte(`{"ratio":"16:9","seconds":42}`),
	}}}
}

// pinEvents creates all pins.
func (w *loadWorld) pinEvents() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for i := range w.pins {
			if !yield(w.pinCreated(i)) {
				return
			}
		}
	}
}

// playEvent returns the event that a user plays an item.
func playEvent(user uint32, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: workload.UserID(user), ItemId: item}}}
}

// likeEvent returns the event that a user likes an item.
func likeEvent(user uint32, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: workload.UserID(user), ItemId: item}}}
}

// playedItem returns the item of the n-th play of a watcher. It is always the same one. Popular
// items are drawn more often.
func (w *loadWorld) playedItem(watcher, n int) string {
	r := rand.New(rand.NewPCG(uint64(watcher), uint64(n)))
	return w.itemID(workload.PowerLaw(r, w.itemCount(), workload.PlaySkew))
}

// recentActivity gives each watcher the plays of this month, a like of every tenth played item,
// served items, and one hidden item.
func (w *loadWorld) recentActivity() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for watcher := range w.watchers {
			for n := range watcherPlays / 2 {
				item := w.playedItem(watcher, n)
				if !yield(playEvent(uint32(watcher), item)) {
					return
				}
				if n%10 == 0 && !yield(likeEvent(uint32(watcher), item)) {
					return
				}
			}

			served := &skeinv1.Served{UserId: workload.UserID(uint32(watcher))}
			for n := range servedItems {
				served.ItemIds = append(served.ItemIds, w.playedItem(watcher, watcherPlays+n))
			}

			hidden := &skeinv1.ItemHidden{UserId: workload.UserID(uint32(watcher)), ItemId: w.playedItem(watcher, watcherPlays)}
			if !yield(&skeinv1.Event{Kind: &skeinv1.Event_Served{Served: served}}) ||
				!yield(&skeinv1.Event{Kind: &skeinv1.Event_ItemHidden{ItemHidden: hidden}}) {
				return
			}
		}
	}
}

// playHistory gives each watcher the plays of earlier months. They are backfills, which are events
// with a time of their own.
func (w *loadWorld) playHistory() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		offset := uint64(0)
		for watcher := range w.watchers {
			for n := range watcherPlays / 2 {
				offset++
				ev := playEvent(uint32(watcher), w.playedItem(watcher, watcherPlays/2+n))
				ev.Source = "history"
				ev.Offset = offset
				ev.OccurredAt = timestamppb.New(w.now.AddDate(0, 0, -30*(1+n%pastMonths)))
				if !yield(ev) {
					return
				}
			}
		}
	}
}

// writtenEvent returns the i-th of the events that are published while the service is measured. Of
// ten of them, five are plays, two likes, two follows and one is a pin.
func (w *loadWorld) writtenEvent(i int) *skeinv1.Event {
	r := rand.New(rand.NewPCG(53, uint64(i)))
	user := uint32(r.IntN(w.graph.Users))
	item := w.itemID(workload.PowerLaw(r, w.itemCount(), workload.PlaySkew))
	switch i % 10 {
	case 0:
		return w.pinCreated(w.itemCount() + i) // a pin with a new number
	case 1, 2:
		return likeEvent(user, item)
	case 3, 4:
		followee := (int(user) + 1 + workload.PowerLaw(r, w.graph.Users-1, workload.FolloweeSkew)) % w.graph.Users
		return workload.UserFollowed(user, workload.UserID(uint32(followee)))
	default:
		return playEvent(user, item)
	}
}

// writtenEvents returns n of these events, from number from on.
func (w *loadWorld) writtenEvents(from, n int) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for i := range n {
			if !yield(w.writtenEvent(from + i)) {
				return
			}
		}
	}
}
