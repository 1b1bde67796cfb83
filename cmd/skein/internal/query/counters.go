package query

import (
	"context"
	"strconv"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type countersCmd struct {
	Users []string `arg:"" optional:"" help:"Users."`
	Board []string `help:"Boards." placeholder:"OWNER/BOARD" sep:"none"`
	Item  []string `help:"Items." placeholder:"ITEM" sep:"none"`
}

// Run calls BatchGetCounters.
func (c *countersCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Board)
	if err != nil {
		return err
	}
	req := &skeinv1.BatchGetCountersRequest{AtLeast: q.AtLeast}
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
	t := command.NewTable(std.Out, "OF", "PINS", "BOARDS", "FOLLOWERS", "PLAYS", "LIKES", "RE-PINS")
	of := append(append(append([]string(nil), c.Users...), c.Board...), c.Item...)
	text := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	plays := func(n *skeinv1.Counters) string { return strconv.FormatInt(n.GetPlayCount(), 10) }
	for i, n := range counters {
		cells := []string{of[i], text(n.GetPinCount()), "-", text(n.GetFollowerCount()), "-", "-", "-"}
		switch {
		case i < len(c.Users):
			cells[2], cells[4] = text(n.GetBoardCount()), plays(n)
		case i >= len(c.Users)+len(c.Board):
			cells = []string{of[i], "-", "-", "-", plays(n), text(n.GetLikeCount()), text(n.GetRepinCount())}
		}
		t.Row(cells...)
	}
	return t.Flush()
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
