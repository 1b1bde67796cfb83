package inbox

import (
	"bytes"
	"math/rand/v2" //nolint:depguard // it decides what is kept in memory, and no row
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// kept is what an open store keeps in memory: whom readers follow, and the tops of outboxes.
type kept struct {
	// Hot is the relations, as the graph that the inbox embeds keeps them.
	projections.Hot
	tops *tops
}

var _ graph.Keeper = (*kept)(nil)

// Relations is part of [graph.Keeper].
func (k *kept) Relations() projections.Hot { return k.Hot }

// Mended is part of [projections.Hot].
func (k *kept) Mended(version uint64) {
	k.Hot.Mended(version)
	for i := range k.tops.changed {
		raise(&k.tops.changed[i], version)
	}
}

// tops are the newest places of outboxes that feeds are merged of: those that many readers pull are in nearly all pages.
//
// An entry was made from a view of a version, and answers at a view of another if nothing of its owner changed between the two:
// changed ≤ min of both. Why whoever asks finds all changes in changed is told in the cache of relations (hotSet in
// package graph), whose rule this is. The fold says in writeOutboxes what it changes, before any view shows it.
type tops struct {
	seed uint64
	// changed has, for the owners of a hash, the version of the last views that may have other outboxes of them than the views
	// before. The fold alone writes it.
	changed [1 << topOwnerBits]atomic.Uint64
	buckets [1 << topBucketBits]topBucket
}

type topBucket [topWays]atomic.Pointer[top]

const (
	// In each of the buckets topWays outboxes are kept at most, each of topBytes at most: 6 MB, of which most take a third.
	topBucketBits = 11
	topWays       = 4
	topBytes      = 768
	// topOwnerBits: who pins makes forgotten what is kept of few others.
	topOwnerBits = 14
	// topPlaces is how many places of an outbox are kept: most outboxes give a page fewer.
	topPlaces = 8
)

// top is the beginning of an outbox. It does not change.
type top struct {
	version uint64
	prefix  []byte
	places  [][]byte
	// from is where the rows behind them begin; nil: there are none.
	from []byte
	// used is set by who finds it, and taken back by who looks for room.
	used atomic.Bool
}

func newTops() *tops { return &tops{seed: rand.Uint64()} }

// of returns what tells that an owner, in the encoding of keys, changed, and the bucket of the owner's outboxes.
func (t *tops) of(owner []byte) (*atomic.Uint64, *topBucket) {
	hash := xxh3.HashSeed(owner, t.seed)
	return &t.changed[hash>>(64-topOwnerBits)], &t.buckets[hash%(1<<topBucketBits)]
}

func raise(changed *atomic.Uint64, version uint64) {
	if changed.Load() < version {
		changed.Store(version)
	}
}

// find returns the top of an outbox, if there is one that answers at views of the version.
func (b *topBucket) find(prefix []byte, changed *atomic.Uint64, version uint64) *top {
	for i := range b {
		e := b[i].Load()
		// In this order: the entry was loaded before.
		if e != nil && bytes.Equal(e.prefix, prefix) && changed.Load() <= min(e.version, version) {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e
		}
	}
	return nil
}

// room returns where the top of an outbox may be kept: in the place of its last one, or of one that nobody has used since room
// was last looked for; nil: nowhere.
func (b *topBucket) room(prefix []byte) *atomic.Pointer[top] {
	var free *atomic.Pointer[top]
	for i := range b {
		e := b[i].Load()
		switch {
		case e != nil && bytes.Equal(e.prefix, prefix):
			return &b[i]
		case e == nil:
			free = &b[i]
		case free == nil && !e.used.Load():
			free = &b[i]
		}
	}
	if free == nil {
		for i := range b {
			if e := b[i].Load(); e != nil {
				e.used.Store(false)
			}
		}
	}
	return free
}

// madeTop is a top that is kept if the walk that has read it ends well: only then is it known that no row was missing.
type madeTop struct {
	at *atomic.Pointer[top]
	e  *top
}

// topOf returns the top of an outbox that was read from its beginning on; nil: it is too large.
func topOf(s *stream, version uint64) *top {
	size := len(s.prefix) + len(s.from)
	for _, place := range s.ahead {
		size += len(place)
	}
	if size > topBytes {
		return nil
	}
	block := make([]byte, 0, size)
	own := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(block)
		block = append(block, b...)
		return block[from:len(block):len(block)]
	}
	e := &top{version: version, prefix: own(s.prefix), places: make([][]byte, len(s.ahead)), from: own(s.from)}
	for i, place := range s.ahead {
		e.places[i] = own(place)
	}
	return e
}

// outboxChanged says that the views which show what is written now may have other outboxes of an owner.
func (f *Inbox) outboxChanged(owner string) {
	if k, ok := f.b.Hot().(*kept); ok {
		f.key = events.AppendID(f.key[:0], owner)
		changed, _ := k.tops.of(f.key)
		raise(changed, f.b.Version())
	}
}

// begin reads the first places of a stream that are not before from (nil: all). Of an outbox that feeds were merged of lately, it
// has them in memory.
func (m *merge) begin(s *stream, from []byte) {
	s.from = startOf(s, from)
	if m.tops == nil || s.owner == nil {
		m.fill(s, 1)
		return
	}
	changed, b := m.tops.of(s.owner)
	if e := b.find(s.prefix, changed, m.version); e != nil {
		s.ahead = e.places
		for len(s.ahead) > 0 && bytes.Compare(s.ahead[0], from) < 0 {
			s.ahead = s.ahead[1:]
		}
		switch {
		case len(s.ahead) > 0 || e.from == nil:
			s.from = e.from
		default:
			m.fill(s, 1)
		}
		return
	}
	var at *atomic.Pointer[top]
	if len(from) == 0 {
		at = b.room(s.prefix)
	}
	if at == nil {
		m.fill(s, 1)
		return
	}
	m.fill(s, topPlaces)
	if e := topOf(s, m.version); e != nil {
		m.made = append(m.made, madeTop{at, e})
	}
}
