package eventlog

import (
	"context"
	"errors"
	"testing"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestServerRestartLosesNoAcknowledgedEvent restarts the embedded server again and again while
// events are published and read. Every acknowledged event is read once, in order.
func TestServerRestartLosesNoAcknowledgedEvent(t *testing.T) {
	ctx := t.Context()
	l, err := Open(ctx, Config{Dir: t.TempDir(), MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()

	p, err := l.NewPublisher(PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := NewHub(l, HubOptions{})
	running := make(chan error, 1)
	go func() { running <- h.Run(ctx) }()
	defer func() {
		h.Close()
		if err := <-running; err != nil {
			t.Error(err)
		}
	}()

	sub, err := h.Subscribe(l.Start())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()

	const calls, restarts = 120, 3
	acked := make(chan uint64, calls)
	go func() {
		defer close(acked)
		for n := range calls {
			ev := &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
				UserId: "ann", TargetUserId: "user" + string(rune('a'+n%26)),
			}}}
			res, err := p.Publish(ctx, []*skeinv1.Event{ev}, PublishOptions{})
			if err != nil && !errors.Is(err, events.ErrOutcomeUnknown) {
				t.Errorf("call %d: %v", n, err)
				return
			}
			if err == nil {
				acked <- res.Position.Seq
			}
		}
	}()

	read := map[uint64]bool{}
	last := uint64(0)
	readUntil := func(seq uint64) {
		for last < seq {
			envs, err := sub.Next(ctx, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, env := range envs {
				if env.Seq() <= last {
					t.Fatalf("envelope after %d: got %d, want a later one", last, env.Seq())
				}
				last = env.Seq()
				read[last] = len(env.Events) == 1
			}
		}
	}

	ackedCount := 0
	for seq := range acked {
		ackedCount++
		if ackedCount%(calls/(restarts+1)) == 0 && ackedCount < calls {
			if err := l.server.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			// The client may not be back yet.
			if _, err := l.Health(ctx); err != nil && !errors.Is(err, events.ErrLogUnavailable) {
				t.Fatal(err)
			}
		}

		readUntil(seq)
		if !read[seq] {
			t.Fatalf("acknowledged envelope %d: got none, want one with one event", seq)
		}
	}

	if ackedCount < calls-restarts {
		t.Errorf("acknowledged calls: got %d, want at least %d", ackedCount, calls-restarts)
	}
	if err := l.Recover(ctx); err != nil {
		t.Errorf("Recover of a healthy log: got error %v, want none", err)
	}
}
