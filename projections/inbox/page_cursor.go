package inbox

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// The first byte of a page cursor says which list it belongs to, and so what follows.
const (
	// cursorNewest: the length (uvarint) and the bytes of the last entry's sort key. For a feed
	// with one entry per item, the sort key of the session's first entry follows.
	cursorNewest = 1
	// cursorTrending: the position of the session (uvarint), its log time (uvarint), 1 if the last
	// entry has a score or else 0, the score in 8 bytes, and the sort key of the last entry.
	cursorTrending = 2
	// cursorTop: a time in 8 bytes, as in a sort key. The sort keys of all later pins are smaller.
	cursorTop = 3
	// cursorPins: what follows the prefix of the outbox in the key of the last entry's row.
	cursorPins = 4
)

func newestCursor(sortKey, top []byte) PageCursor {
	cursor := append(PageCursor{cursorNewest}, binary.AppendUvarint(nil, uint64(len(sortKey)))...)
	return append(append(cursor, sortKey...), top...)
}

func parseNewestCursor(cursor PageCursor) (sortKey, top []byte, err error) {
	if len(cursor) < 2 || cursor[0] != cursorNewest {
		return nil, nil, ErrPageCursor
	}
	r := fields.Reader{Rest: cursor[1:]}
	sortKey = r.Bytes()
	if r.Bad {
		return nil, nil, ErrPageCursor
	}
	if _, _, _, err := cutSortKey(sortKey); err != nil {
		return nil, nil, ErrPageCursor
	}
	if len(r.Rest) > 0 {
		if _, _, _, err := cutSortKey(r.Rest); err != nil {
			return nil, nil, ErrPageCursor
		}
	}
	return sortKey, r.Rest, nil
}

// trendingKey is the place of a pin in the order Trending: higher scores first, pins without a
// score last, and equal ones newest first.
type trendingKey struct {
	scored  bool
	score   int64
	sortKey []byte
}

func (h *trendingKey) before(other *trendingKey) bool {
	switch {
	case h.scored != other.scored:
		return h.scored
	case h.score != other.score:
		return h.score > other.score
	}
	return string(h.sortKey) < string(other.sortKey)
}

// heatSession is the position at which all pages of a session in the order Trending read scores.
type heatSession struct {
	seq  uint64
	time events.Micros
}

// trendingCursor returns the cursor of the page behind an entry.
func trendingCursor(s heatSession, h *trendingKey) PageCursor {
	cursor := binary.AppendUvarint(PageCursor{cursorTrending}, s.seq)
	cursor = binary.AppendUvarint(cursor, uint64(s.time))
	flag := byte(0)
	if h.scored {
		flag = 1
	}
	cursor = binary.BigEndian.AppendUint64(append(cursor, flag), uint64(h.score))
	return append(cursor, h.sortKey...)
}

func parseTrendingCursor(cursor PageCursor) (s heatSession, h trendingKey, err error) {
	if len(cursor) < 2 || cursor[0] != cursorTrending {
		return s, h, ErrPageCursor
	}
	r := fields.Reader{Rest: cursor[1:]}
	s.seq = r.Uvarint()
	t := r.Uvarint()
	if r.Bad || t > math.MaxInt64 || len(r.Rest) < 9 || r.Rest[0] > 1 {
		return s, h, ErrPageCursor
	}
	s.time = events.Micros(t)
	h.scored, h.score = r.Rest[0] == 1, int64(binary.BigEndian.Uint64(r.Rest[1:]))
	h.sortKey = r.Rest[9:]
	if _, _, _, err := cutSortKey(h.sortKey); err != nil {
		return s, h, ErrPageCursor
	}
	return s, h, nil
}

func topCursor(at events.Micros) PageCursor { return appendNewestFirst(PageCursor{cursorTop}, at) }

func parseTopCursor(cursor PageCursor) ([]byte, error) {
	if len(cursor) != 9 || cursor[0] != cursorTop {
		return nil, ErrPageCursor
	}
	return cursor[1:], nil
}

func parsePinsCursor(cursor PageCursor) ([]byte, error) {
	if len(cursor) < 2 || cursor[0] != cursorPins {
		return nil, ErrPageCursor
	}
	if _, _, err := cutOutboxKey(cursor[1:]); err != nil {
		return nil, ErrPageCursor
	}
	return cursor[1:], nil
}
