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
	if !slices.Equal(plays, slices.Collect(run.plays())) {
		t.Error("the same run gave other plays")
	}
	other := run
	other.seed++
	if slices.Equal(plays, slices.Collect(other.plays())) {
		t.Error("another run gave the same plays")
	}
	users := make(map[uint32]bool)
	for i, p := range plays {
		if p.playedAt < run.from || p.playedAt >= run.to || i > 0 && p.playedAt <= plays[i-1].playedAt {
			t.Fatalf("play %d is at %d", i, p.playedAt)
		}
		users[p.user] = true
	}
	if len(plays) != run.count || len(users) != run.userCount {
		t.Errorf("%d plays by %d users", len(plays), len(users))
	}
}

func TestPlayRunsFollowEachOther(t *testing.T) {
	size := seenSize{users: 10, plays: 100}
	open, later := size.playRuns(3)
	for i, r := range slices.Concat(open, later) {
		inside := r.from >= monthStart(0) && r.to <= monthStart(1)
		if r.count != 100 || r.userCount != 10 || r.seed != uint64(i) || inside != (i < 3) {
			t.Errorf("run %d: %+v", i, r)
		}
	}
	if last := later[2]; last.from != monthStart(3) || last.to != monthStart(4) || open[2].from != open[1].to {
		t.Errorf("runs %v and %v", open, later)
	}
}

func TestPlayedItemsDiffer(t *testing.T) {
	seen := make(map[uint64]bool)
	for _, reader := range []uint32{0, 1, 1111, 1<<16 - 1} {
		for _, n := range []int{0, 1, 2, 3, 1000, 400_000, 1<<24 - 1} {
			for _, item := range []uint64{playedItem(reader, n), unplayedItem(reader, n)} {
				if seen[item] || len(workload.UserID(0)) != 13 || item < workload.FirstID || item >= 10*workload.FirstID {
					t.Errorf("item %d of reader %d is %d", n, reader, item)
				}
				seen[item] = true
			}
		}
	}
}

func TestPlaysOfClassesAreEvenlySpread(t *testing.T) {
	classes := []playDensity{{3, 4}, {2, 50}}
	var last events.Micros
	count := make(map[[2]int]int)
	items := make(map[uint64]bool)
	for p := range playsOfClasses(classes...) {
		month := 0
		for p.playedAt >= monthStart(month+1) {
			month++
		}
		if p.playedAt <= last || p.playedAt >= monthStart(month)+20*day {
			t.Fatalf("a play at %v after one at %v", p.playedAt, last)
		}
		last = p.playedAt
		count[[2]int{month, int(p.user)}]++
		items[p.item] = true
	}
	for month := range windowMonths {
		for user, want := range []int{4, 4, 4, 50, 50} {
			if n := count[[2]int{month, user}]; n != want {
				t.Errorf("month %d: %d plays of user %d, not %d", month, n, user, want)
			}
		}
	}
	if len(items) != windowMonths*112 || len(count) != windowMonths*5 {
		t.Errorf("%d items in %d months of users", len(items), len(count))
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
	for _, then := range []func() (int64, error){
		func() (int64, error) { return f.BytesAfterClose() },
		func() (int64, error) { return f.CompactedBytes(t.Context()) },
	} {
		if err := c.check(t.Context(), readers); err != nil {
			t.Error(err)
		}
		if n, err := then(); err != nil || n == 0 {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	strangers := makeSeenReaders(3, 500, 5000)
	if err := c.check(t.Context(), strangers); err == nil || !strings.Contains(err.Error(), "taken for unseen") {
		t.Errorf("plays that were not folded: %v", err)
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
			t.Errorf("%v: %d are missing, %v", c.answer, missing, err)
		}
	}
	if n := maxMissing(1_000_000); n != 1000+126+1 {
		t.Errorf("%d of a million may be missing", n)
	}
	c := seenContender{"mine", true, func(context.Context, *seenReader, []uint32) ([]uint32, error) { return []uint32{1, 4, 6}, nil }}
	if err := c.check(t.Context(), []seenReader{*r}); err == nil || !strings.Contains(err.Error(), "takes 1 of 4") {
		t.Errorf("an exact answer with a false positive: %v", err)
	}
	if c.exact = false; c.check(t.Context(), []seenReader{*r}) != nil {
		t.Error("one false positive of four candidates may be chance")
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
		t.Errorf("%d bytes", size)
	}
	filter := makeBitString(size, played)
	for item := range played {
		if !filter.mayContain(hashItem(item)) {
			t.Fatalf("%d is not in the filter", item)
		}
	}
	found := 0
	for n := range 100_000 {
		if filter.mayContain(hashItem(unplayedItem(3, n))) {
			found++
		}
	}
	if found > 60 {
		t.Errorf("%d of 100000 are in the filter by chance", found)
	}
	if bitString("").mayContain(1) {
		t.Error("something is in no filter")
	}
}

func TestPlayCommandsAreEncoded(t *testing.T) {
	const want = "*4\r\n$4\r\nZADD\r\n$15\r\ns:1000000000007\r\n$16\r\n1767225600000000\r\n$2\r\n42\r\n" +
		"*4\r\n$16\r\nZREMRANGEBYSCORE\r\n$15\r\ns:1000000000007\r\n$4\r\n-inf\r\n$16\r\n1756512000000000\r\n"
	if got := string(appendPlay(nil, play{playedAt: monthStart(0), item: 42, user: 7})); got != want {
		t.Errorf("%q", got)
	}
}
