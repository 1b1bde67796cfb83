package feedservice

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/skein-feed/skein/events/eventlog"
)

// While the log is busy a bounded number of readers wait, and go into one call. The others are noted by a later read.
func TestMarksAreBounded(t *testing.T) {
	log, err := eventlog.Open(t.Context(), eventlog.Config{Dir: t.TempDir(), MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := log.NewPublisher(eventlog.PublisherOptions{FailWhenFull: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(publisher.Close(context.Background()), log.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	m := NewMarker(t.Context(), publisher)
	m.running = true // as if a call were under way
	now := time.Now()
	for i := range 3 * maxWaitingMarks {
		m.mark(fmt.Sprint("reader", i), now)
	}
	if len(m.waiting) != maxWaitingMarks || len(m.marked.recent) != maxWaitingMarks {
		t.Errorf("%d wait, %d are remembered", len(m.waiting), len(m.marked.recent))
	}
	m.run()
	if n := last(t, log); n != 1 {
		t.Errorf("%d envelopes, should be 1", n)
	}
	m.mark(fmt.Sprint("reader", maxWaitingMarks), now)
	m.Close()
	m.mark("late", now)
	m.Close()
	if n := last(t, log); n != 2 || m.running || len(m.waiting) != 0 {
		t.Errorf("%d envelopes", n)
	}
}

// last returns how many envelopes the log has.
func last(t *testing.T, log *eventlog.Log) uint64 {
	t.Helper()
	head, err := log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head.Last
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
