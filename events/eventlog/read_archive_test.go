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

// memoryArchive is an archive in memory: what a reader of the stream was given, as an archive keeps it.
type memoryArchive struct {
	mu          sync.Mutex
	envs        []*events.Envelope
	archivedLen int // of envs
	repeats     []events.Repeat
	readCount   int                               // readings
	nextError   func(next *events.Envelope) error // what Next meets
}

func (p *memoryArchive) setLength(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.archivedLen = n
}

func (p *memoryArchive) End() events.Cursor {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.archivedLen == 0 {
		return events.Cursor{}
	}
	return p.envs[p.archivedLen-1].Cursor
}

// Repeats returns those given, or else what was seen in the horizon before the end.
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
			ev, at := &env.Events[i], env.Events[i].Time
			if ev.Backfill {
				at = env.Cursor.LastTime
			}
			if ev.ID != "" {
				list = append(list, events.Repeat{Key: events.RepeatKey(ev), Time: at}, events.Repeat{Key: events.ContentKey(ev), Time: at})
			}
		}
	}
	end := p.envs[p.archivedLen-1].Cursor.LastTime
	return slices.DeleteFunc(list, func(r events.Repeat) bool { return r.Time < end-events.Horizon }), nil
}

func (p *memoryArchive) Read(ctx context.Context, from events.Cursor, kinds events.KindSet) (events.ArchiveReader, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readCount++
	at := 0
	if from.Seq > 0 {
		i := slices.IndexFunc(p.envs[:p.archivedLen], func(e *events.Envelope) bool { return e.Seq() == from.Seq })
		if i < 0 || from.LastTime != 0 && p.envs[i].Cursor.LastTime != from.LastTime || p.envs[i].Cursor.Log != from.Log {
			return nil, fmt.Errorf("%w: %+v", events.ErrRewritten, from)
		}
		at = i + 1
	}
	return &memoryArchiveReader{archive: p, ctx: ctx, envs: p.envs[:p.archivedLen], nextIndex: at, kinds: kinds}, nil
}

type memoryArchiveReader struct {
	archive   *memoryArchive
	ctx       context.Context // ends with the reading, as what a bucket gives does
	envs      []*events.Envelope
	nextIndex int
	kinds     events.KindSet
}

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
		last := r.nextIndex == len(r.envs)-1
		if env.Kinds&r.kinds == 0 && len(env.Rejects) == 0 && r.kinds != events.AllKinds && !last {
			continue
		}
		env = toArchivalEnvelope(env)
		if last {
			env.Cursor = r.envs[r.nextIndex].Cursor
		}
		envs = append(envs, env)
		bytes += env.Bytes
	}
	if len(envs) == 0 {
		return nil, io.EOF
	}
	return envs, ctx.Err()
}

func (*memoryArchiveReader) Close() {}

// stripped is an envelope as the archive keeps it.
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

// sameButForArchive compares what two readers got, of which one may have read the archive.
func equalInArchive(a, b *events.Envelope) bool {
	x, y := toArchivalEnvelope(a), toArchivalEnvelope(b)
	x.Cursor.Epoch, y.Cursor.Epoch = 0, 0
	return equalEnvelopes(x, y)
}

// inBubble runs a test with a real server, whose clock continues only while all wait.
func runInBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	// The server has one clock for all its file stores, which must not be started in the bubble.
	mustOpenLog(t, Config{})
	synctest.Test(t, test)
}

// step is a part of a history.
type historyStep struct {
	wait   time.Duration
	events []*skeinv1.Event
	// garbage is no envelope.
	garbage bool
}

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
	one := rapid.Custom(func(t *rapid.T) historyStep {
		return historyStep{
			wait: rapid.SampledFrom([]time.Duration{
				0, time.Microsecond, time.Second, time.Minute, 4 * time.Minute, 15 * time.Minute, time.Hour,
			}).Draw(t, "wait"),
			events:  rapid.SliceOfN(event, 1, 5).Draw(t, "events"),
			garbage: rapid.IntRange(0, 9).Draw(t, "garbage") == 0,
		}
	})
	return rapid.SliceOfN(one, n, n)
}

// play appends a history, as any client may.
func appendHistory(t *testing.T, l *Log, steps []historyStep) {
	t.Helper()
	for _, s := range steps {
		if err := wait.For(context.Background(), s.wait); err != nil { // no longer than in a bubble
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

// readFrom reads with a reader of its own until the sequence.
func readFromCursor(t testing.TB, l *Log, from events.Cursor, to uint64, maxBytes int) (envs []*events.Envelope) {
	t.Helper()
	r := newReader(l, from)
	defer r.close()
	for last := from.Seq; last < to; last = envs[len(envs)-1].Seq() {
		more, err := r.next(testContext(t), maxBytes)
		if err != nil {
			t.Fatalf("from %+v: %v", from, err)
		}
		envs = append(envs, more...)
	}
	return envs
}

// wantSame compares what was read after a sequence with the whole history, which has no holes.
func checkSameEnvelopes(t testing.TB, what string, got, all []*events.Envelope, after uint64) {
	t.Helper()
	want := all[after-all[0].Seq()+1:]
	for i := range min(len(got), len(want)) {
		if !equalInArchive(got[i], want[i]) {
			t.Fatalf("%s: after %d comes\n%+v, want\n%+v", what, after, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d envelopes after %d, want %d", what, len(got), after, len(want))
	}
}

func toArchivalCursor(c events.Cursor) events.Cursor {
	return events.Cursor{Log: c.Log, Epoch: c.Epoch, Seq: c.Seq, LastTime: c.LastTime}
}
