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

// Errors of a [Live]. They are returned wrapped, with more details.
var (
	// ErrOutdated means that the generation was built by another version of the fold, or with other
	// settings, than the program has. It is not folded any further. A rebuild replaces it.
	// ErrOutdated wraps [projections.ErrStopped].
	ErrOutdated = fmt.Errorf("%w: the generation is outdated", projections.ErrStopped)
	// ErrBuilding means that a next generation is open or being built already.
	ErrBuilding = errors.New("live: a next generation is open already")
	// ErrBehind means that the next generation does not show everything that the live one has
	// shown.
	ErrBehind = errors.New("live: the next generation is behind the live one")
	// ErrNoPrevious means that there is no previous generation to go back to.
	ErrNoPrevious = errors.New("live: there is no previous generation")
)

// Options are the options of [Open].
type Options struct {
	// Options are the options of the store of every generation. Live sets Generation and Projection
	// itself. The caller must leave Partitions nil: a generation holds all partitions or, if
	// Partitioned is set, those that it was built for. The Listener is notified of states and folds
	// of the generation that serves only, but of flushes, compactions and waits of all generations.
	store.Options
	// New returns a new instance of the projection. Each generation has its own. Several goroutines
	// may call New at once. Required.
	New func() projections.Projection
	// Log and Epoch identify the log that Run folds. Open does not use a generation that was
	// prepared from another log or another epoch, nor a previous one of an earlier epoch. If Log is
	// zero, Open uses no prepared generation, and a previous one of any epoch.
	Log   events.LogID
	Epoch uint32
}

// Live serves a projection from one of its generations. The package doc explains how generations
// replace each other.
//
// All methods may be called by several goroutines at once.
type Live struct {
	opts Options
	name string
	// dir is the directory of all generations of the projection.
	dir string
	// projection is an instance that folds nothing. Each store has an instance of its own.
	projection  projections.Projection
	fingerprint projections.Fingerprint

	// serving is the generation from which queries are answered. It is nil only until Open returns.
	serving atomic.Pointer[serving]
	// generations has the content of the file of generations. unreadableFile is set if Open could
	// not read the file; generations then names no generation. A cut-over clears unreadableFile.
	generations    atomic.Pointer[disk.Generations]
	unreadableFile bool

	// cutOverMu is held during a cut-over, so there is one at a time. It is locked before mu.
	cutOverMu sync.Mutex
	// building is set while a next generation is being built and has no store yet. next is the next
	// generation that is open, which is the previous generation during a rollback, or nil if none
	// is open. Both change only under mu.
	building atomic.Bool
	next     atomic.Pointer[store.Store]

	// mu guards the following fields.
	mu sync.Mutex
	// currentRun is the running call of Run, or nil. It is set until all folds of the call have
	// ended, so that no two folds work on one store.
	currentRun *foldRun
	// foldedNext is the next generation during a cut-over. Run folds the log into that generation,
	// too, even if Run begins during the cut-over.
	foldedNext *store.Store
	// retired is closed when the generation that served before the last cut-over is closed. It is
	// nil if that generation is closed already, and before the first cut-over.
	retired chan struct{}
	// exportCount numbers the copies of ExportPartitions, whose directories need different names.
	// exportDirs has the directories of those that are under way.
	exportCount int
	exportDirs  map[string]bool
	closed      bool

	// closeCtx ends when Close is called.
	closeCtx       context.Context //nolint:containedctx // no call passes it in: it spans the time from Open to Close
	cancelCloseCtx context.CancelFunc

	states stateReporter
}

// serving is the generation that serves, or that would serve if it could be opened.
type serving struct {
	number uint32
	// store is nil if the generation could not be opened.
	store *store.Store
	// err is the reason why the generation is not folded: it could not be opened, or it is
	// outdated. It wraps [projections.ErrStopped], and is nil if the generation is folded.
	err error
	// state is the state of the generation if err is not nil.
	state store.State
}

// closeStore closes the store of a generation that was opened. It does nothing if the store is
// closed already.
func (s *serving) closeStore() error {
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// stateReporter passes the states of the serving generation on to the listener. A store reports its
// state while it holds its own lock, and the report takes mu. So code that holds mu must not call a
// store.
type stateReporter struct {
	mu sync.Mutex
	// generation is the number of the generation that serves. state is the state that the listener
	// was last notified of, or Starting before the first notification.
	generation uint32
	state      store.State
	// reports has the last state of each generation whose store has reported one. A generation
	// without a report is Starting.
	reports map[uint32]stateReport
	// changed is closed, and replaced, when any generation has a new state and when another
	// generation serves.
	changed chan struct{}
}

// stateReport is a state that a store has reported, with the reason for Failed or Held.
type stateReport struct {
	state store.State
	err   error
}

// Open opens the live generation of a projection, or creates the first generation. It removes
// generations that are no longer needed. If the program cannot continue the live generation,
// because the fold has another version or other settings, Open makes another one live that the
// program can continue: one that was prepared ([Preparation]) or else the previous one. With
// ReadOnly set, Open creates, removes and replaces nothing.
//
// Open fails if the files are open already, with [projections.ErrPartial] if Partitioned is not set
// and the generation does not hold all partitions, with [projections.ErrNoStore] if ReadOnly is set
// and there is no generation, and if replacing an outdated generation fails. Other errors of the
// live generation do not make Open fail: [Live.Status] returns them.
func Open(o Options) (*Live, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := o.New()
	l := &Live{
		opts:        o,
		name:        p.Name(),
		dir:         o.FS.PathJoin(o.Dir, p.Name()),
		projection:  p,
		fingerprint: projections.FingerprintOf(p),
	}
	l.closeCtx, l.cancelCloseCtx = context.WithCancel(context.Background())
	l.states.changed = make(chan struct{})
	l.states.reports = map[uint32]stateReport{}
	l.exportDirs = map[string]bool{}

	g, found, err := disk.ReadGenerations(o.FS, l.dir)
	if err == nil {
		_, err = projections.ParseHeld(g.Partitions)
	}
	if err != nil {
		// Nothing says which generation is live, so none is opened. A rebuild can replace the file.
		g = disk.Generations{}
		if o.Partitioned {
			g.Partitions = projections.FormatHeld(&events.Partitions{})
		}
		l.generations.Store(&g)
		l.unreadableFile = true
		l.logger().Error("which generation is live cannot be told", "error", err)
		l.setServing(&serving{err: wrapStopped(err), state: store.Failed})
		return l, nil
	}

	if !o.Partitioned && g.Partitions != "" {
		return nil, store.PartialError(store.GenerationDir(l.locationOptions(), g.Live), g.Partitions)
	}
	l.generations.Store(&g)
	if !o.ReadOnly {
		l.removeLeftovers(found)
		if !found && len(disk.ListGenerations(o.FS, l.dir)) == 0 {
			// The projection is new to this data directory. If a generation was prepared, make it
			// the first one.
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
			outdated := s
			if s, err = l.replaceOutdated(outdated); err != nil {
				// No Live will close the outdated store, and it would stay in use until the process
				// ends.
				return nil, errors.Join(err, outdated.closeStore())
			}
		}
		if s.err == nil {
			// A crash may have left the mark of a prepared generation that is live since.
			if err := disk.RemovePrepared(o.FS, s.store.Dir()); err != nil {
				l.logger().Warn("the mark of a prepared generation cannot be removed", "error", err)
			}
		}
		if s.store != nil && o.Partitioned {
			l.recordPartitions(*l.generations.Load(), found, s.store)
		}
	}
	l.logOpened(s)
	l.setServing(s)
	return l, nil
}

// logOpened logs why the generation that Open has opened is not folded. If it is folded, logOpened
// logs nothing.
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

// recordPartitions writes the partitions of the live generation to the file of generations, unless
// the file has them. A rebuild reads them in that file if the files of the store cannot be read.
// found reports whether the file exists. An error is only logged.
func (l *Live) recordPartitions(g disk.Generations, found bool, s *store.Store) {
	if found && g.Partitions == s.Fingerprint().Partitions {
		return
	}
	g.Partitions = s.Fingerprint().Partitions
	if err := l.writeGenerations(g); err != nil {
		l.logger().Warn("the set of partitions was not noted", "error", err)
	}
}

// wrapStopped wraps err in [projections.ErrStopped], unless it is wrapped already.
func wrapStopped(err error) error {
	if errors.Is(err, projections.ErrStopped) {
		return err
	}
	return fmt.Errorf("%w: %w", projections.ErrStopped, err)
}

// removeLeftovers removes what a crash has left: temporary directories, and generations that the
// file of generations does not name. If there is no file (found is false) and there are several
// generations, nothing says which of them is needed, so it removes nothing.
func (l *Live) removeLeftovers(found bool) {
	g := *l.generations.Load()
	if !found {
		for _, n := range disk.ListGenerations(l.opts.FS, l.dir) {
			if n != g.Live {
				return
			}
		}
	}
	l.removeStale(g, true)
}

// removeStale removes the generations that g does not name and, if shadows is set, temporary
// directories. It keeps a generation that a later start may make live. It only logs errors, because
// the next call removes what is left.
func (l *Live) removeStale(g disk.Generations, shadows bool) {
	if err := l.removeUnnamed(g, shadows, l.mayBeInstalled); err != nil {
		l.logger().Warn("what is no longer needed cannot be removed", "error", err)
	}
}

// removeUnnamed is [disk.RemoveStale] for the directory of the projection. It logs what it has
// removed.
func (l *Live) removeUnnamed(g disk.Generations, shadows bool, keep func(dir string) bool) error {
	removed, err := disk.RemoveStale(l.opts.FS, l.dir, g, shadows, keep)
	if len(removed) > 0 {
		l.logger().Info("removed what is no longer needed", "directories", removed)
	}
	return err
}

func (l *Live) logger() *slog.Logger { return l.opts.Logger.With("projection", l.name) }

// storeOptions returns the options of the store of a generation.
func (l *Live) storeOptions(generation uint32) store.Options {
	o := l.opts.Options
	o.Generation = generation
	o.Projection = l.opts.New()
	o.Listener = l.storeListener(generation)
	return o
}

// openServing opens a generation that serves or shall serve. If the generation cannot be opened but
// a rebuild can replace it, openServing returns a serving with the reason in its field err. It
// returns an error only if a rebuild does not help. It opens an outdated generation for reading if
// this program can read the rows.
func (l *Live) openServing(generation uint32) (*serving, error) {
	o := l.storeOptions(generation)
	opened, err := store.Open(o)
	switch {
	case err == nil && opened.Outdated() != "":
		err = fmt.Errorf("%w: %w: %s", ErrOutdated, projections.ErrFingerprint, opened.Outdated())
		return &serving{number: generation, store: opened, err: err, state: store.Outdated}, nil
	case err == nil:
		return &serving{number: generation, store: opened}, nil
	case errors.Is(err, projections.ErrInUse), errors.Is(err, projections.ErrPartial), o.ReadOnly && errors.Is(err, projections.ErrNoStore):
		return nil, err // a rebuild does not help
	}

	s := &serving{number: generation, err: wrapStopped(err), state: store.Failed}
	if errors.Is(err, projections.ErrFingerprint) {
		s.err = fmt.Errorf("%w: %w", ErrOutdated, err)
		s.state = store.Outdated

		o = l.storeOptions(generation)
		o.ReadOnly = true
		s.store, err = store.Open(o)
		switch {
		case errors.Is(err, projections.ErrFingerprint):
			s.err = fmt.Errorf("%w; this version cannot read its rows, so it answers nothing until then", s.err)
		case err != nil:
			s.err = wrapStopped(err)
			s.state = store.Failed
		}
	}
	return s, nil
}

// setServing makes a generation the one that serves, and notifies the listener of its state.
func (l *Live) setServing(s *serving) {
	l.states.mu.Lock()
	defer l.states.mu.Unlock()
	l.serving.Store(s)
	l.states.generation = s.number

	last := l.states.reports[s.number]
	if s.err != nil {
		last = stateReport{s.state, s.err}
	}
	l.notifyStateLocked(last)
	l.states.signalChangeLocked()
}

// signalChangeLocked wakes all goroutines that wait for a change of a state. The caller holds mu.
func (r *stateReporter) signalChangeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// storeListener returns the listener of the store of a generation. That listener records the last
// state of the generation. It passes states and folds on to the listener of the Live only while
// this generation serves, but flushes, compactions and waits always.
func (l *Live) storeListener(generation uint32) store.Listener {
	notify := l.opts.Listener
	listener := store.Listener{Flushed: notify.Flushed, Compacted: notify.Compacted, Waited: notify.Waited}

	listener.StateChanged = func(state store.State, err error) {
		r := &l.states
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports[generation] = stateReport{state, err}
		if r.generation == generation {
			l.notifyStateLocked(stateReport{state, err})
		}
		r.signalChangeLocked()
	}
	if notify.Folded != nil {
		listener.Folded = func(info store.FoldInfo) {
			// serving is nil only while Open is running. The store that Open opens will serve.
			if s := l.serving.Load(); s == nil || s.number == generation {
				notify.Folded(info)
			}
		}
	}
	return listener
}

// notifyStateLocked notifies the listener of the state of the serving generation, unless that is
// the state of the last notification. The caller holds states.mu.
func (l *Live) notifyStateLocked(r stateReport) {
	if r.state == l.states.state {
		return
	}
	l.states.state = r.state
	if notify := l.opts.Listener.StateChanged; notify != nil {
		notify(r.state, r.err)
	}
}

// Name returns the name of the projection.
func (l *Live) Name() string { return l.name }

// Projection returns an instance of the projection with the present settings of the program. It
// folds nothing.
func (l *Live) Projection() projections.Projection { return l.projection }

// Holds returns the partitions that the serving generation holds. If its files cannot be read,
// Holds returns the partitions that the file of generations records, which a rebuild builds again.
// A query must use [projections.View.Partitions] instead, because a cut-over may come between the
// call of Holds and the opening of the view.
func (l *Live) Holds() events.Partitions {
	if s := l.Serving(); s != nil {
		return s.Holds()
	}
	held, err := projections.ParseHeld(l.generations.Load().Partitions)
	if err != nil { // never: Open has parsed it before
		return events.Partitions{}
	}
	if held == nil {
		return events.AllPartitions()
	}
	return *held
}

// Partitioned reports whether a generation may hold fewer than all partitions.
func (l *Live) Partitioned() bool { return l.opts.Partitioned }

// Serving returns the store of the generation that serves now, or nil if it could not be opened. A
// later cut-over closes that store. A caller that keeps the store must therefore expect
// [projections.ErrClosed], and then call Serving again.
func (l *Live) Serving() *store.Store { return l.serving.Load().store }

// withServing calls f with the generation that serves. If f fails and another generation serves by
// then, withServing calls f again with the other one. So f may be called several times.
func (l *Live) withServing(f func(*serving) error) error {
	// A cut-over closes the old store, so a call on it may fail although the projection serves.
	for {
		s := l.serving.Load()
		if err := f(s); err == nil || l.serving.Load() == s {
			return err
		}
	}
}

// withStore calls f with the store of the generation that serves, as withServing does. If the
// generation could not be opened, withStore returns the reason and does not call f.
func (l *Live) withStore(f func(*store.Store) error) error {
	return l.withServing(func(s *serving) error {
		if s.store == nil {
			return s.err
		}
		return f(s.store)
	})
}

// View returns a view of the last whole position. It fails as [store.Store.View] does, with
// [ErrOutdated] if this program cannot read the rows of the generation, and otherwise with
// [projections.ErrStopped] if the generation could not be opened.
func (l *Live) View() (v *projections.View, err error) {
	err = l.withStore(func(s *store.Store) (err error) {
		v, err = s.View()
		return err
	})
	return v, err
}

// WaitFor blocks until views show everything up to seq. It fails with the error of the context,
// with [projections.ErrStopped] if the projection has failed, or if it is outdated or Run has ended
// before seq was visible, and with [events.ErrHole] while the fold waits in front of a hole.
func (l *Live) WaitFor(ctx context.Context, seq uint64) error {
	return l.withServing(func(s *serving) error {
		if s.err != nil {
			// This generation is not folded, but it may have seq already.
			if s.store != nil && s.store.IsVisible(seq) {
				return nil
			}
			return s.err
		}
		return s.store.WaitFor(ctx, seq)
	})
}

// ViewAt returns a view of exactly one position, see [store.Store.ViewAt].
func (l *Live) ViewAt(ctx context.Context, seq uint64) (v *projections.View, err error) {
	err = l.withStore(func(s *store.Store) (err error) {
		v, err = s.ViewAt(ctx, seq)
		return err
	})
	return v, err
}

// CheckFiles checks the files of the serving generation, see [store.Store.CheckFiles].
func (l *Live) CheckFiles(
	ctx context.Context, dir string, rest func(context.Context, time.Duration) error,
) (c store.FileCheck, err error) {
	err = l.withStore(func(s *store.Store) (err error) {
		c, err = s.CheckFiles(ctx, dir, rest)
		return err
	})
	return c, err
}

// Engine returns figures about the storage engine of the serving generation, see
// [store.Store.Engine].
func (l *Live) Engine() (e store.Engine, ok bool) {
	if s := l.Serving(); s != nil {
		return s.Engine()
	}
	return store.Engine{}, false
}

// Repair overwrites damaged rows of the serving generation, see [store.Store.Repair].
func (l *Live) Repair(ctx context.Context, heal func(at events.Cursor, rows projections.Reader, m *store.Repair) error) error {
	return l.withStore(func(s *store.Store) error { return s.Repair(ctx, heal) })
}

// Flush writes everything that the serving generation has folded to disk, see [store.Store.Flush].
func (l *Live) Flush() error { return l.withStore((*store.Store).Flush) }

// Cursor returns the last whole position that queries see, or the zero cursor if the generation
// could not be opened.
func (l *Live) Cursor() events.Cursor {
	s := l.serving.Load()
	if s.store == nil {
		return events.Cursor{}
	}
	return s.store.VisibleCursor()
}

// Rejects returns kept rejects, see [store.Store.Rejects].
func (l *Live) Rejects(after uint64, n int) (rejects []store.StoredReject, total uint64, err error) {
	err = l.withStore(func(s *store.Store) (err error) {
		rejects, total, err = s.Rejects(after, n)
		return err
	})
	return rejects, total, err
}

// Status describes the projection. It is meant for people and metrics. It is too slow to be called
// by every query.
func (l *Live) Status() store.Status {
	s := l.serving.Load()
	var st store.Status
	if s.store != nil {
		st = s.store.Status()
	} else {
		dir := store.GenerationDir(l.locationOptions(), s.number)
		format, _ := store.FormatOf(l.opts.FS, dir) // an error of the files is the Error of the status already
		st = store.Status{
			Name:        l.name,
			Version:     l.fingerprint.Version,
			Fingerprint: l.fingerprint.String(),
			Generation:  s.number,
			DiskBytes:   disk.DirectoryBytes(l.opts.FS, dir),
			Format:      format.Engine,
		}
	}

	if s.err != nil && st.State != store.Failed && st.State != store.Stopped {
		st.State = s.state
		st.Error = s.err
	}
	if st.State == store.Ready && (l.building.Load() || l.next.Load() != nil) {
		st.State = store.Rebuilding
	}
	st.Previous = l.generations.Load().Previous
	st.Damaged = st.State == store.Failed && s.isDamaged()
	st.Unreadable = st.State == store.Outdated && s.store == nil

	// After a cut-over in the meantime, parts of the status belong to different generations.
	if l.serving.Load() != s {
		return l.Status()
	}
	return st
}

// Changed returns a channel that is closed when a generation has a new state, and when another
// generation serves. A caller that must not miss a change calls Changed before Status.
func (l *Live) Changed() <-chan struct{} {
	l.states.mu.Lock()
	defer l.states.mu.Unlock()
	return l.states.changed
}

// FileBytes returns the size of the files of the serving generation. It asks for each file.
func (l *Live) FileBytes() uint64 {
	return disk.DirectoryBytes(l.opts.FS, store.GenerationDir(l.locationOptions(), l.serving.Load().number))
}

// FreeDisk returns how many bytes are free on the disk of the files.
func (l *Live) FreeDisk() (uint64, error) {
	usage, err := l.opts.FS.GetDiskUsage(l.dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return math.MaxUint64, nil // a file system in memory
	}
	return usage.AvailBytes, err
}

// locationOptions returns options from which [store.GenerationDir] makes the directory of a
// generation.
func (l *Live) locationOptions() store.Options {
	return store.Options{FS: l.opts.FS, Dir: l.opts.Dir, Projection: l.projection}
}

// Run folds the log into the serving generation until the context ends or the Live is closed. After
// a cut-over it folds into the new generation. If the serving generation fails, Run does not
// return, because a cut-over to another generation may follow. At the end Run returns the error
// that has stopped the generation that serves then, or nil. Only one call may run at a time; a
// second one fails at once.
func (l *Live) Run(ctx context.Context, subscribe store.SubscribeFunc) error {
	ctx, cancel := l.withCloseCtx(ctx)
	defer cancel()
	r := &foldRun{ctx: ctx, subscribe: subscribe, folds: map[*store.Store]*storeFold{}}
	if err := l.beginRun(r); err != nil { //nolint:contextcheck // r has the context
		return err
	}

	// From isEnding on, a cut-over starts no other fold, while Run waits for the folds to end.
	<-ctx.Done()
	l.mu.Lock()
	r.isEnding = true
	l.mu.Unlock()
	r.goroutines.Wait()
	l.mu.Lock()
	l.currentRun = nil
	l.mu.Unlock()

	s := l.serving.Load()
	if s.err != nil {
		return s.err
	}
	if err := s.store.Failure(); err != nil {
		return wrapStopped(err)
	}
	return nil
}

// beginRun makes r the current run. It starts to fold into the serving generation if this program
// can fold it, and into the next one during a cut-over.
func (l *Live) beginRun(r *foldRun) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return projections.ErrClosed
	}
	if l.currentRun != nil {
		return errRunning
	}
	l.currentRun = r
	s := l.serving.Load()
	if s.err == nil {
		r.startFold(s.store)
	}

	// Without this, a cut-over that is under way would wait for the next generation in vain,
	// because the serving one goes ahead. Near the end of a cut-over, the next generation serves
	// already.
	if l.foldedNext != nil && l.foldedNext != s.store {
		r.startFold(l.foldedNext)
	}
	return nil
}

var errRunning = errors.New("live: Run is running already")

// withCloseCtx returns a context that ends with ctx and when the Live is closed.
func (l *Live) withCloseCtx(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(l.closeCtx, cancel)
	return ctx, func() { release(); cancel() }
}

// foldRun is one call of [Live.Run].
type foldRun struct {
	ctx        context.Context //nolint:containedctx // the context of the call
	subscribe  store.SubscribeFunc
	goroutines sync.WaitGroup
	// isEnding is set when no other fold may start. Live.mu guards it.
	isEnding bool
	// folds has the fold of each generation for which startFold was called and stopFold was not.
	// Live.mu guards the map.
	folds map[*store.Store]*storeFold
}

// storeFold is a goroutine that folds the log into one generation. cancel makes it end; done is
// closed when it has ended.
type storeFold struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// startFold starts to fold the log into a generation. The caller holds Live.mu.
func (r *foldRun) startFold(s *store.Store) *storeFold {
	ctx, cancel := context.WithCancel(r.ctx)
	f := &storeFold{cancel: cancel, done: make(chan struct{})}
	r.folds[s] = f
	r.goroutines.Go(func() {
		defer close(f.done)
		_ = s.Run(ctx, r.subscribe) // the store logs the error and keeps it
	})
	return f
}

// stopFold stops the fold into a generation, if the current run has one, and waits for its end. The
// caller must not hold mu.
func (l *Live) stopFold(s *store.Store) {
	l.mu.Lock()
	var f *storeFold
	if l.currentRun != nil {
		f = l.currentRun.folds[s]
		delete(l.currentRun.folds, s)
	}
	l.mu.Unlock()

	if f != nil {
		f.cancel()
		<-f.done
	}
}

// Close closes every open generation, as [store.Store.Close] does. The next Open removes a
// generation that was being built. The caller must first end Run and wait until Run has returned:
// Close makes Run end, too, but does not wait for that.
func (l *Live) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.cancelCloseCtx() // a cut-over and retired generations must not wait any longer
	l.mu.Unlock()

	// Wait for a cut-over, which closeCtx interrupts.
	l.cutOverMu.Lock()
	defer l.cutOverMu.Unlock()

	// The goroutine that closes a retired generation takes mu, so do not hold it while waiting.
	l.mu.Lock()
	next := l.next.Swap(nil)
	retired := l.retired
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
