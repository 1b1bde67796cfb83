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
	// maxOperations is how many operations the manager remembers. It counts those that have not
	// ended, too, but forgets only operations that have ended.
	maxOperations = 1000
	// maxTextBytes limits the report and the error of an operation, each.
	maxTextBytes = 64 << 10
	// idLayout formats times as ids. The ids sort like the times.
	idLayout = "20060102-150405.000000"
)

// Options configure a [Manager].
type Options struct {
	// Dir is the directory of the operations' files. Open creates it if it is missing.
	Dir string
	// Logger receives the beginning and the outcome of each operation; nil discards them.
	Logger *slog.Logger
}

// Manager manages the operations of a process. Its methods are safe for concurrent use.
type Manager struct {
	recordDir recordDir
	log       *slog.Logger
	// wake tells Run that queue is not empty. Its buffer of one keeps senders, which hold mu, from
	// blocking.
	wake chan struct{}

	// mu guards the fields below and all entries.
	mu           sync.Mutex
	resumeByKind map[Kind]Resume
	entries      map[string]*entry // by id
	// ids are the keys of entries, oldest first.
	ids []string
	// lastIDTime is the time in the newest id. Every new id must be greater.
	lastIDTime time.Time
	// queue holds the operations that Run has yet to start.
	queue     []*entry
	runCalled bool
	// stopping is set when the context of Run has ended: the manager accepts and starts nothing any
	// more.
	stopping bool
}

// entry is what the manager knows of one operation. The manager's mutex guards it.
type entry struct {
	record
	run      Func
	progress *replay.Progress // nil until the operation runs
	meter    progressMeter
	// cancel cancels the context of the operation; nil while the operation does not run.
	cancel context.CancelCauseFunc
	// changed is closed, and replaced, at the next change of the operation.
	changed chan struct{}
	// needsRecovery is set if Open found the operation unfinished and Run has not decided yet
	// whether to continue it.
	needsRecovery bool
}

// Open reads the files of earlier operations. A file that it cannot read is logged and ignored.
// Operations make progress only while [Manager.Run] runs.
func Open(o Options) (*Manager, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Manager{
		recordDir:    recordDir(o.Dir),
		log:          o.Logger,
		wake:         make(chan struct{}, 1),
		resumeByKind: map[Kind]Resume{},
		entries:      map[string]*entry{},
	}

	found, damaged, err := m.recordDir.readAll()
	if err != nil {
		return nil, fmt.Errorf("operation: %w", err)
	}
	for _, err := range damaged {
		m.log.Error("the file of an operation cannot be read, so the operation is unknown", "error", err)
	}

	for _, r := range found {
		m.addEntry(&entry{record: r, needsRecovery: !r.State.Ended()})
		// Ids of this process must be greater than those of earlier ones, whatever the clock says.
		idTime, err := time.Parse(idLayout, r.ID)
		if err == nil && idTime.After(m.lastIDTime) {
			m.lastIDTime = idTime
		}
	}
	return m, nil
}

// OnRestart sets the function that continues operations of a kind after a restart. Call it before
// [Manager.Run].
func (m *Manager) OnRestart(k Kind, r Resume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resumeByKind[k] = r
}

// addEntry registers an operation. The caller holds m.mu, unless no other goroutine knows m yet.
func (m *Manager) addEntry(e *entry) {
	e.changed = make(chan struct{})
	m.entries[e.ID] = e
	m.ids = append(m.ids, e.ID)
}

// Start accepts an operation. run begins at once if [Manager.Run] is running, and when Run is
// called otherwise. args are stored as JSON until the operation ends and are passed to [Resume]
// after a restart; nil means none. Start returns a [*ConflictError] if the operation conflicts with
// one that has not ended, and [ErrClosed] if the manager is stopping.
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

	if m.stopping {
		return Info{}, ErrClosed
	}

	wanted := Info{Kind: k, Projection: projection}
	for _, id := range m.ids {
		if e := m.entries[id]; !e.State.Ended() && isConflict(wanted, e.info()) {
			return Info{}, &ConflictError{With: e.info()}
		}
	}

	now := time.Now().UTC().Truncate(time.Microsecond)
	e := &entry{run: run, record: record{
		ID:         m.allocateID(now),
		Kind:       k,
		Projection: projection,
		Args:       encoded,
		State:      Pending,
		Created:    now,
	}}
	// The file is written before the caller learns the id, so that no operation that a caller knows
	// of is lost.
	if err := m.recordDir.write(&e.record); err != nil {
		return Info{}, fmt.Errorf("operation: the file of the %s cannot be written: %w", k, err)
	}

	m.addEntry(e)
	m.forgetOldest()
	m.enqueue(e)
	return e.info(), nil
}

// allocateID returns an id that is greater than all others, even if the clock was set back. m.mu is
// held.
func (m *Manager) allocateID(now time.Time) string {
	if !now.After(m.lastIDTime) {
		now = m.lastIDTime.Add(time.Microsecond)
	}
	m.lastIDTime = now
	return now.Format(idLayout)
}

// enqueue passes an operation to Run. m.mu is held.
func (m *Manager) enqueue(e *entry) {
	m.queue = append(m.queue, e)
	select {
	case m.wake <- struct{}{}:
	default: // Run has a wake-up pending and will find the whole queue
	}
}

// forgetOldest removes the oldest of the ended operations until at most maxOperations remain. m.mu
// is held.
func (m *Manager) forgetOldest() {
	for i := 0; len(m.ids) > maxOperations && i < len(m.ids); {
		id := m.ids[i]
		if !m.entries[id].State.Ended() {
			i++
			continue
		}

		// If the file stays, the operation only reappears after a restart.
		if err := m.recordDir.remove(id); err != nil {
			m.log.Warn("an old operation cannot be forgotten", "operation", id, "error", err)
		}

		delete(m.entries, id)
		m.ids = slices.Delete(m.ids, i, i+1)
	}
}

// Get returns an operation in its current state, or [ErrNotFound].
func (m *Manager) Get(id string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[id]
	if !ok {
		return Info{}, ErrNotFound
	}
	return e.info(), nil
}

// List returns up to n operations of the kind k, newest first, beginning with the newest whose id
// is below before. An empty k selects all kinds; an empty before starts at the newest operation.
// more reports whether there are further ones.
func (m *Manager) List(k Kind, before string, n int) (found []Info, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Backward(m.ids) {
		e := m.entries[id]
		isOnEarlierPage := before != "" && id >= before
		isOtherKind := k != "" && e.Kind != k
		if isOnEarlierPage || isOtherKind {
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

// RemoveTexts removes the reports and errors of all operations that have ended, except reports of
// erasures, which name no user. Reports list rows, and errors quote the keys of damaged rows. Rows
// name users in many forms, so RemoveTexts does not look for the one who was erased. If the file of
// an operation cannot be written, RemoveTexts continues with the others, and a later call tries
// that one again.
func (m *Manager) RemoveTexts() error {
	m.mu.Lock()
	defer m.mu.Unlock()

	var errs []error
	for _, id := range m.ids {
		e := m.entries[id]
		if !e.State.Ended() {
			continue
		}

		// The file is written before the entry changes, so that the next call finds an entry whose
		// file still has the texts.
		without := e.record
		if without.Error != "" {
			without.Error = removedText
		}
		if without.Report != "" && e.Kind != Erase {
			without.Report = removedText
		}
		// There are no texts, or an earlier call has removed them.
		if without.Report == e.Report && without.Error == e.Error {
			continue
		}
		if err := m.recordDir.write(&without); err != nil {
			errs = append(errs, fmt.Errorf("operation: remove the texts of %s: %w", id, err))
			continue
		}
		e.record = without
		e.notifyWatchers()
	}
	return errors.Join(errs...)
}

// InFlight returns the operations that have not ended, the oldest first.
func (m *Manager) InFlight() (found []Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range m.ids {
		if e := m.entries[id]; !e.State.Ended() {
			found = append(found, e.info())
		}
	}
	return found
}

// Cancel cancels an operation and returns its state. A running operation is asked to stop and ends
// later; a pending one ends at once. An operation that has ended stays as it is. Cancel returns
// [ErrNotFound] for an unknown id.
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
		// Save that the operation is being cancelled before it is, so that a restart in the
		// meantime does not continue it.
		m.saveRecord(e)
		e.cancel(ErrCancelled)
		return e.info(), nil
	}
	// The operation does not run. It has not begun, so it can end here.
	m.finish(e, Cancelled, "", "")
	return e.info(), nil
}

// Watch calls f with the operation as it is now, and again after each change. It returns nil once f
// has seen the operation ended, and otherwise the first error of f, the cause of ctx's end,
// [ErrNotFound], or [ErrClosed] if the manager stops. Changes that come faster than f returns are
// merged into one call.
func (m *Manager) Watch(ctx context.Context, id string, f func(Info) error) error {
	for {
		m.mu.Lock()
		e, ok := m.entries[id]
		if !ok {
			m.mu.Unlock()
			return ErrNotFound
		}
		// Take the channel together with the state, so that no change between them is missed.
		current := e.info()
		changed := e.changed
		stopping := m.stopping
		m.mu.Unlock()

		// f may be slow, so it is called without the lock.
		if err := f(current); err != nil || current.State.Ended() {
			return err
		}
		if stopping {
			return ErrClosed
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// info returns the public view of the entry, with the current progress if the operation runs. m.mu
// is held.
func (e *entry) info() Info {
	i := Info{
		ID:            e.ID,
		Kind:          e.Kind,
		Projection:    e.Projection,
		Args:          e.Args,
		State:         e.State,
		Created:       e.Created,
		Ended:         e.Ended,
		PhaseProgress: e.PhaseProgress,
		Remaining:     -1,
		Error:         e.Error,
		Report:        e.Report,
	}
	if e.progress != nil && !e.State.Ended() {
		i.PhaseProgress = e.progress.Now()
		i.Rate = e.meter.rate()
		i.Remaining = e.meter.remaining(time.Now(), i.Done, i.Total)
	}
	return i
}

// copyProgressToRecord makes the current progress part of what the file stores. m.mu is held.
func (e *entry) copyProgressToRecord() {
	e.PhaseProgress = e.progress.Now()
}

// notifyWatchers wakes up all calls of Watch for this entry. m.mu is held.
func (e *entry) notifyWatchers() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// saveRecord writes the file of an entry. If it fails, it logs the error, and this process
// continues with the new state. After a restart, the old state would hold. m.mu is held.
func (m *Manager) saveRecord(e *entry) {
	if err := m.recordDir.write(&e.record); err != nil {
		m.log.Error("the state of an operation cannot be saved", "operation", e.ID, "state", e.State, "error", err)
	}
}

// finish moves an entry to its final state. failure is the text of the error; empty means none.
// m.mu is held.
func (m *Manager) finish(e *entry, st State, report, failure string) {
	if e.progress != nil {
		e.copyProgressToRecord()
	}
	e.State = st
	e.Ended = time.Now().UTC().Truncate(time.Microsecond)
	e.Report = truncateText(report)
	e.Error = truncateText(failure)
	// These are not needed any more. The manager would keep what they refer to in memory for as
	// long as it remembers the operation.
	e.Args = nil
	e.run = nil
	e.cancel = nil

	m.saveRecord(e)
	e.notifyWatchers()

	m.log.Info("operation ended", "operation", e.ID, "what", e.info().name(), "state", e.State, "error", e.Error,
		"took", e.Ended.Sub(e.Created).Round(time.Millisecond))
}
