package inbox

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// readMarker returns the time up to which a reader has read the feed, or 0 if the reader has no
// read marker.
func readMarker(r projections.Reader, reader string) (events.Micros, error) {
	row, ok, err := r.Get(projections.AppendKey(nil, tagReadMarker, reader))
	if err != nil || !ok {
		return 0, err
	}
	return decodeReadMarker(row)
}

// unreadMarker returns the time up to which nothing of a feed with [Feed.UnreadOnly] is shown, or 0
// if there is none. It is the read marker of the reader. The badge of the bell, a feed with
// [Feed.Only], will count from a marker of its own once the reader has one: this is the place to
// choose it.
func (q *Queries) unreadMarker(f *Feed) (events.Micros, error) {
	return readMarker(q.state, f.Reader)
}

func decodeReadMarker(row []byte) (events.Micros, error) {
	read, n := binary.Uvarint(row)
	if n != len(row) || read == 0 {
		return 0, errRow("read marker", row)
	}
	return events.Micros(read), nil
}

// moveReadMarker moves the read marker of a reader forward. A late or repeated event, which would
// move it back, writes nothing.
func (f *Inbox) moveReadMarker() error {
	before, err := readMarker(f.batch, f.ev.User)
	// The clock of a client may be ahead. A marker in the future would hide pins that the reader
	// has not seen.
	read := min(f.ev.Read, f.ev.Time)
	if err != nil || read <= before {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagReadMarker, f.ev.User)
	f.batch.Set(f.key, binary.AppendUvarint(f.value[:0], uint64(read)))
	return nil
}
