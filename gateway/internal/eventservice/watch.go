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

const (
	// watchPeriod is after how long without an event a checkpoint is sent.
	watchPeriod = 5 * time.Second
	// watchBytes bounds the envelopes, as they stand in the log, that a watch reads ahead of its client, twice.
	watchBytes = 256 << 10
	// earliest is the position before all events.
	earliest = "EARLIEST"
)

// kindsWanted names every kind of events.
func kindsWanted() string {
	var names []string
	for _, k := range events.AllKinds.Slice() {
		names = append(names, k.String())
	}
	return request.OrList(names)
}

// ValidateWatch looks at the kinds, at the users, and at how the position before all events is spelled.
func ValidateWatch(c *request.Checker, req *skeinv1.WatchRequest) {
	for i, name := range req.GetKinds() {
		if _, ok := events.ParseKind(name); !ok {
			c.Found = append(c.Found, apierror.InvalidField(fmt.Sprintf("kinds[%d]", i),
				"must be %s, not %q", kindsWanted(), name))
		}
	}
	c.IDs("user_ids", req.GetUserIds())
	if a := req.GetAfter(); a != earliest && strings.EqualFold(a, earliest) {
		c.Found = append(c.Found, apierror.InvalidField("after", "%q is no position: the position before all events is %q", a, earliest))
	}
}

// Watch streams what the reader of the log lets pass, as the folds get it. It reads beside them: a client that is slow
// reads for itself, and delays no other reader.
func (s *Service) Watch(
	ctx context.Context, req *skeinv1.WatchRequest, out call.Stream[skeinv1.WatchResponse],
) error {
	s.Metrics.Watches.Streams.Add(1)
	defer s.Metrics.Watches.Streams.Add(-1)
	kinds := events.AllKinds
	if len(req.GetKinds()) > 0 {
		kinds = 0
		for _, name := range req.GetKinds() {
			k, _ := events.ParseKind(name)
			kinds |= events.Kinds(k)
		}
	}
	from, cursor, err := s.watchFrom(ctx, req.GetAfter())
	if err != nil {
		return s.WatchFailure(ctx, err)
	}
	sub, err := s.Hub.SubscribeDetached(cursor, kinds)
	if err != nil {
		return s.WatchFailure(ctx, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	read := readAhead(ctx, sub)
	defer func() {
		cancel()
		sub.Close()
		for range read.batches { // until its goroutine has ended
		}
	}()
	w := &watcher{s: s, out: out, kinds: kinds, from: from, at: from.String()}
	if len(req.GetUserIds()) > 0 {
		w.users = map[string]bool{}
		for _, user := range req.GetUserIds() {
			w.users[user] = true
		}
	}
	if err := w.run(ctx, read); err != nil {
		return s.WatchFailure(ctx, err)
	}
	return nil
}

// watchFrom finds where a watch begins: the position, and the cursor at or before it from which the log is read.
func (s *Service) watchFrom(ctx context.Context, after string) (at events.EventPosition, c events.Cursor, err error) {
	d := views.Demand{Field: "after", Reason: skeinv1.Reason_REASON_INVALID_POSITION}
	switch after {
	case "":
		head, err := s.Log.Head(ctx)
		if err != nil {
			return at, c, err
		}
		at.Position = s.Log.Position(head.Last)
	case earliest:
		seq, err := s.Hub.EarliestSeq(ctx)
		if err != nil {
			return at, c, err
		}
		at.Position = s.Log.Position(seq)
	default:
		if at, err = events.ParseEventPosition(after); err != nil {
			return at, c, d.Refused("is no position: send the position of an answer exactly as it came", err)
		}
		if err := d.PositionError(s.Log.CheckPosition(ctx, at.Position)); err != nil {
			return at, c, err
		}
		// Of an epoch before it may be; its sequences are those of the present one.
		at.Position = s.Log.Position(at.Seq)
	}
	seq := at.Seq
	if at.Slots > 0 {
		seq-- // the rest of the envelope is still to come
	}
	c, err = s.Hub.CursorAt(ctx, seq)
	return at, c, err
}

// readResult is what one step of reading gave.
type readResult struct {
	envs []*events.Envelope
	err  error
}

// reading ahead of the client.
type aheadReader struct{ batches chan readResult }

// readAhead reads until the context ends or the reading fails, one step ahead of who takes. So a checkpoint that is due
// interrupts no reading, which may be of an archive far away.
func readAhead(ctx context.Context, sub *eventlog.Subscription) aheadReader {
	r := aheadReader{make(chan readResult)}
	go func() {
		defer close(r.batches)
		for {
			envs, err := sub.Next(ctx, watchBytes)
			select {
			case r.batches <- readResult{envs, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return r
}

// watcher sends what was read to one client.
type watcher struct {
	s     *Service
	out   call.Stream[skeinv1.WatchResponse]
	kinds events.KindSet
	// users are those whose events are wanted; nil means all.
	users map[string]bool
	from  events.EventPosition
	// at is the position up to which all was sent that is wanted, and sent when that was said.
	at   string
	sent time.Time
}

// run sends until the context ends.
func (w *watcher) run(ctx context.Context, read aheadReader) error {
	if err := w.checkpoint(); err != nil {
		return err
	}
	timer := time.NewTimer(w.s.Checkpoints)
	defer timer.Stop()
	for {
		select {
		case r := <-read.batches:
			for _, env := range r.envs {
				if err := w.envelope(env); err != nil {
					return err
				}
			}
			if r.err != nil {
				return r.err
			}
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if time.Since(w.sent) >= w.s.Checkpoints {
			if err := w.checkpoint(); err != nil {
				return err
			}
		}
		timer.Reset(w.s.Checkpoints - time.Since(w.sent))
	}
}

// envelope sends the events of an envelope that are wanted. The last of the envelope has its position; those before have
// the position after them within it, so that a client that continues there gets the rest.
func (w *watcher) envelope(env *events.Envelope) error {
	after := events.EventPosition{Position: w.s.Log.Position(env.Seq())}
	whole := after.String()
	for i := range env.Events {
		ev := &env.Events[i]
		if !w.wants(ev) || env.Seq() == w.from.Seq && int(ev.Slot) < w.from.Slots {
			continue
		}
		w.at = whole
		if i < len(env.Events)-1 {
			after.Slots = int(ev.Slot) + 1
			w.at = after.String()
		}
		w.s.Metrics.Watches.Events.Add(1)
		if err := w.send(&skeinv1.WatchResponse{
			Position: w.at, Event: ev.Proto(), EventTime: timestamppb.New(ev.Time.Time()),
		}); err != nil {
			return err
		}
	}
	w.at = whole
	return nil
}

// wants reports whether an event is of the kinds and users asked for.
func (w *watcher) wants(ev *events.Event) bool {
	return w.kinds.Has(ev.Kind) && (w.users == nil || w.users[ev.User] || w.users[ev.Peer])
}

// checkpoint says how far the log was read.
func (w *watcher) checkpoint() error {
	return w.send(&skeinv1.WatchResponse{Position: w.at})
}

func (w *watcher) send(part *skeinv1.WatchResponse) error {
	err := w.out.Send(part)
	w.sent = time.Now()
	return err
}

// WatchFailure says why a watch cannot begin or continue.
func (s *Service) WatchFailure(ctx context.Context, err error) error {
	f := &apierror.Failure{
		Code: connect.CodeUnavailable, Reason: skeinv1.Reason_REASON_LOG_UNAVAILABLE, Retry: apierror.RetrySoon, Cause: err,
		Text: "the log cannot be read at the moment",
	}
	switch {
	case errors.Is(err, events.ErrLogUnavailable), errors.Is(err, events.ErrClosed):
		return f
	case !errors.Is(err, events.ErrTrimmed):
		return err
	}
	seq, eerr := s.Hub.EarliestSeq(ctx)
	if eerr != nil {
		return f
	}
	first := s.Log.Position(seq).String()
	return &apierror.Failure{
		Code: connect.CodeOutOfRange, Reason: skeinv1.Reason_REASON_POSITION_TRIMMED, Cause: err,
		Metadata: map[string]string{"earliest": first},
		Text:     "the log holds no longer what came after this position; the earliest that one can go on after is " + first,
	}
}
