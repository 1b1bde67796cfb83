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

// ValidatePublish checks the call, but not its events. Publish checks these one by one, because
// allow_partial accepts the valid ones.
func ValidatePublish(req *skeinv1.PublishRequest) []apierror.Violation {
	var c request.Checker
	if n := len(req.GetEvents()); n > events.MaxEnvelopeEvents {
		c.Violations = append(c.Violations, apierror.Violation{
			Field: "events", Reason: skeinv1.Reason_REASON_TOO_LARGE,
			Text: fmt.Sprintf("has %d events: at most %d", n, events.MaxEnvelopeEvents),
		})
	} else {
		c.RequireLength("events", n, 1)
	}
	if wait := req.GetWait(); wait < 0 || wait > skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE {
		c.Refuse("wait", "%s", request.EnumRequirement(req, "wait"))
	}
	return c.Violations
}

// Publish appends the events of a call to the log, or rejects them: all of them if one is invalid,
// or only the invalid ones with allow_partial. It answers after the log has the events on disk
// (I2).
func (s *Service) Publish(
	ctx context.Context, req *skeinv1.PublishRequest, _ *call.Info,
) (*skeinv1.PublishResponse, error) {
	if err := s.CheckDisk(); err != nil {
		return nil, err
	}

	refused, repeats, err := s.findRejections(ctx, req.GetEvents())
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 && !req.GetAllowPartial() {
		return nil, rejectedCallError(refused)
	}
	res := &skeinv1.PublishResponse{EventIds: make([]string, len(req.GetEvents()))}
	for _, r := range refused {
		res.Rejections = append(res.Rejections, rejectionProto(r.Index, r))
	}

	// From here on the events may be in the log, so each error must say whether they are: a client
	// that does not know that would publish them twice.
	appended, indexes, err := s.appendAccepted(ctx, req.GetEvents(), refused, res)
	if err != nil || res.GetAcceptedCount() == 0 {
		return res, err
	}
	res.RepeatedIndexes = repeats
	if req.GetWait() == skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE {
		if err := s.awaitVisible(ctx, appended.Position); err != nil {
			return nil, err
		}
		// Only now, because the projections have read the envelope, and so the reader of the log
		// knows what it has dropped.
		s.FillRepeats(appended, indexes, res)
	}
	return res, nil
}

// rejectionProto returns a rejection as answers have it. index is that of the event in the call.
func rejectionProto(index int, r events.Rejection) *skeinv1.Rejection {
	return &skeinv1.Rejection{Index: int32(index), Reason: r.Reason, Field: r.Field, Message: r.Message}
}

// findRejections returns a rejection, in the order of the call, for each event that is malformed,
// has the event id of another event of the call, follows a user beyond the followee cap, hides an
// item beyond the limit, or is a backfill that cannot count. repeats are the indexes of backfills
// that the log already has.
func (s *Service) findRejections(ctx context.Context, evs []*skeinv1.Event) (refused []events.Rejection, repeats []int32, err error) {
	wellFormed, refused := events.CheckCall(evs)
	follows, err := s.refuseFollowsOverLimit(ctx, wellFormed)
	if err != nil {
		return nil, nil, err
	}
	hides, err := s.refuseHidesOverLimit(ctx, wellFormed)
	if err != nil {
		return nil, nil, err
	}
	backfills, repeats, err := s.checkBackfills(ctx, wellFormed)
	if err != nil {
		return nil, nil, err
	}
	// Most calls have none of these, and then allocate nothing here.
	if len(follows)+len(hides)+len(backfills) > 0 {
		refused = slices.Concat(refused, follows, hides, backfills)
		slices.SortFunc(refused, func(a, b events.Rejection) int { return cmp.Compare(a.Index, b.Index) })
	}
	// The metric counts what was wrong with events, also in calls that are refused as a whole.
	for _, r := range refused {
		s.Metrics.Rejections.WithLabelValues(apierror.ReasonName(r.Reason)).Inc()
	}
	return refused, repeats, nil
}

// appendAccepted appends the events that were not refused, and sets in res the position, the number
// and the ids of these events. indexes has the index in the call of each of them. refused is sorted
// by index.
func (s *Service) appendAccepted(
	ctx context.Context, evs []*skeinv1.Event, refused []events.Rejection, res *skeinv1.PublishResponse,
) (appended eventlog.Result, indexes []int, err error) {
	accepted := make([]*skeinv1.Event, 0, len(evs))
	for i, ev := range evs {
		if len(refused) > 0 && refused[0].Index == i {
			refused = refused[1:]
			continue
		}
		accepted = append(accepted, ev)
		indexes = append(indexes, i)
	}
	if len(accepted) == 0 {
		return appended, nil, nil
	}

	ctx, traceParent, endSpan := s.startAppendSpan(ctx, len(accepted))
	appended, err = s.Publisher.Publish(ctx, accepted, eventlog.PublishOptions{Trace: traceParent})
	endSpan(err)
	if errors.Is(err, events.ErrEnvelopeTooLarge) {
		return appended, nil, apierror.Invalid(apierror.Violation{
			Field: "events", Reason: skeinv1.Reason_REASON_TOO_LARGE,
			Text: "are together larger than the " + events.FormatSize(events.MaxEnvelopeBytes) + " that one call takes",
		})
	}
	if errors.Is(err, events.ErrLogUnavailable) || errors.Is(err, events.ErrClosed) {
		// Reads return the same errors, so the general text cannot say this.
		f := apierror.Of(err)
		f.Text += "; nothing was taken"
		return appended, nil, f
	}
	if err != nil {
		return appended, nil, err
	}

	s.Metrics.Accepted.Add(float64(len(accepted)))
	res.Position = s.positionTexts.Of(appended.Position)
	res.AcceptedCount = int32(len(accepted))
	for i, id := range appended.EventIDs {
		res.EventIds[indexes[i]] = id
	}
	return appended, indexes, nil
}

// FillRepeats sets in res which of the appended events the reader of the log has dropped, as
// repeats or because they reuse an event id (I6). indexes has the index in the call of each
// appended event.
//
// It sets nothing if the envelope is no longer in memory. To decide again which of its events are
// repeats, the event ids of the quarter of an hour before the envelope would have to be read.
func (s *Service) FillRepeats(appended eventlog.Result, indexes []int, res *skeinv1.PublishResponse) {
	env := s.Hub.CachedEnvelope(appended.Position.Seq)
	if env == nil {
		return
	}
	repeats, reused, known := env.SkippedSlots(appended.Slot, len(indexes))
	if !known {
		return
	}
	res.RepeatsKnown = true
	for _, at := range repeats {
		res.RepeatedIndexes = append(res.RepeatedIndexes, int32(indexes[at]))
	}
	slices.Sort(res.RepeatedIndexes)
	// A backfill may be there twice, if it repeats both an event id and an offset.
	res.RepeatedIndexes = slices.Compact(res.RepeatedIndexes)

	// An event that reuses the id of a different event was not accepted after all.
	for _, r := range reused {
		i := indexes[r.Index]
		res.AcceptedCount--
		res.RepeatedIndexes = slices.DeleteFunc(res.RepeatedIndexes, func(repeat int32) bool { return int(repeat) == i })
		res.EventIds[i] = ""
		res.Rejections = append(res.Rejections, rejectionProto(i, r))
	}
	slices.SortFunc(res.Rejections, func(a, b *skeinv1.Rejection) int { return cmp.Compare(a.GetIndex(), b.GetIndex()) })
}

// awaitVisible waits until every projection shows the appended events. If one does not in time, the
// error says where the events are, and that the log has them. Without that, a client might publish
// them again, and the log would then have them twice.
func (s *Service) awaitVisible(ctx context.Context, pos events.Position) error {
	ctx, cancel := views.BoundWait(ctx, s.VisibleWait)
	defer cancel()
	// The projections fold at the same time, so waiting for one after the other takes no longer
	// than waiting for the slowest.
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
			// The wait ended before its time, so the store has stopped.
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

// rejectedCallError returns the error of a call without allow_partial that has rejected events. Its
// code is failed_precondition if all of these exceed a limit (of follows or hidden items), and
// otherwise invalid_argument.
func rejectedCallError(refused []events.Rejection) error {
	fields := make([]apierror.Violation, 0, len(refused))
	code := connect.CodeFailedPrecondition
	for _, r := range refused {
		path := fmt.Sprintf("events[%d]", r.Index)
		text := r.Message
		if r.Field != "" {
			path += "." + r.Field
			text = strings.TrimPrefix(text, r.Field+" ")
		}
		v := apierror.Violation{Field: path, Text: text, Reason: r.Reason}
		exceedsLimit := r.Reason == skeinv1.Reason_REASON_FOLLOWEE_LIMIT || r.Reason == skeinv1.Reason_REASON_HIDDEN_ITEM_LIMIT
		if !exceedsLimit && code != connect.CodeInvalidArgument {
			// The first field gives the whole call its reason, so the first invalid event moves to
			// the front.
			code = connect.CodeInvalidArgument
			fields = slices.Insert(fields, 0, v)
			continue
		}
		fields = append(fields, v)
	}
	f := apierror.Invalid(fields...)
	f.Code = code
	return f
}

// startAppendSpan starts the span of an append if the call is traced. It returns the context of the
// span, the traceparent that is stored beside the envelope, and a function that ends the span. If
// the call is not traced, traceParent is empty and the function does nothing.
func (s *Service) startAppendSpan(ctx context.Context, events int) (_ context.Context, traceParent string, end func(error)) {
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
