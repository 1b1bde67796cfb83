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
	// Limit is the soft limit of the Go runtime for the whole process.
	Limit int64
	// Cache is for the blocks of tables, and for the memtables, of the stores that serve.
	Cache int64
	// Queries is for the decoded rows that queries keep.
	Queries int64
	// Ring is for the envelopes that the hub keeps after it has read them from the log.
	Ring int64
	// Rebuild is for the rows and blocks of a rebuild, and Shadow for those of a verification.
	Rebuild, Shadow int64
	// Requests is for the calls that are under way.
	Requests int64
}

// storeBounds returns the bounds of a store that serves.
func (m Memory) storeBounds() store.Bounds {
	if m.Cache == 0 {
		return store.Bounds{}
	}
	return store.Bounds{
		// FlushBytes is the size of a memtable, and memtables count against the cache. There can be
		// many: each store has up to four that wait for a flush, one to reuse, and those that open
		// iterators hold. Large memtables make compactions write less. But if memtables filled the
		// cache, every lookup of a fold would have to read a table from disk.
		FlushBytes: int(min(max(m.Cache/16, 2<<20), 32<<20)),
		// KeepBytes is for the rows that folds keep in memory. With a larger share of the default
		// limit, the garbage collector would run too often (docs/decisions/0039).
		KeepBytes: int(min(max(m.Cache/16, 1<<20), 256<<20)),
		// Decoded envelopes take about five times the bytes that are read here.
		ReadBytes: 1 << 20,
	}
}

const (
	// releasePeriod is the time between two attempts to return unused memory to the system.
	releasePeriod = 30 * time.Second
	// minAllocatedBytes is how many bytes the process must have allocated since the last attempt.
	// An idle process has nothing to return, and an attempt costs a garbage collection.
	minAllocatedBytes = 64 << 20
)

// releaseUnusedMemory returns unused memory to the system periodically, until ctx ends. Without it,
// the garbage collector of an idle process runs only every two minutes, and the runtime returns
// memory slowly. With a heap of half a gigabyte, an attempt takes a tenth of a second of one core.
func releaseUnusedMemory(ctx context.Context) {
	tick := time.NewTicker(releasePeriod)
	defer tick.Stop()
	lastAllocated := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		allocated := allocatedBytes()
		if allocated-lastAllocated >= minAllocatedBytes {
			debug.FreeOSMemory()
			lastAllocated = allocated
		}
	}
}

// allocatedBytes returns how many bytes the process has allocated since its start, including those
// that were freed since.
func allocatedBytes() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}
