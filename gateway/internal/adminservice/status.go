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

// rejectsList is the kind of the list of rejected events in its page tokens. The kinds of the graph's are small.
const rejectsList = 0xff

// statusPatience is how long GetStatus waits for the log.
const statusPatience = 2 * time.Second

// GetStatus reports the state of the log and of every projection. It is for operators: it asks the log, and it answers
// what it knows when projections have failed, and when the log does not answer.
func (s *Service) GetStatus(
	ctx context.Context, req *skeinv1.GetStatusRequest, _ *call.Info,
) (*skeinv1.GetStatusResponse, error) {
	id := pagetoken.NewListID(rejectsList)
	cursor, since, err := s.Resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	for _, store := range s.All {
		for _, d := range []views.Demand{least, since} {
			if err := s.Await(ctx, store, d); err != nil {
				return nil, err
			}
		}
	}
	res := &skeinv1.GetStatusResponse{Feeds: &skeinv1.FeedStatus{
		InboxPages: s.Metrics.Feeds.Inbox.Load(), MergedPages: s.Metrics.Feeds.Merged.Load(),
		OutboxesOpened: s.Metrics.Feeds.Outboxes.Load(),
	}}
	res.Log = s.logStatus(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now, at := time.Now(), s.Log.Position(res.GetLog().GetLastSequence())
	for _, store := range s.All {
		st := s.StatusOf(store)
		p := projectionStatus(st, now)
		p.Position = s.Log.Position(st.Cursor.Seq).String()
		res.Projections = append(res.Projections, p)
		at.Seq = min(at.Seq, st.Cursor.Seq)
	}
	slices.SortFunc(res.Projections, func(a, b *skeinv1.ProjectionStatus) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	res.Position = at.String()
	if s.Report != nil {
		s.Report(ctx, res)
	}
	if cursor = s.rejects(res, cursor, call.PageSize(req.GetPageSize())); cursor != nil {
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: at, Cursor: cursor})
	}
	return res, nil
}

func (s *Service) logStatus(ctx context.Context) *skeinv1.LogStatus {
	id := s.Log.ID()
	st := &skeinv1.LogStatus{LogId: hex.EncodeToString(id[:]), Epoch: s.Log.Epoch(), LastSequence: s.Hub.Head()}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	v, err := s.Log.Health(ctx)
	if err != nil {
		st.Error = err.Error()
		return st
	}
	st.LastSequence, st.Bytes, st.MaxBytes = v.Last, uint64(max(0, v.Bytes)), uint64(max(0, v.MaxBytes))
	if v.First <= v.Last {
		st.FirstSequence = v.First
	}
	st.AcceptedHoles = holesOf(s.Log.AcceptedHoles())
	holes, err := s.Log.Holes(ctx)
	if st.Holes = holesOf(holes); err != nil {
		st.Error = err.Error()
	}
	st.DaysUntilFull = s.Growth.DaysUntilFull(time.Now(), v.Bytes, v.MaxBytes)
	return st
}

func holesOf(ranges []eventlog.SeqRange) (holes []*skeinv1.LogHole) {
	for _, r := range ranges {
		holes = append(holes, &skeinv1.LogHole{FirstSequence: r.From, LastSequence: r.To})
	}
	return holes
}

// ProjectionStates are the states of projections as the API names them.
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

func projectionStatus(st store.Status, now time.Time) *skeinv1.ProjectionStatus {
	p := &skeinv1.ProjectionStatus{
		Name: st.Name, Version: st.Version, Fingerprint: st.Fingerprint, Generation: st.Generation,
		State:        ProjectionStates[st.State],
		LagEnvelopes: st.Behind, LagSeconds: st.Lag(now).Seconds(),
		DiskBytes: st.DiskBytes, StoreFormat: st.Format, NewestStoreFormat: store.NewestFormat().Engine,
	}
	if st.Error != nil {
		p.Error = st.Error.Error()
	}
	return p
}

// rejects fills in a page of rejected events, latest first, and returns the page cursor after it; nil means it was the last page.
// They are those of the log, the same in every projection: the first that answers will do.
func (s *Service) rejects(res *skeinv1.GetStatusResponse, cursor []byte, n int) []byte {
	for _, projection := range s.All {
		_, total, err := projection.Rejects(1<<63, 0)
		if err != nil {
			continue
		}
		upper, lowest := total, total-min(total, store.MaxStoredRejects)
		if len(cursor) == 8 {
			upper = min(total, binary.BigEndian.Uint64(cursor)-1)
		}
		after := max(lowest, upper-min(upper, uint64(n)))
		if after >= upper {
			res.RejectedEventCount = int64(total)
			return nil
		}
		kept, _, err := projection.Rejects(after, int(upper-after))
		if err != nil {
			continue
		}
		res.RejectedEventCount = int64(total)
		for _, r := range slices.Backward(kept) {
			if r.Number <= upper {
				res.RejectedEvents = append(res.RejectedEvents, s.rejectedEvent(r.Reject))
			}
		}
		if after == lowest {
			return nil
		}
		return binary.BigEndian.AppendUint64(nil, after+1)
	}
	return nil
}

func (s *Service) rejectedEvent(r events.Reject) *skeinv1.RejectedEvent {
	return &skeinv1.RejectedEvent{
		Position: s.Log.Position(r.Seq).String(), Sequence: r.Seq, Slot: int32(r.Slot),
		Reason: r.Rejection.Reason, Field: r.Rejection.Field, Message: r.Rejection.Message, Data: r.Data,
	}
}
