package eventlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

// deleteMessages deletes messages from the stream, which makes holes in it.
func deleteMessages(t *testing.T, l *Log, seqs ...uint64) {
	t.Helper()
	stream, err := l.fetchStream(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range seqs {
		if err := stream.DeleteMsg(testContext(t), seq); err != nil {
			t.Fatalf("delete %d: %v", seq, err)
		}
	}
}

// checkSameCursors checks that the envelopes after the end of the archive have the cursors of a
// reader of the whole stream: a cursor must not depend on where its reader began.
func checkSameCursors(t *testing.T, what string, got, all []*events.Envelope, end uint64) {
	t.Helper()
	for _, env := range got {
		if want := all[env.Seq()-1].Cursor; env.Seq() > end && env.Cursor != want {
			t.Fatalf("%s: cursor of envelope %d: got %+v, want %+v", what, env.Seq(), env.Cursor, want)
		}
	}
}

// TestArchiveCoversHolesOfStream tests I3: whatever was deleted from the archived part of the stream,
// a reader gets the same as a reader of the whole stream, wherever it starts, and whether its
// process knows of the holes already or not.
func TestArchiveCoversHolesOfStream(t *testing.T) {
	t.Parallel()
	histories := 8
	if testing.Short() {
		histories = 2
	}
	runInBubble(t, func(t *testing.T) {
		for n := range histories {
			l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
			appendHistory(t, l, drawHistory(25).Example(n))
			all := readWholeLog(t, l)
			head := all[len(all)-1].Seq()

			rng := rand.New(rand.NewPCG(3, uint64(n)))
			archive := &memoryArchive{envs: all, archivedLen: 10 + rng.IntN(14)}
			l.SetArchive(archive)
			end := all[archive.archivedLen-1].Cursor

			deleted := map[uint64]bool{}
			for _, seq := range []uint64{end.Seq, end.WarmSeq, 1 + rng.Uint64N(end.Seq), 1 + rng.Uint64N(end.Seq), 1} {
				if deleted[seq] || rng.IntN(3) == 0 {
					continue
				}

				// Delete one more message, and read from every cursor.
				deleted[seq] = true
				deleteMessages(t, l, seq)
				for from := range head {
					cursors := []events.Cursor{l.Start()}
					if from > 0 {
						cursors = []events.Cursor{all[from-1].Cursor, toArchivalCursor(all[from-1].Cursor)}
					}
					for _, c := range cursors {
						if rng.IntN(2) == 0 {
							l.coveredHoleEnd.Store(0) // as in a process that has just started
						}
						what := fmt.Sprintf("history %d, archived %d, without %v, from %+v", n, end.Seq, deleted, c)
						if err := l.CheckCursor(testContext(t), c); err != nil {
							t.Fatalf("%s: %v", what, err)
						}

						got := readFromCursor(t, l, c, head, 1+rng.IntN(400))
						checkSameEnvelopes(t, what, got, all, from)
						checkSameCursors(t, what, got, all, end.Seq)
					}
				}
			}

			if limit, err := l.trimLimit(testContext(t)); err != nil || limit != end.WarmSeq-1 {
				t.Fatalf("trim limit: got %d and error %v, want %d", limit, err, end.WarmSeq-1)
			}
			closeLog(t, l)
		}
	})
}

// TestReaderPassesHoleThroughArchive checks that a reader in the middle of the stream reads the
// archive where the hole is, and then continues in the stream. The same events are repeats as without
// the hole. What neither the archive nor the stream has is lost, and no reader crosses it.
func TestReaderPassesHoleThroughArchive(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		once := newFollows(0, 1)
		once[0].EventId = "once"
		appendHistory(t, l, []historyStep{
			{events: newFollows(1, 2)},
			{events: newFollows(2, 3)},
			{wait: time.Minute, events: once},
			{wait: time.Minute, events: newFollows(3, 4)},
			{wait: time.Minute, events: once},
			{wait: time.Minute, events: newFollows(4, 5)},
			{wait: 12*time.Minute + 30*time.Second, events: newFollows(5, 6)},
		})
		all := readWholeLog(t, l)
		if all[4].Repeats != 1 {
			t.Fatalf("repeats in envelope 5: got %d, want 1", all[4].Repeats)
		}
		if got := all[6].Cursor.WarmSeq; got != 4 {
			t.Fatalf("start of the warm-up of 7: got %d, want 4", got)
		}

		// Delete two archived messages, which the reader has not read yet.
		l.SetArchive(&memoryArchive{envs: all, archivedLen: 4})
		r := newReader(l, l.Start())
		defer r.close()
		r.pullBatch = 1 // so that the server has not sent the other messages yet
		got, err := r.nextEnvelopes(testContext(t), 1)
		if err != nil {
			t.Fatal(err)
		}

		deleteMessages(t, l, 3, 4)
		for len(got) < len(all) {
			more, err := r.nextEnvelopes(testContext(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, more...)
		}

		checkSameEnvelopes(t, "around the hole", got, all, 0)
		checkSameCursors(t, "around the hole", got, all, 4)

		// A cursor after the hole is compared with everything that the stream has there.
		wrong := all[5].Cursor
		wrong.WarmTime++
		if _, err := newReader(l, wrong).nextEnvelopes(testContext(t), 1); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("cursor with another warm-up time: got error %v, want %v", err, events.ErrRewritten)
		}

		// A message that is not archived is lost, and no reader crosses it.
		deleteMessages(t, l, 5)
		l.coveredHoleEnd.Store(0)
		lost := newReader(l, all[3].Cursor)
		if got, err := lost.nextEnvelopes(testContext(t), 1<<20); !errors.Is(err, events.ErrHole) {
			t.Errorf("reader of the lost message: got %d envelopes and error %v, want %v", len(got), err, events.ErrHole)
		}
		lost.close()
		if err := l.CheckCursor(testContext(t), all[4].Cursor); !errors.Is(err, events.ErrHole) {
			t.Errorf("cursor of the lost message: got error %v, want %v", err, events.ErrHole)
		}
	})
}

// TestArchiveCoversDamagedFile checks that if a block file of the stream is damaged and the archive
// has all its messages, readers get the same as before.
func TestArchiveCoversDamagedFile(t *testing.T) {
	t.Parallel()
	for name, offset := range map[string]int64{"start of the file": 0, "middle of the file": -1} {
		t.Run(name, func(t *testing.T) { testDamagedFile(t, offset) })
	}
}

// testDamagedFile damages a block file of a log at an offset, and reads the log with an archive.
func testDamagedFile(t *testing.T, offset int64) {
	t.Helper()
	cfg := Config{Dir: t.TempDir(), MaxBytes: 120_000, Logger: slog.New(slog.DiscardHandler)}
	l := mustOpenLog(t, cfg)
	p := newPublisher(t, l, PublisherOptions{})
	for n := range 60 {
		mustPublish(t, p, newFollows(n*100, n*100+100))
	}
	all := readWholeLog(t, l)
	closeLog(t, l)

	blocks, err := filepath.Glob(filepath.Join(cfg.Dir, "jetstream", "*", "streams", StreamName, "msgs", "*.blk"))
	if err != nil || len(blocks) < 3 {
		t.Fatalf("block files: got %v and error %v, want at least 3", blocks, err)
	}
	corruptFile(t, blocks[1], offset)

	l = mustOpenLog(t, cfg)
	archive := &memoryArchive{envs: all, archivedLen: 50}
	l.SetArchive(archive)
	for _, from := range []events.Cursor{l.Start(), all[20].Cursor, all[49].Cursor, all[54].Cursor} {
		if err := l.CheckCursor(testContext(t), from); err != nil {
			t.Errorf("cursor %d: got error %v, want none", from.Seq, err)
		}
		got := readFromCursor(t, l, from, 60, 1<<20)
		checkSameEnvelopes(t, "damaged", got, all, from.Seq)
		checkSameCursors(t, "damaged", got, all, 50)
	}

	if archive.readCount == 0 {
		t.Error("reads of the archive: got 0, want some")
	}
	closeLog(t, l)
}

// corruptFile changes three bytes of a file at an offset, or in the middle of the file if the
// offset is negative.
func corruptFile(t *testing.T, name string, offset int64) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if offset < 0 {
		offset = int64(len(data) / 2)
	}
	for i := range int64(3) {
		data[offset+i] ^= 0x55
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
