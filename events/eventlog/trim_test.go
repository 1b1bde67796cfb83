package eventlog

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// every publishes envelopes of one event, some time apart.
func publishEvery(t *testing.T, apart time.Duration, l *Log, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		appendHistory(t, l, []historyStep{{wait: apart, events: newFollows(n, n+1)}})
	}
}

func TestTrimKeepsOneHorizon(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		cfg := Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
		l := mustOpenLog(t, cfg)
		publishEvery(t, 5*time.Minute, l, 0, 30)
		all := readWholeLog(t, l)
		if _, err := l.Trim(testContext(t), 1); !errors.Is(err, events.ErrTrimRefused) || !strings.Contains(err.Error(), "no archive") {
			t.Errorf("without an archive: %v", err)
		}
		past := &memoryArchive{envs: all}
		l.SetArchive(past)
		if _, err := l.Trim(testContext(t), 1); !errors.Is(err, events.ErrTrimRefused) {
			t.Errorf("with an empty archive: %v", err)
		}
		past.setLength(20)
		end := past.End() // 15 minutes after 17: nothing of the horizon is before 18
		if _, err := l.Trim(testContext(t), end.WarmSeq); !errors.Is(err, events.ErrTrimRefused) {
			t.Errorf("beyond the horizon: %v", err)
		}
		if end.WarmSeq != 18 {
			t.Fatalf("the end is %+v", end)
		}
		for _, c := range []struct{ upTo, trimmed, first uint64 }{{0, 0, 1}, {5, 5, 6}, {3, 0, 6}, {17, 12, 18}, {17, 0, 18}} {
			trimmed, err := l.Trim(testContext(t), c.upTo)
			head, headErr := l.Head(testContext(t))
			if err != nil || headErr != nil || trimmed != c.trimmed || head.First != c.first || head.Last != 30 {
				t.Errorf("up to %d: trimmed %d, %v, the head is %+v", c.upTo, trimmed, err, head)
			}
		}
		// The archive of another log proves nothing.
		other := *all[24]
		other.Cursor.Checksum++
		l.SetArchive(&memoryArchive{envs: []*events.Envelope{&other}, archivedLen: 1})
		if _, err := l.Trim(testContext(t), 18); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("the archive has another end: %v", err)
		}
		l.SetArchive(past)
		for range 2 {
			for seq, env := range all {
				if err := l.CheckCursor(testContext(t), env.Cursor); err != nil {
					t.Errorf("cursor %d: %v", seq+1, err)
				}
			}
			checkSameEnvelopes(t, "at the boundary", readFromCursor(t, l, all[16].Cursor, 30, 1), all, 17)
			checkSameEnvelopes(t, "below the boundary", readFromCursor(t, l, all[15].Cursor, 30, 1), all, 16)
			closeLog(t, l)
			l = mustOpenLog(t, cfg) // and after a restart
			l.SetArchive(past)
		}
		publishEvery(t, 5*time.Minute, l, 30, 31)
		if envs := readFromCursor(t, l, all[29].Cursor, 31, 1); len(envs) != 1 || envs[0].Seq() != 31 {
			t.Errorf("after a restart: %+v", envs)
		}
	})
}

// A stream that others emptied keeps its place: nothing is read twice, and what a reader at its end must know it learns from the
// archive.
func TestEmptiedStreamContinuesAfterArchive(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		cfg := Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
		l := mustOpenLog(t, cfg)
		publishEvery(t, 5*time.Minute, l, 0, 10)
		all := readWholeLog(t, l)
		stream, err := l.stream(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(testContext(t)); err != nil {
			t.Fatal(err)
		}
		past := &memoryArchive{envs: all, archivedLen: 10}
		for range 2 {
			l.SetArchive(past)
			head, err := l.Head(testContext(t))
			if err != nil || head.First != 11 || head.Last != 10 {
				t.Errorf("the head is %+v, %v", head, err)
			}
			if err := l.CheckCursor(testContext(t), all[5].Cursor); err != nil {
				t.Errorf("a cursor in the archive: %v", err)
			}
			if err := l.CheckCursor(testContext(t), all[9].Cursor); err != nil {
				t.Errorf("a cursor at the end, which has the horizon before it in the archive: %v", err)
			}
			if n, err := l.SeqBefore(testContext(t), time.Now()); n != 0 || err != nil {
				t.Errorf("before now there is %d, %v", n, err)
			}
			if _, err := l.Trim(testContext(t), 8); !errors.Is(err, events.ErrTrimRefused) {
				t.Errorf("trimming: %v", err)
			}
			closeLog(t, l)
			l = mustOpenLog(t, cfg)
		}
		l.SetArchive(past)
		publishEvery(t, 5*time.Minute, l, 10, 11)
		if envs := readFromCursor(t, l, all[9].Cursor, 11, 1); len(envs) != 1 || envs[0].Seq() != 11 {
			t.Errorf("after it: %+v", envs)
		}
	})
}

func TestSeqBeforeFindsLastEarlierMessage(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		if n, err := l.SeqBefore(testContext(t), time.Now()); n != 0 || err != nil {
			t.Errorf("of an empty log: %d, %v", n, err)
		}
		began := time.Now()
		publishEvery(t, time.Minute, l, 0, 40)
		stream, err := l.stream(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, seq := range []uint64{11, 12, 13, 40} {
			if err := stream.DeleteMsg(testContext(t), seq); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.Purge(testContext(t), jetstream.WithPurgeSequence(6)); err != nil {
			t.Fatal(err)
		}
		for minutes := range 45 {
			want := uint64(minutes)
			switch {
			case minutes < 6:
				want = 0
			case minutes >= 11 && minutes <= 13:
				want = 10
			case minutes >= 40:
				want = 39
			}
			if n, err := l.SeqBefore(testContext(t), began.Add(time.Duration(minutes)*time.Minute+time.Second)); n != want || err != nil {
				t.Errorf("before minute %d and a second there is %d, %v, want %d", minutes, n, err, want)
			}
		}
	})
}

// A log that callers have filled refuses more and is read as before; once what is archived is trimmed, it takes events again.
func TestFullLogAcceptsEventsAfterTrim(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir(), MaxBytes: 120_000, Logger: slog.New(slog.DiscardHandler)})
		p := newPublisher(t, l, PublisherOptions{})
		n := 0
		for ; ; n += 100 {
			if n > 50_000 {
				t.Fatal("the log is never full")
			}
			<-time.After(time.Minute) // of the bubble
			if _, err := p.Publish(testContext(t), newFollows(n, n+100), PublishOptions{}); errors.Is(err, events.ErrLogFull) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		all := readWholeLog(t, l)
		if len(countFollowers(all)) != n {
			t.Errorf("the full log holds %d of %d events", len(countFollowers(all)), n)
		}
		l.SetArchive(&memoryArchive{envs: all, archivedLen: len(all)})
		if trimmed, err := l.Trim(testContext(t), 10); err != nil || trimmed != 10 {
			t.Fatalf("trimmed %d, %v", trimmed, err)
		}
		if _, err := p.Publish(testContext(t), newFollows(n, n+100), PublishOptions{}); err != nil {
			t.Errorf("after the trim: %v", err)
		}
		if head, err := l.Head(testContext(t)); err != nil || head.First != 11 || head.Last != uint64(len(all))+1 || head.Bytes > 120_000 {
			t.Errorf("%+v, %v", head, err)
		}
	})
}
