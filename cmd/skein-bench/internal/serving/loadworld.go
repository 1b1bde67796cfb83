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
	// listLength is how long the lists are that are not of the graph's power laws: boards, exclusions, blocks, mutes.
	listLength = 20
	// watcherPlays are the plays of each watcher, half of them in the months before.
	watcherPlays = 200
	// pastMonths are the months before this one in which watchers played.
	pastMonths = 3
	// servedItems were sent to each watcher.
	servedItems = 50
	loadSources = 4
)

// The boards that busy users exclude, follow and have.
const excludedBoard, followedBoard, ownBoard = "videos", "clips", "board"

// loadWorld is what the service holds whose latencies are measured: some of everything that a method can be asked about.
type loadWorld struct {
	graph *workload.Graph
	// pins is how many there are; the pin is of the author that a power law gives, and shows an item of its own number.
	pins    int
	authors []uint32
	// busy users have lists of every kind, watchers have played.
	busy     []uint32
	watchers int
	now      time.Time
}

// newLoadWorld makes a world of about so many follows.
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

// mostFollowing returns the n users who follow most others.
func mostFollowing(g *workload.Graph, n int) []uint32 {
	byFollowees := make([]uint32, g.Users)
	for u := range byFollowees {
		byFollowees[u] = uint32(u)
	}
	slices.SortStableFunc(byFollowees, func(a, b uint32) int { return len(g.Of(b)) - len(g.Of(a)) })
	return byFollowees[:n]
}

func (w *loadWorld) itemID(item int) string { return strconv.Itoa(workload.FirstID + item) }

// items is how many items can be played: those of the pins, and as many again that no pin shows.
func (w *loadWorld) items() int { return 2 * w.pins }

// load publishes the world in phases, of which each needs the one before. It is visible then.
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
		if len(sequences) == 1 { // no event of it needs another
			sequences = dealCalls(sequences[0], loadSources)
		}
		if err := s.PublishSequences(ctx, sequences); err != nil {
			return err
		}
	}
	return nil
}

// groupIntoCalls are the events in calls of so many.
func groupIntoCalls(evs iter.Seq[*skeinv1.Event], together int) (calls []*skeinv1.PublishRequest) {
	for ev := range evs {
		if len(calls) == 0 || len(calls[len(calls)-1].Events) == together {
			calls = append(calls, &skeinv1.PublishRequest{})
		}
		last := calls[len(calls)-1]
		last.Events = append(last.Events, ev)
	}
	return calls
}

// dealCalls are the calls, dealCalls out to n sequences.
func dealCalls(calls []*skeinv1.PublishRequest, n int) [][]*skeinv1.PublishRequest {
	sequences := make([][]*skeinv1.PublishRequest, n)
	for i, call := range calls {
		sequences[i%n] = append(sequences[i%n], call)
	}
	return sequences
}

func board(owner uint32, id string) *skeinv1.Board {
	return &skeinv1.Board{OwnerId: workload.UserID(owner), BoardId: id}
}

// lists give each busy user boards, followed and excluded boards, blocked and muted users.
func (w *loadWorld) listEvents() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		r := rand.New(rand.NewPCG(47, 0))
		for _, u := range w.busy {
			followees := w.graph.Of(u)
			for i := range min(listLength, len(followees)) {
				other, stranger := followees[i], w.graph.RandomNonFollowee(r, u)
				for _, ev := range []*skeinv1.Event{
					{Kind: &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{
						Board: board(u, ownBoard+strconv.Itoa(i)), Title: "Board " + strconv.Itoa(i),
					}}},
					{Kind: &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{
						UserId: workload.UserID(u), Board: board(other, excludedBoard),
					}}},
					{Kind: &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{
						UserId: workload.UserID(u), Board: board(stranger, followedBoard),
					}}},
					{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: workload.UserID(u), TargetUserId: workload.UserID(other)}}},
					// Of users who are not in the graph: a block ends follows.
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

// pinName names the post of that number.
func (w *loadWorld) pinName(i int) *skeinv1.Pin {
	return &skeinv1.Pin{OwnerId: workload.UserID(w.authors[i%len(w.authors)]), PinId: w.itemID(i)}
}

// pin is the post of that number.
func (w *loadWorld) pinCreated(i int) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin:        w.pinName(i),
		Attributes: []byte(`{"ratio":"16:9","seconds":42}`),
	}}}
}

func (w *loadWorld) pinEvents() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for i := range w.pins {
			if !yield(w.pinCreated(i)) {
				return
			}
		}
	}
}

func played(user uint32, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: workload.UserID(user), ItemId: item}}}
}

func liked(user uint32, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: workload.UserID(user), ItemId: item}}}
}

// watched is the item of the n-th play of a watcher, popular ones more often than others.
func (w *loadWorld) playedItem(watcher, n int) string {
	r := rand.New(rand.NewPCG(uint64(watcher), uint64(n)))
	return w.itemID(workload.PowerLaw(r, w.items(), workload.PlaySkew))
}

// activity has the plays of this month, a like for every tenth, what was served, and an item that each watcher hides.
func (w *loadWorld) recentActivity() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for watcher := range w.watchers {
			for n := range watcherPlays / 2 {
				item := w.playedItem(watcher, n)
				if !yield(played(uint32(watcher), item)) || n%10 == 0 && !yield(liked(uint32(watcher), item)) {
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

// history are the plays of the months before.
func (w *loadWorld) playHistory() iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		offset := uint64(0)
		for watcher := range w.watchers {
			for n := range watcherPlays / 2 {
				offset++
				ev := played(uint32(watcher), w.playedItem(watcher, watcherPlays/2+n))
				ev.Source, ev.Offset = "history", offset
				ev.OccurredAt = timestamppb.New(w.now.AddDate(0, 0, -30*(1+n%pastMonths)))
				if !yield(ev) {
					return
				}
			}
		}
	}
}

// written is the i-th event of what continues to be written: of ten five are plays, two likes, two follows and one is a pin.
func (w *loadWorld) writtenEvent(i int) *skeinv1.Event {
	r := rand.New(rand.NewPCG(53, uint64(i)))
	user, item := uint32(r.IntN(w.graph.Users)), w.itemID(workload.PowerLaw(r, w.items(), workload.PlaySkew))
	switch i % 10 {
	case 0:
		return w.pinCreated(w.items() + i)
	case 1, 2:
		return liked(user, item)
	case 3, 4:
		followee := (int(user) + 1 + workload.PowerLaw(r, w.graph.Users-1, workload.FolloweeSkew)) % w.graph.Users
		return workload.UserFollowed(user, workload.UserID(uint32(followee)))
	default:
		return played(user, item)
	}
}

// writes are n events of those from a number on.
func (w *loadWorld) writtenEvents(from, n int) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for i := range n {
			if !yield(w.writtenEvent(from + i)) {
				return
			}
		}
	}
}
