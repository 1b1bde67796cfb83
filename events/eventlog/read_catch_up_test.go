package eventlog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestShorterLogWithReplicasIsAskedAgain checks a cursor and a position after the end of a log with
// replicas. The log is asked again for replicaCatchUpTime before it counts as shorter, because a
// new leader may not have caught up yet.
func TestShorterLogWithReplicasIsAskedAgain(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{})
		p := newPublisher(t, l, PublisherOptions{})
		defer p.Close(context.Background())
		l.hasReplicas.Store(true)
		cursor := l.Start()
		cursor.Seq, cursor.Checksum = 1, 1

		began := time.Now()
		if err := l.CheckCursor(t.Context(), cursor); !errors.Is(err, events.ErrLogShorter) {
			t.Errorf("cursor after the end: got error %v, want %v", err, events.ErrLogShorter)
		}
		if took := time.Since(began); took < replicaCatchUpTime {
			t.Errorf("time until a cursor after the end was rejected: got %v, want at least %v", took, replicaCatchUpTime)
		}

		began = time.Now()
		if err := l.CheckPosition(t.Context(), l.Position(1)); !errors.Is(err, events.ErrPositionAhead) {
			t.Errorf("position after the end: got error %v, want %v", err, events.ErrPositionAhead)
		}
		if took := time.Since(began); took < replicaCatchUpTime {
			t.Errorf("time until a position after the end was rejected: got %v, want at least %v", took, replicaCatchUpTime)
		}

		// The position is published while the log is asked again.
		checked := make(chan error, 1)
		go func() { checked <- l.CheckPosition(t.Context(), l.Position(1)) }()
		<-time.After(replicaCatchUpTime / 2) // takes no time in a bubble
		if _, err := p.Publish(t.Context(), []*skeinv1.Event{newLike("ann", "film", "")}, PublishOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := <-checked; err != nil {
			t.Errorf("position once the leader has caught up: got error %v, want none", err)
		}
	})
}
