package events

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// loggedMessage is a message of a log.
type loggedMessage struct {
	seq   uint64
	stamp Micros
	data  []byte
}

// drawLog returns a generator of logs with few users and event ids, so that there are repeats, with
// malformed events, and with a clock that jumps.
func drawLog() *rapid.Generator[[]loggedMessage] {
	event := rapid.Custom(func(t *rapid.T) *skeinv1.Event {
		user := rapid.SampledFrom([]string{"ann", "bob", "17"}).Draw(t, "user")
		id := rapid.SampledFrom([]string{"", "r1", "r2", "r3"}).Draw(t, "id")
		msg := newLike(user, rapid.SampledFrom([]string{"film", "film", "book"}).Draw(t, "item"), id)
		switch rapid.IntRange(0, 9).Draw(t, "sort") {
		case 0:
			return newMalformedLike(user, id)
		case 1:
			return asBackfill(msg, 1)
		case 2:
			return &skeinv1.Event{EventId: id, Kind: &skeinv1.Event_ItemScored{ItemScored: &skeinv1.ItemScored{ItemId: "film"}}}
		}

		return msg
	})

	// The clock mostly stands still or advances a little, and sometimes jumps.
	const second, hour = minute / 60, 60 * minute
	step := rapid.OneOf(
		rapid.SampledFrom([]Micros{0, 1, second, minute, Horizon - 1, Horizon, Horizon + 1, hour, -hour, -second, -1}),
		rapid.Custom(func(t *rapid.T) Micros { return Micros(rapid.Int64Range(0, int64(3*second)).Draw(t, "step")) }),
		rapid.Custom(func(t *rapid.T) Micros { return Micros(rapid.Int64Range(int64(-hour), int64(hour)).Draw(t, "jump")) }),
	)
	return rapid.Custom(func(t *rapid.T) []loggedMessage {
		clock := rapid.SampledFrom([]Micros{epoch2023, epoch2023, 0, Horizon}).Draw(t, "start")
		seq := uint64(0)
		var log []loggedMessage
		for range rapid.IntRange(1, 40).Draw(t, "envelopes") {
			clock = max(0, clock+step.Draw(t, "clock"))
			seq += rapid.SampledFrom([]uint64{1, 1, 1, 2, 1000}).Draw(t, "gap")

			msgs := rapid.SliceOfN(event, 0, 5).Draw(t, "events")
			var data []byte
			if len(msgs) > 0 {
				var err error
				if data, err = EncodeEnvelope(msgs); err != nil {
					t.Fatal(err)
				}
			}

			if rapid.IntRange(0, 9).Draw(t, "damage") == 0 {
				data = append(data, 0xff)
			}
			log = append(log, loggedMessage{seq, clock, data})
		}

		return log
	})
}

// decodeFromStart decodes a log from its start.
func decodeFromStart(t interface{ Fatal(...any) }, log []loggedMessage) (envs []*Envelope) {
	d := NewDecoder(Cursor{})
	for _, m := range log {
		env, err := d.Decode(m.seq, m.stamp, m.data)
		if err != nil {
			t.Fatal(err)
		}
		envs = append(envs, env)
	}

	return envs
}

// equalEnvelopes compares two envelopes. Nil and empty lists of events are equal.
func equalEnvelopes(a, b *Envelope) bool {
	if len(a.Events)+len(b.Events) == 0 {
		x := *a
		y := *b
		x.Events = nil
		y.Events = nil
		return reflect.DeepEqual(x, y)
	}
	return reflect.DeepEqual(a, b)
}

// modelDecode is a simple implementation of the rules of the decoder. It remembers all events and
// searches them all.
func modelDecode(log []loggedMessage) (envs []*Envelope) {
	type occurrence struct {
		ev   Event
		time Micros
	}
	type timeSpan struct {
		seq                 uint64
		before, first, last Micros // before is the last time of the envelope before
	}
	var (
		seen     []occurrence
		spans    []timeSpan
		lastTime Micros
		warmSeq  = log[0].seq
	)
	for _, m := range log {
		evs, rejects, slots := referenceDecode(m.data)
		env := &Envelope{Bytes: len(m.data)}
		for slot := -1; slot < slots; slot++ {
			if r, ok := rejects[slot]; ok {
				env.Rejects = append(env.Rejects, Reject{Seq: m.seq, Slot: slot, Rejection: r})
			}
		}

		// Each event takes a time, also if it is a repeat.
		first := max(m.stamp, lastTime+1)
		for _, ev := range evs {
			logTime := first + Micros(ev.Slot)
			isRepeat := false
			hasSameContent := false
			content := ev
			content.Slot = 0
			content.Time = 0
			for _, earlier := range seen {
				hasSameKey := earlier.ev.User == ev.User && earlier.ev.ID == ev.ID && earlier.ev.Kind == ev.Kind
				if ev.ID != "" && hasSameKey && logTime-earlier.time <= Horizon {
					isRepeat = true
					hasSameContent = hasSameContent || reflect.DeepEqual(earlier.ev, content)
				}
			}

			seen = append(seen, occurrence{content, logTime})
			if isRepeat {
				env.Repeated = append(env.Repeated,
					Repeat{Key: RepeatKey(&ev), Time: logTime},
					Repeat{Key: ContentKey(&ev), Time: logTime})
				if hasSameContent {
					env.Repeats++
					continue
				}

				// The event id was used for another content.
				r := *reusedIDRejection()
				r.Index = int(ev.Slot)
				env.Rejects = append(env.Rejects, Reject{Seq: m.seq, Slot: int(ev.Slot), Rejection: r})
				slices.SortFunc(env.Rejects, func(a, b Reject) int { return a.Slot - b.Slot })
				continue
			}

			ev.Seq = m.seq
			if !ev.Backfill || ev.Time > logTime {
				ev.Time = logTime
			}
			env.Events = append(env.Events, ev)
			env.Kinds |= Kinds(ev.Kind)
		}

		if slots > 0 {
			spans = append(spans, timeSpan{m.seq, lastTime, first, first + Micros(slots) - 1})
			lastTime = first + Micros(slots) - 1
		}
		env.Cursor = Cursor{Seq: m.seq, Checksum: xxh3.Hash(m.data), LastTime: lastTime, WarmSeq: warmSeq}

		// The warm-up starts at the newest envelope that begins a second and has nothing of the
		// horizon before it.
		for i := range spans {
			beginsSecond := spans[i].first/1_000_000 > spans[i].before/1_000_000
			if beginsSecond && spans[i].before <= lastTime-Horizon {
				env.Cursor.WarmSeq = spans[i].seq
				env.Cursor.WarmTime = spans[i].before
			}
		}

		envs = append(envs, env)
	}

	return envs
}

// TestDecoderMatchesModel demands that the decoder returns the same envelopes as a simple model of
// its rules, for logs with repeats, malformed events and a clock that jumps (I5, I6, I11).
func TestDecoderMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog().Draw(t, "log")
		want := modelDecode(log)
		for i, got := range decodeFromStart(t, log) {
			// The model knows neither the data of rejects nor why an envelope cannot be decoded.
			for j := range got.Rejects {
				got.Rejects[j].Data = nil
				if got.Rejects[j].Slot < 0 {
					got.Rejects[j].Rejection = Rejection{}
				}
			}

			if !equalEnvelopes(got, want[i]) {
				t.Fatalf("envelope %d: got\n%+v, want\n%+v", i, got, want[i])
			}
		}
	})
}

// TestDecoderStartsAnywhere demands that a decoder that starts at any cursor returns the same
// envelopes, with the same cursors, as one that started at the beginning (I5, I6).
func TestDecoderStartsAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog().Draw(t, "log")
		want := decodeFromStart(t, log)
		for i := range want {
			from := want[i].Cursor
			d := NewDecoder(from)
			if !d.IsWarmingUp() || d.WarmUpFrom() != from.WarmSeq {
				t.Fatalf("decoder from %+v: got warming %v from %d, want the warm-up of the cursor", from, d.IsWarmingUp(), d.WarmUpFrom())
			}

			// The decoder returns no envelope up to the cursor, and the same ones after it.
			for j, m := range log {
				if m.seq < d.WarmUpFrom() {
					continue
				}
				if d.IsWarmingUp() != (m.seq <= from.Seq) {
					t.Fatalf("decoder from %d at %d: got warming %v, want it only before the cursor", from.Seq, m.seq, d.IsWarmingUp())
				}
				env, err := d.Decode(m.seq, m.stamp, m.data)
				if err != nil {
					t.Fatalf("decoder from %+v at %d: %v", from, m.seq, err)
				}
				if wantEnvelope := j > i; (env != nil) != wantEnvelope {
					t.Fatalf("decoder from %+v at %d: got envelope %+v, want one: %v", from, m.seq, env, wantEnvelope)
				}
				if env != nil && !equalEnvelopes(env, want[j]) {
					t.Fatalf("decoder from %+v: got\n%+v, want\n%+v", from, env, want[j])
				}
			}
		}
	})
}

// TestWarmStartIsClose demands that the warm-up starts at least one horizon before the cursor and,
// if the clock does not jump, at most two seconds before that.
func TestWarmStartIsClose(t *testing.T) {
	f := newFeeder(t)
	const perSecond = 4
	for i := range Micros(3 * 15 * 60 * perSecond) {
		env := f.feed(epoch2023+i*1_000_000/perSecond, newLike("a", "1", ""))
		c := env.Cursor
		back := c.LastTime - c.WarmTime
		if i > 15*60*perSecond+perSecond && (back < Horizon || back > Horizon+2_000_000) {
			t.Fatalf("warm-up of envelope %d: got %d µs before it, want between %d and %d", i, back, Horizon, Horizon+2_000_000)
		}
		if n := len(f.d.warmStarts); n > 15*60+3 {
			t.Fatalf("warm-up starts: got %d, want at most one per second of the horizon", n)
		}
	}
}

// TestRewrittenLogIsNoticed demands that the decoder notices at the cursor if the log before the
// cursor differs from the log from which the cursor was taken.
func TestRewrittenLogIsNoticed(t *testing.T) {
	var log []loggedMessage
	for i := range uint64(6) {
		data := mustEncode(t, newLike("a", "1", ""), newLike("b", "2", "r"))
		log = append(log, loggedMessage{i + 1, epoch2023 + Micros(i)*6*minute, data})
	}
	envs := decodeFromStart(t, log)

	otherData := mustEncode(t, newLike("a", "1", ""))
	for name, test := range map[string]struct {
		changeLog    func([]loggedMessage) []loggedMessage
		changeCursor func(*Cursor)
		want         error
	}{
		"the same":              {nil, nil, nil},
		"other bytes":           {func(l []loggedMessage) []loggedMessage { l[4].data = otherData; return l }, nil, ErrRewritten},
		"other times":           {func(l []loggedMessage) []loggedMessage { l[4].stamp++; return l }, nil, ErrRewritten},
		"times that caught up":  {func(l []loggedMessage) []loggedMessage { l[3].stamp++; return l }, nil, nil},
		"the last one missing":  {func(l []loggedMessage) []loggedMessage { return append(l[:4], l[5:]...) }, nil, ErrRewritten},
		"the first one missing": {func(l []loggedMessage) []loggedMessage { return l[3:] }, nil, ErrRewritten},
		"another checksum":      {nil, func(c *Cursor) { c.Checksum++ }, ErrRewritten},
		"another last time":     {nil, func(c *Cursor) { c.LastTime++ }, ErrRewritten},
	} {
		t.Run(name, func(t *testing.T) {
			from := envs[4].Cursor
			changedLog := slices.Clone(log)
			if from.WarmSeq != 3 {
				t.Fatalf("cursor: got %+v, want a warm-up from 3", from)
			}
			if test.changeCursor != nil {
				test.changeCursor(&from)
			}
			if test.changeLog != nil {
				changedLog = test.changeLog(changedLog)
			}

			d := NewDecoder(from)
			var err error
			for _, m := range changedLog {
				if m.seq >= d.WarmUpFrom() && err == nil {
					_, err = d.Decode(m.seq, m.stamp, m.data)
				}
			}

			if !errors.Is(err, test.want) {
				t.Errorf("Decode up to the cursor: got error %v, want %v", err, test.want)
			}
		})
	}
}
