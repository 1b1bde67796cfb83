// Package peerservice answers what other nodes of a cluster ask (package peers): questions of their queries about homes that are here.
package peerservice

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/cluster/peers"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/counters"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
)

// Service answers PeerService.
type Service struct{ *views.Views }

// New answers from the stores of a process.
func New(v *views.Views) *Service { return &Service{v} }

// errUnknown refuses a question of a later version.
var errUnknownQuestion = errors.New("a question that this version does not know")

// maxSize bounds the entries of one answer.
const maxAnswerEntries = 1000

// Ask answers some questions.
func (s *Service) Ask(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
	need, err := events.ParsePartitions(req.GetPartitions())
	if err != nil {
		return nil, apierror.Invalid(apierror.InvalidField("partitions", "%s", err))
	}
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	a := &askRun{service: s, neededPartitions: need, demand: least}
	defer a.close()
	res := &peerv1.AskResponse{Answers: make([]*peerv1.Answer, len(req.GetQuestions()))}
	for i, q := range req.GetQuestions() {
		if err := call.Poll(ctx, i); err != nil {
			return nil, err
		}
		if res.Answers[i], err = a.answer(ctx, q); err != nil {
			return nil, err
		}
	}
	res.Newest = a.newest.String()
	return res, nil
}

// answering has the stores that the questions of a call need, each opened when the first of them is answered.
type askRun struct {
	service          *Service
	neededPartitions events.Partitions
	demand           views.Demand
	graph            *views.Graph
	inbox            *views.Inbox
	counters         *views.Counters
	newest           events.Position
}

func (a *askRun) close() {
	if a.graph != nil {
		a.graph.Close()
	}
	if a.inbox != nil {
		a.inbox.Close()
	}
	if a.counters != nil {
		a.counters.Close()
	}
}

// opened refuses a store without all partitions that are needed.
func (a *askRun) checkStoreView(o *views.StoreView) error {
	here := o.View.Partitions()
	if missing := a.neededPartitions.Without(&here); missing.Len() > 0 {
		return peers.NotHereError()
	}
	if o.At.Seq >= a.newest.Seq {
		a.newest = o.At
	}
	return nil
}

func (a *askRun) openGraph(ctx context.Context) (err error) {
	if a.graph != nil {
		return nil
	}
	if a.graph, err = a.service.Open(ctx, nil, a.demand); err != nil {
		return err
	}
	return a.checkStoreView(&a.graph.StoreView)
}

func (a *askRun) openInbox(ctx context.Context) (err error) {
	if a.inbox != nil {
		return nil
	}
	if a.inbox, err = a.service.OpenFeed(ctx, nil, a.demand); err != nil {
		return err
	}
	return a.checkStoreView(&a.inbox.StoreView)
}

func (a *askRun) openCounters(ctx context.Context) (err error) {
	if a.counters != nil {
		return nil
	}
	if a.counters, err = a.service.OpenCounters(ctx, nil, a.demand); err != nil {
		return err
	}
	return a.checkStoreView(&a.counters.StoreView)
}

func (a *askRun) answer(ctx context.Context, q *peerv1.Question) (*peerv1.Answer, error) {
	switch q.GetOf().(type) {
	case *peerv1.Question_Pin, *peerv1.Question_Outbox:
		if err := a.openInbox(ctx); err != nil {
			return nil, err
		}
		return a.answerFromInbox(ctx, q)
	case *peerv1.Question_Board, *peerv1.Question_Follow, *peerv1.Question_Followees:
		if err := a.openGraph(ctx); err != nil {
			return nil, err
		}
		return a.answerFromGraph(q)
	case nil:
		return nil, connect.NewError(connect.CodeUnimplemented, errUnknownQuestion)
	default:
		if err := a.openCounters(ctx); err != nil {
			return nil, err
		}
		return a.answerFromCounters(ctx, q)
	}
}

func (a *askRun) answerFromInbox(ctx context.Context, q *peerv1.Question) (*peerv1.Answer, error) {
	res := &peerv1.Answer{}
	if name := q.GetPin(); name != nil {
		p, lives, err := a.inbox.Pin(name.GetOwner(), name.GetId())
		if lives {
			res.Pins = append(res.Pins, peers.PinMessage(&p))
		}
		return res, err
	}
	o := q.GetOutbox()
	pins, next, err := a.inbox.Outbox(ctx, o.GetOwner(), o.Board, o.GetFrom(), clampSize(o.GetSize()))
	for i := range pins {
		res.Pins = append(res.Pins, peers.PinMessage(&pins[i]))
	}
	res.Next = next
	return res, err
}

func clampSize(asked uint32) int { return int(min(max(asked, 1), maxAnswerEntries)) }

func (a *askRun) answerFromGraph(q *peerv1.Question) (*peerv1.Answer, error) {
	if b := q.GetBoard(); b != nil {
		exists, err := a.graph.BoardExists(b.GetOwner(), b.GetId())
		return &peerv1.Answer{Yes: exists}, err
	}
	if f := q.GetFollowees(); f != nil {
		n, err := a.graph.Followees(f.GetUser())
		return &peerv1.Answer{Number: n}, err
	}
	f, err := a.graph.FollowedBy(q.GetFollow().GetUser(), q.GetFollow().GetFollower())
	return &peerv1.Answer{Kind: uint32(f.Kind), Since: int64(f.Since)}, err
}

func (a *askRun) answerFromCounters(ctx context.Context, q *peerv1.Question) (*peerv1.Answer, error) {
	res := &peerv1.Answer{}
	switch of := q.GetOf().(type) {
	case *peerv1.Question_Score:
		scores := a.counters.ScoresAt(of.Score.GetSeq())
		var err error
		res.Number, res.Yes, err = scores.Of(of.Score.GetItem())
		if cerr := scores.Close(); err == nil {
			err = cerr
		}
		return res, err
	case *peerv1.Question_Like:
		likes, err := a.counters.Likes(of.Like.GetUser(), of.Like.GetItem())
		res.Yes = likes
		return res, err
	case *peerv1.Question_Liked:
		part, err := a.counters.LocalLiked(ctx, of.Liked.GetUser(), counters.PageCursor(nilIfEmpty(of.Liked.GetAfter())), clampSize(of.Liked.GetSize()))
		for _, l := range part.Items {
			res.Entries = append(res.Entries, &peerv1.Entry{Item: l.Item, Value: int64(l.Since)})
		}
		res.Yes = part.More
		return res, err
	case *peerv1.Question_Trending:
		t := of.Trending
		part, err := a.counters.Candidates(ctx, t.GetOwner(), t.GetSeq(), nilIfEmpty(t.GetAfter()), clampSize(t.GetSize()))
		for _, item := range part.Items {
			res.Entries = append(res.Entries, &peerv1.Entry{Item: item.Item, Value: item.Score})
		}
		res.Yes = part.More
		return res, err
	}
	return nil, connect.NewError(connect.CodeUnimplemented, errUnknownQuestion)
}

// orNil returns nil for what a message has as no bytes.
func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
