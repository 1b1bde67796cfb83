package eventlog_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/embedded"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestEmbeddedLogIsReadThroughItsSocket checks that another process can read the log of a running
// one, and cannot once the process has closed the log.
func TestEmbeddedLogIsReadThroughItsSocket(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir := t.TempDir()
	owner, err := eventlog.Open(ctx, eventlog.Config{Dir: dir, ListenOnSocket: true})
	if err != nil {
		t.Fatal(err)
	}

	socket := filepath.Join(dir, embedded.SocketFile)
	other, err := eventlog.Open(ctx, eventlog.Config{Socket: socket, Existing: true})
	if err != nil {
		t.Fatal(err)
	}
	if other.ID() != owner.ID() || other.Epoch() != owner.Epoch() {
		t.Errorf("log of the other process: got %x of epoch %d, want %x of epoch %d", other.ID(), other.Epoch(), owner.ID(), owner.Epoch())
	}

	const envelopes = 3
	p, err := owner.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	follow := &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: "ann", TargetUserId: "bob"}}}
	for range envelopes {
		if _, err := p.Publish(ctx, []*skeinv1.Event{follow}, eventlog.PublishOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	hub := eventlog.NewHub(other, eventlog.HubOptions{})
	hubCtx, stopHub := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(hubCtx) }()
	sub, err := hub.Subscribe(other.Start())
	if err != nil {
		t.Fatal(err)
	}
	for last := uint64(0); last < envelopes; {
		envs, err := sub.Next(ctx, 1<<20)
		if err != nil {
			t.Fatalf("after sequence %d: %v", last, err)
		}
		last = envs[len(envs)-1].Seq()
	}
	sub.Close()
	stopHub()

	if err := errors.Join(<-ended, other.Close(ctx), owner.Close(ctx)); err != nil {
		t.Fatal(err)
	}

	_, err = eventlog.Open(ctx, eventlog.Config{Socket: socket, ConnectTimeout: time.Nanosecond})
	if !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("Open after the owner has closed: got error %v, want %v", err, events.ErrLogUnavailable)
	}
}
