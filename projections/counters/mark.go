package counters

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/skein-feed/skein/events"
)

// ErrExpired is returned for a mark of a session that is older than [SessionLife].
var ErrExpired = errors.New("counters: the session has expired")

// ErrMark is returned for bytes that are no mark of a list.
var ErrMark = errors.New("counters: not a mark of this list")

// SessionLife is how long, in log time, a session continues.
const SessionLife events.Micros = 3600 * 1_000_000

// Mark is a place in a list, with the position where its session began. It is opaque, and stays right whatever is written
// meanwhile (I9).
type Mark []byte

// A mark begins with what it is.
const (
	// markTop: the position of the session (uvarint), its log time (uvarint), and the place of the last item.
	markTop = 1
	// markLiked: what follows the user in the key of the last item.
	markLiked = 2
)

// session is the position whose scores are read throughout.
type session struct {
	seq  uint64
	time events.Micros
}

func (s session) mark(place []byte) Mark {
	m := binary.AppendUvarint(Mark{markTop}, s.seq)
	m = binary.AppendUvarint(m, uint64(s.time))
	return append(m, place...)
}

func parseMark(m Mark) (s session, place []byte, err error) {
	if len(m) == 0 || m[0] != markTop {
		return s, nil, ErrMark
	}
	rest := []byte(m[1:])
	var numbers [2]uint64
	for i := range numbers {
		n, k := binary.Uvarint(rest)
		if k <= 0 || k > 1 && rest[k-1] == 0 {
			return s, nil, ErrMark
		}
		numbers[i], rest = n, rest[k:]
	}
	_, _, more, err := cutPlace(rest)
	if err != nil || len(more) != 0 || numbers[1] > math.MaxInt64 {
		return s, nil, ErrMark
	}
	return session{numbers[0], events.Micros(numbers[1])}, rest, nil
}

func parseLiked(m Mark) (place []byte, err error) {
	if len(m) == 0 || m[0] != markLiked {
		return nil, ErrMark
	}
	if _, _, err := cutLiked(m[1:]); err != nil {
		return nil, ErrMark
	}
	return m[1:], nil
}
