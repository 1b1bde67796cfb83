package query

import (
	"context"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type explainCmd struct {
	feedFlags `embed:""`

	Pin   string `arg:"" help:"The pin: OWNER/PIN."`
	Order string `help:"The order of the feed: ${enum}." enum:"newest,trending" default:"newest"`
}

// Run calls ExplainPin.
func (c *explainCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	pin, err := parsePin(c.Pin)
	if err != nil {
		return err
	}
	req := &skeinv1.ExplainPinRequest{
		ReaderId: c.Reader, Pin: pin, Order: feedOrders[c.Order], IncludeOwn: c.IncludeOwn, HideSeen: c.HideSeen,
		IgnoreServed: c.IgnoreServed, OnePerItem: c.OnePerItem, Only: followSettings[c.Only],
	}
	return call(ctx, q, std, q.Client().Feed().ExplainPin, req, func(res *skeinv1.ExplainPinResponse) error {
		return c.printExplanation(std, res)
	})
}

func (c *explainCmd) printExplanation(std *command.Streams, res *skeinv1.ExplainPinResponse) error {
	// A pin in the feed has a rank, and a delivery: the way in which it came there. An absent pin
	// has reasons for its absence.
	reasons := "-"
	rank := "-"
	delivery := "-"
	if res.GetInFeed() {
		rank = strconv.Itoa(int(res.GetRank()))
		delivery = formatEnum(res.GetDelivery().String(), "PIN_DELIVERY_")
	} else {
		var names []string
		for _, reason := range res.GetReasons() {
			names = append(names, formatEnum(reason.String(), "ABSENCE_REASON_"))
		}
		reasons = strings.Join(names, ",")
	}

	created := "-"
	if res.GetPin().GetLiving() {
		created = command.TimeText(res.GetPin().GetCreateTime())
	}

	t := command.NewTable(std.Out, "PIN", "IN-FEED", "REASONS", "RANK", "DELIVERY", "CREATED")
	t.Row(c.Pin, command.YesNo(res.GetInFeed()), reasons, rank, delivery, created)
	if err := t.Flush(); err != nil {
		return err
	}
	sayCompleteness(std, res.GetCompleteness())
	return nil
}
