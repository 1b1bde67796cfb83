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
// reader and day. That never delays a read and never fails one. Whether it is due the projection knows; the marker
// remembers what it appended itself, for as long as the projection does not show it yet. Several processes may each
// append one: a repeat only renews the date.
const (
	// activePeriod is how long one event lasts.
	activePeriod = 24 * time.Hour
	// maxWaitingMarks bounds the readers that wait to be noted, and so the events of one call to the log. Further ones
	// are left out: their next read asks again.
	maxWaitingMarks = events.MaxEnvelopeEvents
	// maxMarked bounds what is remembered, in two halves: at most 8 MiB. Beyond it the oldest half is forgotten.
	maxMarked = 1 << 15
	// markTimeout bounds one call to the log. Its publisher gives up before.
	markTimeout = time.Minute
)

// markActive notes that a reader reads, if it was not noted within a day.
func (s *Service) markActive(r *views.Inbox, reader string) {
	last, err := r.LastActive(reader)
	if err != nil {
		// The feed was read from the same rows; that one of them cannot be is said by the answers that need it.
		return
	}
	if now := time.Now(); now.Sub(last.Time()) >= activePeriod {
		s.marks.mark(reader, now)
	}
}

// Marker appends reader_active events, from one goroutine that lives while there are any. What comes while the log is
// busy goes into the next call.
type Marker struct {
	log  *eventlog.Publisher
	life context.Context //nolint:containedctx // the life of the server: an append outlives the read that asks for it

	mu      sync.Mutex
	marked  marked
	waiting []string
	running bool
	closed  bool
	ended   sync.WaitGroup
}

// NewMarker appends to a log until a life ends.
func NewMarker(life context.Context, log *eventlog.Publisher) *Marker {
	return &Marker{life: life, log: log}
}

// mark has an event appended in the background, unless that was done within a day, too many wait, or the server stops.
func (m *Marker) mark(reader string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || len(m.waiting) >= maxWaitingMarks || !m.marked.add(reader, now) {
		return
	}
	m.waiting = append(m.waiting, reader)
	if !m.running {
		m.running = true
		m.ended.Go(m.run)
	}
}

// run appends what waits until nothing does.
func (m *Marker) run() {
	for {
		readers := m.take()
		if len(readers) == 0 {
			return
		}
		evs := make([]*skeinv1.Event, len(readers))
		for i, reader := range readers {
			evs[i] = &skeinv1.Event{Kind: &skeinv1.Event_ReaderActive{ReaderActive: &skeinv1.ReaderActive{UserId: reader}}}
		}
		ctx, cancel := context.WithTimeout(m.life, markTimeout)
		_, err := m.log.Publish(ctx, evs, eventlog.PublishOptions{})
		cancel()
		if err != nil && !errors.Is(err, events.ErrOutcomeUnknown) {
			m.forget(readers)
		}
	}
}

// take returns the readers that wait. Without any, the goroutine has ended.
func (m *Marker) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	readers := m.waiting
	m.waiting = nil
	m.running = len(readers) > 0
	return readers
}

// forget makes readers be noted by their next read: the log has taken nothing.
func (m *Marker) forget(readers []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, reader := range readers {
		m.marked.remove(reader)
	}
}

// Remembered returns how many readers were noted lately.
func (m *Marker) Remembered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.marked.recent) + len(m.marked.older)
}

// Close waits until nothing is being appended. Afterwards nothing will be. The life of the server has ended before.
func (m *Marker) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.ended.Wait()
}

// marked are the readers who were noted lately, and when. The zero value is empty.
type marked struct{ recent, older map[string]time.Time }

// add notes a reader, and reports whether that was due.
func (m *marked) add(reader string, now time.Time) bool {
	for _, half := range []map[string]time.Time{m.recent, m.older} {
		if at, ok := half[reader]; ok && now.Sub(at) < activePeriod {
			return false
		}
	}
	if len(m.recent) >= maxMarked/2 {
		m.older, m.recent = m.recent, nil
	}
	if m.recent == nil {
		m.recent = map[string]time.Time{}
	}
	m.recent[reader] = now
	return true
}

func (m *marked) remove(reader string) {
	delete(m.recent, reader)
	delete(m.older, reader)
}
