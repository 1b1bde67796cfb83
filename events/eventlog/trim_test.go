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

// publishEvery publishes the follows with the numbers from <= n < to, in one envelope each. It
// waits for interval before each.
func publishEvery(t *testing.T, interval time.Duration, l *Log, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		appendHistory(t, l, []historyStep{{wait: interval, events: newFollows(n, n+1)}})
	}
}

// TestTrimKeepsOneHorizon checks that Trim removes what is archived, less one horizon before the end
// of the archive, so a reader at that end can warm up. It refuses to remove more, and does nothing
// without an archive that agrees with the stream.
func TestTrimKeepsOneHorizon(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		cfg := Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
		l := mustOpenLog(t, cfg)
		publishEvery(t, 5*time.Minute, l, 0, 30)
		all := readWholeLog(t, l)

		_, err := l.Trim(testContext(t), 1)
		if !errors.Is(err, events.ErrTrimRefused) || !strings.Contains(err.Error(), "no archive") {
			t.Errorf("trim without an archive: got error %v, want %v with %q", err, events.ErrTrimRefused, "no archive")
		}

		archive := &memoryArchive{envs: all}
		l.SetArchive(archive)
		if _, err := l.Trim(testContext(t), 1); !errors.Is(err, events.ErrTrimRefused) {
			t.Errorf("trim with an empty archive: got error %v, want %v", err, events.ErrTrimRefused)
		}

		// The archive ends at 20. Envelope 17 is 15 minutes older, so the horizon begins after 17.
		archive.setLength(20)
		end := archive.End()
		if end.WarmSeq != 18 {
			t.Fatalf("end of the archive: got %+v, want a warm-up from 18", end)
		}
		if _, err := l.Trim(testContext(t), end.WarmSeq); !errors.Is(err, events.ErrTrimRefused) {
			t.Errorf("trim into the horizon: got error %v, want %v", err, events.ErrTrimRefused)
		}
		for _, c := range []struct{ upTo, trimmed, first uint64 }{{0, 0, 1}, {5, 5, 6}, {3, 0, 6}, {17, 12, 18}, {17, 0, 18}} {
			trimmed, err := l.Trim(testContext(t), c.upTo)
			if err != nil || trimmed != c.trimmed {
				t.Errorf("trim up to %d: got %d trimmed and error %v, want %d trimmed", c.upTo, trimmed, err, c.trimmed)
			}
			head, err := l.Head(testContext(t))
			if err != nil || head.First != c.first || head.Last != 30 {
				t.Errorf("head after a trim up to %d: got %+v and error %v, want %d to 30", c.upTo, head, err, c.first)
			}
		}

		// An archive whose end differs from the stream does not allow trimming.
		other := *all[24]
		other.Cursor.Checksum++
		l.SetArchive(&memoryArchive{envs: []*events.Envelope{&other}, archivedLen: 1})
		if _, err := l.Trim(testContext(t), 18); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("trim with another archive: got error %v, want %v", err, events.ErrRewritten)
		}

		// Readers get everything, also after a restart.
		l.SetArchive(archive)
		for range 2 {
			for seq, env := range all {
				if err := l.CheckCursor(testContext(t), env.Cursor); err != nil {
					t.Errorf("cursor %d: got error %v, want none", seq+1, err)
				}
			}

			checkSameEnvelopes(t, "at the boundary", readFromCursor(t, l, all[16].Cursor, 30, 1), all, 17)
			checkSameEnvelopes(t, "below the boundary", readFromCursor(t, l, all[15].Cursor, 30, 1), all, 16)

			closeLog(t, l)
			l = mustOpenLog(t, cfg)
			l.SetArchive(archive)
		}

		publishEvery(t, 5*time.Minute, l, 30, 31)
		if envs := readFromCursor(t, l, all[29].Cursor, 31, 1); len(envs) != 1 || envs[0].Seq() != 31 {
			t.Errorf("after a restart: got %+v, want envelope 31", envs)
		}
	})
}

// TestEmptiedStreamContinuesAfterArchive checks that a stream that somebody has emptied continues
// with the next sequence. A reader at its end learns the horizon before it from the archive.
func TestEmptiedStreamContinuesAfterArchive(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		cfg := Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
		l := mustOpenLog(t, cfg)
		publishEvery(t, 5*time.Minute, l, 0, 10)
		all := readWholeLog(t, l)

		stream, err := l.fetchStream(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(testContext(t)); err != nil {
			t.Fatal(err)
		}

		// The emptied stream is the same before and after a restart.
		archive := &memoryArchive{envs: all, archivedLen: 10}
		for range 2 {
			l.SetArchive(archive)
			head, err := l.Head(testContext(t))
			if err != nil || head.First != 11 || head.Last != 10 {
				t.Errorf("head of the emptied stream: got %+v and error %v, want 11 to 10", head, err)
			}
			if err := l.CheckCursor(testContext(t), all[5].Cursor); err != nil {
				t.Errorf("cursor in the archive: got error %v, want none", err)
			}
			if err := l.CheckCursor(testContext(t), all[9].Cursor); err != nil {
				t.Errorf("cursor at the end of the archive: got error %v, want none", err)
			}
			if n, err := l.SeqBefore(testContext(t), time.Now()); n != 0 || err != nil {
				t.Errorf("SeqBefore in the emptied stream: got %d and error %v, want 0", n, err)
			}
			if _, err := l.Trim(testContext(t), 8); !errors.Is(err, events.ErrTrimRefused) {
				t.Errorf("trim of the emptied stream: got error %v, want %v", err, events.ErrTrimRefused)
			}

			closeLog(t, l)
			l = mustOpenLog(t, cfg)
		}

		l.SetArchive(archive)
		publishEvery(t, 5*time.Minute, l, 10, 11)
		if envs := readFromCursor(t, l, all[9].Cursor, 11, 1); len(envs) != 1 || envs[0].Seq() != 11 {
			t.Errorf("after the emptied part: got %+v, want envelope 11", envs)
		}
	})
}

// TestSeqBeforeFindsLastEarlierMessage checks that SeqBefore finds the last message before a time,
// also where messages are missing and the stream was trimmed.
func TestSeqBeforeFindsLastEarlierMessage(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		if n, err := l.SeqBefore(testContext(t), time.Now()); n != 0 || err != nil {
			t.Errorf("SeqBefore in an empty log: got %d and error %v, want 0", n, err)
		}

		// Publish one message per minute, delete some and trim the first five.
		began := time.Now()
		publishEvery(t, time.Minute, l, 0, 40)
		stream, err := l.fetchStream(testContext(t))
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
			case minutes < 6: // trimmed
				want = 0
			case minutes >= 11 && minutes <= 13: // deleted
				want = 10
			case minutes >= 40: // after the end, whose last message was deleted
				want = 39
			}
			after := began.Add(time.Duration(minutes)*time.Minute + time.Second)
			if n, err := l.SeqBefore(testContext(t), after); n != want || err != nil {
				t.Errorf("SeqBefore minute %d and a second: got %d and error %v, want %d", minutes, n, err, want)
			}
		}
	})
}

// TestFullLogAcceptsEventsAfterTrim checks that a full log rejects events and can still be read, and
// that it accepts events again once its archived part is trimmed.
func TestFullLogAcceptsEventsAfterTrim(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir(), MaxBytes: 120_000, Logger: slog.New(slog.DiscardHandler)})
		p := newPublisher(t, l, PublisherOptions{})

		n := 0 // the number of accepted events
		for ; ; n += 100 {
			if n > 50_000 {
				t.Fatalf("log of 120 kB: got %d events accepted, want it full", n)
			}
			<-time.After(time.Minute) // takes no time in a bubble
			_, err := p.Publish(testContext(t), newFollows(n, n+100), PublishOptions{})
			if errors.Is(err, events.ErrLogFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}

		all := readWholeLog(t, l)
		if len(countFollowers(all)) != n {
			t.Errorf("events in the full log: got %d, want %d", len(countFollowers(all)), n)
		}

		l.SetArchive(&memoryArchive{envs: all, archivedLen: len(all)})
		if trimmed, err := l.Trim(testContext(t), 10); err != nil || trimmed != 10 {
			t.Fatalf("trim up to 10: got %d trimmed and error %v, want 10", trimmed, err)
		}

		if _, err := p.Publish(testContext(t), newFollows(n, n+100), PublishOptions{}); err != nil {
			t.Errorf("Publish after the trim: got error %v, want none", err)
		}
		head, err := l.Head(testContext(t))
		if err != nil || head.First != 11 || head.Last != uint64(len(all))+1 || head.Bytes > 120_000 {
			t.Errorf("head after the trim: got %+v and error %v, want 11 to %d in at most 120000 bytes", head, err, len(all)+1)
		}
	})
}
