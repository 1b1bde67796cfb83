package adminservice

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// rejectsList is the kind of list in the page tokens of GetStatus, whose pages list rejected
// events. It never changes, and no other list has it.
const rejectsList = 0xff

// logHealthTimeout is how long GetStatus waits for the log before it answers with an error instead
// of the state of the log.
const logHealthTimeout = 2 * time.Second

// GetStatus returns the state of the log and of every projection, and a page of the events of the
// log that were rejected. It also answers if projections have failed or the log does not respond,
// because operators call it to find out about that.
func (s *Service) GetStatus(
	ctx context.Context, req *skeinv1.GetStatusRequest, _ *call.Info,
) (*skeinv1.GetStatusResponse, error) {
	id := pagetoken.NewListID(rejectsList)
	cursor, token, err := s.Resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}

	// The answer has the state of all projections, so each of them must contain both positions that
	// the call demands.
	for _, projection := range s.All {
		for _, d := range []views.Demand{atLeast, token} {
			if err := s.Await(ctx, projection, d); err != nil {
				return nil, err
			}
		}
	}

	res := &skeinv1.GetStatusResponse{Feeds: &skeinv1.FeedStatus{
		InboxPages:     s.Metrics.Feeds.Inbox.Load(),
		MergedPages:    s.Metrics.Feeds.Merged.Load(),
		OutboxesOpened: s.Metrics.Feeds.Outboxes.Load(),
	}}
	res.Log = s.logStatus(ctx)
	// logStatus reports every error as an error of the log, which would be wrong if the call itself
	// has ended.
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	// The position of the answer is that of the projection that is furthest behind.
	now := time.Now()
	position := s.Log.Position(res.GetLog().GetLastSequence())
	for _, projection := range s.All {
		st := s.StatusOf(projection)
		p := projectionStatus(st, now)
		p.Position = s.Log.Position(st.Cursor.Seq).String()
		res.Projections = append(res.Projections, p)
		position.Seq = min(position.Seq, st.Cursor.Seq)
	}
	slices.SortFunc(res.Projections, func(a, b *skeinv1.ProjectionStatus) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	res.Position = position.String()

	if s.Report != nil {
		s.Report(ctx, res)
	}

	next := s.fillRejected(res, cursor, call.PageSize(req.GetPageSize()))
	if next != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: position, Cursor: next})
	}
	return res, nil
}

// logStatus asks the log for its state. If the log does not respond, the status has the error, and
// what this process knows about the log.
func (s *Service) logStatus(ctx context.Context) *skeinv1.LogStatus {
	id := s.Log.ID()
	st := &skeinv1.LogStatus{LogId: hex.EncodeToString(id[:]), Epoch: s.Log.Epoch(), LastSequence: s.Hub.Head()}

	ctx, cancel := context.WithTimeout(ctx, logHealthTimeout)
	defer cancel()
	health, err := s.Log.Health(ctx)
	if err != nil {
		st.Error = err.Error()
		return st
	}
	st.LastSequence = health.Last
	st.Bytes = uint64(max(0, health.Bytes))
	st.MaxBytes = uint64(max(0, health.MaxBytes))
	if health.First <= health.Last { // otherwise the stream is empty
		st.FirstSequence = health.First
	}

	st.AcceptedHoles = holeProtos(s.Log.AcceptedHoles())
	holes, err := s.Log.Holes(ctx) // with an error, Holes returns the last known ranges
	st.Holes = holeProtos(holes)
	if err != nil {
		st.Error = err.Error()
	}
	st.DaysUntilFull = s.Growth.DaysUntilFull(time.Now(), health.Bytes, health.MaxBytes)
	return st
}

// holeProtos returns ranges of lost envelopes as answers have them.
func holeProtos(ranges []eventlog.SeqRange) (holes []*skeinv1.LogHole) {
	for _, r := range ranges {
		holes = append(holes, &skeinv1.LogHole{FirstSequence: r.From, LastSequence: r.To})
	}
	return holes
}

// ProjectionStates has the state of the API for each [store.State].
var ProjectionStates = [...]skeinv1.ProjectionState{
	store.Starting:   skeinv1.ProjectionState_PROJECTION_STATE_STARTING,
	store.CatchingUp: skeinv1.ProjectionState_PROJECTION_STATE_CATCHING_UP,
	store.Ready:      skeinv1.ProjectionState_PROJECTION_STATE_READY,
	store.Rebuilding: skeinv1.ProjectionState_PROJECTION_STATE_REBUILDING,
	store.Failed:     skeinv1.ProjectionState_PROJECTION_STATE_FAILED,
	store.Stopped:    skeinv1.ProjectionState_PROJECTION_STATE_STOPPED,
	store.Outdated:   skeinv1.ProjectionState_PROJECTION_STATE_OUTDATED,
	store.Held:       skeinv1.ProjectionState_PROJECTION_STATE_HELD,
}

// projectionStatus returns the status of a projection as answers have it. The caller must set the
// position.
func projectionStatus(st store.Status, now time.Time) *skeinv1.ProjectionStatus {
	p := &skeinv1.ProjectionStatus{
		Name:              st.Name,
		Version:           st.Version,
		Fingerprint:       st.Fingerprint,
		Generation:        st.Generation,
		State:             ProjectionStates[st.State],
		LagEnvelopes:      st.Behind,
		LagSeconds:        st.Lag(now).Seconds(),
		DiskBytes:         st.DiskBytes,
		StoreFormat:       st.Format,
		NewestStoreFormat: store.NewestFormat().Engine,
	}
	if st.Error != nil {
		p.Error = st.Error.Error()
	}
	return p
}

// fillRejected sets a page of at most n rejected events in res, the latest first, and their total
// number. It returns the cursor of the next page, or nil on the last page. All projections reject
// the same events of the log, so the first projection that answers is enough.
//
// Rejected events are numbered from 1. A store keeps the last [store.MaxStoredRejects] of them. A
// cursor is the lowest number of the page before it, in 8 bytes.
func (s *Service) fillRejected(res *skeinv1.GetStatusResponse, cursor []byte, n int) []byte {
	for _, projection := range s.All {
		// No rejected event has so high a number, so this reads only the total.
		_, total, err := projection.Rejects(1<<63, 0)
		if err != nil {
			continue
		}

		// The page has the events with the numbers after+1 to last.
		last := total
		if len(cursor) == 8 {
			last = min(total, binary.BigEndian.Uint64(cursor)-1)
		}
		// The store has forgotten the events up to this number.
		forgotten := total - min(total, store.MaxStoredRejects)
		after := max(forgotten, last-min(last, uint64(n)))
		if after >= last {
			res.RejectedEventCount = int64(total)
			return nil
		}
		rejects, _, err := projection.Rejects(after, int(last-after))
		if err != nil {
			continue
		}

		// If more events were rejected since the total was read, the store may have replaced events
		// of this page with them. The new events belong to no page of this session.
		res.RejectedEventCount = int64(total)
		for _, r := range slices.Backward(rejects) {
			if r.Number <= last {
				res.RejectedEvents = append(res.RejectedEvents, s.rejectedEvent(r.Reject))
			}
		}

		if after == forgotten {
			return nil
		}
		return binary.BigEndian.AppendUint64(nil, after+1)
	}
	return nil
}

// rejectedEvent returns a rejected event as answers have it.
func (s *Service) rejectedEvent(r events.Reject) *skeinv1.RejectedEvent {
	return &skeinv1.RejectedEvent{
		Position: s.Log.Position(r.Seq).String(),
		Sequence: r.Seq,
		Slot:     int32(r.Slot),
		Reason:   r.Rejection.Reason,
		Field:    r.Rejection.Field,
		Message:  r.Rejection.Message,
		Data:     r.Data,
	}
}
