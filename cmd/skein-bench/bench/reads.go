package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

const (
	connections = 50
	filterSize  = 25
	pageSize    = 50
	// distinctRequests is how many different requests wrk sends in turn.
	distinctRequests = 50_000
)

func userIDs(users []uint32) []string {
	ids := make([]string, len(users))
	for i, u := range users {
		ids[i] = userID(u)
	}
	return ids
}

func checkRequest(p edge) *skeinv1.CheckFollowsRequest {
	return &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{{
		UserId: userID(p.follower), Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: userID(p.followee)},
	}}}
}

func filterRequest(f filter) *skeinv1.FilterFollowedRequest {
	return &skeinv1.FilterFollowedRequest{ViewerId: userID(f.viewer), UserIds: userIDs(f.candidates)}
}

func newestRequest(user uint32, n int) *skeinv1.ListFollowersRequest {
	return &skeinv1.ListFollowersRequest{UserId: userID(user), PageSize: int32(n)}
}

// world is what the reading rows measure: one graph in skein, in Redis, and behind a service in front of Redis.
type world struct {
	graph *followGraph
	skein *skeinServer
	redis *redisServer
	// pooled takes a connection to Redis for each call, batched sends the commands of concurrent calls together.
	pooled, batched         *process
	pooledAddr, batchedAddr address
}

func (b *bench) newWorld(ctx context.Context) (_ *world, err error) {
	w := &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	b.say("making a graph of %d users and %d follows", b.opts.Users, b.opts.Edges)
	w.graph = newGraph(b.opts.Users, b.opts.Edges, 1)
	if w.redis, err = startRedis(ctx, b.tools.redisServer, b.dir, noFile); err != nil {
		return w, err
	}
	b.say("loading it into redis")
	if err := w.redis.load(ctx, w.graph, userID); err != nil {
		return w, err
	}
	if w.skein, err = b.startSkein(ctx); err != nil {
		return w, err
	}
	b.say("loading it into skein")
	if err := w.skein.load(ctx, w.graph); err != nil {
		return w, err
	}
	w.pooled, w.pooledAddr, err = b.startService(ctx, w.redis, "pooled")
	if err != nil {
		return w, err
	}
	w.batched, w.batchedAddr, err = b.startService(ctx, w.redis, "batched")
	return w, err
}

func (b *bench) startService(ctx context.Context, r *redisServer, mode string) (*process, address, error) {
	portFile := filepath.Join(b.dir, "service-"+mode+".port")
	args := []string{"redis-service", "--redis", r.addr.String(), "--port-file", portFile}
	if mode == "batched" {
		args = append(args, "--batch")
	}
	p, err := start(ctx, "the service in front of Redis", b.opts.Self, args...)
	if err != nil {
		return nil, address{}, err
	}
	addr, err := p.listening(ctx, portFile)
	return p, addr, err
}

func (w *world) close() error {
	var errs []error
	for _, p := range []*process{w.pooled, w.batched} {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	if w.skein != nil {
		errs = append(errs, w.skein.close())
	}
	if w.redis != nil {
		errs = append(errs, w.redis.close())
	}
	return errors.Join(errs...)
}

// agree puts a sample of questions to everybody, and fails if the answers differ.
func (w *world) agree(ctx context.Context, n int) error {
	r := rand.New(rand.NewPCG(2, 0))
	return w.graph.sample(r, n).agree(ctx,
		[]string{
			"the graph itself", "skein, protobuf", "skein, JSON", "redis", "pooled service, protobuf",
			"pooled service, JSON", "batched service, protobuf", "batched service, JSON",
		},
		[]answerer{
			w.graph.truth(), newService(w.skein.addr), newService(w.skein.addr, connect.WithProtoJSON()),
			rawRedis{w.redis.client},
			newService(w.pooledAddr), newService(w.pooledAddr, connect.WithProtoJSON()),
			newService(w.batchedAddr), newService(w.batchedAddr, connect.WithProtoJSON()),
		})
}

// readRow is one question that is put over HTTP, and its counterpart in Redis.
type readRow struct {
	id, title, unit, note string
	procedure             string
	requests              []proto.Message
	redis                 redisJob
	// times is what one request counts for.
	times float64
	// pipelined tells that the service sends its commands in one pipeline anyway.
	pipelined bool
	// raw and service are the targets against Redis itself and against a service in front of it.
	raw, service float64
}

func (b *bench) reads(ctx context.Context) (err error) {
	w, err := b.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	sample := 500
	if b.opts.Quick {
		sample = 100
	}
	if err := w.agree(ctx, sample); err != nil {
		return fmt.Errorf("the contenders answer differently: %w", err)
	}
	b.say("all contenders gave the same answers to a sample of questions")
	for _, r := range w.rows() {
		if err := b.read(ctx, w, r); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the questions.
func (w *world) rows() []readRow {
	g, r := w.graph, rand.New(rand.NewPCG(3, 0))
	check := readRow{
		id: "check", title: "point check, 1 pair, 50 connections", unit: "requests/s", times: 1, raw: 0.6, service: 2,
		procedure: skeinv1connect.GraphServiceCheckFollowsProcedure,
		redis: redisJob{
			command: []string{"ZSCORE", followingKey("1__rand_int__"), "1__rand_int__"}, keyspace: g.users,
		},
		note: "over HTTP every second pair is a follow; redis-benchmark asks for random pairs, nearly none of which " +
			"is a follow: the shorter answer for Redis.",
	}
	for _, p := range g.pairs(r, distinctRequests) {
		check.requests = append(check.requests, checkRequest(p))
	}
	many := readRow{
		id: "filter", title: "25-way filter, 50 connections", unit: "pairs/s", times: filterSize, raw: 0.6, service: 3,
		procedure: skeinv1connect.GraphServiceFilterFollowedProcedure,
		redis:     redisJob{command: []string{"ZMSCORE", followingKey("1__rand_int__")}, keyspace: g.users},
		note: "over HTTP up to 12 of the 25 candidates are followed, as far as the viewer follows as many; " +
			"redis-benchmark asks for random ones, nearly none of which is followed.",
	}
	for range filterSize {
		many.redis.command = append(many.redis.command, "1__rand_int__")
	}
	for _, f := range g.filters(r, distinctRequests/2) {
		many.requests = append(many.requests, filterRequest(f))
	}
	popular := max(1, g.withFollowers(pageSize))
	newest := readRow{
		id: "newest", title: "newest 50 followers with since-times, 50 connections", unit: "requests/s", times: 1,
		raw: 0.6, service: 1.5, pipelined: true,
		procedure: skeinv1connect.GraphServiceListFollowersProcedure,
		redis: redisJob{
			command: []string{
				"ZREVRANGE", followersKey("1__rand_int__"), "0", strconv.Itoa(pageSize - 1), "WITHSCORES",
			},
			keyspace: popular,
		},
		note: fmt.Sprintf("random ones of the %d users with at least 50 followers; skein and the service also answer "+
			"the length of the list and a token for the next page.", popular),
	}
	for range distinctRequests {
		newest.requests = append(newest.requests, newestRequest(uint32(r.IntN(popular)), pageSize))
	}
	return []readRow{check, many, newest}
}

// The contenders of the reading rows.
const (
	readSkein   = "skein"
	readPooled  = "service in front of Redis, pooled"
	readBatched = "service in front of Redis, auto-pipelined"
	readRedis   = "redis-server"
)

// read measures one question: with protobuf against the targets, with JSON for information.
func (b *bench) read(ctx context.Context, w *world, r readRow) error {
	for _, json := range []bool{false, true} {
		row := b.row(r.id, r.title+", protobuf", r.unit, r.note)
		raw, service := r.raw, r.service
		if json {
			row.ID, row.Title, row.Note = r.id+"-json", r.title+", JSON", ""
			raw, service = 0, 0
		}
		contenders, err := b.overHTTP(w, r, row.ID, json)
		if err != nil {
			return err
		}
		if !json {
			job := r.redis
			job.addr = w.redis.addr
			contenders = append(contenders, contender{readRedis, func(ctx context.Context) (measurement, error) {
				m, err := job.run(ctx, b.tools.redisBenchmark, connections, b.opts.Time)
				m.value *= r.times
				return m, err
			}})
		}
		if err := b.alternate(ctx, row, contenders...); err != nil {
			return err
		}
		if !json {
			row.compare(readSkein, readRedis, raw, false)
		}
		row.compare(readSkein, readPooled, service, false)
		if !r.pipelined {
			row.compare(readSkein, readBatched, service, false)
		}
	}
	return nil
}

// overHTTP returns the contenders that wrk asks, with the same requests for each.
func (b *bench) overHTTP(w *world, r readRow, id string, json bool) (contenders []contender, err error) {
	contentType, marshal := "application/proto", proto.Marshal
	if json {
		contentType, marshal = "application/json", protojson.Marshal
	}
	bodies := make([][]byte, len(r.requests))
	for i, m := range r.requests {
		if bodies[i], err = marshal(m); err != nil {
			return nil, err
		}
	}
	for _, s := range []struct {
		name, short string
		addr        address
	}{
		{readSkein, "skein", w.skein.addr},
		{readPooled, "pooled", w.pooledAddr},
		{readBatched, "batched", w.batchedAddr},
	} {
		if s.name == readBatched && r.pipelined {
			continue
		}
		requests := make([][]byte, len(bodies))
		for i, body := range bodies {
			requests[i] = httpRequest(s.addr.String(), r.procedure, contentType, body)
		}
		job, err := newWrkJob(b.dir, id+"-"+s.short, s.addr.String(), requests)
		if err != nil {
			return nil, err
		}
		contenders = append(contenders, contender{s.name, func(ctx context.Context) (measurement, error) {
			m, err := job.run(ctx, b.tools.wrk, connections, b.opts.Time)
			m.value *= r.times
			return m, err
		}})
	}
	return contenders, nil
}
