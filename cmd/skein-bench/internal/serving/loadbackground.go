package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// backgroundWriter writes events at a steady rate until it is stopped.
type backgroundWriter struct {
	// first is the number of the first event that it writes.
	first  int
	cancel context.CancelFunc
	// ended gets the error of the writer, or nil, when the writer has ended.
	ended chan error
	// calls is how many calls were answered.
	calls atomic.Int64
	// markStarted is called when the first call was answered, or when the writer has ended.
	markStarted func()

	mu sync.Mutex
	// last is the newest position that a call has returned, and lastText is that position as the
	// service returned it.
	last     events.Position
	lastText string
}

// startWrites starts to write events at a tenth of the peak rate. It returns when the first call
// was answered, so that calls that are timed from then on run beside writes, and newestPosition has
// a position. If a call fails, stop returns the error.
func (l *latencyBench) startWrites(ctx context.Context) *backgroundWriter {
	ctx, cancel := context.WithCancel(ctx)
	started := make(chan struct{})
	w := &backgroundWriter{
		first:       l.writtenEvents,
		cancel:      cancel,
		ended:       make(chan error, 1),
		markStarted: sync.OnceFunc(func() { close(started) }),
	}
	go func() {
		defer w.markStarted()
		w.ended <- w.run(ctx, l)
	}()
	<-started
	return w
}

// run writes events until the context ends.
func (w *backgroundWriter) run(ctx context.Context, l *latencyBench) error {
	publishers := make([]*programs.Publisher, writeWorkers)
	for i := range publishers {
		publishers[i] = l.skein.NewPublisher()
		defer publishers[i].Transport.CloseIdleConnections()
	}

	var loop measure.OpenLoop
	return loop.Run(ctx, measure.SteadyMoments(l.peakWriteRate*writeRateShare/eventsPerWrite), writeWorkers,
		func(ctx context.Context, worker, i int) error {
			call := &skeinv1.PublishRequest{}
			for ev := range l.world.writtenEvents(w.first+i*eventsPerWrite, eventsPerWrite) {
				call.Events = append(call.Events, ev)
			}
			res, err := publishers[worker].Publish(ctx, connect.NewRequest(call))
			if err != nil {
				return fmt.Errorf("a write failed: %w", err)
			}
			if err := w.recordPosition(res.Msg.GetPosition()); err != nil {
				return err
			}
			w.calls.Add(1)
			w.markStarted()
			return nil
		})
}

// recordPosition keeps the position that a call returned, if it is newer than the last one. Calls
// that run at the same time are answered in any order.
func (w *backgroundWriter) recordPosition(text string) error {
	p, err := events.ParsePosition(text)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Seq > w.last.Seq {
		w.last = p
		w.lastText = text
	}
	return nil
}

// newestPosition returns the newest position that a call has returned.
func (w *backgroundWriter) newestPosition() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastText
}

// stop ends the writer and returns the error of a failed call.
func (w *backgroundWriter) stop(l *latencyBench) error {
	w.cancel()
	err := <-w.ended
	// The log may have the events of calls that were interrupted, so their numbers are not used
	// again.
	l.writtenEvents += (int(w.calls.Load()) + measure.WaitingCalls) * eventsPerWrite
	return err
}

// rebuilder rebuilds a projection, again and again, until it is stopped.
type rebuilder struct {
	admin  skeinv1connect.AdminServiceClient
	cancel context.CancelFunc
	// done gets the error of the rebuilder, or nil, when no further rebuild will start.
	done chan error
	// finished is how many rebuilds have succeeded.
	finished atomic.Int64
	mu       sync.Mutex
	// operationID is the id of the rebuild that runs.
	operationID string
}

// startRebuilds starts a rebuilder with a share of a core. When it returns, the first rebuild has
// started.
func (l *latencyBench) startRebuilds(ctx context.Context, projection string, share float64) (*rebuilder, error) {
	r := &rebuilder{
		admin: skeinv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+l.skein.Addr.String()),
		done:  make(chan error, 1),
	}
	request := &skeinv1.StartRebuildRequest{Projection: projection, Share: share}
	if err := r.startRebuild(ctx, request); err != nil {
		return nil, err
	}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() { r.done <- r.run(ctx, request) }()
	return r, nil
}

// startRebuild starts a rebuild.
func (r *rebuilder) startRebuild(ctx context.Context, request *skeinv1.StartRebuildRequest) error {
	// If the end of ctx interrupted the call, the rebuild could run with an id that nobody knows,
	// and stop could not cancel it.
	res, err := r.admin.StartRebuild(context.WithoutCancel(ctx), connect.NewRequest(request))
	if err != nil {
		return fmt.Errorf("a rebuild of %s did not begin: %w", request.GetProjection(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operationID = res.Msg.GetOperation().GetOperationId()
	return nil
}

// run waits for the end of each rebuild and starts the next one, until the context ends or a
// rebuild fails.
func (r *rebuilder) run(ctx context.Context, request *skeinv1.StartRebuildRequest) error {
	for {
		end, err := r.waitForEnd(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stop has ended the context
		}
		switch {
		case err != nil:
			return err
		case end.GetState() != skeinv1.OperationState_OPERATION_STATE_SUCCEEDED:
			return fmt.Errorf("a rebuild of %s ended as %v: %s", request.GetProjection(), end.GetState(), end.GetError())
		}
		r.finished.Add(1)
		if err := r.startRebuild(ctx, request); err != nil {
			return err
		}
	}
}

// waitForEnd returns the rebuild that runs when it has ended.
func (r *rebuilder) waitForEnd(ctx context.Context) (*skeinv1.Operation, error) {
	ticker := time.NewTicker(programs.PollInterval)
	defer ticker.Stop()
	for {
		res, err := r.admin.GetOperation(ctx, connect.NewRequest(&skeinv1.GetOperationRequest{OperationId: r.currentOperation()}))
		if err != nil {
			return nil, err
		}
		switch op := res.Msg.GetOperation(); op.GetState() {
		case skeinv1.OperationState_OPERATION_STATE_PENDING, skeinv1.OperationState_OPERATION_STATE_RUNNING:
		default:
			return op, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// currentOperation returns the id of the rebuild that runs.
func (r *rebuilder) currentOperation() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.operationID
}

// stop cancels the rebuild that runs and waits for its end. It returns the error of a rebuild that
// failed before.
func (r *rebuilder) stop(ctx context.Context) error {
	r.cancel()
	rebuildErr := <-r.done
	_, err := r.admin.CancelOperation(ctx, connect.NewRequest(&skeinv1.CancelOperationRequest{OperationId: r.currentOperation()}))
	if err == nil {
		_, err = r.waitForEnd(ctx)
	}
	return errors.Join(rebuildErr, err)
}
