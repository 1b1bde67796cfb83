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

func deleteMessages(t *testing.T, l *Log, seqs ...uint64) {
	t.Helper()
	stream, err := l.stream(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range seqs {
		if err := stream.DeleteMsg(testContext(t), seq); err != nil {
			t.Fatalf("delete %d: %v", seq, err)
		}
	}
}

// wantCursors checks the cursors of what comes after the end of the archive: they do not tell how the reader came there.
func checkSameCursors(t *testing.T, what string, got, all []*events.Envelope, end uint64) {
	t.Helper()
	for _, env := range got {
		if want := all[env.Seq()-1].Cursor; env.Seq() > end && env.Cursor != want {
			t.Fatalf("%s: the cursor is %+v, want %+v", what, env.Cursor, want)
		}
	}
}

// I3: whatever of the archived part was deleted from the stream, wherever a reader starts, it gets what one got who read the
// whole stream, and so do those that know of no hole yet and those that do.
func TestArchiveCoversHolesOfStream(t *testing.T) {
	histories := 8
	if testing.Short() {
		histories = 3
	}
	runInBubble(t, func(t *testing.T) {
		for n := range histories {
			l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
			appendHistory(t, l, drawHistory(25).Example(n))
			all := readWholeLog(t, l)
			head := all[len(all)-1].Seq()
			rng := rand.New(rand.NewPCG(3, uint64(n)))
			past := &memoryArchive{envs: all, archivedLen: 10 + rng.IntN(14)}
			l.SetArchive(past)
			end := all[past.archivedLen-1].Cursor
			gone := map[uint64]bool{}
			for _, seq := range []uint64{end.Seq, end.WarmSeq, 1 + rng.Uint64N(end.Seq), 1 + rng.Uint64N(end.Seq), 1} {
				if gone[seq] || rng.IntN(3) == 0 {
					continue
				}
				gone[seq] = true
				deleteMessages(t, l, seq)
				for from := range head {
					cursors := []events.Cursor{l.Start()}
					if from > 0 {
						cursors = []events.Cursor{all[from-1].Cursor, toArchivalCursor(all[from-1].Cursor)}
					}
					for _, c := range cursors {
						if rng.IntN(2) == 0 {
							l.coveredHoleEnd.Store(0) // as a process that has just begun
						}
						what := fmt.Sprintf("history %d, archived %d, without %v, from %+v", n, end.Seq, gone, c)
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
				t.Fatalf("it may be trimmed up to %d, not %d: %v", limit, end.WarmSeq-1, err)
			}
			closeLog(t, l)
		}
	})
}

// A reader in the middle of the stream goes to the archive where the hole is, and comes back: events are repeats after it as
// they were before.
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
		if all[4].Repeats != 1 || all[6].Cursor.WarmSeq != 4 {
			t.Fatalf("%+v", all[4])
		}
		l.SetArchive(&memoryArchive{envs: all, archivedLen: 4})
		r := newReader(l, l.Start())
		defer r.close()
		r.pullBatch = 1 // the rest has not been sent
		got, err := r.next(testContext(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		deleteMessages(t, l, 3, 4)
		for len(got) < len(all) {
			more, err := r.next(testContext(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, more...)
		}
		checkSameEnvelopes(t, "around the hole", got, all, 0)
		checkSameCursors(t, "around the hole", got, all, 4)
		// A cursor after the hole is held against the whole of what the stream has there.
		wrong := all[5].Cursor
		wrong.WarmTime++
		if _, err := newReader(l, wrong).next(testContext(t), 1); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("a cursor that no reader had: %v", err)
		}
		// What is not archived is lost, and nothing is read across it.
		deleteMessages(t, l, 5)
		l.coveredHoleEnd.Store(0)
		lost := newReader(l, all[3].Cursor)
		if got, err := lost.next(testContext(t), 1<<20); !errors.Is(err, events.ErrHole) {
			t.Errorf("without 5 it reads %d envelopes, %v", len(got), err)
		}
		lost.close()
		if err := l.CheckCursor(testContext(t), all[4].Cursor); !errors.Is(err, events.ErrHole) {
			t.Errorf("at what is lost: %v", err)
		}
	})
}

// A damaged file of the stream, of which all is archived: it is read as it was.
func TestArchiveCoversDamagedFile(t *testing.T) {
	for _, damaged := range []int64{0, -1} { // of all of its messages, or of one
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
			t.Fatalf("blocks %v, %v", blocks, err)
		}
		corruptFile(t, blocks[1], damaged)
		l = mustOpenLog(t, cfg)
		past := &memoryArchive{envs: all, archivedLen: 50}
		l.SetArchive(past)
		for _, from := range []events.Cursor{l.Start(), all[20].Cursor, all[49].Cursor, all[54].Cursor} {
			if err := l.CheckCursor(testContext(t), from); err != nil {
				t.Errorf("from %d: %v", from.Seq, err)
			}
			got := readFromCursor(t, l, from, 60, 1<<20)
			checkSameEnvelopes(t, "damaged", got, all, from.Seq)
			checkSameCursors(t, "damaged", got, all, 50)
		}
		if past.readCount == 0 {
			t.Error("the archive was not read")
		}
		closeLog(t, l)
	}
}

// spoil changes some bytes of a file, at an offset; negative: in the middle.
func corruptFile(t *testing.T, name string, at int64) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at = int64(len(data) / 2)
	}
	for i := range int64(3) {
		data[at+i] ^= 0x55
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
