package counters

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// ErrExpired is returned for a page cursor of a session that is older than [SessionLifetime], or
// whose scores the store does not have, because it was rebuilt with other settings.
var ErrExpired = errors.New("counters: the session has expired")

// ErrPageCursor is returned for bytes that are no page cursor of the list.
var ErrPageCursor = errors.New("counters: not a cursor of this list")

// SessionLifetime is how long a session may continue, in log time.
const SessionLifetime events.Micros = 3600 * 1_000_000

// PageCursor says where a list continues after a page: the last item shown, and the position at
// which the session began. It is opaque, and writes do not invalidate it (I9).
type PageCursor []byte

// The first byte of a page cursor tells of which kind of list it is.
const (
	// cursorTrending is followed by the position of the session (uvarint), its log time (uvarint),
	// and the sort key of the last item.
	cursorTrending = 1
	// cursorReacted is followed by the sort key of the last entry of a list of reactions or of
	// those who reacted ([appendSince]).
	cursorReacted = 2
)

// session is the position at which a session began, and its log time. All pages of the session read
// the scores of this position.
type session struct {
	seq  uint64
	time events.Micros
}

// cursor returns the page cursor after an item with this sort key.
func (s session) cursor(sortKey []byte) PageCursor {
	cursor := binary.AppendUvarint(PageCursor{cursorTrending}, s.seq)
	cursor = binary.AppendUvarint(cursor, uint64(s.time))
	return append(cursor, sortKey...)
}

// parseTrendingCursor fails with [ErrPageCursor] for bytes that [session.cursor] cannot have made.
func parseTrendingCursor(cursor PageCursor) (s session, sortKey []byte, err error) {
	if len(cursor) == 0 || cursor[0] != cursorTrending {
		return s, nil, ErrPageCursor
	}

	rest := []byte(cursor[1:])
	var numbers [2]uint64
	for i := range numbers {
		v, n := projections.Uvarint(rest)
		if n <= 0 {
			return s, nil, ErrPageCursor
		}
		numbers[i] = v
		rest = rest[n:]
	}

	_, _, excess, err := cutSortKey(rest)
	if err != nil || len(excess) != 0 || numbers[1] > math.MaxInt64 {
		return s, nil, ErrPageCursor
	}
	return session{seq: numbers[0], time: events.Micros(numbers[1])}, rest, nil
}

// parseReactedCursor fails with [ErrPageCursor] for bytes that neither [Queries.Reactions] nor
// [Queries.Reactors] can have made.
func parseReactedCursor(cursor PageCursor) (sortKey []byte, err error) {
	if len(cursor) == 0 || cursor[0] != cursorReacted {
		return nil, ErrPageCursor
	}
	if _, _, err := cutSince(cursor[1:]); err != nil {
		return nil, ErrPageCursor
	}
	return cursor[1:], nil
}
