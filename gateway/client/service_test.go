package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
)

// patience is how long a test waits for an event that must come. Usually, it comes in a fraction of
// this time.
const patience = 5 * time.Minute

func TestMain(m *testing.M) { testmain.Run(m) }

// startService starts a service with the graph projection in a temporary directory. It returns the
// URL of the service, and a function that stops the service and removes the directory. It takes no
// testing.T, because examples call it too. An error ends the process.
func startService() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "skein-client")
	must(err)
	ctx, cancel := context.WithCancel(context.Background())

	log, err := eventlog.Open(ctx, eventlog.Config{Ephemeral: true, MaxBytes: 1 << 30})
	must(err)
	publisher, err := log.NewPublisher(eventlog.PublisherOptions{FailWhenFull: true})
	must(err)
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	projection, err := live.Open(live.Options{
		Options: store.Options{Dir: dir}, New: func() projections.Projection { return graph.New() },
	})
	must(err)
	// Tests run on machines that are busy with other tests. So the service refuses no call because
	// calls wait long for a processor, and waits for as long as the machine needs.
	limits := gateway.Limits{
		ShedAfter: -1, AtLeastWait: patience, VisibleWait: patience, CallTimeout: patience, IOTimeout: patience, ShutdownTimeout: patience,
	}
	server, err := gateway.New(gateway.Options{Log: log, Publisher: publisher, Hub: hub, Graph: projection, Limits: limits})
	must(err)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	must(err)

	hubEnded := make(chan error)
	go func() { hubEnded <- hub.Run(ctx) }()

	foldContext, stopFold := context.WithCancel(ctx)
	foldEnded := make(chan error)
	go func() {
		foldEnded <- projection.Run(foldContext, func(from events.Cursor) (store.Subscription, error) {
			if from == (events.Cursor{}) {
				from = log.Start()
			}
			sub, err := hub.Subscribe(from)
			return subscription{sub, hub}, err
		})
	}()

	serverContext, stopServer := context.WithCancel(ctx)
	serverEnded := make(chan error)
	go func() { serverEnded <- server.Run(serverContext, listener) }()

	// Each part is stopped before the parts that it uses: the server uses all others, the publisher
	// and the fold use the hub and the log.
	stop = func() {
		stopServer()
		must(<-serverEnded)
		must(publisher.Close(context.Background()))
		stopFold()
		must(<-foldEnded)
		cancel()
		must(errors.Join(<-hubEnded, projection.Close(), log.Close(context.Background()), os.RemoveAll(dir)))
	}
	return "http://" + listener.Addr().String(), stop
}

// subscription adds to a subscription the head of the log, which a projection asks for.
type subscription struct {
	*eventlog.Subscription
	hub *eventlog.Hub
}

func (s subscription) Head() uint64 { return s.hub.Head() }

// must ends the process if there is an error.
func must(err error) {
	if err != nil {
		slog.Error("the service for the test", "error", err)
		os.Exit(1)
	}
}
