package query

import (
	"context"
	"slices"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

type checkCmd struct {
	Follower string   `arg:"" help:"The user whose follows are checked."`
	Users    []string `arg:"" optional:"" help:"Users whom that user may follow."`
	Boards   []string `name:"board" help:"Boards that the user may follow." placeholder:"OWNER/BOARD" sep:"none"`
}

// Run calls CheckFollows.
func (c *checkCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Boards)
	if err != nil {
		return err
	}
	if len(c.Users)+len(boards) == 0 {
		return command.Usagef("query check needs a second user, or a --board")
	}

	req := &skeinv1.CheckFollowsRequest{IncludeTimes: true}
	for _, user := range c.Users {
		req.Pairs = append(req.Pairs, &skeinv1.FollowPair{
			UserId: c.Follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: user},
		})
	}
	for _, board := range boards {
		req.Pairs = append(req.Pairs, &skeinv1.FollowPair{UserId: c.Follower, Target: &skeinv1.FollowPair_Board{Board: board}})
	}

	return call(ctx, q, std, q.Client().Graph().CheckFollows, req, func(res *skeinv1.CheckFollowsResponse) error {
		t := command.NewTable(std.Out, "FOLLOWER", "OF", "KIND", "SINCE")
		targets := slices.Concat(c.Users, c.Boards)
		for i, kind := range res.GetKinds() {
			t.Row(c.Follower, targets[i], command.FollowKindText(kind), command.TimeText(res.GetFollowTimes()[i].GetTime()))
		}
		return t.Flush()
	})
}

type filterCmd struct {
	Viewer    string   `arg:"" help:"The user whose relations count."`
	Users     []string `arg:"" optional:"" help:"The users among whom to choose."`
	Boards    []string `name:"board" help:"Choose among these boards instead of users." placeholder:"OWNER/BOARD" sep:"none"`
	Direction string   `help:"Whom the user follows, who follows the user, or both: ${enum}." enum:"following,followed-by,mutual" default:"following"`
}

var followDirections = map[string]skeinv1.FollowDirection{
	"following":   skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWING,
	"followed-by": skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY,
	"mutual":      skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL,
}

// Run calls FilterFollowed.
func (c *filterCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Boards)
	if err != nil {
		return err
	}
	candidates := c.Users
	if len(boards) > 0 {
		candidates = c.Boards
	}

	req := &skeinv1.FilterFollowedRequest{
		ViewerId: c.Viewer, UserIds: c.Users, Boards: boards, Direction: followDirections[c.Direction],
	}
	return call(ctx, q, std, q.Client().Graph().FilterFollowed, req, func(res *skeinv1.FilterFollowedResponse) error {
		return printIndexed(std.Out, candidates, res.GetIndexes())
	})
}

type relationshipsCmd struct {
	Viewer string   `arg:"" help:"The user whose relations are printed."`
	Users  []string `arg:"" help:"The other users, at most 100."`
}

// Run calls BatchGetRelationships.
func (c *relationshipsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.BatchGetRelationshipsRequest{ViewerId: c.Viewer, UserIds: c.Users}
	return call(ctx, q, std, q.Client().Graph().BatchGetRelationships, req, func(res *skeinv1.BatchGetRelationshipsResponse) error {
		t := command.NewTable(std.Out, "USER", "FOLLOWING", "FOLLOWED-BY", "BLOCKING", "BLOCKED-BY", "MUTING", "SINCE")
		for _, r := range res.GetRelationships() {
			t.Row(appendSettings([]string{
				r.GetUserId(), command.FollowKindText(r.GetFollowing()), command.FollowKindText(r.GetFollowedBy()), command.YesNo(r.GetBlocking()),
				command.YesNo(r.GetBlockedBy()), command.YesNo(r.GetMuting()), command.TimeText(r.GetFollowTime()),
			}, r.GetSettings())...)
		}
		return t.Flush()
	})
}
