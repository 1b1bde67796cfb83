package eventlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/events"
)

// Wherever a reader starts, and however much of the log is in the archive and gone from the stream, it gets what one gets
// who reads the whole stream.
func TestReaderCrossesArchiveBoundaryFromAnyCursor(t *testing.T) {
	histories := 12
	if testing.Short() {
		histories = 3
	}
	runInBubble(t, func(t *testing.T) {
		for n := range histories {
			l := mustOpenLog(t, Config{Dir: t.TempDir()})
			appendHistory(t, l, drawHistory(25).Example(n))
			all := readWholeLog(t, l)
			head := all[len(all)-1].Seq()
			past := &memoryArchive{envs: all}
			l.SetArchive(past)
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			for cut := 0; cut < len(all); cut += 1 + rng.IntN(12) {
				past.setLength(cut)
				first := trimSome(t, l, rng)
				for seq := range head {
					from := l.Start()
					if seq > 0 {
						from = all[seq-1].Cursor
					}
					for _, from := range []events.Cursor{from, toArchivalCursor(from)} {
						began := past.readCount
						if err := l.CheckCursor(testContext(t), from); err != nil {
							t.Fatalf("cursor %+v: %v", from, err)
						}
						what := fmt.Sprintf("history %d, %d archived, first %d", n, cut, first)
						checkSameEnvelopes(t, what, readFromCursor(t, l, from, head, 1+rng.IntN(400)), all, seq)
						if from.WarmSeq >= first && past.readCount != began {
							t.Fatalf("%s: the archive was read for %+v", what, from)
						}
						if from.WarmSeq != 0 && from.WarmSeq < first && past.readCount == began {
							t.Fatalf("%s: the archive was not read for %+v", what, from)
						}
					}
				}
			}
			closeLog(t, l)
		}
	})
}

// trimSome trims as far as it may, or a part of it, and returns where the stream begins.
func trimSome(t *testing.T, l *Log, rng *rand.Rand) (first uint64) {
	t.Helper()
	ctx := testContext(t)
	limit, err := l.trimLimit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Trim(ctx, limit+1); !errors.Is(err, events.ErrTrimRefused) {
		t.Fatalf("trimming beyond %d: %v", limit, err)
	}
	if rng.IntN(3) == 0 && limit > 0 {
		limit = rng.Uint64N(limit)
	}
	if _, err := l.Trim(ctx, limit); err != nil {
		t.Fatal(err)
	}
	head, err := l.Head(ctx)
	if err != nil || head.First < limit+1 {
		t.Fatalf("trimmed up to %d, the stream begins at %d, %v", limit, head.First, err)
	}
	return head.First
}

// Archiving and trimming continue while readers read, in the archive and in the stream: no reader misses an envelope.
func TestReadersMissNothingDuringTrim(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(60).Example(3))
		all := readWholeLog(t, l)
		past := &memoryArchive{envs: all}
		l.SetArchive(past)
		ctx := testContext(t)
		var readers []*reader
		got := make([][]*events.Envelope, 6)
		for i := range got {
			r := newReader(l, l.Start())
			r.pullBatch = 1 + i // most of what is to come has not been sent
			readers = append(readers, r)
			defer r.close()
		}
		rng, overtaken := rand.New(rand.NewPCG(2, 2)), false
		for done := 0; done < len(got); {
			if past.archivedLen < len(all) {
				past.setLength(min(past.archivedLen+3, len(all))) // faster than readers of one at a time
				trimSome(t, l, rng)
			}
			done = 0
			for i, r := range readers {
				if len(got[i]) >= len(all) {
					done++
					continue
				}
				if past.archivedLen < 30*(i%2) {
					continue // half of them begin late
				}
				wasIn := r.dec != nil
				envs, err := r.next(ctx, 1)
				if err != nil {
					t.Fatalf("reader %d after %d: %v", i, len(got[i]), err)
				}
				overtaken = overtaken || wasIn && r.archive != nil
				got[i] = append(got[i], envs...)
			}
		}
		for i := range got {
			checkSameEnvelopes(t, fmt.Sprintf("reader %d", i), got[i], all, 0)
		}
		if !overtaken {
			t.Error("trimming overtook no reader of the stream")
		}
	})
}

// A reader of the stream that trimming overtakes goes back to the archive, whether it was interrupted or not.
func TestOvertakenReaderReturnsToArchive(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		for _, interrupted := range []bool{false, true} {
			l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
			appendHistory(t, l, drawHistory(60).Example(5))
			all := readWholeLog(t, l)
			past := &memoryArchive{envs: all}
			l.SetArchive(past)
			r := newReader(l, l.Start())
			r.pullBatch = 2 // the rest has not been sent
			var got []*events.Envelope
			for more := 3; len(got) < len(all); more = len(all) {
				for len(got) < more {
					envs, err := r.next(testContext(t), 1)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, envs...)
				}
				if more > 3 {
					break
				}
				if interrupted {
					r.close()
				}
				past.setLength(50)
				limit, err := l.trimLimit(testContext(t))
				if err != nil || limit < 10 || past.readCount > 0 {
					t.Fatalf("limit %d, %v", limit, err)
				}
				if n, err := l.Trim(testContext(t), limit); n != limit || err != nil {
					t.Fatalf("trimmed %d of %d, %v", n, limit, err)
				}
			}
			r.close()
			checkSameEnvelopes(t, "overtaken", got, all, 0)
			if past.readCount != 1 {
				t.Errorf("the archive was read %d times", past.readCount)
			}
			closeLog(t, l)
		}
	})
}

// What is wrong with the archive is said, and what passes is tried again.
func TestReaderRetriesArchiveAndReportsDamage(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		appendHistory(t, l, drawHistory(40).Example(7))
		all := readWholeLog(t, l)
		past := &memoryArchive{envs: all, archivedLen: 35}
		l.SetArchive(past)
		limit, err := l.trimLimit(testContext(t))
		if err != nil || limit < 5 {
			t.Fatalf("limit %d, %v", limit, err)
		}
		if _, err := l.Trim(testContext(t), limit); err != nil {
			t.Fatal(err)
		}
		away := errors.New("the bucket is away")
		tries := 0
		past.nextError = func(next *events.Envelope) error {
			if tries++; next.Seq()%3 == 0 && tries%4 != 0 {
				return away
			}
			return nil
		}
		checkSameEnvelopes(t, "with a bucket that is away now and then", readFromCursor(t, l, l.Start(), uint64(len(all)), 1), all, 0)

		past.nextError = func(next *events.Envelope) error {
			if next.Seq() == 4 {
				return fmt.Errorf("segment 1: %w", events.ErrArchiveDamaged)
			}
			return nil
		}
		h, _ := runHub(t, l, HubOptions{})
		in, other := mustSubscribe(t, h, all[37].Cursor), mustSubscribe(t, h, l.Start())
		if _, err := in.Next(testContext(t), 1); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = other.Next(testContext(t), 1)
		}
		if !errors.Is(err, events.ErrArchiveDamaged) {
			t.Errorf("the archive is damaged: %v", err)
		}
		if _, err := in.Next(testContext(t), 1); err != nil {
			t.Errorf("who reads the stream: %v", err)
		}
		h.Close()
		wrong := toArchivalCursor(all[2].Cursor)
		wrong.LastTime++
		if err := l.CheckCursor(testContext(t), wrong); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("a cursor with another time: %v", err)
		}
		l.SetArchive(nil)
		if err := l.CheckCursor(testContext(t), all[2].Cursor); !errors.Is(err, events.ErrTrimmed) {
			t.Errorf("without an archive: %v", err)
		}
	})
}

// A cursor of the archive is good in a stream that holds all, with an archive that ends before it or none.
func TestArchivalCursorContinuesInStream(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(20).Example(1))
		all := readWholeLog(t, l)
		for _, past := range []events.Archive{nil, &memoryArchive{envs: all}, &memoryArchive{envs: all, archivedLen: 6}} {
			if l.SetArchive(past); past == nil {
				l.archive = nil
			}
			for seq := 7; seq < 20; seq++ {
				from := toArchivalCursor(all[seq-1].Cursor)
				checkSameEnvelopes(t, "from the archive's", readFromCursor(t, l, from, 20, 1<<20), all, uint64(seq))
				from.LastTime++
				r := newReader(l, from)
				if _, err := r.next(testContext(t), 1); !errors.Is(err, events.ErrRewritten) {
					t.Fatalf("a cursor with another time: %v", err)
				}
				r.close()
			}
		}
	})
}

// Subscribers in the archive share the ring, and those who want some kinds read for themselves until the stream.
func TestHubSharesArchivedEnvelopes(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(60).Example(11))
		all := readWholeLog(t, l)
		past := &memoryArchive{envs: all, archivedLen: 50}
		l.SetArchive(past)
		limit, err := l.trimLimit(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Trim(testContext(t), limit); err != nil {
			t.Fatal(err)
		}
		h, _ := runHub(t, l, HubOptions{})
		a, b := mustSubscribe(t, h, toArchivalCursor(all[4].Cursor)), mustSubscribe(t, h, all[4].Cursor)
		first := readEnvelopes(t, a, 60)
		checkSameEnvelopes(t, "in the ring", first, all, 5)
		if !areIdentical(first, readEnvelopes(t, b, 60)) {
			t.Error("two subscribers at one place read on their own")
		}
		// At the same sequence, but of another log.
		wrong := toArchivalCursor(all[6].Cursor)
		wrong.LastTime--
		if _, err := mustSubscribe(t, h, wrong).Next(testContext(t), 1); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("a cursor with another time: %v", err)
		}
		follows := events.Kinds(events.UserFollowed)
		s, err := h.SubscribeKinds(l.Start(), follows)
		if err != nil {
			t.Fatal(err)
		}
		var got []*events.Envelope
		for len(got) == 0 || got[len(got)-1].Seq() < 60 {
			envs, err := s.Next(testContext(t), 1000)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, envs...)
		}
		checkKinds(t, got, all, follows, 50)
		if len(got) == len(all) {
			t.Error("nothing was passed over")
		}
		// In the stream it is one of all.
		appendHistory(t, l, drawHistory(1).Example(1))
		for range 2 {
			appendHistory(t, l, drawHistory(1).Example(1))
			x, y := readEnvelopes(t, s, 62), readEnvelopes(t, a, 62)
			if x[len(x)-1] == y[len(y)-1] {
				return
			}
		}
		t.Error("a subscriber of some kinds never shares the ring")
	})
}

// wantKinds checks that all events of some kinds came.
func checkKinds(t *testing.T, got, all []*events.Envelope, kinds events.KindSet, to uint64) {
	t.Helper()
	i := 0
	for _, env := range all {
		if i < len(got) && got[i].Seq() == env.Seq() {
			if !equalInArchive(got[i], env) {
				t.Fatalf("envelope %d differs", env.Seq())
			}
			i++
		} else if env.Kinds&kinds != 0 || len(env.Rejects) > 0 || env.Seq() >= to {
			t.Fatalf("envelope %d did not come", env.Seq())
		}
	}
}
