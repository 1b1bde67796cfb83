package inbox

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// Marks begin with what they are of.
const (
	// markNewest: uvarint length and bytes of the place of the last entry, then, of a feed with one entry per item, the
	// place where the session began.
	markNewest = 1
	// markHot: the position of the session (uvarint), its log time (uvarint), 1 if the last entry has a score, the score
	// in 8 bytes, and the place.
	markHot = 2
	// markTop: a time in 8 bytes, newest first: whatever comes later has a place before it.
	markTop = 3
	// markPins: what follows the prefix of an outbox in the key of the last entry.
	markPins = 4
)

func newestMark(place, top []byte) Mark {
	m := append(Mark{markNewest}, binary.AppendUvarint(nil, uint64(len(place)))...)
	return append(append(m, place...), top...)
}

func parseNewest(m Mark) (place, top []byte, err error) {
	if len(m) < 2 || m[0] != markNewest {
		return nil, nil, ErrMark
	}
	r := fields.Reader{Rest: m[1:]}
	place = r.Bytes()
	if r.Bad {
		return nil, nil, ErrMark
	}
	if _, _, _, err := cutPlace(place); err != nil {
		return nil, nil, ErrMark
	}
	if len(r.Rest) > 0 {
		if _, _, _, err := cutPlace(r.Rest); err != nil {
			return nil, nil, ErrMark
		}
	}
	return place, r.Rest, nil
}

// hotPlace is where a pin stands in a feed by heat: higher scores first, those without a score last, then newest first.
type hotPlace struct {
	scored bool
	score  int64
	place  []byte
}

func (h *hotPlace) before(other *hotPlace) bool {
	switch {
	case h.scored != other.scored:
		return h.scored
	case h.score != other.score:
		return h.score > other.score
	}
	return string(h.place) < string(other.place)
}

// session is the position at which scores are read throughout a session by heat.
type session struct {
	seq  uint64
	time events.Micros
}

func hotMark(s session, h *hotPlace) Mark {
	m := binary.AppendUvarint(Mark{markHot}, s.seq)
	m = binary.AppendUvarint(m, uint64(s.time))
	flag := byte(0)
	if h.scored {
		flag = 1
	}
	m = binary.BigEndian.AppendUint64(append(m, flag), uint64(h.score))
	return append(m, h.place...)
}

func parseHot(m Mark) (s session, h hotPlace, err error) {
	if len(m) < 2 || m[0] != markHot {
		return s, h, ErrMark
	}
	r := fields.Reader{Rest: m[1:]}
	s.seq = r.Uvarint()
	t := r.Uvarint()
	if r.Bad || t > math.MaxInt64 || len(r.Rest) < 9 || r.Rest[0] > 1 {
		return s, h, ErrMark
	}
	s.time = events.Micros(t)
	h.scored, h.score = r.Rest[0] == 1, int64(binary.BigEndian.Uint64(r.Rest[1:]))
	h.place = r.Rest[9:]
	if _, _, _, err := cutPlace(h.place); err != nil {
		return s, h, ErrMark
	}
	return s, h, nil
}

func topMark(at events.Micros) Mark { return appendNewestFirst(Mark{markTop}, at) }

func parseTop(m Mark) ([]byte, error) {
	if len(m) != 9 || m[0] != markTop {
		return nil, ErrMark
	}
	return m[1:], nil
}

func parsePins(m Mark) ([]byte, error) {
	if len(m) < 2 || m[0] != markPins {
		return nil, ErrMark
	}
	if _, _, err := cutOutbox(m[1:]); err != nil {
		return nil, ErrMark
	}
	return m[1:], nil
}
