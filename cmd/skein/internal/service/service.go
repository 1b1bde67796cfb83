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

// Names of directories below the data directory.
const (
	LogDir    = "log"
	StoresDir = "stores"
)

// CloseTimeout is how long closing the log may take. Within this time the log waits for outstanding
// acknowledgements and closes its files.
const CloseTimeout = 30 * time.Second

// Options configure a process of the service.
type Options struct {
	Log eventlog.Config
	// Dir is the data directory.
	Dir string
	// Memory is the memory of each part of the process. The zero value caches little.
	Memory Memory
	// DiskReserve is how many bytes of the disk stay free; 0 means a share of the disk.
	DiskReserve int64
	// Settings are the settings of the folds; the zero value means the defaults.
	Settings all.Settings
	// Without has the names of projections that the service leaves out, as a version does that did
	// not have these projections yet.
	Without []string
	// Keys sign page tokens and the calls between nodes.
	Keys   pagetoken.KeyRing
	Access Access
	// Console makes the service serve the console, its web interface for operators.
	Console bool
	Limits  gateway.Limits
	Logger  *slog.Logger
	// Version is the version of the program.
	Version string
	// Maintenance configures what the process does besides serving calls.
	Maintenance MaintenanceOptions
	// Tracer traces a share of the calls; nil disables tracing.
	Tracer trace.Tracer
	// Pprof is the listener on which profiles are served; nil disables them.
	Pprof net.Listener
	// Node makes the process a node of a cluster; nil means that it holds all partitions.
	Node *node.Config
	// Abandon must end the process at once, without closing anything. The service calls Abandon
	// from one of its goroutines when the process must no longer write to its data directory
	// ([ErrDirReplaced]). That can happen at any time from Open until Close returns. If Abandon is
	// nil, the service does not check for a replaced directory.
	Abandon func(err error)
	// OfferedOperations returns the kinds of operations that callers may start; nil means all that
	// the process can do.
	OfferedOperations func(*Service) OfferedOperations
}

// Access configures authentication and permissions.
type Access struct {
	Gate         *access.Authenticator
	Certificates *access.Certificates
	// NodeCertificates are the certificates that a node of a cluster presents to other nodes.
	NodeCertificates *access.Certificates
	// Origins are the origins of other web sites whose pages may call the API.
	Origins []string
	// Hosts are the host names to which calls may be addressed, besides the names of this machine.
	Hosts []string
}

// Service is one process of the service. The arrows show which part uses which:
//
//	log ← hub ← stores (each a projection)
//	 ↑            ↑
//	publisher ← gateway ← clients
//
// Open opens the log, the stores, the hub, the publisher and the gateway, in this order. The gateway
// stops when Run ends. Close closes the other parts in the reverse order.
type Service struct {
	lock       *dirLock
	log        *eventlog.Log
	blockCache *store.Cache
	hub        *eventlog.Hub
	Stores     []*live.Live
	publisher  *eventlog.Publisher
	// Operations runs the operations on the stores and the log, such as a rebuild.
	Operations *operation.Manager
	server     *gateway.Server
	diskGuard  *diskGuard
	pprof      net.Listener // nil if profiles are not served
	node       *node.Node   // nil outside of a cluster
	erasure    *erase.Part  // what this process does when users are erased
	logger     *slog.Logger

	dir      string
	settings all.Settings
	memory   Memory
	maintenance

	// caughtUp has a count for every projection that has neither reached the head of the log nor
	// failed since the start.
	caughtUp sync.WaitGroup
}

// Open opens a service. Open waits until the log answers, and until there is enough free disk to
// open the stores. The service answers calls once Run is called.
func Open(ctx context.Context, o Options) (_ *Service, err error) {
	s := &Service{
		logger:      o.Logger,
		dir:         o.Dir,
		pprof:       o.Pprof,
		settings:    o.Settings,
		memory:      o.Memory,
		maintenance: maintenance{options: o.Maintenance},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()

	s.lock, err = lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	if o.Abandon != nil {
		// The directory is watched until it is unlocked at the end of Close, because parts that are
		// being closed still write to it.
		s.lock.watch(context.WithoutCancel(ctx), o.Abandon)
	}

	// If there is an archive of the log, a missing stream means that the log was lost. Existing
	// makes the log fail to open in this case, so that it does not begin anew with sequences that
	// the archive already has.
	o.Log.Existing, err = hasArchivedLog(ctx, o.Maintenance.Archive)
	if err != nil {
		return nil, err
	}
	s.log, err = eventlog.Open(ctx, o.Log)
	if err != nil {
		return nil, explainLostLog(err, o.Maintenance.Archive)
	}
	if err = s.openArchive(ctx); err != nil {
		return nil, err
	}
	s.examineLog(ctx)

	s.diskGuard = newDiskGuard(o.Dir, uint64(o.DiskReserve), o.Logger)
	s.diskGuard.recoverLog = s.log.Recover
	if err = s.diskGuard.awaitOpeningSpace(ctx); err != nil {
		return nil, err
	}

	registry := prometheus.NewRegistry()
	if err = s.openStores(&o, registry); err != nil { //nolint:contextcheck // spans of folds outlive the opening
		return nil, err
	}
	s.hub = eventlog.NewHub(s.log, eventlog.HubOptions{RingBytes: int(o.Memory.Ring)})
	if err = s.openPublisher(registry); err != nil { //nolint:contextcheck // the publisher lives until it is closed
		return nil, err
	}

	s.Operations, err = operation.Open(operation.Options{Dir: filepath.Join(o.Dir, operationsDir), Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	if err = s.openMaintenance(o.Node); err != nil {
		return nil, err
	}
	if err = s.openNode(ctx, o.Node, registry); err != nil {
		return nil, err
	}
	err = errors.Join(
		registry.Register(newMaintenanceCollector(s)),
		registry.Register(s.diskGuard),
		registerProcessMetrics(registry, newProcessCollector(s.blockCache, o.Memory.Cache, o.Access)),
	)
	if err != nil {
		return nil, err
	}

	// The gateway comes last: it needs all other parts.
	if err = s.openGateway(&o, registry); err != nil {
		return nil, err
	}
	return s, nil
}

// openStores opens the projections. On a node that missed an erasure, openStores first removes the
// stores, which still have rows of the erased user.
func (s *Service) openStores(o *Options, registry prometheus.Registerer) error {
	if err := s.removeStoresOfMissedErasure(o.Node); err != nil {
		return err
	}
	s.removeLeftovers()

	s.blockCache = store.NewCache(o.Memory.Cache)
	// Only stores that serve need a cache for queries, so the settings of the service, which
	// rebuilds use too, do not have one.
	settings := o.Settings
	settings.Cache = querycache.New(o.Memory.Queries)
	metrics, err := newFoldMetrics(registry)
	if err != nil {
		return err
	}

	for _, newProjection := range all.Constructors(settings) {
		name := newProjection().Name()
		if slices.Contains(o.Without, name) {
			continue
		}

		projection, err := live.Open(live.Options{
			New: newProjection,
			Options: store.Options{
				Dir:         filepath.Join(o.Dir, StoresDir),
				Cache:       s.blockCache,
				Bounds:      o.Memory.storeBounds(),
				Logger:      o.Logger,
				Listener:    metrics.attach(name, o.Tracer, s.caughtUpListener()),
				Partitioned: o.Node != nil,
			},
			Log:   s.log.ID(),
			Epoch: s.log.Epoch(),
		})
		if err != nil {
			return err
		}
		s.Stores = append(s.Stores, projection)
	}
	return nil
}

// openPublisher opens the publisher, which appends the events of clients to the log.
func (s *Service) openPublisher(registry prometheus.Registerer) error {
	metrics, err := newAppendMetrics(registry)
	if err != nil {
		return err
	}
	s.publisher, err = s.log.NewPublisher(eventlog.PublisherOptions{
		FailWhenFull: true, // clients learn of an overload by the error, rather than by waiting
		Listener:     metrics.listener(),
	})
	return err
}

// openGateway opens the server that answers the calls of clients, and of other nodes in a cluster.
func (s *Service) openGateway(o *Options, registry *prometheus.Registry) (err error) {
	if o.OfferedOperations == nil {
		o.OfferedOperations = (*Service).OfferedOperations
	}

	gatewayOptions := gateway.Options{
		Log:              s.log,
		Publisher:        s.publisher,
		Hub:              s.hub,
		Stores:           s.Stores,
		Graph:            s.Store("graph"),
		Inbox:            s.Store("inbox"),
		Seen:             s.Store("seen"),
		Counters:         s.Store("counters"),
		Notifications:    s.Store("notifications"),
		NodeCertificates: o.Access.NodeCertificates,
		Operator:         newOperator(s.Operations, o.OfferedOperations(s)),
		Report:           s.addStatus,
		Problems:         s.problems,
		Registry:         registry,
		CheckDisk:        s.diskGuard.checkPublishAllowed,
		Authenticator:    o.Access.Gate,
		Certificates:     o.Access.Certificates,
		Origins:          o.Access.Origins,
		AllowedHosts:     o.Access.Hosts,
		Console:          o.Console,
		Keys:             o.Keys,
		Limits:           o.Limits,
		Logger:           o.Logger,
		Version:          o.Version,
		Tracer:           o.Tracer,
	}
	s.setNodeOptions(&gatewayOptions)

	s.server, err = gateway.New(gatewayOptions)
	if err != nil {
		return err
	}
	if s.node != nil {
		s.node.Attach(s.server)
	}
	return nil
}

// Store returns the projection with a name, or nil if there is none.
func (s *Service) Store(name string) *live.Live {
	i := slices.IndexFunc(s.Stores, func(projection *live.Live) bool { return projection.Name() == name })
	if i < 0 {
		return nil
	}
	return s.Stores[i]
}

// caughtUpListener returns a listener for one projection. The first time that the projection has
// reached the head of the log, has failed or has stopped, the listener counts it as caught up.
func (s *Service) caughtUpListener() store.Listener {
	s.caughtUp.Add(1)
	var once sync.Once
	return store.Listener{StateChanged: func(state store.State, _ error) {
		if state != store.Starting && state != store.CatchingUp && state != store.Held {
			once.Do(s.caughtUp.Done)
		}
	}}
}

// Run serves calls on the listener until ctx ends. Run calls ready when the projections have caught
// up with the log and, in a cluster, when the other nodes know of this one.
func (s *Service) Run(ctx context.Context, l net.Listener, ready func() error) error {
	// Two contexts give the order of stopping. serveCtx ends with ctx, or when a goroutine fails;
	// then the gateway stops taking calls and finishes those under way, the publisher is closed,
	// and a node leaves its cluster. Only after that does foldCtx end, so no call waits for a
	// projection that has stopped.
	foldCtx, stopFolding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFolding()
	goroutines, serveCtx := errgroup.WithContext(ctx)

	goroutines.Go(func() error {
		if err := s.hub.Run(foldCtx); err != nil {
			// Every projection stops with the same error. The process continues to run, so that
			// its status says what is wrong.
			s.logger.Error("the log can no longer be read", "error", err)
		}
		return nil
	})
	for _, projection := range s.Stores {
		goroutines.Go(func() error {
			// The projection itself logs why it stops. The others continue, so the error must not
			// end serveCtx.
			_ = projection.Run(foldCtx, s.subscribe)
			return nil
		})
	}
	goroutines.Go(func() error { return s.diskGuard.run(foldCtx) })
	goroutines.Go(func() error {
		releaseUnusedMemory(foldCtx)
		return nil
	})
	if s.pprof != nil {
		goroutines.Go(func() error { return servePprof(foldCtx, s.pprof) })
	}

	// This goroutine ends at the latest when the projections stop, because a projection that has
	// stopped counts as caught up.
	caughtUp := make(chan struct{})
	go func() {
		s.caughtUp.Wait()
		close(caughtUp)
	}()

	// In a cluster, the process is ready when the other nodes know what it serves. It leaves the
	// cluster when the gateway stops taking calls, which may have another reason than serveCtx.
	var becameReady <-chan struct{} = caughtUp
	stayCtx, leave := context.WithCancel(serveCtx)
	defer leave()
	if s.node != nil {
		becameReady = s.node.Ready()
		goroutines.Go(func() error { return s.node.Run(foldCtx, stayCtx, caughtUp) })
		if s.node.Listener != nil {
			goroutines.Go(func() error { return s.server.RunPeers(foldCtx, s.node.Listener) })
		}
	}

	// Operations need the projections, so they are interrupted together with them. Some kinds
	// continue in the next process.
	goroutines.Go(func() error { return s.Operations.Run(foldCtx) })
	goroutines.Go(func() error {
		defer stopFolding()
		err := s.server.Run(serveCtx, l)
		leave()
		// An event may still wait for the answer of the log although its client has gone. Closing
		// the publisher waits for the answer.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		err = errors.Join(err, s.publisher.Close(closing))

		// The other nodes must not ask this one when its stores have stopped.
		if s.node != nil {
			s.node.AwaitWithdrawn()
		}
		return err
	})
	s.runMaintenance(foldCtx, goroutines, caughtUp)

	goroutines.Go(func() error {
		select {
		case <-becameReady:
			return ready()
		case <-serveCtx.Done():
			return nil
		}
	})
	return goroutines.Wait()
}

// Failed returns the names of the projections that have failed.
func (s *Service) Failed() (names []string) {
	for _, projection := range s.Stores {
		if projection.Status().State == store.Failed {
			names = append(names, projection.Name())
		}
	}
	return names
}

// subscribe subscribes a projection to the log after a cursor. The subscription pauses while the
// disk is nearly full.
func (s *Service) subscribe(from events.Cursor) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		from = s.log.Start() // a new store, whose cursor names no log yet
	}
	sub, err := s.hub.Subscribe(from)
	if err != nil {
		return nil, err
	}
	return guardedSubscription{NewSubscription(sub, s.hub), s.diskGuard}, nil
}

// subscribeKinds subscribes a fold that reads only events of these kinds. The disk guard does not
// pause the subscription, because the operations that use it check the free disk themselves.
func (s *Service) subscribeKinds(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		from = s.log.Start()
	}
	sub, err := s.hub.SubscribeKinds(from, kinds)
	if err != nil {
		return nil, err
	}
	return NewSubscription(sub, s.hub), nil
}

// NewSubscription returns a subscription to a hub as a store reads it.
func NewSubscription(sub *eventlog.Subscription, hub *eventlog.Hub) store.Subscription {
	return subscription{sub, hub}
}

// subscription adds the head of the log to a subscription.
type subscription struct {
	*eventlog.Subscription

	hub *eventlog.Hub
}

// Head returns the last sequence that the log is known to have.
func (s subscription) Head() uint64 { return s.hub.Head() }

// guardedSubscription is a subscription that pauses while the disk is nearly full.
type guardedSubscription struct {
	store.Subscription

	disk *diskGuard
}

// Next waits until the disk guard lets the projections fold, and then for envelopes. It returns
// about maxBytes of envelopes at most.
func (s guardedSubscription) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	if err := s.disk.awaitResume(ctx); err != nil {
		return nil, err
	}
	return s.Subscription.Next(ctx, maxBytes)
}

// Close closes the parts of the service that were opened, in the reverse order of their opening,
// and joins their errors. Open calls it, too, if a later part cannot be opened.
func (s *Service) Close(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, CloseTimeout)
	defer cancel()
	if s.lock != nil {
		// The directory is unlocked last, because the parts below may write to it until they are
		// closed.
		defer func() { err = errors.Join(err, s.lock.release()) }()
	}

	var errs []error
	if s.publisher != nil {
		errs = append(errs, s.publisher.Close(ctx))
	}
	if s.hub != nil {
		s.hub.Close()
	}
	for _, projection := range slices.Backward(s.Stores) {
		if err := projection.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the store of %s: %w", projection.Name(), err))
		}
	}
	if s.blockCache != nil {
		s.blockCache.Unref()
	}
	if s.log != nil {
		errs = append(errs, s.log.Close(ctx))
	}
	return errors.Join(errs...)
}
