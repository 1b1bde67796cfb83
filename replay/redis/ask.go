package redis

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

// answer is a page of any list.
type answer struct {
	entries []entry
	next    string
	total   int64
}

// askList queries all pages of a list.
func (c *comparer) askList(ctx context.Context, of listOf) error {
	if of.kind == listServed {
		return c.askServed(ctx, of)
	}
	var n, total int64
	for token := ""; ; {
		a, err := c.page(ctx, of, token)
		if err != nil {
			return fmt.Errorf("%s: %w", of, err)
		}
		for i := range a.entries {
			a.entries[i].list = of
		}
		n, total, token = n+int64(len(a.entries)), a.total, a.next
		lists := 0
		if token == "" {
			lists = 1
		}
		if err := c.answered(lists, a.entries); err != nil {
			return err
		}
		if token == "" {
			break
		}
	}
	if n != total {
		c.differ(&c.found.OtherCounts, "%s: skein lists %d and says that there are %d", of, n, total)
	}
	return nil
}

// page queries a page of a list; an empty token means the first.
func (c *comparer) page(ctx context.Context, of listOf, token string) (answer, error) {
	explicit := skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT.Enum()
	switch of.kind {
	case listFollowing:
		res, err := importer.Ask(ctx, c.Patience, c.Graph.ListFollowing, &skeinv1.ListFollowingRequest{
			UserId: of.owner, Kind: explicit, PageSize: askKeys, PageToken: token, AtLeast: c.AtLeast,
		})
		return follows(res, res.GetEntries()), err
	case listFollowers:
		res, err := importer.Ask(ctx, c.Patience, c.Graph.ListFollowers, &skeinv1.ListFollowersRequest{
			UserId: of.owner, Kind: explicit, PageSize: askKeys, PageToken: token, AtLeast: c.AtLeast,
		})
		return follows(res, res.GetEntries()), err
	case listBoardFollowers:
		res, err := importer.Ask(ctx, c.Patience, c.Graph.ListBoardFollowers, &skeinv1.ListBoardFollowersRequest{
			Board: &skeinv1.Board{OwnerId: of.owner, BoardId: of.board}, PageSize: askKeys, PageToken: token, AtLeast: c.AtLeast,
			Kind: skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT,
		})
		return follows(res, res.GetEntries()), err
	case listFollowedBoards:
		res, err := importer.Ask(ctx, c.Patience, c.Graph.ListFollowedBoards, &skeinv1.ListFollowedBoardsRequest{
			UserId: of.owner, PageSize: askKeys, PageToken: token, AtLeast: c.AtLeast,
		})
		return boards(res, res.GetEntries()), err
	case listBoards:
		res, err := importer.Ask(ctx, c.Patience, c.Graph.ListBoards, &skeinv1.ListBoardsRequest{
			UserId: of.owner, PageSize: askKeys, PageToken: token, AtLeast: c.AtLeast,
		})
		return boards(res, res.GetEntries()), err
	case listBlocked:
		res, err := importer.Ask(ctx, c.Patience, c.Graph.ListBlocked, &skeinv1.ListBlockedRequest{
			UserId: of.owner, PageSize: askKeys, PageToken: token, AtLeast: c.AtLeast,
		})
		return users(res, res.GetEntries()), err
	case listMuted:
		res, err := importer.Ask(ctx, c.Patience, c.Graph.ListMuted, &skeinv1.ListMutedRequest{
			UserId: of.owner, PageSize: askKeys, PageToken: token, AtLeast: c.AtLeast,
		})
		return users(res, res.GetEntries()), err
	case listPins:
		res, err := importer.Ask(ctx, c.Patience, c.Feed.ListPins, &skeinv1.ListPinsRequest{
			Target:   &skeinv1.ListPinsRequest_OwnerId{OwnerId: of.owner},
			PageSize: askKeys, PageToken: token, AtLeast: c.AtLeast,
		})
		return pins(res), err
	}
	return answer{}, fmt.Errorf("no list %v", of.kind)
}

// listed has the methods that the responses of all list methods share.
type listed interface {
	GetNextPageToken() string
	GetTotalSize() uint32
}

func answerOf(res listed, n int) answer {
	return answer{next: res.GetNextPageToken(), total: int64(res.GetTotalSize()), entries: make([]entry, 0, n)}
}

func micros(t *timestamppb.Timestamp) events.Micros { return events.Micros(t.AsTime().UnixMicro()) }

func follows(res listed, list []*skeinv1.FollowEntry) answer {
	a := answerOf(res, len(list))
	for _, e := range list {
		a.entries = append(a.entries, entry{id: e.GetUserId(), at: micros(e.GetFollowTime())})
	}
	return a
}

func users(res listed, list []*skeinv1.UserEntry) answer {
	a := answerOf(res, len(list))
	for _, e := range list {
		a.entries = append(a.entries, entry{id: e.GetUserId(), at: micros(e.GetTime())})
	}
	return a
}

func boards(res listed, list []*skeinv1.BoardEntry) answer {
	a := answerOf(res, len(list))
	for _, e := range list {
		a.entries = append(a.entries, entry{
			id: e.GetBoard().GetOwnerId(), board: e.GetBoard().GetBoardId(), at: micros(e.GetTime()), text: e.GetTitle(),
		})
	}
	return a
}

func pins(res *skeinv1.ListPinsResponse) answer {
	a := answerOf(res, len(res.GetEntries()))
	for _, e := range res.GetEntries() {
		a.entries = append(a.entries, entry{
			id: e.GetPinId(), at: micros(e.GetCreateTime()),
			text: pinText(e.GetBoardId(), e.GetItemId(), string(e.GetAttributes())),
		})
	}
	return a
}

// askServed queries the last items that were served to a user. They have no times.
func (c *comparer) askServed(ctx context.Context, of listOf) error {
	res, err := importer.Ask(ctx, c.Patience, c.Seen.ListServed, &skeinv1.ListServedRequest{UserId: of.owner, AtLeast: c.AtLeast})
	if err != nil {
		return fmt.Errorf("%s: %w", of, err)
	}
	entries := make([]entry, 0, len(res.GetItemIds()))
	for _, item := range res.GetItemIds() {
		entries = append(entries, entry{list: of, id: item, at: timeless})
	}
	return c.answered(1, entries)
}

// askCounts queries counts, in one call.
func (c *comparer) askCounts(ctx context.Context, of []listOf) error {
	req := &skeinv1.BatchGetCountersRequest{AtLeast: c.AtLeast}
	for _, l := range of {
		key := &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: l.owner}}
		if l.kind == countPlaysBy {
			key.Target = &skeinv1.CounterKey_UserId{UserId: l.owner}
		}
		req.Keys = append(req.Keys, key)
	}
	res, err := importer.Ask(ctx, c.Patience, c.Counters.BatchGetCounters, req)
	if err != nil {
		return fmt.Errorf("counts: %w", err)
	}
	if len(res.GetCounters()) != len(of) {
		return fmt.Errorf("%d counters for %d keys", len(res.GetCounters()), len(of))
	}
	entries := make([]entry, len(of))
	for i, l := range of {
		n := res.GetCounters()[i].GetPlayCount()
		if l.kind == countLikesOf {
			n = int64(res.GetCounters()[i].GetLikeCount())
		}
		entries[i] = entry{list: l, text: strconv.FormatInt(n, 10)}
	}
	return c.answered(len(of), entries)
}
