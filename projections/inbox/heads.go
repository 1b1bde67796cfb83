package inbox

import (
	"bytes"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/pushed"
	"github.com/skein-feed/skein/projections/querycache"
)

// kept is the query cache of an open store: whom readers follow, the heads of outboxes, and inboxes.
type kept struct {
	// QueryCache is that of the relations, as the graph that the inbox embeds keeps them.
	projections.QueryCache
	heads   *heads
	inboxes *pushed.Inboxes
}

var _ graph.Keeper = (*kept)(nil)

// Relations is part of [graph.Keeper].
func (k *kept) Relations() projections.QueryCache { return k.QueryCache }

// Repaired is part of [projections.QueryCache].
func (k *kept) Repaired(version uint64) {
	k.QueryCache.Repaired(version)
	k.heads.Repaired(version)
	k.inboxes.Repaired(version)
}

// Close is part of [projections.QueryCache].
func (k *kept) Close() {
	k.QueryCache.Close()
	k.heads.Close()
	k.inboxes.Close()
}

// heads are the heads of outboxes, by owner. They are worth keeping because the outboxes that many readers pull are merged into nearly
// every page.
type heads = querycache.Set[head]

// head has the newest sort keys of an outbox. It is immutable, because pages read it without a lock.
type head struct {
	prefix   []byte
	sortKeys [][]byte
	// from is where the rows behind them begin; nil means there are none.
	from []byte
}

const (
	// headKeys is how many sort keys of an outbox are kept: most outboxes give a page fewer.
	headKeys = 8
	// headBytes and sliceBytes are what a head takes beside the bytes of its keys, and each sort key.
	headBytes, sliceBytes = 72, 24
)

// madeHead is a head that was read from rows. It is kept only if the walk ends without an error: a head whose reading has failed looks as
// if the outbox had no more rows.
type madeHead struct {
	owner uint64
	head  head
	bytes int64
}

// headOf returns the head of an outbox that was read from its beginning on.
func headOf(owner uint64, s *stream) madeHead {
	n := len(s.prefix) + len(s.from)
	for _, sortKey := range s.ahead {
		n += len(sortKey)
	}
	keys := arena{block: make([]byte, 0, n)}
	h := head{prefix: keys.clone(s.prefix), sortKeys: make([][]byte, len(s.ahead))}
	for i, sortKey := range s.ahead {
		h.sortKeys[i] = keys.clone(sortKey)
	}
	if s.from != nil {
		h.from = keys.clone(s.from)
	}
	n += headBytes + sliceBytes*len(h.sortKeys)
	return madeHead{owner, h, int64(n + n/8)} // the allocator rounds up
}

// keep keeps the heads that a walk has read.
func (m *merge) keep() {
	for _, made := range m.made {
		m.heads.Make(made.owner, m.version, isHeadOf(made.head.prefix), func(h *head) int64 {
			*h = made.head
			return made.bytes
		})
	}
}

func isHeadOf(prefix []byte) func(*head) bool {
	return func(h *head) bool { return bytes.Equal(h.prefix, prefix) }
}

// outboxChanged invalidates the heads of an owner for the views that will show the present write. Older views may continue to use them.
func (f *Inbox) outboxChanged(owner string) {
	if k, ok := f.b.QueryCache().(*kept); ok {
		f.key = events.AppendID(f.key[:0], owner)
		k.heads.Changed(xxh3.HashSeed(f.key, k.heads.Seed), f.b.Version())
	}
}

// begin reads the first sort keys of a stream that are not before from (nil: all). Of an outbox that feeds were merged of lately, it
// has them in memory.
func (m *merge) begin(s *stream, from []byte) {
	if s.owner == nil {
		s.entries.Skip(from)
		m.fill(s, aheadMost)
		return
	}
	s.from = startOf(s, from)
	if s.elsewhere != nil {
		m.fill(s, headKeys)
		return
	}
	if m.heads == nil {
		m.fill(s, 1)
		return
	}
	owner := xxh3.HashSeed(s.owner, m.heads.Seed)
	h, answers := m.heads.Find(owner, m.version, isHeadOf(s.prefix))
	switch {
	case answers:
		s.ahead = h.sortKeys
		for len(s.ahead) > 0 && bytes.Compare(s.ahead[0], from) < 0 {
			s.ahead = s.ahead[1:]
		}
		if len(s.ahead) > 0 || h.from == nil {
			s.from = h.from
		} else {
			m.fill(s, 1)
		}
	case len(from) > 0, h == nil && m.heads.Asked(owner, 1) == 0:
		m.fill(s, 1)
	default:
		m.fill(s, headKeys)
		m.made = append(m.made, headOf(owner, s))
	}
}
