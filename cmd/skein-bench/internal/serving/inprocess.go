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

// engine is what `skein serve` runs, without HTTP: an embedded log, its publisher and hub, and every projection.
type engine struct {
	log       *eventlog.Log
	publisher *eventlog.Publisher
	cache     *store.Cache
	stores    []*store.Store

	dir  string
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

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
	if e.log, err = eventlog.Open(ctx, eventlog.Config{Dir: filepath.Join(dir, "log")}); err != nil {
		return e, err
	}
	e.publisher, err = e.log.NewPublisher(eventlog.PublisherOptions{}) //nolint:contextcheck // it lives until the log is closed
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

func (e *engine) startTask(f func() error) {
	e.wg.Go(func() {
		err := f()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.errs = append(e.errs, err)
	})
}

func (e *engine) close(ctx context.Context) error {
	e.stop()
	e.wg.Wait()
	errs := e.errs
	for _, s := range e.stores {
		errs = append(errs, s.Close())
	}
	e.cache.Unref()
	if e.log != nil {
		errs = append(errs, workload.CloseLog(ctx, e.log))
	}
	return errors.Join(append(errs, os.RemoveAll(e.dir))...)
}

// ingestInProcess publishes the same calls as over HTTP, from as many goroutines as there are connections.
func ingestInProcess(ctx context.Context, b *measure.Bench, g *workload.Graph) (m measure.Measurement, err error) {
	e, err := startEngine(ctx, b.Dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, e.close(ctx)) }()
	var (
		wg   sync.WaitGroup
		last [ingestConnections]uint64
		errs [ingestConnections]error
	)
	shares := followCalls(g)
	begin := time.Now()
	for conn, calls := range shares {
		wg.Go(func() { last[conn], errs[conn] = e.publish(ctx, calls) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return m, err
	}
	for _, s := range e.stores {
		if err := s.WaitFor(ctx, slices.Max(last[:])); err != nil {
			return m, err
		}
	}
	return measure.Rate(len(g.Edges), begin), nil
}

func (e *engine) publish(ctx context.Context, calls []*skeinv1.PublishRequest) (last uint64, err error) {
	for _, call := range calls {
		res, err := e.publisher.Publish(ctx, call.GetEvents(), eventlog.PublishOptions{})
		if err != nil {
			return last, err
		}
		last = res.Position.Seq
	}
	return last, nil
}
