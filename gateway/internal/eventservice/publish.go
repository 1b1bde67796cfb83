package eventservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidatePublish looks at the call. Its events are judged one by one, so that allow_partial can tell good from bad.
func ValidatePublish(req *skeinv1.PublishRequest) []apierror.Violation {
	var c request.Checker
	if n := len(req.GetEvents()); n > events.MaxEnvelopeEvents {
		c.Found = append(c.Found, apierror.Violation{
			Field: "events", Reason: skeinv1.Reason_REASON_TOO_LARGE,
			Text: fmt.Sprintf("has %d events: at most %d", n, events.MaxEnvelopeEvents),
		})
	} else {
		c.Length("events", n, 1)
	}
	if w := req.GetWait(); w < 0 || w > skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE {
		c.Found = append(c.Found, apierror.InvalidField("wait", "%s", request.EnumWantedOf(req, "wait")))
	}
	return c.Found
}

// Publish appends events, or refuses them, one by one if the call allows that. It answers after the log has them on disk (I2).
func (s *Service) Publish(
	ctx context.Context, req *skeinv1.PublishRequest, _ *call.Info,
) (*skeinv1.PublishResponse, error) {
	if err := s.CheckDisk(); err != nil {
		return nil, err
	}
	refused, repeats, err := s.judge(ctx, req.GetEvents())
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
	took, indexes, err := s.appendGood(ctx, req.GetEvents(), refused, res)
	if err != nil || res.GetAcceptedCount() == 0 {
		return res, err
	}
	res.RepeatedIndexes = repeats
	if req.GetWait() == skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE {
		if err := s.awaitVisible(ctx, took.Position); err != nil {
			return nil, err
		}
		s.NameRepeats(took, indexes, res)
	}
	return res, nil
}

// judge finds the events that must be refused, in order: malformed ones, those with the event id of another of the call, follows beyond
// the followee cap, hidden items beyond their limit, and backfills that cannot count. repeats are the indexes of backfills that the log has already.
func (s *Service) judge(ctx context.Context, evs []*skeinv1.Event) (refused []events.Rejection, repeats []int32, err error) {
	good, refused := events.CheckCall(evs)
	over, err := s.refuseFollowsOverLimit(ctx, good)
	if err != nil {
		return nil, nil, err
	}
	beyond, err := s.beyondHiddenLimit(ctx, good)
	if err != nil {
		return nil, nil, err
	}
	void, repeats, err := s.judgeBackfills(ctx, good)
	if err != nil {
		return nil, nil, err
	}
	if len(over)+len(beyond)+len(void) > 0 {
		refused = slices.Concat(refused, over, beyond, void)
		slices.SortFunc(refused, func(a, b events.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	}
	for _, r := range refused {
		s.Metrics.Rejections.WithLabelValues(apierror.ReasonName(r.Reason)).Inc()
	}
	return refused, repeats, nil
}

// appendGood appends the events that were not refused, and fills in what the log took. indexes are those of those events
// in the call.
func (s *Service) appendGood(
	ctx context.Context, evs []*skeinv1.Event, refused []events.Rejection, res *skeinv1.PublishResponse,
) (took eventlog.Result, indexes []int, err error) {
	good := make([]*skeinv1.Event, 0, len(evs))
	for i, ev := range evs {
		if len(refused) > 0 && refused[0].Index == i {
			refused = refused[1:]
			continue
		}
		good, indexes = append(good, ev), append(indexes, i)
	}
	if len(good) == 0 {
		return took, nil, nil
	}
	ctx, parent, end := s.following(ctx, len(good))
	took, err = s.Publisher.Publish(ctx, good, eventlog.PublishOptions{Trace: parent})
	end(err)
	if errors.Is(err, events.ErrEnvelopeTooLarge) {
		return took, nil, apierror.Invalid(apierror.Violation{
			Field: "events", Reason: skeinv1.Reason_REASON_TOO_LARGE,
			Text: "are together larger than the " + events.FormatSize(events.MaxEnvelopeBytes) + " that one call takes",
		})
	}
	if errors.Is(err, events.ErrLogUnavailable) || errors.Is(err, events.ErrClosed) {
		f := apierror.Of(err)
		f.Text += "; nothing was taken"
		return took, nil, f
	}
	if err != nil {
		return took, nil, err
	}
	s.Metrics.Accepted.Add(float64(len(good)))
	res.Position, res.AcceptedCount = s.names.Of(took.Position), int32(len(good))
	for i, id := range took.EventIDs {
		res.EventIds[indexes[i]] = id
	}
	return took, indexes, nil
}

// NameRepeats fills in what the reader of the log dropped of the events that the log took. It says so only while the envelope is
// in memory: to read it again would take all event ids of the quarter of an hour before it.
func (s *Service) NameRepeats(took eventlog.Result, indexes []int, res *skeinv1.PublishResponse) {
	env := s.Hub.CachedEnvelope(took.Position.Seq)
	if env == nil {
		return
	}
	repeats, reused, known := env.SkippedSlots(took.Slot, len(indexes))
	if !known {
		return
	}
	res.RepeatsKnown = true
	for _, at := range repeats {
		res.RepeatedIndexes = append(res.RepeatedIndexes, int32(indexes[at]))
	}
	slices.Sort(res.RepeatedIndexes)
	res.RepeatedIndexes = slices.Compact(res.RepeatedIndexes) // a backfill may repeat an event id and an offset
	for _, r := range reused {
		i := indexes[r.Index]
		res.AcceptedCount--
		res.RepeatedIndexes = slices.DeleteFunc(res.RepeatedIndexes, func(repeat int32) bool { return int(repeat) == i })
		res.EventIds[i] = ""
		res.Rejections = append(res.Rejections, &skeinv1.Rejection{
			Index: int32(i), Reason: r.Reason, Field: r.Field, Message: r.Message,
		})
	}
	slices.SortFunc(res.Rejections, func(a, b *skeinv1.Rejection) int { return cmp.Compare(a.GetIndex(), b.GetIndex()) })
}

// awaitVisible waits until every projection shows what was appended. If that does not come in time, the answer says
// where the events are, and that they are taken: published again, they would be there twice.
func (s *Service) awaitVisible(ctx context.Context, pos events.Position) error {
	ctx, cancel := views.BoundWait(ctx, s.VisibleWait)
	defer cancel()
	for _, store := range s.All {
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
		return &apierror.Failure{
			Code: connect.CodeDeadlineExceeded, Reason: reason,
			Text: fmt.Sprintf("the events are in the log, but %s does not show them yet: do not publish them again; "+
				"read with at_least %s", store.Name(), pos),
			Metadata: map[string]string{"position": pos.String(), "projection": store.Name()},
			Cause:    err,
		}
	}
	return nil
}

// refusedCall is the error of a call that is not to be taken in part. It is failed_precondition when nothing is wrong
// with the events but that there are too many follows or hidden items, and else invalid_argument.
func refusedCall(refused []events.Rejection) error {
	fields := make([]apierror.Violation, 0, len(refused))
	code := connect.CodeFailedPrecondition
	for _, r := range refused {
		path, text := fmt.Sprintf("events[%d]", r.Index), r.Message
		if r.Field != "" {
			path += "." + r.Field
			text = strings.TrimPrefix(text, r.Field+" ")
		}
		v := apierror.Violation{Field: path, Text: text, Reason: r.Reason}
		isLimit := r.Reason == skeinv1.Reason_REASON_FOLLOWEE_LIMIT || r.Reason == skeinv1.Reason_REASON_HIDDEN_ITEM_LIMIT
		if !isLimit && code != connect.CodeInvalidArgument {
			// The first of these gives the call its reason.
			code, fields = connect.CodeInvalidArgument, slices.Insert(fields, 0, v)
			continue
		}
		fields = append(fields, v)
	}
	f := apierror.Invalid(fields...)
	f.Code = code
	return f
}

// following begins the span of an append, and returns what goes beside its envelope, if the call is followed.
func (s *Service) following(ctx context.Context, events int) (_ context.Context, parent string, end func(error)) {
	if s.Tracer == nil || !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, "", func(error) {}
	}
	ctx, span := s.Tracer.Start(ctx, "append", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.Int("skein.events", events)))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return ctx, carrier["traceparent"], func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, "the log did not take the events")
		}
		span.End()
	}
}
