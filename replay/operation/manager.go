package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/replay"
)

const (
	// kept is the number of operations that are remembered. Those under way count, and are never forgotten.
	kept = 1000
	// reportBytes bounds the report and the error of an operation.
	reportBytes = 64 << 10
	// idLayout makes ids of times that sort as the times do.
	idLayout = "20060102-150405.000000"
)

// Options are the settings of a [Manager].
type Options struct {
	// Dir is the directory of the files. It is created when it is not there.
	Dir string
	// Logger gets what begins and how it ends; default: nothing.
	Logger *slog.Logger
}

// Manager keeps the operations of a process. Its methods are safe for concurrent use.
type Manager struct {
	folder folder
	log    *slog.Logger
	// wake tells Run that queue is not empty. It has room for one, so that the sender never waits.
	wake chan struct{}

	mu      sync.Mutex
	resume  map[Kind]Resume
	entries map[string]*entry
	order   []string // ids, the oldest first
	last    time.Time
	queue   []*entry // to be started by Run
	running bool
	closed  bool // Run has been told to end
}

// entry is an operation. It is guarded by the manager's mutex.
type entry struct {
	record
	run       Func
	progress  *replay.Progress
	meter     meter
	cancel    context.CancelCauseFunc // nil while the operation does not run
	changed   chan struct{}           // closed at the next change
	restarted bool                    // loaded, and Run has not decided what becomes of it
}

// Open reads what is known of earlier operations. Operations are done while [Manager.Run] runs.
func Open(o Options) (*Manager, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		folder: folder(o.Dir), log: o.Logger, wake: make(chan struct{}, 1),
		resume: map[Kind]Resume{}, entries: map[string]*entry{},
	}
	found, damaged, err := m.folder.read()
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	for _, err := range damaged {
		m.log.Error("an operation is not known any more", "error", err)
	}
	for _, r := range found {
		m.add(&entry{record: r, restarted: !r.State.Ended()})
		if at, err := time.Parse(idLayout, r.ID); err == nil && at.After(m.last) {
			m.last = at
		}
	}
	return m, nil
}

// OnRestart says how operations of a kind continue that a restart has interrupted. It is called before [Manager.Run].
func (m *Manager) OnRestart(k Kind, r Resume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resume[k] = r
}

// add enters an operation. m.mu must be held, or no other goroutine may know m.
func (m *Manager) add(e *entry) {
	e.changed = make(chan struct{})
	m.entries[e.ID] = e
	m.order = append(m.order, e.ID)
}

// Start accepts an operation, which begins at once if [Manager.Run] runs, and else with it. Args are kept for [Resume] until
// the operation ends; nil means none. Another operation in its way refuses it: [*ConflictError].
func (m *Manager) Start(k Kind, projection string, args any, run Func) (Info, error) {
	var encoded json.RawMessage
	if args != nil {
		data, err := json.Marshal(args)
		if err != nil {
			return Info{}, fmt.Errorf("operation: arguments of a %s: %w", k, err)
		}
		encoded = data
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return Info{}, ErrClosed
	}
	wanted := Info{Kind: k, Projection: projection}
	for _, id := range m.order {
		if e := m.entries[id]; !e.State.Ended() && conflict(wanted, e.info()) {
			return Info{}, &ConflictError{With: e.info()}
		}
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	e := &entry{run: run, record: record{
		ID: m.nextID(now), Kind: k, Projection: projection, Args: encoded, State: Pending, Created: now,
	}}
	if err := m.folder.write(&e.record); err != nil {
		return Info{}, fmt.Errorf("operation: the %s cannot be noted: %w", k, err)
	}
	m.add(e)
	m.forget()
	m.enqueue(e)
	return e.info(), nil
}

// nextID makes an id above all others, whatever the clock does. m.mu is held.
func (m *Manager) nextID(now time.Time) string {
	if !now.After(m.last) {
		now = m.last.Add(time.Microsecond)
	}
	m.last = now
	return now.Format(idLayout)
}

// enqueue hands an operation to Run. m.mu is held.
func (m *Manager) enqueue(e *entry) {
	m.queue = append(m.queue, e)
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// forget drops the oldest operations that have ended beyond those that are kept. m.mu is held.
func (m *Manager) forget() {
	for i := 0; len(m.order) > kept && i < len(m.order); {
		id := m.order[i]
		if !m.entries[id].State.Ended() {
			i++
			continue
		}
		if err := m.folder.remove(id); err != nil {
			m.log.Warn("an old operation cannot be forgotten", "operation", id, "error", err)
		}
		delete(m.entries, id)
		m.order = slices.Delete(m.order, i, i+1)
	}
}

// Get returns an operation as it is now: [ErrNotFound].
func (m *Manager) Get(id string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[id]
	if !ok {
		return Info{}, ErrNotFound
	}
	return e.info(), nil
}

// List returns at most n operations of a kind, the latest first, from the one before an id on. The empty kind is any, the
// empty id is above all. More reports whether there are others.
func (m *Manager) List(k Kind, before string, n int) (found []Info, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Backward(m.order) {
		e := m.entries[id]
		if before != "" && id >= before || k != "" && e.Kind != k {
			continue
		}
		if len(found) == n {
			return found, true
		}
		found = append(found, e.info())
	}
	return found, false
}

// removedText stands in place of a report or an error that [Manager.RemoveTexts] has removed.
const removedText = "removed, because it may have named a user who was erased since"

// RemoveTexts removes the reports and errors of all operations that have ended, except erasures, whose texts name no user. A report lists
// rows, and rows name users in many forms, so RemoveTexts does not look for the one who was erased. If the file of an operation cannot be
// written, RemoveTexts goes on with the others, and a later call tries that one again.
func (m *Manager) RemoveTexts() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, id := range m.order {
		e := m.entries[id]
		if e.Kind == Erase || !e.State.Ended() || e.Report == "" && e.Error == "" {
			continue
		}

		// The file is written before the entry changes, so that the next call finds an entry whose file still has the texts.
		without := e.record
		for _, text := range []*string{&without.Report, &without.Error} {
			if *text != "" {
				*text = removedText
			}
		}
		if without.Report == e.Report && without.Error == e.Error {
			continue
		}
		if err := m.folder.write(&without); err != nil {
			errs = append(errs, fmt.Errorf("operation: remove the texts of %s: %w", id, err))
			continue
		}
		e.record = without
		e.tell()
	}
	return errors.Join(errs...)
}

// UnderWay returns the operations that have not ended, the oldest first.
func (m *Manager) UnderWay() (found []Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range m.order {
		if e := m.entries[id]; !e.State.Ended() {
			found = append(found, e.info())
		}
	}
	return found
}

// Cancel asks an operation to end, and returns its state. An operation that has ended stays as it is.
func (m *Manager) Cancel(id string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[id]
	if !ok {
		return Info{}, ErrNotFound
	}
	if e.State.Ended() || e.Cancelling {
		return e.info(), nil
	}
	e.Cancelling = true
	if e.cancel != nil {
		m.save(e) // so that a restart does not continue it
		e.cancel(ErrCancelled)
		return e.info(), nil
	}
	m.end(e, Cancelled, "", "")
	return e.info(), nil
}

// Watch calls f with an operation as it is, then after each change, and returns when it has ended and f has seen that, or
// with the error of f. Changes that come faster than f takes them are seen as one.
func (m *Manager) Watch(ctx context.Context, id string, f func(Info) error) error {
	for {
		m.mu.Lock()
		e, ok := m.entries[id]
		if !ok {
			m.mu.Unlock()
			return ErrNotFound
		}
		now, changed, closed := e.info(), e.changed, m.closed
		m.mu.Unlock()
		if err := f(now); err != nil || now.State.Ended() {
			return err
		}
		if closed {
			return ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// info is the entry as others see it. m.mu is held.
func (e *entry) info() Info {
	i := Info{
		ID: e.ID, Kind: e.Kind, Projection: e.Projection, Args: e.Args, State: e.State,
		Created: e.Created, Ended: e.Ended, PhaseProgress: e.PhaseProgress, Remaining: -1, Error: e.Error, Report: e.Report,
	}
	if e.progress != nil && !e.State.Ended() {
		i.PhaseProgress = e.progress.Now()
		i.Rate = e.meter.rate()
		i.Remaining = e.meter.remaining(time.Now(), i.Done, i.Total)
	}
	return i
}

// keepProgress copies the progress to the record. m.mu is held.
func (e *entry) keepProgress() { e.PhaseProgress = e.progress.Now() }

// tell wakes the watchers of an entry. m.mu is held.
func (e *entry) tell() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// save writes the file of an entry. m.mu is held. If that fails, the new state still holds in this process, and the next process finds
// the state before.
func (m *Manager) save(e *entry) {
	if err := m.folder.write(&e.record); err != nil {
		m.log.Error("the state of an operation cannot be noted", "operation", e.ID, "state", e.State, "error", err)
	}
}

// end gives an entry its last state. m.mu is held.
func (m *Manager) end(e *entry, st State, report, failure string) {
	if e.progress != nil {
		e.keepProgress()
	}
	e.State, e.Ended = st, time.Now().UTC().Truncate(time.Microsecond)
	e.Report, e.Error = bounded(report), bounded(failure)
	e.Args, e.run, e.cancel = nil, nil, nil
	m.save(e)
	e.tell()
	m.log.Info("operation ended", "operation", e.ID, "what", e.info().name(), "state", e.State, "error", e.Error,
		"took", e.Ended.Sub(e.Created).Round(time.Millisecond))
}
