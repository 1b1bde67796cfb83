package store

import (
	"encoding/binary"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// imports remembers the highest offset of the backfills that were folded, per source and kind, so
// that an import may safely run twice (I6). It also remembers which sources are closed. There are
// few sources, so everything is kept in memory as well as in rows.
type imports struct {
	offsets map[importKey]uint64
	// closed has the closed sources. allClosed is true if the backfills of all sources are closed.
	closed    map[string]bool
	allClosed bool
	// changed has the keys of the offsets that the next commit must write.
	changed map[importKey]struct{}
}

type importKey struct {
	kind   events.Kind
	source string
}

// append appends the key of the row with the highest offset of the source and kind.
func (k importKey) append(dst []byte) []byte {
	dst = append(projections.AppendPrefix(dst, projections.StoreShard, tagBackfill), byte(k.kind))
	return append(dst, k.source...)
}

// closedKey returns the key of the row that marks a source as closed. The empty source stands for
// all sources.
func closedKey(source string) []byte {
	return append(projections.AppendPrefix(nil, projections.StoreShard, tagClosed), source...)
}

// load replaces the state in memory with that of the rows.
func (im *imports) load(rows projections.Reader) error {
	*im = imports{
		offsets: map[importKey]uint64{}, closed: map[string]bool{}, changed: map[importKey]struct{}{},
	}
	prefix := projections.AppendPrefix(nil, projections.StoreShard, tagBackfill)
	it := rows.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		rest := it.Key()[len(prefix):]
		if len(rest) < 2 || len(it.Value()) != 8 {
			_ = it.Close()
			return fmt.Errorf("%w: backfill offset", projections.ErrCorrupt)
		}
		key := importKey{events.Kind(rest[0]), string(rest[1:])}
		im.offsets[key] = binary.BigEndian.Uint64(it.Value())
	}
	if err := it.Close(); err != nil {
		return err
	}

	prefix = closedKey("")
	it = rows.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		im.markClosed(string(it.Key()[len(prefix):]))
	}
	return it.Close()
}

// markClosed records in memory that a source is closed. The empty source closes all of them.
func (im *imports) markClosed(source string) {
	im.closed[source] = true
	im.allClosed = im.allClosed || source == ""
}

// accepts reports whether a backfilled event is to be folded: its source must be open, and its
// offset must be higher than all offsets of its source and kind before it.
func (im *imports) accepts(ev *events.Event) bool {
	if im.allClosed || im.closed[ev.Source] {
		return false
	}
	highest, ok := im.offsets[importKey{ev.Kind, ev.Source}]
	return !ok || ev.Offset > highest
}

// recordFolded records the offset of a backfilled event. It must be called after the event is
// folded: if a crash interrupts the event, the next start has to accept it again.
func (im *imports) recordFolded(ev *events.Event) {
	key := importKey{ev.Kind, ev.Source}
	im.offsets[key] = ev.Offset
	im.changed[key] = struct{}{}
}

// closeSource closes a source, in memory and in its row. The empty source closes all sources.
func (im *imports) closeSource(source string, b *projections.BatchControl) {
	if im.closed[source] {
		return
	}
	im.markClosed(source)
	b.SetRow(closedKey(source), nil)
}

// writeOffsets writes the offsets that have changed since the last call into the batch.
func (im *imports) writeOffsets(b *projections.BatchControl) {
	for key := range im.changed {
		b.SetRow(key.append(nil), binary.BigEndian.AppendUint64(nil, im.offsets[key]))
	}
	clear(im.changed)
}

// BackfillsClosed reports whether a source is closed, alone or together with all others. Every
// later backfill of it is ignored.
func BackfillsClosed(rows projections.Reader, source string) (bool, error) {
	for _, closed := range []string{"", source} {
		if _, ok, err := rows.Get(closedKey(closed)); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// HighestOffset returns the highest offset of the backfills of a source and kind that were folded.
// A later backfill with this offset or a lower one is ignored. HighestOffset also returns 0 if none
// was folded. A later backfill with offset 0 is then folded.
func HighestOffset(rows projections.Reader, kind events.Kind, source string) (uint64, error) {
	row, ok, err := rows.Get(importKey{kind, source}.append(nil))
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 8 {
		return 0, fmt.Errorf("%w: backfill offset", projections.ErrCorrupt)
	}
	return binary.BigEndian.Uint64(row), nil
}
