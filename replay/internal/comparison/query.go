package comparison

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/internal/retry"
)

// page is one page of a list of any kind.
type page struct {
	entries []Entry
	// next is the token of the next page; empty on the last one.
	next string
	// total is the size of the whole list according to the service.
	total int
}

// listPage has the methods that the responses of all list methods of the service share.
type listPage[E any] interface {
	GetEntries() []E
	GetNextPageToken() string
	GetTotalSize() uint32
}

// callRetrying calls a method of the service, and repeats the call for up to c.Patience.
func callRetrying[Req, Res any](
	ctx context.Context, c *Comparer,
	method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) (*Res, error) {
	return retry.Read(ctx, c.Patience, method, req)
}

// queryList queries all pages of a list and adds their entries to the answers. It checks their
// order and the total size.
func (c *Comparer) queryList(ctx context.Context, list List) error {
	if list.Kind == Served {
		return c.queryServed(ctx, list)
	}
	listed := 0
	var last *Entry
	for token := ""; ; {
		p, err := c.queryPage(ctx, list, token)
		if err != nil {
			return fmt.Errorf("%s: %w", list, err)
		}
		for i := range p.entries {
			e := &p.entries[i]
			e.List = list
			if last != nil && compareNewestFirst(last, e) >= 0 {
				c.Differ(&c.result.Unordered, "%s: %s, since %s, comes after %s, since %s",
					list, e.name(), formatTime(e.At), last.name(), formatTime(last.At))
			}
			last = e
		}
		listed += len(p.entries)

		// The list counts as answered with its last page.
		queries := 0
		if p.next == "" {
			queries = 1
		}
		if err := c.addAnswer(queries, p.entries); err != nil {
			return err
		}
		if p.next == "" {
			if listed != p.total {
				c.Differ(&c.result.OtherCounts, "%s: skein lists %d and says that there are %d", list, listed, p.total)
			}
			return nil
		}
		token = p.next
	}
}

// compareNewestFirst compares two entries in the order of every list of the service: newest first,
// and by id if they have the same time.
func compareNewestFirst(a, b *Entry) int {
	return cmp.Or(cmp.Compare(b.At, a.At), events.CompareIDs(a.ID, b.ID), events.CompareIDs(a.Board, b.Board))
}

// queryPage queries one page of a list. An empty token requests the first page.
func (c *Comparer) queryPage(ctx context.Context, list List, token string) (page, error) {
	of := list.Owner
	kind := skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT.Enum()
	if list.Kind == ImplicitFollowing || list.Kind == ImplicitFollowers {
		kind = skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT.Enum()
	}
	pins := &skeinv1.ListPinsRequest{PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast}

	switch list.Kind {
	case Following, ImplicitFollowing:
		res, err := callRetrying(ctx, c, c.Graph.ListFollowing, &skeinv1.ListFollowingRequest{
			UserId: of, Kind: kind, PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast,
		})
		return pageOf(res, followEntry), err
	case Followers, ImplicitFollowers:
		res, err := callRetrying(ctx, c, c.Graph.ListFollowers, &skeinv1.ListFollowersRequest{
			UserId: of, Kind: kind, PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast,
		})
		return pageOf(res, followEntry), err
	case BoardFollowers:
		res, err := callRetrying(ctx, c, c.Graph.ListBoardFollowers, &skeinv1.ListBoardFollowersRequest{
			Board: list.board(), Kind: skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT,
			PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast,
		})
		return pageOf(res, followEntry), err
	case FollowedBoards:
		res, err := callRetrying(ctx, c, c.Graph.ListFollowedBoards, &skeinv1.ListFollowedBoardsRequest{
			UserId: of, PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast,
		})
		return pageOf(res, boardEntry), err
	case Boards:
		res, err := callRetrying(ctx, c, c.Graph.ListBoards, &skeinv1.ListBoardsRequest{
			UserId: of, PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast,
		})
		return pageOf(res, boardEntry), err
	case Blocked:
		res, err := callRetrying(ctx, c, c.Graph.ListBlocked, &skeinv1.ListBlockedRequest{
			UserId: of, PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast,
		})
		return pageOf(res, userEntry), err
	case Muted:
		res, err := callRetrying(ctx, c, c.Graph.ListMuted, &skeinv1.ListMutedRequest{
			UserId: of, PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast,
		})
		return pageOf(res, userEntry), err
	case HiddenItems:
		res, err := callRetrying(ctx, c, c.Seen.ListHidden, &skeinv1.ListHiddenRequest{
			UserId: of, PageSize: pageSize, PageToken: token, AtLeast: c.AtLeast,
		})
		return pageOf(res, hiddenItemEntry), err
	case Pins:
		pins.Target = &skeinv1.ListPinsRequest_OwnerId{OwnerId: of}
	case BoardPins:
		pins.Target = &skeinv1.ListPinsRequest_Board{Board: list.board()}
	default:
		return page{}, fmt.Errorf("no list %v", list.Kind)
	}
	res, err := callRetrying(ctx, c, c.Feed.ListPins, pins)
	return pageOf(res, pinEntry), err
}

// board returns the board of a list in the form that requests use.
func (l List) board() *skeinv1.Board { return &skeinv1.Board{OwnerId: l.Owner, BoardId: l.Board} }

// pageOf returns the page that a response contains. entry converts an entry of the response.
func pageOf[E any](res listPage[E], entry func(E) Entry) page {
	p := page{next: res.GetNextPageToken(), total: int(res.GetTotalSize())}
	for _, e := range res.GetEntries() {
		p.entries = append(p.entries, entry(e))
	}
	return p
}

func followEntry(e *skeinv1.FollowEntry) Entry {
	return Entry{ID: e.GetUserId(), At: toMicros(e.GetFollowTime())}
}

func userEntry(e *skeinv1.UserEntry) Entry {
	return Entry{ID: e.GetUserId(), At: toMicros(e.GetTime())}
}

func hiddenItemEntry(e *skeinv1.HiddenEntry) Entry {
	return Entry{ID: e.GetItemId(), At: toMicros(e.GetHideTime())}
}

func boardEntry(e *skeinv1.BoardEntry) Entry {
	return Entry{
		ID: e.GetBoard().GetOwnerId(), Board: e.GetBoard().GetBoardId(), At: toMicros(e.GetTime()), Text: TitleText(e.GetTitle()),
	}
}

func pinEntry(e *skeinv1.FeedEntry) Entry {
	text := PinText(&skeinv1.PinCreated{
		Pin: &skeinv1.Pin{OwnerId: e.GetOwnerId(), PinId: e.GetPinId()}, BoardId: e.GetBoardId(), ItemId: e.GetItemId(),
		Attributes: e.GetAttributes(),
	})
	return Entry{ID: e.GetPinId(), At: toMicros(e.GetCreateTime()), Text: text}
}

func toMicros(t *timestamppb.Timestamp) events.Micros { return events.Micros(t.AsTime().UnixMicro()) }

// formatTime returns a time for people.
func formatTime(t events.Micros) string {
	if t == Timeless {
		return "an unknown time"
	}
	return t.Time().Format("2006-01-02T15:04:05.999999Z")
}

// queryServed queries the items that were last served to a user. The service returns no times for
// them.
func (c *Comparer) queryServed(ctx context.Context, list List) error {
	res, err := callRetrying(ctx, c, c.Seen.ListServed, &skeinv1.ListServedRequest{UserId: list.Owner, AtLeast: c.AtLeast})
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	entries := make([]Entry, 0, len(res.GetItemIds()))
	for _, item := range res.GetItemIds() {
		entries = append(entries, Entry{List: list, ID: item, At: Timeless})
	}
	return c.addAnswer(1, entries)
}

// maxKinds is how many kinds of reactions one call can name.
const maxKinds = 16

// queryCounters queries the counts of plays and reactions of several lists, in one call unless
// there are too many kinds of reactions.
func (c *Comparer) queryCounters(ctx context.Context, lists []List) error {
	var kinds []string
	for _, l := range lists {
		if kind := events.ReactionName(l.Board); l.Kind == ReactionsOf && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	// A service rejects a call with too many kinds. Halves have fewer lists and so fewer kinds; a
	// single list has one.
	if len(kinds) > maxKinds {
		half := len(lists) / 2
		if err := c.queryCounters(ctx, lists[:half]); err != nil {
			return err
		}
		return c.queryCounters(ctx, lists[half:])
	}

	req := &skeinv1.BatchGetCountersRequest{AtLeast: c.AtLeast, ReactionKinds: kinds}
	for _, l := range lists {
		key := &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: l.Owner}}
		if l.Kind == PlaysBy {
			key.Target = &skeinv1.CounterKey_UserId{UserId: l.Owner}
		}
		req.Keys = append(req.Keys, key)
	}

	res, err := callRetrying(ctx, c, c.Counters.BatchGetCounters, req)
	if err != nil {
		return fmt.Errorf("counts: %w", err)
	}
	if len(res.GetCounters()) != len(lists) {
		return fmt.Errorf("%d counters for %d keys", len(res.GetCounters()), len(lists))
	}

	entries := make([]Entry, len(lists))
	for i, l := range lists {
		n := res.GetCounters()[i].GetPlayCount()
		if l.Kind == ReactionsOf {
			n = 0 // an answer has no entry for a kind with which nobody reacts
			for _, reaction := range res.GetCounters()[i].GetReactions() {
				if reaction.GetKind() == events.ReactionName(l.Board) {
					n = int64(reaction.GetCount())
				}
			}
		}
		entries[i] = Entry{List: l, Text: strconv.FormatInt(n, 10)}
	}
	return c.addAnswer(len(lists), entries)
}

// queryUserCounts queries the follow counts of several users in one call.
func (c *Comparer) queryUserCounts(ctx context.Context, lists []List) error {
	req := &skeinv1.BatchGetFollowCountsRequest{AtLeast: c.AtLeast}
	for _, l := range lists {
		req.UserIds = append(req.UserIds, l.Owner)
	}

	res, err := callRetrying(ctx, c, c.Graph.BatchGetFollowCounts, req)
	if err != nil {
		return fmt.Errorf("counts: %w", err)
	}
	if len(res.GetUsers()) != len(lists) {
		return fmt.Errorf("%d counts for %d users", len(res.GetUsers()), len(lists))
	}

	entries := make([]Entry, len(lists))
	for i, l := range lists {
		n := res.GetUsers()[i]
		if n.GetUserId() != l.Owner {
			return fmt.Errorf("counts of %s for %s", n.GetUserId(), l.Owner)
		}
		entries[i] = Entry{List: l, Text: encodeCounts(
			n.GetExplicitFollowingCount(), n.GetExplicitFollowerCount(), n.GetImplicitFollowingCount(), n.GetImplicitFollowerCount(),
			n.GetFollowedBoardCount(), n.GetBoardCount(), n.GetBlockedCount(), n.GetMutedCount(),
			n.GetFollowingCount(), n.GetFollowerCount(), n.GetExcludedBoardCount(),
		)}
	}
	return c.addAnswer(0, entries)
}

// queryBoardCounts queries the follow counts of several boards in one call.
func (c *Comparer) queryBoardCounts(ctx context.Context, lists []List) error {
	req := &skeinv1.BatchGetFollowCountsRequest{AtLeast: c.AtLeast}
	for _, l := range lists {
		req.Boards = append(req.Boards, l.board())
	}

	res, err := callRetrying(ctx, c, c.Graph.BatchGetFollowCounts, req)
	if err != nil {
		return fmt.Errorf("counts: %w", err)
	}
	if len(res.GetBoards()) != len(lists) {
		return fmt.Errorf("%d counts for %d boards", len(res.GetBoards()), len(lists))
	}

	entries := make([]Entry, len(lists))
	for i, l := range lists {
		n := res.GetBoards()[i]
		entries[i] = Entry{List: l, Text: encodeCounts(n.GetExplicitFollowerCount(), n.GetFollowerCount(), n.GetExcluderCount())}
	}
	return c.addAnswer(0, entries)
}

// encodeCounts returns the text of an answer of counts: the counts in decimal, separated by spaces.
func encodeCounts(counts ...uint32) string {
	return strings.Trim(fmt.Sprint(counts), "[]")
}

// decodeCounts is the inverse of encodeCounts.
func decodeCounts(text string) ([]int, error) {
	var counts []int
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDamagedRecord, err)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// queryPairs asks the service in one call which of the pairs are follows, and compares the answers
// with the source.
func (c *Comparer) queryPairs(ctx context.Context, pairs []pair) error {
	req := &skeinv1.CheckFollowsRequest{IncludeTimes: true, AtLeast: c.AtLeast}
	for _, p := range pairs {
		q := &skeinv1.FollowPair{UserId: p.follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: p.user}}
		if p.user == "" {
			q.Target = &skeinv1.FollowPair_Board{Board: p.board.board()}
		}
		req.Pairs = append(req.Pairs, q)
	}

	res, err := callRetrying(ctx, c, c.Graph.CheckFollows, req)
	if err != nil {
		return fmt.Errorf("pairs: %w", err)
	}
	if len(res.GetKinds()) != len(pairs) || len(res.GetFollowTimes()) != len(pairs) {
		return fmt.Errorf("%d kinds and %d times for %d pairs", len(res.GetKinds()), len(res.GetFollowTimes()), len(pairs))
	}

	for i := range pairs {
		p := &pairs[i]
		kind := skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
		if p.user == "" {
			kind = skeinv1.FollowKind_FOLLOW_KIND_BOARD
		}
		got := res.GetKinds()[i]
		since := toMicros(res.GetFollowTimes()[i].GetTime())
		switch {
		case p.follows && got != kind:
			c.Differ(&c.result.Missing, "check %s: %v is missing: %s has it, since %s; skein says %v",
				p, kind, c.Origin, formatTime(p.since), got)
		case !p.follows && got != skeinv1.FollowKind_FOLLOW_KIND_NONE:
			c.Differ(&c.result.Extra, "check %s: %v is extra: %s does not have it, skein has, since %s",
				p, got, c.Origin, formatTime(since))
		case p.follows && c.timesDiffer(p.since, since):
			c.Differ(&c.result.OtherTimes, "check %s has another time: %s has %s, skein has %s",
				p, c.Origin, formatTime(p.since), formatTime(since))
		}
	}

	// Other queries run at the same time.
	c.mu.Lock()
	c.result.Pairs += uint64(len(pairs))
	c.mu.Unlock()
	return c.addAnswer(len(pairs), nil)
}

// timesDiffer reports whether the time got is wrong for an entry that must have the time want.
func (c *Comparer) timesDiffer(want, got events.Micros) bool {
	if want == Timeless || want > c.Latest {
		return false
	}
	difference := want - got
	return max(difference, -difference) > events.Micros(c.Tolerance.Microseconds())
}
