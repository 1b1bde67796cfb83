package query

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type countersCmd struct {
	Users  []string `arg:"" optional:"" help:"Users."`
	Boards []string `name:"board" help:"A board; repeat for several." placeholder:"OWNER/BOARD" sep:"none"`
	Items  []string `name:"item" help:"An item; repeat for several." placeholder:"ITEM" sep:"none"`
	Kinds  []string `name:"kind" help:"Kinds of reactions to count, at most 16; by default the first 16 of each item by name." placeholder:"KIND"`
}

// Run calls BatchGetCounters.
func (c *countersCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Boards)
	if err != nil {
		return err
	}
	req := &skeinv1.BatchGetCountersRequest{ReactionKinds: c.Kinds}
	for _, user := range c.Users {
		req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: user}})
	}
	for _, board := range boards {
		req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_Board{Board: board}})
	}
	for _, item := range c.Items {
		req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: item}})
	}
	if len(req.GetKeys()) == 0 {
		return command.Usagef("query counters needs a user, a --board or an --item")
	}

	return call(ctx, q, std, q.Client().Counters().BatchGetCounters, req, func(res *skeinv1.BatchGetCountersResponse) error {
		return c.printCounters(std, res.GetCounters())
	})
}

// printCounters prints a row for each user, board and item of the request. A row has a dash in
// place of a count that its user, board or item does not have.
func (c *countersCmd) printCounters(std *command.Streams, counters []*skeinv1.Counters) error {
	t := command.NewTable(std.Out, "OF", "PINS", "BOARDS", "FOLLOWERS", "PLAYS", "REACTIONS", "RE-PINS")
	targets := slices.Concat(c.Users, c.Boards, c.Items) // in the order of the keys
	for i, n := range counters {
		pins := formatCount(n.GetPinCount())
		followers := formatCount(n.GetFollowerCount())
		plays := strconv.FormatInt(n.GetPlayCount(), 10)
		switch {
		case i < len(c.Users):
			t.Row(targets[i], pins, formatCount(n.GetBoardCount()), followers, plays, "-", "-")
		case i < len(c.Users)+len(c.Boards):
			t.Row(targets[i], pins, "-", followers, "-", "-", "-")
		default:
			t.Row(targets[i], "-", "-", "-", plays, formatReactions(n.GetReactions()), formatCount(n.GetRepinCount()))
		}
	}
	return t.Flush()
}

// formatReactions returns counts of reactions in the form "like=4,save=1", or a dash if there are
// none.
func formatReactions(counts []*skeinv1.ReactionCount) string {
	var parts []string
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%s=%d", c.GetKind(), c.GetCount()))
	}
	return cmp.Or(strings.Join(parts, ","), "-")
}

type reactionsCmd struct {
	User      string `arg:"" help:"The user who reacted."`
	Kind      string `help:"The kind of the reactions, such as save or _bookmark." default:"like" placeholder:"KIND"`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListReactions.
func (c *reactionsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	rowOf := func(e *skeinv1.ReactionEntry) []string {
		return []string{e.GetItemId(), command.TimeText(e.GetReactTime())}
	}
	req := &skeinv1.ListReactionsRequest{UserId: c.User, Kind: c.Kind}
	return list(ctx, q, std, &c.pageFlags, q.Client().Counters().ListReactions, req, []string{"ITEM", "SINCE"},
		func(res *skeinv1.ListReactionsResponse) [][]string { return mapRows(res.GetEntries(), rowOf) })
}

type reactorsCmd struct {
	Item      string `arg:"" help:"The item."`
	Kind      string `help:"The kind of the reactions, such as save." default:"like" placeholder:"KIND"`
	Viewer    string `help:"Leave out users whom a block separates from this user." placeholder:"USER"`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListReactors.
func (c *reactorsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	rowOf := func(e *skeinv1.ReactorEntry) []string {
		return []string{e.GetUserId(), command.TimeText(e.GetReactTime())}
	}
	req := &skeinv1.ListReactorsRequest{ItemId: c.Item, Kind: c.Kind, ViewerId: c.Viewer}
	return list(ctx, q, std, &c.pageFlags, q.Client().Counters().ListReactors, req, userHeader,
		func(res *skeinv1.ListReactorsResponse) [][]string { return mapRows(res.GetEntries(), rowOf) })
}

type trendingCmd struct {
	Owner string `help:"Only items that living pins of this author show." placeholder:"USER" xor:"scope"`
	Board string `help:"Only items that living pins on this board show." placeholder:"OWNER/BOARD" xor:"scope"`

	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListTrending.
func (c *trendingCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListTrendingRequest{}
	switch {
	case c.Board != "":
		board, err := parseBoard(c.Board)
		if err != nil {
			return err
		}
		req.Scope = &skeinv1.ListTrendingRequest_Board{Board: board}
	case c.Owner != "":
		req.Scope = &skeinv1.ListTrendingRequest_OwnerId{OwnerId: c.Owner}
	}

	rowOf := func(item *skeinv1.TrendingItem) []string {
		return []string{item.GetItemId(), formatScore(item.GetScore())}
	}
	return list(ctx, q, std, &c.pageFlags, q.Client().Counters().ListTrending, req, []string{"ITEM", "SCORE"},
		func(res *skeinv1.ListTrendingResponse) [][]string { return mapRows(res.GetItems(), rowOf) })
}

// formatScore returns the score of an item as the API has it, a binary logarithm in units of
// 1/65536, as a decimal number.
func formatScore(score int64) string { return strconv.FormatFloat(float64(score)/(1<<16), 'f', 3, 64) }
