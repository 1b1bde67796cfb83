package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/seen"
)

// expiryWeek is seven days around the end of a month: the day on which it begins, from that of the end on.
type expiryWeek struct {
	name string
	from int
}

func expiryWeeks() []expiryWeek {
	return []expiryWeek{{"the last week of a month", -7}, {"the week of sealing and expiry", 0}, {"the week after", 7}}
}

// seenExpiry measures what it costs that a month is sealed and another one expires: both happen in the first week of a month.
// The days before are folded, too, from so many months back that there is one to expire.
func seenExpiry(ctx context.Context, b *measure.Bench, size seenSize) (err error) {
	f, err := openSeen(b, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	months := seen.DefaultSettings().Retention
	end := monthAt(months)
	b.Say("folding %d months of %d plays a day", months, size.dayPlays)
	note := fmt.Sprintf("%d plays a day by %d users, %d months and two weeks, time compressed, flushed at the end of each day. In "+
		"the first week of a month the one before is sealed and the oldest expires. The median of seven days.",
		size.dayPlays, size.expiryUsers, months)
	written := b.Row("seen-expiry-written", "the end of a month: bytes written a day", "bytes", note)
	slowest := b.Row("seen-expiry-fold", "the end of a month: envelope of plays folded, p99", "µs",
		fmt.Sprintf("the same days; an envelope of %d plays, folded alone.", playsTogether))
	onDisk := b.Row("seen-expiry-disk", "the end of a month: size of the store", "bytes", "at the ends of these weeks, after "+
		"the store was closed.")
	weeks := expiryWeeks()
	for at := monthAt(0); at < end+14*day; at += day {
		today := playRun{at, at + day, size.dayPlays, size.expiryUsers, uint64(at)}
		before := f.Written.Load()
		times, err := f.foldDay(ctx, today)
		if err != nil {
			return err
		}
		number := int((at - end) / day)
		w := slices.IndexFunc(weeks, func(w expiryWeek) bool { return at >= end-7*day && number >= w.from && number < w.from+7 })
		if w < 0 {
			continue
		}
		name := weeks[w].name
		written.SeriesOf(name).Add(measure.Measurement{Value: float64(f.Written.Load() - before)})
		slowest.SeriesOf(name).Add(measure.Latency(times))
		if number != weeks[w].from+6 {
			continue
		}
		bytes, err := f.ClosedBytes()
		if err != nil {
			return err
		}
		onDisk.SeriesOf(name).Add(measure.Measurement{Value: float64(bytes)})
		b.Say("  %-18s %-44s %s bytes a day, %s on disk", "seen-expiry", name, measure.Figure(written.SeriesOf(name).Median),
			measure.Figure(float64(bytes)))
	}
	for _, row := range []*measure.Row{written, slowest, onDisk} {
		for _, w := range weeks[1:] {
			row.Compare(w.name, weeks[0].name, 0, true)
		}
	}
	return nil
}

// foldDay folds the plays of a day and returns what each envelope took, in microseconds.
func (f playStore) foldDay(ctx context.Context, run playRun) (times []float64, err error) {
	envs, err := f.decodePlays(slices.Collect(run.all()))
	if err != nil {
		return nil, err
	}
	for _, env := range envs {
		begin := time.Now()
		if err := f.Store.Fold([]*events.Envelope{env}); err != nil {
			return nil, err
		}
		times = append(times, measure.Micros(time.Since(begin)))
	}
	return times, errors.Join(ctx.Err(), f.Store.Flush())
}
