package gateway

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// rejectsList is the kind of the list of rejected events in its page tokens. The kinds of the graph's are small.
const rejectsList = 0xff

// statusPatience is how long GetStatus waits for the log.
const statusPatience = 2 * time.Second

// getStatus reports the state of the log and of every projection. It is for operators: it asks the log, and it answers
// what it knows when projections have failed, and when the log does not answer.
func (s *Server) getStatus(
	ctx context.Context, req *skeinv1.GetStatusRequest, _ *extra,
) (*skeinv1.GetStatusResponse, error) {
	id := pagetoken.NewListID(rejectsList)
	mark, since, err := s.resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	for _, store := range s.stores {
		for _, d := range []demand{least, since} {
			if err := s.await(ctx, store, d); err != nil {
				return nil, err
			}
		}
	}
	res := &skeinv1.GetStatusResponse{Feeds: &skeinv1.FeedStatus{
		InboxPages: s.metrics.feeds.inbox.Load(), MergedPages: s.metrics.feeds.merged.Load(),
		OutboxesOpened: s.metrics.feeds.outboxes.Load(),
	}}
	res.Log = s.logStatus(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now, at := time.Now(), s.source.Position(res.GetLog().GetLastSequence())
	for _, store := range s.stores {
		st := s.statusOf(store)
		p := projectionStatus(st, now)
		p.Position = s.source.Position(st.Cursor.Seq).String()
		res.Projections = append(res.Projections, p)
		at.Seq = min(at.Seq, st.Cursor.Seq)
	}
	slices.SortFunc(res.Projections, func(a, b *skeinv1.ProjectionStatus) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	res.Position = at.String()
	if s.report != nil {
		s.report(ctx, res)
	}
	if mark = s.rejects(res, mark, pageSize(req.GetPageSize())); mark != nil {
		res.NextPageToken = s.keys.Sign(pagetoken.Token{List: id, Position: at, Cursor: mark})
	}
	return res, nil
}

// statusOf tells how a projection is. One that waits, as for disk, has not heard lately how long the log is: this process has.
func (s *Server) statusOf(store *projections.Live) projections.Status {
	st := store.Status()
	st.Head = max(st.Head, s.hub.Head())
	st.Behind = st.Head - st.Cursor.Seq
	return st
}

func (s *Server) logStatus(ctx context.Context) *skeinv1.LogStatus {
	id := s.source.ID()
	st := &skeinv1.LogStatus{LogId: hex.EncodeToString(id[:]), Epoch: s.source.Epoch(), LastSequence: s.hub.Head()}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	v, err := s.source.Vitals(ctx)
	if err != nil {
		st.Error = err.Error()
		return st
	}
	st.LastSequence, st.Bytes, st.MaxBytes = v.Last, uint64(max(0, v.Bytes)), uint64(max(0, v.MaxBytes))
	if v.First <= v.Last {
		st.FirstSequence = v.First
	}
	st.AcceptedHoles = holesOf(s.source.AcceptedHoles())
	holes, err := s.source.Holes(ctx)
	if st.Holes = holesOf(holes); err != nil {
		st.Error = err.Error()
	}
	st.DaysUntilFull = s.growth.daysUntilFull(time.Now(), v.Bytes, v.MaxBytes)
	return st
}

func holesOf(ranges []eventlog.SeqRange) (holes []*skeinv1.LogHole) {
	for _, r := range ranges {
		holes = append(holes, &skeinv1.LogHole{FirstSequence: r.From, LastSequence: r.To})
	}
	return holes
}

var projectionStates = [...]skeinv1.ProjectionState{
	projections.Starting:   skeinv1.ProjectionState_PROJECTION_STATE_STARTING,
	projections.CatchingUp: skeinv1.ProjectionState_PROJECTION_STATE_CATCHING_UP,
	projections.Ready:      skeinv1.ProjectionState_PROJECTION_STATE_READY,
	projections.Rebuilding: skeinv1.ProjectionState_PROJECTION_STATE_REBUILDING,
	projections.Failed:     skeinv1.ProjectionState_PROJECTION_STATE_FAILED,
	projections.Stopped:    skeinv1.ProjectionState_PROJECTION_STATE_STOPPED,
	projections.Outdated:   skeinv1.ProjectionState_PROJECTION_STATE_OUTDATED,
	projections.Held:       skeinv1.ProjectionState_PROJECTION_STATE_HELD,
}

func projectionStatus(st projections.Status, now time.Time) *skeinv1.ProjectionStatus {
	p := &skeinv1.ProjectionStatus{
		Name: st.Name, Version: st.Version, Fingerprint: st.Fingerprint, Generation: st.Generation,
		State:        projectionStates[st.State],
		LagEnvelopes: st.Behind, LagSeconds: st.Lag(now).Seconds(),
		DiskBytes: st.DiskBytes, StoreFormat: st.Format, NewestStoreFormat: projections.NewestFormat().Engine,
	}
	if st.Error != nil {
		p.Error = st.Error.Error()
	}
	return p
}

// rejects fills in a page of rejected events, latest first, and returns the mark after it; nil: it was the last page.
// They are those of the log, the same in every projection: the first that answers will do.
func (s *Server) rejects(res *skeinv1.GetStatusResponse, mark []byte, n int) []byte {
	for _, store := range s.stores {
		_, total, err := store.Rejects(1<<63, 0)
		if err != nil {
			continue
		}
		upper, lowest := total, total-min(total, projections.KeptRejects)
		if len(mark) == 8 {
			upper = min(total, binary.BigEndian.Uint64(mark)-1)
		}
		after := max(lowest, upper-min(upper, uint64(n)))
		if after >= upper {
			res.RejectedEventCount = int64(total)
			return nil
		}
		kept, _, err := store.Rejects(after, int(upper-after))
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

func (s *Server) rejectedEvent(r events.Reject) *skeinv1.RejectedEvent {
	return &skeinv1.RejectedEvent{
		Position: s.source.Position(r.Seq).String(), Sequence: r.Seq, Slot: int32(r.Slot),
		Reason: r.Rejection.Reason, Field: r.Rejection.Field, Message: r.Rejection.Message, Data: r.Data,
	}
}

// growth forecasts when the log is full, by the slowest growth over any time that ends now and is growthStep to growthWindow
// long. So a burst counts as what it is for hours, and forecasts nothing when it is over, or trimmed; nor does a log that was
// as large before.
type growth struct {
	mu sync.Mutex
	// samples are of growthStep each, the oldest first. The first is growthWindow old, or as old as there is.
	samples []sample
}

// sample is the largest that the log was in the time that began then, and when it was that.
type sample struct {
	began, at time.Time
	bytes     int64
}

const (
	growthStep   = 10 * time.Minute
	growthWindow = 6 * time.Hour
	// growthLeast is how long the log is observed before anything is forecast.
	growthLeast = time.Hour
)

// daysUntilFull returns nil while it is unknown, or the log does not grow or has no bound.
func (g *growth) daysUntilFull(now time.Time, bytes, limit int64) *float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.samples) > 1 && now.Sub(g.samples[1].began) >= growthWindow {
		g.samples = g.samples[1:]
	}
	slowest := math.Inf(1) // in bytes an hour
	for _, s := range g.samples {
		if since := now.Sub(s.at); since >= growthStep {
			slowest = min(slowest, float64(bytes-s.bytes)/since.Hours())
		}
	}
	if n := len(g.samples); n == 0 || now.Sub(g.samples[n-1].began) >= growthStep {
		g.samples = append(g.samples, sample{now, now, bytes})
	} else if last := &g.samples[n-1]; bytes >= last.bytes {
		last.at, last.bytes = now, bytes
	}
	if now.Sub(g.samples[0].began) < growthLeast || slowest <= 0 || limit <= 0 {
		return nil
	}
	days := float64(max(0, limit-bytes)) / slowest / 24
	return &days
}
