package events

import skeinv1 "github.com/skein-feed/skein/proto/skein/v1"

// CheckedEvent is a valid event of a call, and its index in the call.
type CheckedEvent struct {
	Event
	Index int
}

// CheckCall validates the events of one call and returns the valid ones and the rejections, each in
// the order of the call.
//
// Besides what [Validate] refuses, it refuses two kinds of repetition within the call, because
// readers of the log would ignore the later event (I6): an event with the event id of an earlier
// event of the same acting user and kind, and a backfill whose offset is not above that of an
// earlier backfill of the same source and kind.
func CheckCall(evs []*skeinv1.Event) (good []CheckedEvent, refused []Rejection) {
	type eventIDKey struct {
		user, id string
		kind     Kind
	}
	var firstIndex map[eventIDKey]int // allocated for the first event id; most calls have none
	offsets := highestOffsets{}
	good = make([]CheckedEvent, 0, len(evs))

	for i, msg := range evs {
		ev, rejection := FromProto(msg)

		// Only a valid event takes its event id and its offset, because readers of the log do not
		// remember those of malformed ones.
		if rejection == nil && ev.ID != "" {
			key := eventIDKey{ev.User, ev.ID, ev.Kind}
			first, repeats := firstIndex[key]
			switch {
			case repeats:
				rejection = newRejection(skeinv1.Reason_REASON_EVENT_ID_REUSED, "event_id",
					"is that of events[%d], of the same user and kind: each event needs its own", first)
			case firstIndex == nil:
				firstIndex = map[eventIDKey]int{key: i}
			default:
				firstIndex[key] = i
			}
		}

		if rejection == nil && ev.Backfill {
			rejection = offsets.checkOffset(&ev, i)
		}

		if rejection != nil {
			rejection.Index = i
			refused = append(refused, *rejection)
			continue
		}
		good = append(good, CheckedEvent{ev, i})
	}
	return good, refused
}

// highestOffsets holds the highest offset of the valid backfills of one call so far, per source and
// kind.
type highestOffsets map[offsetKey]offsetOfEvent

type offsetKey struct {
	source string
	kind   Kind
}

// offsetOfEvent is the offset of a backfill, and the index of the backfill in its call.
type offsetOfEvent struct {
	offset uint64
	index  int
}

// checkOffset refuses a backfill that the log would ignore because an earlier event of the call has
// the same or a higher offset. Otherwise it records the offset as the highest.
func (h highestOffsets) checkOffset(ev *Event, index int) *Rejection {
	key := offsetKey{ev.Source, ev.Kind}
	highest, known := h[key]
	if known && ev.Offset <= highest.offset {
		return newRejection(skeinv1.Reason_REASON_INVALID_BACKFILL, "offset",
			"is %d: it must be above %d, the offset of events[%d] of the same source and kind",
			ev.Offset, highest.offset, highest.index)
	}
	h[key] = offsetOfEvent{ev.Offset, index}
	return nil
}
