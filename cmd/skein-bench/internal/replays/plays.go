package replays

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
)

const (
	// playTime is the log time over which the plays are spread, and playsPerUser is how many plays
	// a user has in it on average: 50 a day.
	playTime     = 20 * 24 * time.Hour
	playsPerUser = 1000
	// playsPerItem is how many plays an item has on average.
	playsPerItem = 200
	// playedItemSkew is the exponent of the power law of plays over items. The most popular one of
	// five million items has a two-hundredth of the plays.
	playedItemSkew = 0.7
)

// playsLog is a log of n plays. The plays are made while they are written into an archive, so that
// a large log takes only the memory of its ids.
type playsLog struct {
	n            int
	users, items []string // ids
}

// newPlaysLog returns a log of n plays, of as many users and items as they need.
func newPlaysLog(n int) playsLog {
	return playsLog{n: n, users: numberedIDs(max(100, n/playsPerUser)), items: numberedIDs(max(100, n/playsPerItem))}
}

// numberedIDs returns n ids.
func numberedIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = workload.UserID(uint32(i))
	}
	return ids
}

// item returns the item of the i-th play. Half of the plays are of the most popular items of all,
// by a power law. The others are of the newest ones: items are added in the order of their numbers,
// at equal distances.
func (l *playsLog) item(r *rand.Rand, i int) string {
	if i%2 == 0 {
		return l.items[workload.PowerLaw(r, len(l.items), playedItemSkew)]
	}
	added := 1 + i*len(l.items)/l.n
	return l.items[added-1-workload.PowerLaw(r, added, playedItemSkew)]
}

// archive writes the log into the archive of a data directory. The envelopes are made as the
// decoder of the log makes them, because decoding a billion events would take longer than all else.
func (l *playsLog) archive(ctx context.Context, data string) error {
	_, w, err := newArchive(ctx, data)
	if err != nil {
		return err
	}

	r := rand.New(rand.NewPCG(71, 0))
	cursor := w.start
	step := events.Micros(playTime.Microseconds() / int64(l.n/eventsPerEnvelope+1))
	stamp := workload.FirstFollow
	for made := 0; made < l.n; {
		cursor.Seq++
		stamp += step
		env := &events.Envelope{Kinds: events.Kinds(events.Played), Events: make([]events.Event, min(eventsPerEnvelope, l.n-made))}
		for slot := range env.Events {
			env.Events[slot] = events.Event{
				Kind: events.Played,
				User: l.users[workload.PowerLaw(r, len(l.users), workload.PlaySkew)],
				Item: l.item(r, made),
				Time: stamp + events.Micros(slot),
				Seq:  cursor.Seq,
				Slot: uint16(slot),
			}
			made++
		}
		cursor.LastTime = env.Events[len(env.Events)-1].Time
		env.Cursor = cursor
		if err := errors.Join(w.add(ctx, env), ctx.Err()); err != nil {
			return err
		}
	}
	return w.finish(ctx, cursor.Seq)
}

// playsRows has the rows of this group.
type playsRows struct{ rate, core, memory, store, temporary *measure.Row }

// MeasurePlays measures builds of stores from an archive of plays, which may be large: their rate,
// processor time, memory and disk.
func MeasurePlays(ctx context.Context, b *measure.Bench) (err error) {
	dir, err := os.MkdirTemp(b.Dir, "plays-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	log := newPlaysLog(b.Opts.Replayed)
	b.Logf("an archive of %s plays", measure.FormatFigure(float64(log.n)))
	began := time.Now()
	if err := log.archive(ctx, dir); err != nil {
		return err
	}
	archived, err := measure.TreeBytes(filepath.Join(dir, "archive"))
	if err != nil {
		return err
	}
	bytesPerPlay := float64(archived) / float64(log.n)
	b.Logf("  written in %s s: %s bytes a play", measure.FormatFigure(time.Since(began).Seconds()), measure.FormatFigure(bytesPerPlay))

	names := b.Opts.ReplayOf
	if len(names) == 0 {
		names = []string{"counters", "seen"}
	}
	rows := newPlaysRows(b, &log, bytesPerPlay)
	for run := range b.Opts.Runs {
		for _, name := range measure.RunOrder(run, names) {
			// The order changes from run to run, so that none always runs on the warmer machine.
			if err := rows.measureBuild(ctx, b, &log, dir, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}

	for _, row := range []*measure.Row{rows.rate, rows.core, rows.memory, rows.store, rows.temporary} {
		for _, name := range names {
			row.Compare(name, "", 0, row != rows.rate)
		}
	}
	return nil
}

// newPlaysRows adds the rows to the report.
func newPlaysRows(b *measure.Bench, l *playsLog, archiveBytes float64) playsRows {
	const title = "stores built from plays"
	return playsRows{
		rate: b.AddRow("plays-rate", title, "plays/s", fmt.Sprintf("%d plays of %d items by %d users over 20 days, from an archive with %s bytes "+
			"a play, in a process of its own. Half of the plays are of popular items, half of new ones, by a power law.",
			l.n, len(l.items), len(l.users), measure.FormatFigure(archiveBytes))),
		core:   b.AddRow("plays-core", title+", processor time of a play", "µs", ""),
		memory: b.AddRow("plays-memory", title+", resident memory", "bytes", "the greatest of the process."),
		store:  b.AddRow("plays-disk", title+", bytes of a play", "bytes", "the new store, before a compaction."),
		temporary: b.AddRow("plays-temporary-disk", title+", with temporary files, bytes of a play", "bytes",
			"the new store and the events by partition, which a build removes at its end."),
	}
}

// measureBuild builds the store of a projection, in a process of its own.
func (rows *playsRows) measureBuild(ctx context.Context, b *measure.Bench, l *playsLog, dir, name string) error {
	r, err := runInOwnProcess(ctx, b, newRebuildJob(b, dir, name))
	if err != nil {
		return err
	}
	if err := r.checkEventCount(l.n); err != nil {
		return err
	}

	n := float64(l.n)
	for _, m := range []struct {
		row   *measure.Row
		value float64
	}{
		{rows.rate, n / r.Seconds},
		{rows.core, r.ProcessorSeconds / n * 1e6},
		{rows.memory, r.Memory},
		{rows.store, float64(r.StoreBytes) / n},
		{rows.temporary, float64(r.BuildBytes) / n},
	} {
		m.row.SeriesOf(name).Add(measure.Measurement{Value: m.value})
		b.Logf("  %-20s %-8s %s %s", m.row.ID, name, measure.FormatFigure(m.value), m.row.Unit)
	}
	return nil
}
