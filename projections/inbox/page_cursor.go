package inbox

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// A page cursor begins with the list that it is of.
const (
	// cursorNewest: uvarint length and bytes of the sort key of the last entry, then, of a feed with one entry per item, the
	// sort key where the session began.
	cursorNewest = 1
	// cursorTrending: the position of the session (uvarint), its log time (uvarint), 1 if the last entry has a score, the score
	// in 8 bytes, and the sort key.
	cursorTrending = 2
	// cursorTop: a time in 8 bytes, newest first: whatever comes later has a sort key before it.
	cursorTop = 3
	// cursorPins: what follows the prefix of an outbox in the key of the last entry.
	cursorPins = 4
)

func newestCursor(sortKey, top []byte) PageCursor {
	m := append(PageCursor{cursorNewest}, binary.AppendUvarint(nil, uint64(len(sortKey)))...)
	return append(append(m, sortKey...), top...)
}

func parseNewestCursor(m PageCursor) (sortKey, top []byte, err error) {
	if len(m) < 2 || m[0] != cursorNewest {
		return nil, nil, ErrPageCursor
	}
	r := fields.Reader{Rest: m[1:]}
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

// trendingKey is where a pin stands in a feed by heat: higher scores first, those without a score last, then newest first.
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

// session is the position at which scores are read throughout a session by heat.
type heatSession struct {
	seq  uint64
	time events.Micros
}

func trendingCursor(s heatSession, h *trendingKey) PageCursor {
	m := binary.AppendUvarint(PageCursor{cursorTrending}, s.seq)
	m = binary.AppendUvarint(m, uint64(s.time))
	flag := byte(0)
	if h.scored {
		flag = 1
	}
	m = binary.BigEndian.AppendUint64(append(m, flag), uint64(h.score))
	return append(m, h.sortKey...)
}

func parseTrendingCursor(m PageCursor) (s heatSession, h trendingKey, err error) {
	if len(m) < 2 || m[0] != cursorTrending {
		return s, h, ErrPageCursor
	}
	r := fields.Reader{Rest: m[1:]}
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

func parseTopCursor(m PageCursor) ([]byte, error) {
	if len(m) != 9 || m[0] != cursorTop {
		return nil, ErrPageCursor
	}
	return m[1:], nil
}

func parsePinsCursor(m PageCursor) ([]byte, error) {
	if len(m) < 2 || m[0] != cursorPins {
		return nil, ErrPageCursor
	}
	if _, _, err := cutOutboxKey(m[1:]); err != nil {
		return nil, ErrPageCursor
	}
	return m[1:], nil
}
