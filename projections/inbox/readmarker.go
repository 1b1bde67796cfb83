package inbox

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// readMarker returns the read marker of a reader, which is the time up to which the reader has read
// the feed, on any device. It returns 0 if there is none.
func readMarker(r projections.Reader, reader string) (events.Micros, error) {
	row, ok, err := r.Get(projections.AppendKey(nil, tagReadMarker, reader))
	if err != nil || !ok {
		return 0, err
	}
	return decodeReadMarker(row)
}

// unreadMarker returns the time for a feed with [Feed.UnreadOnly]: only newer pins are shown. If
// the time is 0, all pins are shown. At present this is the reader's read marker for all feeds.
// Choose here if feeds with [Feed.Only], such as that of the bell, get read markers of their own.
func (q *Queries) unreadMarker(f *Feed) (events.Micros, error) {
	return readMarker(q.state, f.Reader)
}

// decodeReadMarker decodes the row of a read marker. No row has the time 0, because moveReadMarker
// writes only later times.
func decodeReadMarker(row []byte) (events.Micros, error) {
	read, size := projections.Uvarint(row)
	if size != len(row) || read == 0 {
		return 0, errRow("read marker", row)
	}
	return events.Micros(read), nil
}

// moveReadMarker folds a feed_read: it moves the read marker of the reader forward. A late or
// repeated event, whose time is not later than the read marker, writes nothing.
func (f *Inbox) moveReadMarker() error {
	before, err := readMarker(f.batch, f.ev.User)

	// The time in the event comes from a client, whose clock may be ahead. A read marker in the
	// future would mark pins as read that the reader has not seen yet, so the time of the event is
	// the limit.
	read := min(f.ev.Read, f.ev.Time)
	if err != nil || read <= before {
		return err
	}

	f.key = projections.AppendKey(f.key[:0], tagReadMarker, f.ev.User)
	f.batch.Set(f.key, binary.AppendUvarint(f.value[:0], uint64(read)))
	return nil
}
