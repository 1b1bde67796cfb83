package serving

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// ingestConnections is how many connections publish at the same time.
	ingestConnections = 2
	// ingestPipeline is how many follows a connection sends before it waits for the answers.
	ingestPipeline = 50
)

// MeasureIngest measures how many follows and how many plays per second are published, from the
// first call until the last event is on disk and reads show it. Each measurement starts an empty
// server, and publishes the same events in the same order.
func MeasureIngest(ctx context.Context, b *measure.Bench) error {
	g := workload.NewGraph(max(100, b.Opts.Follows/10), b.Opts.Follows, 4)
	const overHTTP, inProcess = "skein, over HTTP", "skein, in process"
	const aofEverysec, aofAlways = "redis, AOF everysec", "redis, AOF always"

	row := b.AddRow("ingest", "durable follows until visible in every projection, 2 connections × 50", "follows/s",
		fmt.Sprintf("%d live follows between %d users, on an empty server each time. Redis: each connection sends "+
			"pipelines of 50 MULTI … EXEC, each with two ZADD and two HINCRBY (both sorted sets and both counts), "+
			"encoded beforehand, and reads all replies before the next. Skein over HTTP: each connection sends "+
			"Publish calls of the same 50 follows, one after the other; each is answered when the log has fsynced, "+
			"and the time ends when every projection shows the last. In process: the same through events.Publisher, "+
			"without HTTP.", b.Opts.Follows, g.Users))
	measureRedis := func(d programs.Durability) func(context.Context) (measure.Measurement, error) {
		return func(ctx context.Context) (measure.Measurement, error) { return ingestRedis(ctx, b, g, d) }
	}
	err := b.MeasureInTurn(ctx, row,
		measure.Contender{Name: overHTTP, Measure: func(ctx context.Context) (measure.Measurement, error) {
			return ingestSkein(ctx, b, followCalls(g), len(g.Edges))
		}},
		measure.Contender{Name: inProcess, Measure: func(ctx context.Context) (measure.Measurement, error) {
			return ingestInProcess(ctx, b, g)
		}},
		measure.Contender{Name: aofEverysec, Measure: measureRedis(programs.Everysec)},
		measure.Contender{Name: aofAlways, Measure: measureRedis(programs.Always)},
	)
	if err != nil {
		return err
	}

	row.Compare(overHTTP, aofEverysec, 0.45, false)
	row.Compare(overHTTP, aofAlways, 0.8, false)
	row.Compare(inProcess, aofEverysec, 0.7, false)
	row.Compare(inProcess, aofAlways, 1.2, false)
	return ingestPlays(ctx, b)
}

// splitIntoPipelines splits the follows of a graph into pipelines, and gives them to the
// connections in turn.
func splitIntoPipelines(g *workload.Graph) [ingestConnections][][]workload.Edge {
	var pipelines [ingestConnections][][]workload.Edge
	for i := 0; i < len(g.Edges); i += ingestPipeline {
		conn := i / ingestPipeline % ingestConnections
		pipelines[conn] = append(pipelines[conn], g.Edges[i:min(i+ingestPipeline, len(g.Edges))])
	}
	return pipelines
}

// pipelineStart returns the index in the graph of the first follow of the i-th pipeline of a
// connection.
func pipelineStart(conn, i int) int { return (i*ingestConnections + conn) * ingestPipeline }

// followCalls returns the pipelines of each connection as Publish calls.
func followCalls(g *workload.Graph) [][]*skeinv1.PublishRequest {
	var calls [][]*skeinv1.PublishRequest
	for _, pipelines := range splitIntoPipelines(g) {
		var sequence []*skeinv1.PublishRequest
		for _, follows := range pipelines {
			call := &skeinv1.PublishRequest{}
			for _, e := range follows {
				call.Events = append(call.Events, &skeinv1.Event{Kind: workload.Followed(e, workload.UserID)})
			}
			sequence = append(sequence, call)
		}
		calls = append(calls, sequence)
	}
	return calls
}

// ingestSkein starts an empty service, and measures how long it takes to publish sequences of calls
// that have n events together.
func ingestSkein(ctx context.Context, b *measure.Bench, calls [][]*skeinv1.PublishRequest, n int) (m measure.Measurement, err error) {
	s, err := programs.StartEmptySkein(ctx, b)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	begin := time.Now()
	if err := s.PublishSequences(ctx, calls); err != nil {
		return m, err
	}
	return measure.RateSince(n, begin), nil
}

// ingestRedis starts an empty Redis server, and measures how long it takes to write the follows of
// a graph.
func ingestRedis(ctx context.Context, b *measure.Bench, g *workload.Graph, d programs.Durability) (m measure.Measurement, err error) {
	s, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, d)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	// Connect, and encode all pipelines before the time begins. MULTI has a reply, each of the four
	// commands has one, and EXEC has one with all results.
	const repliesPerFollow = 6
	var (
		pipelines [ingestConnections][][]byte
		conns     [ingestConnections]*programs.RESPConn
	)
	for conn, connPipelines := range splitIntoPipelines(g) {
		conns[conn], err = programs.DialRESP(ctx, s.Addr)
		if err != nil {
			return m, err
		}
		defer conns[conn].Close()
		for i, follows := range connPipelines {
			var pipeline []byte
			for k, e := range follows {
				since := fmt.Sprint(g.FollowTime(pipelineStart(conn, i) + k))
				pipeline = programs.AppendFollow(pipeline, workload.UserID(e.Follower), workload.UserID(e.Followee), since)
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
				// The last pipeline of the graph may have fewer follows.
				follows := min(ingestPipeline, len(g.Edges)-pipelineStart(conn, i))
				errs[conn] = c.RoundTrip(pipeline, follows*repliesPerFollow)
				if errs[conn] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	m = measure.RateSince(len(g.Edges), begin)
	if err := errors.Join(errs...); err != nil {
		return m, err
	}
	return m, workload.CheckRedisGraph(ctx, s, g)
}
