package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/replay/operation"
)

// Where things are below the data directory.
const (
	logDir    = "log"
	storesDir = "stores"
)

// closeTimeout is how long the log may take to close: acknowledgements that are still awaited, files.
const closeTimeout = 30 * time.Second

// appOptions say what a process of the service is made of.
type appOptions struct {
	log eventlog.Config
	dir string
	// memory says how much each part of the process may take; zero: little is cached.
	memory memoryPlan
	// diskReserve is how much of the disk is kept free; 0: by its size.
	diskReserve int64
	// settings are what the folds read; zero: the defaults.
	settings all.Settings
	keys     pagetoken.KeyRing
	access   accessOptions
	limits   gateway.Limits
	logger   *slog.Logger
	// version is that of the program.
	version string
	// upkeep says what the process does beside serving.
	upkeep upkeepOptions
	// tracer follows some calls; nil: none.
	tracer trace.Tracer
	// pprof is where profiles of the process are served; nil: nowhere.
	pprof net.Listener
	// works makes the long work that the process can do; nil: all that there is.
	works func(*app) works
}

// accessOptions say who may call.
type accessOptions struct {
	gate         *access.Gate
	certificates *access.Certificates
	origins      []string
	hosts        []string
}

// app is one process of the service. It is opened from the log upwards and closed in reverse order:
//
//	log ← hub ← stores (each a projection)
//	 ↑            ↑
//	publisher ← gateway ← clients
type app struct {
	log       *eventlog.Log
	cache     *projections.Cache
	hub       *eventlog.Hub
	stores    []*projections.Live
	publisher *eventlog.Publisher
	// operations are the long work on the stores and the log.
	operations *operation.Manager
	server     *gateway.Server
	disk       *diskGuard
	pprof      net.Listener // may be nil
	logger     *slog.Logger

	dir      string
	settings all.Settings
	memory   memoryPlan
	upkeep

	// settled is done when every projection has caught up once, or has failed.
	settled sync.WaitGroup
}

func openApp(ctx context.Context, o appOptions) (_ *app, err error) {
	a := &app{logger: o.logger, dir: o.dir, pprof: o.pprof, settings: o.settings, memory: o.memory, upkeep: upkeep{opt: o.upkeep}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close(context.WithoutCancel(ctx)))
		}
	}()
	if o.log.Existing, err = archived(ctx, o.upkeep.archive); err != nil {
		return nil, err
	}
	if a.log, err = eventlog.Open(ctx, o.log); err != nil {
		return nil, lostLog(err, o.upkeep.archive)
	}
	if err = a.openArchive(ctx); err != nil {
		return nil, err
	}
	a.examineLog(ctx)
	a.disk = newDiskGuard(o.dir, uint64(o.diskReserve), o.logger)
	a.disk.heal = a.log.Recover
	if err = a.disk.awaitLeast(ctx); err != nil {
		return nil, err
	}
	a.cache = projections.NewCache(o.memory.cache)
	serving := o.settings // what else folds for a while is asked nothing
	serving.Hot = graph.NewHotCache(o.memory.hot)
	registry := prometheus.NewRegistry()
	folds, err := newFoldMetrics(registry)
	if err != nil {
		return nil, err
	}
	for _, p := range all.Makers(serving) {
		store, err := projections.OpenLive(projections.LiveOptions{New: p, Options: projections.Options{
			Dir: filepath.Join(o.dir, storesDir), Cache: a.cache, Bounds: o.memory.bounds(), Logger: o.logger,
			Listener: folds.attach(p().Name(), o.tracer, a.listener()), //nolint:contextcheck // spans of folds outlive the opening
		}})
		if err != nil {
			return nil, err
		}
		a.stores = append(a.stores, store)
	}
	a.hub = eventlog.NewHub(a.log, eventlog.HubOptions{RingBytes: int(o.memory.ring)})
	appends, err := newAppendMetrics(registry)
	if err != nil {
		return nil, err
	}
	// A full queue fails, so that the clients of a service hear of overload.
	//nolint:contextcheck // a publisher lives until it is closed, not for as long as opening takes
	if a.publisher, err = a.log.NewPublisher(eventlog.PublisherOptions{
		FailWhenFull: true, Listener: appends.listener(),
	}); err != nil {
		return nil, err
	}
	a.operations, err = operation.Open(operation.Options{Dir: filepath.Join(o.dir, operationsDir), Logger: o.logger})
	if err != nil {
		return nil, err
	}
	a.openUpkeep()
	if o.works == nil {
		o.works = (*app).works
	}
	err = errors.Join(registry.Register(newUpkeepCollector(a)), registry.Register(a.disk),
		registerProcess(registry, newProcessCollector(a.cache, o.memory.cache, o.access)))
	if err != nil {
		return nil, err
	}
	a.server, err = gateway.New(gateway.Options{
		Log: a.log, Publisher: a.publisher, Hub: a.hub, Stores: a.stores,
		Graph: a.store("graph"), Inbox: a.store("inbox"), Seen: a.store("seen"), Counters: a.store("counters"),
		Operator: newOperator(a.operations, o.works(a)), Report: a.report, Registry: registry, Room: a.disk.room,
		Gate: o.access.gate, Certificates: o.access.certificates, Origins: o.access.origins, AllowedHosts: o.access.hosts,
		Keys: o.keys, Limits: o.limits, Logger: o.logger, Version: o.version, Tracer: o.tracer,
	})
	return a, err
}

// store returns a projection by its name; nil: there is none.
func (a *app) store(name string) *projections.Live {
	i := slices.IndexFunc(a.stores, func(s *projections.Live) bool { return s.Name() == name })
	if i < 0 {
		return nil
	}
	return a.stores[i]
}

// listener notes when a projection has caught up, or will not.
func (a *app) listener() projections.Listener {
	a.settled.Add(1)
	var once sync.Once
	return projections.Listener{StateChanged: func(s projections.State, _ error) {
		if s != projections.Starting && s != projections.CatchingUp && s != projections.Held {
			once.Do(a.settled.Done)
		}
	}}
}

// run serves on the listener until ctx ends, and calls ready when the projections have caught up. It stops in order:
// calls first, then what waits for the log, then the projections, which until then make answers to calls.
func (a *app) run(ctx context.Context, l net.Listener, ready func() error) error {
	folding, stopFolding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFolding()
	g, failed := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := a.hub.Run(folding); err != nil {
			// Every projection stops with the same error. The process stays, to tell what is wrong.
			a.logger.Error("the log can no longer be read", "error", err)
		}
		return nil
	})
	for _, store := range a.stores {
		g.Go(func() error {
			// The projection has logged why it stopped; the others go on.
			_ = store.Run(folding, a.source)
			return nil
		})
	}
	g.Go(func() error { return a.disk.run(folding) })
	if a.pprof != nil {
		g.Go(func() error { return servePprof(folding, a.pprof) })
	}
	// Long work needs what the projections need, and is interrupted with them. What can goes on in the next process.
	g.Go(func() error { return a.operations.Run(folding) })
	g.Go(func() error {
		defer stopFolding()
		err := a.server.Run(failed, l)
		// Calls whose clients have gone may still wait for the log.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return errors.Join(err, a.publisher.Close(last))
	})
	settled := make(chan struct{})
	go func() { a.settled.Wait(); close(settled) }() // ends with the projections, at the latest
	a.runUpkeep(folding, g, settled)
	g.Go(func() error {
		select {
		case <-settled:
			return ready()
		case <-failed.Done():
			return nil
		}
	})
	return g.Wait()
}

// failed returns the names of the projections that have failed.
func (a *app) failed() (names []string) {
	for _, store := range a.stores {
		if store.Status().State == projections.Failed {
			names = append(names, store.Name())
		}
	}
	return names
}

// source subscribes a projection to the log.
func (a *app) source(from events.Cursor) (projections.Subscription, error) {
	if from == (events.Cursor{}) {
		from = a.log.Start() // a new store has folded no log yet
	}
	sub, err := a.hub.Subscribe(from)
	if err != nil {
		return nil, err
	}
	return subscription{sub, a.hub, a.disk}, nil
}

// subscription is a reading of the log that knows how long the log is, and stops while the disk has no room.
type subscription struct {
	*eventlog.Subscription
	hub  *eventlog.Hub
	disk *diskGuard // nil: whoever folds looks at the disk, or there is nothing else
}

// unguarded is a reading for a process that has no other use for its disk.
func unguarded(sub *eventlog.Subscription, hub *eventlog.Hub) projections.Subscription {
	return subscription{sub, hub, nil}
}

// Next returns what comes next, once there is room for what is made of it.
func (s subscription) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	if s.disk != nil {
		if err := s.disk.await(ctx); err != nil {
			return nil, err
		}
	}
	return s.Subscription.Next(ctx, maxBytes)
}

// Head is the last sequence that the log is known to have.
func (s subscription) Head() uint64 { return s.hub.Head() }

// close closes what was opened, last first.
func (a *app) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var errs []error
	if a.publisher != nil {
		errs = append(errs, a.publisher.Close(ctx))
	}
	if a.hub != nil {
		a.hub.Close()
	}
	for _, store := range slices.Backward(a.stores) {
		if err := store.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the store of %s: %w", store.Name(), err))
		}
	}
	if a.cache != nil {
		a.cache.Unref()
	}
	if a.log != nil {
		errs = append(errs, a.log.Close(ctx))
	}
	return errors.Join(errs...)
}
