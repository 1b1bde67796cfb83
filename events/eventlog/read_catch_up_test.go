package eventlog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestShorterLogWithReplicasIsAskedAgain: a log with replicas that looks shorter than what was read of it is asked again for a while. Its new leader may not
// have caught up yet.
func TestShorterLogWithReplicasIsAskedAgain(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{})
		p := newPublisher(t, l, PublisherOptions{})
		defer p.Close(context.Background())
		l.hasReplicas.Store(true)
		cursor := l.Start()
		cursor.Seq, cursor.Checksum = 1, 1
		began := time.Now()
		if err := l.CheckCursor(t.Context(), cursor); !errors.Is(err, events.ErrLogShorter) || time.Since(began) < replicaCatchUpTime {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		began = time.Now()
		if err := l.CheckPosition(t.Context(), l.Position(1)); !errors.Is(err, events.ErrPositionAhead) || time.Since(began) < replicaCatchUpTime {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		checked := make(chan error, 1)
		go func() { checked <- l.CheckPosition(t.Context(), l.Position(1)) }()
		<-time.After(replicaCatchUpTime / 2) // no time, in a bubble
		if _, err := p.Publish(t.Context(), []*skeinv1.Event{newLike("ann", "film", "")}, PublishOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := <-checked; err != nil {
			t.Errorf("the leader has caught up: %v", err)
		}
	})
}
