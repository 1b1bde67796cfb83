package service

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

	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/operation"
)

// Names of files and directories below the data directory.
const (
	LogDir    = "log"
	StoresDir = "stores"
)

// CloseTimeout is how long closing the log may take: outstanding acknowledgements, and files.
const CloseTimeout = 30 * time.Second

// Options say what a process of the service is made of.
type Options struct {
	Log eventlog.Config
	Dir string
	// Memory is the memory of each part of the process; with the zero value little is cached.
	Memory Memory
	// DiskReserve is the disk that stays free, in bytes; 0 means a share of the disk.
	DiskReserve int64
	// Settings are the settings of the folds; the zero value means the defaults.
	Settings all.Settings
	Keys     pagetoken.KeyRing
	Access   Access
	// Console says whether the console is served.
	Console bool
	Limits  gateway.Limits
	Logger  *slog.Logger
	// Version is that of the program.
	Version string
	// Maintenance says what the process does beside serving.
	Maintenance MaintenanceOptions
	// Tracer traces a share of the calls; nil disables tracing.
	Tracer trace.Tracer
	// Pprof is the listener on which profiles are served; nil disables them.
	Pprof net.Listener
	// Node makes the process a node of a cluster; nil means that it holds all partitions.
	Node *node.Config
	// Abandon ends the process at once, without closing anything. It is called from a goroutine of the service when the process must not
	// write to its data directory any more ([ErrDirReplaced]), from the opening to the end of closing. Nil means that nothing is done.
	Abandon func(err error)
	// OfferedOperations returns the kinds of operations that the process offers; nil means all of them.
	OfferedOperations func(*Service) OfferedOperations
}

// Access configures authentication and permissions.
type Access struct {
	Gate         *access.Authenticator
	Certificates *access.Certificates
	// NodeCertificates are those of a node of a cluster for other nodes.
	NodeCertificates *access.Certificates
	Origins          []string
	Hosts            []string
}

// Service is one process of the service. It is opened from the log upwards and closed in reverse order:
//
//	log ← hub ← stores (each a projection)
//	 ↑            ↑
//	publisher ← gateway ← clients
type Service struct {
	lock       *dirLock
	log        *eventlog.Log
	blockCache *store.Cache
	hub        *eventlog.Hub
	Stores     []*live.Live
	publisher  *eventlog.Publisher
	// Operations are the long-running tasks on the stores and the log.
	Operations *operation.Manager
	server     *gateway.Server
	diskGuard  *diskGuard
	pprof      net.Listener // may be nil
	node       *node.Node   // nil outside of a cluster
	erasure    *erase.Part  // nil outside of a cluster
	logger     *slog.Logger

	dir      string
	settings all.Settings
	memory   Memory
	maintenance

	// caughtUp is done when every projection has caught up once, or has failed.
	caughtUp sync.WaitGroup
}

// Open opens a service. It waits for the log, and for room on the disk. The service serves once Run is called.
func Open(ctx context.Context, o Options) (_ *Service, err error) {
	a := &Service{
		logger: o.Logger, dir: o.Dir, pprof: o.Pprof, settings: o.Settings, memory: o.Memory, maintenance: maintenance{options: o.Maintenance},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close(context.WithoutCancel(ctx)))
		}
	}()
	if a.lock, err = lockDir(o.Dir); err != nil {
		return nil, err
	}
	if o.Abandon != nil {
		a.lock.watch(context.WithoutCancel(ctx), o.Abandon) // until the directory is released, which is after Run
	}
	if o.Log.Existing, err = hasArchivedLog(ctx, o.Maintenance.Archive); err != nil {
		return nil, err
	}
	if a.log, err = eventlog.Open(ctx, o.Log); err != nil {
		return nil, explainLostLog(err, o.Maintenance.Archive)
	}
	if err = a.openArchive(ctx); err != nil {
		return nil, err
	}
	a.examineLog(ctx)
	a.diskGuard = newDiskGuard(o.Dir, uint64(o.DiskReserve), o.Logger)
	a.diskGuard.recoverLog = a.log.Recover
	if err = a.diskGuard.awaitOpeningSpace(ctx); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	if err = a.openStores(&o, registry); err != nil { //nolint:contextcheck // spans of folds outlive the opening
		return nil, err
	}
	a.hub = eventlog.NewHub(a.log, eventlog.HubOptions{RingBytes: int(o.Memory.Ring)})
	appends, err := newAppendMetrics(registry)
	if err != nil {
		return nil, err
	}
	// A full queue is an error, so that clients learn of an overload.
	//nolint:contextcheck // a publisher lives until it is closed, not for as long as opening takes
	if a.publisher, err = a.log.NewPublisher(eventlog.PublisherOptions{
		FailWhenFull: true, Listener: appends.listener(),
	}); err != nil {
		return nil, err
	}
	a.Operations, err = operation.Open(operation.Options{Dir: filepath.Join(o.Dir, operationsDir), Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	if err = a.openMaintenance(o.Node); err != nil {
		return nil, err
	}
	if err = a.openNode(ctx, o.Node, registry); err != nil {
		return nil, err
	}
	if o.OfferedOperations == nil {
		o.OfferedOperations = (*Service).OfferedOperations
	}
	err = errors.Join(registry.Register(newMaintenanceCollector(a)), registry.Register(a.diskGuard),
		registerProcessMetrics(registry, newProcessCollector(a.blockCache, o.Memory.Cache, o.Access)))
	if err != nil {
		return nil, err
	}
	serving := gateway.Options{
		Log: a.log, Publisher: a.publisher, Hub: a.hub, Stores: a.Stores,
		Graph: a.Store("graph"), Inbox: a.Store("inbox"), Seen: a.Store("seen"), Counters: a.Store("counters"),
		NodeCertificates: o.Access.NodeCertificates,
		Operator:         newOperator(a.Operations, o.OfferedOperations(a)), Report: a.addStatus, Problems: a.problems,
		Registry: registry, CheckDisk: a.diskGuard.checkPublishAllowed,
		Authenticator: o.Access.Gate, Certificates: o.Access.Certificates, Origins: o.Access.Origins, AllowedHosts: o.Access.Hosts,
		Console: o.Console, Keys: o.Keys, Limits: o.Limits, Logger: o.Logger, Version: o.Version, Tracer: o.Tracer,
	}
	a.setNodeOptions(&serving)
	if a.server, err = gateway.New(serving); err != nil {
		return nil, err
	}
	if a.node != nil {
		a.node.Attach(a.server)
	}
	return a, nil
}

// openStores opens the projections. Those of a node that must not continue are removed before.
func (a *Service) openStores(o *Options, registry prometheus.Registerer) error {
	if err := a.removeStoresOfMissedErasure(o.Node); err != nil {
		return err
	}
	a.blockCache = store.NewCache(o.Memory.Cache)
	serving := o.Settings // only stores that serve need caches for queries
	serving.Cache = querycache.New(o.Memory.Queries)
	folds, err := newFoldMetrics(registry)
	if err != nil {
		return err
	}
	for _, p := range all.Constructors(serving) {
		store, err := live.Open(live.Options{New: p, Options: store.Options{
			Dir: filepath.Join(o.Dir, StoresDir), Cache: a.blockCache, Bounds: o.Memory.storeBounds(), Logger: o.Logger,
			Listener:    folds.attach(p().Name(), o.Tracer, a.caughtUpListener()),
			Partitioned: o.Node != nil,
		}, Log: a.log.ID(), Epoch: a.log.Epoch()})
		if err != nil {
			return err
		}
		a.Stores = append(a.Stores, store)
	}
	return nil
}

// Store returns a projection by its name; nil means there is none.
func (a *Service) Store(name string) *live.Live {
	i := slices.IndexFunc(a.Stores, func(s *live.Live) bool { return s.Name() == name })
	if i < 0 {
		return nil
	}
	return a.Stores[i]
}

// listener returns a listener that notes when a projection has caught up, or has failed.
func (a *Service) caughtUpListener() store.Listener {
	a.caughtUp.Add(1)
	var once sync.Once
	return store.Listener{StateChanged: func(s store.State, _ error) {
		if s != store.Starting && s != store.CatchingUp && s != store.Held {
			once.Do(a.caughtUp.Done)
		}
	}}
}

// Run serves on the listener until ctx ends, and calls ready once the projections have caught up, and other nodes know of it. It stops in
// an order in which no call waits for a part that has stopped: first the calls, then the publisher, then the projections.
func (a *Service) Run(ctx context.Context, l net.Listener, ready func() error) error {
	folding, stopFolding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFolding()
	g, failed := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := a.hub.Run(folding); err != nil {
			// Every projection stops with the same error. The process stays, so that its status says what is wrong.
			a.logger.Error("the log can no longer be read", "error", err)
		}
		return nil
	})
	for _, store := range a.Stores {
		g.Go(func() error {
			// The projection has logged why it stopped; the others continue.
			_ = store.Run(folding, a.subscribe)
			return nil
		})
	}
	g.Go(func() error { return a.diskGuard.run(folding) })
	g.Go(func() error { releaseUnusedMemory(folding); return nil })
	if a.pprof != nil {
		g.Go(func() error { return servePprof(folding, a.pprof) })
	}
	caughtUp := make(chan struct{})
	go func() { a.caughtUp.Wait(); close(caughtUp) }() // ends when the projections end, at the latest
	var joined <-chan struct{} = caughtUp
	if a.node != nil {
		joined = a.node.Ready()
		g.Go(func() error { return a.node.Run(folding, failed, caughtUp) })
		if a.node.Listener != nil {
			g.Go(func() error { return a.server.RunPeers(folding, a.node.Listener) })
		}
	}
	// Operations are interrupted together with the projections. Some kinds continue in the next process.
	g.Go(func() error { return a.Operations.Run(folding) })
	g.Go(func() error {
		defer stopFolding()
		err := a.server.Run(failed, l)
		// Calls whose clients have gone may still wait for the log.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		return errors.Join(err, a.publisher.Close(last))
	})
	a.runMaintenance(folding, g, caughtUp)
	g.Go(func() error {
		select {
		case <-joined:
			return ready()
		case <-failed.Done():
			return nil
		}
	})
	return g.Wait()
}

// Failed returns the names of the projections that have failed.
func (a *Service) Failed() (names []string) {
	for _, projection := range a.Stores {
		if projection.Status().State == store.Failed {
			names = append(names, projection.Name())
		}
	}
	return names
}

// source subscribes a projection to the log, from its cursor.
func (a *Service) subscribe(from events.Cursor) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		from = a.log.Start() // a new store has folded no log yet
	}
	sub, err := a.hub.Subscribe(from)
	if err != nil {
		return nil, err
	}
	return subscription{sub, a.hub, a.diskGuard}, nil
}

// subscription is a subscription that knows the head of the log, and pauses while the disk has no room.
type subscription struct {
	*eventlog.Subscription
	hub  *eventlog.Hub
	disk *diskGuard // nil means that the caller checks the disk itself
}

// Unguarded returns a subscription that does not watch the disk, for a process without a service.
func NewSubscription(sub *eventlog.Subscription, hub *eventlog.Hub) store.Subscription {
	return subscription{sub, hub, nil}
}

// Next returns the next envelopes, at most about maxBytes. It waits for them, and for room on the disk.
func (s subscription) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	if s.disk != nil {
		if err := s.disk.awaitResume(ctx); err != nil {
			return nil, err
		}
	}
	return s.Subscription.Next(ctx, maxBytes)
}

// Head returns the last sequence that the log is known to have.
func (s subscription) Head() uint64 { return s.hub.Head() }

// Close closes the parts of the service, in the reverse order of their opening. It joins their errors.
func (a *Service) Close(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, CloseTimeout)
	defer cancel()
	var errs []error
	if a.lock != nil {
		// Everything that is closed below may write before it ends.
		defer func() { err = errors.Join(err, a.lock.release()) }()
	}
	if a.publisher != nil {
		errs = append(errs, a.publisher.Close(ctx))
	}
	if a.hub != nil {
		a.hub.Close()
	}
	for _, store := range slices.Backward(a.Stores) {
		if err := store.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the store of %s: %w", store.Name(), err))
		}
	}
	if a.blockCache != nil {
		a.blockCache.Unref()
	}
	if a.log != nil {
		errs = append(errs, a.log.Close(ctx))
	}
	return errors.Join(errs...)
}
