package service

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/skein-feed/skein/projections/store"
)

// Memory divides the memory of the process among its parts, in bytes.
type Memory struct {
	// Limit is Go's soft limit.
	Limit int64
	// Cache is for blocks of tables and memtables, Queries for decoded rows that queries keep, Ring for envelopes that were read,
	// Rebuild for the rows and blocks of a rebuild, Shadow for a verification, Requests for calls under way.
	Cache, Queries, Ring, Rebuild, Shadow, Requests int64
}

// bounds returns the bounds of stores that serve. Memtables count against the cache. Each of the four stores has at most four that wait
// for a flush, one for reuse, and those that open iterators hold. The larger they are, the less compactions write; if they filled the
// cache, every lookup of a fold would read a table. Rows that folds keep take as much as a memtable: with more of the default, the
// collector would run too often (docs/decisions/0039). Envelopes of the log take five times their size once they are decoded.
func (p Memory) storeBounds() store.Bounds {
	if p.Cache == 0 {
		return store.Bounds{}
	}
	flush, keep := min(max(p.Cache/16, 2<<20), 32<<20), min(max(p.Cache/16, 1<<20), 256<<20)
	return store.Bounds{FlushBytes: int(flush), KeepBytes: int(keep), ReadBytes: 1 << 20}
}

const (
	// giveBackEvery is the time between two attempts to return unused memory to the system.
	releasePeriod = 30 * time.Second
	// giveBackLeast is the number of bytes that must have been allocated since the last attempt, because a collection is expensive.
	minAllocatedBytes = 64 << 20
)

// giveBack returns unused memory to the system periodically, until the context ends. In an idle process the collector runs only every two
// minutes, and the runtime returns memory slowly. With a heap of half a gigabyte, a round takes a tenth of a second of one core.
func releaseUnusedMemory(ctx context.Context) {
	tick := time.NewTicker(releasePeriod)
	defer tick.Stop()
	for last := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := allocatedBytes(); now-last >= minAllocatedBytes {
			debug.FreeOSMemory()
			last = now
		}
	}
}

// allocatedBytes returns the number of bytes that the process has allocated since its start.
func allocatedBytes() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
