package model_test

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/model"
)

// scenarioRanked is the number of pins that are ranked by heat.
const scenarioRanked = 5

// scenarioHeat are the settings of the scenarios. An event at 10 adds twice as much as one at 0.
var scenarioHeat = model.HeatSettings{
	HalfLife: 10, Play: 1, Repin: 8, Reactions: map[string]uint32{"": 4, "save": 3},
}

// answerFeedQuestion answers the questions about pins, feeds and items. The answer to feed+ has the
// reader's own pins. A score is formatted in doublings and sixteenths if it is a whole number of
// sixteenths, and as it is if not.
func answerFeedQuestion(history []events.Event, q []string) (string, bool) {
	g := model.New(history)
	last := q[len(q)-1]
	switch q[0] {
	case "feed", "feed+":
		return formatPins(g.Feed(last, q[0] == "feed+")), true
	case "unread":
		return formatPins(model.After(g.Read(last), g.Feed(last, false))), true
	case "once":
		return formatPins(model.OnePerItem(g.Feed(last, false))), true
	case "trending":
		return formatPins(g.TrendingFeed(last, false, scenarioRanked, func(item string) (int64, bool) {
			return model.Heat(history, item, scenarioHeat)
		})), true
	case "pins":
		if owner, board, ok := strings.Cut(last, "/"); ok {
			return formatPins(g.BoardPins(owner, strings.TrimPrefix(board, "-"))), true
		}
		return formatPins(g.Pins(last)), true
	case "liked":
		return fmt.Sprint(g.Reacted(q[1], last, "")), true
	case "reactions":
		return formatReactions(g.Reactions(q[1], events.ReactionOf(last))), true
	case "reactors":
		return formatReactors(g.Reactors(q[1], events.ReactionOf(last))), true
	case "kinds":
		return formatReactionCounts(g.ReactionCounts(last)), true
	case "own":
		return formatReactionNames(g.OwnReactions(q[1], last)), true
	case "heat":
		score, ok := model.Heat(history, last, scenarioHeat)
		switch {
		case !ok:
			return "none", true
		case score%4096 != 0 || score < 0:
			return fmt.Sprint(score), true
		}
		return fmt.Sprintf("%d+%d/16", score/65536, score%65536/4096), true
	}
	return "", false
}

// formatReactions and the functions below format the answers to questions about reactions.
func formatReactions(list []model.Reaction) string {
	words := make([]string, len(list))
	for i, r := range list {
		words[i] = fmt.Sprint(r.Item, " ", r.Since)
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}

func formatReactors(list []model.Reactor) string {
	words := make([]string, len(list))
	for i, r := range list {
		words[i] = fmt.Sprint(r.User, " ", r.Since)
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}

func formatReactionCounts(list []model.ReactionCount) string {
	words := make([]string, len(list))
	for i, r := range list {
		words[i] = fmt.Sprint(events.ReactionName(r.Reaction), " ", r.Count)
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}

func formatReactionNames(kinds []string) string {
	words := make([]string, len(kinds))
	for i, kind := range kinds {
		words[i] = events.ReactionName(kind)
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}

func formatPins(list []model.Pin) string {
	words := make([]string, 0, len(list))
	for _, p := range list {
		name := p.Owner + "/" + p.Board
		if p.Board == "" {
			name += "-"
		}
		name = fmt.Sprintf("%s %s %d", name, p.ID, p.Created)
		if p.Item != p.ID {
			name += " " + p.Item
		}
		if p.Edited != 0 {
			name += fmt.Sprintf(" edited %d %q", p.Edited, p.Attributes)
		}
		words = append(words, name)
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", ")
}

// TestPinIsAsItWasCreated checks that a second creation of an existing pin changes nothing, and
// that a move changes the board only.
func TestPinIsAsItWasCreated(t *testing.T) {
	g := model.New([]events.Event{
		{Kind: events.PinCreated, User: "bob", Pin: "p", Item: "i", Board: "art", Attributes: []byte("a"), Time: 10},
		{Kind: events.PinCreated, User: "bob", Pin: "p", Item: "j", Board: "art", Attributes: []byte("b"), Time: 20},
		{Kind: events.PinMoved, User: "bob", Pin: "p", Board: "cats", Time: 30},
	})
	want := []model.Pin{{Owner: "bob", ID: "p", Board: "cats", Item: "i", Attributes: []byte("a"), Created: 10}}
	if got := g.Pins("bob"); !reflect.DeepEqual(got, want) {
		t.Errorf("got the pins %+v, want %+v", got, want)
	}
}
