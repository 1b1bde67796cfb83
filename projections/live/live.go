package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/store"
)

// Errors of a [Live]. They arrive wrapped, with what is known of the cause.
var (
	// ErrOutdated is the ErrStopped of a generation that was built by another fold, or with other settings, than the
	// program has: it does not continue. A rebuild adopts the present ones.
	ErrOutdated = fmt.Errorf("%w: the generation is outdated", projections.ErrStopped)
	// ErrBuilding: a next generation is open already.
	ErrBuilding = errors.New("projections: a next generation is open already")
	// ErrBehind: the next generation does not show all that the live one has shown.
	ErrBehind = errors.New("projections: the next generation is behind the live one")
	// ErrNoPrevious: there is no previous generation to go back to.
	ErrNoPrevious = errors.New("projections: there is no previous generation")
)

// Options say where the generations of a projection are and what folds into them.
type Options struct {
	// Options are those of the store of every generation. Generation, Projection and Partitions are not used: a generation holds all
	// partitions, or with Partitioned those that it was built for. The Listener hears of the generation that serves.
	store.Options
	// New makes a projection, for several goroutines at a time. A generation has an instance of its own. Required.
	New func() projections.Projection
	// Log and Epoch are those of the log. A generation that was prepared from another log or epoch is not used; with the zero Log, none is.
	Log   events.LogID
	Epoch uint32
}

// Live is a projection that serves, whichever generation it serves from. The package doc says how generations replace each other.
//
// The methods are safe for concurrent use.
type Live struct {
	opts       Options
	name, dir  string
	projection projections.Projection
	print      projections.Fingerprint

	// serving is what queries are answered from; never nil.
	serving atomic.Pointer[serving]
	// files is what the file of generations says, unknown that it cannot be read.
	files   atomic.Pointer[disk.Generations]
	unknown bool

	// cutting is held by a cut-over.
	cutting sync.Mutex
	// building is set while a next generation has no store yet; next is one, or the previous one on its way back. They change under mu.
	building atomic.Bool
	next     atomic.Pointer[store.Store]
	given    atomic.Int64 // numbers the copies of ExportPartitions
	// mu guards what follows.
	mu sync.Mutex
	// run is set while Run is running.
	run *running
	// retired is closed when the generation that served last is closed; nil means none is being closed.
	retired chan struct{}
	closed  bool
	// life ends with Close.
	life    context.Context //nolint:containedctx // the life of the Live, which no call passes in
	endLife context.CancelFunc

	told told
}

// serving is a generation that serves, or should.
type serving struct {
	number uint32
	// store is nil if the generation could not be opened.
	store *store.Store
	// err says why the generation does not continue: it could not be opened, or is outdated; nil means it does. An ErrStopped.
	err error
	// state is that of a generation with an err.
	state store.State
}

// told is what the listener has heard of the state. Stores report while they are locked, so under mu none is asked.
type told struct {
	mu sync.Mutex
	// of is the generation that serves, state what was told last.
	of    uint32
	state store.State
	// reports are the last states of all generations.
	reports map[uint32]report
	// changed is closed when any of them has a new state.
	changed chan struct{}
}

type report struct {
	state store.State
	err   error
}

// Open opens the live generation of a projection, or makes the first. It removes generations that count no more. If the program cannot
// continue the live generation, because the fold has another version or other settings, Open continues one that was prepared
// ([Preparation]) or the previous one, if there is one that the program can continue.
//
// It fails if another process has the files open, and with [projections.ErrPartial] if it is to hold all partitions and the generation does not.
// Status reports all other errors of the generation.
func Open(o Options) (*Live, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := o.New()
	l := &Live{
		opts: o, projection: p, name: p.Name(), print: projections.FingerprintOf(p), dir: o.FS.PathJoin(o.Dir, p.Name()),
	}
	l.life, l.endLife = context.WithCancel(context.Background())
	l.told.changed, l.told.reports = make(chan struct{}), map[uint32]report{}
	g, found, err := disk.ReadGenerations(o.FS, l.dir)
	if err == nil {
		_, err = projections.ParseHeld(g.Partitions)
	}
	if err != nil {
		g = disk.Generations{}
		if o.Partitioned {
			g.Partitions = projections.HeldText(&events.Partitions{})
		}
		l.files.Store(&g)
		l.unknown = true
		l.logger().Error("which generation is live cannot be told", "error", err)
		l.serve(&serving{err: stoppedBy(err), state: store.Failed})
		return l, nil
	}
	if !o.Partitioned && g.Partitions != "" {
		return nil, store.PartialError(store.GenerationDir(l.storeDir(), g.Live), g.Partitions)
	}
	l.files.Store(&g)
	if !o.ReadOnly {
		l.clean(found)
		if !found && len(disk.ListGenerations(o.FS, l.dir)) == 0 {
			// The projection is new to this data directory. What was prepared becomes its first generation.
			if _, _, err := l.installPrepared(g); err != nil {
				l.logger().Error("the prepared generation cannot be used", "error", err)
			}
		}
	}
	s, err := l.openServing(g.Live)
	if err != nil {
		return nil, err
	}
	if !o.ReadOnly {
		if s.err != nil && s.state == store.Outdated {
			if s, err = l.replaceOutdated(s); err != nil {
				return nil, err
			}
		}
		if s.err == nil {
			// A crash may have left the mark of a prepared generation that is live since.
			if err := disk.RemovePrepared(o.FS, s.store.Dir()); err != nil {
				l.logger().Warn("the mark of a prepared generation cannot be removed", "error", err)
			}
		}
		if s.store != nil && o.Partitioned {
			l.noteHeld(*l.files.Load(), found, s.store)
		}
	}
	l.logOpened(s)
	l.serve(s)
	return l, nil
}

// logOpened says if a generation does not continue.
func (l *Live) logOpened(s *serving) {
	switch {
	case s.err == nil:
	case s.state == store.Failed:
		l.logger().Error("the projection answers nothing until it is rebuilt", "generation", s.number, "error", s.err)
	default:
		l.logger().Warn("the projection goes no further until it is rebuilt", "generation", s.number, "answers", s.store != nil,
			"error", s.err)
	}
}

// noteHeld writes the set of the live generation to the file of generations, if it does not say it: a rebuild of files that cannot be
// read goes by that.
func (l *Live) noteHeld(g disk.Generations, found bool, s *store.Store) {
	if found && g.Partitions == s.Fingerprint().Partitions {
		return
	}
	g.Partitions = s.Fingerprint().Partitions
	if err := l.write(g); err != nil {
		l.logger().Warn("the set of partitions was not noted", "error", err)
	}
}

func stoppedBy(err error) error {
	if errors.Is(err, projections.ErrStopped) {
		return err
	}
	return fmt.Errorf("%w: %w", projections.ErrStopped, err)
}

// clean removes what a crash has left over: shadows, and generations that the file, if there is one, does not name.
func (l *Live) clean(found bool) {
	g := *l.files.Load()
	if !found {
		for _, n := range disk.ListGenerations(l.opts.FS, l.dir) {
			if n != g.Live {
				return // nothing says that it is garbage
			}
		}
	}
	l.removeStale(g, true)
}

func (l *Live) removeStale(g disk.Generations, scratch bool) {
	removed, err := disk.RemoveStale(l.opts.FS, l.dir, g, scratch)
	if err != nil {
		l.logger().Warn("what is no longer needed cannot be removed", "error", err)
	}
	if len(removed) > 0 {
		l.logger().Info("removed what is no longer needed", "directories", removed)
	}
}

func (l *Live) logger() *slog.Logger { return l.opts.Logger.With("projection", l.name) }

// storeOptions are those of the store of a generation.
func (l *Live) storeOptions(n uint32) store.Options {
	o := l.opts.Options
	o.Generation, o.Projection = n, l.opts.New()
	o.Listener = l.listener(n)
	return o
}

// openServing opens the live generation as well as it can be.
func (l *Live) openServing(n uint32) (*serving, error) {
	o := l.storeOptions(n)
	opened, err := store.Open(o)
	switch {
	case err == nil && opened.Outdated() != "":
		err = fmt.Errorf("%w: %w: %s", ErrOutdated, projections.ErrFingerprint, opened.Outdated())
		return &serving{number: n, store: opened, err: err, state: store.Outdated}, nil
	case err == nil:
		return &serving{number: n, store: opened}, nil
	}
	if errors.Is(err, projections.ErrInUse) || errors.Is(err, projections.ErrPartial) || o.ReadOnly && errors.Is(err, projections.ErrNoStore) {
		return nil, err
	}
	s := &serving{number: n, err: stoppedBy(err), state: store.Failed}
	if errors.Is(err, projections.ErrFingerprint) {
		s.err, s.state = fmt.Errorf("%w: %w", ErrOutdated, err), store.Outdated
		o = l.storeOptions(n)
		o.ReadOnly = true
		var frozen error
		if s.store, frozen = store.Open(o); errors.Is(frozen, projections.ErrFingerprint) {
			s.err = fmt.Errorf("%w; this version cannot read its rows, so it answers nothing until then", s.err)
		} else if frozen != nil {
			s.err, s.state = stoppedBy(frozen), store.Failed
		}
	}
	return s, nil
}

// serve makes a generation the one that serves, and tells the listener.
func (l *Live) serve(s *serving) {
	l.told.mu.Lock()
	defer l.told.mu.Unlock()
	l.serving.Store(s)
	l.told.of = s.number
	last := l.told.reports[s.number]
	if s.err != nil {
		last = report{s.state, s.err}
	}
	l.tellLocked(last)
	l.told.changeLocked()
}

func (t *told) changeLocked() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// listener is that of the store of a generation.
func (l *Live) listener(n uint32) store.Listener {
	to, t := l.opts.Listener, &l.told
	serves := func() bool {
		s := l.serving.Load()
		return s == nil || s.number == n
	}
	listener := store.Listener{StateChanged: func(s store.State, err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.reports[n] = report{s, err}
		if t.of == n {
			l.tellLocked(report{s, err})
		}
		t.changeLocked()
	}}
	if to.Folded != nil {
		listener.Folded = func(i store.FoldInfo) {
			if serves() {
				to.Folded(i)
			}
		}
	}
	listener.Flushed, listener.Compacted, listener.Waited = to.Flushed, to.Compacted, to.Waited
	return listener
}

func (l *Live) tellLocked(r report) {
	if r.state == l.told.state {
		return
	}
	l.told.state = r.state
	if f := l.opts.Listener.StateChanged; f != nil {
		f(r.state, r.err)
	}
}

// Name returns the name of the projection.
func (l *Live) Name() string { return l.name }

// Projection returns an instance of the projection, as the program has it now. It folds nothing.
func (l *Live) Projection() projections.Projection { return l.projection }

// Holds returns the partitions that the generation that serves holds. Where its files cannot be read, it returns those of which it had
// rows, which a rebuild builds again. Questions go by [projections.View.Partitions].
func (l *Live) Holds() events.Partitions {
	if s := l.Serving(); s != nil {
		return s.Holds()
	}
	held, err := projections.ParseHeld(l.files.Load().Partitions)
	if held == nil && err == nil {
		return events.AllPartitions()
	}
	if err != nil { // Open has read it
		return events.Partitions{}
	}
	return *held
}

// Partitioned reports whether a generation may hold less than all partitions.
func (l *Live) Partitioned() bool { return l.opts.Partitioned }

// Serving returns the store that serves at the moment; nil means the generation could not be opened. A cut-over closes it: who
// works on it for longer continues with the next one when it says [projections.ErrClosed].
func (l *Live) Serving() *store.Store { return l.serving.Load().store }

// on calls f with the generation that serves, and again if f fails and another serves by then.
func (l *Live) on(f func(*serving) error) error {
	for {
		s := l.serving.Load()
		if err := f(s); err == nil || l.serving.Load() == s {
			return err
		}
	}
}

// onStore is on for what needs a store that can be read.
func (l *Live) onStore(f func(*store.Store) error) error {
	return l.on(func(s *serving) error {
		if s.store == nil {
			return s.err
		}
		return f(s.store)
	})
}

// View returns the projection at its last whole position. It fails as [store.Store.View] does, and with [ErrOutdated] if the
// generation cannot be read by this program.
func (l *Live) View() (v *projections.View, err error) {
	err = l.onStore(func(s *store.Store) (err error) {
		v, err = s.View()
		return err
	})
	return v, err
}

// WaitFor blocks until a view shows everything up to seq. It fails with the error of the context, or with [projections.ErrStopped]
// when the projection will not get there as it is: it failed, is outdated, or Run has ended.
func (l *Live) WaitFor(ctx context.Context, seq uint64) error {
	return l.on(func(s *serving) error {
		if s.err != nil {
			if s.store != nil && s.store.Shows(seq) {
				return nil
			}
			return s.err
		}
		return s.store.WaitFor(ctx, seq)
	})
}

// ViewAt returns the projection at exactly a sequence, see [store.Store.ViewAt].
func (l *Live) ViewAt(ctx context.Context, seq uint64) (v *projections.View, err error) {
	err = l.onStore(func(s *store.Store) (err error) {
		v, err = s.ViewAt(ctx, seq)
		return err
	})
	return v, err
}

// CheckFiles checks the files of the generation that serves, see [store.Store.CheckFiles].
func (l *Live) CheckFiles(
	ctx context.Context, dir string, rest func(context.Context, time.Duration) error,
) (c store.FileCheck, err error) {
	err = l.onStore(func(s *store.Store) (err error) {
		c, err = s.CheckFiles(ctx, dir, rest)
		return err
	})
	return c, err
}

// Engine reports how the storage engine of the generation that serves is.
func (l *Live) Engine() (e store.Engine, ok bool) {
	if s := l.Serving(); s != nil {
		return s.Engine()
	}
	return store.Engine{}, false
}

// Repair writes repaired rows inside the fold of the live generation, see [store.Store.Repair].
func (l *Live) Repair(ctx context.Context, f func(at events.Cursor, rows projections.Reader, m *store.Repair) error) error {
	return l.onStore(func(s *store.Store) error { return s.Repair(ctx, f) })
}

// Flush brings everything that the live generation has folded to disk.
func (l *Live) Flush() error { return l.onStore((*store.Store).Flush) }

// Cursor returns the last whole position that queries see.
func (l *Live) Cursor() events.Cursor {
	s := l.serving.Load()
	if s.store == nil {
		return events.Cursor{}
	}
	return s.store.ShownCursor()
}

// Rejects lists kept rejects as [store.Store.Rejects] does.
func (l *Live) Rejects(after uint64, n int) (rejects []store.KeptReject, total uint64, err error) {
	err = l.onStore(func(s *store.Store) (err error) {
		rejects, total, err = s.Rejects(after, n)
		return err
	})
	return rejects, total, err
}

// Status reports how the projection is. It is for people and metrics: not for every query.
func (l *Live) Status() store.Status {
	s := l.serving.Load()
	var st store.Status
	if s.store != nil {
		st = s.store.Status()
	} else {
		st = store.Status{Name: l.name, Version: l.print.Version, Fingerprint: l.print.String(), Generation: s.number}
		st.DiskBytes = disk.DirectoryBytes(l.opts.FS, store.GenerationDir(l.storeDir(), s.number))
		format, _ := store.FormatOf(l.opts.FS, store.GenerationDir(l.storeDir(), s.number)) // what is wrong with it is in the state
		st.Format = format.Engine
	}
	if s.err != nil && st.State != store.Failed && st.State != store.Stopped {
		st.State, st.Error = s.state, s.err
	}
	st.Previous = l.files.Load().Previous
	if st.State == store.Ready && (l.building.Load() || l.next.Load() != nil) {
		st.State = store.Rebuilding
	}
	st.Damaged = st.State == store.Failed && s.damaged()
	st.Unreadable = st.State == store.Outdated && s.store == nil
	if now := l.serving.Load(); now != s {
		return l.Status()
	}
	return st
}

// Changed returns a channel that is closed when the state of a generation, or the one that serves, changes. To miss no
// change, take it before asking for the Status.
func (l *Live) Changed() <-chan struct{} {
	l.told.mu.Lock()
	defer l.told.mu.Unlock()
	return l.told.changed
}

// Disk returns what the generation that serves takes on disk, and how much is free there.
func (l *Live) Disk() (live, free uint64, err error) {
	live = disk.DirectoryBytes(l.opts.FS, store.GenerationDir(l.storeDir(), l.serving.Load().number))
	usage, err := l.opts.FS.GetDiskUsage(l.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return live, math.MaxUint64, nil // a file system in memory
	}
	return live, usage.AvailBytes, err
}

// storeDir are options that say where generations are.
func (l *Live) storeDir() store.Options {
	return store.Options{FS: l.opts.FS, Dir: l.opts.Dir, Projection: l.projection}
}

// Run folds the log into the generation that serves, whichever it is, until the context ends or the Live is closed. A
// generation that fails leaves it waiting for a cut-over to another. It returns why the last generation stopped, if it did
// so by itself.
func (l *Live) Run(ctx context.Context, subscribe store.SubscribeFunc) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	r := &running{ctx: ctx, subscribe: subscribe, followers: map[*store.Store]*follower{}}
	l.mu.Lock()
	if l.closed || l.run != nil {
		defer l.mu.Unlock()
		if l.closed {
			return projections.ErrClosed
		}
		return errRunning
	}
	l.run = r
	if s := l.serving.Load(); s.err == nil {
		r.follow(s.store) //nolint:contextcheck // it has that of the call
	}
	l.mu.Unlock()
	<-ctx.Done()
	l.mu.Lock()
	l.run = nil
	l.mu.Unlock()
	r.all.Wait()
	s := l.serving.Load()
	if s.err != nil {
		return s.err
	}
	if err := s.store.Failure(); err != nil {
		return stoppedBy(err)
	}
	return nil
}

var errRunning = errors.New("projections: Run is running already")

// within returns a context that ends with the Live, too.
func (l *Live) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(l.life, cancel)
	return ctx, func() { release(); cancel() }
}

// running is one call of Run.
type running struct {
	ctx       context.Context //nolint:containedctx // that of the call
	subscribe store.SubscribeFunc
	all       sync.WaitGroup
	followers map[*store.Store]*follower
}

// follower is a generation that follows the log.
type follower struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// follow has a generation follow the log. Live.mu is held.
func (r *running) follow(s *store.Store) *follower {
	ctx, cancel := context.WithCancel(r.ctx)
	f := &follower{cancel: cancel, done: make(chan struct{})}
	r.followers[s] = f
	r.all.Go(func() {
		defer close(f.done)
		_ = s.Run(ctx, r.subscribe) // the store has logged and keeps why it stopped
	})
	return f
}

// unfollow ends the following of a generation, if it follows, and waits for it.
func (l *Live) unfollow(s *store.Store) {
	l.mu.Lock()
	var f *follower
	if l.run != nil {
		f = l.run.followers[s]
		delete(l.run.followers, s)
	}
	l.mu.Unlock()
	if f != nil {
		f.cancel()
		<-f.done
	}
}

// Close closes every open generation, as [store.Store.Close] does. The next start removes a generation that was being built. The caller must
// stop the fold first.
func (l *Live) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.endLife()
	l.mu.Unlock()
	l.cutting.Lock() // a cut-over gives up or is done
	defer l.cutting.Unlock()
	l.mu.Lock()
	next, retired := l.next.Swap(nil), l.retired
	l.mu.Unlock()
	var errs []error
	if next != nil {
		errs = append(errs, next.Close())
	}
	if s := l.serving.Load(); s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if retired != nil {
		<-retired
	}
	return errors.Join(errs...)
}
