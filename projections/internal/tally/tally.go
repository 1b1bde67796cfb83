// Package tally has a small projection and generated histories for tests of the store. The
// projection has the cases that are difficult for a store: counts that are wrong if an event is
// folded twice, events that are folded in many steps so that memory stays bounded, and rows that
// depend on whether backfills are closed.
package tally

import (
	"encoding/binary"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The tags of the rows, with their keys and values. No other projection uses tags of this range.
// Tally is not in the list of all projections.
const (
	tagEdge  projections.Tag = 0xf0 // user, peer → time, 8 bytes
	tagCount projections.Tag = 0xf1 // user → number of edges, 8 bytes
	tagPlays projections.Tag = 0xf2 // item → number of plays, and of plays after backfills were closed, 8 bytes each
	tagSent  projections.Tag = 0xf3 // user, item, copy (2 bytes) → sequence, 8 bytes
	tagGone  projections.Tag = 0xf4 // user, keyed hash → nothing
)

// Tally is a projection that counts edges and plays. A test can set it to fail at a chosen
// envelope.
type Tally struct {
	// Copies is the number of rows that a served item makes. It is a setting of the fold.
	Copies int
	// Chunk is the number of rows that are written between two steps.
	Chunk int

	// FailAt, PanicAt, LeakAt and MisuseAt are sequences of envelopes whose events misbehave; 0
	// means none. Events at FailAt return [ErrFails], those at PanicAt panic, those at LeakAt leave
	// an iterator open, and those at MisuseAt write while an iterator is open.
	FailAt, PanicAt, LeakAt, MisuseAt uint64
	// FailSlot is the first slot of the envelope FailAt that fails.
	FailSlot uint16
}

// New returns the projection with the settings that most tests use.
func New() *Tally { return &Tally{Copies: 5, Chunk: 7} }

// ErrFails is the error that [Tally.Apply] returns for events in the envelope FailAt. It looks like
// the error of a damaged row.
var ErrFails = projections.RowError("row to fail at", []byte("tally"))

// Name returns "tally".
func (*Tally) Name() string { return "tally" }

// Version is 1.
func (*Tally) Version() uint32 { return 1 }

// Settings returns the number of copies.
func (t *Tally) Settings() map[string]string {
	return map[string]string{"copies": fmt.Sprint(t.Copies)}
}

// Kinds returns the kinds of events that Apply accepts.
func (*Tally) Kinds() []events.Kind {
	return []events.Kind{
		events.UserFollowed, events.UserUnfollowed, events.UserDeleted, events.Played, events.Served,
	}
}

// Route adds the home of the item of a play, and the home of the user of any other event.
func (*Tally) Route(ev *events.Event, to *events.Partitions) {
	if ev.Kind == events.Played {
		to.AddHome(ev.Item)
		return
	}
	to.AddHome(ev.User)
}

// Apply folds one event. It returns an error for a kind that is not among [Tally.Kinds].
func (t *Tally) Apply(ev events.Event, b *projections.Batch) error {
	if err := t.injectFault(ev, b); err != nil {
		return err
	}

	switch ev.Kind {
	case events.UserFollowed:
		if has, err := hasRow(b, edgeKey(ev.User, ev.Peer)); err != nil || has {
			return err
		}
		b.Set(edgeKey(ev.User, ev.Peer), binary.BigEndian.AppendUint64(nil, uint64(ev.Time)))
		return addToNumber(b, CountKey(ev.User), 0, 1)
	case events.UserUnfollowed:
		if has, err := hasRow(b, edgeKey(ev.User, ev.Peer)); err != nil || !has {
			return err
		}
		b.Delete(edgeKey(ev.User, ev.Peer))
		return addToNumber(b, CountKey(ev.User), 0, -1)
	case events.Played:
		if err := addToNumber(b, playsKey(ev.Item), 0, 1); err != nil || !b.BackfillsClosed() {
			return err
		}
		return addToNumber(b, playsKey(ev.Item), 1, 1)
	case events.Served:
		return t.applyServed(ev, b)
	case events.UserDeleted:
		return t.applyUserDeleted(ev, b)
	}
	return fmt.Errorf("tally: unexpected kind %s", ev.Kind)
}

// injectFault misbehaves as the fields of t ask for the envelope of the event.
func (t *Tally) injectFault(ev events.Event, b *projections.Batch) error {
	if ev.Seq == 0 {
		return nil
	}
	switch ev.Seq {
	case t.FailAt:
		if ev.Slot >= t.FailSlot {
			return ErrFails
		}
	case t.PanicAt:
		b.Iter(nil, nil).Next() // the panic leaves it open
		panic("tally: panics as told")
	case t.LeakAt, t.MisuseAt:
		it := b.Iter(nil, nil)
		if ev.Seq == t.LeakAt {
			it.Next() // so that it holds a table
			return nil
		}
		b.Set(CountKey("x"), nil)
		return it.Close()
	}
	return nil
}

// applyServed writes many rows, in steps. If a crash interrupts it, the next call writes all rows
// again with the same values.
func (t *Tally) applyServed(ev events.Event, b *projections.Batch) error {
	n := 0
	for _, item := range ev.Items {
		for c := range t.Copies {
			b.Set(sentKey(ev.User, item, uint16(c)), binary.BigEndian.AppendUint64(nil, ev.Seq))
			if n++; n%t.Chunk == 0 {
				if err := b.Step(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// applyUserDeleted removes the edges of a user in steps, and then the rows of served items. It
// subtracts an edge from the count in the step that removes the edge, so the next call after a
// crash can continue with the rows that are left.
func (t *Tally) applyUserDeleted(ev events.Event, b *projections.Batch) error {
	for _, prefix := range [][]byte{prefixOf(tagEdge, ev.User), prefixOf(tagSent, ev.User)} {
		from := prefix
		for {
			keys, err := t.nextKeys(b, from, projections.PrefixEnd(prefix))
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				break
			}
			for _, key := range keys {
				b.Delete(key)
				if projections.Tag(key[2]) != tagEdge {
					continue
				}
				if err := addToNumber(b, CountKey(ev.User), 0, -1); err != nil {
					return err
				}
			}
			// Continue at the last key, which is deleted. From the prefix, the iterator would skip
			// all deleted rows in every round.
			from = keys[len(keys)-1]
			if err := b.Step(); err != nil {
				return err
			}
		}
	}

	hash := b.KeyedHash(ev.User)
	b.Set(append(prefixOf(tagGone, ev.User), hash[:]...), nil)
	return nil
}

// nextKeys returns the first Chunk keys from lower up to, not including, upper.
func (t *Tally) nextKeys(b *projections.Batch, lower, upper []byte) (keys [][]byte, err error) {
	it := b.Iter(lower, upper)
	for len(keys) < t.Chunk && it.Next() {
		keys = append(keys, append([]byte(nil), it.Key()...))
	}
	return keys, it.Close()
}

// hasRow reports whether the batch sees a row under the key.
func hasRow(b *projections.Batch, key []byte) (bool, error) {
	_, ok, err := b.Get(key)
	return ok, err
}

// addToNumber adds delta to the number at the index in a row, and deletes the row if all its
// numbers are 0. It returns an error if the number would be negative.
func addToNumber(b *projections.Batch, key []byte, index int, delta int64) error {
	old, _, err := b.Get(key)
	if err != nil {
		return err
	}

	row := append([]byte(nil), old...)
	for len(row) < 8*(index+1) {
		row = append(row, 0)
	}
	n := int64(binary.BigEndian.Uint64(row[8*index:])) + delta
	if n < 0 {
		return projections.RowError("count below zero", key)
	}
	binary.BigEndian.PutUint64(row[8*index:], uint64(n))

	for _, c := range row {
		if c != 0 {
			b.Set(key, row)
			return nil
		}
	}
	b.Delete(key)
	return nil
}

func prefixOf(tag projections.Tag, id string) []byte {
	return events.AppendID(projections.AppendPrefix(nil, events.ShardOf(id), tag), id)
}

// EdgePrefix returns the prefix of the keys of a user's edges.
func EdgePrefix(user string) []byte { return prefixOf(tagEdge, user) }

// CountKey returns the key of the row with the number of a user's edges.
func CountKey(user string) []byte { return prefixOf(tagCount, user) }

func edgeKey(user, peer string) []byte { return events.AppendID(EdgePrefix(user), peer) }

func playsKey(item string) []byte { return prefixOf(tagPlays, item) }

func sentKey(user, item string, c uint16) []byte {
	return binary.BigEndian.AppendUint16(events.AppendID(prefixOf(tagSent, user), item), c)
}
