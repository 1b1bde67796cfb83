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

// backgroundWriter writes at a steady rate until it is stopped.
type backgroundWriter struct {
	first  int
	cancel context.CancelFunc
	ended  chan error
	calls  atomic.Int64
	// begin says that a call was answered, or that none will be.
	markStarted func()

	mu   sync.Mutex
	last events.Position
	// text is the last position as the service gave it.
	lastText string
}

// startWrites begins to write a tenth of the peak. It returns when a first call was answered: what is timed then is timed beside
// writes, and newest has a position. What failed before is an error of stop.
func (l *latencyBench) startWrites(ctx context.Context) *backgroundWriter {
	ctx, cancel := context.WithCancel(ctx)
	begun := make(chan struct{})
	w := &backgroundWriter{
		first: l.writtenEvents, cancel: cancel, ended: make(chan error, 1), markStarted: sync.OnceFunc(func() { close(begun) }),
	}
	go func() {
		defer w.markStarted()
		w.ended <- w.run(ctx, l)
	}()
	<-begun
	return w
}

func (w *backgroundWriter) run(ctx context.Context, l *latencyBench) error {
	publishers := make([]*programs.Publisher, writeWorkers)
	for i := range publishers {
		publishers[i] = l.skein.NewPublisher()
		defer publishers[i].Transport.CloseIdleConnections()
	}
	var loop measure.OpenLoop
	return loop.Run(ctx, measure.Steady(l.peakWriteRate*writeRateShare/eventsPerWrite), writeWorkers,
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

// note keeps the newest position: calls that are under way together are answered in any order.
func (w *backgroundWriter) recordPosition(text string) error {
	p, err := events.ParsePosition(text)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Seq > w.last.Seq {
		w.last, w.lastText = p, text
	}
	return nil
}

// newest is the position that a write returned last.
func (w *backgroundWriter) newestPosition() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastText
}

// stop ends the writing and returns what failed.
func (w *backgroundWriter) stop(l *latencyBench) error {
	w.cancel()
	err := <-w.ended
	// Calls that were interrupted may be in the log: their numbers are not used again.
	l.writtenEvents += (int(w.calls.Load()) + measure.WaitingCalls) * eventsPerWrite
	return err
}

// rebuilder has a projection rebuilt, again and again, until it is stopped.
type rebuilder struct {
	admin  skeinv1connect.AdminServiceClient
	cancel context.CancelFunc
	done   chan error
	// ended is how many rebuilds did.
	finished atomic.Int64
	mu       sync.Mutex
	// under is the operation that is under way.
	operationID string
}

// startRebuilds has the first rebuild begun when it returns.
func (l *latencyBench) startRebuilds(ctx context.Context, projection string, share float64) (*rebuilder, error) {
	r := &rebuilder{
		admin: skeinv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+l.skein.Addr.String()), done: make(chan error, 1),
	}
	request := &skeinv1.StartRebuildRequest{Projection: projection, Share: share}
	if err := r.begin(ctx, request); err != nil {
		return nil, err
	}
	ctx, r.cancel = context.WithCancel(ctx)
	go func() { r.done <- r.run(ctx, request) }()
	return r, nil
}

func (r *rebuilder) begin(ctx context.Context, request *skeinv1.StartRebuildRequest) error {
	// Not interrupted with ctx: it would continue under a name that is lost.
	res, err := r.admin.StartRebuild(context.WithoutCancel(ctx), connect.NewRequest(request))
	if err != nil {
		return fmt.Errorf("a rebuild of %s did not begin: %w", request.GetProjection(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operationID = res.Msg.GetOperation().GetOperationId()
	return nil
}

func (r *rebuilder) run(ctx context.Context, request *skeinv1.StartRebuildRequest) error {
	for {
		end, err := r.wait(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was stopped
		}
		switch {
		case err != nil:
			return err
		case end.GetState() != skeinv1.OperationState_OPERATION_STATE_SUCCEEDED:
			return fmt.Errorf("a rebuild of %s ended as %v: %s", request.GetProjection(), end.GetState(), end.GetError())
		}
		r.finished.Add(1)
		if err := r.begin(ctx, request); err != nil {
			return err
		}
	}
}

// wait returns the operation under way when it has ended.
func (r *rebuilder) wait(ctx context.Context) (*skeinv1.Operation, error) {
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

func (r *rebuilder) currentOperation() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.operationID
}

// stop cancels the rebuild under way, waits for its end, and returns what failed.
func (r *rebuilder) stop(ctx context.Context) error {
	r.cancel()
	failed := <-r.done
	_, err := r.admin.CancelOperation(ctx, connect.NewRequest(&skeinv1.CancelOperationRequest{OperationId: r.currentOperation()}))
	if err == nil {
		_, err = r.wait(ctx)
	}
	return errors.Join(failed, err)
}
