package query

import (
	"context"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Cmd has all reads of the API. Each command makes one call, or one for each page.
type Cmd struct {
	command.ClientFlags `embed:""`

	AtLeast string `help:"A position that the answer must contain, as publish and every answer print it." placeholder:"POSITION"`
	JSON    bool   `help:"Print answers as the API gives them, one JSON object a line."`

	Check              checkCmd              `cmd:"" help:"Does a user follow others, or boards, and since when?"`
	Filter             filterCmd             `cmd:"" help:"Which of some users or boards does a user follow?"`
	Relationships      relationshipsCmd      `cmd:"" help:"Everything between a user and some others."`
	Following          followingCmd          `cmd:"" help:"The users that a user follows."`
	Followers          followersCmd          `cmd:"" help:"The followers of a user."`
	BoardFollowers     boardFollowersCmd     `cmd:"" help:"The followers or excluders of a board."`
	FollowedBoards     followedBoardsCmd     `cmd:"" help:"The boards that a user follows one by one."`
	ExcludedBoards     excludedBoardsCmd     `cmd:"" help:"The boards that a user excludes from followed users."`
	Boards             boardsCmd             `cmd:"" help:"The boards of a user."`
	Blocked            blockedCmd            `cmd:"" help:"The users that a user blocks."`
	Muted              mutedCmd              `cmd:"" help:"The users that a user mutes."`
	Mutuals            mutualsCmd            `cmd:"" help:"The followers of a user whom another follows."`
	Scan               scanCmd               `cmd:"" help:"All followers of a user or board, streamed."`
	Counts             countsCmd             `cmd:"" help:"How long the lists of users and boards are."`
	Feed               feedCmd               `cmd:"" help:"The feed of a reader: new pins of the users and boards that the reader follows."`
	CountNewer         countNewerCmd         `cmd:"" help:"How many entries of a feed are above the top of an earlier page, or above the read marker?"`
	WatchFeed          watchFeedCmd          `cmd:"" help:"The number of count-newer, printed whenever it has changed."`
	Explain            explainCmd            `cmd:"" help:"Why is a pin in a reader's feed, or not?"`
	Pins               pinsCmd               `cmd:"" help:"The pins of a user or of one board, newest first."`
	PinStates          pinStatesCmd          `cmd:"" help:"Some pins by their names: which of them live, and what they are."`
	Reactions          reactionsCmd          `cmd:"" help:"The items to which a user reacted with one kind, newest first."`
	Reactors           reactorsCmd           `cmd:"" help:"The users who reacted to an item with one kind, newest first."`
	ViewerState        viewerStateCmd        `cmd:"" help:"A user's state for some pins or items: reactions, seen, followed."`
	Seen               seenCmd               `cmd:"" help:"Which of some items has a user not seen?"`
	Served             servedCmd             `cmd:"" help:"The items that were sent to a user last."`
	HiddenItems        hiddenItemsCmd        `cmd:"" help:"The items that a user hides, newest first."`
	Notifications      notificationsCmd      `cmd:"" help:"What others did that concerns a user: follows, reactions and re-pins, in groups."`
	CountNotifications countNotificationsCmd `cmd:"" help:"How many groups of notifications has a user not seen?"`
	WatchNotifications watchNotificationsCmd `cmd:"" help:"The number of count-notifications, printed whenever it has changed."`
	Counters           countersCmd           `cmd:"" help:"Counts of users, boards and items: pins, followers, plays, reactions, re-pins."`
	Trending           trendingCmd           `cmd:"" help:"Items by heat: of everybody, of one author or on one board."`
}

// parseBoard parses OWNER/BOARD. An empty BOARD is the owner's default board.
func parseBoard(s string) (*skeinv1.Board, error) {
	owner, board, ok := strings.Cut(s, "/")
	if !ok {
		return nil, command.Usagef("%q is no board: OWNER/BOARD, or OWNER/ for the default board", s)
	}
	return &skeinv1.Board{OwnerId: owner, BoardId: board}, nil
}

// parsePin parses OWNER/PIN.
func parsePin(s string) (*skeinv1.Pin, error) {
	owner, pin, ok := strings.Cut(s, "/")
	if !ok {
		return nil, command.Usagef("%q is no pin: OWNER/PIN", s)
	}
	return &skeinv1.Pin{OwnerId: owner, PinId: pin}, nil
}

func parseBoards(list []string) ([]*skeinv1.Board, error) {
	var boards []*skeinv1.Board
	for _, s := range list {
		b, err := parseBoard(s)
		if err != nil {
			return nil, err
		}
		boards = append(boards, b)
	}
	return boards, nil
}

func boardText(b *skeinv1.Board) string { return b.GetOwnerId() + "/" + b.GetBoardId() }

// answer has the methods that all responses share.
type answer interface {
	proto.Message
	GetPosition() string
}

// print prints an answer as JSON, or calls a function that prints it for people.
func (q *Cmd) print(std *command.Streams, res answer, text func() error) error {
	if q.JSON {
		return command.PrintJSON(std.Out, res)
	}
	if err := text(); err != nil {
		return err
	}
	std.Sayf("at position %s", res.GetPosition())
	return nil
}

type checkCmd struct {
	Follower string   `arg:"" help:"The user whose follows are checked."`
	Users    []string `arg:"" optional:"" help:"Users who may be followed."`
	Board    []string `help:"Boards that may be followed." placeholder:"OWNER/BOARD" sep:"none"`
}

// Run calls CheckFollows.
func (c *checkCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Board)
	if err != nil {
		return err
	}
	if len(c.Users)+len(boards) == 0 {
		return command.Usagef("check needs a user or a --board that may be followed")
	}
	req := &skeinv1.CheckFollowsRequest{IncludeTimes: true, AtLeast: q.AtLeast}
	for _, u := range c.Users {
		req.Pairs = append(req.Pairs, &skeinv1.FollowPair{
			UserId: c.Follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: u},
		})
	}
	for _, b := range boards {
		req.Pairs = append(req.Pairs, &skeinv1.FollowPair{UserId: c.Follower, Target: &skeinv1.FollowPair_Board{Board: b}})
	}
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Graph().CheckFollows, req)
	if err != nil {
		return err
	}
	return q.print(std, res, func() error {
		t := command.NewTable(std.Out, "FOLLOWER", "OF", "KIND", "SINCE")
		for i, k := range res.GetKinds() {
			of := append(append([]string(nil), c.Users...), c.Board...)[i]
			t.Row(c.Follower, of, command.KindText(k), command.TimeText(res.GetFollowTimes()[i].GetTime()))
		}
		return t.Flush()
	})
}

type filterCmd struct {
	Viewer    string   `arg:"" help:"The user who asks."`
	Users     []string `arg:"" optional:"" help:"Candidates."`
	Board     []string `help:"Candidate boards, instead of users." placeholder:"OWNER/BOARD" sep:"none"`
	Direction string   `help:"Which are picked: ${enum}." enum:"following,followed-by,mutual" default:"following"`
}

var directions = map[string]skeinv1.FollowDirection{
	"following":   skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWING,
	"followed-by": skeinv1.FollowDirection_FOLLOW_DIRECTION_FOLLOWED_BY,
	"mutual":      skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL,
}

// Run calls FilterFollowed.
func (c *filterCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	boards, err := parseBoards(c.Board)
	if err != nil {
		return err
	}
	candidates := c.Users
	if len(boards) > 0 {
		candidates = c.Board
	}
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Graph().FilterFollowed, &skeinv1.FilterFollowedRequest{
		ViewerId: c.Viewer, UserIds: c.Users, Boards: boards, Direction: directions[c.Direction], AtLeast: q.AtLeast,
	})
	if err != nil {
		return err
	}
	return q.print(std, res, func() error {
		for _, i := range res.GetIndexes() {
			if int(i) < len(candidates) {
				if _, err := std.Out.Write([]byte(candidates[i] + "\n")); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

type relationshipsCmd struct {
	Viewer string   `arg:"" help:"The user who asks."`
	Users  []string `arg:"" help:"The others, at most 100."`
}

// Run calls BatchGetRelationships.
func (c *relationshipsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	res, err := command.Call(ctx, &q.ClientFlags, q.Client().Graph().BatchGetRelationships, &skeinv1.BatchGetRelationshipsRequest{
		ViewerId: c.Viewer, UserIds: c.Users, AtLeast: q.AtLeast,
	})
	if err != nil {
		return err
	}
	return q.print(std, res, func() error {
		t := command.NewTable(std.Out, "USER", "FOLLOWING", "FOLLOWED-BY", "BLOCKING", "BLOCKED-BY", "MUTING", "SINCE")
		for _, r := range res.GetRelationships() {
			t.Row(appendSettings([]string{
				r.GetUserId(), command.KindText(r.GetFollowing()), command.KindText(r.GetFollowedBy()), command.YesNo(r.GetBlocking()),
				command.YesNo(r.GetBlockedBy()), command.YesNo(r.GetMuting()), command.TimeText(r.GetFollowTime()),
			}, r.GetSettings())...)
		}
		return t.Flush()
	})
}
