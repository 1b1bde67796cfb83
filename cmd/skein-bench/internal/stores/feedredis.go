package stores

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// redisFeedKind is how Redis keeps a home feed.
type redisFeedKind int

const (
	// feedsAsLists writes with LPUSH and LTRIM.
	feedsAsLists redisFeedKind = iota
	// feedsAsSortedSets writes with ZADD, by time, and ZREMRANGEBYRANK.
	feedsAsSortedSets
)

const (
	// postsKeptPerFeed is how many posts a home feed in Redis keeps: as many as an inbox of skein
	// by default.
	postsKeptPerFeed = 1000
	// postsKeptPerBoard is how many of the newest posts of each board are in Redis when pages are
	// measured.
	postsKeptPerBoard = 5 * feedPageSize
	// deliveriesPerPipeline is how many deliveries go over a connection in one pipeline.
	deliveriesPerPipeline = 500
)

// seriesName returns the name of the series of the fan-out.
func (k redisFeedKind) seriesName() string {
	if k == feedsAsLists {
		return "redis LPUSH + LTRIM"
	}
	return "redis ZADD + ZREMRANGEBYRANK"
}

// memorySeriesName returns the name of the series of the memory that feeds take.
func (k redisFeedKind) memorySeriesName() string {
	if k == feedsAsLists {
		return "redis lists in memory"
	}
	return "redis sorted sets in memory"
}

func homeFeedKey(reader uint32) string { return "h:" + workload.UserID(reader) }
func outboxKey(board uint32) string    { return "o:" + strconv.Itoa(int(board)) }
func postKey(id string) string         { return "p:" + id }

// redisPostID returns the id of a post in Redis: a decimal number of 13 digits that rises with
// time, so that lists can be merged by id.
func redisPostID(post int) string { return strconv.Itoa(workload.FirstID + post) }

// appendDelivery appends the delivery of a post to a home feed.
func (k redisFeedKind) appendDelivery(dst []byte, key, post, at string) []byte {
	if k == feedsAsLists {
		dst = programs.AppendCommand(dst, "LPUSH", key, post)
		return programs.AppendCommand(dst, "LTRIM", key, "0", strconv.Itoa(postsKeptPerFeed-1))
	}
	dst = programs.AppendCommand(dst, "ZADD", key, at, post)
	return programs.AppendCommand(dst, "ZREMRANGEBYRANK", key, "0", strconv.Itoa(-postsKeptPerFeed-1))
}

// homeFeedKeysByBoard returns the home feeds that the posts on each board come to.
func (w *feedWorld) homeFeedKeysByBoard() [][]string {
	keys := make([]string, w.inboxCount())
	for i := range keys {
		keys[i] = homeFeedKey(uint32(i))
	}

	byBoard := make([][]string, len(w.boards))
	for board, n := range w.inboxesPerBoard {
		byBoard[board] = make([]string, 0, n)
	}
	for _, e := range w.follows {
		if int(e.Follower) < len(keys) {
			byBoard[e.Followee] = append(byBoard[e.Followee], keys[e.Follower])
		}
	}
	return byBoard
}

// feedRedis is a server that holds home feeds.
type feedRedis struct{ *programs.Redis }

// deliverToFollowers delivers posts to all followers, and returns how long that took and how much
// processor time the server used for it. It uses two connections, so that the server always has
// something to do, and each of them delivers every other post.
func (s feedRedis) deliverToFollowers(
	ctx context.Context, w *feedWorld, kind redisFeedKind, followers [][]string, run postRange,
) (took, used time.Duration, err error) {
	const connections = 2
	var conns [connections]*programs.RESPConn
	for i := range conns {
		if conns[i], err = programs.DialRESP(ctx, s.Addr); err != nil {
			return 0, 0, err
		}
		defer conns[i].Close()
	}

	before, err := s.CPU(ctx)
	if err != nil {
		return 0, 0, err
	}

	var errs [connections]error
	var wg sync.WaitGroup
	begin := time.Now()
	for i, c := range conns {
		wg.Go(func() {
			errs[i] = deliverEveryNthPost(ctx, c, w, kind, followers, postRange{run.from + i, run.to}, connections)
		})
	}
	wg.Wait()
	took = time.Since(begin)

	if err := errors.Join(errs[:]...); err != nil {
		return took, 0, err
	}
	after, err := s.CPU(ctx)
	return took, after - before, err
}

// deliverEveryNthPost delivers every n-th post of a run.
func deliverEveryNthPost(
	ctx context.Context, c *programs.RESPConn, w *feedWorld, kind redisFeedKind, followers [][]string, run postRange, n int,
) error {
	var pipeline []byte
	waiting := 0
	flush := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := c.RoundTrip(pipeline, 2*waiting)
		pipeline = pipeline[:0]
		waiting = 0
		return err
	}

	for number := run.from; number < run.to; number += n {
		p := &w.posts[number]
		id := redisPostID(number)
		createdAt := strconv.FormatInt(int64(p.createdAt), 10)
		for _, key := range followers[p.board] {
			pipeline = kind.appendDelivery(pipeline, key, id, createdAt)
			waiting++
			if waiting == deliveriesPerPipeline {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// loadFeeds writes what pages need: the newest posts of each board, the posts themselves, and the
// home feeds of the readers who are pushed to.
func (s feedRedis) loadFeeds(ctx context.Context, w *feedWorld) error {
	pipe := s.Client.Pipeline()
	// flushAbove sends the commands if there are more than maxCommands.
	flushAbove := func(maxCommands int) error {
		if pipe.Len() <= maxCommands {
			return nil
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("loading redis: %w", err)
		}
		return nil
	}

	written := make([]int, len(w.boards))
	for i := len(w.posts) - 1; i >= 0; i-- {
		p := &w.posts[i]
		written[p.board]++
		if written[p.board] > postsKeptPerBoard {
			continue
		}
		id := redisPostID(i)
		pipe.RPush(ctx, outboxKey(p.board), id)
		pipe.HSet(ctx, postKey(id), "owner", w.boards[p.board], "pin", p.id, "item", p.id, "created", int64(p.createdAt))
		if err := flushAbove(1000); err != nil {
			return err
		}
	}

	// The posts of celebrities are not in home feeds. A page merges them from their lists.
	for _, r := range slices.Concat(w.light, w.heavy) {
		pushed := slices.DeleteFunc(slices.Clone(r.boards), func(board uint32) bool { return board < celebrityCount })
		var ids []any
		for _, i := range w.newestPosts(pushed, postsKeptPerFeed) {
			ids = append(ids, redisPostID(i))
		}
		if len(ids) > 0 {
			pipe.RPush(ctx, homeFeedKey(r.number), ids...)
		}
	}
	return flushAbove(0)
}

// readPage reads the newest posts of some lists, and what is known of them.
func (s feedRedis) readPage(ctx context.Context, lists ...string) ([][]any, error) {
	ids, err := s.newestIDs(ctx, lists)
	if err != nil {
		return nil, err
	}
	pipe := s.Client.Pipeline()
	fetched := make([]*redis.SliceCmd, len(ids))
	for i, id := range ids {
		fetched[i] = pipe.HMGet(ctx, postKey(id), "owner", "pin", "item", "created")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	page := make([][]any, len(fetched))
	for i, cmd := range fetched {
		page[i] = cmd.Val()
	}
	return page, nil
}

// newestIDs returns the newest ids of some lists, each newest first.
func (s feedRedis) newestIDs(ctx context.Context, lists []string) ([]string, error) {
	if len(lists) == 1 {
		return s.Client.LRange(ctx, lists[0], 0, feedPageSize-1).Result()
	}
	pipe := s.Client.Pipeline()
	cmds := make([]*redis.StringSliceCmd, len(lists))
	for i, key := range lists {
		cmds[i] = pipe.LRange(ctx, key, 0, feedPageSize-1)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	found := make(idLists, 0, len(lists))
	for _, cmd := range cmds {
		if ids := cmd.Val(); len(ids) > 0 {
			found = append(found, ids)
		}
	}
	return found.takeNewest(feedPageSize), nil
}

// idLists is a heap of lists of ids, each newest first, by their first ones. No list is empty.
type idLists [][]string

// takeNewest takes the newest n ids.
func (h idLists) takeNewest(n int) (ids []string) {
	heap.Init(&h)
	for len(ids) < n && len(h) > 0 {
		ids = append(ids, h[0][0])
		h[0] = h[0][1:]
		if len(h[0]) == 0 {
			heap.Pop(&h)
		} else {
			heap.Fix(&h, 0)
		}
	}
	return ids
}

// Len is part of heap.Interface, as are the next four.
func (h idLists) Len() int           { return len(h) }
func (h idLists) Less(i, j int) bool { return h[i][0] > h[j][0] }
func (h idLists) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is not used.
func (h *idLists) Push(any) {}

// Pop removes the last list.
func (h *idLists) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// redisPostNames names the posts of a page, as feedWorld.postName does.
func redisPostNames(page [][]any) (names []string) {
	for _, values := range page {
		names = append(names, fmt.Sprintf("%v %v", values[0], values[1]))
	}
	return names
}
