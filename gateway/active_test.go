package gateway

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

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
	other := w.twin(withFeeds)
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
	if m := w.server.marks; len(m.marked.recent) != 0 || len(m.waiting) != 0 || m.running {
		t.Errorf("%+v", m.marked)
	}
}

// While the log is busy a bounded number of readers wait, and go into one call. The others are noted by a later read.
func TestMarksAreBounded(t *testing.T) {
	w := newWorld(t, withFeeds)
	m := newMarker(t.Context(), w.publisher)
	m.running = true // as if a call were under way
	now := time.Now()
	for i := range 3 * maxWaitingMarks {
		m.mark(fmt.Sprint("reader", i), now)
	}
	if len(m.waiting) != maxWaitingMarks || len(m.marked.recent) != maxWaitingMarks {
		t.Errorf("%d wait, %d are remembered", len(m.waiting), len(m.marked.recent))
	}
	m.run()
	if env := w.envelopes(1)[0]; len(env.Events) != maxWaitingMarks {
		t.Errorf("%d events in one envelope", len(env.Events))
	}
	m.mark(fmt.Sprint("reader", maxWaitingMarks), now)
	m.close()
	m.mark("late", now)
	m.close()
	if n := w.head(); n != 2 || m.running || len(m.waiting) != 0 {
		t.Errorf("%d envelopes", n)
	}
}

func TestMarked(t *testing.T) {
	var m marked
	now := time.Now()
	for _, c := range []struct {
		after time.Duration
		due   bool
	}{{0, true}, {time.Second, false}, {activePeriod - 1, false}, {activePeriod, true}, {activePeriod + 1, false}} {
		if due := m.add("ann", now.Add(c.after)); due != c.due {
			t.Errorf("after %v: %v", c.after, due)
		}
	}
	for i := range 3 * maxMarked {
		if !m.add(fmt.Sprint(i), now) || m.add(fmt.Sprint(i), now) || i > maxMarked/4 && m.add(fmt.Sprint(i-maxMarked/4), now) {
			t.Fatalf("reader %d", i)
		}
		if n := len(m.recent) + len(m.older); n > maxMarked {
			t.Fatalf("%d readers are remembered", n)
		}
	}
	m.add("bob", now)
	m.remove("bob")
	if !m.add("bob", now) {
		t.Error("forgotten, and yet remembered")
	}
}
