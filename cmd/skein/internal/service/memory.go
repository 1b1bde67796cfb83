package service

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/skein-feed/skein/projections"
)

// Memory shares the memory of the process out.
type Memory struct {
	// Limit is Go's soft limit.
	Limit int64
	// Cache is for blocks of tables and memtables, Queries for what they keep decoded, ring for what has been read of the log,
	// Rebuild for the rows and blocks of a rebuild, shadow for a verification, requests for calls under way.
	Cache, Queries, Ring, Rebuild, Shadow, Requests int64
}

// bounds are those of stores that serve. Memtables are taken from the cache: four stores have at most four each that wait, one to
// use again, and those that open iterators hold. Were the cache full of them, every lookup of a fold would read a table. A commit of
// half a memtable would be flushed alone. What is read of the log takes five times as much once it is decoded.
func (p Memory) bounds() projections.Bounds {
	if p.Cache == 0 {
		return projections.Bounds{}
	}
	flush, keep := min(max(p.Cache/32, 2<<20), 32<<20), min(max(p.Cache/16, 1<<20), 16<<20)
	return projections.Bounds{FlushBytes: int(flush), BatchBytes: int(flush / 8), KeepBytes: int(keep), ReadBytes: 1 << 20}
}

const (
	// giveBackEvery is how often memory that is not needed is given back to the system.
	giveBackEvery = 30 * time.Second
	// giveBackLeast is how much must have been allocated since the last time: a collection costs.
	giveBackLeast = 64 << 20
)

// GiveBack gives memory back that work has left, until the context ends. The collector of an idle process runs every two
// minutes only, and the runtime gives back slowly. With a heap of half a gigabyte, a round costs a tenth of a second of a core.
func GiveBack(ctx context.Context) {
	tick := time.NewTicker(giveBackEvery)
	defer tick.Stop()
	for last := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := allocatedBytes(); now-last >= giveBackLeast {
			debug.FreeOSMemory()
			last = now
		}
	}
}

// allocatedBytes counts what the process has allocated since its start.
func allocatedBytes() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
