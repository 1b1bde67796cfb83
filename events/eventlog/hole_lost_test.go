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

// blocksOf returns the files of messages of a log in a directory, oldest first.
func listBlockFiles(t *testing.T, dir string) []string {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", StreamName, "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("blocks %v, %v", blocks, err)
	}
	return blocks
}

// flip changes one bit of a file.
func flipBit(t *testing.T, name string, at int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 0x10
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// recordAt returns where the record of a sequence begins in a file of messages, and where it ends. A record begins with its length, of
// which the top bit says that it has headers, and its sequence.
func findRecord(t *testing.T, path string, of uint64) (begin, end int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(data); at = end {
		end = at + int(binary.LittleEndian.Uint32(data[at:])&^(1<<31))
		if binary.LittleEndian.Uint64(data[at+4:]) == of {
			return at, end
		}
	}
	t.Fatalf("%s has no record of %d", path, of)
	return 0, 0
}

// I1, I11: one flipped bit anywhere in a message in the middle of the stream loses that message and no other, and nothing is
// read across it, after an orderly stop and after a kill: not by who has read it before, and not by who has not. Once that is
// accepted, all read over it, also if the message should come back.
func TestFlippedBitLosesOnlyItsMessage(t *testing.T) {
	t.Parallel()
	for _, damaged := range []uint64{1, 3, 5} {
		for _, at := range []int{0, 2, 5, 13, 21, 24, 40, -3} { // length, sequence, time, subject, message, checksum
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d at %d, killed %v", damaged, at, killed), func(t *testing.T) {
					t.Parallel()
					testFlippedBit(t, damaged, at, killed)
				})
			}
		}
	}
}

func testFlippedBit(t *testing.T, damaged uint64, at int, killed bool) {
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
	path := listBlockFiles(t, cfg.Dir)[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := findRecord(t, path, damaged)
	if at < 0 {
		begin = end
	}
	flipBit(t, path, begin+at)
	if killed {
		if err := os.Remove(filepath.Join(filepath.Dir(path), "index.db")); err != nil {
			t.Fatal(err)
		}
	}

	l = mustOpenLog(t, cfg)
	past := &memoryArchive{envs: all} // which has nothing yet
	l.SetArchive(past)
	ctx := testContext(t)
	if h, err := l.Head(ctx); err != nil || h.Last != head {
		t.Fatalf("the log ends at %d: %v", h.Last, err)
	}
	if read, err := l.Examine(ctx); err != nil || read != head-1 {
		t.Errorf("%d are whole: %v", read, err)
	}
	holes, err := l.Holes(ctx)
	if err != nil || len(holes) != 1 || holes[0] != (SeqRange{damaged, damaged}) {
		t.Fatalf("missing are %v: %v", holes, err)
	}
	for from := range uint64(head + 1) { // the warm-up of those after it goes over it
		c := l.Start()
		if from > 0 {
			c = all[from-1].Cursor
		}
		r := newReader(l, c)
		for at := from; ; at++ {
			envs, err := r.next(ctx, 1)
			if hole, ok := errors.AsType[*HoleError](err); ok {
				if *hole != (HoleError{damaged, damaged}) || from < damaged && at != damaged-1 || from >= damaged && at != from {
					t.Errorf("from %d it came to %d: %v", from, at, err)
				}
				break
			}
			if err != nil || len(envs) != 1 || envs[0].Seq() != at+1 {
				t.Fatalf("from %d, after %d: %v, %v", from, at, envs, err)
			}
		}
		r.close()
	}
	if err := l.AcceptHole(ctx, SeqRange{damaged, damaged}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	// The file comes back, too late.
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(path), "index.db")); err != nil {
		t.Fatal(err)
	}
	l = mustOpenLog(t, cfg)
	l.SetArchive(past)
	var straight []*events.Envelope
	for from := range uint64(head) {
		c := l.Start()
		if from > 0 {
			c = all[from-1].Cursor
		}
		got := readFromCursor(t, l, c, head, 1<<20)
		if from == 0 {
			straight = got
		}
		for i, env := range got {
			// Who has folded what is lost may warm up from elsewhere.
			if !equalInArchive(env, straight[int(from)+i]) {
				t.Errorf("from %d comes %+v, want %+v", from, env, straight[int(from)+i])
			}
			if lost := env.Seq() == damaged; lost != (len(env.Rejects) == 1) || lost != (len(env.Events) == 0) {
				t.Errorf("envelope %d is %+v", env.Seq(), env)
			}
		}
	}
	closeLog(t, l)
}

// What an accepted hole is stays when the log is damaged again, continues in a new epoch, or is salvaged.
func TestAcceptedHoleSurvivesNewEpoch(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
		appendHistory(t, l, drawHistory(12).Example(2))
		l.SetArchive(&memoryArchive{envs: readWholeLog(t, l)})
		deleteMessages(t, l, 3, 4, 5)
		ctx := testContext(t)
		for _, refused := range []SeqRange{{2, 3}, {5, 6}, {0, 3}, {4, 3}, {12, 13}, {13, 13}} {
			if err := l.AcceptHole(ctx, refused); !errors.Is(err, ErrNotMissing) {
				t.Errorf("%+v: %v", refused, err)
			}
		}
		for _, accepted := range []SeqRange{{4, 4}, {3, 3}, {5, 5}} {
			if err := l.AcceptHole(ctx, accepted); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.AcceptHole(ctx, SeqRange{4, 4}); !errors.Is(err, ErrNotMissing) {
			t.Errorf("accepted twice: %v", err)
		}
		all := readWholeLog(t, l)
		if len(all) != 12 || len(all[2].Rejects) != 1 {
			t.Fatalf("%d envelopes, %+v", len(all), all[2])
		}
		envs, report := mustSalvage(t, l, l.Start())
		checkSameEnvelopes(t, "salvaged", envs, all, 0)
		if len(report.Lost) > 0 {
			t.Errorf("salvaged without %v", report.Lost)
		}
		past := &memoryArchive{envs: all}
		l.archive = past
		if _, err := l.NextEpoch(ctx, 0, func(_ context.Context, head uint64) (events.Cursor, error) {
			past.setLength(int(head))
			return past.End(), nil
		}); err != nil {
			t.Fatal(err)
		}
		if holes := l.AcceptedHoles(); len(holes) != 1 || holes[0] != (SeqRange{3, 5}) {
			t.Errorf("in the new epoch accepted are %v", holes)
		}
		checkSameEnvelopes(t, "in the new epoch", readFromCursor(t, l, l.Start(), 12, 1<<20), all, 0)
		closeLog(t, l)
	})
}

// A hole that is closed is closed for those who wait in front of it, by themselves.
func TestReaderContinuesWhenHoleCloses(t *testing.T) {
	l, _ := openFilledLog(t, 10, 1)
	all := readWholeLog(t, l)
	past := &memoryArchive{envs: all, archivedLen: 2}
	l.SetArchive(past)
	deleteMessages(t, l, 5, 6)
	h, _ := runHub(t, l, HubOptions{})
	s := mustSubscribe(t, h, all[2].Cursor)
	began := time.Now()
	for range 3 {
		envs, err := s.Next(testContext(t), 1<<20)
		if len(envs) == 0 && !errors.Is(err, events.ErrHole) {
			t.Fatal(err)
		}
	}
	if waited := time.Since(began); waited < firstRetryPause {
		t.Errorf("two looks in %v", waited)
	}
	past.setLength(7) // another process has archived them
	got := readAcrossHole(t, s, 10)
	if got[len(got)-1].Seq() != 10 || strings.Contains(fmt.Sprint(got[0].Rejects), "lost") {
		t.Errorf("read %+v", got)
	}
	if holes, err := l.Holes(testContext(t)); len(holes) > 0 || err != nil {
		t.Errorf("missing are %v: %v", holes, err)
	}
}

// A reader that waits in front of a hole learns that the hole was accepted, though nothing comes after it.
func TestReaderAtHeadLearnsOfAcceptedHole(t *testing.T) {
	l, _ := openFilledLog(t, 10, 1)
	all := readWholeLog(t, l)
	deleteMessages(t, l, 5)
	h, _ := runHub(t, l, HubOptions{})
	ctx := testContext(t)
	shared, alone := mustSubscribe(t, h, all[9].Cursor), mustSubscribe(t, h, all[5].Cursor)
	for _, s := range []*Subscription{shared, alone} {
		if _, err := s.Next(ctx, 1<<20); !errors.Is(err, events.ErrHole) {
			t.Fatal(err)
		}
	}
	if err := l.AcceptHole(ctx, SeqRange{5, 5}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Subscription{shared, alone} {
		envs, err := s.Next(ctx, 1<<20)
		for errors.Is(err, events.ErrHole) {
			envs, err = s.Next(ctx, 1<<20)
		}
		if err != nil || len(envs) > 0 && s == shared {
			t.Errorf("behind the hole: %v, %v", envs, err)
		}
	}
	if envs, err := alone.Next(ctx, 1<<20); err != nil || len(envs) == 0 || envs[len(envs)-1].Seq() > 10 {
		t.Errorf("after the hole: %v, %v", envs, err)
	}
}
