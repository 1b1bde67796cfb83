package counters

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/skein-feed/skein/events"
)

// ErrExpired is returned for a page cursor of a session that is older than [SessionLife].
var ErrExpired = errors.New("counters: the session has expired")

// ErrPageCursor is returned for bytes that are no page cursor of a list.
var ErrPageCursor = errors.New("counters: not a cursor of this list")

// SessionLife is how long, in log time, a session continues.
const SessionLife events.Micros = 3600 * 1_000_000

// PageCursor is where a list continues after a page: the last item shown, and the position where the session began. It is opaque,
// and writes do not invalidate it (I9).
type PageCursor []byte

// A page cursor begins with the list that it is of.
const (
	// cursorTrending: the position of the session (uvarint), its log time (uvarint), and the sort key of the last item.
	cursorTrending = 1
	// cursorLiked: what follows the user in the key of the last item.
	cursorLiked = 2
)

// session is the position whose scores are read throughout.
type session struct {
	seq  uint64
	time events.Micros
}

func (s session) cursor(sortKey []byte) PageCursor {
	m := binary.AppendUvarint(PageCursor{cursorTrending}, s.seq)
	m = binary.AppendUvarint(m, uint64(s.time))
	return append(m, sortKey...)
}

func parseTrendingCursor(m PageCursor) (s session, sortKey []byte, err error) {
	if len(m) == 0 || m[0] != cursorTrending {
		return s, nil, ErrPageCursor
	}
	rest := []byte(m[1:])
	var numbers [2]uint64
	for i := range numbers {
		n, k := binary.Uvarint(rest)
		if k <= 0 || k > 1 && rest[k-1] == 0 {
			return s, nil, ErrPageCursor
		}
		numbers[i], rest = n, rest[k:]
	}
	_, _, more, err := cutSortKey(rest)
	if err != nil || len(more) != 0 || numbers[1] > math.MaxInt64 {
		return s, nil, ErrPageCursor
	}
	return session{numbers[0], events.Micros(numbers[1])}, rest, nil
}

func parseLikedCursor(m PageCursor) (sortKey []byte, err error) {
	if len(m) == 0 || m[0] != cursorLiked {
		return nil, ErrPageCursor
	}
	if _, _, err := cutLikedItem(m[1:]); err != nil {
		return nil, ErrPageCursor
	}
	return m[1:], nil
}
