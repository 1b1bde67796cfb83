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

// feedKind is how Redis keeps a home feed.
type feedKind int

const (
	// feedLists: LPUSH and LTRIM.
	feedLists feedKind = iota
	// feedSets: ZADD by time, and ZREMRANGEBYRANK.
	feedSets
)

const (
	// feedKeep is how many posts a home feed in Redis keeps: as many as an inbox of skein by default.
	feedKeep = 1000
	// outKeep is how many of the newest posts of each board are in Redis when pages are measured.
	outKeep = 5 * feedPage
	// deliveriesTogether go over a connection in one pipeline.
	deliveriesTogether = 500
)

func (k feedKind) name() string {
	if k == feedLists {
		return "redis LPUSH + LTRIM"
	}
	return "redis ZADD + ZREMRANGEBYRANK"
}

func (k feedKind) memoryName() string {
	if k == feedLists {
		return "redis lists in memory"
	}
	return "redis sorted sets in memory"
}

func homeKey(reader uint32) string { return "h:" + workload.UserID(reader) }
func outKey(board uint32) string   { return "o:" + strconv.Itoa(int(board)) }
func postKey(id string) string     { return "p:" + id }

// postID is the id of a post in Redis: a decimal number of 13 digits that rises with time, so that who merges lists needs
// nothing else.
func postID(post int) string { return strconv.Itoa(workload.FirstID + post) }

// appendDelivery appends the delivery of a post to a home feed.
func (k feedKind) appendDelivery(dst []byte, key, post, at string) []byte {
	if k == feedLists {
		dst = programs.AppendCommand(dst, "LPUSH", key, post)
		return programs.AppendCommand(dst, "LTRIM", key, "0", strconv.Itoa(feedKeep-1))
	}
	dst = programs.AppendCommand(dst, "ZADD", key, at, post)
	return programs.AppendCommand(dst, "ZREMRANGEBYRANK", key, "0", strconv.Itoa(-feedKeep-1))
}

// followers returns the home feeds that the posts on each board come to.
func (w *feedWorld) followers() [][]string {
	keys := make([]string, w.inboxes())
	for i := range keys {
		keys[i] = homeKey(uint32(i))
	}
	of := make([][]string, len(w.boards))
	for board, n := range w.pushes {
		of[board] = make([]string, 0, n)
	}
	for _, e := range w.follows {
		if int(e.Follower) < len(keys) {
			of[e.Followee] = append(of[e.Followee], keys[e.Follower])
		}
	}
	return of
}

// feedRedis is a server that holds home feeds.
type feedRedis struct{ *programs.Redis }

// fanOut delivers posts to all followers and returns the time and the processor time of the server that it took. Two
// connections, so that the server always has something to do; each has its own posts.
func (s feedRedis) fanOut(
	ctx context.Context, w *feedWorld, kind feedKind, followers [][]string, run postRun,
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
	var (
		errs [connections]error
		wg   sync.WaitGroup
	)
	begin := time.Now()
	for i, c := range conns {
		wg.Go(func() { errs[i] = deliver(ctx, c, w, kind, followers, postRun{run.from + i, run.to}, connections) })
	}
	wg.Wait()
	took = time.Since(begin)
	if err := errors.Join(errs[:]...); err != nil {
		return took, 0, err
	}
	after, err := s.CPU(ctx)
	return took, after - before, err
}

// deliver delivers every n-th post of a run.
func deliver(
	ctx context.Context, c *programs.RESPConn, w *feedWorld, kind feedKind, followers [][]string, run postRun, n int,
) error {
	var pipeline []byte
	waiting := 0
	flush := func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := c.RoundTrip(pipeline, 2*waiting)
		pipeline, waiting = pipeline[:0], 0
		return err
	}
	for number := run.from; number < run.to; number += n {
		p := &w.posts[number]
		id, at := postID(number), strconv.FormatInt(int64(p.at), 10)
		for _, key := range followers[p.board] {
			pipeline = kind.appendDelivery(pipeline, key, id, at)
			if waiting++; waiting == deliveriesTogether {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// loadFeeds writes what pages need: the newest posts of each board, the posts themselves, and the home feeds of the readers
// who are pushed to.
func (s feedRedis) loadFeeds(ctx context.Context, w *feedWorld) error {
	pipe := s.Client.Pipeline()
	flush := func(most int) error {
		if pipe.Len() <= most {
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
		if written[p.board]++; written[p.board] > outKeep {
			continue
		}
		id := postID(i)
		pipe.RPush(ctx, outKey(p.board), id)
		pipe.HSet(ctx, postKey(id), "owner", w.boards[p.board], "pin", p.id, "item", p.id, "created", int64(p.at))
		if err := flush(1000); err != nil {
			return err
		}
	}
	for _, r := range slices.Concat(w.light, w.heavy) {
		pushed := slices.DeleteFunc(slices.Clone(r.boards), func(board uint32) bool { return board < celebrities })
		var ids []any
		for _, i := range w.newest(pushed, feedKeep) {
			ids = append(ids, postID(i))
		}
		if len(ids) > 0 {
			pipe.RPush(ctx, homeKey(r.number), ids...)
		}
	}
	return flush(0)
}

// page reads the newest posts of some lists, and what is known of them.
func (s feedRedis) page(ctx context.Context, lists ...string) ([][]any, error) {
	ids, err := s.newest(ctx, lists)
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

// newest returns the newest ids of some lists, each newest first.
func (s feedRedis) newest(ctx context.Context, lists []string) ([]string, error) {
	if len(lists) == 1 {
		return s.Client.LRange(ctx, lists[0], 0, feedPage-1).Result()
	}
	pipe := s.Client.Pipeline()
	cmds := make([]*redis.StringSliceCmd, len(lists))
	for i, key := range lists {
		cmds[i] = pipe.LRange(ctx, key, 0, feedPage-1)
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
	return found.merge(feedPage), nil
}

// idLists is a heap of lists of ids, each newest first, by their first ones. No list is empty.
type idLists [][]string

// merge takes the newest n ids.
func (h idLists) merge(n int) (ids []string) {
	heap.Init(&h)
	for len(ids) < n && len(h) > 0 {
		ids = append(ids, h[0][0])
		if h[0] = h[0][1:]; len(h[0]) == 0 {
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

// redisNames names the posts of a page, as feedWorld.name does.
func redisNames(page [][]any) (names []string) {
	for _, values := range page {
		names = append(names, fmt.Sprintf("%v %v", values[0], values[1]))
	}
	return names
}
