package stores

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

func TestPlayRunIsReproducible(t *testing.T) {
	run := playRun{from: monthStart(0), to: monthStart(1), count: 5000, userCount: 30, seed: 1}
	plays := slices.Collect(run.plays())
	if again := slices.Collect(run.plays()); !slices.Equal(plays, again) {
		t.Error("plays of the same run: got other plays, want the same")
	}
	otherRun := run
	otherRun.seed++
	if slices.Equal(plays, slices.Collect(otherRun.plays())) {
		t.Error("plays of another seed: got the same plays, want other ones")
	}

	users := make(map[uint32]bool)
	for i, p := range plays {
		if p.playedAt < run.from || p.playedAt >= run.to {
			t.Fatalf("time of play %d: got %d, want it from %d to %d", i, p.playedAt, run.from, run.to)
		}
		if i > 0 && p.playedAt <= plays[i-1].playedAt {
			t.Fatalf("time of play %d: got %d, want it after %d", i, p.playedAt, plays[i-1].playedAt)
		}
		users[p.user] = true
	}
	if len(plays) != run.count {
		t.Errorf("plays: got %d, want %d", len(plays), run.count)
	}
	if len(users) != run.userCount {
		t.Errorf("users: got %d, want %d", len(users), run.userCount)
	}
}

func TestPlayRunsFollowEachOther(t *testing.T) {
	size := seenSize{users: 10, plays: 100}
	open, later := size.playRuns(3)
	for i, run := range slices.Concat(open, later) {
		if run.count != 100 || run.userCount != 10 || run.seed != uint64(i) {
			t.Errorf("run %d: got %+v, want 100 plays of 10 users with the seed %d", i, run, i)
		}

		// Only the first three runs are in the first month.
		isInFirstMonth := run.from >= monthStart(0) && run.to <= monthStart(1)
		if want := i < 3; isInFirstMonth != want {
			t.Errorf("run %d in the first month: got %v, want %v: %+v", i, isInFirstMonth, want, run)
		}
	}
	if last := later[2]; last.from != monthStart(3) || last.to != monthStart(4) {
		t.Errorf("last run: got %+v, want the whole fourth month", last)
	}
	if open[2].from != open[1].to {
		t.Errorf("start of run 2: got %d, want %d, the end of run 1", open[2].from, open[1].to)
	}
}

func TestPlayedItemsDiffer(t *testing.T) {
	if got := len(workload.UserID(0)); got != 13 {
		t.Errorf("digits of an id: got %d, want 13", got)
	}

	seen := make(map[uint64]bool)
	for _, reader := range []uint32{0, 1, 1111, 1<<16 - 1} {
		for _, n := range []int{0, 1, 2, 3, 1000, 400_000, 1<<24 - 1} {
			for _, item := range []uint64{playedItem(reader, n), unplayedItem(reader, n)} {
				if seen[item] {
					t.Errorf("item %d of reader %d: got %d again, want another one", n, reader, item)
				}
				if item < workload.FirstID || item >= 10*workload.FirstID {
					t.Errorf("item %d of reader %d: got %d, want a number of 13 digits", n, reader, item)
				}
				seen[item] = true
			}
		}
	}
}

func TestPlaysOfClassesAreEvenlySpread(t *testing.T) {
	classes := []playDensity{{3, 4}, {2, 50}}
	var last events.Micros
	playCount := make(map[[2]int]int) // by month and user
	items := make(map[uint64]bool)
	for p := range playsOfClasses(classes...) {
		month := 0
		for p.playedAt >= monthStart(month+1) {
			month++
		}
		if end := monthStart(month) + 20*day; p.playedAt <= last || p.playedAt >= end {
			t.Fatalf("time of a play: got %v, want it after %v and before %v", p.playedAt, last, end)
		}
		last = p.playedAt
		playCount[[2]int{month, int(p.user)}]++
		items[p.item] = true
	}
	for month := range windowMonths {
		for user, want := range []int{4, 4, 4, 50, 50} {
			if got := playCount[[2]int{month, user}]; got != want {
				t.Errorf("plays of user %d in month %d: got %d, want %d", user, month, got, want)
			}
		}
	}
	if got, want := len(playCount), windowMonths*5; got != want {
		t.Errorf("months of users: got %d, want %d", got, want)
	}

	// In each month, three users play 4 items and two users play 50.
	if got, want := len(items), windowMonths*112; got != want {
		t.Errorf("items: got %d, want %d", got, want)
	}
}

// TestSeenAnswersStayAfterCompaction folds plays and asks what the bench asks, before and after the
// store was closed and compacted.
func TestSeenAnswersStayAfterCompaction(t *testing.T) {
	b := &measure.Bench{Dir: t.TempDir()}
	readers := makeSeenReaders(3, 400, 5000)
	f, err := openSeenStore(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.foldPlays(t.Context(), playsOfClasses(playDensity{3, 400})); err != nil {
		t.Fatal(err)
	}
	c := f.skeinContender()
	checkAnswers := func(state string) {
		t.Helper()
		if err := c.check(t.Context(), readers); err != nil {
			t.Errorf("answers of the %s store: %v", state, err)
		}
	}
	checkSize := func(state string, size int64, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		if size == 0 {
			t.Errorf("bytes of the %s store: got 0, want more", state)
		}
	}

	checkAnswers("new")
	size, err := f.BytesAfterClose()
	checkSize("closed", size, err)
	checkAnswers("reopened")
	size, err = f.CompactedBytes(t.Context())
	checkSize("compacted", size, err)
	checkAnswers("compacted")

	// These readers have more plays than were folded, which the check must notice.
	const wantErr = "taken for unseen"
	otherReaders := makeSeenReaders(3, 500, 5000)
	if err := c.check(t.Context(), otherReaders); err == nil || !strings.Contains(err.Error(), wantErr) {
		t.Errorf("check of plays that were not folded: got error %v, want one with %q", err, wantErr)
	}
	if err := f.CloseAndRemove(); err != nil {
		t.Error(err)
	}
}

func TestWrongAnswersAreNoticed(t *testing.T) {
	r := &seenReader{unseen: []uint32{1, 4, 6, 9}}
	r.setCandidates(make([]uint64, 10))
	for _, c := range []struct {
		answer  []uint32
		missing int
		err     bool
	}{
		{[]uint32{1, 4, 6, 9}, 0, false},
		{[]uint32{4, 9}, 2, false},
		{[]uint32{1}, 3, false},
		{nil, 4, false},
		{[]uint32{1, 2}, 0, true},
		{[]uint32{9, 9}, 0, true},
		{[]uint32{0}, 0, true},
	} {
		missing, err := r.countMissing(c.answer)
		if (err != nil) != c.err || err == nil && missing != c.missing {
			t.Errorf("countMissing(%v): got %d, error %v, want %d, an error: %v", c.answer, missing, err, c.missing, c.err)
		}
	}
	if n := maxMissing(1_000_000); n != 1000+126+1 {
		t.Errorf("maxMissing of a million: got %d, want %d", n, 1000+126+1)
	}
	c := seenContender{"mine", true, func(context.Context, *seenReader, []uint32) ([]uint32, error) { return []uint32{1, 4, 6}, nil }}
	if err := c.check(t.Context(), []seenReader{*r}); err == nil || !strings.Contains(err.Error(), "takes 1 of 4") {
		t.Errorf("check of an exact contender with a false positive: got error %v, want one with %q", err, "takes 1 of 4")
	}

	// One false positive of four candidates may be chance for a contender that is not exact.
	c.exact = false
	if err := c.check(t.Context(), []seenReader{*r}); err != nil {
		t.Errorf("check of an inexact contender with a false positive: got error %v, want none", err)
	}
}

func TestBitStringHasWhatWasPlayed(t *testing.T) {
	const plays = 2000
	played := func(yield func(uint64) bool) {
		for n := range plays {
			if !yield(playedItem(3, n)) {
				return
			}
		}
	}
	size := bitStringBytes(plays)
	if size%8 != 0 || size < 2000*17/8 || size > 2000*18/8 {
		t.Errorf("bytes for %d plays: got %d, want 17 to 18 bits per play, in whole words", plays, size)
	}
	filter := makeBitString(size, played)
	for item := range played {
		if !filter.mayContain(hashItem(item)) {
			t.Fatalf("mayContain of the played item %d: got false, want true", item)
		}
	}

	// The filter takes some unplayed items for played ones by chance.
	falsePositives := 0
	for n := range 100_000 {
		if filter.mayContain(hashItem(unplayedItem(3, n))) {
			falsePositives++
		}
	}
	if falsePositives > 60 {
		t.Errorf("false positives of 100,000 unplayed items: got %d, want at most 60", falsePositives)
	}

	if bitString("").mayContain(1) {
		t.Error("mayContain of an empty filter: got true, want false")
	}
}

func TestPlayCommandsAreEncoded(t *testing.T) {
	const want = "*4\r\n$4\r\nZADD\r\n$15\r\ns:1000000000007\r\n$16\r\n1767225600000000\r\n$2\r\n42\r\n" +
		"*4\r\n$16\r\nZREMRANGEBYSCORE\r\n$15\r\ns:1000000000007\r\n$4\r\n-inf\r\n$16\r\n1756512000000000\r\n"
	if got := string(appendPlay(nil, play{playedAt: monthStart(0), item: 42, user: 7})); got != want {
		t.Errorf("appendPlay: got %q, want %q", got, want)
	}
}
