package events

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Horizon is how long an event id is remembered, in log time (I6): 15 minutes.
const Horizon = Micros(15 * time.Minute / time.Microsecond)

// Errors of [Decoder.Decode]. After one of them the decoder must not be used again.
var (
	// ErrRewritten means that the log before the cursor is not the log from which the cursor was
	// taken.
	ErrRewritten = errors.New("events: the log is not the one that the cursor was taken from")
	// ErrSequenceOrder means that an envelope was passed twice, or after a later one.
	ErrSequenceOrder = errors.New("events: sequences do not rise")
)

// MaxRejectData is the number of bytes of a malformed event that a [Reject] keeps.
const MaxRejectData = 256

// Decoder turns the messages of the log, in order, into envelopes. It is the pure core of every
// reader: the envelopes depend on the log alone, and not on where the decoder started. A Decoder is
// not safe for concurrent use.
type Decoder struct {
	// start is the cursor after which the caller continues.
	start Cursor
	// reached is the cursor after the last decoded envelope. Its fields WarmSeq and WarmTime are
	// not kept up to date.
	reached Cursor
	// warming is true until the decoder has read the envelopes from start.WarmSeq to start again.
	warming bool
	// passedLost is true if an accepted hole was passed.
	passedLost bool

	// warmStarts are the envelopes at which the warm-up of this cursor or a later one may start,
	// oldest first. The first entry is that of the current cursor.
	warmStarts []warmStart
	window     repeatWindow
	// spans are the spans of the events of the envelope that is being decoded. The slice is reused.
	spans []span
}

// warmStart is an envelope at which a decoder may start to warm up.
type warmStart struct {
	seq uint64
	// lastTime is the last time that was assigned before the envelope.
	lastTime Micros
}

// NewDecoder returns a decoder that continues after a cursor. The caller must pass it the envelopes
// from [Decoder.WarmUpFrom] on.
func NewDecoder(from Cursor) *Decoder {
	d := &Decoder{start: from, reached: from}
	if from.WarmSeq > 0 && from.WarmSeq <= from.Seq {
		d.warming = true
		d.reached.Seq, d.reached.LastTime = from.WarmSeq-1, from.WarmTime
		d.warmStarts = append(d.warmStarts, warmStart{from.WarmSeq, from.WarmTime})
	}
	return d
}

// Repeats returns the event ids that a later event could repeat, in order of their keys.
func (d *Decoder) Repeats() []Repeat { return d.window.repeatsSince(d.reached.LastTime - Horizon + 1) }

// WarmUpFrom returns the sequence of the first envelope that must be passed to the decoder. If
// there are event ids to remember, that envelope is at or before the cursor; otherwise it is the
// next one.
func (d *Decoder) WarmUpFrom() uint64 {
	if d.start.WarmSeq > 0 && d.start.WarmSeq <= d.start.Seq {
		return d.start.WarmSeq
	}
	return d.start.Seq + 1
}

// Seq returns the sequence of the last decoded envelope.
func (d *Decoder) Seq() uint64 { return d.reached.Seq }

// IsWarmingUp reports whether the decoder has not yet reached the cursor that it was made from.
func (d *Decoder) IsWarmingUp() bool { return d.warming }

// Decode decodes the body of the message with the given sequence and timestamp of the stream.
// Sequences must rise, but need not be consecutive. The returned envelope does not share memory
// with data.
//
// During the warm-up Decode returns nil, because the caller already has the envelope. At the end of
// the warm-up it compares the cursor that it has computed with the cursor that the decoder was made
// from.
func (d *Decoder) Decode(seq uint64, stamp Micros, data []byte) (*Envelope, error) {
	if err := d.checkOrder(seq); err != nil {
		return nil, err
	}

	env := &Envelope{Bytes: len(data)}
	slots := d.decodeEvents(seq, data, env)
	if slots > 0 {
		// A malformed event takes a slot and so a time, too. Otherwise times would depend on which
		// events this version can read.
		first := max(stamp, d.reached.LastTime+1)
		d.noteWarmStart(seq, first)
		d.assignTimes(env, first, data)
		d.reached.LastTime = first + Micros(slots-1)
	} else if len(d.warmStarts) == 0 {
		// The first envelope of a log has no events. A cursor always names a start of the warm-up.
		d.warmStarts = append(d.warmStarts, warmStart{seq, d.reached.LastTime})
	}

	d.reached.Seq = seq
	d.reached.Checksum = xxh3.Hash(data)
	env.Cursor = d.takeCursor()
	if d.warming {
		return nil, d.checkWarmUp(env.Cursor)
	}
	return env, nil
}

// checkOrder returns [ErrSequenceOrder] unless the sequence rises. During the warm-up it returns
// [ErrRewritten] if the first or the last envelope of the warm-up is missing.
func (d *Decoder) checkOrder(seq uint64) error {
	if seq <= d.reached.Seq {
		return fmt.Errorf("%w: %d after %d", ErrSequenceOrder, seq, d.reached.Seq)
	}
	if !d.warming {
		return nil
	}

	first := d.start.WarmSeq
	if d.reached.Seq == first-1 && seq != first {
		return fmt.Errorf("%w: the log no longer has sequence %d, from which to warm up", ErrRewritten, first)
	}
	if seq > d.start.Seq {
		return fmt.Errorf("%w: it lacks sequence %d", ErrRewritten, d.start.Seq)
	}
	return nil
}

// checkWarmUp ends the warm-up if it has reached the cursor that the decoder was made from, and
// compares the computed cursor with it.
func (d *Decoder) checkWarmUp(now Cursor) error {
	if now.Seq < d.start.Seq {
		return nil
	}
	d.warming = false

	isSameOrLost := now.Checksum == d.start.Checksum || now.Checksum == lostChecksum
	if d.passedLost && now != d.start && isSameOrLost {
		// The cursor is that of a store that folded envelopes which were lost later, so the warm-up
		// could not read all of them. Times continue after those that the store knows.
		d.reached.LastTime = max(d.reached.LastTime, d.start.LastTime)
		return nil
	}
	if now != d.start {
		return fmt.Errorf("%w: sequence %d differs", ErrRewritten, now.Seq)
	}
	return nil
}

// decodeEvents decodes the events into the envelope and returns how many slots they take, which is
// 0 if the envelope cannot be decoded. It sets the slots of the events, but not their times.
func (d *Decoder) decodeEvents(seq uint64, data []byte, env *Envelope) (slots int) {
	spans, rejection := splitEnvelope(d.spans[:0], data)
	d.spans = spans[:0] // splitEnvelope may have made a larger slice, which the next envelope uses, too
	if rejection != nil {
		env.addReject(seq, -1, rejection, data)
		return 0
	}
	if len(spans) == 0 {
		return 0
	}

	b := body{data: data, text: string(data)}
	evs := make([]Event, len(spans))
	n := 0 // the number of valid events, which are at the front
	for slot, s := range spans {
		ev := &evs[n]
		r, decoded := b.decodeEvent(s, ev)
		if !decoded {
			// One event that is no message makes the whole envelope unreadable, including the
			// events before it.
			env.Rejects = nil
			env.addReject(seq, -1, r, data)
			return 0
		}
		if r != nil {
			env.addReject(seq, slot, r, data[s.from:s.to])
			continue
		}
		ev.Seq, ev.Slot = seq, uint16(slot)
		n++
	}
	env.Events = evs[:n]
	return len(spans)
}

// addReject records that the event at a slot was refused, or the whole envelope if the slot is -1.
// data is the refused event or envelope.
func (e *Envelope) addReject(seq uint64, slot int, r *Rejection, data []byte) {
	r.Index = max(slot, 0)
	data = data[:min(len(data), MaxRejectData)]
	e.Rejects = append(e.Rejects, Reject{Seq: seq, Slot: slot, Rejection: *r, Data: append([]byte(nil), data...)})
}

// assignTimes sets the times of the events, of which the first slot has the time first, and removes
// the repeats. A repeat with the same content is only counted; an event that reuses an event id for
// something else becomes a reject.
func (d *Decoder) assignTimes(env *Envelope, first Micros, data []byte) {
	// Without this, a log whose events stop having ids would keep the last ones in memory.
	d.window.forgetBefore(first)
	spans := d.spans[:cap(d.spans)] // decodeEvents has emptied the slice, but its content is still there
	rejectsBefore := len(env.Rejects)

	n := 0 // the events that are kept are moved to the front
	for i := range env.Events {
		ev := &env.Events[i]
		logTime := first + Micros(ev.Slot)

		if ev.ID != "" {
			key, content := RepeatKey(ev), ContentKey(ev)
			// Both keys are remembered whether or not the event is dropped, so that a reader that
			// starts later decides alike.
			repeat := d.window.remember(key, logTime)
			same := d.window.remember(content, logTime)
			if repeat {
				env.Repeated = append(env.Repeated, Repeat{Key: key, Time: logTime}, Repeat{Key: content, Time: logTime})
			}
			if repeat && !same {
				s := spans[ev.Slot]
				env.addReject(ev.Seq, int(ev.Slot), reusedIDRejection(), data[s.from:s.to])
				continue
			}
			if repeat {
				env.Repeats++
				continue
			}
		}

		// A backfill has its own time, but never one after its log time.
		if !ev.Backfill || ev.Time > logTime {
			ev.Time = logTime
		}

		env.Kinds |= 1 << ev.Kind
		if n != i {
			env.Events[n] = *ev
		}
		n++
	}
	clear(env.Events[n:]) // so that nothing refers to the dropped events
	env.Events = env.Events[:n]

	// The new rejects come after those of decodeEvents.
	if len(env.Rejects) > rejectsBefore {
		slices.SortStableFunc(env.Rejects, func(a, b Reject) int { return cmp.Compare(a.Slot, b.Slot) })
	}
}

func reusedIDRejection() *Rejection {
	return newRejection(skeinv1.Reason_REASON_EVENT_ID_REUSED, "event_id",
		"must be new: within 15 minutes another event of the same user and kind had it and said something else")
}

// noteWarmStart records an envelope as a possible start of a warm-up if it is the first envelope of
// its second of log time. One start per second keeps the list short.
func (d *Decoder) noteWarmStart(seq uint64, first Micros) {
	const second = Micros(time.Second / time.Microsecond)
	if n := len(d.warmStarts); n == 0 || (first/second > d.reached.LastTime/second && seq > d.warmStarts[n-1].seq) {
		d.warmStarts = append(d.warmStarts, warmStart{seq, d.reached.LastTime})
	}
}

// takeCursor returns the cursor after the last decoded envelope, and drops the warm-up starts that
// no later cursor can need. The warm-up of a cursor starts at the newest envelope that has the
// whole horizon at or after it. That may be an old envelope if the clock went back and log time
// hardly moved. The warm-up starts depend on the log alone, and so does the cursor.
func (d *Decoder) takeCursor() Cursor {
	c := d.reached

	skip := 0
	for skip+1 < len(d.warmStarts) && d.warmStarts[skip+1].lastTime <= c.LastTime-Horizon {
		skip++
	}
	d.warmStarts = d.warmStarts[skip:]

	c.WarmSeq = d.warmStarts[0].seq
	c.WarmTime = d.warmStarts[0].lastTime
	return c
}
