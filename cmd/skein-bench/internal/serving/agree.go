package serving

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"github.com/redis/go-redis/v9"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// entry is one entry of a page of followers.
type entry struct {
	user  string
	since events.Micros
}

// graphQueries is asked the questions of the rows one by one.
type graphQueries interface {
	// check tells since when the follower follows the followee; 0 means not at all.
	followTime(ctx context.Context, pair workload.Edge) (events.Micros, error)
	// filter reports which candidates the viewer follows.
	followedCandidates(ctx context.Context, f workload.Filter) ([]uint32, error)
	// newest returns the newest followers.
	newestFollowers(ctx context.Context, user uint32, n int) ([]entry, error)
}

// questions are a sample of what will be measured.
type questionSample struct {
	pairs   []workload.Edge
	filters []workload.Filter
	lists   []uint32
}

func drawQuestions(g *workload.Graph, r *rand.Rand, n int) questionSample {
	q := questionSample{pairs: g.Pairs(r, n), filters: g.Filters(r, n/5)}
	for range n / 5 {
		q.lists = append(q.lists, uint32(r.IntN(g.Users)))
	}
	q.lists = append(q.lists, 0) // the longest
	return q
}

// agree fails unless every graphQueries gives the answers of the first.
func (q questionSample) compareAnswers(ctx context.Context, names []string, all []graphQueries) error {
	for i, a := range all {
		for _, p := range q.pairs {
			if err := compareAnswer(ctx, p, all[0].followTime, a.followTime, equal); err != nil {
				return fmt.Errorf("check: %s and %s: %w", names[0], names[i], err)
			}
		}
		for _, f := range q.filters {
			if err := compareAnswer(ctx, f, all[0].followedCandidates, a.followedCandidates, slices.Equal); err != nil {
				return fmt.Errorf("filter: %s and %s: %w", names[0], names[i], err)
			}
		}
		for _, u := range q.lists {
			page := func(a graphQueries) func(context.Context, uint32) ([]entry, error) {
				return func(ctx context.Context, u uint32) ([]entry, error) {
					return a.newestFollowers(ctx, u, workload.PageSize)
				}
			}
			if err := compareAnswer(ctx, u, page(all[0]), page(a), slices.Equal); err != nil {
				return fmt.Errorf("newest followers: %s and %s: %w", names[0], names[i], err)
			}
		}
	}
	return nil
}

func equal(a, b events.Micros) bool { return a == b }

func compareAnswer[Q, A any](
	ctx context.Context, q Q, first, other func(context.Context, Q) (A, error), equal func(A, A) bool,
) error {
	want, err := first(ctx, q)
	if err != nil {
		return err
	}
	got, err := other(ctx, q)
	if err != nil {
		return err
	}
	if !equal(want, got) {
		return fmt.Errorf("to %v they answer %v and %v", q, want, got)
	}
	return nil
}

// referenceGraph answers from the graph itself.
type referenceGraph struct {
	*workload.Graph
	since map[workload.Edge]events.Micros
	lists map[uint32][]entry
}

func newReferenceGraph(g *workload.Graph) *referenceGraph {
	t := &referenceGraph{Graph: g, since: make(map[workload.Edge]events.Micros, len(g.Edges)), lists: make(map[uint32][]entry)}
	for i, e := range slices.Backward(g.Edges) {
		t.since[e] = g.Since(i)
		if len(t.lists[e.Followee]) < workload.PageSize {
			t.lists[e.Followee] = append(t.lists[e.Followee], entry{workload.UserID(e.Follower), g.Since(i)})
		}
	}
	return t
}

func (t *referenceGraph) followTime(_ context.Context, p workload.Edge) (events.Micros, error) {
	return t.since[p], nil
}

func (t *referenceGraph) followedCandidates(_ context.Context, f workload.Filter) (indexes []uint32, _ error) {
	for i, c := range f.Candidates {
		if t.Follows(f.Viewer, c) {
			indexes = append(indexes, uint32(i))
		}
	}
	return indexes, nil
}

func (t *referenceGraph) newestFollowers(_ context.Context, user uint32, n int) ([]entry, error) {
	list := t.lists[user]
	return list[:min(n, len(list))], nil
}

// service answers over the Connect protocol.
type connectClient struct {
	client skeinv1connect.GraphServiceClient
}

func newConnectClient(addr programs.Address, opts ...connect.ClientOption) *connectClient {
	return &connectClient{skeinv1connect.NewGraphServiceClient(http.DefaultClient, "http://"+addr.String(), opts...)}
}

func (s *connectClient) followTime(ctx context.Context, p workload.Edge) (events.Micros, error) {
	req := checkRequest(p)
	req.IncludeTimes = true
	res, err := s.client.CheckFollows(ctx, connect.NewRequest(req))
	if err != nil {
		return 0, err
	}
	if len(res.Msg.GetKinds()) != 1 || len(res.Msg.GetFollowTimes()) != 1 {
		return 0, errors.New("not one answer")
	}
	since := events.Micros(res.Msg.GetFollowTimes()[0].GetTime().AsTime().UnixMicro())
	if (since != 0) != (res.Msg.GetKinds()[0] == skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT) {
		return 0, fmt.Errorf("kind %v since %v", res.Msg.GetKinds()[0], since)
	}
	return since, nil
}

func (s *connectClient) followedCandidates(ctx context.Context, f workload.Filter) ([]uint32, error) {
	res, err := s.client.FilterFollowed(ctx, connect.NewRequest(filterRequest(f)))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetIndexes(), nil
}

func (s *connectClient) newestFollowers(ctx context.Context, user uint32, n int) ([]entry, error) {
	res, err := s.client.ListFollowers(ctx, connect.NewRequest(newestRequest(user, n)))
	if err != nil {
		return nil, err
	}
	var page []entry
	for _, e := range res.Msg.GetEntries() {
		page = append(page, entry{e.GetUserId(), events.Micros(e.GetFollowTime().AsTime().UnixMicro())})
	}
	return page, nil
}

// redisQueries answers from Redis itself.
type redisQueries struct{ *redis.Client }

func (c redisQueries) followTime(ctx context.Context, p workload.Edge) (events.Micros, error) {
	score, err := c.ZScore(ctx, programs.FollowingKey(workload.UserID(p.Follower)), workload.UserID(p.Followee)).Result()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return events.Micros(score), err
}

func (c redisQueries) followedCandidates(ctx context.Context, f workload.Filter) (indexes []uint32, err error) {
	scores, err := c.ZMScore(ctx, programs.FollowingKey(workload.UserID(f.Viewer)), userIDs(f.Candidates)...).Result()
	for i, s := range scores {
		if s != 0 {
			indexes = append(indexes, uint32(i))
		}
	}
	return indexes, err
}

func (c redisQueries) newestFollowers(ctx context.Context, user uint32, n int) ([]entry, error) {
	list, err := c.ZRevRangeWithScores(ctx, programs.FollowersKey(workload.UserID(user)), 0, int64(n)-1).Result()
	var page []entry
	for _, z := range list {
		page = append(page, entry{fmt.Sprint(z.Member), events.Micros(z.Score)})
	}
	return page, err
}
