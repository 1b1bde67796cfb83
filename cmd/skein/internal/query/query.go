package query

import (
	"context"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Cmd is the command `skein query`. Each of its subcommands calls one method of the API, once or,
// for lists, once for each page.
type Cmd struct {
	command.ClientFlags `embed:""`

	AtLeast string `help:"A position that the answer must contain, as publish and every answer print it." placeholder:"POSITION"`
	JSON    bool   `help:"Print answers in the JSON form of the API, one object per line."`

	Check          checkCmd          `cmd:"" help:"Does a user follow others, or boards, and since when?"`
	Filter         filterCmd         `cmd:"" help:"Which of some users or boards does a user follow?"`
	Relationships  relationshipsCmd  `cmd:"" help:"How a user is related to some others: follows, blocks, mutes."`
	Following      followingCmd      `cmd:"" help:"The users that a user follows."`
	Followers      followersCmd      `cmd:"" help:"The followers of a user."`
	BoardFollowers boardFollowersCmd `cmd:"" help:"The followers or excluders of a board."`
	FollowedBoards followedBoardsCmd `cmd:"" help:"The boards that a user follows one by one."`
	ExcludedBoards excludedBoardsCmd `cmd:"" help:"The boards that a user excludes although the user follows their owners."`
	Boards         boardsCmd         `cmd:"" help:"The boards of a user."`
	Blocked        blockedCmd        `cmd:"" help:"The users that a user blocks."`
	Muted          mutedCmd          `cmd:"" help:"The users that a user mutes."`
	Mutuals        mutualsCmd        `cmd:"" help:"The followers of a user whom another user follows."`
	Scan           scanCmd           `cmd:"" help:"All followers of a user or board, as a stream."`
	Counts         countsCmd         `cmd:"" help:"The lengths of the lists of users and boards."`
	Feed           feedCmd           `cmd:"" help:"The feed of a reader: new pins of the users and boards that the reader follows."`
	CountNewer     countNewerCmd     `cmd:"" help:"How many entries of a feed are newer than an earlier page, or than the read marker?"`
	WatchFeed      watchFeedCmd      `cmd:"" help:"The number that count-newer prints, again whenever it changes."`
	Explain        explainCmd        `cmd:"" help:"Why is a pin in a reader's feed, or not?"`
	Pins           pinsCmd           `cmd:"" help:"The pins of a user or of one board, newest first."`
	PinStates      pinStatesCmd      `cmd:"" help:"Some pins of a user: which of them live, and what they show."`
	Reactions      reactionsCmd      `cmd:"" help:"The items to which a user reacted with one kind, newest first."`
	Reactors       reactorsCmd       `cmd:"" help:"The users who reacted to an item with one kind, newest first."`
	ViewerState    viewerStateCmd    `cmd:"" help:"What some pins or items are to a user: reacted to, seen, followed."`
	Seen           seenCmd           `cmd:"" help:"Which of some items has a user not seen?"`
	Served         servedCmd         `cmd:"" help:"The items that were served to a user last."`
	HiddenItems    hiddenItemsCmd    `cmd:"" help:"The items that a user hides, newest first."`
	Notifications  notificationsCmd  `cmd:"" help:"What others did that concerns a user: follows, reactions and re-pins, in groups."`

	CountNotifications countNotificationsCmd `cmd:"" help:"How many groups of notifications has a user not seen?"`
	WatchNotifications watchNotificationsCmd `cmd:"" help:"The number that count-notifications prints, again whenever it changes."`

	Counters countersCmd `cmd:"" help:"Counts of users, boards and items: pins, followers, plays, reactions, re-pins."`
	Trending trendingCmd `cmd:"" help:"The hottest items: of everybody, of one author or on one board."`
}

// answer has the methods that the responses of all methods share.
type answer interface {
	proto.Message
	GetPosition() string
}

// call calls a method with a request and the position of --at-least, and prints the answer: as JSON
// with --json, otherwise by printText and a line with the position of the answer. Every request of
// a read has the field at_least.
//
// Request and Answer are the pointers to Req and Res. They are type parameters because the methods
// of generated messages have pointer receivers, so only the pointers implement [proto.Message].
func call[Req, Res any, Request interface {
	*Req
	proto.Message
}, Answer interface {
	*Res
	answer
}](ctx context.Context, q *Cmd, std *command.Streams, method command.Method[Req, Res], request Request, printText func(Answer) error) error {
	setField(request, "at_least", protoreflect.ValueOfString(q.AtLeast))
	res, err := command.Call(ctx, &q.ClientFlags, method, (*Req)(request))
	if err != nil {
		return err
	}

	response := Answer(res)
	if q.JSON {
		return command.PrintJSON(std.Out, response)
	}
	if err := printText(response); err != nil {
		return err
	}
	std.Sayf("at position %s", response.GetPosition())
	return nil
}

// setField sets a field of a request by its name in the API. It panics if the request has no such
// field.
func setField(request proto.Message, name protoreflect.Name, value protoreflect.Value) {
	message := request.ProtoReflect()
	message.Set(message.Descriptor().Fields().ByName(name), value)
}

// parseBoard parses OWNER/BOARD. An empty BOARD is the owner's default board.
func parseBoard(text string) (*skeinv1.Board, error) {
	owner, board, ok := strings.Cut(text, "/")
	if !ok {
		return nil, command.Usagef("%q is not a board: write OWNER/BOARD, or OWNER/ for the owner's default board", text)
	}
	return &skeinv1.Board{OwnerId: owner, BoardId: board}, nil
}

func parseBoards(texts []string) ([]*skeinv1.Board, error) {
	var boards []*skeinv1.Board
	for _, text := range texts {
		board, err := parseBoard(text)
		if err != nil {
			return nil, err
		}
		boards = append(boards, board)
	}
	return boards, nil
}

// parsePin parses OWNER/PIN.
func parsePin(text string) (*skeinv1.Pin, error) {
	owner, pin, ok := strings.Cut(text, "/")
	if !ok {
		return nil, command.Usagef("%q is not a pin: write OWNER/PIN", text)
	}
	return &skeinv1.Pin{OwnerId: owner, PinId: pin}, nil
}

// formatBoard returns a board in the form that parseBoard reads.
func formatBoard(b *skeinv1.Board) string { return b.GetOwnerId() + "/" + b.GetBoardId() }

// formatEnum returns the name of an enum's value for people: without the prefix that all values of
// the enum share, in lower case.
func formatEnum(name, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", "-"))
}

// printIndexed prints those of the values to which the indexes point, one per line. It skips an
// index that points to no value, as a service of another version might send one.
func printIndexed(w io.Writer, values []string, indexes []uint32) error {
	for _, i := range indexes {
		if int(i) >= len(values) {
			continue
		}
		if _, err := fmt.Fprintln(w, values[i]); err != nil {
			return err
		}
	}
	return nil
}
