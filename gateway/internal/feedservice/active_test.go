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
func TestRecordedReadersAreBounded(t *testing.T) {
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
	a := NewActivityRecorder(t.Context(), publisher)
	a.running = true // as if a call were under way
	now := time.Now()
	for i := range 3 * maxWaitingReaders {
		a.record(fmt.Sprint("reader", i), now)
	}
	if len(a.waiting) != maxWaitingReaders || len(a.recent.recent) != maxWaitingReaders {
		t.Errorf("%d wait, %d are remembered", len(a.waiting), len(a.recent.recent))
	}
	a.run()
	if n := last(t, log); n != 1 {
		t.Errorf("%d envelopes, should be 1", n)
	}
	a.record(fmt.Sprint("reader", maxWaitingReaders), now)
	a.Close()
	a.record("late", now)
	a.Close()
	if n := last(t, log); n != 2 || a.running || len(a.waiting) != 0 {
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

func TestRecentReaders(t *testing.T) {
	var r recentReaders
	now := time.Now()
	for _, c := range []struct {
		after time.Duration
		due   bool
	}{{0, true}, {time.Second, false}, {activePeriod - 1, false}, {activePeriod, true}, {activePeriod + 1, false}} {
		if due := r.add("ann", now.Add(c.after)); due != c.due {
			t.Errorf("after %v: %v", c.after, due)
		}
	}
	for i := range 3 * maxRecentReaders {
		if !r.add(fmt.Sprint(i), now) || r.add(fmt.Sprint(i), now) || i > maxRecentReaders/4 && r.add(fmt.Sprint(i-maxRecentReaders/4), now) {
			t.Fatalf("reader %d", i)
		}
		if n := len(r.recent) + len(r.older); n > maxRecentReaders {
			t.Fatalf("%d readers are remembered", n)
		}
	}
	r.add("bob", now)
	r.remove("bob")
	if !r.add("bob", now) {
		t.Error("forgotten, and yet remembered")
	}
}
