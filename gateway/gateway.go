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
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/live"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Errors of a server, for the process that gives it its parts.
var (
	// ErrNoRoom means that the disk has no room for more facts ([Options.Room]). It arrives wrapped, with figures.
	ErrNoRoom = apierror.ErrNoRoom
	// ErrStopping means that the process stops: an operator starts no more operations.
	ErrStopping = apierror.ErrStopping
)

// Options are what a server is made of. The server closes none of them: the caller closes log, publisher and stores after [Server.Run].
type Options struct {
	// Log is the log that the stores fold. Required.
	Log *eventlog.Log
	// Publisher appends to the log. It should fail when it is full (events.PublisherOptions.FailWhenFull), so that
	// clients hear of overload instead of waiting. Required.
	Publisher *eventlog.Publisher
	// Hub reads the log for the stores, and knows how long it is. Required.
	Hub *eventlog.Hub
	// Graph is the graph projection. Required.
	Graph *live.Live
	// Inbox is the inbox projection. Without it FeedService answers "unimplemented".
	Inbox *live.Live
	// Seen is the seen projection. Without it SeenService answers "unimplemented", and feeds hide nothing
	// that was seen.
	Seen *live.Live
	// Counters is the counters projection. Without it CounterService answers "unimplemented".
	Counters *live.Live
	// Stores are all projections of the process, those above among them: readiness, status, metrics and Publish with VISIBLE
	// are about all of them. Default: those above.
	Stores []*live.Live
	// Operator does operations. Without it AdminService answers "unimplemented" but for GetStatus.
	Operator operator.Operator
	// Nodes returns the other nodes of a cluster that are alive. Without it the stores hold all partitions. It is called for each call that
	// needs another node.
	Nodes func() []Node
	// NodeName and NodeAddr are the name and the address by which the other nodes call this one. A router has none.
	NodeName, NodeAddr string
	// Joined reports whether the other nodes can know what this one serves; until then it is not ready. Nil means always.
	Joined func() bool
	// NodeCertificates are what nodes show each other. Without them calls between nodes are not encrypted.
	NodeCertificates *access.Certificates
	// Keeper keeps the stores of a node. It is nil outside of a cluster.
	Keeper Keeper
	// Report adds to the answers of GetStatus what others do beside the server: archive, audit, snapshots. It may be nil.
	Report func(context.Context, *skeinv1.GetStatusResponse)
	// Problems returns what an operator must repair, in a few words each, such as "the log cannot be archived". Calls are answered all the
	// same: /healthz names the problems. It may be nil.
	Problems func() []string
	// Drain takes the partitions away from a node of the cluster, or (not on) gives it partitions again. Of a node that there is not it
	// answers with [operator.ErrUnknownNode]. It is nil outside of a cluster.
	Drain func(ctx context.Context, name string, on bool) error
	// Room says why nothing may be published at the moment, with [ErrNoRoom], or is nil. Default: there is always room.
	Room func() error
	// Gate identifies callers. Without it every caller that reaches the port may do everything.
	Gate *access.Gate
	// Certificates are those of the server. Without them [Server.Run] speaks no TLS.
	Certificates *access.Certificates
	// Origins are those whose pages may call from a browser: SCHEME://HOST:PORT, or "*" for all. Default: none.
	Origins []string
	// Console serves the console at /console/. Without a Gate its page may call, as one of Origins may.
	Console bool
	// AllowedHosts are names by which a server without a Gate may be called, beside those that mean loopback; "*": any.
	AllowedHosts []string
	// Keys sign page tokens. Default: [DefaultKeyRing] of the log.
	Keys pagetoken.KeyRing
	// Limits bound what calls may take.
	Limits Limits
	// Logger gets what a person must see; default: nothing.
	Logger *slog.Logger
	// Registry takes the metrics, and /metrics shows all that is in it. Default: a new one.
	Registry *prometheus.Registry
	// Tracer follows some calls. Without it none is.
	Tracer trace.Tracer
	// Version of the program, for people and metrics.
	Version string
}

// Server answers the API of skein. Its methods are safe for concurrent use.
type Server struct {
	views    *views.Views
	cluster  *clusterServer // nil outside of a cluster
	events   *eventservice.Service
	admin    *adminservice.Service
	feed     *feedservice.Service // may be nil
	operator operator.Operator    // may be nil
	gate     *access.Gate         // may be nil
	tls      *access.Certificates // may be nil
	cors     *cors.Cors           // may be nil
	hosts    access.Hosts
	console  http.Handler // may be nil
	limits   Limits
	logger   *slog.Logger
	tracer   trace.Tracer // may be nil
	version  string
	// problems may be nil.
	listProblems func() []string

	metrics     *metrics.Metrics
	budgets     admission.Budgets
	callerRates *admission.CallerRates // nil: callers may make any number of calls a second
	rules       request.Rules
	errorWriter *connect.ErrorWriter
	// rights are those of every method, by path.
	rights map[string]right
	// methods are the RPCs by path, streams which of them answer with a stream, absent those that this version lacks,
	// by name. They do not change after New.
	methods       map[string]http.Handler
	streams       map[string]bool
	unimplemented map[string]bool
	pages         http.Handler

	growth metrics.Growth

	// healthPeriod is how often a watched health is looked at.
	healthPeriod time.Duration
	// admitPeriod is how often the caller of a stream is asked about again.
	reauthPeriod time.Duration
	// conns are those of Run.
	conns admission.Connections
	// caughtUp is set when every projection has once been at the head of the log, and stays.
	caughtUp atomic.Bool
	// wasComplete is set when this node has once known, for every partition, a node that serves it, and stays.
	wasFullyServed atomic.Bool
	// draining is set when the process is about to stop; life ends when it stops.
	draining     atomic.Bool
	serverCtx    context.Context //nolint:containedctx // the life of the server, which no call passes in
	cancelServer context.CancelFunc
}

// New makes a server. It starts nothing: [Server.Run] serves, or any HTTP server by [Server.Handler].
func New(o Options) (*Server, error) {
	if o.Log == nil || o.Publisher == nil || o.Hub == nil || o.Graph == nil {
		return nil, errors.New("gateway: a server needs a log, a publisher, a hub and the graph")
	}
	crossing, err := newCORS(o.Origins)
	if err != nil {
		return nil, err
	}
	callable, err := access.NewHosts(o.AllowedHosts)
	if err != nil {
		return nil, err
	}
	if len(o.Stores) == 0 {
		for _, store := range []*live.Live{o.Graph, o.Inbox, o.Seen, o.Counters} {
			if store != nil {
				o.Stores = append(o.Stores, store)
			}
		}
	}
	if o.Keys.IsZero() {
		o.Keys = pagetoken.DefaultKeyRing(o.Log.ID())
	}
	if o.Room == nil {
		o.Room = func() error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	limits := o.Limits.withDefaults()
	stores, err := views.New(views.Views{
		Log: o.Log, Hub: o.Hub, Graph: views.NewStore(o.Graph), Inbox: views.NewStore(o.Inbox), Seen: views.NewStore(o.Seen),
		Counters: views.NewStore(o.Counters), All: o.Stores, Keys: o.Keys, Wait: limits.AtLeastWait,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{
		views: stores, operator: o.Operator, gate: o.Gate, tls: o.Certificates, cors: crossing, hosts: callable,
		limits: limits, logger: slog.New(callLogHandler{o.Logger.Handler()}), version: o.Version, tracer: o.Tracer,
		listProblems: o.Problems,
		rights:       rights, methods: map[string]http.Handler{}, streams: map[string]bool{}, unimplemented: map[string]bool{},
		healthPeriod: healthPeriod, reauthPeriod: reauthPeriod, errorWriter: connect.NewErrorWriter(),
	}
	s.budgets = admission.NewBudgets(limits.admissionLimits())
	if s.cluster = newClusterServer(&o, s.budgets.Bytes); s.cluster != nil {
		stores.Peers = s.cluster.Peers
	}
	s.callerRates = admission.NewCallerRates(limits.CallerRate, limits.CallerBurst)
	s.serverCtx, s.cancelServer = context.WithCancel(context.Background())
	if s.rules, err = request.NewRules(); err != nil {
		return nil, fmt.Errorf("gateway: the rules of the protos: %w", err)
	}
	if s.metrics, err = metrics.New(o.Registry, metrics.Observed{
		Views: stores, Growth: &s.growth, Budgets: &s.budgets, Connections: &s.conns, Life: s.serverCtx, Version: o.Version,
	}); err != nil {
		return nil, fmt.Errorf("gateway: metrics: %w", err)
	}
	s.events = eventservice.New(stores, eventservice.Options{
		Publisher: o.Publisher, Room: o.Room, Metrics: s.metrics, Tracer: o.Tracer,
		VisibleWait: limits.VisibleWait, Followees: limits.Followees,
	})
	s.admin = adminservice.New(stores, adminservice.Options{
		Operator: o.Operator, Report: o.Report, Drain: o.Drain, Metrics: s.metrics, Growth: &s.growth,
	})
	if err := s.mount(); err != nil {
		return nil, err
	}
	if o.Console {
		if s.console, err = console.New(); err != nil {
			return nil, err
		}
	}
	s.mountPages(o.Registry)
	return s, nil
}

// Handler returns the server as an HTTP handler, for a caller that does not use [Server.Run], and does not need the loop
// for plain calls (package http1). It closes each connection of HTTP/1.0, and each with a chunked request, after the answer: it cannot know
// whether the request had a Content-Length besides.
func (s *Server) Handler() http.Handler { return s }

// Formats returns the versions of what clients keep, by name.
func Formats() map[string]int { return map[string]int{"page token": pagetoken.Version} }
