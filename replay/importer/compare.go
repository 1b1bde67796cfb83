package importer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// CompareOptions say which file is compared with which service.
type CompareOptions struct {
	Kind   Kind
	Path   string
	Format Format
	First  bool
	// MaxRejects is the number of bad records with which the file was imported.
	MaxRejects MaxRejects
	// StartedAt is the recorded start of the import, as its [Report] has it.
	StartedAt time.Time
	// AtLeast is a position that contains the import.
	AtLeast string
	// Graph answers for follows, boards, blocks and mutes, Feed for pins, Counters for plays and likes.
	Graph    skeinv1connect.GraphServiceClient
	Feed     skeinv1connect.FeedServiceClient
	Counters skeinv1connect.CounterServiceClient
	// Checks is the number of random pairs that are checked beside all lists and counts, for follows and boards.
	Checks int
	// Seed chooses the pairs: the same seed chooses the same ones.
	Seed uint64
	// Patience is how long a call is retried while the service does not answer. Default 5 min.
	Patience time.Duration
	// Observe is called with the number of users, boards and items that are done, from several goroutines; nil disables it.
	Observe func(done, total int)
	// Difference is called with each of the first 100 distinct differences, one at a time; nil disables it.
	Difference func(string)
}

// Comparison is the result of [Compare]. Items are counted for plays and likes, users of these for plays only.
type Comparison struct {
	Users, Boards, Items, Lists, Entries, Checks int
	Differences                                  int
}

const (
	compareWorkers   = 4
	toldDifferences  = 100
	comparePage      = 1000
	compareCountKeys = 100
)

// comparer queries a service and counts differences.
type comparer struct {
	CompareOptions
	want *expectation
	// total is the number of users, boards and items to compare.
	total int

	mu    sync.Mutex
	found Comparison
	// told are the reported differences. A pair may be checked more than once, but its difference is reported once.
	told map[string]struct{}
	done atomic.Int64
}

// ErrNothingToCompare is returned for a file without facts for which the service has an answer.
var ErrNothingToCompare = errors.New("there is nothing to compare with")

// IsComparable reports whether files of the kind can be compared with the service, which does not list follows that ended, and not whose
// re-pins a user hides.
func (k Kind) IsComparable() bool {
	return k != Unfollows && k != BoardUnfollows && k != HiddenRepins
}

// Compare reads the file of an import again and compares all its facts with the answers of a running service. For follows and boards it
// compares the lists of every user and board, in order and with times, every count, and random pairs; for pins the pins of every owner
// and board; for plays and likes the counts of every item. Other facts about the same users and items, live or from another
// import, appear as differences. It returns [ErrNothingToCompare] for a file without such facts.
func Compare(ctx context.Context, o CompareOptions) (*Comparison, error) {
	if !o.Kind.IsComparable() {
		return nil, fmt.Errorf("%w: the service does not list %s", ErrNothingToCompare, o.Kind)
	}
	def(&o.Patience, DefaultPatience)
	c := &comparer{CompareOptions: o, told: map[string]struct{}{}}
	if o.Kind.tallied() {
		err := c.tallies(ctx)
		return &c.found, err
	}
	want, err := expect(ctx, o)
	if err != nil {
		return nil, err
	}
	c.want, c.total = want, len(want.users)+len(want.boards)
	c.found.Users, c.found.Boards = len(want.users), len(want.boards)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(compareWorkers)
	for users := range slices.Chunk(want.users, compareCountKeys) {
		g.Go(func() error { return c.users(ctx, users) })
	}
	for boards := range slices.Chunk(want.boards, compareCountKeys) {
		g.Go(func() error { return c.boards(ctx, boards) })
	}
	if len(want.users) > 0 && (o.Kind == Follows || o.Kind == Boards) {
		rng := rand.New(rand.NewPCG(o.Seed, 0))
		for n := o.Checks; n > 0; n -= comparePage {
			pairs := c.draw(rng, min(n, comparePage))
			g.Go(func() error { return c.checks(ctx, pairs) })
		}
	}
	err = g.Wait()
	if o.Kind == Pins && connect.CodeOf(err) == connect.CodeUnimplemented {
		err = fmt.Errorf("%w: the service does not list pins: %w", ErrNothingToCompare, err)
	}
	return &c.found, err
}

func (c *comparer) differ(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found.Differences++
	if _, told := c.told[text]; told || len(c.told) >= toldDifferences || c.Difference == nil {
		return
	}
	c.told[text] = struct{}{}
	c.Difference(text)
}

func (c *comparer) step(n int) {
	if c.Observe != nil {
		c.Observe(int(c.done.Add(int64(n))), c.total)
	}
}

// ask repeats a read until the service answers it.
func ask[Req, Res any](ctx context.Context, c *comparer,
	method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) (*Res, error) {
	return Ask(ctx, c.Patience, method, req)
}

// users compares the lists and counts of users.
func (c *comparer) users(ctx context.Context, users []string) error {
	lists := []listName{following, followers}
	switch c.Kind {
	case Boards:
		lists = append(lists, ownBoards, followedBoards)
	case Pins:
		lists = []listName{userPins}
	case Blocks:
		lists = []listName{blockedUsers}
	case Mutes:
		lists = []listName{mutedUsers}
	}
	for _, u := range users {
		for _, list := range lists {
			if err := c.list(ctx, listKey{list, boardID{owner: u}}); err != nil {
				return err
			}
		}
	}
	if c.Kind != Follows && c.Kind != Boards {
		c.step(len(users))
		return nil
	}
	res, err := ask(ctx, c, c.Graph.BatchGetFollowCounts, &skeinv1.BatchGetFollowCountsRequest{
		UserIds: users, AtLeast: c.AtLeast,
	})
	if err != nil {
		return err
	}
	if len(res.GetUsers()) != len(users) {
		return fmt.Errorf("%d counts for %d users", len(res.GetUsers()), len(users))
	}
	for i, u := range users {
		got, want := res.GetUsers()[i], c.counts(u)
		if !equalCounts(got, want) {
			c.differ("counts of %s: got %v, want %v", u, got, want)
		}
	}
	c.step(len(users))
	return nil
}

func (c *comparer) len(list listName, of boardID) uint32 {
	return uint32(len(c.want.lists[listKey{list, of}]))
}

func (c *comparer) counts(u string) *skeinv1.UserFollowCounts {
	of := boardID{owner: u}
	want := &skeinv1.UserFollowCounts{
		UserId: u, FollowerCount: c.len(followers, of), FollowingCount: c.len(following, of),
		BoardCount: c.len(ownBoards, of), FollowedBoardCount: c.len(followedBoards, of),
	}
	if c.Kind == Follows {
		want.ExplicitFollowerCount, want.ExplicitFollowingCount = want.FollowerCount, want.FollowingCount
	} else {
		want.ImplicitFollowerCount, want.ImplicitFollowingCount = want.FollowerCount, want.FollowingCount
	}
	return want
}

func equalCounts(a, b *skeinv1.UserFollowCounts) bool {
	all := func(c *skeinv1.UserFollowCounts) [11]uint32 {
		return [...]uint32{
			c.GetFollowerCount(), c.GetExplicitFollowerCount(), c.GetImplicitFollowerCount(), c.GetFollowingCount(),
			c.GetExplicitFollowingCount(), c.GetImplicitFollowingCount(), c.GetBoardCount(), c.GetFollowedBoardCount(),
			c.GetExcludedBoardCount(), c.GetBlockedCount(), c.GetMutedCount(),
		}
	}
	return a.GetUserId() == b.GetUserId() && all(a) == all(b)
}

// boards compares the pins, or the followers and counts, of boards.
func (c *comparer) boards(ctx context.Context, boards []boardID) error {
	list := boardFollowers
	if c.Kind == Pins {
		list = boardPins
	}
	req := &skeinv1.BatchGetFollowCountsRequest{AtLeast: c.AtLeast}
	for _, b := range boards {
		if err := c.list(ctx, listKey{list, b}); err != nil {
			return err
		}
		req.Boards = append(req.Boards, b.proto())
	}
	if c.Kind == Pins {
		c.step(len(boards))
		return nil
	}
	res, err := ask(ctx, c, c.Graph.BatchGetFollowCounts, req)
	if err != nil {
		return err
	}
	if len(res.GetBoards()) != len(boards) {
		return fmt.Errorf("%d counts for %d boards", len(res.GetBoards()), len(boards))
	}
	for i, b := range boards {
		got, want := res.GetBoards()[i], c.len(boardFollowers, b)
		if got.GetExplicitFollowerCount() != want || got.GetFollowerCount() != want || got.GetExcluderCount() != 0 {
			c.differ("counts of board %q of %s: got %v, want %d followers", b.board, b.owner, got, want)
		}
	}
	c.step(len(boards))
	return nil
}

func (b boardID) proto() *skeinv1.Board { return &skeinv1.Board{OwnerId: b.owner, BoardId: b.board} }

// list compares one list, page by page.
func (c *comparer) list(ctx context.Context, k listKey) error {
	want := c.want.lists[k]
	name := k.String()
	at, token := 0, ""
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.found.Lists++
		c.found.Entries += at
	}()
	for {
		page, err := c.page(ctx, k, token)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if int(page.total) != len(want) {
			c.differ("%s: total_size is %d, want %d", name, page.total, len(want))
		}
		for _, got := range page.entries {
			if at >= len(want) {
				c.differ("%s: entry %d is %v, want the end of the list", name, at, got)
				return nil
			}
			if got != want[at] {
				c.differ("%s: entry %d is %v, want %v", name, at, got, want[at])
				return nil // after one difference all later entries are probably shifted
			}
			at++
		}
		if token = page.next; token == "" {
			break
		}
	}
	if at < len(want) {
		c.differ("%s: ends after %d entries, want %v", name, at, want[at])
	}
	return nil
}

// draw chooses n random pairs. Half of them are follows in the file; few of the others are.
func (c *comparer) draw(rng *rand.Rand, n int) []pair {
	pairs := make([]pair, n)
	for i := range pairs {
		u := c.want.users
		if i%2 == 0 && len(c.want.pairs) > 0 {
			pairs[i] = c.want.pairs[rng.IntN(len(c.want.pairs))]
			continue
		}
		pairs[i] = pair{follower: u[rng.IntN(len(u))], user: u[rng.IntN(len(u))]}
		if c.Kind == Boards && len(c.want.boards) > 0 {
			b := c.want.boards[rng.IntN(len(c.want.boards))]
			pairs[i] = pair{follower: pairs[i].follower, owner: b.owner, board: b.board}
		}
	}
	return pairs
}

// checks compares pairs.
func (c *comparer) checks(ctx context.Context, pairs []pair) error {
	req := &skeinv1.CheckFollowsRequest{IncludeTimes: true, AtLeast: c.AtLeast}
	for _, p := range pairs {
		q := &skeinv1.FollowPair{UserId: p.follower, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: p.user}}
		if c.Kind == Boards {
			q.Target = &skeinv1.FollowPair_Board{Board: boardID{p.owner, p.board}.proto()}
		}
		req.Pairs = append(req.Pairs, q)
	}
	res, err := ask(ctx, c, c.Graph.CheckFollows, req)
	if err != nil {
		return err
	}
	if len(res.GetKinds()) != len(pairs) || len(res.GetFollowTimes()) != len(pairs) {
		return fmt.Errorf("%d kinds and %d times for %d pairs", len(res.GetKinds()), len(res.GetFollowTimes()), len(pairs))
	}
	for i, p := range pairs {
		kind := skeinv1.FollowKind_FOLLOW_KIND_NONE
		since, follows := c.want.follows[p]
		if follows {
			kind = skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
			if c.Kind == Boards {
				kind = skeinv1.FollowKind_FOLLOW_KIND_BOARD
			}
		}
		got := events.Micros(res.GetFollowTimes()[i].GetTime().AsTime().UnixMicro())
		if res.GetKinds()[i] != kind || got != since {
			c.differ("check %s: got %v since %s, want %v since %s", p, res.GetKinds()[i], stamp(got), kind, stamp(since))
		}
	}
	c.mu.Lock()
	c.found.Checks += len(pairs)
	c.mu.Unlock()
	return nil
}
