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

// Horizon is how long an event id is remembered, in log time (I6).
const Horizon = Micros(15 * time.Minute / time.Microsecond)

// Errors of [Decoder.Decode]. The decoder is of no use after one.
var (
	// ErrRewritten: the log does not hold what the cursor was taken after.
	ErrRewritten = errors.New("events: the log is not the one that the cursor was taken from")
	// ErrNotRising: an envelope came twice, or too late.
	ErrNotRising = errors.New("events: sequences do not rise")
)

// MaxRejectData is how much of a malformed event a [Reject] keeps, in bytes.
const MaxRejectData = 256

// Decoder is the pure core of every reader: it turns the messages of the log, in order, into envelopes. The envelopes
// depend on the log alone, not on where the decoder has started. It is not safe for concurrent use.
type Decoder struct {
	from    Cursor // where the caller stands
	cur     Cursor // after the last envelope decoded; Warm fields are not kept up to date
	warming bool
	// lost: an accepted hole was passed over.
	lost bool

	warmStarts []warmStart
	window     window
	spans      []span // scratch
}

// warmStart is an envelope at which a decoder could start to warm up.
type warmStart struct {
	seq uint64
	// last is the last time given before the envelope.
	last Micros
}

// NewDecoder returns a decoder that continues after the cursor. It must be fed the envelopes from
// [Decoder.WarmFrom] on.
func NewDecoder(from Cursor) *Decoder {
	d := &Decoder{from: from, cur: from}
	if from.WarmSeq > 0 && from.WarmSeq <= from.Seq {
		d.warming = true
		d.cur.Seq, d.cur.LastTime = from.WarmSeq-1, from.WarmTime
		d.warmStarts = append(d.warmStarts, warmStart{from.WarmSeq, from.WarmTime})
	}
	return d
}

// Repeats returns what the decoder remembers of event ids: all that a later event could repeat, by key.
func (d *Decoder) Repeats() []Repeat { return d.window.since(d.cur.LastTime - Horizon + 1) }

// WarmFrom returns the sequence of the first envelope that the decoder must be fed: at or before the cursor when
// there are event ids to remember, else the one after it.
func (d *Decoder) WarmFrom() uint64 {
	if d.from.WarmSeq > 0 && d.from.WarmSeq <= d.from.Seq {
		return d.from.WarmSeq
	}
	return d.from.Seq + 1
}

// Seq returns the sequence of the last envelope decoded.
func (d *Decoder) Seq() uint64 { return d.cur.Seq }

// Warming reports whether the decoder has yet to read up to the cursor that it was made from.
func (d *Decoder) Warming() bool { return d.warming }

// Decode decodes the envelope with a sequence, which must rise but may skip, and the stream's timestamp. While
// the decoder is warming up the envelope is nil: the caller has it already. The last of these is checked against
// the cursor. The envelope does not share memory with data.
func (d *Decoder) Decode(seq uint64, stamp Micros, data []byte) (*Envelope, error) {
	if err := d.admit(seq); err != nil {
		return nil, err
	}
	env := &Envelope{Bytes: len(data)}
	slots := d.parse(seq, data, env)
	if slots > 0 {
		// A malformed event takes its time too, so that times do not depend on what a version can read.
		first := max(stamp, d.cur.LastTime+1)
		d.noteWarmStart(seq, first)
		d.finish(env, first, data)
		d.cur.LastTime = first + Micros(slots-1)
	} else if len(d.warmStarts) == 0 {
		d.warmStarts = append(d.warmStarts, warmStart{seq, d.cur.LastTime})
	}
	d.cur.Seq, d.cur.Checksum = seq, xxh3.Hash(data)
	env.Cursor = d.cursor()
	if d.warming {
		return nil, d.warmed(env.Cursor)
	}
	return env, nil
}

// admit checks the order of the envelopes.
func (d *Decoder) admit(seq uint64) error {
	if seq <= d.cur.Seq {
		return fmt.Errorf("%w: %d after %d", ErrNotRising, seq, d.cur.Seq)
	}
	if !d.warming {
		return nil
	}
	if start := d.from.WarmSeq; d.cur.Seq == start-1 && seq != start {
		return fmt.Errorf("%w: the log no longer has sequence %d, from which to warm up", ErrRewritten, start)
	}
	if seq > d.from.Seq {
		return fmt.Errorf("%w: it lacks sequence %d", ErrRewritten, d.from.Seq)
	}
	return nil
}

// warmed compares a cursor of the warm-up with the one that the decoder was made from.
func (d *Decoder) warmed(now Cursor) error {
	if now.Seq < d.from.Seq {
		return nil
	}
	d.warming = false
	if d.lost && now != d.from && (now.Checksum == d.from.Checksum || now.Checksum == lostChecksum) {
		// The cursor is of a store that folded what was lost since. Times continue after those that it knows.
		d.cur.LastTime = max(d.cur.LastTime, d.from.LastTime)
		return nil
	}
	if now != d.from {
		return fmt.Errorf("%w: sequence %d differs", ErrRewritten, now.Seq)
	}
	return nil
}

// parse decodes the events into the envelope and returns how many slots they take: 0 for an envelope that does
// not decode. Slots are set, times are not.
func (d *Decoder) parse(seq uint64, data []byte, env *Envelope) (slots int) {
	spans, r := splitEnvelope(d.spans[:0], data)
	d.spans = spans[:0]
	if r != nil {
		env.refuse(seq, -1, r, data)
		return 0
	}
	if len(spans) == 0 {
		return 0
	}
	b := body{data: data, text: string(data)}
	evs := make([]Event, len(spans))
	n := 0
	for slot, s := range spans {
		ev := &evs[n]
		r, decoded := b.decodeEvent(s, ev)
		if !decoded {
			env.Rejects = nil
			env.refuse(seq, -1, r, data)
			return 0
		}
		if r != nil {
			env.refuse(seq, slot, r, data[s.from:s.to])
			continue
		}
		ev.Seq, ev.Slot = seq, uint16(slot)
		n++
	}
	env.Events = evs[:n]
	return len(spans)
}

func (e *Envelope) refuse(seq uint64, slot int, r *Rejection, data []byte) {
	r.Index = max(slot, 0)
	data = data[:min(len(data), MaxRejectData)]
	e.Rejects = append(e.Rejects, Reject{Seq: seq, Slot: slot, Rejection: *r, Data: append([]byte(nil), data...)})
}

// finish gives the events their times, the first slot's being given, and drops the repeats: in silence those that say what was
// said within the horizon with their id, and as rejects the others.
func (d *Decoder) finish(env *Envelope, first Micros, data []byte) {
	d.window.advance(first)
	spans, refused := d.spans[:cap(d.spans)], len(env.Rejects)
	n := 0
	for i := range env.Events {
		ev := &env.Events[i]
		logTime := first + Micros(ev.Slot)
		if ev.ID != "" {
			key, content := RepeatKey(ev), ContentKey(ev)
			repeat, same := d.window.add(key, logTime), d.window.add(content, logTime)
			if repeat {
				env.Repeated = append(env.Repeated, Repeat{Key: key, Time: logTime}, Repeat{Key: content, Time: logTime})
			}
			if repeat && !same {
				s := spans[ev.Slot]
				env.refuse(ev.Seq, int(ev.Slot), reusedID(), data[s.from:s.to])
				continue
			}
			if repeat {
				env.Repeats++
				continue
			}
		}
		if !ev.Backfill || ev.Time > logTime {
			ev.Time = logTime
		}
		env.Kinds |= 1 << ev.Kind
		if n != i {
			env.Events[n] = *ev
		}
		n++
	}
	clear(env.Events[n:])
	env.Events = env.Events[:n]
	if len(env.Rejects) > refused {
		slices.SortStableFunc(env.Rejects, func(a, b Reject) int { return cmp.Compare(a.Slot, b.Slot) })
	}
}

func reusedID() *Rejection {
	return reject(skeinv1.Reason_REASON_EVENT_ID_REUSED, "event_id",
		"must be new: within 15 minutes another event of the same user and kind had it and said something else")
}

// noteWarmStart notes an envelope with times if it is the first that begins in its second: from there a warm-up may start.
func (d *Decoder) noteWarmStart(seq uint64, first Micros) {
	const second = Micros(time.Second / time.Microsecond)
	if n := len(d.warmStarts); n == 0 || (first/second > d.cur.LastTime/second && seq > d.warmStarts[n-1].seq) {
		d.warmStarts = append(d.warmStarts, warmStart{seq, d.cur.LastTime})
	}
}

// cursor returns where the decoder stands, and forgets the warm-up starts that no later cursor can need. The warm-up start is the
// newest with nothing of the horizon before it: where the clock jumped back and log time hardly moves, an old one.
// The warm-up starts depend on the log alone, so the cursor does too.
func (d *Decoder) cursor() Cursor {
	c := d.cur
	skip := 0
	for skip+1 < len(d.warmStarts) && d.warmStarts[skip+1].last <= c.LastTime-Horizon {
		skip++
	}
	d.warmStarts = d.warmStarts[skip:]
	c.WarmSeq, c.WarmTime = d.warmStarts[0].seq, d.warmStarts[0].last
	return c
}
