package query

import (
	"context"
	"strconv"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type countsCmd struct {
	Users []string `arg:"" optional:"" help:"Users, at most 100."`
	Board []string `help:"Boards, at most 100." placeholder:"OWNER/BOARD" sep:"none"`
}

// Run calls BatchGetFollowCounts.
func (c *countsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Board)
	if err != nil {
		return err
	}
	if len(c.Users)+len(boards) == 0 {
		return command.Usagef("counts needs a user or a --board")
	}
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Graph().BatchGetFollowCounts, &skeinv1.BatchGetFollowCountsRequest{
		UserIds: c.Users, Boards: boards, AtLeast: q.AtLeast,
	})
	if err != nil {
		return err
	}
	return q.print(std, res, func() error { return printCounts(std, res) })
}

func printCounts(std *command.Streams, res *skeinv1.BatchGetFollowCountsResponse) error {
	row := func(t *command.Table, of string, counts ...uint32) {
		cells := []string{of}
		for _, n := range counts {
			cells = append(cells, strconv.FormatUint(uint64(n), 10))
		}
		t.Row(cells...)
	}
	if len(res.GetUsers()) > 0 {
		t := command.NewTable(std.Out, "USER", "FOLLOWERS", "EXPLICIT", "IMPLICIT", "FOLLOWING", "EXPLICIT", "IMPLICIT", "BOARDS",
			"FOLLOWED-BOARDS", "EXCLUDED-BOARDS", "BLOCKED", "MUTED")
		for _, u := range res.GetUsers() {
			row(t, u.GetUserId(), u.GetFollowerCount(), u.GetExplicitFollowerCount(), u.GetImplicitFollowerCount(),
				u.GetFollowingCount(), u.GetExplicitFollowingCount(), u.GetImplicitFollowingCount(), u.GetBoardCount(),
				u.GetFollowedBoardCount(), u.GetExcludedBoardCount(), u.GetBlockedCount(), u.GetMutedCount())
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(res.GetBoards()) == 0 {
		return nil
	}
	t := command.NewTable(std.Out, "BOARD", "FOLLOWERS", "EXPLICIT", "EXCLUDERS")
	for _, b := range res.GetBoards() {
		row(t, boardText(b.GetBoard()), b.GetFollowerCount(), b.GetExplicitFollowerCount(), b.GetExcluderCount())
	}
	return t.Flush()
}
