package notifications

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// userState is the row of a recipient: how many notifications are stored, and the markers of all
// groups.
type userState struct {
	reacted, repinned int64
	// seen and read are the times up to which the user has seen and read notifications. 0 means
	// never.
	seen, read events.Micros
}

// count returns the number of notifications of a kind.
func (s *userState) count(kind Kind) *int64 {
	if kind == Repinned {
		return &s.repinned
	}
	return &s.reacted
}

func (s *userState) appendRow(dst []byte) []byte {
	return fields.AppendCounts(dst, []int64{s.reacted, s.repinned, int64(s.seen), int64(s.read)})
}

func decodeState(row []byte) (userState, error) {
	var numbers [4]int64
	if err := fields.ReadCounts(row, numbers[:]); err != nil {
		return userState{}, err
	}
	return userState{numbers[0], numbers[1], events.Micros(numbers[2]), events.Micros(numbers[3])}, nil
}

// readState returns the row of a user, or the zero state if there is none. It leaves the key of the
// row in buffer.
func readState(r projections.Reader, buffer *[]byte, user string) (userState, error) {
	*buffer = projections.AppendKey((*buffer)[:0], tagState, user)
	row, ok, err := r.Get(*buffer)
	if err != nil || !ok {
		return userState{}, err
	}
	return decodeState(row)
}

func (n *Notifications) writeState(user string, s *userState) {
	n.key = projections.AppendKey(n.key[:0], tagState, user)
	n.value = s.appendRow(n.value[:0])
	n.setOrDelete(n.key, n.value)
}

// maxGroupMarkers is how many markers of single groups a user has: those that were moved last. All
// of them are in one row, which each mark of a group writes again.
const maxGroupMarkers = 200

// groupMarker is up to when a user has read the notifications of one group.
type groupMarker struct {
	group string
	time  events.Micros
}

// The row of group markers has, for each, the length of the id as a varint, the id, and the time in
// 8 bytes. The marker that was moved last is at the end.

func appendGroupMarkers(dst []byte, markers []groupMarker) []byte {
	for _, m := range markers {
		dst = append(binary.AppendUvarint(dst, uint64(len(m.group))), m.group...)
		dst = binary.BigEndian.AppendUint64(dst, uint64(m.time))
	}
	return dst
}

func decodeGroupMarkers(row []byte) (markers []groupMarker, err error) {
	for rest := row; len(rest) > 0; {
		length, size := projections.Uvarint(rest)
		if size <= 0 || length == 0 || length > events.MaxGroupBytes || len(rest) < size+int(length)+8 {
			return nil, projections.RowError("markers of groups", row)
		}
		rest = rest[size:]
		at := binary.BigEndian.Uint64(rest[length:])
		if at == 0 || at > math.MaxInt64 {
			return nil, projections.RowError("markers of groups", row)
		}
		markers = append(markers, groupMarker{string(rest[:length]), events.Micros(at)})
		rest = rest[length+8:]
	}
	return markers, nil
}

// readGroupMarkers returns the markers of the groups of a user. It leaves the key of their row in
// buffer.
func readGroupMarkers(r projections.Reader, buffer *[]byte, user string) ([]groupMarker, error) {
	*buffer = projections.AppendKey((*buffer)[:0], tagGroupMarkers, user)
	row, ok, err := r.Get(*buffer)
	if err != nil || !ok {
		return nil, err
	}
	return decodeGroupMarkers(row)
}

// moveMarker folds a notifications_seen or notifications_read. A marker is never after the event
// that moves it, and never moves back, however late and often devices report.
func (n *Notifications) moveMarker() error {
	at := min(n.ev.Read, n.ev.Time) // the clock of a device may be ahead
	if n.ev.Group != "" {
		return n.moveGroupMarker(at)
	}

	state, err := readState(n.batch, &n.key, n.ev.User)
	if err != nil {
		return err
	}
	marker := &state.seen
	if n.ev.Kind == events.NotificationsRead {
		marker = &state.read
	}
	if at <= *marker {
		return nil
	}
	*marker = at
	n.writeState(n.ev.User, &state)
	return nil
}

// moveGroupMarker moves the marker of the group of the event, and drops the marker that was moved
// longest ago if there are too many.
func (n *Notifications) moveGroupMarker(at events.Micros) error {
	markers, err := readGroupMarkers(n.batch, &n.key, n.ev.User)
	if err != nil {
		return err
	}

	// The marker that was moved last is at the end, so the marker of the group moves there.
	i := slices.IndexFunc(markers, func(m groupMarker) bool { return m.group == n.ev.Group })
	hasMarker := i >= 0
	switch {
	case at <= 0, hasMarker && at <= markers[i].time:
		return nil
	case hasMarker:
		markers = slices.Delete(markers, i, i+1)
	case len(markers) == maxGroupMarkers:
		markers = markers[1:]
	}
	markers = append(markers, groupMarker{n.ev.Group, at})
	n.value = appendGroupMarkers(n.value[:0], markers)
	n.batch.Set(n.key, n.value)
	return nil
}
