package stores

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

const redisPlaySeries = "redis ZADD + ZREMRANGEBYSCORE"

// playRuns returns n runs within the first month, and then n runs of one month each.
func (s seenSize) playRuns(n int) (open, later []playRun) {
	length := (monthStart(1) - monthStart(0)) / events.Micros(n)
	for i := range n {
		from := monthStart(0) + length*events.Micros(i)
		open = append(open, playRun{from, from + length, s.plays, s.users, uint64(i)})
		later = append(later, playRun{monthStart(1 + i), monthStart(2 + i), s.plays, s.users, uint64(n + i)})
	}
	return open, later
}

// measureSeenFold measures how fast plays are folded: in the first month, in which nothing is
// closed, and in the months after it, each of which seals the one before.
func measureSeenFold(ctx context.Context, b *measure.Bench, size seenSize) (err error) {
	f, err := openSeenStore(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()
	server, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.Everysec)
	if err != nil {
		return err
	}
	s := seenRedis{server}
	defer func() { err = errors.Join(err, s.Close()) }()

	open, later := size.playRuns(min(b.Opts.Runs, maxLongRuns))
	for _, part := range []struct {
		id, title, note string
		runs            []playRun
	}{
		{
			"seen-fold", "plays, one month, nothing sealed",
			fmt.Sprintf("%d plays a run, of random items by random ones of %d users; each run goes on where the one before "+
				"ended. skein: fold envelopes of %d plays, decoded beforehand, %d together, until all are flushed. Redis: the same "+
				"plays in pipelines of %d over 2 connections, encoded beforehand, AOF everysec, until the last reply; what is older "+
				"than %d months is trimmed with each play.",
				size.plays, size.users, playsPerEnvelope, envelopesPerPlayFold, writesPipelined, windowMonths), open,
		},
		{
			"seen-fold-sealing", "plays, months that seal the one before",
			"as above, and after it in the same store and server: each run is one month, in the first week of which the month " +
				"before is sealed, as Bloom filters.", later,
		},
	} {
		if err := measureSeenFoldRows(ctx, b, part.id, part.title, part.note, f, s, part.runs); err != nil {
			return err
		}
	}
	return checkFoldedPlays(ctx, f, s, slices.Concat(open, later))
}

// measureSeenFoldRows measures runs of plays in two rows: by time, and by processor time.
func measureSeenFoldRows(
	ctx context.Context, b *measure.Bench, id, title, note string, f *seenStore, s seenRedis, runs []playRun,
) error {
	row := b.AddRow(id, title, "plays/s", note)
	core := b.AddRow(id+"-core", title+", by processor time", "plays/s", "the same measurements, by seconds of one core: of "+
		"skein all threads, flushes, compactions and garbage collection included; of Redis the server alone, without the "+
		"program that sends.")
	// The report has the series in the order in which they were added. The contenders add them too,
	// but not always in this order.
	core.SeriesOf(measure.Skein)
	core.SeriesOf(redisPlaySeries)
	err := b.MeasureRunsInTurn(ctx, len(runs), row,
		measure.Contender{Name: measure.Skein, Measure: measureNextRun(runs, func(ctx context.Context, run playRun) (measure.Measurement, error) {
			envs, err := f.decodePlays(slices.Collect(run.plays()))
			if err != nil {
				return measure.Measurement{}, err
			}
			runtime.GC() // the fold should not pay for the garbage of the encoding

			watch, err := measure.StartStopwatch()
			if err != nil {
				return measure.Measurement{}, err
			}
			if err := errors.Join(f.foldDecoded(ctx, envs), f.Store.Flush()); err != nil {
				return measure.Measurement{}, err
			}
			took, used := watch.Read()
			core.SeriesOf(measure.Skein).Add(measure.Measurement{Value: float64(run.count) / used.Seconds()})
			return measure.Measurement{Value: float64(run.count) / took.Seconds()}, nil
		})},
		measure.Contender{Name: redisPlaySeries, Measure: measureNextRun(runs, func(ctx context.Context, run playRun) (measure.Measurement, error) {
			took, used, err := s.writePlays(ctx, slices.Collect(run.plays()))
			core.SeriesOf(redisPlaySeries).Add(measure.Measurement{Value: float64(run.count) / used.Seconds()})
			return measure.Measurement{Value: float64(run.count) / took.Seconds()}, err
		})})
	if err != nil {
		return err
	}
	row.Compare(measure.Skein, "", 800_000, false)
	row.Compare(measure.Skein, redisPlaySeries, 2, false)
	core.Compare(measure.Skein, redisPlaySeries, 0, false)
	return nil
}

// checkFoldedPlays returns an error unless a few users have seen all that they played, in the store
// and in Redis.
func checkFoldedPlays(ctx context.Context, f *seenStore, s seenRedis, runs []playRun) error {
	const checkedUsers = 20 // of the lowest numbers; users play equally often
	var played [checkedUsers][]uint64
	for _, run := range runs {
		for p := range run.plays() {
			// Older plays may have been dropped by now.
			if p.user < checkedUsers && p.playedAt > runs[len(runs)-1].to-redisWindow {
				played[p.user] = append(played[p.user], p.item)
			}
		}
	}

	for user, items := range played {
		reader := seenReader{number: uint32(user)}
		reader.setCandidates(items)
		unseen, err := f.appendUnseen(reader.number, items, nil)
		if err != nil {
			return err
		}
		inRedis, err := s.unseenByZMScore(ctx, &reader, nil)
		if err != nil {
			return err
		}
		if len(unseen) > 0 || len(inRedis) > 0 {
			return fmt.Errorf("of %d plays of %s skein has lost %d and redis %d",
				len(items), workload.UserID(reader.number), len(unseen), len(inRedis))
		}
	}
	return nil
}
