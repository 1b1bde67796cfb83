package events

import skeinv1 "github.com/skein-feed/skein/proto/skein/v1"

// Checked is a good event of a call, and its index in the call.
type Checked struct {
	Event
	Index int
}

// CheckCall validates the events of one call, once for all who handle it, and returns the good ones and the refusals, each in the
// order of the call. It refuses what [Validate] does, and an event with the event id of an earlier one of the same acting user and
// kind: readers would drop it as a repeat (I6), and a call that says something twice is a mistake. So it refuses a backfill whose offset is
// not above that of an earlier one of the same source and kind.
func CheckCall(evs []*skeinv1.Event) (good []Checked, refused []Rejection) {
	good = make([]Checked, 0, len(evs))
	type key struct {
		user, id string
		kind     Kind
	}
	var first map[key]int
	offsets := callOffsets{}
	for i, msg := range evs {
		ev, r := FromProto(msg)
		if r == nil && ev.ID != "" {
			k := key{ev.User, ev.ID, ev.Kind}
			if at, repeats := first[k]; repeats {
				r = reject(skeinv1.Reason_REASON_EVENT_ID_REUSED, "event_id",
					"is that of events[%d], of the same user and kind: each event needs its own", at)
			} else {
				if first == nil {
					first = make(map[key]int)
				}
				first[k] = i
			}
		}
		if r == nil && ev.Backfill {
			r = offsets.check(&ev, i)
		}
		if r != nil {
			r.Index = i
			refused = append(refused, *r)
			continue
		}
		good = append(good, Checked{ev, i})
	}
	return good, refused
}

// callOffsets has the highest offset of the good backfills of one call so far, per source and kind.
type callOffsets map[offsetKey]callOffset

type offsetKey struct {
	source string
	kind   Kind
}

type callOffset struct {
	offset uint64
	index  int
}

// check refuses a backfill that the log would ignore because an earlier event of the call has its offset or a higher one.
func (c callOffsets) check(ev *Event, index int) *Rejection {
	key := offsetKey{ev.Source, ev.Kind}
	highest, known := c[key]
	if known && ev.Offset <= highest.offset {
		return reject(skeinv1.Reason_REASON_INVALID_BACKFILL, "offset",
			"is %d: it must be above %d, the offset of events[%d] of the same source and kind", ev.Offset, highest.offset, highest.index)
	}
	c[key] = callOffset{ev.Offset, index}
	return nil
}
