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
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/seen"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// Options are what a server is made of. Who opened log, publisher and stores closes them, after [Server.Run].
type Options struct {
	// Log is the log that the stores fold. Required.
	Log *eventlog.Log
	// Publisher appends to the log. It should fail when it is full (events.PublisherOptions.FailWhenFull), so that
	// clients hear of overload instead of waiting. Required.
	Publisher *eventlog.Publisher
	// Hub reads the log for the stores, and knows how long it is. Required.
	Hub *eventlog.Hub
	// Graph is the graph projection. Required.
	Graph *projections.Live
	// Inbox is the inbox projection. Without it FeedService answers "unimplemented".
	Inbox *projections.Live
	// Seen is the seen projection. Without it SeenService answers "unimplemented", and feeds hide nothing
	// that was seen.
	Seen *projections.Live
	// Counters is the counters projection. Without it CounterService answers "unimplemented".
	Counters *projections.Live
	// Stores are all projections of the process, those above among them: readiness, status, metrics and Publish with VISIBLE
	// are about all of them. Default: those above.
	Stores []*projections.Live
	// Operator does long work. Without it AdminService answers "unimplemented" but for GetStatus.
	Operator Operator
	// Report adds to the answers of GetStatus what others do beside the server: archive, audit, snapshots. It may be nil.
	Report func(context.Context, *skeinv1.GetStatusResponse)
	// Room says why nothing may be published at the moment, with [ErrNoRoom], or is nil. Default: there is always room.
	Room func() error
	// Gate tells who calls. Without it whoever reaches the port may do everything.
	Gate *access.Gate
	// Certificates are those of the server. Without them [Server.Run] speaks no TLS.
	Certificates *access.Certificates
	// Origins are those whose pages may call from a browser: SCHEME://HOST:PORT, or "*" for all. Default: none.
	Origins []string
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
	source    *eventlog.Log
	publisher *eventlog.Publisher
	hub       *eventlog.Hub
	graph     *projections.Live
	// inbox, seen and counters may be nil.
	inbox, seen, counters *projections.Live
	// ranked is how many pins of a feed are ranked by heat.
	ranked int
	// seenSettings are those that seen was folded with.
	seenSettings seen.Settings

	stores   []*projections.Live
	operator Operator // may be nil
	report   func(context.Context, *skeinv1.GetStatusResponse)
	room     func() error
	gate     *access.Gate         // may be nil
	tls      *access.Certificates // may be nil
	cors     *cors.Cors           // may be nil
	hosts    hosts
	keys     pagetoken.KeyRing
	limits   Limits
	log      *slog.Logger
	tracer   trace.Tracer // may be nil
	version  string

	metrics     *metrics
	shed        shedder
	budgets     budgets
	quotas      *quotas // nil: no caller is limited
	rules       request.Rules
	errorWriter *connect.ErrorWriter
	// methods are the RPCs by path, streams which of them answer with a stream, absent those that this version lacks,
	// by name. They do not change after New.
	methods map[string]http.Handler
	streams map[string]bool
	absent  map[string]bool
	pages   http.Handler

	names                                positions
	inboxState, seenState, countersState storeState
	marks                                *marker
	growth                               growth

	// healthPeriod is how often a watched health is looked at.
	healthPeriod time.Duration
	// admitPeriod is how often the caller of a stream is asked about again.
	admitPeriod time.Duration
	// watchPeriod is after how long without an event a watch says how far it is.
	watchPeriod time.Duration
	// conns are those of Run.
	conns connections
	// accepted counts the connections that Run took, handedOver those of them that it left to net/http.
	accepted, handedOver atomic.Uint64
	// crowdedOut counts the quiet ones that made room for others, unaccepted those for which there was none.
	crowdedOut, unaccepted atomic.Uint64
	// caughtUp is set when every projection has once been at the head of the log, and stays.
	caughtUp atomic.Bool
	// draining is set when the process is about to stop; life ends when it stops.
	draining atomic.Bool
	life     context.Context //nolint:containedctx // the life of the server, which no call passes in
	endLife  context.CancelFunc
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
	callable, err := newHosts(o.AllowedHosts)
	if err != nil {
		return nil, err
	}
	if len(o.Stores) == 0 {
		for _, store := range []*projections.Live{o.Graph, o.Inbox, o.Seen, o.Counters} {
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
	s := &Server{
		source: o.Log, publisher: o.Publisher, hub: o.Hub, graph: o.Graph, inbox: o.Inbox,
		seen: o.Seen, counters: o.Counters, stores: o.Stores, operator: o.Operator, report: o.Report,
		room: o.Room, gate: o.Gate, tls: o.Certificates, cors: crossing, hosts: callable, keys: o.Keys,
		limits: o.Limits.withDefaults(), log: slog.New(namingHandler{o.Logger.Handler()}), version: o.Version, tracer: o.Tracer,
		methods: map[string]http.Handler{}, streams: map[string]bool{}, absent: map[string]bool{},
		healthPeriod: healthPeriod, watchPeriod: watchPeriod, admitPeriod: admitPeriod, errorWriter: connect.NewErrorWriter(),
	}
	s.shed.limit = s.limits.ShedAfter
	s.budgets = newBudgets(s.limits)
	s.quotas = newQuotas(s.limits)
	s.life, s.endLife = context.WithCancel(context.Background())
	s.marks = newMarker(s.life, o.Publisher)
	if s.inbox != nil {
		if s.ranked, err = ranked(s.inbox); err != nil {
			return nil, err
		}
	}
	if s.seen != nil {
		if s.seenSettings, err = settingsOfSeen(s.seen); err != nil {
			return nil, err
		}
	}
	if s.rules, err = request.NewRules(); err != nil {
		return nil, fmt.Errorf("gateway: the rules of the protos: %w", err)
	}
	if s.metrics, err = newMetrics(o.Registry, s); err != nil {
		return nil, fmt.Errorf("gateway: metrics: %w", err)
	}
	s.mountEvents()
	s.mountGraph()
	s.mountFeed()
	s.mountSeen()
	s.mountCounters()
	s.mountOperations()
	s.mountHealth()
	s.mountMissing()
	s.mountPages(o.Registry)
	return s, nil
}

// Handler returns the server as an HTTP handler, for who serves it otherwise than by [Server.Run], and does without the loop
// for plain calls (front.go). It closes each connection of HTTP/1.0, and each with a chunked request, after the answer: it cannot know
// whether the request had a Content-Length besides.
func (s *Server) Handler() http.Handler { return s }

func (s *Server) mountEvents() {
	unaryByHand(s, connectv1.EventServicePublishProcedure, checkPublish, s.publish)
	stream(s, connectv1.EventServiceWatchProcedure, checkWatch, s.watch)
	unary(s, connectv1.AdminServiceGetStatusProcedure, nil, s.getStatus)
	unary(s, connectv1.AdminServiceAcceptLogHoleProcedure, checkAcceptLogHole, s.acceptLogHole)
}

func (s *Server) mountGraph() {
	unaryByHand(s, connectv1.GraphServiceCheckFollowsProcedure, checkCheckFollows, s.checkFollows)
	unaryByHand(s, connectv1.GraphServiceFilterFollowedProcedure, checkFilterFollowed, s.filterFollowed)
	unary(s, connectv1.GraphServiceBatchGetRelationshipsProcedure, checkRelationships, s.batchGetRelationships)
	unary(s, connectv1.GraphServiceBatchGetFollowCountsProcedure, checkFollowCounts, s.batchGetFollowCounts)
	unary(s, connectv1.GraphServiceListFollowingProcedure, checkUser, s.listFollowing)
	unary(s, connectv1.GraphServiceListFollowersProcedure, checkUser, s.listFollowers)
	unary(s, connectv1.GraphServiceListBoardFollowersProcedure, checkBoard, s.listBoardFollowers)
	unary(s, connectv1.GraphServiceListFollowedBoardsProcedure, checkUser, s.listFollowedBoards)
	unary(s, connectv1.GraphServiceListExcludedBoardsProcedure, checkUser, s.listExcludedBoards)
	unary(s, connectv1.GraphServiceListBoardsProcedure, checkUser, s.listBoards)
	unary(s, connectv1.GraphServiceListBlockedProcedure, checkUser, s.listBlocked)
	unary(s, connectv1.GraphServiceListMutedProcedure, checkUser, s.listMuted)
	unary(s, connectv1.GraphServiceListMutualsProcedure, checkMutuals, s.listMutuals)
	stream(s, connectv1.GraphServiceScanFollowersProcedure, checkScan, s.scanFollowers)
}

func (s *Server) mountFeed() {
	if s.inbox == nil {
		return
	}
	unary(s, connectv1.FeedServiceReadFeedProcedure, checkReadFeed, s.readFeed)
	unary(s, connectv1.FeedServiceListPinsProcedure, checkListPins, s.listPins)
}

func (s *Server) mountSeen() {
	if s.seen == nil {
		return
	}
	unaryByHand(s, connectv1.SeenServiceFilterSeenProcedure, checkFilterSeen, s.filterSeen)
	unary(s, connectv1.SeenServiceListServedProcedure, checkUser, s.listServed)
}

func (s *Server) mountCounters() {
	if s.counters == nil {
		return
	}
	unaryByHand(s, connectv1.CounterServiceBatchGetCountersProcedure, checkBatchGetCounters, s.batchGetCounters)
	unary(s, connectv1.CounterServiceListTrendingProcedure, checkListTrending, s.listTrending)
}
