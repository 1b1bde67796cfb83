package eventservice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Watch reads the log by itself, beside the projections. So a slow client only delays its own
// stream.
//
// An event of the log has a position (its envelope) and a slot (its place in the envelope). A
// message of the stream has the position after its event: for the last event of an envelope, that
// is the position of the envelope; for the others, it also counts the slots before it. A client
// that continues after any message gets the next event, even in the middle of an envelope.

const (
	// defaultCheckpointInterval is the time without an event after which a checkpoint is sent.
	defaultCheckpointInterval = 5 * time.Second
	// maxBatchBytes limits the envelopes of one batch, as they stand in the log. A watch holds up
	// to two batches: one that it sends, and one that it has read ahead.
	maxBatchBytes = 256 << 10
	// earliestPosition is the value of the field after that means the position before all events.
	earliestPosition = "EARLIEST"
)

// validKinds lists all kinds of events, for an error.
func validKinds() string {
	var names []string
	for _, k := range events.AllKinds.Slice() {
		names = append(names, k.String())
	}
	return request.OrList(names)
}

// ValidateWatch checks the kinds, the users, and the spelling of EARLIEST.
func ValidateWatch(c *request.Checker, req *skeinv1.WatchRequest) {
	for i, name := range req.GetKinds() {
		if _, ok := events.ParseKind(name); !ok {
			c.Refuse(fmt.Sprintf("kinds[%d]", i), "must be %s, not %q", validKinds(), name)
		}
	}
	c.RequireIDs("user_ids", req.GetUserIds())
	if after := req.GetAfter(); after != earliestPosition && strings.EqualFold(after, earliestPosition) {
		c.Refuse("after", "%q is no position: the position before all events is %q", after, earliestPosition)
	}
}

// Watch streams the events of the log that the projections fold: without malformed events and
// repeats.
func (s *Service) Watch(
	ctx context.Context, req *skeinv1.WatchRequest, out call.Stream[skeinv1.WatchResponse],
) error {
	s.Metrics.Watches.Streams.Add(1)
	defer s.Metrics.Watches.Streams.Add(-1)
	kinds := events.AllKinds
	if len(req.GetKinds()) > 0 {
		kinds = 0
		for _, name := range req.GetKinds() {
			k, _ := events.ParseKind(name) // ValidateWatch has checked the name
			kinds |= events.Kinds(k)
		}
	}

	start, cursor, err := s.startOfWatch(ctx, req.GetAfter())
	if err != nil {
		return s.WatchError(ctx, err)
	}
	// A detached subscription does not hold the hub back for a slow client.
	sub, err := s.Hub.SubscribeDetached(cursor, kinds)
	if err != nil {
		return s.WatchError(ctx, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	batches := readAhead(ctx, sub)
	defer func() {
		cancel()
		sub.Close()
		for range batches { // wait until the goroutine of readAhead has ended
		}
	}()

	w := &watcher{s: s, out: out, kinds: kinds, start: start, position: start.String()}
	if len(req.GetUserIds()) > 0 {
		w.users = map[string]bool{}
		for _, user := range req.GetUserIds() {
			w.users[user] = true
		}
	}
	if err := w.run(ctx, batches); err != nil {
		return s.WatchError(ctx, err)
	}
	return nil
}

// startOfWatch returns the position after which a watch begins, and the cursor from which the log
// must be read for that. The cursor is before the envelope of the position if the position is in
// the middle of it.
func (s *Service) startOfWatch(ctx context.Context, after string) (start events.EventPosition, c events.Cursor, err error) {
	d := views.Demand{Field: "after", Reason: skeinv1.Reason_REASON_INVALID_POSITION}
	switch after {
	case "":
		head, err := s.Log.Head(ctx)
		if err != nil {
			return start, c, err
		}
		start.Position = s.Log.Position(head.Last)
	case earliestPosition:
		seq, err := s.Hub.EarliestSeq(ctx)
		if err != nil {
			return start, c, err
		}
		start.Position = s.Log.Position(seq)
	default:
		start, err = events.ParseEventPosition(after)
		if err != nil {
			return start, c, d.InvalidError("is no position: send the position of an answer exactly as it came", err)
		}
		if err := d.PositionError(s.Log.CheckPosition(ctx, start.Position)); err != nil {
			return start, c, err
		}
		// The position may be of an earlier epoch. Its sequence is also valid in the present one.
		start.Position = s.Log.Position(start.Seq)
	}

	seq := start.Seq
	if start.Slots > 0 {
		// The rest of the envelope has not been sent, and the log is read in whole envelopes.
		seq--
	}
	c, err = s.Hub.CursorAt(ctx, seq)
	return start, c, err
}

// batch has the envelopes of one read of the log, or its error.
type batch struct {
	envs []*events.Envelope
	err  error
}

// readAhead reads batches in a goroutine, one batch ahead of the receiver, until the context ends
// or a read fails. It then closes the channel.
//
// The goroutine lets the watcher send a checkpoint while a read goes on. If the watcher itself
// read, it would have to interrupt the read for that, and a read from the archive may take long.
func readAhead(ctx context.Context, sub *eventlog.Subscription) <-chan batch {
	batches := make(chan batch)
	go func() {
		defer close(batches)
		for {
			envs, err := sub.Next(ctx, maxBatchBytes)
			select {
			case batches <- batch{envs, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return batches
}

// watcher sends the events of one stream.
type watcher struct {
	s     *Service
	out   call.Stream[skeinv1.WatchResponse]
	kinds events.KindSet
	// users are the users whose events are sent. nil means all users.
	users map[string]bool
	start events.EventPosition
	// position is the position up to which everything that the client asked for was sent.
	position string
	lastSend time.Time
}

// run sends events and checkpoints until the context ends or the log cannot be read.
func (w *watcher) run(ctx context.Context, batches <-chan batch) error {
	// The first checkpoint tells the client that the watch has begun, and where.
	if err := w.sendCheckpoint(); err != nil {
		return err
	}
	interval := w.s.CheckpointInterval
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case b := <-batches:
			for _, env := range b.envs {
				if err := w.sendEnvelope(env); err != nil {
					return err
				}
			}
			if b.err != nil {
				return b.err
			}
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// This is also needed without the timer: a log full of events that this client has not
		// asked for must not keep it without checkpoints.
		if time.Since(w.lastSend) >= interval {
			if err := w.sendCheckpoint(); err != nil {
				return err
			}
		}
		timer.Reset(interval - time.Since(w.lastSend))
	}
}

// sendEnvelope sends the events of an envelope that the client has asked for.
func (w *watcher) sendEnvelope(env *events.Envelope) error {
	after := events.EventPosition{Position: w.s.Log.Position(env.Seq())}
	afterEnvelope := after.String()
	for i := range env.Events {
		ev := &env.Events[i]
		wasSentBefore := env.Seq() == w.start.Seq && int(ev.Slot) < w.start.Slots
		if !w.wants(ev) || wasSentBefore {
			continue
		}
		// A client that resumes after the last event need not read the envelope again.
		w.position = afterEnvelope
		if i < len(env.Events)-1 {
			after.Slots = int(ev.Slot) + 1
			w.position = after.String()
		}
		w.s.Metrics.Watches.Events.Add(1)
		if err := w.send(&skeinv1.WatchResponse{
			Position: w.position, Event: ev.Proto(), EventTime: timestamppb.New(ev.Time.Time()),
		}); err != nil {
			return err
		}
	}
	// The next checkpoint is after this envelope, even if the client wanted none of its events.
	w.position = afterEnvelope
	return nil
}

// wants reports whether the client has asked for the kind and for one of the users of an event.
func (w *watcher) wants(ev *events.Event) bool {
	return w.kinds.Has(ev.Kind) && (w.users == nil || w.users[ev.User] || w.users[ev.Peer])
}

// sendCheckpoint sends a message without an event. It says up to which position the log was read.
func (w *watcher) sendCheckpoint() error {
	return w.send(&skeinv1.WatchResponse{Position: w.position})
}

func (w *watcher) send(part *skeinv1.WatchResponse) error {
	err := w.out.Send(part)
	w.lastSend = time.Now()
	return err
}

// WatchError returns the error that a watch answers if the log cannot be read because of err. It
// returns errors that are not of the log unchanged.
func (s *Service) WatchError(ctx context.Context, err error) error {
	unavailable := &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_LOG_UNAVAILABLE, Retry: apierror.RetrySoon, Cause: err,
		Text: "the log cannot be read at the moment",
	}
	switch {
	case errors.Is(err, events.ErrLogUnavailable), errors.Is(err, events.ErrClosed):
		return unavailable
	case !errors.Is(err, events.ErrTrimmed):
		return err
	}

	// The client asked for events that were removed. Tell it where it can continue.
	seq, earliestErr := s.Hub.EarliestSeq(ctx)
	if earliestErr != nil {
		return unavailable
	}
	earliest := s.Log.Position(seq).String()
	return &apierror.Failure{
		Code: connect.CodeOutOfRange, Reason: skeinv1.Reason_REASON_POSITION_TRIMMED, Cause: err,
		Metadata: map[string]string{"earliest": earliest},
		Text:     "the log no longer has the events after this position; the earliest position after which it has all events is " + earliest,
	}
}
