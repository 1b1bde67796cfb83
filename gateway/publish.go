package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// checkPublish looks at the call. Its events are judged one by one, so that allow_partial can tell good from bad.
func checkPublish(req *skeinv1.PublishRequest) []violation {
	var c checker
	if n := len(req.GetEvents()); n > events.MaxEnvelopeEvents {
		c.found = append(c.found, violation{
			field: "events", reason: skeinv1.Reason_REASON_TOO_LARGE,
			text: fmt.Sprintf("has %d events: at most %d", n, events.MaxEnvelopeEvents),
		})
	} else {
		c.length("events", n, 1)
	}
	if w := req.GetWait(); w < 0 || w > skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE {
		c.found = append(c.found, invalidField("wait", "must be LOGGED or VISIBLE"))
	}
	return c.found
}

func (s *Server) publish(
	ctx context.Context, req *skeinv1.PublishRequest, _ *extra,
) (*skeinv1.PublishResponse, error) {
	if err := s.room(); err != nil {
		return nil, err
	}
	refused, err := s.judge(ctx, req.GetEvents())
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 && !req.GetAllowPartial() {
		return nil, refusedCall(refused)
	}
	res := &skeinv1.PublishResponse{EventIds: make([]string, len(req.GetEvents()))}
	for _, r := range refused {
		res.Rejections = append(res.Rejections, &skeinv1.Rejection{
			Index: int32(r.Index), Reason: r.Reason, Field: r.Field, Message: r.Message,
		})
	}
	pos, err := s.appendGood(ctx, req.GetEvents(), refused, res)
	if err != nil || res.GetAcceptedCount() == 0 {
		return res, err
	}
	if req.GetWait() == skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE {
		if err := s.awaitVisible(ctx, pos); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// judge finds the events that must be refused, in order: malformed ones, those with the event id of another of the call, and
// follows beyond the followee cap.
func (s *Server) judge(ctx context.Context, evs []*skeinv1.Event) ([]events.Rejection, error) {
	var refused []events.Rejection
	good := make([]placed, 0, len(evs))
	for i, msg := range evs {
		ev, r := events.FromProto(msg)
		if r == nil {
			good = append(good, placed{ev, i})
			continue
		}
		r.Index = i
		refused = append(refused, *r)
	}
	good, repeated := withoutRepeats(good)
	over, err := s.overLimit(ctx, good)
	if err != nil {
		return nil, err
	}
	if len(over)+len(repeated) > 0 {
		refused = append(append(refused, repeated...), over...)
		slices.SortFunc(refused, func(a, b events.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	}
	for _, r := range refused {
		s.metrics.rejections.WithLabelValues(reasonName(r.Reason)).Inc()
	}
	return refused, nil
}

// withoutRepeats refuses what repeats the event id of an earlier event of the call: the reader would drop it (I6), and a call that
// says something twice is a mistake.
func withoutRepeats(evs []placed) (kept []placed, refused []events.Rejection) {
	type name struct {
		user, id string
		kind     events.Kind
	}
	first := make(map[name]int)
	for _, p := range evs {
		at, repeats := first[name{p.User, p.ID, p.Kind}]
		if p.ID != "" && repeats {
			refused = append(refused, events.Rejection{
				Index: p.index, Reason: skeinv1.Reason_REASON_EVENT_ID_REUSED, Field: "event_id",
				Message: fmt.Sprintf("event_id is that of events[%d], of the same user and kind: each event needs its own", at),
			})
			continue
		}
		if p.ID != "" {
			first[name{p.User, p.ID, p.Kind}] = p.index
		}
		kept = append(kept, p)
	}
	return kept, refused
}

// appendGood appends the events that were not refused, and fills in what the log took.
func (s *Server) appendGood(
	ctx context.Context, evs []*skeinv1.Event, refused []events.Rejection, res *skeinv1.PublishResponse,
) (events.Position, error) {
	good, places := evs, []int(nil)
	if len(refused) > 0 {
		good = nil
		for i, ev := range evs {
			if len(refused) > 0 && refused[0].Index == i {
				refused = refused[1:]
				continue
			}
			good, places = append(good, ev), append(places, i)
		}
	}
	if len(good) == 0 {
		return events.Position{}, nil
	}
	ctx, parent, end := s.following(ctx, len(good))
	took, err := s.publisher.Publish(ctx, good, events.PublishOptions{Trace: parent})
	end(err)
	if errors.Is(err, events.ErrEnvelopeTooLarge) {
		return events.Position{}, invalid(violation{
			field: "events", reason: skeinv1.Reason_REASON_TOO_LARGE,
			text: "are together larger than the " + sizeText(events.MaxEnvelopeBytes) + " that one call takes",
		})
	}
	if errors.Is(err, events.ErrLogUnavailable) || errors.Is(err, events.ErrClosed) {
		f := asFailure(err)
		f.text += "; nothing was taken"
		return events.Position{}, f
	}
	if err != nil {
		return events.Position{}, err
	}
	s.metrics.accepted.Add(float64(took.Accepted))
	res.Position, res.AcceptedCount = s.names.of(took.Position), int32(took.Accepted)
	for i, id := range took.EventIDs {
		if places != nil {
			i = places[i]
		}
		res.EventIds[i] = id
	}
	return took.Position, nil
}

// awaitVisible waits until every projection shows what was appended. If that does not come in time, the answer says
// where the events are, and that they are taken: published again, they would be there twice.
func (s *Server) awaitVisible(ctx context.Context, pos events.Position) error {
	ctx, cancel := s.patient(ctx, s.limits.VisibleWait)
	defer cancel()
	for _, store := range s.stores {
		err := store.WaitFor(ctx, pos.Seq)
		if err == nil {
			continue
		}
		reason := skeinv1.Reason_REASON_NOT_CAUGHT_UP
		switch {
		case errors.Is(err, events.ErrHole):
			reason = skeinv1.Reason_REASON_LOG_HOLE
		case ctx.Err() == nil:
			reason = skeinv1.Reason_REASON_PROJECTION_UNAVAILABLE
		}
		return &failure{
			code: connect.CodeDeadlineExceeded, reason: reason,
			text: fmt.Sprintf("the events are in the log, but %s does not show them yet: do not publish them again; "+
				"read with at_least %s", store.Name(), pos),
			metadata: map[string]string{"position": pos.String(), "projection": store.Name()},
			cause:    err,
		}
	}
	return nil
}

// refusedCall is the error of a call that is not to be taken in part. It is failed_precondition when nothing is wrong
// with the events but that there are too many follows, and else invalid_argument.
func refusedCall(refused []events.Rejection) error {
	fields := make([]violation, 0, len(refused))
	code := connect.CodeFailedPrecondition
	for _, r := range refused {
		path, text := fmt.Sprintf("events[%d]", r.Index), r.Message
		if r.Field != "" {
			path += "." + r.Field
			text = strings.TrimPrefix(text, r.Field+" ")
		}
		v := violation{field: path, text: text, reason: r.Reason}
		if r.Reason != skeinv1.Reason_REASON_FOLLOWEE_LIMIT && code != connect.CodeInvalidArgument {
			// The first of these gives the call its reason.
			code, fields = connect.CodeInvalidArgument, slices.Insert(fields, 0, v)
			continue
		}
		fields = append(fields, v)
	}
	f := invalid(fields...)
	f.code = code
	return f
}

// sizeText writes a size as people do.
func sizeText(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}
