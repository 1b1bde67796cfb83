package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// startNATS starts a NATS server with JetStream, and with users if any are given. The server stops
// at the end of the test, or earlier if the test stops it itself.
func startNATS(t *testing.T, users ...*natsserver.User) *natsserver.Server {
	t.Helper()
	// Some tests start another server on the port of this one.
	ports, err := findFreePorts(27000, 1)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: ports[0], NoSigs: true, NoLog: true, JetStream: true, SyncAlways: true,
		StoreDir: t.TempDir(), JetStreamMaxStore: 1 << 40, Users: users,
	})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(waitLimit) {
		t.Fatal("the NATS server is not ready")
	}
	return ns
}

// jetStreamAt connects to a NATS server until the end of the test.
func jetStreamAt(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// publishTo appends follows of ann to the log on a NATS server, without a service, and returns the
// position of the last one.
func publishTo(t *testing.T, url string, users ...string) (position string) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), eventlog.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := log.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, user := range users {
		res, err := publisher.Publish(t.Context(), []*skeinv1.Event{userFollowed("ann", user)}, eventlog.PublishOptions{})
		if err != nil {
			t.Fatal(err)
		}
		position = res.Position.String()
	}

	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return position
}

// TestArchiveRestoreReplacesStream demands that a damaged stream on NATS servers is left alone
// until the operator confirms the risk. Then the command archives what can be read of the stream,
// and the log continues in a new stream.
func TestArchiveRestoreReplacesStream(t *testing.T) {
	t.Parallel()
	url := startNATS(t).ClientURL()
	js := jetStreamAt(t, url)
	dir := t.TempDir()
	publishTo(t, url, "bob", "cid")
	archiveFrom(t, dir, eventlog.Config{URL: url})
	publishTo(t, url, "dan", "eve", "fay")

	restore := []string{
		"replay", "archive", "restore", "--data", dir, "--archive", filepath.Join(dir, flags.ArchiveDir), "--nats", url,
	}
	checkRun(t, 0, "", "nothing of the log", restore...)

	// Delete a message, which skein takes for damage.
	stream, err := js.Stream(t.Context(), eventlog.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), 4); err != nil {
		t.Fatal(err)
	}

	checkRun(t, 1, "", "run the command again with --replace-stream", restore...)
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 4 {
		t.Fatalf("%+v, %v", info, err)
	}
	checkRun(t, 2, "", "--replace-stream needs --nats", append(restore[:5:5], "--replace-stream")...)

	out := checkRun(t, 0, "gave 2 envelopes with 2 events", "then the stream is deleted", append(restore, "--replace-stream")...)
	if !strings.Contains(out, "continues in epoch 3 after sequence 5 ") || !strings.Contains(out, "Lost: 1 envelope at sequence 4.") {
		t.Error(out)
	}
	checkRun(t, 0, "", "nothing of the log", append(restore, "--replace-stream")...)
	info, err := js.Stream(t.Context(), eventlog.StreamName)
	if err != nil || info.CachedInfo().State.FirstSeq != 6 || fmt.Sprint(info.CachedInfo().Config.Subjects) != "["+eventlog.Subject+"]" {
		t.Errorf("the new stream: %+v, %v", info, err)
	}
	publishTo(t, url, "gus")
	checkRun(t, 0, "", "can be read, up to sequence 6", restore...)

	// If the stream is gone, there is nothing to confirm.
	if err := js.DeleteStream(t.Context(), eventlog.StreamName); err != nil {
		t.Fatal(err)
	}
	checkRun(t, 0, "epoch 5", "", restore...)
}

// TestArchiveRestoreNeedsAnswers demands that a stream is not replaced if the server does not
// answer requests for its messages. They may all be there.
func TestArchiveRestoreNeedsAnswers(t *testing.T) {
	t.Parallel()
	ns := startNATS(t)
	url := ns.ClientURL()
	dir := t.TempDir()
	publishTo(t, url, "bob", "cid")
	archiveFrom(t, dir, eventlog.Config{URL: url})
	publishTo(t, url, "dan", "eve", "fay")

	// Nobody receives requests for messages.
	subject := "$JS.API.STREAM.MSG.GET." + eventlog.StreamName
	if err := ns.GlobalAccount().AddMapping(subject, "nobody"); err != nil {
		t.Fatal(err)
	}
	restore := []string{
		"replay", "archive", "restore", "--data", dir, "--archive", filepath.Join(dir, flags.ArchiveDir), "--nats", url, "--replace-stream",
	}
	checkRun(t, 1, "", events.ErrLogUnavailable.Error(), restore...)
	checkRun(t, 0, "epoch 1", "", "replay", "archive", "status", "--data", dir)

	ns.GlobalAccount().RemoveMapping(subject)
	checkRun(t, 0, "", "can be read, up to sequence 5", restore...)
}
