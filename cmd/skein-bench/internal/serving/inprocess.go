package serving

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// engine has the parts of `skein serve` but HTTP, in this process: an embedded log, a publisher, a
// hub that reads the log for all, and a store of each projection.
type engine struct {
	log       *eventlog.Log
	publisher *eventlog.Publisher
	cache     *store.Cache
	stores    []*store.Store

	dir string
	// stop ends the tasks, and tasks waits for their ends.
	stop  context.CancelFunc
	tasks sync.WaitGroup
	mu    sync.Mutex
	// errs has the errors with which tasks have ended.
	errs []error
}

// startEngine starts an engine with an empty log, in a new directory below parent.
func startEngine(ctx context.Context, parent string) (_ *engine, err error) {
	dir, err := os.MkdirTemp(parent, "engine-")
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	e := &engine{dir: dir, stop: stop, cache: store.NewCache(workload.CacheBytes)}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(ctx))
		}
	}()

	e.log, err = eventlog.Open(ctx, eventlog.Config{Dir: filepath.Join(dir, "log")})
	if err != nil {
		return e, err
	}
	e.publisher, err = e.log.NewPublisher(eventlog.PublisherOptions{}) //nolint:contextcheck // the publisher lives until the log is closed
	if err != nil {
		return e, err
	}

	hub := eventlog.NewHub(e.log, eventlog.HubOptions{})
	e.startTask(func() error { return hub.Run(running) })
	for _, p := range all.All(all.Settings{}) {
		store, err := store.Open(store.Options{Dir: filepath.Join(dir, "stores"), Projection: p, Cache: e.cache})
		if err != nil {
			return e, err
		}
		e.stores = append(e.stores, store)
		e.startTask(func() error { return store.Run(running, workload.SubscribeToLog(e.log, hub)) })
	}
	return e, nil
}

// startTask runs a function in a goroutine until the engine is closed, and keeps its error.
func (e *engine) startTask(f func() error) {
	e.tasks.Go(func() {
		err := f()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.errs = append(e.errs, err)
	})
}

// close stops the tasks, closes stores and log, and removes their files. It returns all errors,
// those of the tasks included.
func (e *engine) close(ctx context.Context) error {
	// The tasks use the stores and the log, so they end first.
	e.stop()
	e.tasks.Wait()
	errs := e.errs // no task is left that could append to it
	for _, s := range e.stores {
		errs = append(errs, s.Close())
	}
	e.cache.Unref()
	if e.log != nil {
		errs = append(errs, workload.CloseLog(ctx, e.log))
	}
	return errors.Join(append(errs, os.RemoveAll(e.dir))...)
}

// ingestInProcess publishes the same calls as ingestSkein, from as many goroutines as there are
// connections, and waits until every store has folded the last event.
func ingestInProcess(ctx context.Context, b *measure.Bench, g *workload.Graph) (m measure.Measurement, err error) {
	e, err := startEngine(ctx, b.Dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()

	var (
		wg       sync.WaitGroup
		lastSeqs [ingestConnections]uint64
		errs     [ingestConnections]error
	)
	sequences := followCalls(g)
	begin := time.Now()
	for conn, calls := range sequences {
		wg.Go(func() { lastSeqs[conn], errs[conn] = e.publish(ctx, calls) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return m, err
	}
	for _, s := range e.stores {
		if err := s.WaitFor(ctx, slices.Max(lastSeqs[:])); err != nil {
			return m, err
		}
	}
	return measure.RateSince(len(g.Edges), begin), nil
}

// publish makes calls one after the other, and returns the sequence of the envelope with the last
// event.
func (e *engine) publish(ctx context.Context, calls []*skeinv1.PublishRequest) (lastSeq uint64, err error) {
	for _, call := range calls {
		res, err := e.publisher.Publish(ctx, call.GetEvents(), eventlog.PublishOptions{})
		if err != nil {
			return lastSeq, err
		}
		lastSeq = res.Position.Seq
	}
	return lastSeq, nil
}
