package inbox

import (
	"bytes"
	"container/heap"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// stream is a sorted list of sort keys that a streamMerger reads: those of an inbox, or those of
// the pins of an outbox. The key of an outbox row consists of the prefix of the outbox, the time of
// a pin and the id of the pin. The sort key of the pin consists of the time, the owner and the id.
type stream struct {
	// inboxKeys are the sort keys of an inbox that were not read yet. An outbox has none.
	inboxKeys inboxcache.Iterator
	// prefix is the prefix of the keys of an outbox's rows.
	prefix []byte
	// owner is the owner of an outbox, in the encoding of keys. It is nil if the stream is an
	// inbox.
	owner []byte
	// buffered are sort keys that were read but not merged yet. Its memory may belong to the cache,
	// so buffered may be resliced or replaced, but neither its elements nor their bytes may be
	// written.
	buffered [][]byte
	// nextRow is the key at which fill continues to read an outbox after the buffered sort keys.
	// There need not be a row with this key. nextRow is nil if there are no more rows.
	nextRow []byte
	// singleKey is the memory of buffered if fill reads a single sort key, as for most outboxes.
	// This saves an allocation for each of thousands of outboxes.
	singleKey [1][]byte
	// readRemote reads up to n further pins of an outbox whose rows are on another node. It is nil
	// if the rows are in the state. from and next are keys of rows without the prefix of the
	// outbox. next is nil if there are no more pins.
	readRemote func(from []byte, n int) (pins []Pin, next []byte)
}

// arena allocates memory for keys in blocks, because a page needs thousands of short keys, and one
// allocation for each would cost more. The arena never reuses memory, so the keys stay valid.
type arena struct{ block []byte }

// arenaBlock is the size of a block in bytes.
const arenaBlock = 4 << 10

// alloc returns an empty slice with a capacity of n bytes.
func (a *arena) alloc(n int) []byte {
	if len(a.block)+n > cap(a.block) {
		a.block = make([]byte, 0, max(n, arenaBlock))
	}

	// Limit the capacity to n bytes. If a caller appends more, append then copies the key and does
	// not overwrite the next one.
	start := len(a.block)
	a.block = a.block[:start+n]
	return a.block[start:start:len(a.block)]
}

// clone returns a copy of b.
func (a *arena) clone(b []byte) []byte { return append(a.alloc(len(b)), b...) }

// streamMerger returns the sort keys of several streams in ascending order. If several streams have
// the same sort key, it returns this sort key once. It keeps the streams in a heap, ordered by
// their next sort keys.
type streamMerger struct {
	// rows reads all outboxes: fill moves it to the outbox that it reads. A page may merge
	// thousands of outboxes, and an iterator for each would take too much memory.
	rows projections.Iterator
	// keys allocates the sort keys that the merger reads.
	keys *arena
	// cache has the newest sort keys of outboxes. It is nil if there is no cache.
	cache *inboxcache.Cache
	// version is the version of the view ([projections.View.Version]). It tells the cache which
	// changes of outboxes the view shows.
	version uint64
	// top is the sort key of the log time of the view. No outbox in the view has a sort key before
	// top, so a merge from top or above begins with the newest pins.
	top []byte
	// outboxesToLearn are outboxes that were read from rows to be cached. close caches them only if
	// the merge had no error, because after a failed read an outbox looks as if it had no more
	// rows.
	outboxesToLearn []outboxToLearn
	// streams is the heap. Every stream in it has a buffered sort key.
	streams []*stream
	// lastReturned is the sort key that next has returned last, or nil if next has returned none
	// since reset.
	lastReturned []byte
	// err is the first error. The caller must check it after each call of next.
	err error
}

// outboxToLearn has the newest sort keys of an outbox, for the cache.
type outboxToLearn struct {
	owner []byte
	keys  inboxcache.NewestKeys
}

// readAhead is the number of sort keys that are read at once from a stream. The first read of an
// outbox reads only one, because most outboxes have at most one sort key in a page. It reads
// [inboxcache.MaxNewestKeys] if the outbox is to be cached or is on another node. Once all buffered
// sort keys of an outbox are merged, the following reads use readAhead.
const readAhead = 16

// newStreamMerger returns a merger without streams. It must be closed.
func newStreamMerger(q *Queries, keys *arena) *streamMerger {
	return &streamMerger{
		rows:    q.state.Iter(nil, nil), // without bounds, because it reads many outboxes
		keys:    keys,
		cache:   q.cache,
		version: q.version,
		top:     appendNewestFirst(nil, q.state.Cursor().LastTime),
	}
}

// reset discards the current streams and merges the given ones, beginning with the first sort key
// that is not before from. No stream need have the sort key from. A nil from means the top.
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

// openStream buffers one or more sort keys of a stream: the first ones that are not before from. It
// takes those of an outbox from the cache if possible. It buffers none if the stream has no more.
func (m *streamMerger) openStream(s *stream, from []byte) {
	if s.owner == nil {
		s.inboxKeys.SkipTo(from)
		m.fill(s, readAhead)
		return
	}

	s.nextRow = firstRowKey(s, from)
	if s.readRemote != nil {
		// Read several pins at once, because each further read may cost a round trip.
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

	// Cache the outbox if two conditions hold. First, the merge begins at the top, because the
	// cache has the newest sort keys of an outbox. Second, another page has needed the outbox
	// recently, because an outbox that a single page needs is not worth the memory. An outdated
	// entry in the cache proves the second condition, too.
	isFromTop := bytes.Compare(from, m.top) <= 0
	if isFromTop && (outdated || m.cache.CountOutboxMiss(s.owner)) {
		m.fill(s, inboxcache.MaxNewestKeys)

		// Copy the keys. A cached key in the arena would keep its whole block in memory.
		keys := inboxcache.CopyNewestKeys(s.prefix, s.buffered, s.nextRow)
		m.outboxesToLearn = append(m.outboxesToLearn, outboxToLearn{s.owner, keys})
		return
	}
	m.fill(s, 1)
}

// openCachedOutbox opens an outbox whose newest sort keys are cached. It skips sort keys before
// from. The caller must have set s.nextRow to the first key that a row may have from there on.
func (m *streamMerger) openCachedOutbox(s *stream, from []byte, cached *inboxcache.NewestKeys) {
	s.buffered = cached.SortKeys
	for len(s.buffered) > 0 && bytes.Compare(s.buffered[0], from) < 0 {
		s.buffered = s.buffered[1:]
	}

	// If all cached sort keys are before from, the merge begins with a row behind them. Read it at
	// nextRow. A nil Rest means that the outbox has no rows behind the cached sort keys.
	if len(s.buffered) == 0 && cached.Rest != nil {
		m.fill(s, 1)
		return
	}

	s.nextRow = cached.Rest
}

// firstRowKey returns the key at which to begin reading an outbox: the smallest that a row can have
// if the sort key of its pin is not before from.
func firstRowKey(s *stream, from []byte) []byte {
	if len(from) == 0 {
		return s.prefix
	}
	key := append([]byte(nil), s.prefix...)
	if len(from) <= 8 {
		return append(key, from...) // from is a time, without owner and pin
	}

	// A sort key has the owner between the time and the pin, and the key of an outbox row does not.
	// So for the rows with exactly the time of from, the owners decide. If the owner of the outbox
	// sorts after the owner in from, none of these rows is before from. If the owner of the outbox
	// sorts before the owner in from, all of these rows are before from. If the owners are the
	// same, the pins decide.
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

// fill buffers up to n further sort keys of a stream that has none buffered. It buffers none if the
// stream has no more or m.err is set. If reading fails, it sets m.err.
func (m *streamMerger) fill(s *stream, n int) {
	if s.owner == nil {
		m.fillFromInbox(s, n)
		return
	}
	if s.nextRow == nil || m.err != nil {
		return
	}

	// Use the memory in the stream if it suffices.
	s.buffered = s.singleKey[:0]
	if n > len(s.singleKey) {
		s.buffered = make([][]byte, 0, n)
	}
	if s.readRemote != nil {
		m.fillRemote(s, n)
		return
	}

	ok := m.rows.SeekGE(s.nextRow)
	s.nextRow = nil // the end of the outbox, unless there is another row
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

	// Without this check, an outbox that cannot be read would look as if it ended here, and the
	// page would lack its pins.
	m.err = m.rows.Error()
}

// fillFromInbox buffers up to n further sort keys of an inbox.
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

// fillRemote buffers up to n further sort keys of an outbox whose rows are on another node.
func (m *streamMerger) fillRemote(s *stream, n int) {
	from, isInOutbox := bytes.CutPrefix(s.nextRow, s.prefix)
	s.nextRow = nil
	if !isInOutbox {
		return // firstRowKey has returned a key behind all rows of the outbox
	}

	pins, next := s.readRemote(from, n)
	for i := range pins {
		// The encoding of most ids adds a tag and a terminator. If an id takes more, as a short
		// number does, append allocates other memory for the sort key.
		const idOverhead = 2
		sortKey := m.keys.alloc(8 + len(s.owner) + len(pins[i].ID) + idOverhead)
		sortKey = append(appendNewestFirst(sortKey, pins[i].Created), s.owner...)
		s.buffered = append(s.buffered, events.AppendID(sortKey, pins[i].ID))
	}
	if next != nil {
		s.nextRow = append(m.keys.clone(s.prefix), next...)
	}
}

// next returns the next sort key, or nil at the end. The caller must check m.err before it uses the
// result: the call that sets m.err may return a sort key, and all later calls return nil.
func (m *streamMerger) next() []byte {
	for len(m.streams) > 0 && m.err == nil {
		sortKey := m.streams[0].buffered[0]
		m.advance()

		// A pin that was pushed to the inbox may also be in an outbox that is pulled. The merge is
		// sorted, so equal sort keys follow one another.
		if !bytes.Equal(sortKey, m.lastReturned) {
			m.lastReturned = sortKey
			return sortKey
		}
	}
	return nil
}

// advance removes the smallest sort key of all streams, which is the first of the stream on top,
// and restores the order of the heap.
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

// close ends the merge and returns its first error. If there was none, close caches the outboxes in
// m.outboxesToLearn.
func (m *streamMerger) close() error {
	err := m.rows.Close()
	if m.err == nil {
		m.err = err
	}
	if m.err != nil {
		return m.err
	}

	for _, outbox := range m.outboxesToLearn {
		m.cache.LearnOutbox(outbox.owner, outbox.keys, m.version)
	}
	return nil
}

// Len is part of heap.Interface.
func (m *streamMerger) Len() int { return len(m.streams) }

// Less is part of heap.Interface. It orders streams by their next sort keys.
func (m *streamMerger) Less(i, j int) bool {
	return bytes.Compare(m.streams[i].buffered[0], m.streams[j].buffered[0]) < 0
}

// Swap is part of heap.Interface.
func (m *streamMerger) Swap(i, j int) { m.streams[i], m.streams[j] = m.streams[j], m.streams[i] }

// Push is part of heap.Interface.
func (m *streamMerger) Push(s any) {
	m.streams = append(m.streams, s.(*stream)) //nolint:forcetypeassert // the heap holds nothing else
}

// Pop is part of heap.Interface. It removes the last stream of the slice, to which package heap has
// moved the stream on top.
func (m *streamMerger) Pop() any {
	last := m.streams[len(m.streams)-1]
	m.streams = m.streams[:len(m.streams)-1]
	return last
}

// outboxStream returns a stream for the outbox of an owner or, if board is not nil, for the outbox
// of one of the owner's boards. It reads no rows. The prefix and the owner are allocated in keys.
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
			// If the answer is not known yet, treat the outbox as empty. The result of the query
			// is then discarded, and the caller runs the query again with the answer.
			pins, next, _ = q.remoteLookup.Outbox(owner, board, from, n)
			return pins, next
		}
	}
	return s
}
