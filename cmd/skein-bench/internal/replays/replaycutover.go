package replays

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/rebuild"
)

const (
	// writeEvery is how often writeTogether events are published while projections are rebuilt, readEvery how often each
	// projection is asked.
	writeEvery, writeTogether = 10 * time.Millisecond, 20
	readEvery                 = 2 * time.Millisecond
	// rowsAsked is how many rows a question reads.
	rowsAsked = 20
	// maxPause is how long a cut-over may stop the fold, in milliseconds.
	maxPause = 50
)

// The two phases of the load, of which the times are kept apart.
const (
	quietPhase, rebuildPhase = 0, 1
)

// livesEngine is what `skein serve` runs, without HTTP, with projections that can be rebuilt.
type livesEngine struct {
	dir   string
	log   *eventlog.Log
	hub   *eventlog.Hub
	cache *projections.Cache
	lives []*projections.Live

	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func openLives(ctx context.Context, parent string, l *replayLog) (_ *livesEngine, err error) {
	e := &livesEngine{cache: projections.NewCache(workload.CacheBytes)}
	if e.dir, err = os.MkdirTemp(parent, "lives-"); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	e.stop = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(ctx))
		}
	}()
	if e.log, err = eventlog.Open(ctx, eventlog.Config{Dir: filepath.Join(e.dir, "log")}); err != nil {
		return nil, err
	}
	last, err := l.publish(ctx, e.log)
	if err != nil {
		return nil, err
	}
	e.hub = eventlog.NewHub(e.log, eventlog.HubOptions{})
	e.run(func() error { return e.hub.Run(running) })
	for _, p := range all.Makers(all.Settings{}) {
		live, err := projections.OpenLive(projections.LiveOptions{
			Options: projections.Options{Dir: filepath.Join(e.dir, "stores"), Cache: e.cache}, New: p,
		})
		if err != nil {
			return nil, err
		}
		e.lives = append(e.lives, live)
		e.run(func() error { return live.Run(running, workload.Follow(e.log, e.hub)) })
	}
	for _, live := range e.lives {
		if err := live.WaitFor(ctx, last); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *livesEngine) run(f func() error) {
	e.wg.Go(func() { e.failed(f()) })
}

func (e *livesEngine) failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

func (e *livesEngine) close(ctx context.Context) error {
	e.stop()
	e.wg.Wait()
	errs := e.errs
	for _, live := range e.lives {
		errs = append(errs, live.Close())
	}
	e.cache.Unref()
	if e.log != nil {
		errs = append(errs, workload.CloseLog(ctx, e.log))
	}
	return errors.Join(append(errs, os.RemoveAll(e.dir))...)
}

// replayCutOver rebuilds each projection under a steady load of writes and reads, of which none may fail.
func replayCutOver(ctx context.Context, b *measure.Bench) (err error) {
	n := max(10_000, b.Opts.Replayed/10)
	b.Say("rebuilding all projections of %d events under load", n)
	e, err := openLives(ctx, b.Dir, &replayLog{make: countedEvents(n, n)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	load, err := e.load(ctx, countedEvents(math.MaxInt, n))
	if err != nil {
		return err
	}
	row := b.Row("replay-cutover", "cut-over: how long the fold stands still", "ms", fmt.Sprintf("%d events of all kinds; meanwhile "+
		"%d events are published every %v, and each projection is asked every %v. Every rebuild runs at full speed. All of %%d questions "+
		"were answered, none from an older position than the one before.", n, writeTogether, writeEvery, readEvery))
	err = e.rebuildAll(ctx, b, row, load)
	if err := errors.Join(err, load.end(ctx)); err != nil {
		return err
	}
	answered := len(load.reads[quietPhase]) + len(load.reads[rebuildPhase])
	row.Note = fmt.Sprintf(row.Note, answered)
	row.Compare("the longest", "", maxPause, true)
	for _, s := range row.Series[1:] {
		row.Compare(s.Name, "", maxPause, true)
	}
	loadRow(b, "replay-cutover-reads", "questions while projections are rebuilt, p99",
		fmt.Sprintf("a new view of the store and the first %d rows, in process.", rowsAsked), load.reads)
	loadRow(b, "replay-cutover-writes", "writes until visible while projections are rebuilt, p99",
		"from the call of the publisher until every projection shows its events, in process.", load.writes)
	return nil
}

// rebuildAll rebuilds each projection some times, after a time without a rebuild.
func (e *livesEngine) rebuildAll(ctx context.Context, b *measure.Bench, row *measure.Row, load *steadyLoad) error {
	source := func(from events.Cursor, kinds events.KindSet) (projections.Subscription, error) {
		if from.Seq == 0 {
			from = e.log.Start()
		}
		s, err := e.hub.SubscribeKinds(from, kinds)
		return workload.Reading{Subscription: s, Hub: e.hub}, err
	}
	if err := load.quiet(ctx, b.Opts.Time); err != nil {
		return err
	}
	longest, runs := row.SeriesOf("the longest"), min(b.Opts.Runs, replayRuns)
	for _, live := range e.lives {
		row.SeriesOf(live.Name())
	}
	for run := range runs {
		worst := 0.0
		for _, live := range e.lives {
			paused := 0.0
			_, err := rebuild.Rebuild(ctx, live, source, rebuild.Options{
				Paused: func(d time.Duration) { paused = measure.Micros(d) / 1000 },
			})
			if err != nil {
				return err
			}
			row.SeriesOf(live.Name()).Add(measure.Measurement{Value: paused})
			worst = max(worst, paused)
			b.Say("  %-18s run %d  %-44s %s ms", row.ID, run+1, live.Name(), measure.Figure(paused))
		}
		longest.Add(measure.Measurement{Value: worst})
	}
	return nil
}

// loadRow tells of times under load, in the two phases.
func loadRow(b *measure.Bench, id, title, note string, times [2][]float64) {
	names := [2]string{quietPhase: "no rebuild", rebuildPhase: "while each is rebuilt and cut over"}
	row := b.Row(id, title, "µs", note)
	for _, phase := range []int{rebuildPhase, quietPhase} {
		m := measure.Latency(times[phase])
		row.SeriesOf(names[phase]).Add(m)
		longest := times[phase][len(times[phase])-1] // latency has sorted them
		row.Note += fmt.Sprintf(" The longest of %d, %s: %s µs.", len(times[phase]), names[phase], measure.Figure(longest))
	}
	row.Compare(names[rebuildPhase], names[quietPhase], 0, true)
	b.Say("  %-18s %s µs, %s µs without a rebuild", id, measure.Figure(row.Series[0].Median), measure.Figure(row.Series[1].Median))
}

// steadyLoad writes and reads until it is ended. Times are in microseconds, by phase.
type steadyLoad struct {
	e         *livesEngine
	publisher *eventlog.Publisher
	phase     atomic.Int32
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	mu            sync.Mutex
	reads, writes [2][]float64
	errs          []error
}

func (e *livesEngine) load(ctx context.Context, written iter.Seq[*skeinv1.Event]) (*steadyLoad, error) {
	p, err := e.log.NewPublisher(eventlog.PublisherOptions{}) //nolint:contextcheck // it lives until the load ends
	if err != nil {
		return nil, err
	}
	l := &steadyLoad{e: e, publisher: p}
	ctx, l.cancel = context.WithCancel(ctx)
	l.run(ctx, func(ctx context.Context) error { return l.write(ctx, written) })
	for _, live := range e.lives {
		l.run(ctx, func(ctx context.Context) error { return l.read(ctx, live) })
	}
	return l, nil
}

// run runs one part of the load. Errors that the end of the load causes do not count.
func (l *steadyLoad) run(ctx context.Context, part func(context.Context) error) {
	l.wg.Go(func() {
		if err := part(ctx); err != nil && ctx.Err() == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.errs = append(l.errs, err)
		}
	})
}

// quiet lets the load be for a time, and then begins the other phase.
func (l *steadyLoad) quiet(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		l.phase.Store(rebuildPhase)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the load and returns what failed.
func (l *steadyLoad) end(ctx context.Context) error {
	l.cancel()
	l.wg.Wait()
	err := l.publisher.Close(context.WithoutCancel(ctx))
	for phase := range l.reads {
		if len(l.reads[phase]) == 0 || len(l.writes[phase]) == 0 {
			l.errs = append(l.errs, errors.New("there was no load"))
		}
	}
	return errors.Join(append(l.errs, err)...)
}

func (l *steadyLoad) note(times *[2][]float64, phase int32, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	times[phase] = append(times[phase], measure.Micros(took))
}

// write publishes, and waits until every projection shows it.
func (l *steadyLoad) write(ctx context.Context, written iter.Seq[*skeinv1.Event]) error {
	next, stop := iter.Pull(written)
	defer stop()
	ticker := time.NewTicker(writeEvery)
	defer ticker.Stop()
	for {
		var call []*skeinv1.Event
		for range writeTogether {
			ev, _ := next()
			call = append(call, ev)
		}
		begin, phase := time.Now(), l.phase.Load()
		res, err := l.publisher.Publish(ctx, call, eventlog.PublishOptions{})
		if err != nil {
			return fmt.Errorf("a write failed: %w", err)
		}
		for _, live := range l.e.lives {
			if err := live.WaitFor(ctx, res.Position.Seq); err != nil {
				return fmt.Errorf("waiting for a write in %s failed: %w", live.Name(), err)
			}
		}
		l.note(&l.writes, phase, time.Since(begin))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// read asks a projection.
func (l *steadyLoad) read(ctx context.Context, live *projections.Live) error {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	last := uint64(0)
	for {
		begin, phase := time.Now(), l.phase.Load()
		seq, err := askRows(live)
		if err == nil && seq < last {
			err = fmt.Errorf("it was at %d, and then at %d", last, seq)
		}
		if err != nil {
			return fmt.Errorf("a question to %s failed: %w", live.Name(), err)
		}
		last = seq
		l.note(&l.reads, phase, time.Since(begin))
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// askRows reads the first rows of a view, and returns its position.
func askRows(live *projections.Live) (seq uint64, err error) {
	v, err := live.View()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	it := v.Iter(nil, nil)
	for n := 0; n < rowsAsked && it.Next(); n++ {
		if _, ok, err := v.Get(slices.Clone(it.Key())); err != nil || !ok {
			return 0, errors.Join(err, it.Close(), errors.New("a row is not found"))
		}
	}
	return v.Cursor().Seq, it.Close()
}
