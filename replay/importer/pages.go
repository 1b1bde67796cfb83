package importer

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// page is a page of any list.
type page struct {
	entries []entry
	next    string
	total   uint32
}

// listed has the methods that the responses of all list methods share.
type listed interface {
	GetNextPageToken() string
	GetTotalSize() uint32
}

// page reads one page of a list.
func (c *comparer) page(ctx context.Context, k listKey, token string) (page, error) {
	of := k.of.owner
	switch k.list {
	case following:
		res, err := ask(ctx, c, c.Graph.ListFollowing, &skeinv1.ListFollowingRequest{
			UserId: of, PageSize: comparePage, PageToken: token, AtLeast: c.AtLeast,
		})
		return userPage(res, res.GetEntries()), err
	case followers:
		res, err := ask(ctx, c, c.Graph.ListFollowers, &skeinv1.ListFollowersRequest{
			UserId: of, PageSize: comparePage, PageToken: token, AtLeast: c.AtLeast,
		})
		return userPage(res, res.GetEntries()), err
	case ownBoards:
		res, err := ask(ctx, c, c.Graph.ListBoards, &skeinv1.ListBoardsRequest{
			UserId: of, PageSize: comparePage, PageToken: token, AtLeast: c.AtLeast,
		})
		return boardPage(res, res.GetEntries()), err
	case followedBoards:
		res, err := ask(ctx, c, c.Graph.ListFollowedBoards, &skeinv1.ListFollowedBoardsRequest{
			UserId: of, PageSize: comparePage, PageToken: token, AtLeast: c.AtLeast,
		})
		return boardPage(res, res.GetEntries()), err
	case boardFollowers:
		res, err := ask(ctx, c, c.Graph.ListBoardFollowers, &skeinv1.ListBoardFollowersRequest{
			Board: k.of.proto(), Kind: skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT,
			PageSize: comparePage, PageToken: token, AtLeast: c.AtLeast,
		})
		return userPage(res, res.GetEntries()), err
	case blockedUsers:
		res, err := ask(ctx, c, c.Graph.ListBlocked, &skeinv1.ListBlockedRequest{
			UserId: of, PageSize: comparePage, PageToken: token, AtLeast: c.AtLeast,
		})
		return plainUserPage(res, res.GetEntries()), err
	case mutedUsers:
		res, err := ask(ctx, c, c.Graph.ListMuted, &skeinv1.ListMutedRequest{
			UserId: of, PageSize: comparePage, PageToken: token, AtLeast: c.AtLeast,
		})
		return plainUserPage(res, res.GetEntries()), err
	case userPins:
		return c.pinPage(ctx, &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: of}}, token)
	case boardPins:
		return c.pinPage(ctx, &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_Board{Board: k.of.proto()}}, token)
	}
	return page{}, fmt.Errorf("no list %q", k.list)
}

func (c *comparer) pinPage(ctx context.Context, req *skeinv1.ListPinsRequest, token string) (page, error) {
	req.PageSize, req.PageToken, req.AtLeast = comparePage, token, c.AtLeast
	res, err := ask(ctx, c, c.Feed.ListPins, req)
	p := page{next: res.GetNextPageToken(), total: res.GetTotalSize()}
	for _, e := range res.GetEntries() {
		p.entries = append(p.entries, entry{
			user: e.GetOwnerId(), pin: e.GetPinId(), board: e.GetBoardId(), item: e.GetItemId(),
			attributes: string(e.GetAttributes()), since: micros(e.GetCreateTime()),
		})
	}
	return p, err
}

func userPage(res listed, entries []*skeinv1.FollowEntry) page {
	p := page{next: res.GetNextPageToken(), total: res.GetTotalSize()}
	for _, e := range entries {
		p.entries = append(p.entries, entry{user: e.GetUserId(), since: micros(e.GetFollowTime())})
	}
	return p
}

func plainUserPage(res listed, entries []*skeinv1.UserEntry) page {
	p := page{next: res.GetNextPageToken(), total: res.GetTotalSize()}
	for _, e := range entries {
		p.entries = append(p.entries, entry{user: e.GetUserId(), since: micros(e.GetTime())})
	}
	return p
}

func boardPage(res listed, entries []*skeinv1.BoardEntry) page {
	p := page{next: res.GetNextPageToken(), total: res.GetTotalSize()}
	for _, e := range entries {
		p.entries = append(p.entries, entry{
			user: e.GetBoard().GetOwnerId(), board: e.GetBoard().GetBoardId(), title: e.GetTitle(), since: micros(e.GetTime()),
		})
	}
	return p
}

func micros(t *timestamppb.Timestamp) events.Micros { return microsOf(t.AsTime()) }
