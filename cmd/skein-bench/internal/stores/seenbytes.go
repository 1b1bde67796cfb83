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

// playsOfFirstMonth returns the plays of one month, in turn by all users of a density.
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

// playThatSealsFirstMonth is a sequence of one play. The play is so late that the fold closes the
// first month and seals all of it.
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
	row := b.AddRow(fmt.Sprintf("seen-bytes-%d", d.playsPerMonth),
		fmt.Sprintf("bytes a play at rest, %d plays a user and month", d.playsPerMonth), "bytes", fmt.Sprintf("%d users, one month. "+
			"The directory of the store after it was closed, as the fold left it and compacted. Redis: used_memory, less that "+
			"of an empty server; items stand in it as numbers, where sorted sets are small enough for that.", d.users))
	n := float64(d.users * d.playsPerMonth)
	addSeries := func(name string, bytes float64) {
		row.SeriesOf(name).Add(measure.Measurement{Value: bytes / n})
		b.Logf("  %-18s %-44s %s bytes", row.ID, name, measure.FormatFigure(bytes/n))
	}

	found, err := measureSeenStoreBytes(ctx, b, d)
	if err != nil {
		return err
	}
	addSeries(openMonth+", as folded", float64(found.open))
	addSeries(openMonth+", compacted", float64(found.openCompacted))
	addSeries(sealedMonth+", as folded", float64(found.sealed))
	addSeries(sealedMonth+", compacted", float64(found.sealedCompacted))
	memory, err := measureRedisPlayBytes(ctx, b, d)
	if err != nil {
		return err
	}

	// The targets are in the order in which the series were added.
	targets := []float64{5, 5, 2.4, 2.4}
	ofSkein := slices.Clone(row.Series)
	for i, s := range ofSkein {
		row.Compare(s.Name, "", targets[i], true)
	}
	addSeries(inRedis, memory)
	for i, s := range ofSkein {
		isCompacted := i%2 == 1
		if isCompacted {
			row.Compare(s.Name, inRedis, 0, true)
		}
	}
	return nil
}

// seenStoreBytes has the sizes of a store with its month open and with its month sealed, each as
// the fold left it and compacted.
type seenStoreBytes struct{ open, openCompacted, sealed, sealedCompacted int64 }

// measureSeenStoreBytes folds the plays of a month, seals it, and measures the store before and
// after.
func measureSeenStoreBytes(ctx context.Context, b *measure.Bench, d playDensity) (found seenStoreBytes, err error) {
	f, err := openSeenStore(b)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()
	if err := f.foldPlays(ctx, d.playsOfFirstMonth()); err != nil {
		return found, err
	}
	found.open, err = f.BytesAfterClose()
	if err != nil {
		return found, err
	}
	found.openCompacted, err = f.CompactedBytes(ctx)
	if err != nil {
		return found, err
	}

	if err := f.foldPlays(ctx, playThatSealsFirstMonth); err != nil {
		return found, err
	}
	found.sealed, err = f.BytesAfterClose()
	if err != nil {
		return found, err
	}
	found.sealedCompacted, err = f.CompactedBytes(ctx)
	return found, err
}

// measureRedisPlayBytes writes the plays of a month to a fresh server, and returns the memory that
// they take.
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
