package gateway

import (
	"context"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// head returns how many envelopes the log has.
func (w *world) head() uint64 {
	w.t.Helper()
	head, err := w.log.Head(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return head.Last
}

// However often a reader reads, one event says so: while the projection does not show it, and later.
func TestMarkActive(t *testing.T) {
	w := newWorld(t, withFeeds, asleep)
	read := func(w *world) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 25 {
					req := &skeinv1.ReadFeedRequest{ReaderId: "ann", MarkActive: true}
					if _, err := w.feed.ReadFeed(context.Background(), connect.NewRequest(req)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	read(w)
	if err := w.inbox.WaitFor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.fold()
	if err := w.inbox.WaitFor(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	read(w)
	// A process that has not seen the reader yet knows it from the projection.
	other := w.replica(withFeeds)
	if err := other.inbox.WaitFor(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	read(other)
	// Who does not ask for it is not noted.
	w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "bob"})
	for _, w := range []*world{w, other} {
		if err := w.stop(); err != nil { // waits for what is being appended
			t.Fatal(err)
		}
	}
	if n := w.head(); n != 1 {
		t.Fatalf("%d envelopes", n)
	}
	env := w.envelopes(1)[0]
	if len(env.Events) != 1 || env.Events[0].Kind != events.ReaderActive || env.Events[0].User != "ann" {
		t.Errorf("%+v", env.Events)
	}
}

// A log that takes nothing fails no read.
func TestMarkActiveWithoutALog(t *testing.T) {
	w := newWorld(t, withFeeds)
	at := w.publish(follow("ann", "bob"), pinned("bob", "", "1"))
	if err := w.publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if res := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: "ann", MarkActive: true, AtLeast: at}); len(res.GetEntries()) != 1 {
			t.Error(res)
		}
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	if n := w.head(); n != 1 {
		t.Errorf("%d envelopes", n)
	}
	// Nothing was taken, so nothing is remembered.
	if n := w.server.activity.Remembered(); n != 0 {
		t.Errorf("%d readers are remembered", n)
	}
}
