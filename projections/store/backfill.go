package store

import (
	"encoding/binary"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// imports keeps which backfills were taken, so that an import may safely run twice (I6), and which sources are closed. There are few
// sources, so all of it is in memory, besides one row for each source and kind.
type imports struct {
	offsets   map[importKey]uint64
	closed    map[string]bool
	allClosed bool
	// changed are the offsets that the next commit must write.
	changed map[importKey]struct{}
}

type importKey struct {
	kind   events.Kind
	source string
}

func (k importKey) append(dst []byte) []byte {
	dst = append(projections.AppendPrefix(dst, projections.StoreShard, tagBackfill), byte(k.kind))
	return append(dst, k.source...)
}

func closedKey(source string) []byte {
	return append(projections.AppendPrefix(nil, projections.StoreShard, tagClosed), source...)
}

// load reads the rows of earlier runs.
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

func (im *imports) markClosed(source string) {
	im.closed[source] = true
	im.allClosed = im.allClosed || source == ""
}

// accepts reports whether a backfilled event counts: its source is open, and its offset above all before it.
func (im *imports) accepts(ev *events.Event) bool {
	if im.allClosed || im.closed[ev.Source] {
		return false
	}
	highest, ok := im.offsets[importKey{ev.Kind, ev.Source}]
	return !ok || ev.Offset > highest
}

// done registers a backfilled event after it was folded. It must not be registered before: an event that a crash interrupts has to be
// accepted again.
func (im *imports) recordFolded(ev *events.Event) {
	key := importKey{ev.Kind, ev.Source}
	im.offsets[key] = ev.Offset
	im.changed[key] = struct{}{}
}

// close ends the backfills of a source; empty means of all.
func (im *imports) closeSource(source string, b *projections.BatchControl) {
	if im.closed[source] {
		return
	}
	im.markClosed(source)
	b.SetRow(closedKey(source), nil)
}

// write puts the offsets that changed into the batch.
func (im *imports) writeOffsets(b *projections.BatchControl) {
	for key := range im.changed {
		b.SetRow(key.append(nil), binary.BigEndian.AppendUint64(nil, im.offsets[key]))
	}
	clear(im.changed)
}

// BackfillsClosed reports whether the backfills of a source are closed, alone or with all others, so that every later one is ignored.
func BackfillsClosed(rows projections.Reader, source string) (bool, error) {
	for _, closed := range []string{"", source} {
		if _, ok, err := rows.Get(closedKey(closed)); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// HighestOffset returns the highest offset of the backfills of a source and kind that were folded; 0 means that there is none. A later
// backfill with this offset or a lower one is ignored.
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
