package operation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/skein-feed/skein/replay"
)

// interruptedText is the error of an operation that a restart has interrupted and that cannot be
// continued.
const interruptedText = "interrupted by a restart"

// errStopping is the cause with which the contexts of all operations end when the process stops.
var errStopping = errors.New("operation: the process is stopping")

// Run runs the operations until ctx ends. Then it cancels them, waits until they have returned, and
// returns nil. When it starts, Run first continues the operations that an earlier process left
// unfinished. Call Run once.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.runCalled {
		m.mu.Unlock()
		return errors.New("operation: a manager runs once")
	}
	m.runCalled = true
	m.resumeUnfinished()
	m.mu.Unlock()

	// Operations must end with the cause errStopping, by which runOperation tells a stop of the
	// process from a failure. So their context is not canceled together with ctx, but by the
	// deferred function below.
	operationCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var operations sync.WaitGroup
	defer func() {
		m.rejectNewOperations()
		stop(errStopping)
		operations.Wait()
		// The final states are set. Now wake up those who watch operations that stay unfinished.
		m.notifyAllWatchers()
	}()

	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			m.sampleProgress(time.Now())
		case <-m.wake:
			for _, e := range m.takeQueue() {
				operations.Go(func() { m.runOperation(operationCtx, e) })
			}
		}
	}
}

// resumeUnfinished decides which of the operations that an earlier process left unfinished are
// continued. m.mu is held.
func (m *Manager) resumeUnfinished() {
	for _, id := range m.ids {
		e := m.entries[id]
		if !e.needsRecovery {
			continue
		}
		e.needsRecovery = false

		resume := m.resumeByKind[e.Kind]
		switch {
		case e.State.Ended(): // an operator cancelled it before Run was called
		case e.Cancelling:
			m.finish(e, Cancelled, "", interruptedText)
		case resume == nil:
			m.finish(e, Failed, "", interruptedText)
		default:
			resumed, err := resume(e.info())
			if err != nil {
				m.finish(e, Failed, "", interruptedText+"; it cannot be continued: "+err.Error())
				continue
			}

			e.run = resumed
			m.log.Info("operation continues after a restart", "operation", e.ID, "what", e.info().name())
			m.enqueue(e)
		}
	}
}

// takeQueue empties the queue and returns what was in it.
func (m *Manager) takeQueue() []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := m.queue
	m.queue = nil
	return queue
}

// rejectNewOperations makes Start reject all operations from now on.
func (m *Manager) rejectNewOperations() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
}

// notifyAllWatchers wakes up all calls of Watch.
func (m *Manager) notifyAllWatchers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		e.notifyWatchers()
	}
}

// sampleProgress samples the progress of all running operations and notifies the watchers of those
// that have made progress.
func (m *Manager) sampleProgress(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range m.ids {
		e := m.entries[id]
		if e.progress != nil && !e.State.Ended() && e.meter.takeSample(e.progress, now) {
			e.notifyWatchers()
		}
	}
}

// runOperation runs one operation to its end and records the outcome. It does nothing if the
// operation was cancelled before.
func (m *Manager) runOperation(ctx context.Context, e *entry) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	run, p := m.markRunning(e, cancel)
	if run == nil {
		return
	}
	report, err := m.callAndRecover(ctx, e.ID, run, p)

	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.finish(e, Succeeded, report, "")
	case e.Cancelling:
		// The error says no more than the state if it only reports that the context has ended.
		failure := err.Error()
		if errors.Is(err, context.Canceled) || errors.Is(err, ErrCancelled) {
			failure = ""
		}
		m.finish(e, Cancelled, report, failure)
	case errors.Is(context.Cause(ctx), errStopping):
		// The operation stays in the state Running: the next process continues it or marks it as
		// failed.
		e.copyProgressToRecord()
		m.saveRecord(e)
	default:
		m.finish(e, Failed, report, err.Error())
	}
}

// markRunning marks an operation as running. It returns nil if the operation was cancelled before,
// or if the process is stopping.
func (m *Manager) markRunning(e *entry, cancel context.CancelCauseFunc) (Func, *replay.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.State.Ended() || m.stopping {
		return nil, nil
	}
	e.State = Running
	e.progress = &replay.Progress{}
	e.cancel = cancel
	m.saveRecord(e)
	e.notifyWatchers()
	m.log.Info("operation begins", "operation", e.ID, "what", e.info().name())
	return e.run, e.progress
}

// callAndRecover calls run and turns a panic into an error, so that the process continues to serve.
func (m *Manager) callAndRecover(ctx context.Context, id string, run Func, p *replay.Progress) (report string, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			m.log.Error("an operation panicked", "operation", id, "panic", panicked, "stack", string(debug.Stack()))
			report = ""
			err = fmt.Errorf("panic: %v; the log of the service says more", panicked)
		}
	}()
	return run(ctx, p)
}

// truncateText cuts the text to maxTextBytes and marks the cut.
func truncateText(s string) string {
	const more = "\n… (cut)"
	if len(s) <= maxTextBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxTextBytes-len(more)], "") + more
}
