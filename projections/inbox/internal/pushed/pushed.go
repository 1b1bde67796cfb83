package pushed

import (
	"slices"
	"strings"
	"sync"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
)

// Inboxes are those of one open store. They are safe for concurrent use. Readers are given by the key encoding of their ids.
type Inboxes struct {
	// Most is how many entries an inbox may have; with more it is trimmed to keep.
	Most int

	keep  int
	cache *querycache.Cache

	mu         sync.Mutex
	young, old *generation
	// shown is the version of the first views that show all that was delivered so far.
	shown  uint64
	closed bool
}

// End is a floor below every sort key: an inbox that reaches down to it has all.
const End = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// generation has some inboxes, and each sort key in them once.
type generation struct {
	inboxes map[string]*inbox
	numbers map[string]uint32
	// keys are sort keys by their number. They never change, so a list may go on reading them.
	keys  []string
	bytes int64
}

// inbox is that of a reader. The package doc has the invariant.
type inbox struct {
	// entries are the numbers of sort keys, the oldest first.
	entries []uint32
	// floor is where the inbox ends; an empty one means that nothing is learned.
	floor string
	// learned is the version of the first views that it answers, missed that of the first views that may teach it.
	learned, missed uint64
}

const (
	// inboxBytes and keyBytes are what an inbox and a sort key take beside the bytes of their ids, those of the maps included.
	inboxBytes, keyBytes = 160, 64
	entryBytes           = 4
)

// New returns no inboxes, for a store that has just been opened. They take half of the bound of a cache at most, and count against it.
func New(cache *querycache.Cache, keep int) *Inboxes {
	return &Inboxes{Most: keep + max(1, keep/4), keep: keep, cache: cache, young: newGeneration(), old: newGeneration()}
}

func newGeneration() *generation {
	return &generation{inboxes: map[string]*inbox{}, numbers: map[string]uint32{}}
}

var _ projections.QueryCache = (*Inboxes)(nil)

// List has the sort keys of an inbox as they were when it was read.
type List struct {
	// numbers are those that are left, the newest last.
	numbers []uint32
	keys    []string
}

// Next takes the newest sort key.
func (l *List) Next() (sortKey string, ok bool) {
	last := len(l.numbers) - 1
	if last < 0 {
		return "", false
	}
	sortKey, l.numbers = l.keys[l.numbers[last]], l.numbers[:last]
	return sortKey, true
}

// Skip drops what is newer than a sort key.
func (l *List) Skip(from []byte) {
	for last := len(l.numbers) - 1; last >= 0 && l.keys[l.numbers[last]] < string(from); last-- {
		l.numbers = l.numbers[:last]
	}
}

// Candidate is a sort key on its way into inboxes.
type Candidate struct {
	key     string
	version uint64
	// in has its number in the generation of.
	of *generation
	in uint32
}

// NewCandidate returns the sort key of a pin that views show from a version on.
func NewCandidate(sortKey []byte, version uint64) Candidate {
	return Candidate{key: string(sortKey), version: version}
}

// None reports whether there are no inboxes, so that what views show from a version on needs no delivery. Only these views may begin one.
func (s *Inboxes) None(version uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.young.inboxes)+len(s.old.inboxes) > 0 {
		return false
	}
	s.shown = max(s.shown, version)
	return true
}

// Deliver brings a candidate into the inbox of a reader, if there is one.
func (s *Inboxes) Deliver(c *Candidate, reader []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = max(s.shown, c.version)
	g := s.young
	box := g.inboxes[string(reader)]
	if box == nil {
		g = s.old
		if box = g.inboxes[string(reader)]; box == nil {
			return
		}
	}
	if box.floor != "" && c.key >= box.floor {
		box.missed = c.version
		return
	}
	if c.of != g {
		c.of, c.in = g, s.number(g, c.key)
	}
	s.insert(g, box, c.in)
	s.trim(g, box)
	s.turn()
}

// insert adds an entry where it belongs.
func (s *Inboxes) insert(g *generation, box *inbox, number uint32) {
	key, n := g.keys[number], len(box.entries)
	at := n
	if n > 0 && g.keys[box.entries[n-1]] <= key {
		var has bool
		if at, has = slices.BinarySearchFunc(box.entries, key, g.olderFirst); has {
			return
		}
	}
	before := cap(box.entries)
	box.entries = slices.Insert(box.entries, at, number)
	s.charge(g, entryBytes*int64(cap(box.entries)-before))
}

// olderFirst compares an entry with a sort key.
func (g *generation) olderFirst(number uint32, key string) int {
	return strings.Compare(key, g.keys[number])
}

// trim drops the oldest entries of an inbox that has too many: several at a time, because that copies what is kept.
func (s *Inboxes) trim(g *generation, box *inbox) {
	if len(box.entries) <= s.Most {
		return
	}
	drop := len(box.entries) - s.keep
	box.floor = min(box.floor, g.keys[box.entries[drop-1]])
	box.missed = s.shown
	box.entries = slices.Delete(box.entries, 0, drop)
}

// Read returns what a reader's inbox has for a view of a version, and its floor; an empty floor means that it has nothing for the view.
func (s *Inboxes) Read(reader []byte, version uint64) (list List, floor string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.turn()
	g, box := s.find(reader)
	if box == nil || box.floor == "" || version < box.learned {
		return List{}, ""
	}
	return List{slices.Clone(box.entries), g.keys}, box.floor
}

// find returns the inbox of a reader from the young generation, into which it is moved.
func (s *Inboxes) find(reader []byte) (*generation, *inbox) {
	if box := s.young.inboxes[string(reader)]; box != nil {
		return s.young, box
	}
	box := s.old.inboxes[string(reader)]
	if box == nil {
		return s.young, nil
	}
	old := s.old
	s.remove(old, reader)
	entries := make([]uint32, 0, len(box.entries))
	for _, number := range box.entries {
		entries = append(entries, s.number(s.young, old.keys[number]))
	}
	box.entries = entries
	s.add(reader, box)
	return s.young, box
}

// Learn tells the inbox of a reader what outboxes have at a view of a version, from one sort key up to, not including, another.
func (s *Inboxes) Learn(reader []byte, version uint64, from []byte, sortKeys [][]byte, to []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	defer s.turn()
	g, box := s.find(reader)
	if box == nil {
		box = &inbox{missed: s.shown}
		s.add(reader, box)
	}
	if version < box.missed || string(from) > box.floor || string(to) <= box.floor {
		return
	}
	for _, key := range slices.Backward(sortKeys) {
		s.insert(g, box, s.number(g, string(key)))
	}
	box.floor, box.learned = string(to), max(box.learned, version)
	s.trim(g, box)
}

// Drop removes the inbox of a reader. Only views from a version on may begin another.
func (s *Inboxes) Drop(reader []byte, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = max(s.shown, version)
	s.remove(s.young, reader)
	s.remove(s.old, reader)
}

// Repaired is part of [projections.QueryCache].
func (s *Inboxes) Repaired(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = max(s.shown, version)
	s.clear()
}

// Close is part of [projections.QueryCache].
func (s *Inboxes) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.clear()
}

func (s *Inboxes) clear() {
	s.charge(s.young, -s.young.bytes)
	s.charge(s.old, -s.old.bytes)
	s.young, s.old = newGeneration(), newGeneration()
}

// turn makes the young generation the old one once both take their part of the bound.
func (s *Inboxes) turn() {
	if s.young.bytes+s.old.bytes <= s.cache.Bound()/2 {
		return
	}
	s.charge(s.old, -s.old.bytes)
	s.young, s.old = newGeneration(), s.young
}

func (s *Inboxes) charge(g *generation, bytes int64) {
	g.bytes += bytes
	s.cache.Charge(bytes)
}

func (s *Inboxes) add(reader []byte, box *inbox) {
	s.young.inboxes[string(reader)] = box
	s.charge(s.young, inboxBytes+int64(len(reader))+entryBytes*int64(cap(box.entries)))
}

func (s *Inboxes) remove(g *generation, reader []byte) {
	if box := g.inboxes[string(reader)]; box != nil {
		s.charge(g, -(inboxBytes + int64(len(reader)) + entryBytes*int64(cap(box.entries))))
		delete(g.inboxes, string(reader))
	}
}

// number returns that of a sort key.
func (s *Inboxes) number(g *generation, key string) uint32 {
	n, known := g.numbers[key]
	if !known {
		n = uint32(len(g.keys))
		g.keys, g.numbers[key] = append(g.keys, key), n
		s.charge(g, keyBytes+int64(len(key)))
	}
	return n
}
