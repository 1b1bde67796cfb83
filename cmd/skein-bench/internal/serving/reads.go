package serving

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// connections is over how many connections requests are sent.
const connections = 50

func userIDs(users []uint32) []string {
	ids := make([]string, len(users))
	for i, u := range users {
		ids[i] = workload.UserID(u)
	}
	return ids
}

func checkRequest(p workload.Edge) *skeinv1.CheckFollowsRequest {
	return &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{{
		UserId: workload.UserID(p.Follower), Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: workload.UserID(p.Followee)},
	}}}
}

func filterRequest(f workload.Filter) *skeinv1.FilterFollowedRequest {
	return &skeinv1.FilterFollowedRequest{ViewerId: workload.UserID(f.Viewer), UserIds: userIDs(f.Candidates)}
}

func newestRequest(user uint32, n int) *skeinv1.ListFollowersRequest {
	return &skeinv1.ListFollowersRequest{UserId: workload.UserID(user), PageSize: int32(n)}
}

// world is what the reading rows measure: one graph in skein, in Redis, and behind a service in front of Redis.
type readContenders struct {
	graph *workload.Graph
	skein *programs.Skein
	redis *programs.Redis
	// pooled takes a connection to Redis for each call, batched sends the commands of concurrent calls together.
	pooled, batched         *programs.Process
	pooledAddr, batchedAddr programs.Address
}

func startReadContenders(ctx context.Context, b *measure.Bench) (_ *readContenders, err error) {
	w := &readContenders{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	b.Say("making a graph of %d users and %d follows", b.Opts.Users, b.Opts.Edges)
	w.graph = workload.NewGraph(b.Opts.Users, b.Opts.Edges, 1)
	if w.redis, err = programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile); err != nil {
		return w, err
	}
	b.Say("loading it into redis")
	if err := workload.LoadRedis(ctx, w.redis, w.graph, workload.UserID); err != nil {
		return w, err
	}
	if w.skein, err = programs.StartEmptySkein(ctx, b); err != nil {
		return w, err
	}
	b.Say("loading it into skein")
	if err := publishGraphAsHistory(ctx, w.skein, w.graph); err != nil {
		return w, err
	}
	if err := w.skein.WaitUntilCompacted(ctx); err != nil {
		return w, err
	}
	w.pooled, w.pooledAddr, err = programs.StartRedisService(ctx, b, w.redis, "pooled")
	if err != nil {
		return w, err
	}
	w.batched, w.batchedAddr, err = programs.StartRedisService(ctx, b, w.redis, "batched")
	return w, err
}

func (w *readContenders) close() error {
	var errs []error
	for _, p := range []*programs.Process{w.pooled, w.batched} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	if w.skein != nil {
		errs = append(errs, w.skein.Close())
	}
	if w.redis != nil {
		errs = append(errs, w.redis.Close())
	}
	return errors.Join(errs...)
}

// agree puts a sample of questions to all peers, and fails if the answers differ.
func (w *readContenders) checkAnswers(ctx context.Context, n int) error {
	r := rand.New(rand.NewPCG(2, 0))
	return drawQuestions(w.graph, r, n).compareAnswers(ctx,
		[]string{
			"the graph itself", "skein, protobuf", "skein, JSON", "redis", "pooled service, protobuf",
			"pooled service, JSON", "batched service, protobuf", "batched service, JSON",
		},
		[]graphQueries{
			newReferenceGraph(w.graph), newConnectClient(w.skein.Addr), newConnectClient(w.skein.Addr, connect.WithProtoJSON()),
			redisQueries{w.redis.Client},
			newConnectClient(w.pooledAddr), newConnectClient(w.pooledAddr, connect.WithProtoJSON()),
			newConnectClient(w.batchedAddr), newConnectClient(w.batchedAddr, connect.WithProtoJSON()),
		})
}

// readRow is one question that is put over HTTP, and its counterpart in Redis.
type readRow struct {
	id, title, unit, note string
	procedure             string
	requests              []proto.Message
	redis                 programs.RedisBenchmarkJob
	// times is what one request counts for.
	unitsPerRequest float64
	// pipelined reports that the service sends its commands in one pipeline anyway.
	pipelined bool
	// raw and service are the targets against Redis itself and against a service in front of it.
	redisTarget, serviceTarget float64
}

// Reads measures point checks, filters and newest pages over HTTP, against Redis and against a service in front of it.
func Reads(ctx context.Context, b *measure.Bench) (err error) {
	w, err := startReadContenders(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	sample := 500
	if b.Opts.Quick {
		sample = 100
	}
	if err := w.checkAnswers(ctx, sample); err != nil {
		return fmt.Errorf("the contenders answer differently: %w", err)
	}
	b.Say("all contenders gave the same answers to a sample of questions")
	for _, r := range w.rows() {
		if err := measureReads(ctx, b, w, r); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the questions.
func (w *readContenders) rows() []readRow {
	g, r := w.graph, rand.New(rand.NewPCG(3, 0))
	check := readRow{
		id: "check", title: "point check, 1 pair, 50 connections", unit: "requests/s", unitsPerRequest: 1, redisTarget: 0.6, serviceTarget: 2,
		procedure: skeinv1connect.GraphServiceCheckFollowsProcedure,
		redis: programs.RedisBenchmarkJob{
			Command: []string{"ZSCORE", programs.FollowingKey("1__rand_int__"), "1__rand_int__"}, Keyspace: g.Users,
		},
		note: "over HTTP every second pair is a follow; redis-benchmark asks for random pairs, nearly none of which " +
			"is a follow: the shorter answer for Redis.",
	}
	for _, p := range g.Pairs(r, workload.DistinctRequests) {
		check.requests = append(check.requests, checkRequest(p))
	}
	many := readRow{
		id: "filter", title: "25-way filter, 50 connections", unit: "pairs/s", unitsPerRequest: workload.FilterSize, redisTarget: 0.6, serviceTarget: 3,
		procedure: skeinv1connect.GraphServiceFilterFollowedProcedure,
		redis:     programs.RedisBenchmarkJob{Command: []string{"ZMSCORE", programs.FollowingKey("1__rand_int__")}, Keyspace: g.Users},
		note: "over HTTP up to 12 of the 25 candidates are followed, as far as the viewer follows as many; " +
			"redis-benchmark asks for random ones, nearly none of which is followed.",
	}
	for range workload.FilterSize {
		many.redis.Command = append(many.redis.Command, "1__rand_int__")
	}
	for _, f := range g.Filters(r, workload.DistinctRequests/2) {
		many.requests = append(many.requests, filterRequest(f))
	}
	popular := max(1, g.CountWithFollowers(workload.PageSize))
	newest := readRow{
		id: "newest", title: "newest 50 followers with since-times, 50 connections", unit: "requests/s", unitsPerRequest: 1,
		redisTarget: 0.6, serviceTarget: 1.5, pipelined: true,
		procedure: skeinv1connect.GraphServiceListFollowersProcedure,
		redis: programs.RedisBenchmarkJob{
			Command: []string{
				"ZREVRANGE", programs.FollowersKey("1__rand_int__"), "0", strconv.Itoa(workload.PageSize - 1), "WITHSCORES",
			},
			Keyspace: popular,
		},
		note: fmt.Sprintf("random ones of the %d users with at least 50 followers; skein and the service also answer "+
			"the length of the list and a token for the next page.", popular),
	}
	for range workload.DistinctRequests {
		newest.requests = append(newest.requests, newestRequest(uint32(r.IntN(popular)), workload.PageSize))
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

// measureReads measures one question: with protobuf against the targets, with JSON for information.
func measureReads(ctx context.Context, b *measure.Bench, w *readContenders, r readRow) error {
	for _, json := range []bool{false, true} {
		row := b.Row(r.id, r.title+", protobuf", r.unit, r.note)
		redisTarget, serviceTarget := r.redisTarget, r.serviceTarget
		if json {
			row.ID, row.Title, row.Note = r.id+"-json", r.title+", JSON", ""
			redisTarget, serviceTarget = 0, 0
		}
		contenders, err := httpContenders(b, w, r, row.ID, json)
		if err != nil {
			return err
		}
		if !json {
			job := r.redis
			job.Addr = w.redis.Addr
			contenders = append(contenders, measure.Contender{Name: readRedis, Measure: func(ctx context.Context) (measure.Measurement, error) {
				m, err := job.Run(ctx, b.Tools.RedisBenchmark, connections, b.Opts.Time)
				m.Value *= r.unitsPerRequest
				return m, err
			}})
		}
		if err := b.Alternate(ctx, row, contenders...); err != nil {
			return err
		}
		if !json {
			row.Compare(readSkein, readRedis, redisTarget, false)
		}
		row.Compare(readSkein, readPooled, serviceTarget, false)
		if !r.pipelined {
			row.Compare(readSkein, readBatched, serviceTarget, false)
		}
	}
	return nil
}

// overHTTP returns the contenders that wrk asks, with the same requests for each.
func httpContenders(b *measure.Bench, w *readContenders, r readRow, id string, json bool) (contenders []measure.Contender, err error) {
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
		addr        programs.Address
	}{
		{readSkein, "skein", w.skein.Addr},
		{readPooled, "pooled", w.pooledAddr},
		{readBatched, "batched", w.batchedAddr},
	} {
		if s.name == readBatched && r.pipelined {
			continue
		}
		requests := make([][]byte, len(bodies))
		for i, body := range bodies {
			requests[i] = programs.HTTPRequest(s.addr.String(), r.procedure, contentType, body)
		}
		job, err := programs.NewWrkJob(b.Dir, id+"-"+s.short, s.addr.String(), requests)
		if err != nil {
			return nil, err
		}
		contenders = append(contenders, measure.Contender{Name: s.name, Measure: func(ctx context.Context) (measure.Measurement, error) {
			m, err := job.Run(ctx, b.Tools.Wrk, connections, b.Opts.Time)
			m.Value *= r.unitsPerRequest
			return m, err
		}})
	}
	return contenders, nil
}

// publishGraphAsHistory brings a graph into the service as history, so that every follow has the time that it has in the graph.
// Each connection is a source of its own, since offsets rise within a source.
func publishGraphAsHistory(ctx context.Context, s *programs.Skein, g *workload.Graph) error {
	const conns, batch = 4, events.MaxEnvelopeEvents
	sequences := make([][]*skeinv1.PublishRequest, conns)
	for i := range g.Edges {
		conn := i / batch % conns
		if i%batch == 0 {
			sequences[conn] = append(sequences[conn], &skeinv1.PublishRequest{})
		}
		call := sequences[conn][len(sequences[conn])-1]
		call.Events = append(call.Events, &skeinv1.Event{
			Source: fmt.Sprintf("bench-%d", conn), Offset: uint64(i + 1),
			OccurredAt: timestamppb.New(g.Since(i).Time()), Kind: workload.Followed(g.Edges[i], workload.UserID),
		})
	}
	return s.PublishSequences(ctx, sequences)
}
