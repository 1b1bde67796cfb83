package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// storeState is what the server remembers of a store between calls.
type storeState struct {
	names positions
	// caughtUp is set when the store has once been at the head of the log, and stays.
	caughtUp atomic.Bool
}

// rebuilding reports whether the store has not caught up with the log for the first time.
func (m *storeState) rebuilding(store *projections.Live) bool {
	if !m.caughtUp.Load() && store.Status().State.CaughtUp() {
		m.caughtUp.Store(true)
	}
	return !m.caughtUp.Load()
}

// opened is a store at one position, for the whole of one answer. It must be closed.
type opened struct {
	view *projections.View
	// at is the position of the view, and position its text.
	at       events.Position
	position string
}

func (o *opened) close() { _ = o.view.Close() }

// reading is the graph at one position.
type reading struct {
	*graph.Queries
	opened
}

// feedReading is the inbox at one position.
type feedReading struct {
	*inbox.Queries
	opened
	// rebuilding tells that the store had not caught up with the log for the first time.
	rebuilding bool
}

// demand is a position that an answer must contain.
type demand struct {
	pos events.Position
	// field is where the request says so.
	field  string
	reason skeinv1.Reason
}

// demandOf reads at_least. An empty one demands nothing.
func demandOf(atLeast string) (demand, error) {
	d := demand{field: "at_least", reason: skeinv1.Reason_REASON_INVALID_POSITION}
	if atLeast == "" {
		return d, nil
	}
	pos, err := events.ParsePosition(atLeast)
	if err != nil {
		return d, d.refused("is no position: send the position of an answer exactly as it came", err)
	}
	d.pos = pos
	return d, nil
}

func (d demand) none() bool { return d.pos == events.Position{} }

func (d demand) refused(text string, cause error) error {
	f := apierror.Invalid(apierror.Violation{Field: d.field, Text: text, Reason: d.reason})
	f.Cause = cause
	return f
}

// openAt returns the graph at a position that contains at_least.
func (s *Server) openAt(ctx context.Context, x *extra, atLeast string) (*reading, error) {
	d, err := demandOf(atLeast)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, x, d)
}

// open returns the graph at a position that contains all that is demanded. x may be nil.
func (s *Server) open(ctx context.Context, x *extra, demands ...demand) (*reading, error) {
	o, err := s.openStore(ctx, s.graph, &s.names, x, demands)
	if err != nil {
		return nil, err
	}
	return &reading{Queries: graph.HotQuery(o.view), opened: o}, nil
}

// openFeed returns the inbox at a position that contains all that is demanded.
func (s *Server) openFeed(ctx context.Context, x *extra, demands ...demand) (*feedReading, error) {
	// Asked before the view is taken: a view of a store that has caught up lacks nothing that had to be built again.
	rebuilding := s.inboxState.rebuilding(s.inbox)
	o, err := s.openStore(ctx, s.inbox, &s.inboxState.names, x, demands)
	if err != nil {
		return nil, err
	}
	return &feedReading{Queries: inbox.HotQuery(o.view), opened: o, rebuilding: rebuilding}, nil
}

// openStore returns a store at a position that contains all that is demanded. x may be nil.
func (s *Server) openStore(
	ctx context.Context, store *projections.Live, names *positions, x *extra, demands []demand,
) (o opened, err error) {
	view, err := store.View()
	if err != nil {
		return o, err
	}
	for _, d := range demands {
		if d.none() || s.contains(view, d.pos) {
			continue
		}
		_ = view.Close()
		if err := s.await(ctx, store, d); err != nil {
			return o, err
		}
		if view, err = store.View(); err != nil {
			return o, err
		}
	}
	at := s.source.Position(view.Cursor().Seq)
	if x != nil {
		x.lag = max(0, int64(s.hub.Head())-int64(at.Seq))
	}
	return opened{view: view, at: at, position: names.of(at)}, nil
}

// contains tells without asking the log that a view contains a position. Where it says no, the log knows better: the
// position may be of an epoch that came before.
func (s *Server) contains(v *projections.View, p events.Position) bool {
	own := s.source.Position(v.Cursor().Seq)
	return p.Log == own.Log && p.Epoch == own.Epoch && p.Seq <= own.Seq
}

// await waits until a store contains a position.
func (s *Server) await(ctx context.Context, store *projections.Live, d demand) error {
	if d.none() {
		return nil
	}
	ctx, cancel := s.patient(ctx, s.limits.AtLeastWait)
	defer cancel()
	err := s.source.CheckPosition(ctx, d.pos)
	if err == nil || errors.Is(err, events.ErrLogUnavailable) {
		// A log that cannot be asked at the moment is read again in a moment.
		err = store.WaitFor(ctx, d.pos.Seq)
	}
	if err != nil && errors.Is(context.Cause(ctx), errNotCaughtUp) {
		return errNotCaughtUp
	}
	if hole, ok := errors.AsType[*eventlog.HoleError](err); ok {
		return heldBy(hole, store.Cursor().Seq, s.source, err)
	}
	return d.check(err)
}

// heldBy refuses to wait for what comes after a hole of the log.
func heldBy(hole *eventlog.HoleError, seq uint64, log *eventlog.Log, cause error) error {
	at := log.Position(seq).String()
	return &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_LOG_HOLE, Retry: apierror.RetryLater, Cause: cause,
		Text: fmt.Sprintf("the log has lost its sequences %d to %d, and nothing is folded across them: the state stands at %s; "+
			"reads without a position continue from there", hole.First, hole.Last, at),
		Metadata: map[string]string{"position": at},
	}
}

// check tells what is wrong with a position that the log does not know.
func (d demand) check(err error) error {
	switch {
	case errors.Is(err, events.ErrOtherLog):
		return d.refused("is of another log", err)
	case errors.Is(err, events.ErrOtherEpoch):
		return d.refused("is of another epoch of the log", err)
	case errors.Is(err, events.ErrPositionAhead):
		return d.refused("is beyond the end of the log", err)
	}
	return err
}

// errNotCaughtUp ends a wait for a position.
var errNotCaughtUp = errors.New("the state that contains the position was not reached in time")

// patient bounds a wait. It ends a little before the caller's own deadline, so that the caller hears why.
func (s *Server) patient(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		limit = min(limit, left-min(left/10, 100*time.Millisecond))
	}
	return context.WithTimeoutCause(ctx, limit, errNotCaughtUp)
}

// positions makes the text of a position once, not once an answer.
type positions struct{ last atomic.Pointer[namedPosition] }

type namedPosition struct {
	pos  events.Position
	text string
}

func (p *positions) of(pos events.Position) string {
	if last := p.last.Load(); last != nil && last.pos == pos {
		return last.text
	}
	named := &namedPosition{pos: pos, text: pos.String()}
	p.last.Store(named)
	return named.text
}
