package gateway

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	debug.SetGCPercent(400)            // otherwise a third of the time is garbage collection
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
	log       *eventlog.Log
	publisher *eventlog.Publisher
	hub       *eventlog.Hub
	store     *live.Live
	// inbox is nil in a world without feeds, seen and counters in one without those. The channels
	// close when the store has caught up with the log.
	inbox, seen, counters, notifications                     *live.Live
	inboxReady, seenReady, countersReady, notificationsReady <-chan struct{}
	registry                                                 *prometheus.Registry
	server                                                   *Server
	url                                                      string
	http                                                     *http.Client
	// clientTLS is that of http; nil means it is not needed.
	clientTLS *tls.Config

	events        connectv1.EventServiceClient
	graph         connectv1.GraphServiceClient
	feed          connectv1.FeedServiceClient
	seenClient    connectv1.SeenServiceClient
	counterClient connectv1.CounterServiceClient
	notifyClient  connectv1.NotificationServiceClient
	admin         connectv1.AdminServiceClient
	health        healthv1connect.HealthClient

	// stop stops the server as an operator would, and returns what Run returned.
	stop func() error
	// closeListener closes the server's listener, which ends Run with an error.
	closeListener func()
	// fold starts folding; start has done so unless the world began asleep.
	fold func()
	// unfold ends folding and waits for it.
	unfold func()
}

// asleep begins without folding: the world calls fold itself.
func asleep(o *worldOptions) { o.asleep = true }

// withFeeds gives the world an inbox.
func withFeeds(o *worldOptions) {
	settings := inbox.DefaultSettings()
	o.inbox = &settings
	withCounters(o) // feeds by heat ask them
}

// withSeen gives the world a seen store.
func withSeen(o *worldOptions) {
	settings := seen.DefaultSettings()
	o.seen = &settings
}

// withCounters gives the world counters.
func withCounters(o *worldOptions) {
	settings := counters.DefaultSettings()
	o.counters = &settings
}

// withNotifications gives the world notifications, and an inbox.
func withNotifications(o *worldOptions) {
	withFeeds(o)
	settings := notifications.DefaultSettings()
	o.notifications = &settings
}

// noCache is a size of [worldOptions.cache].
const noCache = -1

type worldOptions struct {
	Options
	asleep bool
	// logConfig is where the log is; default: embedded, in a directory of the test.
	logConfig eventlog.Config
	// past is the archived part of the log; nil means none.
	past events.Archive
	// inbox, seen, counters and notifications are the settings of the stores; nil means there is
	// none.
	inbox    *inbox.Settings
	seen     *seen.Settings
	counters *counters.Settings

	notifications *notifications.Settings
	// watchPeriod is that of the server; 0 means the default.
	watchPeriod time.Duration
	// fs is the file system under the stores; nil means the disk.
	fs store.FS
	// cache of the store in bytes; 0 means the default, noCache that every block is read from the
	// file system.
	cache int64
	// clientTLS is that of clients; nil means none is needed.
	clientTLS *tls.Config
	// partitions are those that the stores hold; nil means all.
	partitions *events.Partitions
}

func newWorld(t testing.TB, options ...func(*worldOptions)) *world {
	t.Helper()
	w := &world{t: t}
	ctx, endHub := context.WithCancel(context.Background())
	o := worldOptions{logConfig: eventlog.Config{Dir: t.TempDir(), MaxBytes: 1 << 30}}
	o.Limits.ShedAfter = -1 // tests run on machines that are busy with other tests
	for _, f := range options {
		f(&o)
	}
	var err error
	if w.log, err = eventlog.Open(ctx, o.logConfig); err != nil {
		t.Fatal(err)
	}
	if o.past != nil {
		w.log.SetArchive(o.past)
	}
	if w.publisher, err = w.log.NewPublisher(eventlog.PublisherOptions{FailWhenFull: true}); err != nil {
		t.Fatal(err)
	}
	w.hub = eventlog.NewHub(w.log, eventlog.HubOptions{})
	hubEnded := make(chan error, 1)
	go func() { hubEnded <- w.hub.Run(ctx) }()
	t.Cleanup(func() {
		if err := w.publisher.Close(context.Background()); err != nil {
			t.Error(err)
		}
		endHub()
		if err := <-hubEnded; err != nil {
			t.Error(err)
		}
		if err := w.log.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	w.begin(o)
	return w
}

// replica is another process over the same log, with stores of its own.
func (w *world) replica(options ...func(*worldOptions)) *world {
	w.t.Helper()
	var o worldOptions
	for _, f := range options {
		f(&o)
	}
	other := &world{t: w.t, log: w.log, publisher: w.publisher, hub: w.hub}
	other.begin(o)
	return other
}

// begin opens the stores and starts the server.
func (w *world) begin(o worldOptions) {
	w.t.Helper()
	w.registry = prometheus.NewPedanticRegistry()
	w.openStores(&o)
	o.Log, o.Publisher, o.Hub, o.Registry = w.log, w.publisher, w.hub, w.registry
	o.Graph, o.Inbox, o.Seen, o.Counters, o.Notifications = w.store, w.inbox, w.seen, w.counters, w.notifications
	o.Version = "test"
	// A test that waits for a state waits for as long as the machine needs.
	setDefault(&o.Limits.AtLeastWait, patienceOfTests)
	setDefault(&o.Limits.VisibleWait, patienceOfTests)
	setDefault(&o.Limits.CallTimeout, patienceOfTests)
	if !o.asleep {
		w.fold()
	}
	w.clientTLS = o.clientTLS
	w.serve(o.Options, o.watchPeriod)
	for _, ready := range []<-chan struct{}{w.inboxReady, w.seenReady, w.countersReady, w.notificationsReady} {
		if !o.asleep && ready != nil {
			<-ready
		}
	}
}

// openStores opens the stores, and closes them at the end of the test.
func (w *world) openStores(o *worldOptions) {
	w.t.Helper()
	var stores []*live.Live
	open := func(p func() projections.Projection, changed func(store.State, error)) *live.Live {
		stored := live.Options{New: p, Options: store.Options{
			FS: o.fs, Dir: w.t.TempDir(), Listener: store.Listener{StateChanged: changed}, Partitioned: o.partitions != nil,
		}}
		if o.partitions != nil {
			first, err := store.Open(store.Options{Dir: stored.Dir, Projection: p(), Partitions: o.partitions})
			if err == nil {
				err = first.Close()
			}
			if err != nil {
				w.t.Fatal(err)
			}
		}
		if o.cache != 0 {
			stored.Cache = store.NewCache(max(o.cache, 0))
			defer stored.Cache.Unref()
		}
		store, err := live.Open(stored)
		if err != nil {
			w.t.Fatal(err)
		}
		stores = append(stores, store)
		return store
	}
	watched := func(p func() projections.Projection) (*live.Live, <-chan struct{}) {
		ready := make(chan struct{})
		once := sync.OnceFunc(func() { close(ready) })
		return open(p, func(st store.State, _ error) {
			if st >= store.Ready {
				once()
			}
		}), ready
	}
	cache := querycache.New(1 << 20)
	w.store = open(func() projections.Projection { return graph.NewWith(cache) }, nil)
	if o.inbox != nil {
		w.inbox, w.inboxReady = watched(func() projections.Projection { return inbox.NewWith(*o.inbox, cache) })
	}
	if o.seen != nil {
		w.seen, w.seenReady = watched(func() projections.Projection { return seen.New(*o.seen) })
	}
	if o.counters != nil {
		w.counters, w.countersReady = watched(func() projections.Projection { return counters.New(*o.counters) })
	}
	if settings := o.notifications; settings != nil {
		w.notifications, w.notificationsReady = watched(func() projections.Projection { return notifications.New(*settings) })
	}
	folding, endFold := context.WithCancel(context.Background())
	folded := make(chan error, len(stores))
	w.fold = func() {
		w.fold = func() {}
		for _, store := range stores {
			go func() { folded <- store.Run(folding, w.subscribe) }()
		}
	}
	w.unfold = sync.OnceFunc(func() {
		w.fold() // so that there is something to wait for
		endFold()
		for range stores {
			if err := <-folded; err != nil {
				w.t.Error(err)
			}
		}
	})
	w.t.Cleanup(func() {
		w.unfold()
		for _, store := range stores {
			if err := store.Close(); err != nil {
				w.t.Error(err)
			}
		}
	})
}

// subscribe reads the log for a store.
func (w *world) subscribe(from events.Cursor) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		from = w.log.Start()
	}
	sub, err := w.hub.Subscribe(from)
	if err != nil {
		return nil, err
	}
	return subscription{sub, w.hub}, nil
}

// subscription is the hub's, with the head that it knows.
type subscription struct {
	*eventlog.Subscription
	hub *eventlog.Hub
}

func (s subscription) Head() uint64 { return s.hub.Head() }

// quicken lets streams count and read the log after a millisecond, and send again after resendAfter
// if it is not 0.
func quicken(watchers *feedwatch.Watchers, resendAfter time.Duration) {
	watchers.CountInterval, watchers.Pause = time.Millisecond, time.Millisecond
	if resendAfter > 0 {
		watchers.ResendAfter = resendAfter
	}
}

// serve starts the server, and stops it at the end of the test if that was not done.
func (w *world) serve(o Options, watchPeriod time.Duration) {
	w.t.Helper()
	var err error
	if w.server, err = New(o); err != nil {
		w.t.Fatal(err)
	}
	w.server.healthPeriod = time.Millisecond
	if watchPeriod > 0 {
		w.server.events.CheckpointInterval = watchPeriod
	}
	if feed := w.server.feed; feed != nil {
		quicken(feed.Watchers, watchPeriod)
	}
	if notifications := w.server.notifications; notifications != nil {
		quicken(notifications.Watchers, watchPeriod)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.closeListener = func() { l.Close() }
	w.url = "http://" + l.Addr().String()
	if o.Certificates != nil {
		w.url = "https://" + l.Addr().String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Run(ctx, l) }()
	var result error
	stopped := false
	transport := &http.Transport{MaxIdleConnsPerHost: 100, TLSClientConfig: w.clientTLS, ForceAttemptHTTP2: true}
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
	w.feed = connectv1.NewFeedServiceClient(w.http, w.url, options...)
	w.seenClient = connectv1.NewSeenServiceClient(w.http, w.url, options...)
	w.counterClient = connectv1.NewCounterServiceClient(w.http, w.url, options...)
	w.notifyClient = connectv1.NewNotificationServiceClient(w.http, w.url, options...)
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
		UserFollowed: &skeinv1.UserFollowed{UserId: follower, TargetUserId: user},
	}}
}

func unfollow(follower, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserUnfollowed{
		UserUnfollowed: &skeinv1.UserUnfollowed{UserId: follower, TargetUserId: user},
	}}
}

func board(owner, id string) *skeinv1.Board { return &skeinv1.Board{OwnerId: owner, BoardId: id} }

func followBoard(follower, owner, id string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardFollowed{
		BoardFollowed: &skeinv1.BoardFollowed{UserId: follower, Board: board(owner, id)},
	}}
}

func unfollowBoard(follower, owner, id string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardUnfollowed{
		BoardUnfollowed: &skeinv1.BoardUnfollowed{UserId: follower, Board: board(owner, id)},
	}}
}

func createBoard(owner, id, title string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardCreated{
		BoardCreated: &skeinv1.BoardCreated{Board: board(owner, id), Title: title},
	}}
}

func block(user, blocked string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{
		UserBlocked: &skeinv1.UserBlocked{UserId: user, TargetUserId: blocked},
	}}
}

func hideRepins(user, of string) *skeinv1.Event {
	return setFollow(user, of, &skeinv1.FollowSettings{HideRepins: true})
}

// setFollow returns the event that sets all settings of a follow.
func setFollow(user, target string, s *skeinv1.FollowSettings) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_FollowSettingsSet{FollowSettingsSet: &skeinv1.FollowSettingsSet{
		UserId: user, TargetUserId: target, HideRepins: s.GetHideRepins(), Notify: s.GetNotify(), Favorite: s.GetFavorite(),
	}}}
}

func feedRead(user string, at *timestamppb.Timestamp) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_FeedRead{FeedRead: &skeinv1.FeedRead{UserId: user, ReadTime: at}}}
}

func mute(user, muted string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_UserMuted{
		UserMuted: &skeinv1.UserMuted{UserId: user, TargetUserId: muted},
	}}
}

func pinned(owner, board, pin string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin: &skeinv1.Pin{OwnerId: owner, PinId: pin}, BoardId: board,
	}}}
}

func unpinned(owner, pin string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{
		Pin: &skeinv1.Pin{OwnerId: owner, PinId: pin},
	}}}
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

func secret(seed byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune('a'+seed)), 32)))
}

func ring(t testing.TB, text string) pagetoken.KeyRing {
	t.Helper()
	r, err := pagetoken.ParseKeyRing(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// caughtUp waits until all stores contain a position.
func (w *world) caughtUp(at string) {
	w.t.Helper()
	d, err := views.DemandOf(at)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, store := range w.server.views.All {
		if err := store.WaitFor(context.Background(), d.Position.Seq); err != nil {
			w.t.Fatal(err)
		}
	}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
