package eventlog

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// memoryArchive is an archive in memory. It returns the envelopes that a reader of the stream got,
// in the form in which an archive returns them.
type memoryArchive struct {
	mu          sync.Mutex
	envs        []*events.Envelope
	archivedLen int // how many of envs are archived
	repeats     []events.Repeat
	readCount   int                               // calls of Read
	nextError   func(next *events.Envelope) error // returns the error of Next in front of an envelope, or nil
}

// setLength sets the number of archived envelopes.
func (p *memoryArchive) setLength(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.archivedLen = n
}

// End is part of [events.Archive].
func (p *memoryArchive) End() events.Cursor {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.archivedLen == 0 {
		return events.Cursor{}
	}
	return p.envs[p.archivedLen-1].Cursor
}

// Repeats returns the field repeats, or else the event ids within the horizon before the end.
func (p *memoryArchive) Repeats(context.Context, uint32) ([]events.Repeat, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.repeats != nil || p.archivedLen == 0 {
		return p.repeats, nil
	}
	var list []events.Repeat
	for _, env := range p.envs[:p.archivedLen] {
		list = append(list, env.Repeated...)
		for i := range env.Events {
			ev := &env.Events[i]
			if ev.ID == "" {
				continue
			}
			seenAt := ev.Time
			if ev.Backfill {
				seenAt = env.Cursor.LastTime
			}
			list = append(list,
				events.Repeat{Key: events.RepeatKey(ev), Time: seenAt},
				events.Repeat{Key: events.ContentKey(ev), Time: seenAt})
		}
	}

	end := p.envs[p.archivedLen-1].Cursor.LastTime
	return slices.DeleteFunc(list, func(r events.Repeat) bool { return r.Time < end-events.Horizon }), nil
}

// Read is part of [events.Archive].
func (p *memoryArchive) Read(ctx context.Context, from events.Cursor, kinds events.KindSet) (events.ArchiveReader, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.readCount++
	envs := p.envs[:p.archivedLen]
	nextIndex := 0
	if from.Seq > 0 {
		i := slices.IndexFunc(envs, func(e *events.Envelope) bool { return e.Seq() == from.Seq })
		if i < 0 || from.LastTime != 0 && envs[i].Cursor.LastTime != from.LastTime || envs[i].Cursor.Log != from.Log {
			return nil, fmt.Errorf("%w: %+v", events.ErrRewritten, from)
		}
		nextIndex = i + 1
	}
	return &memoryArchiveReader{archive: p, ctx: ctx, envs: envs, nextIndex: nextIndex, kinds: kinds}, nil
}

// memoryArchiveReader is a reader of a memoryArchive.
type memoryArchiveReader struct {
	archive   *memoryArchive
	ctx       context.Context // ends with the reading, like the files of a bucket
	envs      []*events.Envelope
	nextIndex int
	kinds     events.KindSet
}

// Next is part of [events.ArchiveReader].
func (r *memoryArchiveReader) Next(ctx context.Context, maxBytes int) (envs []*events.Envelope, err error) {
	for bytes := 0; r.nextIndex < len(r.envs) && bytes < maxBytes; r.nextIndex++ {
		env := r.envs[r.nextIndex]
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		if r.archive.nextError != nil {
			if err := r.archive.nextError(env); err != nil {
				return nil, err
			}
		}

		// The archive leaves out envelopes without the kinds, except for its last one, which has a
		// complete cursor.
		isLast := r.nextIndex == len(r.envs)-1
		hasKinds := r.kinds == events.AllKinds || env.Kinds&r.kinds != 0
		if !hasKinds && len(env.Rejects) == 0 && !isLast {
			continue
		}
		archived := toArchivalEnvelope(env)
		if isLast {
			archived.Cursor = env.Cursor
		}
		envs = append(envs, archived)
		bytes += archived.Bytes
	}

	if len(envs) == 0 {
		return nil, io.EOF
	}
	return envs, ctx.Err()
}

// Close is part of [events.ArchiveReader].
func (*memoryArchiveReader) Close() {}

// toArchivalEnvelope returns an envelope in the form in which an archive returns it: without event
// ids, checksum and warm-up start.
func toArchivalEnvelope(env *events.Envelope) *events.Envelope {
	e := *env
	e.Events = slices.Clone(env.Events)
	for i := range e.Events {
		e.Events[i].ID = ""
	}
	c := env.Cursor
	e.Cursor = events.Cursor{Log: c.Log, Epoch: c.Epoch, Seq: c.Seq, LastTime: c.LastTime}
	return &e
}

// equalInArchive compares the envelopes of two readers, either of which may have read the archive.
func equalInArchive(a, b *events.Envelope) bool {
	x, y := toArchivalEnvelope(a), toArchivalEnvelope(b)
	x.Cursor.Epoch, y.Cursor.Epoch = 0, 0
	return equalEnvelopes(x, y)
}

// runInBubble runs a test in a synctest bubble. The test uses a real server, and the clock advances
// only while all goroutines wait.
func runInBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()

	// All file stores of the server share one clock, which must be started outside the bubble.
	mustOpenLog(t, Config{})
	synctest.Test(t, test)
}

// historyStep is one envelope of a history.
type historyStep struct {
	// wait is the time before the envelope.
	wait   time.Duration
	events []*skeinv1.Event
	// garbage is true if the body of the message is malformed.
	garbage bool
}

// drawHistory returns a generator of histories of n envelopes, with repeats, backfills, malformed
// events and messages, and pauses of all lengths.
func drawHistory(n int) *rapid.Generator[[]historyStep] {
	event := rapid.Custom(func(t *rapid.T) *skeinv1.Event {
		user := rapid.SampledFrom([]string{"ann", "bob", "17"}).Draw(t, "user")
		id := rapid.SampledFrom([]string{"", "r1", "r2", "r3"}).Draw(t, "id")
		switch rapid.IntRange(0, 9).Draw(t, "sort") {
		case 0:
			return newMalformedLike(user, id)
		case 1:
			return asBackfill(newLike(user, "film", id), 1)
		case 2, 3:
			return &skeinv1.Event{EventId: id, Kind: &skeinv1.Event_UserFollowed{
				UserFollowed: &skeinv1.UserFollowed{UserId: user, TargetUserId: "author"},
			}}
		}

		return newLike(user, "film", id)
	})
	envelope := rapid.Custom(func(t *rapid.T) historyStep {
		return historyStep{
			wait: rapid.SampledFrom([]time.Duration{
				0, time.Microsecond, time.Second, time.Minute, 4 * time.Minute, 15 * time.Minute, time.Hour,
			}).Draw(t, "wait"),
			events:  rapid.SliceOfN(event, 1, 5).Draw(t, "events"),
			garbage: rapid.IntRange(0, 9).Draw(t, "garbage") == 0,
		}
	})
	return rapid.SliceOfN(envelope, n, n)
}

// appendHistory publishes a history with a plain NATS client.
func appendHistory(t *testing.T, l *Log, steps []historyStep) {
	t.Helper()
	for _, s := range steps {
		if err := wait.For(context.Background(), s.wait); err != nil { // in a bubble this takes no time
			t.Fatal(err)
		}
		data := mustEncode(t, s.events...)
		if s.garbage {
			data = append(data, 0xff)
		}
		if _, err := l.conn.js.Publish(testContext(t), Subject, data); err != nil {
			t.Fatal(err)
		}
	}
}

// readFromCursor reads with a new reader from a cursor up to a sequence.
func readFromCursor(t testing.TB, l *Log, from events.Cursor, to uint64, maxBytes int) (envs []*events.Envelope) {
	t.Helper()
	r := newReader(l, from)
	defer r.close()
	for last := from.Seq; last < to; last = envs[len(envs)-1].Seq() {
		more, err := r.nextEnvelopes(testContext(t), maxBytes)
		if err != nil {
			t.Fatalf("read from %+v: %v", from, err)
		}
		envs = append(envs, more...)
	}

	return envs
}

// checkSameEnvelopes compares the envelopes that were read after a sequence with all envelopes of
// the history.
func checkSameEnvelopes(t testing.TB, what string, got, all []*events.Envelope, after uint64) {
	t.Helper()
	want := all[after-all[0].Seq()+1:]
	for i := range min(len(got), len(want)) {
		if !equalInArchive(got[i], want[i]) {
			t.Fatalf("%s: reader from %d: got\n%+v, want\n%+v", what, after, got[i], want[i])
		}
	}

	if len(got) != len(want) {
		t.Fatalf("%s: reader from %d: got %d envelopes, want %d", what, after, len(got), len(want))
	}
}

// toArchivalCursor returns a cursor in the form in which an archive returns it: without checksum
// and warm-up start.
func toArchivalCursor(c events.Cursor) events.Cursor {
	return events.Cursor{Log: c.Log, Epoch: c.Epoch, Seq: c.Seq, LastTime: c.LastTime}
}
