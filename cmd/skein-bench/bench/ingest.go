package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// ingestConnections publish at once, ingestPipeline follows each, and wait for the answers before they go on.
	ingestConnections = 2
	ingestPipeline    = 50
)

// ingest measures follows a second from the first one sent until the last one is durable and visible. Every
// measurement has a fresh server and the same follows in the same order.
func (b *bench) ingest(ctx context.Context) error {
	g := newGraph(max(100, b.opts.Follows/10), b.opts.Follows, 4)
	const overHTTP, inProcess = "skein, over HTTP", "skein, in process"
	const aofEverysec, aofAlways = "redis, AOF everysec", "redis, AOF always"
	row := b.row("ingest", "durable follows until visible in every projection, 2 connections × 50", "follows/s",
		fmt.Sprintf("%d live follows between %d users, on an empty server each time. Redis: each connection sends "+
			"pipelines of 50 MULTI … EXEC, each with two ZADD and two HINCRBY (both sorted sets and both counts), "+
			"encoded beforehand, and reads all replies before the next. Skein over HTTP: each connection sends "+
			"Publish calls of the same 50 follows, one after the other; each is answered when the log has fsynced, "+
			"and the time ends when every projection shows the last. In process: the same through events.Publisher, "+
			"without HTTP.", b.opts.Follows, g.users))
	err := b.alternate(ctx, row,
		contender{overHTTP, func(ctx context.Context) (measurement, error) { return b.ingestSkein(ctx, g) }},
		contender{inProcess, func(ctx context.Context) (measurement, error) { return b.ingestInProcess(ctx, g) }},
		contender{aofEverysec, func(ctx context.Context) (measurement, error) { return b.ingestRedis(ctx, g, everysec) }},
		contender{aofAlways, func(ctx context.Context) (measurement, error) { return b.ingestRedis(ctx, g, always) }},
	)
	if err != nil {
		return err
	}
	row.compare(overHTTP, aofEverysec, 1, false)
	row.compare(overHTTP, aofAlways, 1.5, false)
	row.compare(inProcess, aofEverysec, 1, false)
	row.compare(inProcess, aofAlways, 1.5, false)
	return nil
}

// shares deals pipelines of follows out to the connections in turn.
func (g *followGraph) shares() [ingestConnections][][]edge {
	var shares [ingestConnections][][]edge
	for i := 0; i < len(g.edges); i += ingestPipeline {
		conn := i / ingestPipeline % ingestConnections
		shares[conn] = append(shares[conn], g.edges[i:min(i+ingestPipeline, len(g.edges))])
	}
	return shares
}

// calls are the shares as Publish calls.
func (g *followGraph) calls() [][]*skeinv1.PublishRequest {
	var calls [][]*skeinv1.PublishRequest
	for _, share := range g.shares() {
		var sequence []*skeinv1.PublishRequest
		for _, follows := range share {
			call := &skeinv1.PublishRequest{}
			for _, e := range follows {
				call.Events = append(call.Events, &skeinv1.Event{Kind: followed(e, userID)})
			}
			sequence = append(sequence, call)
		}
		calls = append(calls, sequence)
	}
	return calls
}

func rate(follows int, since time.Time) measurement {
	return measurement{value: float64(follows) / time.Since(since).Seconds()}
}

func (b *bench) ingestSkein(ctx context.Context, g *followGraph) (m measurement, err error) {
	s, err := b.startSkein(ctx)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	calls := g.calls()
	begin := time.Now()
	if err := s.publish(ctx, calls); err != nil {
		return m, err
	}
	return rate(len(g.edges), begin), nil
}

func (b *bench) ingestRedis(ctx context.Context, g *followGraph, d durability) (m measurement, err error) {
	s, err := startRedis(ctx, b.tools.redisServer, b.dir, d)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// A transaction is answered by one line, one for each of its commands, and its results.
	const repliesPerFollow = 6
	var (
		pipelines [ingestConnections][][]byte
		conns     [ingestConnections]*respConn
	)
	since := 0
	for conn, share := range g.shares() {
		if conns[conn], err = dialRESP(ctx, s.addr); err != nil {
			return m, err
		}
		defer conns[conn].Close()
		for _, follows := range share {
			var pipeline []byte
			for _, e := range follows {
				pipeline = appendFollow(pipeline, userID(e.follower), userID(e.followee), fmt.Sprint(g.since(since)))
				since++
			}
			pipelines[conn] = append(pipelines[conn], pipeline)
		}
	}
	errs := make([]error, ingestConnections)
	var wg sync.WaitGroup
	begin := time.Now()
	for conn, c := range conns {
		wg.Go(func() {
			for i, pipeline := range pipelines[conn] {
				follows := min(ingestPipeline, len(g.edges)-(i*ingestConnections+conn)*ingestPipeline)
				if errs[conn] = c.roundTrip(pipeline, follows*repliesPerFollow); errs[conn] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	m = rate(len(g.edges), begin)
	if err := errors.Join(errs...); err != nil {
		return m, err
	}
	return m, s.holds(ctx, g)
}

// appendFollow appends the index writes of one follow as one transaction.
func appendFollow(dst []byte, follower, followee, since string) []byte {
	dst = appendCommand(dst, "MULTI")
	dst = appendCommand(dst, "ZADD", followingKey(follower), since, followee)
	dst = appendCommand(dst, "ZADD", followersKey(followee), since, follower)
	dst = appendCommand(dst, "HINCRBY", countsKey(follower), "following", "1")
	dst = appendCommand(dst, "HINCRBY", countsKey(followee), "followers", "1")
	return appendCommand(dst, "EXEC")
}

// holds fails unless the server has the follows of the most followed user.
func (s *redisServer) holds(ctx context.Context, g *followGraph) error {
	n, err := s.client.ZCard(ctx, followersKey(userID(0))).Result()
	if err != nil {
		return err
	}
	count, err := s.client.HGet(ctx, countsKey(userID(0)), "followers").Int()
	if err != nil {
		return err
	}
	if int(n) != g.followers[0] || count != g.followers[0] {
		return fmt.Errorf("%d followers, counted %d, instead of %d", n, count, g.followers[0])
	}
	return nil
}
