package inbox

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// The first byte of a page cursor is one of these. It says to which list the cursor belongs, and so
// what follows. "The last entry" is the last entry of the page that returned the cursor.
const (
	// cursorNewest begins the cursor of a feed in the order Newest. The length (uvarint) and the
	// bytes of the last entry's sort key follow. If the feed has OnePerItem, the sort key of the
	// session's first entry follows that.
	cursorNewest = 1
	// cursorTrendingV01 began the cursor of a feed in the order Trending in v0.1, and is still
	// read. What follows is as for cursorTrending, without the oldest pin.
	cursorTrendingV01 = 2
	// cursorTop begins [Page.Top]. A time follows, encoded as in a sort key (8 bytes). Pins that
	// are newer than this time have smaller sort keys.
	cursorTop = 3
	// cursorPins begins the cursor of [Queries.Pins]. The creation time and the id of the last pin
	// follow, encoded as in the key of an outbox row.
	cursorPins = 4
	// cursorTrending begins the cursor of a feed in the order Trending. What follows is the
	// sequence of the session's position (uvarint), its log time (uvarint), the length (uvarint)
	// and the bytes of the sort key of the oldest pin that the session ranks, 1 if the last entry
	// has a score or else 0 (1 byte), the score (8 bytes), and the sort key of the last entry.
	cursorTrending = 5
)

// newestCursor returns the cursor of the page behind the entry with this sort key. top is the sort
// key of the session's first entry for a feed with OnePerItem, and otherwise nil.
func newestCursor(sortKey, top []byte) PageCursor {
	cursor := append(PageCursor{cursorNewest}, binary.AppendUvarint(nil, uint64(len(sortKey)))...)
	return append(append(cursor, sortKey...), top...)
}

// parseNewestCursor decodes what newestCursor has encoded. top is empty if the cursor has none.
func parseNewestCursor(cursor PageCursor) (sortKey, top []byte, err error) {
	if len(cursor) < 2 || cursor[0] != cursorNewest {
		return nil, nil, ErrPageCursor
	}

	r := fields.Reader{Rest: cursor[1:]}
	sortKey = r.Bytes()
	if r.Bad {
		return nil, nil, ErrPageCursor
	}

	// Both must be whole sort keys, because the iterator of the feed begins at one of them.
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

// trendingKey is the place of a pin in the order Trending. Pins with higher scores come first, and
// pins without a score come last. Pins of the same score, or without one, are ordered by sort key:
// the newest comes first.
type trendingKey struct {
	// scored says that the item of the pin has a score. Without one, score is 0.
	scored  bool
	score   int64
	sortKey []byte
}

// before reports whether a pin comes before another one in the order Trending.
func (h *trendingKey) before(other *trendingKey) bool {
	switch {
	case h.scored != other.scored:
		return h.scored
	case h.score != other.score:
		return h.score > other.score
	}
	return string(h.sortKey) < string(other.sortKey)
}

// heatSession is a session in the order Trending. All pages of the session use the scores at the
// position at which it began.
type heatSession struct {
	seq uint64
	// time is the log time at seq. The session leaves out newer pins, and expires
	// [SessionLifetime] later.
	time events.Micros
	// oldest is the sort key of the oldest pin that the session ranks. It is nil until a page has
	// chosen this pin.
	oldest []byte
}

// trendingCursor returns the cursor of the page behind the entry at a place, in a session whose
// oldest pin is chosen.
func trendingCursor(s heatSession, place *trendingKey) PageCursor {
	cursor := binary.AppendUvarint(PageCursor{cursorTrending}, s.seq)
	cursor = binary.AppendUvarint(cursor, uint64(s.time))
	cursor = binary.AppendUvarint(cursor, uint64(len(s.oldest)))
	cursor = append(cursor, s.oldest...)

	scored := byte(0)
	if place.scored {
		scored = 1
	}
	cursor = append(cursor, scored)
	cursor = binary.BigEndian.AppendUint64(cursor, uint64(place.score))
	return append(cursor, place.sortKey...)
}

// parseTrendingCursor decodes what trendingCursor has encoded. The session of a cursor of v0.1
// has no oldest pin yet.
func parseTrendingCursor(cursor PageCursor) (s heatSession, place trendingKey, err error) {
	if len(cursor) < 2 || cursor[0] != cursorTrending && cursor[0] != cursorTrendingV01 {
		return s, place, ErrPageCursor
	}

	r := fields.Reader{Rest: cursor[1:]}
	s.seq = r.Uvarint()
	s.time = events.Micros(r.Uvarint())
	if cursor[0] == cursorTrending {
		s.oldest = r.Bytes()
		if _, _, _, err := cutSortKey(s.oldest); err != nil {
			return heatSession{}, place, ErrPageCursor
		}
	}

	// The byte that says whether there is a score and the score itself take 9 bytes.
	if r.Bad || s.time < 0 || len(r.Rest) < 9 || r.Rest[0] > 1 {
		return heatSession{}, place, ErrPageCursor
	}

	place.scored = r.Rest[0] == 1
	place.score = int64(binary.BigEndian.Uint64(r.Rest[1:]))
	place.sortKey = r.Rest[9:]
	if _, _, _, err := cutSortKey(place.sortKey); err != nil {
		return heatSession{}, place, ErrPageCursor
	}
	return s, place, nil
}

// TrendingSeq returns the sequence of the position at which the session of a cursor of the order
// Trending began. The counters store must contain it when the cursor is used. TrendingSeq fails
// with [ErrPageCursor] for other cursors.
func (c PageCursor) TrendingSeq() (uint64, error) {
	session, _, err := parseTrendingCursor(c)
	return session.seq, err
}

// topCursor returns the cursor that marks the top of a feed at a log time.
func topCursor(at events.Micros) PageCursor { return appendNewestFirst(PageCursor{cursorTop}, at) }

// parseTopCursor decodes what topCursor has encoded. It returns an upper bound of the sort keys of
// the pins that are newer than the time of the cursor.
func parseTopCursor(cursor PageCursor) ([]byte, error) {
	if len(cursor) != 9 || cursor[0] != cursorTop {
		return nil, ErrPageCursor
	}
	return cursor[1:], nil
}

// parsePinsCursor decodes a cursor of [Queries.Pins]. It returns what follows the prefix of the
// outbox in the key of the last pin's row.
func parsePinsCursor(cursor PageCursor) ([]byte, error) {
	if len(cursor) < 2 || cursor[0] != cursorPins {
		return nil, ErrPageCursor
	}
	if _, _, err := cutOutboxKey(cursor[1:]); err != nil {
		return nil, ErrPageCursor
	}
	return cursor[1:], nil
}
