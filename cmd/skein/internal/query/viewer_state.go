package query

import (
	"cmp"
	"context"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type viewerStateCmd struct {
	Viewer       string   `arg:"" help:"The viewer."`
	Pin          []string `help:"Pins." placeholder:"OWNER/PIN" sep:"none"`
	Item         []string `help:"Items." placeholder:"ITEM" sep:"none"`
	WindowMonths int32    `help:"Calendar months for which plays count, the current one included; 0 means the default." default:"0"`
	IgnoreServed bool     `help:"Seen by plays only, not by what was served."`
}

// Run calls BatchGetViewerState.
func (c *viewerStateCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.BatchGetViewerStateRequest{
		ViewerId: c.Viewer, WindowMonths: c.WindowMonths, IgnoreServed: c.IgnoreServed, AtLeast: q.AtLeast,
	}
	for _, s := range c.Pin {
		pin, err := parsePin(s)
		if err != nil {
			return err
		}
		req.Keys = append(req.Keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: pin}})
	}
	for _, item := range c.Item {
		req.Keys = append(req.Keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_ItemId{ItemId: item}})
	}
	if len(req.GetKeys()) == 0 {
		return command.Usagef("viewer-state needs a --pin or an --item")
	}
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Feed().BatchGetViewerState, req)
	if err != nil {
		return err
	}
	return q.print(std, res, func() error { return c.table(std, res.GetStates()) })
}

func (c *viewerStateCmd) table(std *command.Streams, states []*skeinv1.ViewerState) error {
	t := command.NewTable(std.Out, "OF", "ITEM", "REACTIONS", "SEEN", "SERVED", "FOLLOWING", "BOARD")
	of := append(append([]string(nil), c.Pin...), c.Item...)
	for i, s := range states {
		item, following, board := s.GetItemId(), "-", "-"
		reactions := cmp.Or(strings.Join(s.GetReactions(), ","), "-")
		if item == "" {
			item = "-"
		}
		if i < len(c.Pin) {
			following, board = command.KindText(s.GetFollowing()), command.KindText(s.GetFollowingBoard())
		}
		t.Row(appendSettings([]string{
			of[i], item, reactions, command.YesNo(s.GetSeen()), command.YesNo(s.GetServed()), following, board,
		}, s.GetFollowSettings())...)
	}
	return t.Flush()
}
