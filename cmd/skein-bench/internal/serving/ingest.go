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
	// ingestConnections publish at once, ingestPipeline follows each, and wait for the answers before they continue.
	ingestConnections = 2
	ingestPipeline    = 50
)

// Ingest measures follows and plays a second from the first one sent until the last one is durable and visible. Every
// measurement has a fresh server and the same follows in the same order.
func Ingest(ctx context.Context, b *measure.Bench) error {
	g := workload.NewGraph(max(100, b.Opts.Follows/10), b.Opts.Follows, 4)
	const overHTTP, inProcess = "skein, over HTTP", "skein, in process"
	const aofEverysec, aofAlways = "redis, AOF everysec", "redis, AOF always"
	row := b.Row("ingest", "durable follows until visible in every projection, 2 connections × 50", "follows/s",
		fmt.Sprintf("%d live follows between %d users, on an empty server each time. Redis: each connection sends "+
			"pipelines of 50 MULTI … EXEC, each with two ZADD and two HINCRBY (both sorted sets and both counts), "+
			"encoded beforehand, and reads all replies before the next. Skein over HTTP: each connection sends "+
			"Publish calls of the same 50 follows, one after the other; each is answered when the log has fsynced, "+
			"and the time ends when every projection shows the last. In process: the same through events.Publisher, "+
			"without HTTP.", b.Opts.Follows, g.Users))
	redis := func(d programs.Durability) func(context.Context) (measure.Measurement, error) {
		return func(ctx context.Context) (measure.Measurement, error) { return ingestRedis(ctx, b, g, d) }
	}
	err := b.Alternate(ctx, row,
		measure.Contender{Name: overHTTP, Measure: func(ctx context.Context) (measure.Measurement, error) {
			return ingestSkein(ctx, b, followCalls(g), len(g.Edges))
		}},
		measure.Contender{Name: inProcess, Measure: func(ctx context.Context) (measure.Measurement, error) {
			return ingestInProcess(ctx, b, g)
		}},
		measure.Contender{Name: aofEverysec, Measure: redis(programs.Everysec)},
		measure.Contender{Name: aofAlways, Measure: redis(programs.Always)},
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

// splitIntoPipelines deals pipelines of follows out to the connections in turn.
func splitIntoPipelines(g *workload.Graph) [ingestConnections][][]workload.Edge {
	var shares [ingestConnections][][]workload.Edge
	for i := 0; i < len(g.Edges); i += ingestPipeline {
		conn := i / ingestPipeline % ingestConnections
		shares[conn] = append(shares[conn], g.Edges[i:min(i+ingestPipeline, len(g.Edges))])
	}
	return shares
}

// followCalls are the shares as Publish calls.
func followCalls(g *workload.Graph) [][]*skeinv1.PublishRequest {
	var calls [][]*skeinv1.PublishRequest
	for _, share := range splitIntoPipelines(g) {
		var sequence []*skeinv1.PublishRequest
		for _, follows := range share {
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

// ingestSkein publishes n events to an empty service, as sequences of calls.
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
	return measure.Rate(n, begin), nil
}

func ingestRedis(ctx context.Context, b *measure.Bench, g *workload.Graph, d programs.Durability) (m measure.Measurement, err error) {
	s, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, d)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	// A transaction is answered by one line, one for each of its commands, and its results.
	const repliesPerFollow = 6
	var (
		pipelines [ingestConnections][][]byte
		conns     [ingestConnections]*programs.RESPConn
	)
	since := 0
	for conn, share := range splitIntoPipelines(g) {
		if conns[conn], err = programs.DialRESP(ctx, s.Addr); err != nil {
			return m, err
		}
		defer conns[conn].Close()
		for _, follows := range share {
			var pipeline []byte
			for _, e := range follows {
				pipeline = programs.AppendFollow(pipeline, workload.UserID(e.Follower), workload.UserID(e.Followee), fmt.Sprint(g.Since(since)))
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
				follows := min(ingestPipeline, len(g.Edges)-(i*ingestConnections+conn)*ingestPipeline)
				if errs[conn] = c.RoundTrip(pipeline, follows*repliesPerFollow); errs[conn] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	m = measure.Rate(len(g.Edges), begin)
	if err := errors.Join(errs...); err != nil {
		return m, err
	}
	return m, workload.CheckRedisGraph(ctx, s, g)
}
