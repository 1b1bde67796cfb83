package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// people are the users of the demo. The tour is about ada.
var people = []string{
	"greta", "hugo", "mina", "noor", "kaia", "rosa", "ines", "yuki", "olga", "pablo", "ada", "bjorn", "chen", "dara",
	"elif", "farid", "jonas", "liam", "quinn", "sven", "tara", "uma", "vera", "wim", "xenia", "zoe", "aiko", "bruno",
	"carla", "deniz", "emre", "fleur", "gita", "hana", "ivan", "juno",
}

// demoBoards are the boards of the demo.
var demoBoards = []struct{ owner, board, title string }{
	{"greta", "sourdough", "Sourdough, from starter to crust"},
	{"greta", "garden", "A very small garden"},
	{"hugo", "bikes", "Old bicycles, made to run"},
	{"hugo", "maps", "Maps of places that are not"},
	{"mina", "synths", "Synthesisers from scrap"},
	{"mina", "covers", "Covers, one take"},
	{"noor", "tonight", "What is in the sky tonight"},
	{"kaia", "fjords", "Fjords by kayak"},
	{"rosa", "tacos", "Taco of the week"},
	{"ines", "stairs", "Every staircase of Lisbon"},
	{"yuki", "kites", "Kites"},
	{"olga", "endgames", "Endgames worth knowing"},
}

// demoPins are the recent pins on those boards, the latest last. The latest of all are hugo's,
// because ada follows hugo in the tour.
var demoPins = []struct{ owner, board, pin string }{
	{"ada", "", "window-seat"},
	{"ada", "", "night-train"},
	{"olga", "endgames", "lucena"},
	{"chen", "", "noodles"},
	{"yuki", "kites", "rokkaku"},
	{"greta", "sourdough", "day-1"},
	{"kaia", "fjords", "night-crossing"},
	{"mina", "covers", "one-take-7"},
	{"greta", "garden", "tomatoes"},
	{"noor", "tonight", "saturn"},
	{"rosa", "tacos", "al-pastor"},
	{"mina", "synths", "ladder-filter"},
	{"greta", "sourdough", "crust"},
	{"hugo", "maps", "sunken-city"},
	{"hugo", "bikes", "frame-1952"},
}

// demoRepins are re-pins on the default boards of their owners, the latest last.
var demoRepins = []struct{ owner, ofOwner, ofPin string }{
	{"noor", "ada", "window-seat"},
	{"hugo", "ada", "window-seat"},
	{"mina", "yuki", "rokkaku"},
}

// demoPlays has the numbers of plays of the items today and yesterday. ada is the eleventh user to
// play the most popular one.
var demoPlays = []struct {
	item  string
	plays int
}{{"al-pastor", 2}, {"tomatoes", 3}, {"saturn", 5}, {"crust", 8}, {"frame-1952", 13}}

// demoReactions are the reactions to pins, the latest last. ada, who blocks ivan and mutes chen,
// does not see that ivan saved crust, and no notification of ada names either of them.
var demoReactions = []struct{ user, owner, pin, kind string }{
	{"mina", "ada", "night-train", ""},
	{"ivan", "ada", "window-seat", ""},
	{"chen", "ada", "window-seat", ""},
	{"noor", "ada", "window-seat", ""},
	{"kaia", "ada", "window-seat", ""},
	{"hugo", "ada", "window-seat", "wow"},
	{"greta", "ada", "window-seat", ""},
	{"ada", "yuki", "rokkaku", "_bookmark"},
	{"hugo", "greta", "crust", ""},
	{"ivan", "greta", "crust", "save"},
	{"mina", "greta", "crust", "save"},
	{"noor", "greta", "crust", ""},
	{"ada", "greta", "crust", ""},
	{"kaia", "hugo", "frame-1952", "wow"},
}

const demoSource = "demo"

// world is the history of the demo. It is the same in every demo, except for the day on which it
// ends.
type world struct {
	events []*skeinv1.Event
	rng    *rand.Rand
	now    time.Time
}

// newEmptyWorld returns a world in which nothing has happened yet.
func newEmptyWorld() *world {
	return &world{rng: rand.New(rand.NewPCG(7, 411)), now: time.Now().UTC().Truncate(time.Minute)}
}

// newWorld returns the history of the demo.
func newWorld() *world {
	w := newEmptyWorld()
	for _, b := range demoBoards {
		w.addEvent(w.randomTimeAgo(700, 730), boardCreated(b.owner, b.board, b.title))
	}
	// Users at the beginning of the list are more popular.
	for i, follower := range people {
		for j, user := range people {
			popularity := 0.9 / (1 + 0.25*float64(j))
			if i != j && follower != "ada" && w.rng.Float64() < popularity {
				w.addEvent(w.randomTimeAgo(10, 690), userFollowed(follower, user))
			}
		}
		for _, b := range demoBoards {
			if b.owner != follower && follower != "ada" && w.rng.Float64() < 0.08 {
				w.addEvent(w.randomTimeAgo(10, 690), boardFollowed(follower, b.owner, b.board))
			}
		}
	}
	w.addTourHistory()
	for i, p := range demoPins {
		w.addEvent(w.now.Add(-time.Duration(len(demoPins)-i)*5*time.Hour), pinCreated(p.owner, p.board, p.pin))
	}
	for i, r := range demoRepins {
		w.addEvent(w.now.Add(-time.Duration(len(demoRepins)-i)*7*time.Hour), repinCreated(r.owner, r.ofOwner, r.ofPin))
	}
	for _, p := range demoPlays {
		for i := range p.plays {
			w.addEvent(w.now.Add(-time.Duration(i+1)*time.Hour), played(people[i], p.item))
		}
	}
	for i, r := range demoReactions {
		w.addEvent(w.now.Add(-time.Duration(len(demoReactions)-i)*20*time.Minute), reactedTo(r.user, r.owner, r.pin, r.kind))
	}
	w.numberEvents()
	return w
}

// numberEvents sorts the events by their times, and numbers them as the history of one source.
func (w *world) numberEvents() {
	slices.SortStableFunc(w.events, func(a, b *skeinv1.Event) int {
		return a.GetOccurredAt().AsTime().Compare(b.GetOccurredAt().AsTime())
	})
	for i, ev := range w.events {
		ev.Source = demoSource
		ev.Offset = uint64(i + 1)
	}
}

// addTourHistory adds the part of the history that the tour shows.
func (w *world) addTourHistory() {
	for i, user := range []string{"greta", "kaia", "noor", "bjorn", "chen", "sven"} {
		w.addEvent(w.daysAgo(600-90*i), userFollowed("ada", user))
	}
	w.addEvent(w.daysAgo(100), userFollowed("sven", "ada"))
	w.addEvent(w.daysAgo(80), boardFollowed("ada", "mina", "synths"))
	w.addEvent(w.daysAgo(60), boardUnfollowed("ada", "greta", "garden"))
	w.addEvent(w.daysAgo(50), &skeinv1.Event{Kind: &skeinv1.Event_UserMuted{
		UserMuted: &skeinv1.UserMuted{UserId: "ada", TargetUserId: "chen"},
	}})
	w.addEvent(w.daysAgo(40), &skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{
		UserBlocked: &skeinv1.UserBlocked{UserId: "ada", TargetUserId: "ivan"},
	}})
}

// addEvent adds an event that happened at a time.
func (w *world) addEvent(at time.Time, ev *skeinv1.Event) {
	ev.OccurredAt = timestamppb.New(at)
	w.events = append(w.events, ev)
}

func (w *world) daysAgo(days int) time.Time { return w.now.AddDate(0, 0, -days) }

// randomTimeAgo returns a random time from some number of days ago to another.
func (w *world) randomTimeAgo(from, to int) time.Time {
	return w.daysAgo(from + w.rng.IntN(to-from)).Add(-time.Duration(w.rng.IntN(24*60)) * time.Minute)
}

// publish publishes the history and waits until it is visible.
func (w *world) publish(ctx context.Context, api *command.Client) error {
	for batch := range slices.Chunk(w.events, events.MaxEnvelopeEvents) {
		_, err := api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{
			Events: batch, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

func userFollowed(follower, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{
		UserFollowed: &skeinv1.UserFollowed{UserId: follower, TargetUserId: user},
	}}
}

func boardCreated(owner, board, title string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{
		Board: &skeinv1.Board{OwnerId: owner, BoardId: board}, Title: title,
	}}}
}

func pinCreated(owner, board, pin string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin: &skeinv1.Pin{OwnerId: owner, PinId: pin}, BoardId: board,
	}}}
}

// repinCreated states a re-pin of a pin that shows the item of the same id. The id of the new pin
// is the one that the phones of the console give to such a re-pin.
func repinCreated(owner, ofOwner, ofPin string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin:     &skeinv1.Pin{OwnerId: owner, PinId: ofOwner + "." + ofPin},
		ItemId:  ofPin,
		RepinOf: &skeinv1.Pin{OwnerId: ofOwner, PinId: ofPin},
	}}}
}

// reactedTo states a reaction to a pin that shows the item of the same id. It names the pin, so
// that the owner of the pin is notified.
func reactedTo(user, owner, pin, kind string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{
		UserId: user, ItemId: pin, Kind: kind, Pin: &skeinv1.Pin{OwnerId: owner, PinId: pin},
	}}}
}

func played(user, item string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: user, ItemId: item}}}
}

func boardFollowed(follower, owner, board string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{
		UserId: follower, Board: &skeinv1.Board{OwnerId: owner, BoardId: board},
	}}}
}

func boardUnfollowed(follower, owner, board string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{
		UserId: follower, Board: &skeinv1.Board{OwnerId: owner, BoardId: board},
	}}}
}
