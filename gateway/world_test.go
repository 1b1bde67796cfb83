package gateway

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"flag"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/gateway/internal/feedwatch"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // parallel tests mostly wait, for timers and disks
	testmain.Run(m)
}

// world is a whole service: an embedded log on disk, the graph, and a server on a port of its own.
type world struct {
	t         testing.TB
	log       *eventlog.Log
	publisher *eventlog.Publisher
	hub       *eventlog.Hub
	// store is the graph.
	store *live.Live
	// inbox, seen, counters and notifications are nil if the world does not have them.
	inbox, seen, counters, notifications *live.Live
	// These channels close when the store has caught up with the log.
	graphReady, inboxReady, seenReady, countersReady, notificationsReady <-chan struct{}

	registry *prometheus.Registry
	server   *Server
	url      string
	http     *http.Client
	// clientTLS is the TLS configuration of http; nil means that the server uses no TLS.
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
	// fold starts folding. begin has called it already, unless the world is asleep.
	fold func()
	// unfold stops folding and waits until it has stopped.
	unfold func()
	// closeStores ends folding and closes the stores.
	closeStores func()
}

// asleep makes the world begin without folding. The test calls fold itself.
func asleep(o *worldOptions) { o.asleep = true }

// withFeeds gives the world an inbox.
func withFeeds(o *worldOptions) {
	settings := inbox.DefaultSettings()
	o.inbox = &settings
	withCounters(o) // Feeds by heat need the counters.
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

// noCache is the size of [worldOptions.cache] for which a store reads every block from its file
// system.
const noCache = -1

type worldOptions struct {
	Options
	// asleep means that the world does not start folding.
	asleep bool
	// logConfig says where the log is. The default is a directory of the test, for an embedded log.
	logConfig eventlog.Config
	// past is the archived part of the log; nil means none.
	past events.Archive
	// inbox, seen, counters and notifications are the settings of the stores. A world has no store
	// whose settings are nil.
	inbox         *inbox.Settings
	seen          *seen.Settings
	counters      *counters.Settings
	notifications *notifications.Settings
	// watchPeriod is after how long streams send again while nothing changes; 0 means the default
	// of the server.
	watchPeriod time.Duration
	// dirs has the directories of stores, by the names of their projections. A store that is not
	// named has a new directory.
	dirs map[string]string
	// fs is the file system under the stores. nil means a new one in memory for each store, or the
	// disk for stores in dirs and for benchmarks.
	fs store.FS
	// cache is the size of the block cache of each store in bytes; 0 means the default.
	cache int64
	// clientTLS is the TLS configuration of clients; nil means that the server uses no TLS.
	clientTLS *tls.Config
	// partitions are those that the stores hold; nil means all.
	partitions *events.Partitions
}

// newWorld starts a world, which ends with the test.
func newWorld(t testing.TB, options ...func(*worldOptions)) *world {
	t.Helper()
	o := worldOptions{logConfig: eventlog.Config{Dir: t.TempDir(), MaxBytes: 1 << 30}}
	for _, option := range options {
		option(&o)
	}

	w := &world{t: t}
	ctx, endHub := context.WithCancel(context.Background())
	var err error
	w.log, err = eventlog.Open(ctx, o.logConfig)
	if err != nil {
		t.Fatal(err)
	}
	if o.past != nil {
		w.log.SetArchive(o.past)
	}
	w.publisher, err = w.log.NewPublisher(eventlog.PublisherOptions{FailWhenFull: true})
	if err != nil {
		t.Fatal(err)
	}
	w.hub = eventlog.NewHub(w.log, eventlog.HubOptions{})
	hubEnded := make(chan error, 1)
	go func() { hubEnded <- w.hub.Run(ctx) }()

	// Cleanups run in reverse order, so the log closes after the server and the stores.
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

// replica starts another process over the same log, with stores of its own.
func (w *world) replica(options ...func(*worldOptions)) *world {
	w.t.Helper()
	var o worldOptions
	for _, option := range options {
		option(&o)
	}
	other := &world{t: w.t, log: w.log, publisher: w.publisher, hub: w.hub}
	other.begin(o)
	return other
}

// begin opens the stores and starts the server. Unless the world is asleep, it waits until the
// stores have caught up with the log.
func (w *world) begin(o worldOptions) {
	w.t.Helper()
	w.registry = prometheus.NewPedanticRegistry()
	w.openStores(&o)

	o.Log = w.log
	o.Publisher = w.publisher
	o.Hub = w.hub
	o.Registry = w.registry
	o.Graph = w.store
	o.Inbox = w.inbox
	o.Seen = w.seen
	o.Counters = w.counters
	o.Notifications = w.notifications
	o.Version = "test"

	// Tests run on machines that are busy with other tests, so calls that wait for a processor are
	// no reason to refuse others.
	setDefault(&o.Limits.ShedAfter, -1)

	// A test that waits for a state waits for as long as the machine needs, and so does a server
	// for its clients and for the calls under way.
	setDefault(&o.Limits.AtLeastWait, patienceOfTests)
	setDefault(&o.Limits.VisibleWait, patienceOfTests)
	setDefault(&o.Limits.CallTimeout, patienceOfTests)
	setDefault(&o.Limits.IOTimeout, patienceOfTests)
	setDefault(&o.Limits.ShutdownTimeout, patienceOfTests)

	if !o.asleep {
		w.fold()
	}
	w.clientTLS = o.clientTLS
	w.serve(o.Options, o.watchPeriod)
	if o.asleep {
		return
	}
	for _, ready := range []<-chan struct{}{w.graphReady, w.inboxReady, w.seenReady, w.countersReady, w.notificationsReady} {
		if ready != nil {
			<-ready
		}
	}
}

// openStores opens the stores, and closes them at the end of the test. It sets fold and unfold.
func (w *world) openStores(o *worldOptions) {
	w.t.Helper()
	cache := querycache.New(1 << 20)
	var stores []*live.Live
	openStore := func(newProjection func() projections.Projection) (*live.Live, <-chan struct{}) {
		opened, ready := w.openStore(o, newProjection)
		stores = append(stores, opened)
		return opened, ready
	}
	w.store, w.graphReady = openStore(func() projections.Projection { return graph.NewWith(cache) })
	if o.inbox != nil {
		w.inbox, w.inboxReady = openStore(func() projections.Projection { return inbox.NewWith(*o.inbox, cache) })
	}
	if o.seen != nil {
		w.seen, w.seenReady = openStore(func() projections.Projection { return seen.New(*o.seen) })
	}
	if o.counters != nil {
		w.counters, w.countersReady = openStore(func() projections.Projection { return counters.New(*o.counters) })
	}
	if o.notifications != nil {
		w.notifications, w.notificationsReady = openStore(func() projections.Projection { return notifications.New(*o.notifications) })
	}

	foldCtx, endFold := context.WithCancel(context.Background())
	foldEnded := make(chan error, len(stores))
	folding := 0
	w.fold = sync.OnceFunc(func() {
		folding = len(stores)
		for _, opened := range stores {
			go func() { foldEnded <- opened.Run(foldCtx, w.subscribe) }()
		}
	})
	w.unfold = sync.OnceFunc(func() {
		endFold()

		// In a world that is still asleep no store folds.
		for range folding {
			// Only a store in the directory of an earlier world may be outdated.
			err := <-foldEnded
			if len(o.dirs) > 0 && errors.Is(err, live.ErrOutdated) {
				err = nil
			}
			if err != nil {
				w.t.Error(err)
			}
		}
	})
	w.closeStores = sync.OnceFunc(func() {
		w.unfold()
		for _, opened := range stores {
			if err := opened.Close(); err != nil {
				w.t.Error(err)
			}
		}
	})
	w.t.Cleanup(w.closeStores)
}

// openStore opens a store in its directory, which is a new one unless the options name another. The
// channel closes when the store has caught up with the log.
func (w *world) openStore(o *worldOptions, newProjection func() projections.Projection) (*live.Live, <-chan struct{}) {
	w.t.Helper()
	ready := make(chan struct{})
	closeReady := sync.OnceFunc(func() { close(ready) })
	stateChanged := func(st store.State, _ error) {
		if st >= store.Ready {
			closeReady()
		}
	}
	fs := o.fs
	dir := o.dirs[newProjection().Name()]
	if dir == "" {
		dir = w.t.TempDir()
		// Most tests have several stores, and to create one on a disk takes longer than the rest of
		// the test.
		if _, isBenchmark := w.t.(*testing.B); fs == nil && !isBenchmark {
			fs = storetest.NewMemFS()
		}
	}
	options := live.Options{New: newProjection, Options: store.Options{
		FS: fs, Dir: dir, Listener: store.Listener{StateChanged: stateChanged}, Partitioned: o.partitions != nil,
	}}

	// live.Open does not accept partitions for a new store, so the package store creates it first.
	if o.partitions != nil {
		created, err := store.Open(store.Options{FS: fs, Dir: dir, Projection: newProjection(), Partitions: o.partitions})
		if err == nil {
			err = created.Close()
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}

	if o.cache != 0 {
		options.Cache = store.NewCache(max(o.cache, 0))
		defer options.Cache.Unref()
	}
	opened, err := live.Open(options)
	if err != nil {
		w.t.Fatal(err)
	}
	return opened, ready
}

// subscribe reads the log for a store, from its beginning or from the cursor of the store.
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

// subscription is a subscription of the hub, with the end of the log that the hub knows.
type subscription struct {
	*eventlog.Subscription
	hub *eventlog.Hub
}

func (s subscription) Head() uint64 { return s.hub.Head() }

// quicken makes streams count and read the log after a millisecond, and send again after
// resendAfter if it is not 0.
func quicken(watchers *feedwatch.Watchers, resendAfter time.Duration) {
	watchers.CountInterval = time.Millisecond
	watchers.Pause = time.Millisecond
	if resendAfter > 0 {
		watchers.ResendAfter = resendAfter
	}
}

// serve starts the server, and stops it at the end of the test unless the test has stopped it.
func (w *world) serve(o Options, watchPeriod time.Duration) {
	w.t.Helper()
	var err error
	w.server, err = New(o)
	if err != nil {
		w.t.Fatal(err)
	}

	// A canceled call, such as one that a hedge has overtaken, may hold the place of an expensive
	// read until its goroutine runs again.
	w.server.budgets.ExpensiveReads.MaxWait = patienceOfTests

	// Tests do not wait as long as clients of a real server.
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

	// Idle connections of the client are closed before the shutdown and once more after it, because
	// calls during the shutdown may leave new ones, whose goroutines TestMain would find.
	transport := &http.Transport{MaxIdleConnsPerHost: 100, TLSClientConfig: w.clientTLS, ForceAttemptHTTP2: true}
	w.stop = sync.OnceValue(func() error {
		transport.CloseIdleConnections()
		cancel()
		err := <-ended
		transport.CloseIdleConnections()
		return err
	})
	w.t.Cleanup(func() {
		if err := w.stop(); err != nil {
			w.t.Error(err)
		}
	})
	w.http = &http.Client{Transport: transport}
	w.connect()
}

// connect makes the clients with options.
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

// publish publishes events, and returns the position at which the log has them.
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

// hideRepins returns the event that hides the re-pins of a user in the feed of a follower.
func hideRepins(follower, user string) *skeinv1.Event {
	return setFollow(follower, user, &skeinv1.FollowSettings{HideRepins: true})
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

// ask calls a method, and fails the test if the call fails.
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

// secret returns a secret of a key ring. Each seed has a secret of its own.
func secret(seed byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune('a'+seed)), 32)))
}

// ring parses a key ring of page tokens.
func ring(t testing.TB, text string) pagetoken.KeyRing {
	t.Helper()
	r, err := pagetoken.ParseKeyRing(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// caughtUp waits until all stores have folded a position.
func (w *world) caughtUp(at string) {
	w.t.Helper()
	demand, err := views.DemandOf(at)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, opened := range w.server.views.All {
		if err := opened.WaitFor(context.Background(), demand.Position.Seq); err != nil {
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
