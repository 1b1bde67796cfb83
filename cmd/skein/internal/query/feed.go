package query

import (
	"context"
	"slices"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// feedFlags choose the feed of a reader and what belongs to it.
type feedFlags struct {
	Reader       string `arg:"" help:"The reader of the feed."`
	IncludeOwn   bool   `help:"Include the reader's own pins."`
	HideSeen     bool   `help:"Leave out what the reader has played, was served or hides, as query seen does."`
	IgnoreServed bool   `help:"With --hide-seen, do not leave out what was only served."`
	OnePerItem   bool   `help:"Include each item once, by the first of its pins."`
	Only         string `help:"Include only pins of users whose follow has this setting: ${enum}." enum:"all,favorite,notify" default:"all"`
}

var feedOrders = map[string]skeinv1.FeedOrder{
	"newest":   skeinv1.FeedOrder_FEED_ORDER_NEWEST,
	"trending": skeinv1.FeedOrder_FEED_ORDER_TRENDING,
}

type feedCmd struct {
	feedFlags `embed:""`
	pageFlags `embed:"" set:"pageDefault=20" set:"pageMost=200"`

	Order     string `help:"The order: ${enum}." enum:"newest,trending" default:"newest"`
	NewerThan string `help:"Only what is newer than an earlier page, given the token that was printed after it." placeholder:"TOKEN" xor:"start"`
}

// Run calls ReadFeed.
func (c *feedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ReadFeedRequest{
		ReaderId: c.Reader, Order: feedOrders[c.Order], IncludeOwn: c.IncludeOwn, HideSeen: c.HideSeen,
		IgnoreServed: c.IgnoreServed, OnePerItem: c.OnePerItem, Only: followSettings[c.Only],
	}
	if c.NewerThan != "" {
		req.Start = &skeinv1.ReadFeedRequest_NewerThan{NewerThan: c.NewerThan}
	}

	header := pinHeader
	rowOf := pinRow
	if c.Order == "trending" {
		header = slices.Concat(pinHeader, []string{"SCORE"})
		rowOf = func(e *skeinv1.FeedEntry) []string { return append(pinRow(e), formatScore(e.GetScore())) }
	}

	// first is the first page. It stays nil with --json, because list then prints the pages itself
	// and makes no rows.
	var first *skeinv1.ReadFeedResponse
	err := list(ctx, q, std, &c.pageFlags, q.Client().Feed().ReadFeed, req, header, func(res *skeinv1.ReadFeedResponse) [][]string {
		if first == nil {
			first = res
		}
		return mapRows(res.GetEntries(), rowOf)
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

// sayCompleteness says why a feed, or a count, is not complete. It says nothing if it is complete.
func sayCompleteness(std *command.Streams, c skeinv1.FeedCompleteness) {
	if c != skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE {
		std.Sayf("not complete: %s", formatEnum(c.String(), "FEED_COMPLETENESS_"))
	}
}

var pinHeader = []string{"OWNER", "PIN", "BOARD", "ITEM", "CREATED"}

func pinRow(e *skeinv1.FeedEntry) []string {
	board := &skeinv1.Board{OwnerId: e.GetOwnerId(), BoardId: e.GetBoardId()}
	return []string{e.GetOwnerId(), e.GetPinId(), formatBoard(board), e.GetItemId(), command.TimeText(e.GetCreateTime())}
}

type pinsCmd struct {
	Owner     string  `arg:"" help:"The owner of the pins."`
	Board     *string `arg:"" optional:"" help:"Only pins on this board; \"\" is the default board."`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListPins.
func (c *pinsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: c.Owner}}
	if c.Board != nil {
		req.Target = &skeinv1.ListPinsRequest_Board{Board: &skeinv1.Board{OwnerId: c.Owner, BoardId: *c.Board}}
	}
	return list(ctx, q, std, &c.pageFlags, q.Client().Feed().ListPins, req, pinHeader,
		func(res *skeinv1.ListPinsResponse) [][]string { return mapRows(res.GetEntries(), pinRow) })
}

type pinStatesCmd struct {
	Owner string   `arg:"" help:"The owner of the pins."`
	Pins  []string `arg:"" help:"The pins, at most 1000."`
}

// Run calls BatchGetPins.
func (c *pinStatesCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.BatchGetPinsRequest{}
	for _, pin := range c.Pins {
		req.Pins = append(req.Pins, &skeinv1.Pin{OwnerId: c.Owner, PinId: pin})
	}
	return call(ctx, q, std, q.Client().Feed().BatchGetPins, req, func(res *skeinv1.BatchGetPinsResponse) error {
		t := command.NewTable(std.Out, "OWNER", "PIN", "LIVING", "BOARD", "ITEM", "CREATED")
		for _, p := range res.GetPins() {
			board, item, created := "-", "-", "-"
			if p.GetLiving() {
				board = formatBoard(&skeinv1.Board{OwnerId: p.GetOwnerId(), BoardId: p.GetBoardId()})
				item = p.GetItemId()
				created = command.TimeText(p.GetCreateTime())
			}
			t.Row(p.GetOwnerId(), p.GetPinId(), command.YesNo(p.GetLiving()), board, item, created)
		}
		return t.Flush()
	})
}
