package query

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// pageFlags are the flags of every list.
type pageFlags struct {
	PageSize  int32  `help:"Entries a page; 0 means 50, at most 1000." default:"0"`
	PageToken string `help:"Begin where an earlier page ended." placeholder:"TOKEN"`
	All       bool   `help:"All pages, to the end of the list."`
}

// pageAnswer is a page of any list.
type pageAnswer interface {
	answer
	GetNextPageToken() string
}

// list reads and prints one page, or all. request returns the request for the page with a token.
func list[Req any, Res any, R interface {
	*Res
	pageAnswer
}](ctx context.Context, q *Cmd, std *command.Streams, p *pageFlags, m command.Method[Req, Res],
	request func(size int32, token string) *Req, header []string, rows func(res R) [][]string,
) error {
	size, token := p.PageSize, p.PageToken
	if p.All && size == 0 {
		size = 1000
	}
	var t *command.Table
	if !q.JSON {
		t = command.NewTable(std.Out, header...)
	}
	shown := 0
	for {
		msg, err := command.Call(ctx, &q.ClientFlags, m, request(size, token))
		if err != nil {
			return err
		}
		res := R(msg)
		if q.JSON {
			if err := command.PrintJSON(std.Out, res); err != nil {
				return err
			}
		} else {
			for _, row := range rows(res) {
				t.Row(row...)
				shown++
			}
			if err := t.Flush(); err != nil {
				return err
			}
		}
		token = res.GetNextPageToken()
		if token != "" && p.All {
			continue
		}
		if !q.JSON {
			sayPage(std, res, shown, token)
		}
		return nil
	}
}

func sayPage(std *command.Streams, res pageAnswer, shown int, token string) {
	of := ""
	if counted, ok := res.(interface{ GetTotalSize() uint32 }); ok {
		of = fmt.Sprintf(" of %d", counted.GetTotalSize())
	}
	std.Sayf("%d%s, at position %s", shown, of, res.GetPosition())
	if token != "" {
		std.Sayf("more: --page-token %s", token)
	}
}

func followRows(entries []*skeinv1.FollowEntry) [][]string {
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, []string{e.GetUserId(), command.KindText(e.GetKind()), command.TimeText(e.GetFollowTime())})
	}
	return rows
}

// settingRows are followRows with the settings of the follows that have any.
func settingRows(entries []*skeinv1.FollowEntry) [][]string {
	rows := followRows(entries)
	for i, e := range entries {
		rows[i] = appendSettings(rows[i], e.GetSettings())
	}
	return rows
}

// appendSettings appends the names of the settings of a follow that are on to a row, behind the columns with a title. Most follows have none.
func appendSettings(row []string, s *skeinv1.FollowSettings) []string {
	var names []string
	for _, setting := range []struct {
		on   bool
		name string
	}{
		{s.GetHideRepins(), "hide-repins"}, {s.GetNotify(), "notify"}, {s.GetFavorite(), "favorite"},
	} {
		if setting.on {
			names = append(names, setting.name)
		}
	}
	if len(names) == 0 {
		return row
	}
	return append(row, strings.Join(names, ","))
}

func userRows(entries []*skeinv1.UserEntry) [][]string {
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, []string{e.GetUserId(), command.TimeText(e.GetTime())})
	}
	return rows
}

func (q *Cmd) boardRows(entries []*skeinv1.BoardEntry) [][]string {
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, []string{boardText(e.GetBoard()), command.TimeText(e.GetTime())})
	}
	return rows
}

var followHeader = []string{"USER", "KIND", "SINCE"}

// followSettings are the settings by which feeds and lists can be chosen.
var followSettings = map[string]skeinv1.FollowSetting{
	"all": skeinv1.FollowSetting_FOLLOW_SETTING_UNSPECIFIED, "favorite": skeinv1.FollowSetting_FOLLOW_SETTING_FAVORITE,
	"notify": skeinv1.FollowSetting_FOLLOW_SETTING_NOTIFY,
}

var followKinds = map[string]*skeinv1.FollowKind{
	"any": nil, "explicit": skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT.Enum(),
	"implicit": skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT.Enum(),
}

type followingCmd struct {
	User      string `arg:"" help:"Whose followees."`
	Kind      string `help:"Which: ${enum}." enum:"any,explicit,implicit" default:"any"`
	Only      string `help:"Only follows with a setting, the one that was set last first, or all: ${enum}." enum:"all,favorite,notify" default:"all"`
	pageFlags `embed:""`
}

// Run calls ListFollowing.
func (c *followingCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListFollowing,
		func(size int32, token string) *skeinv1.ListFollowingRequest {
			return &skeinv1.ListFollowingRequest{
				UserId: c.User, Kind: followKinds[c.Kind], Only: followSettings[c.Only], PageSize: size, PageToken: token, AtLeast: q.AtLeast,
			}
		},
		followHeader, func(res *skeinv1.ListFollowingResponse) [][]string { return settingRows(res.GetEntries()) })
}

type followersCmd struct {
	User      string `arg:"" help:"Whose followers."`
	Kind      string `help:"Which: ${enum}." enum:"any,explicit,implicit" default:"any"`
	pageFlags `embed:""`
}

// Run calls ListFollowers.
func (c *followersCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListFollowers,
		func(size int32, token string) *skeinv1.ListFollowersRequest {
			return &skeinv1.ListFollowersRequest{
				UserId: c.User, Kind: followKinds[c.Kind], PageSize: size, PageToken: token, AtLeast: q.AtLeast,
			}
		},
		followHeader, func(res *skeinv1.ListFollowersResponse) [][]string { return followRows(res.GetEntries()) })
}

var boardFollowerKinds = map[string]skeinv1.BoardFollowerKind{
	"all":       skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_ALL,
	"explicit":  skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT,
	"excluders": skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS,
}

type boardFollowersCmd struct {
	Board     string `arg:"" help:"The board, as OWNER/BOARD; OWNER/ is the owner's default board."`
	Kind      string `help:"Which: all for whom it appears, only its own, or its excluders." enum:"all,explicit,excluders" default:"all"`
	pageFlags `embed:""`
}

// Run calls ListBoardFollowers.
func (c *boardFollowersCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	board, err := parseBoard(c.Board)
	if err != nil {
		return err
	}
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListBoardFollowers,
		func(size int32, token string) *skeinv1.ListBoardFollowersRequest {
			return &skeinv1.ListBoardFollowersRequest{
				Board: board, Kind: boardFollowerKinds[c.Kind], PageSize: size, PageToken: token, AtLeast: q.AtLeast,
			}
		},
		followHeader, func(res *skeinv1.ListBoardFollowersResponse) [][]string { return followRows(res.GetEntries()) })
}

type followedBoardsCmd struct {
	User      string `arg:"" help:"The follower."`
	pageFlags `embed:""`
}

// Run calls ListFollowedBoards.
func (c *followedBoardsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListFollowedBoards,
		func(size int32, token string) *skeinv1.ListFollowedBoardsRequest {
			return &skeinv1.ListFollowedBoardsRequest{UserId: c.User, PageSize: size, PageToken: token, AtLeast: q.AtLeast}
		},
		[]string{"BOARD", "SINCE"},
		func(res *skeinv1.ListFollowedBoardsResponse) [][]string { return q.boardRows(res.GetEntries()) })
}

type excludedBoardsCmd struct {
	User      string `arg:"" help:"The user who excludes boards."`
	pageFlags `embed:""`
}

// Run calls ListExcludedBoards.
func (c *excludedBoardsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListExcludedBoards,
		func(size int32, token string) *skeinv1.ListExcludedBoardsRequest {
			return &skeinv1.ListExcludedBoardsRequest{UserId: c.User, PageSize: size, PageToken: token, AtLeast: q.AtLeast}
		},
		[]string{"BOARD", "SINCE"},
		func(res *skeinv1.ListExcludedBoardsResponse) [][]string { return q.boardRows(res.GetEntries()) })
}

type boardsCmd struct {
	User      string `arg:"" help:"The owner."`
	pageFlags `embed:""`
}

// Run calls ListBoards.
func (c *boardsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListBoards,
		func(size int32, token string) *skeinv1.ListBoardsRequest {
			return &skeinv1.ListBoardsRequest{UserId: c.User, PageSize: size, PageToken: token, AtLeast: q.AtLeast}
		},
		[]string{"BOARD", "CREATED", "TITLE"},
		func(res *skeinv1.ListBoardsResponse) [][]string {
			rows := q.boardRows(res.GetEntries())
			for i, e := range res.GetEntries() {
				rows[i] = append(rows[i], e.GetTitle())
			}
			return rows
		})
}

type blockedCmd struct {
	User      string `arg:"" help:"The user who blocks."`
	pageFlags `embed:""`
}

// Run calls ListBlocked.
func (c *blockedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListBlocked,
		func(size int32, token string) *skeinv1.ListBlockedRequest {
			return &skeinv1.ListBlockedRequest{UserId: c.User, PageSize: size, PageToken: token, AtLeast: q.AtLeast}
		},
		[]string{"USER", "SINCE"},
		func(res *skeinv1.ListBlockedResponse) [][]string { return userRows(res.GetEntries()) })
}

type mutedCmd struct {
	User      string `arg:"" help:"The user who mutes."`
	pageFlags `embed:""`
}

// Run calls ListMuted.
func (c *mutedCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListMuted,
		func(size int32, token string) *skeinv1.ListMutedRequest {
			return &skeinv1.ListMutedRequest{UserId: c.User, PageSize: size, PageToken: token, AtLeast: q.AtLeast}
		},
		[]string{"USER", "SINCE"},
		func(res *skeinv1.ListMutedResponse) [][]string {
			rows := userRows(res.GetEntries())
			for i, e := range res.GetEntries() {
				if e.GetUntil() != nil {
					rows[i] = append(rows[i], "until "+command.TimeText(e.GetUntil()))
				}
			}
			return rows
		})
}

type mutualsCmd struct {
	Viewer    string `arg:"" help:"The user who views the list."`
	User      string `arg:"" help:"Whose followers."`
	pageFlags `embed:""`
}

// Run calls ListMutuals.
func (c *mutualsCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	return list(ctx, q, std, &c.pageFlags, q.Client().Graph().ListMutuals,
		func(size int32, token string) *skeinv1.ListMutualsRequest {
			return &skeinv1.ListMutualsRequest{
				ViewerId: c.Viewer, UserId: c.User, PageSize: size, PageToken: token, AtLeast: q.AtLeast,
			}
		},
		followHeader, func(res *skeinv1.ListMutualsResponse) [][]string { return settingRows(res.GetEntries()) })
}

type scanCmd struct {
	User   string `arg:"" optional:"" help:"Whose followers."`
	Board  string `help:"The followers of this board instead." placeholder:"OWNER/BOARD"`
	Resume string `help:"Go on where a broken scan printed this." placeholder:"TOKEN"`
}

// Run calls ScanFollowers.
func (c *scanCmd) Run(ctx context.Context, q *Cmd, std *command.Streams) error {
	req := &skeinv1.ScanFollowersRequest{ResumeToken: c.Resume, AtLeast: q.AtLeast}
	switch {
	case (c.User == "") == (c.Board == ""):
		return command.Usagef("scan needs a user or a --board")
	case c.User != "":
		req.Target = &skeinv1.ScanFollowersRequest_UserId{UserId: c.User}
	default:
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
	defer func() { _ = stream.Close() }() // Err has the error of the stream
	token := c.Resume
	for stream.Receive() {
		res := stream.Msg()
		if err := c.print(q, std, res); err != nil {
			return err
		}
		token = res.GetResumeToken()
	}
	if err := stream.Err(); err != nil {
		if token != "" {
			std.Sayf("continue with: --resume %s", token)
		}
		return err
	}
	return nil
}

func (c *scanCmd) print(q *Cmd, std *command.Streams, res *skeinv1.ScanFollowersResponse) error {
	if q.JSON {
		return command.PrintJSON(std.Out, res)
	}
	for _, row := range followRows(res.GetEntries()) {
		if _, err := fmt.Fprintf(std.Out, "%s\t%s\t%s\n", row[0], row[1], row[2]); err != nil {
			return err
		}
	}
	return nil
}
