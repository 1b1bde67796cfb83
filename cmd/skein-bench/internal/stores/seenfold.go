package stores

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

const redisPlays = "redis ZADD + ZREMRANGEBYSCORE"

// runs are n runs within the first month, and then n of one month each.
func (s seenSize) runs(n int) (open, later []playRun) {
	length := (monthAt(1) - monthAt(0)) / events.Micros(n)
	for i := range n {
		from := monthAt(0) + length*events.Micros(i)
		open = append(open, playRun{from, from + length, s.plays, s.users, uint64(i)})
		later = append(later, playRun{monthAt(1 + i), monthAt(2 + i), s.plays, s.users, uint64(n + i)})
	}
	return open, later
}

// seenFold measures how fast plays are folded: in the first month, in which nothing is closed, and in the months after it,
// each of which seals the one before.
func seenFold(ctx context.Context, b *measure.Bench, size seenSize) (err error) {
	f, err := openSeen(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	server, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.Everysec)
	if err != nil {
		return err
	}
	s := seenRedis{server}
	defer func() { err = errors.Join(err, s.Close()) }()
	open, later := size.runs(min(b.Opts.Runs, feedRuns))
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
				size.plays, size.users, playsTogether, playEnvelopes, writesPipelined, seenWindow), open,
		},
		{
			"seen-fold-sealing", "plays, months that seal the one before",
			"as above, and after it in the same store and server: each run is one month, in the first week of which the month " +
				"before is sealed, as Bloom filters.", later,
		},
	} {
		if err := seenFoldRows(ctx, b, part.id, part.title, part.note, f, s, part.runs); err != nil {
			return err
		}
	}
	return checkFold(ctx, f, s, slices.Concat(open, later))
}

// seenFoldRows measures some runs of plays.
func seenFoldRows(
	ctx context.Context, b *measure.Bench, id, title, note string, f *seenStore, s seenRedis, runs []playRun,
) error {
	row := b.Row(id, title, "plays/s", note)
	core := b.Row(id+"-core", title+", by processor time", "plays/s", "the same measurements, by seconds of one core: of "+
		"skein all threads, flushes, compactions and garbage collection included; of Redis the server alone, without the "+
		"program that sends.")
	core.SeriesOf(measure.Skein)
	core.SeriesOf(redisPlays)
	err := b.AlternateTimes(ctx, len(runs), row,
		measure.Contender{Name: measure.Skein, Measure: inTurn(runs, func(ctx context.Context, run playRun) (measure.Measurement, error) {
			envs, err := f.decodePlays(slices.Collect(run.all()))
			if err != nil {
				return measure.Measurement{}, err
			}
			runtime.GC() // what encoding has left behind is no part of the fold
			used, err := measure.CPUTime()
			if err != nil {
				return measure.Measurement{}, err
			}
			begin := time.Now()
			if err := errors.Join(f.foldDecoded(ctx, envs), f.Store.Flush()); err != nil {
				return measure.Measurement{}, err
			}
			m := measure.Rate(run.n, begin)
			now, err := measure.CPUTime()
			core.SeriesOf(measure.Skein).Add(measure.Measurement{Value: float64(run.n) / (now - used).Seconds()})
			return m, err
		})},
		measure.Contender{Name: redisPlays, Measure: inTurn(runs, func(ctx context.Context, run playRun) (measure.Measurement, error) {
			took, used, err := s.play(ctx, slices.Collect(run.all()))
			core.SeriesOf(redisPlays).Add(measure.Measurement{Value: float64(run.n) / used.Seconds()})
			return measure.Measurement{Value: float64(run.n) / took.Seconds()}, err
		})})
	if err != nil {
		return err
	}
	row.Compare(measure.Skein, "", 800_000, false)
	row.Compare(measure.Skein, redisPlays, 2, false)
	core.Compare(measure.Skein, redisPlays, 0, false)
	return nil
}

// checkFold fails unless a few users have seen all that they played, in the store and in Redis.
func checkFold(ctx context.Context, f *seenStore, s seenRedis, runs []playRun) error {
	const checked = 20
	var played [checked][]uint64
	for _, run := range runs {
		for p := range run.all() {
			if p.user < checked && p.at > runs[len(runs)-1].to-windowLength {
				played[p.user] = append(played[p.user], p.item)
			}
		}
	}
	for user, items := range played {
		reader := seenReader{number: uint32(user)}
		reader.setCandidates(items)
		unseen, err := f.unseen(reader.number, items, nil)
		if err != nil {
			return err
		}
		inRedis, err := s.unseenScores(ctx, &reader, nil)
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
