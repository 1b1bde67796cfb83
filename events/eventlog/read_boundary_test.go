package eventlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/events"
)

// TestReaderCrossesArchiveBoundaryFromAnyCursor checks that a reader gets the same as a reader of
// the whole stream, wherever it starts, and however much of the log is archived and trimmed. It
// reads the archive only if the stream does not have everything.
func TestReaderCrossesArchiveBoundaryFromAnyCursor(t *testing.T) {
	t.Parallel()
	histories := 12
	if testing.Short() {
		histories = 2
	}
	runInBubble(t, func(t *testing.T) {
		for n := range histories {
			l := mustOpenLog(t, Config{Dir: t.TempDir()})
			appendHistory(t, l, drawHistory(25).Example(n))
			all := readWholeLog(t, l)
			head := all[len(all)-1].Seq()

			archive := &memoryArchive{envs: all}
			l.SetArchive(archive)
			rng := rand.New(rand.NewPCG(1, uint64(n)))

			for cut := 0; cut < len(all); cut += 1 + rng.IntN(12) {
				archive.setLength(cut)
				first := trimSome(t, l, rng)

				// Start at each sequence, with a cursor of the stream and with one of the archive.
				for seq := range head {
					streamCursor := l.Start()
					if seq > 0 {
						streamCursor = all[seq-1].Cursor
					}
					for _, from := range []events.Cursor{streamCursor, toArchivalCursor(streamCursor)} {
						readsBefore := archive.readCount
						if err := l.CheckCursor(testContext(t), from); err != nil {
							t.Fatalf("cursor %+v: got error %v, want none", from, err)
						}

						what := fmt.Sprintf("history %d, %d archived, first %d", n, cut, first)
						checkSameEnvelopes(t, what, readFromCursor(t, l, from, head, 1+rng.IntN(400)), all, seq)

						if from.WarmSeq >= first && archive.readCount != readsBefore {
							t.Fatalf("%s: reader from %+v: got a read of the archive, want none", what, from)
						}
						if from.WarmSeq != 0 && from.WarmSeq < first && archive.readCount == readsBefore {
							t.Fatalf("%s: reader from %+v: got no read of the archive, want one", what, from)
						}
					}
				}
			}

			closeLog(t, l)
		}
	})
}

// trimSome trims the stream as far as possible or, now and then, less. It returns the first sequence
// of the stream, and checks that trimming further is refused.
func trimSome(t *testing.T, l *Log, rng *rand.Rand) (first uint64) {
	t.Helper()
	ctx := testContext(t)
	limit, err := l.trimLimit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Trim(ctx, limit+1); !errors.Is(err, events.ErrTrimRefused) {
		t.Fatalf("trimming beyond %d: got error %v, want %v", limit, err, events.ErrTrimRefused)
	}

	if rng.IntN(3) == 0 && limit > 0 {
		limit = rng.Uint64N(limit)
	}
	if _, err := l.Trim(ctx, limit); err != nil {
		t.Fatal(err)
	}

	head, err := l.Head(ctx)
	if err != nil || head.First < limit+1 {
		t.Fatalf("first sequence after a trim to %d: got %d and error %v, want at least %d", limit, head.First, err, limit+1)
	}
	return head.First
}

// TestReadersMissNothingDuringTrim continues to archive and trim while readers read, some in the
// archive and some in the stream. No reader misses an envelope.
func TestReadersMissNothingDuringTrim(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(60).Example(3))
		all := readWholeLog(t, l)
		archive := &memoryArchive{envs: all}
		l.SetArchive(archive)

		const readerCount = 6
		ctx := testContext(t)
		var readers []*reader
		got := make([][]*events.Envelope, readerCount) // what each reader has read
		for i := range readerCount {
			r := newReader(l, l.Start())
			r.pullBatch = 1 + i // so that the server has not sent most of the messages yet
			readers = append(readers, r)
			defer r.close()
		}

		rng := rand.New(rand.NewPCG(2, 2))
		overtaken := false
		for done := 0; done < readerCount; {
			// The archive grows faster than readers that read one envelope at a time.
			if archive.archivedLen < len(all) {
				archive.setLength(min(archive.archivedLen+3, len(all)))
				trimSome(t, l, rng)
			}

			done = 0
			for i, r := range readers {
				if len(got[i]) >= len(all) {
					done++
					continue
				}
				if archive.archivedLen < 30*(i%2) {
					continue // every other reader begins late
				}

				wasInStream := r.dec != nil
				envs, err := r.nextEnvelopes(ctx, 1)
				if err != nil {
					t.Fatalf("reader %d after %d envelopes: %v", i, len(got[i]), err)
				}
				overtaken = overtaken || wasInStream && r.archive != nil
				got[i] = append(got[i], envs...)
			}
		}

		for i := range got {
			checkSameEnvelopes(t, fmt.Sprintf("reader %d", i), got[i], all, 0)
		}
		if !overtaken {
			t.Error("readers of the stream that trimming overtook: got none, want some")
		}
	})
}

// TestOvertakenReaderReturnsToArchive checks that a reader of the stream that trimming overtakes goes
// back to the archive, whether it was interrupted before or not.
func TestOvertakenReaderReturnsToArchive(t *testing.T) {
	t.Parallel()
	runInBubble(t, func(t *testing.T) {
		for _, interrupted := range []bool{false, true} {
			t.Logf("interrupted: %v", interrupted)
			l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
			appendHistory(t, l, drawHistory(60).Example(5))
			all := readWholeLog(t, l)
			archive := &memoryArchive{envs: all}
			l.SetArchive(archive)

			r := newReader(l, l.Start())
			r.pullBatch = 2 // so that the server has not sent the other messages yet
			var got []*events.Envelope
			readUntilCount := func(count int) {
				for len(got) < count {
					envs, err := r.nextEnvelopes(testContext(t), 1)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, envs...)
				}
			}

			// Trim the part that the reader has not read yet.
			readUntilCount(3)
			if interrupted {
				r.close()
			}
			archive.setLength(50)
			limit, err := l.trimLimit(testContext(t))
			if err != nil || limit < 10 {
				t.Fatalf("trim limit: got %d and error %v, want at least 10", limit, err)
			}
			if archive.readCount > 0 {
				t.Fatalf("reads of the archive before the trim: got %d, want 0", archive.readCount)
			}
			if n, err := l.Trim(testContext(t), limit); n != limit || err != nil {
				t.Fatalf("trimmed sequences: got %d and error %v, want %d", n, err, limit)
			}

			readUntilCount(len(all))
			r.close()
			checkSameEnvelopes(t, "overtaken", got, all, 0)
			if archive.readCount != 1 {
				t.Errorf("reads of the archive: got %d, want 1", archive.readCount)
			}
			closeLog(t, l)
		}
	})
}

// TestReaderRetriesArchiveAndReportsDamage checks that a reader retries after errors of the archive
// that may pass. Damage is reported to the readers that need the archive, and only to them.
func TestReaderRetriesArchiveAndReportsDamage(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		appendHistory(t, l, drawHistory(40).Example(7))
		all := readWholeLog(t, l)
		archive := &memoryArchive{envs: all, archivedLen: 35}
		l.SetArchive(archive)

		limit, err := l.trimLimit(testContext(t))
		if err != nil || limit < 5 {
			t.Fatalf("trim limit: got %d and error %v, want at least 5", limit, err)
		}
		if _, err := l.Trim(testContext(t), limit); err != nil {
			t.Fatal(err)
		}

		// The bucket cannot be reached now and then.
		errUnreachable := errors.New("the bucket cannot be reached")
		attempts := 0
		archive.nextError = func(next *events.Envelope) error {
			attempts++
			if next.Seq()%3 == 0 && attempts%4 != 0 {
				return errUnreachable
			}
			return nil
		}

		got := readFromCursor(t, l, l.Start(), uint64(len(all)), 1)
		checkSameEnvelopes(t, "with a bucket that cannot be reached now and then", got, all, 0)

		// The archive is damaged in front of sequence 4.
		archive.nextError = func(next *events.Envelope) error {
			if next.Seq() == 4 {
				return fmt.Errorf("segment 1: %w", events.ErrArchiveDamaged)
			}
			return nil
		}

		h, _ := runHub(t, l, HubOptions{})
		inStream := mustSubscribe(t, h, all[37].Cursor)
		inArchive := mustSubscribe(t, h, l.Start())
		if _, err := inStream.Next(testContext(t), 1); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = inArchive.Next(testContext(t), 1)
		}
		if !errors.Is(err, events.ErrArchiveDamaged) {
			t.Errorf("reader of the damaged archive: got error %v, want %v", err, events.ErrArchiveDamaged)
		}
		if _, err := inStream.Next(testContext(t), 1); err != nil {
			t.Errorf("reader of the stream: got error %v, want none", err)
		}
		h.Close()

		wrong := toArchivalCursor(all[2].Cursor)
		wrong.LastTime++
		if err := l.CheckCursor(testContext(t), wrong); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("cursor with another time: got error %v, want %v", err, events.ErrRewritten)
		}

		l.SetArchive(nil)
		if err := l.CheckCursor(testContext(t), all[2].Cursor); !errors.Is(err, events.ErrTrimmed) {
			t.Errorf("cursor in the trimmed part without an archive: got error %v, want %v", err, events.ErrTrimmed)
		}
	})
}

// TestArchivalCursorContinuesInStream checks that a reader with a cursor of the archive can continue
// in a stream that has everything, without an archive and with one that ends before the cursor.
func TestArchivalCursorContinuesInStream(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(20).Example(1))
		all := readWholeLog(t, l)
		for _, archive := range []events.Archive{nil, &memoryArchive{envs: all}, &memoryArchive{envs: all, archivedLen: 6}} {
			l.SetArchive(archive)
			for seq := 7; seq < 20; seq++ {
				from := toArchivalCursor(all[seq-1].Cursor)
				checkSameEnvelopes(t, "with a cursor of the archive", readFromCursor(t, l, from, 20, 1<<20), all, uint64(seq))

				from.LastTime++
				r := newReader(l, from)
				if _, err := r.nextEnvelopes(testContext(t), 1); !errors.Is(err, events.ErrRewritten) {
					t.Fatalf("cursor with another time: got error %v, want %v", err, events.ErrRewritten)
				}
				r.close()
			}
		}
	})
}

// TestHubSharesArchivedEnvelopes checks that subscribers in the archive share the ring. A subscriber
// that needs only some kinds of events has a reader of its own until it reaches the stream, and that
// reader leaves out envelopes.
func TestHubSharesArchivedEnvelopes(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(60).Example(11))
		all := readWholeLog(t, l)
		archive := &memoryArchive{envs: all, archivedLen: 50}
		l.SetArchive(archive)

		limit, err := l.trimLimit(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Trim(testContext(t), limit); err != nil {
			t.Fatal(err)
		}

		h, _ := runHub(t, l, HubOptions{})
		a := mustSubscribe(t, h, toArchivalCursor(all[4].Cursor))
		b := mustSubscribe(t, h, all[4].Cursor)
		first := readEnvelopes(t, a, 60)
		checkSameEnvelopes(t, "in the ring", first, all, 5)
		if !areIdentical(first, readEnvelopes(t, b, 60)) {
			t.Error("two subscribers at one cursor: got different envelope objects, want the same")
		}

		// A cursor with the sequence of an envelope in the ring, but of another log, must not be
		// accepted by the ring.
		wrong := toArchivalCursor(all[6].Cursor)
		wrong.LastTime--
		if _, err := mustSubscribe(t, h, wrong).Next(testContext(t), 1); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("cursor with another time: got error %v, want %v", err, events.ErrRewritten)
		}

		// A subscriber to follows has a reader of its own in the archive.
		follows := events.Kinds(events.UserFollowed)
		followReader, err := h.SubscribeKinds(l.Start(), follows)
		if err != nil {
			t.Fatal(err)
		}

		var got []*events.Envelope
		for len(got) == 0 || got[len(got)-1].Seq() < 60 {
			envs, err := followReader.Next(testContext(t), 1000)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, envs...)
		}

		checkKinds(t, got, all, follows, 50)
		if len(got) == len(all) {
			t.Errorf("envelopes of the subscriber to follows: got all %d, want some left out", len(all))
		}

		// In the stream, it shares the ring with the others.
		appendHistory(t, l, drawHistory(1).Example(1))
		for range 2 {
			appendHistory(t, l, drawHistory(1).Example(1))
			fromFollows := readEnvelopes(t, followReader, 62)
			fromRing := readEnvelopes(t, a, 62)
			if fromFollows[len(fromFollows)-1] == fromRing[len(fromRing)-1] {
				return
			}
		}

		t.Error("subscriber to follows in the stream: got other envelope objects, want those of the ring")
	})
}

// checkKinds checks that a subscriber to some kinds got every envelope with events of these kinds
// or with rejects, and every envelope from allFrom on.
func checkKinds(t *testing.T, got, all []*events.Envelope, kinds events.KindSet, allFrom uint64) {
	t.Helper()
	i := 0
	for _, env := range all {
		if i < len(got) && got[i].Seq() == env.Seq() {
			if !equalInArchive(got[i], env) {
				t.Fatalf("envelope %d: got %+v, want %+v", env.Seq(), got[i], env)
			}
			i++
		} else if env.Kinds&kinds != 0 || len(env.Rejects) > 0 || env.Seq() >= allFrom {
			t.Fatalf("envelope %d: got none, want %+v", env.Seq(), env)
		}
	}
}
