package projections

import (
	"bytes"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
)

// Prefetcher is implemented by a projection that can tell beforehand which rows the fold of an event will ask for. Where there
// are more of them than memory holds, a build looks up those of many events at once ([Bounds.PrefetchEvents]).
type Prefetcher interface {
	// Prefetch calls add with keys of rows for which Apply will ask [Batch.Get]. They need not be all, nor right: what is
	// looked up in vain costs time and changes nothing. Keys are copied. It reads ev and nothing else.
	Prefetch(ev *events.Event, add func(key []byte))
}

// prefetcher looks up the rows of events that are to be folded, in the order of their keys. The fold asks for one row after
// the other all over the store: where that is larger than memory, each look-up reads a block, or several, and unpacks it. In
// the order of keys, rows of one block are looked up together, and tables of which nothing is in memory are read from one
// end to the other.
//
// The rows are then in the overlay, as if the fold had asked for them: it finds the same as without.
type prefetcher struct {
	of Prefetcher
	// events are looked at together.
	events int
	// left are the envelopes that have been looked at and are not folded yet.
	left int
	// data holds the keys.
	data []byte
	keys []wantedKey
	// searched is what the overlay had counted when keys were last looked up.
	searched uint64
}

// wantedKey is a key in data.
type wantedKey struct {
	keyHead
	at, n uint32
}

const (
	// A fold that seldom asks the database is left alone: not one in so many events.
	prefetchSeldom = 16
	// prefetchBytes of keys are sorted at most.
	prefetchBytes = 64 << 20
)

// ahead looks up the rows of the next envelopes, unless those of the first of them have been.
func (p *prefetcher) ahead(envs []*events.Envelope, f *fold) error {
	if p.left > 0 {
		p.left--
		return nil
	}
	n := 0
	for p.left = 0; p.left < len(envs) && n < p.events; p.left++ {
		n += len(envs[p.left].Events)
	}
	o := &f.batch.rows
	seldom := (o.searches-p.searched)*prefetchSeldom < uint64(n)
	p.searched = o.searches
	if !seldom {
		p.collect(envs[:p.left], f)
		if err := p.lookUp(o); err != nil {
			return err
		}
	}
	p.left--
	return nil
}

// collect gathers the keys of rows that are not in memory and may be in the database.
func (p *prefetcher) collect(envs []*events.Envelope, f *fold) {
	o := &f.batch.rows
	p.data, p.keys = p.data[:0], p.keys[:0]
	add := func(key []byte) {
		hash := xxh3.Hash(key)
		if row, _ := o.find(key, hash); row >= 0 || o.written != nil && o.written.lacks(key, hash) || len(p.data) > prefetchBytes {
			return
		}
		p.keys = append(p.keys, wantedKey{headOf(key), uint32(len(p.data)), uint32(len(key))})
		p.data = append(p.data, key...)
	}
	for _, env := range envs {
		for i := range env.Events {
			if ev := &env.Events[i]; f.applies.Has(ev.Kind) {
				p.of.Prefetch(ev, add)
			}
		}
	}
}

// lookUp brings the rows into the overlay.
func (p *prefetcher) lookUp(o *overlay) error {
	key := func(k wantedKey) []byte { return p.data[k.at : k.at+k.n] }
	slices.SortFunc(p.keys, func(a, b wantedKey) int {
		if c := a.compare(b.keyHead); c != 0 {
			return c
		}
		return bytes.Compare(key(a), key(b))
	})
	for _, k := range p.keys {
		if _, _, err := o.get(key(k)); err != nil {
			return err
		}
	}
	return nil
}
