package query

import (
	"context"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type feedCmd struct {
	Reader       string `arg:"" help:"The reader of the feed."`
	Order        string `help:"The order: ${enum}." enum:"newest,trending" default:"newest"`
	IncludeOwn   bool   `help:"The reader's own pins, too."`
	HideSeen     bool   `help:"Leave out what the reader has played or was served, as query seen does."`
	IgnoreServed bool   `help:"With --hide-seen, look at plays only."`
	OnePerItem   bool   `help:"Each item once, by the first of its pins."`
	Only         string `help:"Only pins of users whose follow has a setting, or of all: ${enum}." enum:"all,favorite,notify" default:"all"`

	PageSize  int32  `help:"Entries a page; 0 means 20, at most 200." default:"0"`
	PageToken string `help:"Begin where an earlier page ended." placeholder:"TOKEN" xor:"start"`
	NewerThan string `help:"Only what is above the top of an earlier page." placeholder:"TOKEN" xor:"start"`
	All       bool   `help:"All pages, to the end of the feed."`
}

var feedOrders = map[string]skeinv1.FeedOrder{
	"newest": skeinv1.FeedOrder_FEED_ORDER_NEWEST, "trending": skeinv1.FeedOrder_FEED_ORDER_TRENDING,
}

// Run calls ReadFeed.
func (c *feedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	var first *skeinv1.ReadFeedResponse
	pages := &pageFlags{PageSize: c.PageSize, PageToken: c.PageToken, All: c.All}
	header := []string{"OWNER", "PIN", "BOARD", "ITEM", "CREATED"}
	if c.Order == "trending" {
		header = append(header, "SCORE")
	}
	err := list(ctx, q, std, pages, q.Client().Feed().ReadFeed, c.request(q), header,
		func(res *skeinv1.ReadFeedResponse) [][]string {
			if first == nil {
				first = res
			}
			return q.pinRows(res.GetEntries(), c.Order == "trending")
		})
	if err != nil || first == nil {
		return err
	}
	if token := first.GetNewestToken(); token != "" {
		std.Sayf("later, what is new: --newer-than %s", token)
	}
	sayCompleteness(std, first.GetCompleteness())
	return nil
}

// request returns the request for a page. The first page follows from the flags, each other one from the token of the page before.
func (c *feedCmd) request(q *Cmd) func(size int32, token string) *skeinv1.ReadFeedRequest {
	return func(size int32, token string) *skeinv1.ReadFeedRequest {
		req := &skeinv1.ReadFeedRequest{
			ReaderId: c.Reader, PageSize: size, Order: feedOrders[c.Order], IncludeOwn: c.IncludeOwn, HideSeen: c.HideSeen,
			IgnoreServed: c.IgnoreServed, OnePerItem: c.OnePerItem, Only: followSettings[c.Only], AtLeast: q.AtLeast,
		}
		switch {
		case token != "":
			req.Start = &skeinv1.ReadFeedRequest_PageToken{PageToken: token}
		case c.NewerThan != "":
			req.Start = &skeinv1.ReadFeedRequest_NewerThan{NewerThan: c.NewerThan}
		}
		return req
	}
}

type pinsCmd struct {
	Owner     string  `arg:"" help:"Whose pins."`
	Board     *string `arg:"" optional:"" help:"Only those on this board; \"\" is the default board."`
	pageFlags `embed:""`
}

// Run calls ListPins.
func (c *pinsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Feed().ListPins,
		func(size int32, token string) *skeinv1.ListPinsRequest {
			req := &skeinv1.ListPinsRequest{
				Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: c.Owner}, PageSize: size, PageToken: token, AtLeast: q.AtLeast,
			}
			if c.Board != nil {
				req.Target = &skeinv1.ListPinsRequest_Board{Board: &skeinv1.Board{OwnerId: c.Owner, BoardId: *c.Board}}
			}
			return req
		},
		[]string{"OWNER", "PIN", "BOARD", "ITEM", "CREATED"},
		func(res *skeinv1.ListPinsResponse) [][]string { return q.pinRows(res.GetEntries(), false) })
}

type pinStatesCmd struct {
	Owner string   `arg:"" help:"Whose pins."`
	Pins  []string `arg:"" help:"The pins, at most 1000."`
}

// Run calls BatchGetPins.
func (c *pinStatesCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.BatchGetPinsRequest{AtLeast: q.AtLeast}
	for _, pin := range c.Pins {
		req.Pins = append(req.Pins, &skeinv1.Pin{OwnerId: c.Owner, PinId: pin})
	}
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Feed().BatchGetPins, req)
	if err != nil {
		return err
	}
	return q.print(std, res, func() error {
		t := command.NewTable(std.Out, "OWNER", "PIN", "LIVING", "BOARD", "ITEM", "CREATED")
		for _, p := range res.GetPins() {
			cells := []string{p.GetOwnerId(), p.GetPinId(), command.YesNo(p.GetLiving()), "-", "-", "-"}
			if p.GetLiving() {
				cells[3] = boardText(&skeinv1.Board{OwnerId: p.GetOwnerId(), BoardId: p.GetBoardId()})
				cells[4], cells[5] = p.GetItemId(), command.TimeText(p.GetCreateTime())
			}
			t.Row(cells...)
		}
		return t.Flush()
	})
}

func (q *Cmd) pinRows(entries []*skeinv1.FeedEntry, scored bool) [][]string {
	var rows [][]string
	for _, e := range entries {
		board := boardText(&skeinv1.Board{OwnerId: e.GetOwnerId(), BoardId: e.GetBoardId()})
		row := []string{e.GetOwnerId(), e.GetPinId(), board, e.GetItemId(), command.TimeText(e.GetCreateTime())}
		if scored {
			row = append(row, scoreText(e.GetScore()))
		}
		rows = append(rows, row)
	}
	return rows
}
