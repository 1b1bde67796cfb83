package query

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type viewerStateCmd struct {
	Viewer       string   `arg:"" help:"The user who sees the pins or items."`
	Pins         []string `name:"pin" help:"A pin; repeat for several." placeholder:"OWNER/PIN" sep:"none"`
	Items        []string `name:"item" help:"An item; repeat for several." placeholder:"ITEM" sep:"none"`
	WindowMonths int32    `help:"Calendar months for which plays count, the current one included; 0 means the default." default:"0"`
	IgnoreServed bool     `help:"Do not count as seen what was only served."`
}

// Run calls BatchGetViewerState.
func (c *viewerStateCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.BatchGetViewerStateRequest{ViewerId: c.Viewer, WindowMonths: c.WindowMonths, IgnoreServed: c.IgnoreServed}
	for _, text := range c.Pins {
		pin, err := parsePin(text)
		if err != nil {
			return err
		}
		req.Keys = append(req.Keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: pin}})
	}
	for _, item := range c.Items {
		req.Keys = append(req.Keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_ItemId{ItemId: item}})
	}
	if len(req.GetKeys()) == 0 {
		return command.Usagef("query viewer-state needs a --pin or an --item")
	}

	return call(ctx, q, std, q.Client().Feed().BatchGetViewerState, req, func(res *skeinv1.BatchGetViewerStateResponse) error {
		t := command.NewTable(std.Out, "OF", "ITEM", "REACTIONS", "SEEN", "SERVED", "FOLLOWING", "BOARD")
		targets := slices.Concat(c.Pins, c.Items) // in the order of the keys
		for i, s := range res.GetStates() {
			// Only a pin has an owner and a board that the viewer can follow.
			following, followingBoard := "-", "-"
			if i < len(c.Pins) {
				following = command.FollowKindText(s.GetFollowing())
				followingBoard = command.FollowKindText(s.GetFollowingBoard())
			}
			t.Row(appendSettings([]string{
				targets[i], cmp.Or(s.GetItemId(), "-"), cmp.Or(strings.Join(s.GetReactions(), ","), "-"),
				command.YesNo(s.GetSeen()), command.YesNo(s.GetServed()), following, followingBoard,
			}, s.GetFollowSettings())...)
		}
		return t.Flush()
	})
}
