package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service runs a whole service in a temporary directory and returns its URL and what stops it.
func service() (url string, stop func()) {
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
	server, err := gateway.New(gateway.Options{Log: log, Publisher: publisher, Hub: hub, Graph: projection})
	must(err)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	must(err)
	hubEnded, folded, served := make(chan error), make(chan error), make(chan error)
	folding, endFold := context.WithCancel(ctx)
	serving, endServe := context.WithCancel(ctx)
	go func() { hubEnded <- hub.Run(ctx) }()
	go func() {
		folded <- projection.Run(folding, func(from events.Cursor) (store.Subscription, error) {
			if from == (events.Cursor{}) {
				from = log.Start()
			}
			sub, err := hub.Subscribe(from)
			return subscription{sub, hub}, err
		})
	}()
	go func() { served <- server.Run(serving, listener) }()
	return "http://" + listener.Addr().String(), func() {
		endServe()
		must(<-served)
		must(publisher.Close(context.Background()))
		endFold()
		must(<-folded)
		cancel()
		must(errors.Join(<-hubEnded, projection.Close(), log.Close(context.Background()), os.RemoveAll(dir)))
	}
}

type subscription struct {
	*eventlog.Subscription
	hub *eventlog.Hub
}

func (s subscription) Head() uint64 { return s.hub.Head() }

func must(err error) {
	if err != nil {
		slog.Error("the service for the test", "error", err)
		os.Exit(1)
	}
}
