package stores

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

// playsOfFirstMonth are the plays of one month, in turn by all users of a density.
func (d playDensity) playsOfFirstMonth() iter.Seq[play] {
	n := d.users * d.playsPerMonth
	step := 27 * day / events.Micros(n+1)
	return func(yield func(play) bool) {
		for i := range n {
			user := uint32(i % d.users)
			if !yield(play{monthStart(0) + step*events.Micros(i), playedItem(user, i/d.users), user}) {
				return
			}
		}
	}
}

// playThatSealsFirstMonth is a play by which the first month is closed, and all of it sealed.
func playThatSealsFirstMonth(yield func(play) bool) {
	yield(play{monthStart(1) + 14*day, workload.FirstID, 1<<32 - 1})
}

// measureSeenBytes measures the bytes that a play takes in an open month and in a sealed one.
func measureSeenBytes(ctx context.Context, b *measure.Bench, size seenSize) error {
	const (
		openMonth, sealedMonth = "skein, open month", "skein, sealed as Bloom filters"
		inRedis                = "redis sorted sets in memory"
	)
	d := size.restingPlays
	row := b.Row(fmt.Sprintf("seen-bytes-%d", d.playsPerMonth),
		fmt.Sprintf("bytes a play at rest, %d plays a user and month", d.playsPerMonth), "bytes", fmt.Sprintf("%d users, one month. "+
			"The directory of the store after it was closed, as the fold left it and compacted. Redis: used_memory, less that "+
			"of an empty server; items stand in it as numbers, where sorted sets are small enough for that.", d.users))
	n := float64(d.users * d.playsPerMonth)
	note := func(name string, bytes float64) {
		row.SeriesOf(name).Add(measure.Measurement{Value: bytes / n})
		b.Say("  %-18s %-44s %s bytes", row.ID, name, measure.FormatFigure(bytes/n))
	}

	found, err := measureSeenStoreBytes(ctx, b, d)
	if err != nil {
		return err
	}
	note(openMonth+", as folded", float64(found.open))
	note(openMonth+", compacted", float64(found.openCompacted))
	note(sealedMonth+", as folded", float64(found.sealed))
	note(sealedMonth+", compacted", float64(found.sealedCompacted))
	memory, err := measureRedisPlayBytes(ctx, b, d)
	if err != nil {
		return err
	}

	bounds := []float64{5, 5, 2.4, 2.4}
	for i, s := range slices.Clone(row.Series) {
		row.Compare(s.Name, "", bounds[i], true)
	}
	ofSkein := slices.Clone(row.Series)
	note(inRedis, memory)
	for i, s := range ofSkein {
		if i%2 == 1 { // compacted
			row.Compare(s.Name, inRedis, 0, true)
		}
	}
	return nil
}

// seenStoreBytes are sizes of a store: with its month open and sealed, as folded and compacted.
type seenStoreBytes struct{ open, openCompacted, sealed, sealedCompacted int64 }

func measureSeenStoreBytes(ctx context.Context, b *measure.Bench, d playDensity) (found seenStoreBytes, err error) {
	f, err := openSeenStore(b)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()
	if err := f.foldPlays(ctx, d.playsOfFirstMonth()); err != nil {
		return found, err
	}
	if found.open, err = f.BytesAfterClose(); err != nil {
		return found, err
	}
	if found.openCompacted, err = f.CompactedBytes(ctx); err != nil {
		return found, err
	}
	if err := f.foldPlays(ctx, playThatSealsFirstMonth); err != nil {
		return found, err
	}
	if found.sealed, err = f.BytesAfterClose(); err != nil {
		return found, err
	}
	found.sealedCompacted, err = f.CompactedBytes(ctx)
	return found, err
}

func measureRedisPlayBytes(ctx context.Context, b *measure.Bench, d playDensity) (memory float64, err error) {
	s, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if _, _, err := (seenRedis{s}).writePlays(ctx, slices.Collect(d.playsOfFirstMonth())); err != nil {
		return 0, err
	}
	return s.Memory(ctx)
}
