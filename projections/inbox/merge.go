package inbox

import (
	"bytes"
	"container/heap"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// stream is a list in the order of sort keys: an inbox, whose entries are sort keys, or an outbox, whose rows become sort keys when the
// owner is put in.
type stream struct {
	// entries are those of an inbox.
	entries inboxcache.List
	prefix  []byte
	// owner is the owner of an outbox, in the encoding of keys; nil means that the stream is an inbox.
	owner []byte
	// ahead are the next sort keys, already read. from is the key of the row behind them; nil means that there is none.
	buffered [][]byte
	nextRow  []byte
	// one is the room of ahead while it has a single key, as for most outboxes, so that it needs no allocation.
	singleKey [1][]byte
	// elsewhere reads on an outbox whose rows are not in the state; nil means that they are.
	readRemote func(from []byte, n int) (pins []Pin, next []byte)
}

// arena allocates keys in blocks. They live until the page is read.
type arena struct{ block []byte }

const arenaBlock = 4 << 10

// room returns an empty slice with a capacity of n bytes.
func (a *arena) alloc(n int) []byte {
	if len(a.block)+n > cap(a.block) {
		a.block = make([]byte, 0, max(n, arenaBlock))
	}
	at := len(a.block)
	a.block = a.block[:at+n]
	return a.block[at:at:len(a.block)]
}

func (a *arena) clone(b []byte) []byte { return append(a.alloc(len(b)), b...) }

// merge returns the sort keys of all its streams in order, each once even if several streams have it: a heap of streams, by their next
// sort key. All streams share one iterator, which is moved between them, because a page may merge thousands of outboxes, and an
// iterator for each would take too much memory.
type streamMerger struct {
	rows projections.Iterator
	keys *arena
	// cache knows the newest sort keys of outboxes; nil means that there is none. version is that of the view.
	cache   *inboxcache.Cache
	version uint64
	// outboxesRead are what this merge has read from rows for the cache. The cache learns them only if the walk ends without an error: an
	// outbox whose reading has failed looks as if it had no more rows.
	outboxesToLearn []outboxToLearn
	streams         []*stream
	lastReturned    []byte
	err             error
}

type outboxToLearn struct {
	owner []byte
	keys  inboxcache.NewestKeys
}

// aheadMost is the number of rows that are read at once from an inbox. From an outbox a single row is read first, because most outboxes
// have one sort key in a page, or none; only an outbox that has more is read in such steps.
const readAhead = 16

func newStreamMerger(q *Queries, keys *arena) *streamMerger {
	return &streamMerger{rows: q.state.Iter(nil, nil), keys: keys, cache: q.cache, version: q.version}
}

// restart merges some streams from their first sort key that is not before from. from need not exist; nil means from the top.
func (m *streamMerger) reset(streams []*stream, from []byte) {
	m.streams, m.lastReturned = m.streams[:0], nil
	for _, s := range streams {
		if m.openStream(s, from); len(s.buffered) > 0 {
			m.streams = append(m.streams, s)
		}
	}
	heap.Init(m)
}

// begin reads the first sort keys of a stream that are not before from (nil: all), those of an outbox from the cache where it has them.
func (m *streamMerger) openStream(s *stream, from []byte) {
	if s.owner == nil {
		s.entries.Skip(from)
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

	// Only a page from the top reads what the cache wants. An outbox that one page has asked for is not worth it.
	if len(from) == 0 && (outdated || m.cache.CountOutboxMiss(s.owner)) {
		m.fill(s, inboxcache.MaxNewestKeys)
		m.outboxesToLearn = append(m.outboxesToLearn, outboxToLearn{s.owner, inboxcache.CopyNewestKeys(s.prefix, s.buffered, s.nextRow)})
		return
	}
	m.fill(s, 1)
}

// beginCached begins an outbox with the newest sort keys, of which those before from are skipped.
func (m *streamMerger) openCachedOutbox(s *stream, from []byte, cached *inboxcache.NewestKeys) {
	s.buffered = cached.SortKeys
	for len(s.buffered) > 0 && bytes.Compare(s.buffered[0], from) < 0 {
		s.buffered = s.buffered[1:]
	}
	if len(s.buffered) == 0 && cached.Rest != nil {
		m.fill(s, 1) // all of them are before from
		return
	}
	s.nextRow = cached.Rest
}

// startOf returns the first key of a stream whose sort key is not before from.
func firstRowKey(s *stream, from []byte) []byte {
	if len(from) == 0 {
		return s.prefix
	}
	key := append([]byte(nil), s.prefix...)
	if len(from) <= 8 {
		return append(key, from...)
	}
	// The rows of an outbox lack the owner: of equal times all come if the owner sorts after that of the sort key, none if
	// before, those of later pins if it is the same.
	key = append(key, from[:8]...)
	rest := from[8:]
	n := min(len(s.owner), len(rest))
	switch order := bytes.Compare(s.owner, rest[:n]); {
	case order > 0:
		return key
	case order < 0:
		return projections.PrefixEnd(key)
	}
	return append(key, rest[n:]...)
}

// fill reads up to n sort keys of a stream.
func (m *streamMerger) fill(s *stream, n int) {
	if s.owner == nil {
		m.fillEntries(s, n)
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
		sortKey := m.keys.alloc(len(rest) + len(s.owner))
		s.buffered = append(s.buffered, append(append(append(sortKey, rest[:8]...), s.owner...), rest[8:]...))
	}
	// Without this an outbox that cannot be read would look as if it ended here, and others would be merged without it.
	m.err = m.rows.Error()
}

// fillEntries takes up to n entries of an inbox.
func (m *streamMerger) fillEntries(s *stream, n int) {
	s.buffered = make([][]byte, 0, n)
	for len(s.buffered) < n {
		sortKey, ok := s.entries.Next()
		if !ok {
			return
		}
		s.buffered = append(s.buffered, append(m.keys.alloc(len(sortKey)), sortKey...))
	}
}

// fillElsewhere reads up to n pins of an outbox whose rows are not in the state.
func (m *streamMerger) fillRemote(s *stream, n int) {
	from, here := bytes.CutPrefix(s.nextRow, s.prefix)
	s.nextRow = nil
	if !here {
		return // the end of its prefix
	}
	pins, next := s.readRemote(from, n)
	for i := range pins {
		sortKey := append(appendNewestFirst(m.keys.alloc(8+len(s.owner)+len(pins[i].ID)+2), pins[i].Created), s.owner...)
		s.buffered = append(s.buffered, events.AppendID(sortKey, pins[i].ID))
	}
	if next != nil {
		s.nextRow = append(m.keys.clone(s.prefix), next...)
	}
}

// next returns the next sort key. nil means that there is none, or that there was an error, which err holds.
func (m *streamMerger) next() []byte {
	for len(m.streams) > 0 && m.err == nil {
		sortKey := m.streams[0].buffered[0]
		m.advance()
		if !bytes.Equal(sortKey, m.lastReturned) {
			m.lastReturned = sortKey
			return sortKey
		}
	}
	return nil
}

// drop passes over the first sort key and reads more of its stream.
func (m *streamMerger) advance() {
	s := m.streams[0]
	if s.buffered = s.buffered[1:]; len(s.buffered) == 0 {
		s.buffered = nil
		m.fill(s, readAhead)
	}
	if len(s.buffered) == 0 {
		heap.Pop(m)
	} else {
		heap.Fix(m, 0)
	}
}

// close ends the walk and returns its first error.
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

// Len is part of heap.Interface, as are the next four.
func (m *streamMerger) Len() int { return len(m.streams) }

func (m *streamMerger) Less(i, j int) bool {
	return bytes.Compare(m.streams[i].buffered[0], m.streams[j].buffered[0]) < 0
}
func (m *streamMerger) Swap(i, j int) { m.streams[i], m.streams[j] = m.streams[j], m.streams[i] }

// Push adds a stream.
func (m *streamMerger) Push(s any) { m.streams = append(m.streams, s.(*stream)) } //nolint:forcetypeassert // it holds nothing else

// Pop removes the last stream.
func (m *streamMerger) Pop() any {
	last := m.streams[len(m.streams)-1]
	m.streams = m.streams[:len(m.streams)-1]
	return last
}

// outboxStream is the outbox of an owner, or (board not nil) that of one of the owner's boards.
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
			pins, next, _ = q.remoteLookup.Outbox(owner, board, from, n)
			return pins, next
		}
	}
	return s
}
