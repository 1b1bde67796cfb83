package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/cors"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/console"
	"github.com/skein-feed/skein/gateway/internal/adminservice"
	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/eventservice"
	"github.com/skein-feed/skein/gateway/internal/feedservice"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/notificationservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/live"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Errors that the process that runs the server returns from the functions in [Options].
var (
	// ErrDiskFull means that the disk is too full for more events. [Options.CheckDisk] returns it
	// wrapped in an error with figures.
	ErrDiskFull = apierror.ErrDiskFull
	// ErrStopping means that the process is stopping. An operator that returns it starts no more
	// operations.
	ErrStopping = apierror.ErrStopping
)

// Options are the parts and settings of a server. The server closes none of the parts: the caller
// closes the log, the publisher and the stores after [Server.Run].
type Options struct {
	// Log is the log that the stores fold. Required.
	Log *eventlog.Log
	// Publisher appends to the log. It should fail when its queue is full
	// (events.PublisherOptions.FailWhenFull), so that clients learn of an overload instead of
	// waiting. Required.
	Publisher *eventlog.Publisher
	// Hub reads the log for the stores, and knows the end of the log. Required.
	Hub *eventlog.Hub
	// Graph is the graph projection. Required.
	Graph *live.Live
	// Inbox is the inbox projection. If it is nil, FeedService answers "unimplemented".
	Inbox *live.Live
	// Seen is the seen projection. If it is nil, SeenService answers "unimplemented", and feeds do
	// not hide seen items.
	Seen *live.Live
	// Counters is the counters projection. If it is nil, CounterService answers "unimplemented".
	Counters *live.Live
	// Notifications is the notifications projection. If it is nil, or Inbox is, NotificationService
	// answers "unimplemented".
	Notifications *live.Live
	// Stores are all projections of the process, including the five above. Readiness, status,
	// metrics and Publish with VISIBLE cover all of them. Default: the five above, as far as they
	// are set.
	Stores []*live.Live
	// Operator runs operations. If it is nil, all methods of AdminService except GetStatus answer
	// "unimplemented".
	Operator operator.Operator
	// Nodes returns the other nodes of the cluster that are alive. The server calls it for each
	// call that needs another node. If Nodes is nil, the server is not in a cluster, and its stores
	// hold all partitions.
	Nodes func() []Node
	// NodeName and NodeAddr are the name and the host:port by which other nodes call this one. Both
	// are empty for a router.
	NodeName, NodeAddr string
	// IsJoined reports whether the other nodes can know which partitions this node serves. The node
	// is not ready before. Nil means always.
	IsJoined func() bool
	// NodeCertificates are the TLS certificates that nodes present to each other. If nil, calls
	// between nodes are not encrypted.
	NodeCertificates *access.Certificates
	// StoreAccess gives other nodes access to the stores of this node. It is nil outside of a
	// cluster.
	StoreAccess StoreAccess
	// Report adds to an answer of GetStatus what other parts of the process do: archive, audit,
	// snapshots. It may be nil.
	Report func(context.Context, *skeinv1.GetStatusResponse)
	// Problems returns what an operator must repair, each in a few words, such as "the log cannot
	// be archived". /healthz lists the problems; the server still answers calls. It may be nil.
	Problems func() []string
	// Drain stops assigning partitions to the named node of the cluster, or, if on is false,
	// resumes it. For an unknown node it returns [operator.ErrUnknownNode]. It is nil outside of a
	// cluster.
	Drain func(ctx context.Context, name string, on bool) error
	// CheckDisk returns an error that wraps [ErrDiskFull] while no more events may be published,
	// and nil otherwise. Default: always nil.
	CheckDisk func() error
	// Authenticator authenticates callers. If it is nil, every caller that reaches the port has all
	// rights.
	Authenticator *access.Authenticator
	// Certificates are the TLS certificates of the server. If nil, [Server.Run] serves without TLS.
	Certificates *access.Certificates
	// Origins are the web origins whose pages may call from a browser, each as SCHEME://HOST:PORT,
	// or "*" for all. Default: none.
	Origins []string
	// Console serves the console at /console/. If Authenticator is nil, the page of the console may
	// call the server as if its origin were one of Origins.
	Console bool
	// AllowedHosts are host names by which a server without an Authenticator may be called, in
	// addition to those that mean loopback. "*" allows all.
	AllowedHosts []string
	// Keys sign page tokens. Default: [pagetoken.DefaultKeyRing] of the log.
	Keys pagetoken.KeyRing
	// Limits bound what calls may use.
	Limits Limits
	// Logger receives what a person must see. Default: nothing is logged.
	Logger *slog.Logger
	// Registry receives the metrics, and /metrics exposes all metrics in it. Default: a new
	// registry.
	Registry *prometheus.Registry
	// Tracer records spans of sampled calls. If it is nil, no call is traced.
	Tracer trace.Tracer
	// Version is the version of the program, for people and metrics.
	Version string
}

// setDefaults sets the defaults that need nothing else of the server.
func (o *Options) setDefaults() {
	if len(o.Stores) == 0 {
		for _, store := range []*live.Live{o.Graph, o.Inbox, o.Seen, o.Counters, o.Notifications} {
			if store != nil {
				o.Stores = append(o.Stores, store)
			}
		}
	}
	if o.Keys.IsZero() {
		o.Keys = pagetoken.DefaultKeyRing(o.Log.ID())
	}
	if o.CheckDisk == nil {
		o.CheckDisk = func() error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
}

// Server serves the API of skein. Its methods may be called concurrently.
type Server struct {
	views         *views.Views
	cluster       *clusterServer // nil outside of a cluster
	events        *eventservice.Service
	admin         *adminservice.Service
	feed          *feedservice.Service         // may be nil
	notifications *notificationservice.Service // may be nil
	operator      operator.Operator            // may be nil
	authenticator *access.Authenticator        // may be nil
	tls           *access.Certificates         // may be nil
	cors          *cors.Cors                   // may be nil
	// hosts are the Host headers that a server without an authenticator accepts.
	hosts   access.Hosts
	console http.Handler // may be nil
	limits  Limits
	logger  *slog.Logger
	tracer  trace.Tracer // may be nil
	version string
	// listProblems is [Options.Problems]. It may be nil.
	listProblems func() []string

	metrics     *metrics.Metrics
	budgets     admission.Budgets
	callerRates *admission.CallerRates // nil if the rate of calls is not limited
	rules       request.Rules
	errorWriter *connect.ErrorWriter

	// The next four maps do not change after New. The keys of the first three are paths, such as
	// "/skein.v1.GraphService/CheckFollows".

	// rights has the right of every method.
	rights map[string]right
	// methods has the handler of every method, and streams the methods that answer with a stream.
	methods map[string]http.Handler
	streams map[string]bool
	// unimplemented has the methods whose projection or operator this process lacks, by path
	// without the leading slash.
	unimplemented map[string]bool

	// pages serves everything that is not a method of the API.
	pages http.Handler

	// growth forecasts when the log will be full.
	growth metrics.Growth

	// healthPeriod is the interval at which a health stream reads the health. Tests shorten it.
	healthPeriod time.Duration
	// reauthPeriod is the interval at which the caller of a stream is authenticated again. Tests
	// shorten it.
	reauthPeriod time.Duration
	// conns are the connections of [Server.Run].
	conns admission.Connections

	// caughtUp is set once every projection has reached the head of the log. It is never unset.
	caughtUp atomic.Bool
	// wasFullyServed is set once this node has known a node for every partition. It is never unset.
	wasFullyServed atomic.Bool
	// draining is set when the process begins to stop.
	draining atomic.Bool
	// serverCtx ends when the server stops, and with it all streams.
	serverCtx    context.Context //nolint:containedctx // it belongs to the server, and no call passes it in
	cancelServer context.CancelFunc
}

// New returns a server that does not serve yet. Call [Server.Run], or pass [Server.Handler] to an
// HTTP server.
func New(o Options) (*Server, error) {
	if o.Log == nil || o.Publisher == nil || o.Hub == nil || o.Graph == nil {
		return nil, errors.New("gateway: a server needs a log, a publisher, a hub and the graph")
	}
	corsHandler, err := newCORS(o.Origins)
	if err != nil {
		return nil, err
	}
	hosts, err := access.NewHosts(o.AllowedHosts)
	if err != nil {
		return nil, err
	}
	o.setDefaults()
	limits := o.Limits.withDefaults()

	storeViews, err := views.New(views.Views{
		Log: o.Log, Hub: o.Hub,
		Graph: views.NewStore(o.Graph), Inbox: views.NewStore(o.Inbox),
		Seen: views.NewStore(o.Seen), Counters: views.NewStore(o.Counters),
		Notifications: views.NewStore(o.Notifications),
		All:           o.Stores, Keys: o.Keys, Wait: limits.AtLeastWait,
	})
	if err != nil {
		return nil, err
	}

	s := &Server{
		views:         storeViews,
		operator:      o.Operator,
		authenticator: o.Authenticator,
		tls:           o.Certificates,
		cors:          corsHandler,
		hosts:         hosts,
		limits:        limits,
		logger:        slog.New(callLogHandler{o.Logger.Handler()}),
		tracer:        o.Tracer,
		version:       o.Version,
		listProblems:  o.Problems,
		rights:        rights,
		methods:       map[string]http.Handler{},
		streams:       map[string]bool{},
		unimplemented: map[string]bool{},
		healthPeriod:  healthPeriod,
		reauthPeriod:  reauthPeriod,
		errorWriter:   connect.NewErrorWriter(),
		budgets:       admission.NewBudgets(limits.admissionLimits()),
		callerRates:   admission.NewCallerRates(limits.CallerRate, limits.CallerBurst),
	}
	s.serverCtx, s.cancelServer = context.WithCancel(context.Background())

	s.cluster = newClusterServer(&o, s.budgets.Bytes)
	if s.cluster != nil {
		storeViews.Peers = s.cluster.Peers
	}

	s.rules, err = request.NewRules()
	if err != nil {
		return nil, fmt.Errorf("gateway: the rules of the protos: %w", err)
	}
	// metrics.New reads storeViews.Peers, so it comes after newClusterServer.
	s.metrics, err = metrics.New(o.Registry, metrics.Observed{
		Views: storeViews, Growth: &s.growth, Budgets: &s.budgets, Connections: &s.conns,
		Life: s.serverCtx, Version: o.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("gateway: metrics: %w", err)
	}

	// Mounting a method needs the metrics, the rules and the budgets.
	s.events = eventservice.New(storeViews, eventservice.Options{
		Publisher: o.Publisher, CheckDisk: o.CheckDisk, Metrics: s.metrics, Tracer: o.Tracer,
		VisibleWait: limits.VisibleWait, MaxFollowees: limits.Followees,
	})
	s.admin = adminservice.New(storeViews, adminservice.Options{
		Operator: o.Operator, Report: o.Report, Drain: o.Drain, Metrics: s.metrics, Growth: &s.growth,
	})
	if err := s.mount(); err != nil {
		return nil, err
	}

	// mountPages mounts the console, so it comes last.
	if o.Console {
		s.console, err = console.New()
		if err != nil {
			return nil, err
		}
	}
	s.mountPages(o.Registry)
	return s, nil
}

// Handler returns the server as an HTTP handler, for a caller that does not use [Server.Run] and
// does not need the loop for plain calls (package http1). The handler closes each HTTP/1.0
// connection, and each connection with a chunked request, after the answer, because it cannot know
// whether the request also had a Content-Length.
func (s *Server) Handler() http.Handler { return s }

// Formats returns the versions of the formats that clients store, by name.
func Formats() map[string]int { return map[string]int{"page token": pagetoken.Version} }
