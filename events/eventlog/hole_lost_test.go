package eventlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

// listBlockFiles returns the block files of the log in a directory, oldest first.
func listBlockFiles(t *testing.T, dir string) []string {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", StreamName, "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("block files: got %v and error %v, want some", blocks, err)
	}
	return blocks
}

// flipBit flips one bit of the byte at an offset in a file.
func flipBit(t *testing.T, name string, offset int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[offset] ^= 0x10
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// findRecord returns where the record of a sequence begins in a block file, and where it ends. A
// record begins with its length, whose top bit says that it has headers, and its sequence.
func findRecord(t *testing.T, path string, seq uint64) (begin, end int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for begin = 0; begin < len(data); begin = end {
		end = begin + int(binary.LittleEndian.Uint32(data[begin:])&^(1<<31))
		if binary.LittleEndian.Uint64(data[begin+4:]) == seq {
			return begin, end
		}
	}

	t.Fatalf("%s has no record of %d", path, seq)
	return 0, 0
}

// TestFlippedBitLosesOnlyItsMessage tests I1 and I11: one flipped bit anywhere in the record of a
// message loses that message and no other, after an orderly stop and after a kill. No reader crosses
// the hole, whether it has read the message before or not. Once the hole is accepted, every reader
// crosses it, even if the message comes back.
func TestFlippedBitLosesOnlyItsMessage(t *testing.T) {
	t.Parallel()
	for _, damaged := range []uint64{1, 3, 5} {
		for _, offset := range []int{0, 2, 5, 13, 21, 24, 40, -3} { // length, sequence, time, subject, message, checksum
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d at %d, killed %v", damaged, offset, killed), func(t *testing.T) {
					t.Parallel()
					testFlippedBit(t, damaged, offset, killed)
				})
			}
		}
	}
}

// testFlippedBit publishes six envelopes and flips a bit in the record of one of them, at an offset
// from its beginning, or from its end if the offset is negative.
func testFlippedBit(t *testing.T, damaged uint64, offset int, killed bool) {
	t.Helper()
	const head = 6
	cfg := Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	l := mustOpenLog(t, cfg)
	p := newPublisher(t, l, PublisherOptions{})
	for n := range head {
		mustPublish(t, p, newFollows(n, n+1))
	}
	all := readWholeLog(t, l)
	closeLog(t, l)

	// Flip the bit while the server is down. After a kill there is no index file.
	path := listBlockFiles(t, cfg.Dir)[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := findRecord(t, path, damaged)
	if offset >= 0 {
		flipBit(t, path, begin+offset)
	} else {
		flipBit(t, path, end+offset)
	}
	if killed {
		if err := os.Remove(filepath.Join(filepath.Dir(path), "index.db")); err != nil {
			t.Fatal(err)
		}
	}

	// The log has lost only the damaged message.
	l = mustOpenLog(t, cfg)
	archive := &memoryArchive{envs: all} // archives nothing yet
	l.SetArchive(archive)
	ctx := testContext(t)
	if h, err := l.Head(ctx); err != nil || h.Last != head {
		t.Fatalf("end of the log: got %d and error %v, want %d", h.Last, err, head)
	}
	if read, err := l.VerifyUnarchived(ctx); err != nil || read != head-1 {
		t.Errorf("whole messages: got %d and error %v, want %d", read, err, head-1)
	}

	holes, err := l.Holes(ctx)
	if err != nil || len(holes) != 1 || holes[0] != (SeqRange{damaged, damaged}) {
		t.Fatalf("missing ranges: got %v and error %v, want only %d", holes, err, damaged)
	}

	// A reader stops before the hole, and one whose cursor is after the hole cannot start, because its
	// warm-up crosses the hole.
	for from := range uint64(head + 1) {
		c := l.Start()
		if from > 0 {
			c = all[from-1].Cursor
		}
		reached, hole := readUntilHole(t, l, c)
		if hole != (HoleError{damaged, damaged}) {
			t.Errorf("reader from %d: got hole %v, want only %d", from, hole, damaged)
		}
		want := from
		if from < damaged {
			want = damaged - 1
		}
		if reached != want {
			t.Errorf("last sequence of the reader from %d: got %d, want %d", from, reached, want)
		}
	}

	if err := l.AcceptHole(ctx, SeqRange{damaged, damaged}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)

	// The undamaged file comes back after the hole was accepted.
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(path), "index.db")); err != nil {
		t.Fatal(err)
	}
	l = mustOpenLog(t, cfg)
	l.SetArchive(archive)

	// Every reader crosses the hole, and gets the same lost envelope.
	var fromStart []*events.Envelope
	for from := range uint64(head) {
		c := l.Start()
		if from > 0 {
			c = all[from-1].Cursor
		}
		got := readFromCursor(t, l, c, head, 1<<20)
		if from == 0 {
			fromStart = got
		}
		for i, env := range got {
			// The cursors may differ, because a reader that has read the lost message may warm up
			// from elsewhere.
			if !equalInArchive(env, fromStart[int(from)+i]) {
				t.Errorf("reader from %d: got %+v, want %+v", from, env, fromStart[int(from)+i])
			}
			isDamaged := env.Seq() == damaged
			if got := len(env.Rejects) == 1; got != isDamaged {
				t.Errorf("rejects of envelope %d: got %v, want one reject only at %d", env.Seq(), env.Rejects, damaged)
			}
			if got := len(env.Events) == 0; got != isDamaged {
				t.Errorf("events of envelope %d: got %v, want none only at %d", env.Seq(), env.Events, damaged)
			}
		}
	}

	closeLog(t, l)
}

// readUntilHole reads after a cursor, one envelope at a time, until the reader reports a hole. It
// returns the sequence that the reader reached, and the hole.
func readUntilHole(t *testing.T, l *Log, after events.Cursor) (reached uint64, hole HoleError) {
	t.Helper()
	r := newReader(l, after)
	defer r.close()
	for seq := after.Seq; ; seq++ {
		envs, err := r.nextEnvelopes(testContext(t), 1)
		if hole, ok := errors.AsType[*HoleError](err); ok {
			return seq, *hole
		}
		if err != nil || len(envs) != 1 || envs[0].Seq() != seq+1 {
			t.Fatalf("reader from %d: got %v and error %v, want envelope %d", after.Seq, envs, err, seq+1)
		}
	}
}

// TestAcceptedHoleSurvivesNewEpoch checks that the lost envelopes of an accepted hole stay the same
// when the log is damaged again, continues in a new epoch, or is salvaged.
func TestAcceptedHoleSurvivesNewEpoch(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		appendHistory(t, l, drawHistory(12).Example(2))
		l.SetArchive(&memoryArchive{envs: readWholeLog(t, l)})
		deleteMessages(t, l, 3, 4, 5)

		// A range can be accepted only if all of it is missing.
		ctx := testContext(t)
		for _, present := range []SeqRange{{2, 3}, {5, 6}, {0, 3}, {4, 3}, {12, 13}, {13, 13}} {
			if err := l.AcceptHole(ctx, present); !errors.Is(err, ErrNotMissing) {
				t.Errorf("accept %+v: got error %v, want %v", present, err, ErrNotMissing)
			}
		}

		for _, accepted := range []SeqRange{{4, 4}, {3, 3}, {5, 5}} {
			if err := l.AcceptHole(ctx, accepted); err != nil {
				t.Fatal(err)
			}
		}

		if err := l.AcceptHole(ctx, SeqRange{4, 4}); !errors.Is(err, ErrNotMissing) {
			t.Errorf("accept 4 a second time: got error %v, want %v", err, ErrNotMissing)
		}

		all := readWholeLog(t, l)
		if len(all) != 12 || len(all[2].Rejects) != 1 {
			t.Fatalf("log with the hole: got %d envelopes and %+v, want 12 and one reject in the third", len(all), all[2])
		}

		envs, report := mustSalvage(t, l, l.Start())
		checkSameEnvelopes(t, "salvaged", envs, all, 0)
		if len(report.Lost) > 0 {
			t.Errorf("lost in the salvage: got %v, want none", report.Lost)
		}

		// Continue in a new epoch, from an archive that has everything.
		archive := &memoryArchive{envs: all}
		l.archive = archive
		_, err := l.NextEpoch(ctx, 0, nil, func(_ context.Context, head uint64) (events.Cursor, error) {
			archive.setLength(int(head))
			return archive.End(), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if holes := l.AcceptedHoles(); len(holes) != 1 || holes[0] != (SeqRange{3, 5}) {
			t.Errorf("accepted holes in the new epoch: got %v, want %v", holes, []SeqRange{{3, 5}})
		}
		checkSameEnvelopes(t, "in the new epoch", readFromCursor(t, l, l.Start(), 12, 1<<20), all, 0)
		closeLog(t, l)
	})
}

// TestReaderContinuesWhenHoleCloses checks that a reader that waits in front of a hole continues by
// itself once another process has archived the missing messages.
func TestReaderContinuesWhenHoleCloses(t *testing.T) {
	l, _ := openFilledLog(t, 10, 1)
	all := readWholeLog(t, l)
	archive := &memoryArchive{envs: all, archivedLen: 2}
	l.SetArchive(archive)
	deleteMessages(t, l, 5, 6)

	h, _ := runHub(t, l, HubOptions{})
	began := time.Now() // the hub reads, and pauses, from the subscription on
	s := mustSubscribe(t, h, all[2].Cursor)
	for range 3 {
		envs, err := s.Next(testContext(t), 1<<20)
		if len(envs) == 0 && !errors.Is(err, events.ErrHole) {
			t.Fatalf("Next in front of the hole: got error %v, want %v", err, events.ErrHole)
		}
	}

	if waited := time.Since(began); waited < firstRetryPause {
		t.Errorf("time of three attempts: got %v, want at least %v", waited, firstRetryPause)
	}

	// Another process has archived the missing messages.
	archive.setLength(7)
	got := readAcrossHole(t, s, 10)
	if last := got[len(got)-1].Seq(); last != 10 {
		t.Errorf("last envelope after the hole closed: got %d, want 10", last)
	}
	if rejects := fmt.Sprint(got[0].Rejects); strings.Contains(rejects, "lost") {
		t.Errorf("rejects of the first envelope after the hole closed: got %s, want none lost", rejects)
	}
	if holes, err := l.Holes(testContext(t)); len(holes) > 0 || err != nil {
		t.Errorf("missing ranges: got %v and error %v, want none", holes, err)
	}
}

// TestReaderAtHeadLearnsOfAcceptedHole checks that a reader that waits in front of a hole learns that
// the hole was accepted, even if no envelope comes after its cursor.
func TestReaderAtHeadLearnsOfAcceptedHole(t *testing.T) {
	l, _ := openFilledLog(t, 10, 1)
	all := readWholeLog(t, l)
	deleteMessages(t, l, 5)

	h, _ := runHub(t, l, HubOptions{})
	ctx := testContext(t)
	atHead := mustSubscribe(t, h, all[9].Cursor)
	behind := mustSubscribe(t, h, all[5].Cursor)
	for _, s := range []*Subscription{atHead, behind} {
		if _, err := s.Next(ctx, 1<<20); !errors.Is(err, events.ErrHole) {
			t.Fatalf("Next in front of the hole: got error %v, want %v", err, events.ErrHole)
		}
	}

	if err := l.AcceptHole(ctx, SeqRange{5, 5}); err != nil {
		t.Fatal(err)
	}

	for _, s := range []*Subscription{atHead, behind} {
		envs, err := s.Next(ctx, 1<<20)
		for errors.Is(err, events.ErrHole) {
			envs, err = s.Next(ctx, 1<<20)
		}
		if err != nil {
			t.Errorf("first call after the hole was accepted: got error %v, want none", err)
		}
		if s == atHead && len(envs) > 0 {
			t.Errorf("first call of the reader at the head: got %v, want no envelopes", envs)
		}
	}

	if envs, err := behind.Next(ctx, 1<<20); err != nil || len(envs) == 0 || envs[len(envs)-1].Seq() > 10 {
		t.Errorf("second call after the hole was accepted: got %v and error %v, want envelopes up to 10", envs, err)
	}
}
