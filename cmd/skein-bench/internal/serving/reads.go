package serving

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// connections is how many connections send requests at the same time.
const connections = 50

// userIDs returns the ids of users that are given by their numbers.
func userIDs(users []uint32) []string {
	ids := make([]string, len(users))
	for i, u := range users {
		ids[i] = workload.UserID(u)
	}
	return ids
}

// checkRequest returns the request that asks whether the follower follows the followee.
func checkRequest(p workload.Edge) *skeinv1.CheckFollowsRequest {
	return &skeinv1.CheckFollowsRequest{Pairs: []*skeinv1.FollowPair{{
		UserId: workload.UserID(p.Follower), Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: workload.UserID(p.Followee)},
	}}}
}

// filterRequest returns the request that asks which of the candidates the viewer follows.
func filterRequest(f workload.Filter) *skeinv1.FilterFollowedRequest {
	return &skeinv1.FilterFollowedRequest{ViewerId: workload.UserID(f.Viewer), UserIds: userIDs(f.Candidates)}
}

// newestRequest returns the request for the n newest followers of a user.
func newestRequest(user uint32, n int) *skeinv1.ListFollowersRequest {
	return &skeinv1.ListFollowersRequest{UserId: workload.UserID(user), PageSize: int32(n)}
}

// readContenders has the programs that the rows of reads compare: skein, Redis, and two services in
// front of that Redis. All have the same graph.
type readContenders struct {
	graph *workload.Graph
	skein *programs.Skein
	redis *programs.Redis
	// The pooled service takes a connection to Redis for each call. The batched one sends the
	// commands of concurrent calls together.
	pooled, batched         *programs.Process
	pooledAddr, batchedAddr programs.Address
}

// startReadContenders starts the programs and loads a graph into them.
func startReadContenders(ctx context.Context, b *measure.Bench) (_ *readContenders, err error) {
	c := &readContenders{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	b.Logf("making a graph of %d users and %d follows", b.Opts.Users, b.Opts.Edges)
	c.graph = workload.NewGraph(b.Opts.Users, b.Opts.Edges, 1)

	c.redis, err = programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile)
	if err != nil {
		return c, err
	}
	b.Logf("loading it into redis")
	if err := workload.LoadRedis(ctx, c.redis, c.graph, workload.UserID); err != nil {
		return c, err
	}

	c.skein, err = programs.StartEmptySkein(ctx, b)
	if err != nil {
		return c, err
	}
	b.Logf("loading it into skein")
	if err := publishGraphAsHistory(ctx, c.skein, c.graph); err != nil {
		return c, err
	}
	if err := c.skein.WaitUntilCompacted(ctx); err != nil {
		return c, err
	}

	c.pooled, c.pooledAddr, err = programs.StartRedisService(ctx, b, c.redis, "pooled")
	if err != nil {
		return c, err
	}
	c.batched, c.batchedAddr, err = programs.StartRedisService(ctx, b, c.redis, "batched")
	return c, err
}

// close stops the programs that were started.
func (c *readContenders) close() error {
	var errs []error
	for _, p := range []*programs.Process{c.pooled, c.batched} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	if c.skein != nil {
		errs = append(errs, c.skein.Close())
	}
	if c.redis != nil {
		errs = append(errs, c.redis.Close())
	}
	return errors.Join(errs...)
}

// checkAnswers asks all contenders a sample of random questions, and returns an error if their
// answers differ.
func (c *readContenders) checkAnswers(ctx context.Context, n int) error {
	r := rand.New(rand.NewPCG(2, 0))
	return drawQuestions(c.graph, r, n).compareAnswers(ctx,
		[]string{
			"the graph itself", "skein, protobuf", "skein, JSON", "redis", "pooled service, protobuf",
			"pooled service, JSON", "batched service, protobuf", "batched service, JSON",
		},
		[]graphQueries{
			newReferenceGraph(c.graph), newConnectClient(c.skein.Addr), newConnectClient(c.skein.Addr, connect.WithProtoJSON()),
			redisQueries{c.redis.Client},
			newConnectClient(c.pooledAddr), newConnectClient(c.pooledAddr, connect.WithProtoJSON()),
			newConnectClient(c.batchedAddr), newConnectClient(c.batchedAddr, connect.WithProtoJSON()),
		})
}

// readRow is one kind of read: the requests over HTTP, and the command of Redis that corresponds to
// them.
type readRow struct {
	id, title, unit, note string
	procedure             string
	requests              []proto.Message
	redis                 programs.RedisBenchmarkJob
	// unitsPerRequest is how much one request counts for in the unit of the row.
	unitsPerRequest float64
	// pipelined is set if the service in front of Redis sends the commands of a call in one
	// pipeline, so that auto-pipelining changes nothing.
	pipelined bool
	// redisTarget and serviceTarget are the ratios that skein should reach against Redis itself and
	// against the services in front of Redis.
	redisTarget, serviceTarget float64
}

// MeasureReads measures checks of one pair, filters of 25 candidates and pages of newest followers
// over HTTP, against Redis and against a service in front of Redis.
func MeasureReads(ctx context.Context, b *measure.Bench) (err error) {
	c, err := startReadContenders(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()

	sample := 500
	if b.Opts.Quick {
		sample = 100
	}
	if err := c.checkAnswers(ctx, sample); err != nil {
		return fmt.Errorf("the contenders answer differently: %w", err)
	}
	b.Logf("all contenders gave the same answers to a sample of questions")

	for _, r := range c.rows() {
		if err := measureReads(ctx, b, c, r); err != nil {
			return err
		}
	}
	return nil
}

// rows returns the three kinds of reads, with random requests.
func (c *readContenders) rows() []readRow {
	g := c.graph
	r := rand.New(rand.NewPCG(3, 0))

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

	filter := readRow{
		id: "filter", title: "25-way filter, 50 connections", unit: "pairs/s", unitsPerRequest: workload.FilterSize, redisTarget: 0.6, serviceTarget: 3,
		procedure: skeinv1connect.GraphServiceFilterFollowedProcedure,
		redis:     programs.RedisBenchmarkJob{Command: []string{"ZMSCORE", programs.FollowingKey("1__rand_int__")}, Keyspace: g.Users},
		note: "over HTTP up to 12 of the 25 candidates are followed, as far as the viewer follows as many; " +
			"redis-benchmark asks for random ones, nearly none of which is followed.",
	}
	for range workload.FilterSize {
		filter.redis.Command = append(filter.redis.Command, "1__rand_int__")
	}
	for _, f := range g.Filters(r, workload.DistinctRequests/2) {
		filter.requests = append(filter.requests, filterRequest(f))
	}

	// Users with a full page of followers have the lowest numbers, so redis-benchmark can draw one
	// of them at random.
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
	return []readRow{check, filter, newest}
}

// The names of the contenders in the rows of reads.
const (
	readSkein   = "skein"
	readPooled  = "service in front of Redis, pooled"
	readBatched = "service in front of Redis, auto-pipelined"
	readRedis   = "redis-server"
)

// measureReads measures one kind of read in protobuf, and then in JSON. Only the row in protobuf
// has targets.
func measureReads(ctx context.Context, b *measure.Bench, c *readContenders, r readRow) error {
	for _, inJSON := range []bool{false, true} {
		row := b.AddRow(r.id, r.title+", protobuf", r.unit, r.note)
		redisTarget, serviceTarget := r.redisTarget, r.serviceTarget
		if inJSON {
			row.ID = r.id + "-json"
			row.Title = r.title + ", JSON"
			row.Note = "" // the note of the row in protobuf is enough
			redisTarget, serviceTarget = 0, 0
		}
		contenders, err := httpContenders(b, c, r, row.ID, inJSON)
		if err != nil {
			return err
		}
		if !inJSON {
			job := r.redis
			job.Addr = c.redis.Addr
			contenders = append(contenders, measure.Contender{Name: readRedis, Measure: func(ctx context.Context) (measure.Measurement, error) {
				m, err := job.Run(ctx, b.Tools.RedisBenchmark, connections, b.Opts.Time)
				m.Value *= r.unitsPerRequest
				return m, err
			}})
		}
		if err := b.MeasureInTurn(ctx, row, contenders...); err != nil {
			return err
		}

		if !inJSON {
			row.Compare(readSkein, readRedis, redisTarget, false)
		}
		row.Compare(readSkein, readPooled, serviceTarget, false)
		if !r.pipelined {
			row.Compare(readSkein, readBatched, serviceTarget, false)
		}
	}
	return nil
}

// httpContenders returns the contenders to which wrk sends requests. All get the same requests. id
// is part of the names of files.
func httpContenders(b *measure.Bench, c *readContenders, r readRow, id string, inJSON bool) (contenders []measure.Contender, err error) {
	encoding := programs.Protobuf()
	if inJSON {
		encoding = programs.JSON()
	}
	bodies := make([][]byte, len(r.requests))
	for i, m := range r.requests {
		bodies[i], err = encoding.Marshal(m)
		if err != nil {
			return nil, err
		}
	}

	for _, s := range []struct {
		name, fileName string
		addr           programs.Address
	}{
		{readSkein, "skein", c.skein.Addr},
		{readPooled, "pooled", c.pooledAddr},
		{readBatched, "batched", c.batchedAddr},
	} {
		if s.name == readBatched && r.pipelined {
			continue
		}

		requests := make([][]byte, len(bodies))
		for i, body := range bodies {
			requests[i] = programs.HTTPRequest(s.addr.String(), r.procedure, encoding.ContentType, body)
		}
		job, err := programs.NewWrkJob(b.Dir, id+"-"+s.fileName, s.addr.String(), requests)
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

// publishGraphAsHistory publishes a graph as backfills, which are events with a time of their own.
// So every follow has the time that it has in the graph. Each connection has a source of its own,
// because the offsets of a source must rise and the connections are not in step.
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
			Source:     fmt.Sprintf("bench-%d", conn),
			Offset:     uint64(i + 1),
			OccurredAt: timestamppb.New(g.FollowTime(i).Time()),
			Kind:       workload.Followed(g.Edges[i], workload.UserID),
		})
	}
	return s.PublishSequences(ctx, sequences)
}
