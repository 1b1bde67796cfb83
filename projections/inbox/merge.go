package inbox

import (
	"bytes"
	"container/heap"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// stream is a sorted list of sort keys: those of an inbox, or those of the pins of an outbox. The
// key of an outbox row becomes a sort key when the owner is inserted between the time and the pin.
type stream struct {
	// inboxKeys are the sort keys of an inbox.
	inboxKeys inboxcache.Iterator
	// prefix is the prefix of the rows of an outbox.
	prefix []byte
	// owner is the owner of an outbox, in the encoding of keys; nil means that the stream is an
	// inbox.
	owner []byte
	// buffered are the next sort keys, which have been read already.
	buffered [][]byte
	// nextRow is the key of the row that follows the buffered ones; nil means that there is none.
	nextRow []byte
	// singleKey is the memory of buffered while it holds a single key, as for most outboxes, which
	// saves an allocation.
	singleKey [1][]byte
	// readRemote reads the next pins of an outbox whose rows another node has; nil means that the
	// rows are in the state.
	readRemote func(from []byte, n int) (pins []Pin, next []byte)
}

// arena allocates keys in blocks, because a page allocates thousands of short keys. They stay in
// memory until the page is read.
type arena struct{ block []byte }

// arenaBlock is the size of a block in bytes.
const arenaBlock = 4 << 10

// alloc returns an empty slice with a capacity of n bytes.
func (a *arena) alloc(n int) []byte {
	if len(a.block)+n > cap(a.block) {
		a.block = make([]byte, 0, max(n, arenaBlock))
	}
	start := len(a.block)
	a.block = a.block[:start+n]
	return a.block[start:start:len(a.block)]
}

func (a *arena) clone(b []byte) []byte { return append(a.alloc(len(b)), b...) }

// streamMerger returns the sort keys of its streams in order, each once even if several streams
// have it. It is a heap of streams, ordered by their next sort key.
//
// All streams share one iterator, which is moved between them. A page may merge thousands of
// outboxes, and an iterator for each would take too much memory.
type streamMerger struct {
	rows projections.Iterator
	keys *arena
	// cache has the newest sort keys of outboxes; nil means that there is no cache.
	cache *inboxcache.Cache
	// version is the version of the view. The cache decides by it whether an outbox can be read for
	// the view.
	version uint64
	// outboxesToLearn are outboxes that were read from rows for the cache. The cache learns them
	// only if the merge ends without an error: an outbox that could not be read looks as if it had
	// no more rows.
	outboxesToLearn []outboxToLearn
	// streams is the heap. Every stream in it has a buffered sort key.
	streams      []*stream
	lastReturned []byte
	err          error
}

type outboxToLearn struct {
	owner []byte
	keys  inboxcache.NewestKeys
}

// readAhead is the number of sort keys that are read at once from a stream. From an outbox a single
// row is read first, because most outboxes have at most one sort key in a page; only an outbox that
// turns out to have more is read in such steps.
const readAhead = 16

func newStreamMerger(q *Queries, keys *arena) *streamMerger {
	return &streamMerger{rows: q.state.Iter(nil, nil), keys: keys, cache: q.cache, version: q.version}
}

// reset merges other streams, from the first sort key that is not before from. No stream need have
// the key from; nil means from the top.
func (m *streamMerger) reset(streams []*stream, from []byte) {
	m.streams = m.streams[:0]
	m.lastReturned = nil
	for _, s := range streams {
		m.openStream(s, from)
		if len(s.buffered) > 0 {
			m.streams = append(m.streams, s)
		}
	}
	heap.Init(m)
}

// openStream reads the first sort keys of a stream that are not before from, those of an outbox
// from the cache if it has them.
func (m *streamMerger) openStream(s *stream, from []byte) {
	if s.owner == nil {
		s.inboxKeys.SkipTo(from)
		m.fill(s, readAhead)
		return
	}

	s.nextRow = firstRowKey(s, from)
	if s.readRemote != nil {
		m.fill(s, inboxcache.MaxNewestKeys)
		return
	}
	if m.cache == nil {
		m.fill(s, 1)
		return
	}

	cached, outdated := m.cache.ReadOutbox(s.owner, s.prefix, m.version)
	if cached != nil {
		m.openCachedOutbox(s, from, cached)
		return
	}

	// Only a page from the top reads what the cache holds, the newest sort keys. And it caches only
	// an outbox that an earlier page has asked for too: the outboxes of a reader who comes once are
	// not worth the memory.
	if len(from) == 0 && (outdated || m.cache.CountOutboxMiss(s.owner)) {
		m.fill(s, inboxcache.MaxNewestKeys)
		keys := inboxcache.CopyNewestKeys(s.prefix, s.buffered, s.nextRow)
		m.outboxesToLearn = append(m.outboxesToLearn, outboxToLearn{s.owner, keys})
		return
	}
	m.fill(s, 1)
}

// openCachedOutbox opens an outbox whose newest sort keys are cached. It skips those before from.
func (m *streamMerger) openCachedOutbox(s *stream, from []byte, cached *inboxcache.NewestKeys) {
	s.buffered = cached.SortKeys
	for len(s.buffered) > 0 && bytes.Compare(s.buffered[0], from) < 0 {
		s.buffered = s.buffered[1:]
	}
	if len(s.buffered) == 0 && cached.Rest != nil {
		m.fill(s, 1) // all cached keys are before from, so nextRow still is the first row that is not
		return
	}
	s.nextRow = cached.Rest
}

// firstRowKey returns the smallest key that a row of an outbox can have whose sort key is not
// before from.
func firstRowKey(s *stream, from []byte) []byte {
	if len(from) == 0 {
		return s.prefix
	}
	key := append([]byte(nil), s.prefix...)
	if len(from) <= 8 {
		return append(key, from...) // from is a time, without owner and pin
	}

	// Rows of an outbox have no owner in their key. So of the rows with exactly the time of from,
	// all count if the owner of the outbox sorts after the owner in from, none if it sorts before,
	// and those of pins that are not before the pin in from if both are the same.
	key = append(key, from[:8]...)
	fromOwner := from[8:]
	n := min(len(s.owner), len(fromOwner))
	switch order := bytes.Compare(s.owner, fromOwner[:n]); {
	case order > 0:
		return key
	case order < 0:
		return projections.PrefixEnd(key)
	}
	return append(key, fromOwner[n:]...)
}

// fill reads up to n sort keys of a stream that has none buffered.
func (m *streamMerger) fill(s *stream, n int) {
	if s.owner == nil {
		m.fillFromInbox(s, n)
		return
	}
	if s.nextRow == nil || m.err != nil {
		return
	}

	s.buffered = s.singleKey[:0]
	if n > len(s.singleKey) {
		s.buffered = make([][]byte, 0, n)
	}
	if s.readRemote != nil {
		m.fillRemote(s, n)
		return
	}

	ok := m.rows.SeekGE(s.nextRow)
	s.nextRow = nil
	for ; ok && bytes.HasPrefix(m.rows.Key(), s.prefix); ok = m.rows.Next() {
		if len(s.buffered) == n {
			s.nextRow = m.keys.clone(m.rows.Key())
			return
		}
		rest := m.rows.Key()[len(s.prefix):]
		if len(rest) < 8 {
			m.err = errRow("outbox key", rest)
			return
		}

		// Insert the owner behind the 8 bytes of the time.
		sortKey := append(m.keys.alloc(len(rest)+len(s.owner)), rest[:8]...)
		sortKey = append(append(sortKey, s.owner...), rest[8:]...)
		s.buffered = append(s.buffered, sortKey)
	}
	// Without this check an outbox that cannot be read would look as if it ended here, and the
	// others would be merged without it.
	m.err = m.rows.Error()
}

// fillFromInbox reads up to n sort keys of an inbox.
func (m *streamMerger) fillFromInbox(s *stream, n int) {
	s.buffered = make([][]byte, 0, n)
	for len(s.buffered) < n {
		sortKey, ok := s.inboxKeys.Next()
		if !ok {
			return
		}
		s.buffered = append(s.buffered, append(m.keys.alloc(len(sortKey)), sortKey...))
	}
}

// fillRemote reads up to n pins of an outbox whose rows another node has.
func (m *streamMerger) fillRemote(s *stream, n int) {
	from, isInOutbox := bytes.CutPrefix(s.nextRow, s.prefix)
	s.nextRow = nil
	if !isInOutbox {
		return // firstRowKey returned the key behind all rows of the outbox
	}
	pins, next := s.readRemote(from, n)
	for i := range pins {
		const idOverhead = 2 // a tag and a terminator; append grows the key for the few ids that take more
		sortKey := m.keys.alloc(8 + len(s.owner) + len(pins[i].ID) + idOverhead)
		sortKey = append(appendNewestFirst(sortKey, pins[i].Created), s.owner...)
		s.buffered = append(s.buffered, events.AppendID(sortKey, pins[i].ID))
	}
	if next != nil {
		s.nextRow = append(m.keys.clone(s.prefix), next...)
	}
}

// next returns the next sort key. It returns nil at the end and after an error, which m.err holds.
func (m *streamMerger) next() []byte {
	for len(m.streams) > 0 && m.err == nil {
		sortKey := m.streams[0].buffered[0]
		m.advance()
		// A pin that was pushed to the inbox may also be in an outbox that is pulled. Equal sort
		// keys come one after the other.
		if !bytes.Equal(sortKey, m.lastReturned) {
			m.lastReturned = sortKey
			return sortKey
		}
	}
	return nil
}

// advance removes the smallest sort key of all streams and restores the heap.
func (m *streamMerger) advance() {
	s := m.streams[0]
	s.buffered = s.buffered[1:]
	if len(s.buffered) == 0 {
		s.buffered = nil
		m.fill(s, readAhead)
	}
	if len(s.buffered) == 0 {
		heap.Pop(m)
	} else {
		heap.Fix(m, 0)
	}
}

// close ends the merge and returns its first error. If there was none, the cache learns the
// outboxes that were read for it.
func (m *streamMerger) close() error {
	if err := m.rows.Close(); m.err == nil {
		m.err = err
	}
	if m.err == nil {
		for _, read := range m.outboxesToLearn {
			m.cache.LearnOutbox(read.owner, read.keys, m.version)
		}
	}
	return m.err
}

// Len is part of heap.Interface.
func (m *streamMerger) Len() int { return len(m.streams) }

// Less is part of heap.Interface.
func (m *streamMerger) Less(i, j int) bool {
	return bytes.Compare(m.streams[i].buffered[0], m.streams[j].buffered[0]) < 0
}

// Swap is part of heap.Interface.
func (m *streamMerger) Swap(i, j int) { m.streams[i], m.streams[j] = m.streams[j], m.streams[i] }

// Push is part of heap.Interface.
func (m *streamMerger) Push(s any) {
	m.streams = append(m.streams, s.(*stream)) //nolint:forcetypeassert // the heap holds nothing else
}

// Pop is part of heap.Interface. It removes the last stream of the slice.
func (m *streamMerger) Pop() any {
	last := m.streams[len(m.streams)-1]
	m.streams = m.streams[:len(m.streams)-1]
	return last
}

// outboxStream returns the outbox of an owner or, if board is not nil, the outbox of one of the
// owner's boards.
func (q *Queries) outboxStream(keys *arena, owner string, board *string) *stream {
	s := &stream{}
	q.scratch = events.AppendID(q.scratch[:0], owner)
	s.owner = keys.clone(q.scratch)

	if board == nil {
		q.scratch = projections.AppendKey(q.scratch[:0], tagOutbox, owner)
	} else {
		q.scratch = projections.AppendKey(q.scratch[:0], tagBoardOutbox, owner, *board)
	}
	s.prefix = keys.clone(q.scratch)

	if q.isRemote(owner) {
		s.readRemote = func(from []byte, n int) (pins []Pin, next []byte) {
			// An answer that is not known yet is taken as empty: the query will run again with more
			// known.
			pins, next, _ = q.remoteLookup.Outbox(owner, board, from, n)
			return pins, next
		}
	}
	return s
}
