package query

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type countersCmd struct {
	Users []string `arg:"" optional:"" help:"Users."`
	Board []string `help:"Boards." placeholder:"OWNER/BOARD" sep:"none"`
	Item  []string `help:"Items." placeholder:"ITEM" sep:"none"`
	Kind  []string `help:"Kinds of reactions to count, at most 16; by default the first 16 of each item by name." placeholder:"KIND"`
}

// Run calls BatchGetCounters.
func (c *countersCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Board)
	if err != nil {
		return err
	}
	req := &skeinv1.BatchGetCountersRequest{AtLeast: q.AtLeast, ReactionKinds: c.Kind}
	for _, user := range c.Users {
		req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: user}})
	}
	for _, board := range boards {
		req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_Board{Board: board}})
	}
	for _, item := range c.Item {
		req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: item}})
	}
	if len(req.GetKeys()) == 0 {
		return command.Usagef("counters needs a user, a --board or an --item")
	}
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Counters().BatchGetCounters, req)
	if err != nil {
		return err
	}
	return q.print(std, res, func() error { return c.table(std, res.GetCounters()) })
}

// table prints the counts that apply to each key.
func (c *countersCmd) table(std *command.Streams, counters []*skeinv1.Counters) error {
	t := command.NewTable(std.Out, "OF", "PINS", "BOARDS", "FOLLOWERS", "PLAYS", "REACTIONS", "RE-PINS")
	of := append(append(append([]string(nil), c.Users...), c.Board...), c.Item...)
	text := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	plays := func(n *skeinv1.Counters) string { return strconv.FormatInt(n.GetPlayCount(), 10) }
	for i, n := range counters {
		cells := []string{of[i], text(n.GetPinCount()), "-", text(n.GetFollowerCount()), "-", "-", "-"}
		switch {
		case i < len(c.Users):
			cells[2], cells[4] = text(n.GetBoardCount()), plays(n)
		case i >= len(c.Users)+len(c.Board):
			cells = []string{of[i], "-", "-", "-", plays(n), reactionsText(n.GetReactions()), text(n.GetRepinCount())}
		}
		t.Row(cells...)
	}
	return t.Flush()
}

// reactionsText returns counts of reactions for people, such as "like=4,save=1".
func reactionsText(counts []*skeinv1.ReactionCount) string {
	var parts []string
	for _, c := range counts {
		parts = append(parts, fmt.Sprintf("%s=%d", c.GetKind(), c.GetCount()))
	}
	return cmp.Or(strings.Join(parts, ","), "-")
}

type reactionsCmd struct {
	User      string `arg:"" help:"Whose reactions."`
	Kind      string `help:"Their kind, such as save or _bookmark." default:"like" placeholder:"KIND"`
	pageFlags `embed:""`
}

// Run calls ListReactions.
func (c *reactionsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Counters().ListReactions,
		func(size int32, token string) *skeinv1.ListReactionsRequest {
			return &skeinv1.ListReactionsRequest{UserId: c.User, Kind: c.Kind, PageSize: size, PageToken: token, AtLeast: q.AtLeast}
		},
		[]string{"ITEM", "SINCE"},
		func(res *skeinv1.ListReactionsResponse) (rows [][]string) {
			for _, e := range res.GetEntries() {
				rows = append(rows, []string{e.GetItemId(), command.TimeText(e.GetReactTime())})
			}
			return rows
		})
}

type reactorsCmd struct {
	Item      string `arg:"" help:"The item."`
	Kind      string `help:"The kind of the reactions, such as save." default:"like" placeholder:"KIND"`
	Viewer    string `help:"Leave out users whom a block separates from this user." placeholder:"USER"`
	pageFlags `embed:""`
}

// Run calls ListReactors.
func (c *reactorsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Counters().ListReactors,
		func(size int32, token string) *skeinv1.ListReactorsRequest {
			return &skeinv1.ListReactorsRequest{
				ItemId: c.Item, Kind: c.Kind, ViewerId: c.Viewer, PageSize: size, PageToken: token, AtLeast: q.AtLeast,
			}
		},
		[]string{"USER", "SINCE"},
		func(res *skeinv1.ListReactorsResponse) (rows [][]string) {
			for _, e := range res.GetEntries() {
				rows = append(rows, []string{e.GetUserId(), command.TimeText(e.GetReactTime())})
			}
			return rows
		})
}

type trendingCmd struct {
	Owner string `help:"Only items that living pins of this author show." placeholder:"USER" xor:"scope"`
	Board string `help:"Only items that living pins on this board show." placeholder:"OWNER/BOARD" xor:"scope"`

	pageFlags `embed:""`
}

// Run calls ListTrending.
func (c *trendingCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	var board *skeinv1.Board
	if c.Board != "" {
		var err error
		if board, err = parseBoard(c.Board); err != nil {
			return err
		}
	}
	return list(ctx, q, std, &c.pageFlags, q.Client().Counters().ListTrending,
		func(size int32, token string) *skeinv1.ListTrendingRequest {
			req := &skeinv1.ListTrendingRequest{PageSize: size, PageToken: token, AtLeast: q.AtLeast}
			switch {
			case board != nil:
				req.Scope = &skeinv1.ListTrendingRequest_Board{Board: board}
			case c.Owner != "":
				req.Scope = &skeinv1.ListTrendingRequest_OwnerId{OwnerId: c.Owner}
			}
			return req
		},
		[]string{"ITEM", "SCORE"},
		func(res *skeinv1.ListTrendingResponse) [][]string {
			var rows [][]string
			for _, item := range res.GetItems() {
				rows = append(rows, []string{item.GetItemId(), scoreText(item.GetScore())})
			}
			return rows
		})
}

// scoreText returns a heat for people: its binary logarithm.
func scoreText(score int64) string { return strconv.FormatFloat(float64(score)/(1<<16), 'f', 3, 64) }
