package stores

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// seenReader is a reader who is asked for with candidates.
type seenReader struct {
	number uint32
	// plays is how many there are in each month of the window.
	plays int
	// items are the candidates, texts the same as text, unseen the indexes of those that were not played.
	items  []uint64
	texts  []string
	unseen []uint32
}

// ask sets the candidates.
func (r *seenReader) ask(items []uint64) {
	r.items, r.texts = items, make([]string, len(items))
	for i, item := range items {
		r.texts[i] = strconv.FormatUint(item, 10)
	}
}

// seenReaders makes readers with candidates, of which every tenth was played, at random places and of all months alike.
func seenReaders(readers, plays, candidates int) []seenReader {
	made := make([]seenReader, readers)
	for i := range made {
		r := &made[i]
		*r = seenReader{number: uint32(i), plays: plays}
		source := rand.New(rand.NewPCG(13, uint64(i)))
		items := make([]uint64, candidates)
		for at := range items {
			if source.IntN(10) == 0 {
				items[at] = playedItem(r.number, source.IntN(seenWindow*plays))
				continue
			}
			items[at] = unplayedItem(r.number, at)
			r.unseen = append(r.unseen, uint32(at))
		}
		r.ask(items)
	}
	return made
}

// wrong counts the unseen candidates that are missing in an answer. It fails if there is one in it that was played.
func (r *seenReader) wrong(answer []uint32) (missing int, err error) {
	truth := r.unseen
	for _, i := range answer {
		for len(truth) > 0 && truth[0] < i {
			truth = truth[1:]
			missing++
		}
		if len(truth) == 0 || truth[0] != i {
			return missing, fmt.Errorf("%s has played %s, which is taken for unseen", workload.UserID(r.number), r.texts[i])
		}
		truth = truth[1:]
	}
	return missing + len(truth), nil
}

// maxFalsePositives is the share of unseen candidates that may be taken for seen.
const maxFalsePositives = 0.001

// mostMissing is how many of n unseen candidates may be missing in answers: what is allowed, and four times the scattering.
func mostMissing(n int) int {
	allowed := maxFalsePositives * float64(n)
	return int(allowed + 4*math.Sqrt(allowed) + 1)
}

// seenContender answers what a reader has not seen.
type seenContender struct {
	name string
	// exact answers have no false positives.
	exact  bool
	unseen func(ctx context.Context, r *seenReader, out []uint32) ([]uint32, error)
}

func (s *seenStore) contender() seenContender {
	return seenContender{
		bloomFilters, false,
		func(_ context.Context, r *seenReader, out []uint32) ([]uint32, error) {
			return s.unseen(r.number, r.items, out)
		},
	}
}

// check fails unless the answers to all readers are right.
func (c *seenContender) check(ctx context.Context, readers []seenReader) error {
	missing, unseen := 0, 0
	for i := range readers {
		r := &readers[i]
		answer, err := c.unseen(ctx, r, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		wrong, err := r.wrong(answer)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		missing, unseen = missing+wrong, unseen+len(r.unseen)
	}
	if c.exact && missing > 0 || missing > mostMissing(unseen) {
		return fmt.Errorf("%s takes %d of %d unseen candidates for seen", c.name, missing, unseen)
	}
	return nil
}

// time asks for one reader after the other, for a third of the time of a measurement.
func (c *seenContender) time(b *measure.Bench, readers []seenReader) func(context.Context) (measure.Measurement, error) {
	return func(ctx context.Context) (measure.Measurement, error) {
		var (
			times []float64
			out   []uint32
			err   error
		)
		for end := time.Now().Add(b.Opts.Time / 3); len(times) < fewestPages || time.Now().Before(end); {
			begin := time.Now()
			if out, err = c.unseen(ctx, &readers[len(times)%len(readers)], out[:0]); err != nil {
				return measure.Measurement{}, err
			}
			times = append(times, measure.Micros(time.Since(begin)))
		}
		m := measure.Latency(times)
		m.Value = m.P50 * 1000
		return m, nil
	}
}

// seenFilter measures which of some candidates readers have not seen.
func seenFilter(ctx context.Context, b *measure.Bench, size seenSize) (err error) {
	f, err := openSeen(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.foldPlays(ctx, classPlays(seenDensity{size.readers, size.monthPlays})); err != nil {
		return err
	}
	server, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile)
	if err != nil {
		return err
	}
	s := seenRedis{server}
	defer func() { err = errors.Join(err, s.Close()) }()
	many, few := seenReaders(size.readers, size.monthPlays, size.candidates), seenReaders(size.readers, size.monthPlays, feedPage)
	b.Say("loading plays of %d readers into redis", len(many))
	if err := s.loadSeen(ctx, many); err != nil {
		return err
	}
	whole := seenContender{"redis ZRANGE and a map", true, s.unseenWhole}
	others := []seenContender{whole, {"redis ZMSCORE", true, s.unseenScores}, {"redis bit strings, MGET", false, s.unseenBits}}
	return errors.Join(
		seenFilterRow(ctx, b, "seen-filter", fmt.Sprintf("in process, a new view of the store for each question, one goroutine; "+
			"%d readers in turn, a tenth of the candidates played. Three months are closed and sealed, one is open. Redis: go-redis, "+
			"over the loopback: all plays of the reader, looked up in a map; the scores of all candidates; the bit strings of the four "+
			"months, Bloom filters of the same size as skein's, probed in the client.", size.readers),
			many, f.contender(), others, 4),
		seenFilterRow(ctx, b, "seen-filter-page", "as above; BITFIELD: one for each month, of all positions, in one pipeline.",
			few, f.contender(), append(others, seenContender{"redis bit strings, BITFIELD", false, s.unseenBitField}), 0),
	)
}

// seenFilterRow measures our answers and those of others. bound is how many times faster than the first of the others ours must be; 0
// means that the row is for information only.
func seenFilterRow(
	ctx context.Context, b *measure.Bench, id, note string, readers []seenReader, ours seenContender, others []seenContender, bound float64,
) error {
	r := &readers[0]
	row := b.Row(id, fmt.Sprintf("%d candidates against %d months of %d plays, p50", len(r.items), seenWindow, r.plays), "µs", note)
	var all []measure.Contender
	for _, c := range append([]seenContender{ours}, others...) {
		if err := c.check(ctx, readers); err != nil {
			return err
		}
		all = append(all, measure.Contender{Name: c.name, Measure: c.time(b, readers)})
	}
	if err := b.Alternate(ctx, row, all...); err != nil {
		return err
	}
	for i, o := range others {
		most := 0.0
		if i == 0 && bound > 0 {
			most = 1 / bound
		}
		row.Compare(ours.name, o.name, most, true)
	}
	return nil
}
