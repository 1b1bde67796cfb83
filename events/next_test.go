package events

import (
	"context"
	"testing"
	"time"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestPausedLogGoesOn: a crash while an epoch ends leaves a log that takes events again once it is opened, and one that a
// process left paused goes on by itself when somebody publishes.
func TestPausedLogGoesOn(t *testing.T) {
	cfg := Config{Dir: t.TempDir()}
	publish := func(l *Log) {
		t.Helper()
		p, err := l.NewPublisher(PublisherOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Publish(t.Context(), []*skeinv1.Event{{
			Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: "ann", ItemId: "film"}},
		}}, PublishOptions{})
		if err != nil {
			t.Error(err)
		}
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	for n := range 2 {
		l, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		publish(l)
		if n == 1 {
			if err := l.pause(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			publish(l)
		}
		if head, err := l.settlePaused(t); err != nil || head != uint64(1+2*n) {
			t.Errorf("the head is %d: %v", head, err)
		}
		if err := l.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// settlePaused pauses the log, and leaves it so.
func (l *Log) settlePaused(t *testing.T) (uint64, error) {
	t.Helper()
	if err := l.pause(t.Context(), time.Now().Add(time.Hour)); err != nil {
		return 0, err
	}
	return l.settle(t.Context())
}
