package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			slog.Error("goroutines left behind", "error", err)
			code = 1
		}
	}
	os.Exit(code)
}

// world is a whole service: an embedded log on disk, the graph, and a server on a port of its own.
type world struct {
	t         testing.TB
	log       *events.Log
	publisher *events.Publisher
	hub       *events.Hub
	store     *projections.Store
	registry  *prometheus.Registry
	server    *Server
	url       string
	http      *http.Client

	events connectv1.EventServiceClient
	graph  connectv1.GraphServiceClient
	admin  connectv1.AdminServiceClient
	health healthv1connect.HealthClient

	// stop stops the server as an operator would, and returns what Run returned.
	stop func() error
	// fold starts folding; start has done so unless the world began asleep.
	fold func()
	// unfold ends folding and waits for it.
	unfold func()
}

// asleep begins without folding: the world calls fold itself.
func asleep(o *worldOptions) { o.asleep = true }

type worldOptions struct {
	Options
	asleep bool
	// source is where the log is; default: embedded, in a directory of the test.
	source events.Config
	// cache of the store in bytes; 0: the default.
	cache int64
}

func newWorld(t testing.TB, options ...func(*worldOptions)) *world {
	t.Helper()
	w := &world{t: t, registry: prometheus.NewPedanticRegistry()}
	ctx, endHub := context.WithCancel(context.Background())
	folding, endFold := context.WithCancel(ctx)
	o := worldOptions{source: events.Config{Dir: t.TempDir(), MaxBytes: 1 << 30}}
	for _, f := range options {
		f(&o)
	}
	var err error
	if w.log, err = events.Open(ctx, o.source); err != nil {
		t.Fatal(err)
	}
	if w.publisher, err = w.log.NewPublisher(events.PublisherOptions{FailWhenFull: true}); err != nil {
		t.Fatal(err)
	}
	w.hub = events.NewHub(w.log, events.HubOptions{})
	stored := projections.Options{Dir: t.TempDir(), Projection: graph.New()}
	if o.cache > 0 {
		stored.Cache = projections.NewCache(o.cache)
		defer stored.Cache.Unref()
	}
	w.store, err = projections.Open(stored)
	if err != nil {
		t.Fatal(err)
	}
	hubEnded, folded := make(chan error, 1), make(chan error, 1)
	go func() { hubEnded <- w.hub.Run(ctx) }()
	w.fold = func() {
		w.fold = func() {}
		go func() {
			folded <- w.store.Run(folding, func(from events.Cursor) (projections.Subscription, error) {
				if from == (events.Cursor{}) {
					from = w.log.Start()
				}
				sub, err := w.hub.Subscribe(from)
				if err != nil {
					return nil, err
				}
				return subscription{sub, w.hub}, nil
			})
		}()
	}
	w.unfold = sync.OnceFunc(func() {
		w.fold() // so that there is something to wait for
		endFold()
		if err := <-folded; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := w.publisher.Close(context.Background()); err != nil {
			t.Error(err)
		}
		w.unfold()
		endHub()
		if err := <-hubEnded; err != nil {
			t.Error(err)
		}
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
		if err := w.log.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	o.Log, o.Publisher, o.Hub, o.Graph, o.Registry = w.log, w.publisher, w.hub, w.store, w.registry
	o.Version = "test"
	if !o.asleep {
		w.fold()
	}
	w.serve(o.Options)
	return w
}

// subscription is the hub's, with the head that it knows.
type subscription struct {
	*events.Subscription
	hub *events.Hub
}

func (s subscription) Head() uint64 { return s.hub.Head() }

// serve starts the server, and stops it at the end of the test if that was not done.
func (w *world) serve(o Options) {
	w.t.Helper()
	var err error
	if w.server, err = New(o); err != nil {
		w.t.Fatal(err)
	}
	w.server.healthPeriod = time.Millisecond
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.url = "http://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Run(ctx, l) }()
	var result error
	stopped := false
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	w.stop = func() error {
		if !stopped {
			stopped = true
			transport.CloseIdleConnections()
			cancel()
			result = <-ended
			transport.CloseIdleConnections()
		}
		return result
	}
	w.t.Cleanup(func() {
		if err := w.stop(); err != nil {
			w.t.Error(err)
		}
	})
	w.http = &http.Client{Transport: transport}
	w.connect()
}

// connect makes the clients, with the options given.
func (w *world) connect(options ...connect.ClientOption) {
	w.events = connectv1.NewEventServiceClient(w.http, w.url, options...)
	w.graph = connectv1.NewGraphServiceClient(w.http, w.url, options...)
	w.admin = connectv1.NewAdminServiceClient(w.http, w.url, options...)
	w.health = healthv1connect.NewHealthClient(w.http, w.url, options...)
}

// publish appends events and returns the position that contains them.
func (w *world) publish(evs ...*skeinv1.Event) string {
	w.t.Helper()
	res, err := w.events.Publish(w.t.Context(), connect.NewRequest(&skeinv1.PublishRequest{Events: evs}))
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Msg.GetPosition()
}

func follow(follower, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{
		UserFollowed: &skeinv1.UserFollowed{FollowerId: follower, UserId: user},
	}}
}

func unfollow(follower, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserUnfollowed{
		UserUnfollowed: &skeinv1.UserUnfollowed{FollowerId: follower, UserId: user},
	}}
}

func board(owner, id string) *skeinv1.Board { return &skeinv1.Board{OwnerId: owner, BoardId: id} }

func followBoard(follower, owner, id string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardFollowed{
		BoardFollowed: &skeinv1.BoardFollowed{FollowerId: follower, Board: board(owner, id)},
	}}
}

func unfollowBoard(follower, owner, id string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardUnfollowed{
		BoardUnfollowed: &skeinv1.BoardUnfollowed{FollowerId: follower, Board: board(owner, id)},
	}}
}

func createBoard(owner, id, title string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardCreated{
		BoardCreated: &skeinv1.BoardCreated{Board: board(owner, id), Title: title},
	}}
}

func block(user, blocked string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{
		UserBlocked: &skeinv1.UserBlocked{UserId: user, BlockedId: blocked},
	}}
}

func mute(user, muted string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserMuted{
		UserMuted: &skeinv1.UserMuted{UserId: user, MutedId: muted},
	}}
}

// ask calls a method and fails the test if it fails.
func ask[Req, Res any](
	w *world, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) *Res {
	w.t.Helper()
	res, err := method(w.t.Context(), connect.NewRequest(req))
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Msg
}
