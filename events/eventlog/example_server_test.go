package eventlog_test

import (
	"context"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events/eventlog"
)

// startServer starts a NATS server with a log.
func startServer() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "skein-example-")
	if err != nil {
		panic(err)
	}
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, SyncAlways: true, StoreDir: dir,
	})
	if err != nil {
		panic(err)
	}
	ns.Start()
	if !ns.ReadyForConnections(2 * time.Minute) {
		panic("the server is not ready")
	}

	ctx := context.Background()
	l, err := eventlog.Open(ctx, eventlog.Config{URL: ns.ClientURL()})
	if err != nil {
		panic(err)
	}
	if err := l.Close(ctx); err != nil {
		panic(err)
	}

	return ns.ClientURL(), func() {
		ns.Shutdown()
		ns.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}
