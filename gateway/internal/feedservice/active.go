package feedservice

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// A reader who reads keeps an inbox: reads that ask for it (mark_active) append a reader_active event, at most one a
// reader and day. That never delays a read and never fails one. Whether it is due the projection knows; the recorder
// remembers what it appended itself, for as long as the projection does not show it yet. Several processes may each
// append one: a repeat only renews the date.
const (
	// activePeriod is how long one event lasts.
	activePeriod = 24 * time.Hour
	// maxWaitingReaders bounds the readers that wait to be noted, and so the events of one call to the log. Further ones
	// are left out: their next read asks again.
	maxWaitingReaders = events.MaxEnvelopeEvents
	// maxRecentReaders bounds what is remembered, in two halves: at most 8 MiB. Beyond it the oldest half is forgotten.
	maxRecentReaders = 1 << 15
	// appendTimeout bounds one call to the log. Its publisher gives up before.
	appendTimeout = time.Minute
)

// recordActive records that a reader reads, at most once a day.
func (s *Service) recordActive(r *views.Inbox, reader string) {
	last, err := r.LastActive(reader)
	if err != nil {
		// The feed was read from the same rows; that one of them cannot be is said by the answers that need it.
		return
	}
	if now := time.Now(); now.Sub(last.Time()) >= activePeriod {
		s.activity.record(reader, now)
	}
}

// ActivityRecorder appends reader_active events, from one goroutine that lives while there are any. Events that arrive while the log is
// busy go into the next call.
type ActivityRecorder struct {
	log  *eventlog.Publisher
	life context.Context //nolint:containedctx // the life of the server: an append outlives the read that asks for it

	mu      sync.Mutex
	recent  recentReaders
	waiting []string
	running bool
	closed  bool
	ended   sync.WaitGroup
}

// NewActivityRecorder returns a recorder that appends to a log until the server ends.
func NewActivityRecorder(life context.Context, log *eventlog.Publisher) *ActivityRecorder {
	return &ActivityRecorder{life: life, log: log}
}

// record appends an event in the background, unless that was done within a day, too many wait, or the server stops.
func (a *ActivityRecorder) record(reader string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(a.waiting) >= maxWaitingReaders || !a.recent.add(reader, now) {
		return
	}
	a.waiting = append(a.waiting, reader)
	if !a.running {
		a.running = true
		a.ended.Go(a.run)
	}
}

// run appends what waits until nothing does.
func (a *ActivityRecorder) run() {
	for {
		readers := a.take()
		if len(readers) == 0 {
			return
		}
		evs := make([]*skeinv1.Event, len(readers))
		for i, reader := range readers {
			evs[i] = &skeinv1.Event{Kind: &skeinv1.Event_ReaderActive{ReaderActive: &skeinv1.ReaderActive{UserId: reader}}}
		}
		ctx, cancel := context.WithTimeout(a.life, appendTimeout)
		_, err := a.log.Publish(ctx, evs, eventlog.PublishOptions{})
		cancel()
		if err != nil && !errors.Is(err, events.ErrOutcomeUnknown) {
			a.forget(readers)
		}
	}
}

// take returns the readers that wait. Without any, the goroutine has ended.
func (a *ActivityRecorder) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	readers := a.waiting
	a.waiting = nil
	a.running = len(readers) > 0
	return readers
}

// forget makes readers be noted by their next read: the log has taken nothing.
func (a *ActivityRecorder) forget(readers []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, reader := range readers {
		a.recent.remove(reader)
	}
}

// Remembered returns how many readers were noted lately.
func (a *ActivityRecorder) Remembered() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.recent.recent) + len(a.recent.older)
}

// Close waits until nothing is being appended. Afterwards nothing will be. The life of the server has ended before.
func (a *ActivityRecorder) Close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.ended.Wait()
}

// recentReaders are the readers who were noted lately, and when. The zero value is empty.
type recentReaders struct{ recent, older map[string]time.Time }

// add notes a reader, and reports whether that was due.
func (r *recentReaders) add(reader string, now time.Time) bool {
	for _, half := range []map[string]time.Time{r.recent, r.older} {
		if at, ok := half[reader]; ok && now.Sub(at) < activePeriod {
			return false
		}
	}
	if len(r.recent) >= maxRecentReaders/2 {
		r.older, r.recent = r.recent, nil
	}
	if r.recent == nil {
		r.recent = map[string]time.Time{}
	}
	r.recent[reader] = now
	return true
}

func (r *recentReaders) remove(reader string) {
	delete(r.recent, reader)
	delete(r.older, reader)
}
