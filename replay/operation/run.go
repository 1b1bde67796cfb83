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

// interrupted is the error of an operation that a restart has interrupted and that cannot be continued.
const interrupted = "interrupted by a restart"

// errStopping is the cause of the end of the context of an operation when the process stops.
var errStopping = errors.New("operation: the process is stopping")

// Run does the operations until ctx ends, then interrupts them, waits for them and returns nil. First it continues with what an
// earlier process had begun. It is called once.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	if m.running {
		m.mu.Unlock()
		return errors.New("operation: a manager runs once")
	}
	m.running = true
	m.recover()
	m.mu.Unlock()
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	defer func() {
		m.close()
		stop(errStopping)
		all.Wait()
		m.tellAll()
	}()
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			m.sample(time.Now())
		case <-m.wake:
			for _, e := range m.take() {
				all.Go(func() { m.do(working, e) })
			}
		}
	}
}

// recover decides what becomes of operations that the process before left unfinished. m.mu is held.
func (m *Manager) recover() {
	for _, id := range m.order {
		e := m.entries[id]
		if !e.restarted {
			continue
		}
		e.restarted = false
		resume := m.resume[e.Kind]
		switch {
		case e.State.Ended(): // cancelled since
		case e.Cancelling:
			m.end(e, Cancelled, "", interrupted)
		case resume == nil:
			m.end(e, Failed, "", interrupted)
		default:
			resumed, err := resume(e.info())
			if err != nil {
				m.end(e, Failed, "", interrupted+"; it cannot go on: "+err.Error())
				continue
			}
			e.run = resumed
			m.log.Info("operation goes on after a restart", "operation", e.ID, "what", e.info().name())
			m.enqueue(e)
		}
	}
}

// take empties the queue.
func (m *Manager) take() []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := m.queue
	m.queue = nil
	return queue
}

// close refuses what comes from now on.
func (m *Manager) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// tellAll wakes all who watch.
func (m *Manager) tellAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		e.tell()
	}
}

// sample takes a sample of the progress of all operations.
func (m *Manager) sample(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range m.order {
		e := m.entries[id]
		if e.progress != nil && !e.State.Ended() && e.meter.takeSample(e.progress, now) {
			e.tell()
		}
	}
}

// do does one operation.
func (m *Manager) do(ctx context.Context, e *entry) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	run, p := m.begin(e, cancel)
	if run == nil {
		return
	}
	report, err := m.protected(ctx, e.ID, run, p)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.end(e, Succeeded, report, "")
	case e.Cancelling:
		failure := err.Error()
		if errors.Is(err, context.Canceled) || errors.Is(err, ErrCancelled) {
			failure = ""
		}
		m.end(e, Cancelled, report, failure)
	case errors.Is(context.Cause(ctx), errStopping):
		// It stays as it is: the next process continues with it, or says that it was interrupted.
		e.keepProgress()
		m.save(e)
	default:
		m.end(e, Failed, report, err.Error())
	}
}

// begin marks an operation as running. It returns nil if the operation was cancelled before.
func (m *Manager) begin(e *entry, cancel context.CancelCauseFunc) (Func, *replay.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.State.Ended() || m.closed {
		return nil, nil
	}
	e.State, e.progress, e.cancel = Running, &replay.Progress{}, cancel
	m.save(e)
	e.tell()
	m.log.Info("operation begins", "operation", e.ID, "what", e.info().name())
	return e.run, e.progress
}

// protected does an operation and turns a panic into its failure, so that the process continues to serve.
func (m *Manager) protected(ctx context.Context, id string, run Func, p *replay.Progress) (report string, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			m.log.Error("an operation panicked", "operation", id, "panic", panicked, "stack", string(debug.Stack()))
			report, err = "", fmt.Errorf("panic: %v; the log of the service says more", panicked)
		}
	}()
	return run(ctx, p)
}

// bounded cuts a text for people to what a file may hold.
func bounded(s string) string {
	const more = "\n… (cut)"
	if len(s) <= reportBytes {
		return s
	}
	return strings.ToValidUTF8(s[:reportBytes-len(more)], "") + more
}
