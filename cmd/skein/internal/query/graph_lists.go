package query

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The columns of the tables of this file.
var (
	followHeader = []string{"USER", "KIND", "SINCE"}
	userHeader   = []string{"USER", "SINCE"}
	boardHeader  = []string{"BOARD", "SINCE"}
)

func followRow(e *skeinv1.FollowEntry) []string {
	return []string{e.GetUserId(), command.FollowKindText(e.GetKind()), command.TimeText(e.GetFollowTime())}
}

// followRowWithSettings is followRow with the settings of the follow, which only the one who
// follows may see.
func followRowWithSettings(e *skeinv1.FollowEntry) []string {
	return appendSettings(followRow(e), e.GetSettings())
}

// appendSettings appends the names of the settings of a follow that are on to a row of a table.
// They have no column with a title, because most follows have none.
func appendSettings(row []string, s *skeinv1.FollowSettings) []string {
	var names []string
	if s.GetHideRepins() {
		names = append(names, "hide-repins")
	}
	if s.GetNotify() {
		names = append(names, "notify")
	}
	if s.GetFavorite() {
		names = append(names, "favorite")
	}

	if len(names) == 0 {
		return row
	}
	return append(row, strings.Join(names, ","))
}

func userRow(e *skeinv1.UserEntry) []string {
	return []string{e.GetUserId(), command.TimeText(e.GetTime())}
}

func boardRow(e *skeinv1.BoardEntry) []string {
	return []string{formatBoard(e.GetBoard()), command.TimeText(e.GetTime())}
}

// followSettings are the settings of a follow by which feeds and lists can be restricted, as --only
// names them.
var followSettings = map[string]skeinv1.FollowSetting{
	"all":      skeinv1.FollowSetting_FOLLOW_SETTING_UNSPECIFIED,
	"favorite": skeinv1.FollowSetting_FOLLOW_SETTING_FAVORITE,
	"notify":   skeinv1.FollowSetting_FOLLOW_SETTING_NOTIFY,
}

var followKinds = map[string]*skeinv1.FollowKind{
	"any":      nil,
	"explicit": skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT.Enum(),
	"implicit": skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT.Enum(),
}

type followingCmd struct {
	User      string `arg:"" help:"The user who follows."`
	Kind      string `help:"Only follows of this kind: ${enum}." enum:"any,explicit,implicit" default:"any"`
	Only      string `help:"Only follows with this setting, the one that was set last first: ${enum}." enum:"all,favorite,notify" default:"all"`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListFollowing.
func (c *followingCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListFollowingRequest{UserId: c.User, Kind: followKinds[c.Kind], Only: followSettings[c.Only]}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListFollowing, req, followHeader,
		func(res *skeinv1.ListFollowingResponse) [][]string {
			return mapRows(res.GetEntries(), followRowWithSettings)
		})
}

type followersCmd struct {
	User      string `arg:"" help:"The user whose followers are listed."`
	Kind      string `help:"Only follows of this kind: ${enum}." enum:"any,explicit,implicit" default:"any"`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListFollowers.
func (c *followersCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListFollowersRequest{UserId: c.User, Kind: followKinds[c.Kind]}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListFollowers, req, followHeader,
		func(res *skeinv1.ListFollowersResponse) [][]string { return mapRows(res.GetEntries(), followRow) })
}

var boardFollowerKinds = map[string]skeinv1.BoardFollowerKind{
	"all":       skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_ALL,
	"explicit":  skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT,
	"excluders": skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS,
}

type boardFollowersCmd struct {
	Board     string `arg:"" help:"The board, as OWNER/BOARD; OWNER/ is the owner's default board."`
	Kind      string `help:"All who see the board, those who follow it itself, or those who exclude it: ${enum}." enum:"all,explicit,excluders" default:"all"`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListBoardFollowers.
func (c *boardFollowersCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	board, err := parseBoard(c.Board)
	if err != nil {
		return err
	}
	req := &skeinv1.ListBoardFollowersRequest{Board: board, Kind: boardFollowerKinds[c.Kind]}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListBoardFollowers, req, followHeader,
		func(res *skeinv1.ListBoardFollowersResponse) [][]string { return mapRows(res.GetEntries(), followRow) })
}

type followedBoardsCmd struct {
	User      string `arg:"" help:"The user who follows."`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListFollowedBoards.
func (c *followedBoardsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListFollowedBoardsRequest{UserId: c.User}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListFollowedBoards, req, boardHeader,
		func(res *skeinv1.ListFollowedBoardsResponse) [][]string { return mapRows(res.GetEntries(), boardRow) })
}

type excludedBoardsCmd struct {
	User      string `arg:"" help:"The user who excludes boards."`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListExcludedBoards.
func (c *excludedBoardsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListExcludedBoardsRequest{UserId: c.User}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListExcludedBoards, req, boardHeader,
		func(res *skeinv1.ListExcludedBoardsResponse) [][]string { return mapRows(res.GetEntries(), boardRow) })
}

type boardsCmd struct {
	User      string `arg:"" help:"The owner of the boards."`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListBoards.
func (c *boardsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	rowOf := func(e *skeinv1.BoardEntry) []string { return append(boardRow(e), e.GetTitle()) }
	req := &skeinv1.ListBoardsRequest{UserId: c.User}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListBoards, req, []string{"BOARD", "CREATED", "TITLE"},
		func(res *skeinv1.ListBoardsResponse) [][]string { return mapRows(res.GetEntries(), rowOf) })
}

type blockedCmd struct {
	User      string `arg:"" help:"The user who blocks."`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListBlocked.
func (c *blockedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListBlockedRequest{UserId: c.User}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListBlocked, req, userHeader,
		func(res *skeinv1.ListBlockedResponse) [][]string { return mapRows(res.GetEntries(), userRow) })
}

type mutedCmd struct {
	User      string `arg:"" help:"The user who mutes."`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListMuted.
func (c *mutedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	rowOf := func(e *skeinv1.UserEntry) []string {
		row := userRow(e)
		if e.GetUntil() != nil {
			row = append(row, "until "+command.TimeText(e.GetUntil()))
		}
		return row
	}
	req := &skeinv1.ListMutedRequest{UserId: c.User}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListMuted, req, userHeader,
		func(res *skeinv1.ListMutedResponse) [][]string { return mapRows(res.GetEntries(), rowOf) })
}

type mutualsCmd struct {
	Viewer    string `arg:"" help:"The user who follows those that are listed."`
	User      string `arg:"" help:"The user whose followers are listed."`
	pageFlags `embed:"" set:"pageDefault=50" set:"pageMost=1000"`
}

// Run calls ListMutuals.
func (c *mutualsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ListMutualsRequest{ViewerId: c.Viewer, UserId: c.User}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListMutuals, req, followHeader,
		func(res *skeinv1.ListMutualsResponse) [][]string {
			return mapRows(res.GetEntries(), followRowWithSettings)
		})
}

type scanCmd struct {
	User   string `arg:"" optional:"" help:"The user whose followers are printed."`
	Board  string `help:"Print the followers of this board instead." placeholder:"OWNER/BOARD"`
	Resume string `help:"Continue a scan that failed, with the token that it printed." placeholder:"TOKEN"`
}

// Run calls ScanFollowers.
func (c *scanCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	if (c.User == "") == (c.Board == "") {
		return command.Usagef("query scan needs either a user or a --board")
	}
	req := &skeinv1.ScanFollowersRequest{ResumeToken: c.Resume, AtLeast: q.AtLeast}
	if c.User != "" {
		req.Target = &skeinv1.ScanFollowersRequest_UserId{UserId: c.User}
	} else {
		board, err := parseBoard(c.Board)
		if err != nil {
			return err
		}
		req.Target = &skeinv1.ScanFollowersRequest_Board{Board: board}
	}

	stream, err := q.Client().Graph().ScanFollowers(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // stream.Err returns the error of the stream
	token := c.Resume
	for stream.Receive() {
		if err := printScanned(std, q.JSON, stream.Msg()); err != nil {
			return err
		}
		token = stream.Msg().GetResumeToken()
	}

	err = stream.Err()
	if err != nil && token != "" {
		std.Sayf("continue with: --resume %s", token)
	}
	return err
}

// printScanned prints the followers in a message of a scan. They are not aligned in columns,
// because a scan may be long and goes to programs.
func printScanned(std *command.Streams, asJSON bool, res *skeinv1.ScanFollowersResponse) error {
	if asJSON {
		return command.PrintJSON(std.Out, res)
	}
	for _, entry := range res.GetEntries() {
		if _, err := fmt.Fprintln(std.Out, strings.Join(followRow(entry), "\t")); err != nil {
			return err
		}
	}
	return nil
}
