package stores

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
)

const (
	// writeConnections is over how many connections the writes of a row go: two, so that the server
	// always has something to do.
	writeConnections = 2
	// writesPipelined is how many writes go over a connection in one pipeline.
	writesPipelined = 500
)

// writePipelines writes items to Redis, and returns the time that this took and the processor time
// that the server used. appendWrite appends the commands of one item, to which the server sends so
// many replies. Everything is encoded before the time begins. Each connection has every other
// pipeline.
func writePipelines[T any](
	ctx context.Context, server *programs.Redis, items []T, appendWrite func(dst []byte, item T) []byte, replies int,
) (took, used time.Duration, err error) {
	type pipeline struct {
		data    []byte
		replies int
	}
	var pipelines [writeConnections][]pipeline
	next := 0
	for chunk := range slices.Chunk(items, writesPipelined) {
		p := pipeline{replies: replies * len(chunk)}
		for _, item := range chunk {
			p.data = appendWrite(p.data, item)
		}
		pipelines[next] = append(pipelines[next], p)
		next = (next + 1) % writeConnections
	}

	var conns [writeConnections]*programs.RESPConn
	for i := range conns {
		if conns[i], err = programs.DialRESP(ctx, server.Addr); err != nil {
			return 0, 0, err
		}
		defer conns[i].Close()
	}
	// The connections are open, so that only the writes count.
	before, err := server.CPU(ctx)
	if err != nil {
		return 0, 0, err
	}

	var errs [writeConnections]error
	var wg sync.WaitGroup
	begin := time.Now()
	for i, c := range conns {
		wg.Go(func() {
			for _, p := range pipelines[i] {
				if errs[i] = errors.Join(ctx.Err(), c.RoundTrip(p.data, p.replies)); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took = time.Since(begin)

	if err := errors.Join(errs[:]...); err != nil {
		return took, 0, err
	}
	after, err := server.CPU(ctx)
	return took, after - before, err
}
