package query

import (
	"context"
	"strconv"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type countsCmd struct {
	Users  []string `arg:"" optional:"" help:"Users, at most 100."`
	Boards []string `name:"board" help:"A board; repeat for several, at most 100." placeholder:"OWNER/BOARD" sep:"none"`
}

// Run calls BatchGetFollowCounts.
func (c *countsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Boards)
	if err != nil {
		return err
	}
	if len(c.Users)+len(boards) == 0 {
		return command.Usagef("query counts needs a user or a --board")
	}
	req := &skeinv1.BatchGetFollowCountsRequest{UserIds: c.Users, Boards: boards}
	return call(ctx, q, std, q.Client().Graph().BatchGetFollowCounts, req, func(res *skeinv1.BatchGetFollowCountsResponse) error {
		return printFollowCounts(std, res)
	})
}

// printFollowCounts prints a table of the users and a table of the boards. It leaves out a table
// that would be empty.
func printFollowCounts(std *command.Streams, res *skeinv1.BatchGetFollowCountsResponse) error {
	if len(res.GetUsers()) > 0 {
		t := command.NewTable(std.Out, "USER", "FOLLOWERS", "EXPLICIT", "IMPLICIT", "FOLLOWING", "EXPLICIT", "IMPLICIT", "BOARDS",
			"FOLLOWED-BOARDS", "EXCLUDED-BOARDS", "BLOCKED", "MUTED")
		for _, u := range res.GetUsers() {
			t.Row(countRow(u.GetUserId(),
				u.GetFollowerCount(), u.GetExplicitFollowerCount(), u.GetImplicitFollowerCount(),
				u.GetFollowingCount(), u.GetExplicitFollowingCount(), u.GetImplicitFollowingCount(),
				u.GetBoardCount(), u.GetFollowedBoardCount(), u.GetExcludedBoardCount(), u.GetBlockedCount(), u.GetMutedCount())...)
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
		t.Row(countRow(formatBoard(b.GetBoard()), b.GetFollowerCount(), b.GetExplicitFollowerCount(), b.GetExcluderCount())...)
	}
	return t.Flush()
}

// countRow returns a row of a table: a name, and the counts that follow it.
func countRow(name string, counts ...uint32) []string {
	row := []string{name}
	for _, n := range counts {
		row = append(row, formatCount(n))
	}
	return row
}

func formatCount(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
