package redis

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
	"github.com/skein-feed/skein/replay/importer"
	"github.com/skein-feed/skein/replay/internal/comparison"
	"github.com/skein-feed/skein/replay/internal/recordfile"
)

// CompareOptions say which Redis is compared with which service.
type CompareOptions struct {
	// Of the Options, a comparison uses URL, Mapping, State, Commands, PageSize, Patience, LogID,
	// Observe, Notice and Now.
	Options
	// AtLeast is a position of the log that the answers must contain; empty means the position of
	// the last run with this state.
	AtLeast  string
	Graph    skeinv1connect.GraphServiceClient
	Feed     skeinv1connect.FeedServiceClient
	Seen     skeinv1connect.SeenServiceClient
	Counters skeinv1connect.CounterServiceClient
	// Tolerance is how far two times may be apart to count as equal. An application that writes to
	// both systems gives them the times of two clocks.
	Tolerance time.Duration
	// Asked is called from several goroutines with the number of lists and counts that were queried
	// and of all; it may be nil.
	Asked func(done, total int)
	// Difference is called with each of the first 100 differences; it may be nil.
	Difference func(string)
}

// Comparison is the result of [Compare].
type Comparison struct {
	KeyCounts
	importer.Comparison
	// Rejected is the number of elements in Redis that the service cannot have. Each is reported
	// like a difference.
	Rejected uint64
	// ThrottleTime is how long commands to Redis have waited for the limit.
	ThrottleTime time.Duration
}

// Compare reads a Redis and queries a service for all its facts. It reports entries that are
// missing in the service, entries that only the service has, and entries with another time or text.
// It compares the lists of those users and boards that are in Redis now, or that earlier runs of
// the import with the same state have published. It does not find a list that only the service has.
func Compare(ctx context.Context, o CompareOptions) (_ *Comparison, err error) {
	r, end, err := openRedis(o.Options)
	if err != nil {
		return nil, err
	}
	defer end()
	o.Options = r.Options
	found, err := compare(ctx, o, r.keyspace)
	if found != nil {
		found.ThrottleTime = r.waitedForLimit()
	}
	return found, err
}

// compare does the work of Compare, with any keyspace.
func compare(ctx context.Context, o CompareOptions, from keyspace) (_ *Comparison, err error) {
	// An import would change the state while it is compared.
	unlock, err := lockStateDir(o.State)
	if err != nil {
		return nil, err
	}
	defer unlock()

	s, err := loadState(o.State)
	if err != nil {
		return nil, err
	}
	isSameLog := s != nil && s.LogID == o.LogID
	if isSameLog && o.AtLeast == "" {
		o.AtLeast = s.Position
	}
	// Sort on the disk of the state, which has room for all facts. The default directory for
	// temporary files may be in memory.
	dir, remove, err := comparison.MakeDir(o.State)
	if err != nil {
		return nil, err
	}
	defer remove(&err)

	now := events.Micros(o.Now().UnixMicro())
	c := comparison.New(comparison.Options{
		Dir:        dir,
		Origin:     "Redis",
		AtLeast:    o.AtLeast,
		Graph:      o.Graph,
		Feed:       o.Feed,
		Seen:       o.Seen,
		Counters:   o.Counters,
		Patience:   o.Patience,
		Latest:     now,
		Tolerance:  o.Tolerance,
		Observe:    o.Asked,
		Difference: o.Difference,
	})
	found := &Comparison{KeyCounts: newKeyCounts(o.Mapping)}
	if err := expectRedis(ctx, c, o, from, now, found); err != nil {
		return found, err
	}
	if isSameLog {
		if err := expectKnown(c, o.State, s); err != nil {
			return found, err
		}
	}

	result, err := c.Run(ctx)
	found.Comparison = *result
	return found, err
}

// expectRedis reads Redis and adds the entries that its facts stand for to the comparer.
func expectRedis(
	ctx context.Context, c *comparison.Comparer, o CompareOptions, from keyspace, now events.Micros, found *Comparison,
) error {
	total, err := from.size(ctx)
	if err != nil {
		return err
	}

	// A scan may return a rejected element twice, but the element counts once.
	rejected := map[xxh3.Uint128]struct{}{}
	rd := &keyReader{
		keyspace: from,
		mapping:  o.Mapping,
		start:    now,
		counts:   &found.KeyCounts,
		fact: func(f *fact) error {
			if f.kind == events.UserBlocked {
				c.ExpectBlock(f.user, f.peer)
			}
			return expectAll(c, f.entries())
		},
		reject: func(r *reject) error {
			hash := xxh3.Hash128(r.appendTo(nil))
			if _, again := rejected[hash]; !again {
				rejected[hash] = struct{}{}
				c.Differ(&found.Rejected, "%s %s: Redis has it, skein cannot: rule %d: %s", quote(r.key), quote(r.element), r.rule, r.reason)
			}
			return nil
		},
	}

	return rd.readAll(ctx, func() { o.Observe(found.progress(total)) })
}

// expectAll adds entries to the comparer.
func expectAll(c *comparison.Comparer, entries []comparison.Entry) error {
	for _, e := range entries {
		if err := c.Expect(e); err != nil {
			return err
		}
	}
	return nil
}

// expectKnown adds the lists of published facts, but not the entries in them. So entries that Redis
// has deleted since then are reported as extra. Plays are an exception: a play that Redis has
// deleted still counts.
func expectKnown(c *comparison.Comparer, dir string, s *state) error {
	if s.Known == "" {
		return nil
	}
	known, err := recordfile.Open(filepath.Join(dir, s.Known))
	if err != nil {
		return err
	}
	defer func() { _ = known.Close() }() // it was only read
	for {
		record, err := known.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f, err := decodeFact(record)
		if err != nil {
			return err
		}
		entries := f.entries()
		if f.kind != events.Played {
			for i := range entries {
				entries[i] = comparison.Entry{List: entries[i].List}
			}
		}
		if err := expectAll(c, entries); err != nil {
			return err
		}
	}
}
