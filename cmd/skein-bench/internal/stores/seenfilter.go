package stores

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// seenReader is a reader and a question about the reader: which of some candidates has the reader
// not seen?
type seenReader struct {
	number uint32
	// playsPerMonth is how many items the reader has played in each month of the window.
	playsPerMonth int
	// items are the candidates as numbers, and itemTexts the same as decimal text. The text is
	// made beforehand, because a client of Redis would have it.
	items     []uint64
	itemTexts []string
	// unseen has the indexes of the candidates that the reader has not played: the right answer.
	unseen []uint32
}

// setCandidates sets the candidates.
func (r *seenReader) setCandidates(items []uint64) {
	r.items = items
	r.itemTexts = make([]string, len(items))
	for i, item := range items {
		r.itemTexts[i] = strconv.FormatUint(item, 10)
	}
}

// makeSeenReaders makes readers with candidates. About a tenth of the candidates, at random places,
// was played, in all months alike.
func makeSeenReaders(readers, plays, candidates int) []seenReader {
	made := make([]seenReader, readers)
	for i := range made {
		r := &made[i]
		*r = seenReader{number: uint32(i), playsPerMonth: plays}
		source := rand.New(rand.NewPCG(13, uint64(i)))
		items := make([]uint64, candidates)
		for at := range items {
			if source.IntN(10) == 0 {
				items[at] = playedItem(r.number, source.IntN(windowMonths*plays))
				continue
			}
			items[at] = unplayedItem(r.number, at)
			r.unseen = append(r.unseen, uint32(at))
		}
		r.setCandidates(items)
	}
	return made
}

// countMissing returns how many unseen candidates an answer lacks. An answer that has a played
// candidate is an error.
func (r *seenReader) countMissing(answer []uint32) (missing int, err error) {
	expected := r.unseen
	for _, i := range answer {
		for len(expected) > 0 && expected[0] < i {
			expected = expected[1:]
			missing++
		}
		if len(expected) == 0 || expected[0] != i {
			return missing, fmt.Errorf("%s has played %s, which is taken for unseen", workload.UserID(r.number), r.itemTexts[i])
		}
		expected = expected[1:]
	}
	return missing + len(expected), nil
}

// maxFalsePositives is the share of unseen candidates that an answer may take for seen.
const maxFalsePositives = 0.001

// maxMissing returns how many of n unseen candidates answers may lack: the expected number of false
// positives, and four standard deviations.
func maxMissing(n int) int {
	expected := maxFalsePositives * float64(n)
	return int(expected + 4*math.Sqrt(expected) + 1)
}

// seenContender is a way to find what a reader has not seen.
type seenContender struct {
	name string
	// exact says that the answers have no false positives.
	exact bool
	// appendUnseen appends the indexes of the unseen candidates to out.
	appendUnseen func(ctx context.Context, r *seenReader, out []uint32) ([]uint32, error)
}

// skeinContender returns the contender that asks the store.
func (s *seenStore) skeinContender() seenContender {
	return seenContender{
		skeinBloomFilters, false,
		func(_ context.Context, r *seenReader, out []uint32) ([]uint32, error) {
			return s.appendUnseen(r.number, r.items, out)
		},
	}
}

// check returns an error unless the answers for all readers are right.
func (c *seenContender) check(ctx context.Context, readers []seenReader) error {
	missing := 0
	unseen := 0
	for i := range readers {
		r := &readers[i]
		answer, err := c.appendUnseen(ctx, r, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		readerMissing, err := r.countMissing(answer)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		missing += readerMissing
		unseen += len(r.unseen)
	}
	// Bloom filters take some unseen items for seen.
	if c.exact && missing > 0 || missing > maxMissing(unseen) {
		return fmt.Errorf("%s takes %d of %d unseen candidates for seen", c.name, missing, unseen)
	}
	return nil
}

// timeAnswers returns a function that times the answers for one reader after the other.
func (c *seenContender) timeAnswers(b *measure.Bench, readers []seenReader) func(context.Context) (measure.Measurement, error) {
	var out []uint32
	next := 0
	return timeCalls(b, func(ctx context.Context) (err error) {
		out, err = c.appendUnseen(ctx, &readers[next%len(readers)], out[:0])
		next++
		return err
	})
}

// measureSeenFilter measures which of some candidates readers have not seen.
func measureSeenFilter(ctx context.Context, b *measure.Bench, size seenSize) (err error) {
	f, err := openSeenStore(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()
	if err := f.foldPlays(ctx, playsOfClasses(playDensity{size.readers, size.monthPlays})); err != nil {
		return err
	}
	server, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile)
	if err != nil {
		return err
	}
	s := seenRedis{server}
	defer func() { err = errors.Join(err, s.Close()) }()

	// The same readers are asked about many candidates, and about those of a page.
	many := makeSeenReaders(size.readers, size.monthPlays, size.candidates)
	few := makeSeenReaders(size.readers, size.monthPlays, feedPageSize)
	b.Logf("loading plays of %d readers into redis", len(many))
	if err := s.loadPlays(ctx, many); err != nil {
		return err
	}

	others := []seenContender{
		{"redis ZRANGE and a map", true, s.unseenByZRange},
		{"redis ZMSCORE", true, s.unseenByZMScore},
		{"redis bit strings, MGET", false, s.unseenByMGet},
	}
	return errors.Join(
		measureSeenFilterRow(ctx, b, "seen-filter", fmt.Sprintf("in process, a new view of the store for each question, one goroutine; "+
			"%d readers in turn, a tenth of the candidates played. Three months are closed and sealed, one is open. Redis: go-redis, "+
			"over the loopback: all plays of the reader, looked up in a map; the scores of all candidates; the bit strings of the four "+
			"months, Bloom filters of the same size as skein's, probed in the client.", size.readers),
			many, f.skeinContender(), others, 4),
		measureSeenFilterRow(ctx, b, "seen-filter-page", "as above; BITFIELD: one for each month, of all positions, in one pipeline.",
			few, f.skeinContender(), append(others, seenContender{"redis bit strings, BITFIELD", false, s.unseenByBitField}), 0),
	)
}

// measureSeenFilterRow measures the answers of skein and of the others. Skein should be minSpeedup
// times as fast as the first of the others; 0 means that there is no target.
func measureSeenFilterRow(
	ctx context.Context, b *measure.Bench, id, note string, readers []seenReader, ours seenContender, others []seenContender, minSpeedup float64,
) error {
	r := &readers[0]
	row := b.AddRow(id, fmt.Sprintf("%d candidates against %d months of %d plays, p50", len(r.items), windowMonths, r.playsPerMonth), "µs", note)
	var all []measure.Contender
	for _, c := range append([]seenContender{ours}, others...) {
		if err := c.check(ctx, readers); err != nil {
			return err
		}
		all = append(all, measure.Contender{Name: c.name, Measure: c.timeAnswers(b, readers)})
	}
	if err := b.MeasureInTurn(ctx, row, all...); err != nil {
		return err
	}

	for i, o := range others {
		maxRatio := 0.0
		if i == 0 && minSpeedup > 0 {
			maxRatio = 1 / minSpeedup
		}
		row.Compare(ours.name, o.name, maxRatio, true)
	}
	return nil
}
