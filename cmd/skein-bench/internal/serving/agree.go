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

// entry is a follower in a list of followers, with the time of the follow.
type entry struct {
	user  string
	since events.Micros
}

// graphQueries answers the three questions that the rows measure. Each contender has an
// implementation, and the graph itself has one.
type graphQueries interface {
	// followTime returns since when the follower follows the followee; 0 means that it does not.
	followTime(ctx context.Context, pair workload.Edge) (events.Micros, error)
	// followedCandidates returns the indexes of the candidates whom the viewer follows.
	followedCandidates(ctx context.Context, f workload.Filter) ([]uint32, error)
	// newestFollowers returns the n newest followers of a user, newest first.
	newestFollowers(ctx context.Context, user uint32, n int) ([]entry, error)
}

// questionSample has random questions of the kinds that will be measured.
type questionSample struct {
	pairs   []workload.Edge
	filters []workload.Filter
	// lists has the users whose newest followers are read.
	lists []uint32
}

// drawQuestions draws n pairs, and a fifth as many filters and lists.
func drawQuestions(g *workload.Graph, r *rand.Rand, n int) questionSample {
	q := questionSample{pairs: g.Pairs(r, n), filters: g.Filters(r, n/5)}
	for range n / 5 {
		q.lists = append(q.lists, uint32(r.IntN(g.Users)))
	}
	q.lists = append(q.lists, 0) // user 0 has the longest list
	return q
}

// compareAnswers asks all of the implementations, and returns an error if one gives another answer
// than the first.
func (q questionSample) compareAnswers(ctx context.Context, names []string, all []graphQueries) error {
	for i, a := range all {
		for _, p := range q.pairs {
			isEqual := func(a, b events.Micros) bool { return a == b }
			if err := compareAnswer(ctx, p, all[0].followTime, a.followTime, isEqual); err != nil {
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

// compareAnswer asks first and other the same question, and returns an error if their answers
// differ.
func compareAnswer[Question, Answer any](
	ctx context.Context, question Question, first, other func(context.Context, Question) (Answer, error), isEqual func(Answer, Answer) bool,
) error {
	expected, err := first(ctx, question)
	if err != nil {
		return err
	}
	got, err := other(ctx, question)
	if err != nil {
		return err
	}
	if !isEqual(expected, got) {
		return fmt.Errorf("to %v they answer %v and %v", question, expected, got)
	}
	return nil
}

// referenceGraph answers from the graph that was loaded into all contenders.
type referenceGraph struct {
	*workload.Graph
	since map[workload.Edge]events.Micros
	// lists has the first page of the followers of each user.
	lists map[uint32][]entry
}

// newReferenceGraph prepares the answers about a graph.
func newReferenceGraph(g *workload.Graph) *referenceGraph {
	t := &referenceGraph{
		Graph: g,
		since: make(map[workload.Edge]events.Micros, len(g.Edges)),
		lists: make(map[uint32][]entry),
	}
	for i, e := range slices.Backward(g.Edges) {
		t.since[e] = g.FollowTime(i)
		if len(t.lists[e.Followee]) < workload.PageSize {
			t.lists[e.Followee] = append(t.lists[e.Followee], entry{workload.UserID(e.Follower), g.FollowTime(i)})
		}
	}
	return t
}

// followTime implements graphQueries, like the other methods of these names.
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

// connectClient answers by calls of skein, or of the service in front of Redis, over the Connect
// protocol.
type connectClient struct {
	client skeinv1connect.GraphServiceClient
}

// newConnectClient returns a client for an address. The options choose the encoding.
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
	isFollowing := res.Msg.GetKinds()[0] == skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
	if (since != 0) != isFollowing {
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

// redisQueries answers by commands of Redis.
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
	for i, score := range scores {
		if score != 0 { // the score of a missing member is 0
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
