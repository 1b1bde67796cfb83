package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

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
func (b *bench) seenFold(ctx context.Context, size seenSize) (err error) {
	f, err := b.openSeen(false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	s, err := startRedis(ctx, b.tools.redisServer, b.dir, everysec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	open, later := size.runs(min(b.opts.Runs, feedRuns))
	written := &Row{ID: "seen-written", Title: "bytes written a play", Unit: "bytes", Note: "the tables that flushes and " +
		"compactions wrote, those under way at the end of the last run included. Nothing else is written by a store."}
	before := f.written.Load()
	for _, part := range []struct {
		id, title, written, note string
		runs                     []playRun
	}{
		{
			"seen-fold", "plays, one month, nothing sealed", "skein, one month",
			fmt.Sprintf("%d plays a run, of random items by random ones of %d users; each run goes on where the one before "+
				"ended. skein: fold envelopes of %d plays, decoded beforehand, %d together, until all are flushed. Redis: the same "+
				"plays in pipelines of %d over 2 connections, encoded beforehand, AOF everysec, until the last reply; what is older "+
				"than %d months is trimmed with each play.",
				size.plays, size.users, playsTogether, playEnvelopes, playsPipelined, seenWindow), open,
		},
		{
			"seen-fold-sealing", "plays, months that seal the one before", "skein, with sealing",
			"as above, and after it in the same store and server: each run is one month, in the first week of which the month " +
				"before is sealed, as Bloom filters.", later,
		},
	} {
		if err := b.seenFoldRows(ctx, part.id, part.title, part.note, f, s, part.runs); err != nil {
			return err
		}
		if _, err := f.closedBytes(); err != nil { // what is under way counts here
			return err
		}
		n := f.written.Load()
		written.series(part.written).add(measurement{value: float64(n-before) / float64(len(part.runs)*size.plays)})
		written.compare(part.written, "", 0, true)
		before = n
	}
	b.report.Rows = append(b.report.Rows, written)
	return b.checkFold(ctx, f, s, slices.Concat(open, later))
}

// seenFoldRows measures some runs of plays.
func (b *bench) seenFoldRows(
	ctx context.Context, id, title, note string, f *seenStore, s *redisServer, runs []playRun,
) error {
	row := b.row(id, title, "plays/s", note)
	core := b.row(id+"-core", title+", by processor time", "plays/s", "the same measurements, by seconds of one core: of "+
		"skein all threads, flushes, compactions and garbage collection included; of Redis the server alone, without the "+
		"program that sends.")
	core.series(mySelf)
	core.series(redisPlays)
	err := b.alternateTimes(ctx, len(runs), row,
		contender{mySelf, inTurn(runs, func(ctx context.Context, run playRun) (measurement, error) {
			envs, err := f.decodePlays(slices.Collect(run.all()))
			if err != nil {
				return measurement{}, err
			}
			runtime.GC() // what encoding has left behind is no part of the fold
			used, err := cpuTime()
			if err != nil {
				return measurement{}, err
			}
			begin := time.Now()
			if err := errors.Join(f.foldDecoded(ctx, envs), f.store.Flush()); err != nil {
				return measurement{}, err
			}
			m := rate(run.n, begin)
			now, err := cpuTime()
			core.series(mySelf).add(measurement{value: float64(run.n) / (now - used).Seconds()})
			return m, err
		})},
		contender{redisPlays, inTurn(runs, func(ctx context.Context, run playRun) (measurement, error) {
			took, used, err := s.play(ctx, slices.Collect(run.all()))
			core.series(redisPlays).add(measurement{value: float64(run.n) / used.Seconds()})
			return measurement{value: float64(run.n) / took.Seconds()}, err
		})})
	if err != nil {
		return err
	}
	row.compare(mySelf, "", 800_000, false)
	row.compare(mySelf, redisPlays, 2, false)
	core.compare(mySelf, redisPlays, 0, false)
	return nil
}

// checkFold fails unless a few users have seen all that they played, in the store and in Redis.
func (b *bench) checkFold(ctx context.Context, f *seenStore, s *redisServer, runs []playRun) error {
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
		reader.ask(items)
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
				len(items), userID(reader.number), len(unseen), len(inRedis))
		}
	}
	return nil
}
