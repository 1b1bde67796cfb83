package query

import (
	"context"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type explainCmd struct {
	Reader       string `arg:"" help:"The reader of the feed."`
	Pin          string `arg:"" help:"The pin: OWNER/PIN."`
	Order        string `help:"The order of the feed: ${enum}." enum:"newest,trending" default:"newest"`
	IncludeOwn   bool   `help:"The feed has the reader's own pins, too."`
	HideSeen     bool   `help:"The feed leaves out what the reader has played or was served."`
	IgnoreServed bool   `help:"With --hide-seen, the feed looks at plays only."`
	OnePerItem   bool   `help:"The feed has each item once."`
	Only         string `help:"The feed has only pins of users whose follow has a setting, or of all: ${enum}." enum:"all,favorite,notify" default:"all"`
}

// Run calls ExplainPin.
func (c *explainCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	pin, err := parsePin(c.Pin)
	if err != nil {
		return err
	}
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Feed().ExplainPin, &skeinv1.ExplainPinRequest{
		ReaderId: c.Reader, Pin: pin, Order: feedOrders[c.Order], IncludeOwn: c.IncludeOwn, HideSeen: c.HideSeen,
		IgnoreServed: c.IgnoreServed, OnePerItem: c.OnePerItem, Only: followSettings[c.Only], AtLeast: q.AtLeast,
	})
	if err != nil {
		return err
	}
	return q.print(std, res, func() error {
		t := command.NewTable(std.Out, "PIN", "IN-FEED", "REASONS", "RANK", "DELIVERY", "CREATED")
		reasons, rank, delivery := "-", "-", "-"
		if res.GetInFeed() {
			rank, delivery = strconv.Itoa(int(res.GetRank())), enumText(res.GetDelivery().String(), "PIN_DELIVERY_")
		} else {
			var all []string
			for _, r := range res.GetReasons() {
				all = append(all, enumText(r.String(), "ABSENCE_REASON_"))
			}
			reasons = strings.Join(all, ",")
		}
		created := "-"
		if res.GetPin().GetLiving() {
			created = command.TimeText(res.GetPin().GetCreateTime())
		}
		t.Row(c.Pin, command.YesNo(res.GetInFeed()), reasons, rank, delivery, created)
		if err := t.Flush(); err != nil {
			return err
		}
		sayCompleteness(std, res.GetCompleteness())
		return nil
	})
}

func enumText(name, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", "-"))
}

// sayCompleteness prints a note if a feed is not complete.
func sayCompleteness(std *command.Streams, c skeinv1.FeedCompleteness) {
	if c != skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE {
		std.Sayf("not complete: %s", strings.ToLower(strings.TrimPrefix(c.String(), "FEED_COMPLETENESS_")))
	}
}
