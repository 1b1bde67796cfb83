// Package peerservice answers the calls that only other nodes of a cluster make with package peers.
//
//	ask.go      Ask: lookups of another node's queries about homes that this node holds
//	erase.go    Flush and Clean: what a node must do with its stores when a user is erased
//	rows.go     Rows: the rows of some partitions, for a node that gets a copy of them
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

// Service answers the questions of other nodes from the stores of this process.
type Service struct{ *views.Views }

// New returns the Service for the stores of a process.
func New(v *views.Views) *Service { return &Service{v} }

// errUnknownQuestion refuses a question that only a later version of skein knows.
var errUnknownQuestion = errors.New("a question that this version does not know")

// maxAnswerEntries is how many entries the answer to one question has at most.
const maxAnswerEntries = 1000

// Ask answers the questions of one call from views that contain the demanded position. If this node
// does not hold all partitions that the call names, Ask fails, so that the caller asks another
// node.
func (s *Service) Ask(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
	partitions, err := events.ParsePartitions(req.GetPartitions())
	if err != nil {
		return nil, apierror.Invalid(apierror.InvalidField("partitions", "%s", err))
	}
	demand, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}

	a := &askRun{service: s, neededPartitions: partitions, demand: demand}
	defer a.close()
	res := &peerv1.AskResponse{Answers: make([]*peerv1.Answer, len(req.GetQuestions()))}
	for i, q := range req.GetQuestions() {
		if err := call.CheckCanceled(ctx, i); err != nil {
			return nil, err
		}
		res.Answers[i], err = a.answer(ctx, q)
		if err != nil {
			return nil, err
		}
	}
	res.Newest = a.newest.String()
	return res, nil
}

// askRun is the state of one call of Ask. graph, inbox and counters are nil until the first
// question that needs the store opens it.
type askRun struct {
	service          *Service
	neededPartitions events.Partitions
	demand           views.Demand
	graph            *views.Graph
	inbox            *views.Inbox
	counters         *views.Counters
	// newest is the newest of the positions of the views that were opened. Ask returns it, because
	// the next page of the caller's query must not be older.
	newest events.Position
}

// close closes the stores that were opened.
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

// checkStoreView returns an error if the view of a store lacks some of the needed partitions.
// Otherwise it records the position of the view, if no view that was opened before is newer.
func (a *askRun) checkStoreView(opened *views.StoreView) error {
	// The node may give up partitions at any time, but an open view keeps its partitions. So one
	// check of each view, after it was opened, is enough.
	held := opened.View.Partitions()
	if missing := a.neededPartitions.Without(&held); missing.Len() > 0 {
		return peers.NotHereError()
	}
	if opened.At.Seq >= a.newest.Seq {
		a.newest = opened.At
	}
	return nil
}

// openGraph opens the graph, unless it is open already.
func (a *askRun) openGraph(ctx context.Context) (err error) {
	if a.graph != nil {
		return nil
	}
	a.graph, err = a.service.OpenGraph(ctx, nil, a.demand)
	if err != nil {
		return err
	}
	return a.checkStoreView(&a.graph.StoreView)
}

// openInbox opens the inbox, unless it is open already.
func (a *askRun) openInbox(ctx context.Context) (err error) {
	if a.inbox != nil {
		return nil
	}
	a.inbox, err = a.service.OpenInbox(ctx, nil, a.demand)
	if err != nil {
		return err
	}
	return a.checkStoreView(&a.inbox.StoreView)
}

// openCounters opens the counters, unless they are open already.
func (a *askRun) openCounters(ctx context.Context) (err error) {
	if a.counters != nil {
		return nil
	}
	a.counters, err = a.service.OpenCounters(ctx, nil, a.demand)
	if err != nil {
		return err
	}
	return a.checkStoreView(&a.counters.StoreView)
}

// answer answers one question from the store that has the rows, and opens that store if necessary.
func (a *askRun) answer(ctx context.Context, q *peerv1.Question) (*peerv1.Answer, error) {
	switch q.GetOf().(type) {
	case *peerv1.Question_Pin, *peerv1.Question_Outbox, *peerv1.Question_Hiding:
		if err := a.openInbox(ctx); err != nil {
			return nil, err
		}
		return a.answerFromInbox(ctx, q)
	case *peerv1.Question_Board, *peerv1.Question_Follow, *peerv1.Question_Followees:
		if err := a.openGraph(ctx); err != nil {
			return nil, err
		}
		return a.answerFromGraph(q)
	case nil: // the decoder does not know the question
		return nil, connect.NewError(connect.CodeUnimplemented, errUnknownQuestion)
	default:
		if err := a.openCounters(ctx); err != nil {
			return nil, err
		}
		return a.answerFromCounters(ctx, q)
	}
}

// answerFromInbox answers a question about a pin, an outbox or a hidden item.
func (a *askRun) answerFromInbox(ctx context.Context, q *peerv1.Question) (*peerv1.Answer, error) {
	res := &peerv1.Answer{}
	switch q := q.GetOf().(type) {
	case *peerv1.Question_Pin:
		p, exists, err := a.inbox.Pin(q.Pin.GetOwner(), q.Pin.GetId())
		if exists {
			res.Pins = append(res.Pins, peers.PinMessage(&p))
		}
		return res, err
	case *peerv1.Question_Hiding:
		total, hides, err := a.inbox.Hiding(q.Hiding.GetUser(), q.Hiding.GetItem())
		res.Number = total
		res.Yes = hides
		return res, err
	case *peerv1.Question_Outbox:
		o := q.Outbox
		pins, next, err := a.inbox.Outbox(ctx, o.GetOwner(), o.Board, o.GetFrom(), clampSize(o.GetSize()))
		for i := range pins {
			res.Pins = append(res.Pins, peers.PinMessage(&pins[i]))
		}
		res.Next = next
		return res, err
	}
	return nil, connect.NewError(connect.CodeUnimplemented, errUnknownQuestion)
}

// clampSize limits a requested number of entries to what one answer may have: at least 1, and at
// most maxAnswerEntries.
func clampSize(requested uint32) int { return int(min(max(requested, 1), maxAnswerEntries)) }

// answerFromGraph answers a question about a board, a follow or the number of a user's followees.
func (a *askRun) answerFromGraph(q *peerv1.Question) (*peerv1.Answer, error) {
	switch q := q.GetOf().(type) {
	case *peerv1.Question_Board:
		exists, err := a.graph.BoardExists(q.Board.GetOwner(), q.Board.GetId())
		return &peerv1.Answer{Yes: exists}, err
	case *peerv1.Question_Followees:
		n, err := a.graph.Followees(q.Followees.GetUser())
		return &peerv1.Answer{Number: n}, err
	case *peerv1.Question_Follow:
		f, err := a.graph.FollowedBy(q.Follow.GetUser(), q.Follow.GetFollower())
		return &peerv1.Answer{Kind: uint32(f.Kind), Since: int64(f.Since)}, err
	}
	return nil, connect.NewError(connect.CodeUnimplemented, errUnknownQuestion)
}

// answerFromCounters answers a question about scores or reactions.
func (a *askRun) answerFromCounters(ctx context.Context, q *peerv1.Question) (*peerv1.Answer, error) {
	res := &peerv1.Answer{}
	switch q := q.GetOf().(type) {
	case *peerv1.Question_Score:
		scores := a.counters.ScoresAt(q.Score.GetSeq())
		var err error
		res.Number, res.Yes, err = scores.Of(q.Score.GetItem())
		if closeErr := scores.Close(); err == nil {
			err = closeErr
		}
		return res, err
	case *peerv1.Question_OwnReactions:
		kinds, err := a.counters.OwnReactions(q.OwnReactions.GetUser(), q.OwnReactions.GetItem())
		res.Kinds = kinds
		return res, err
	case *peerv1.Question_Reactions:
		list := q.Reactions
		after := counters.PageCursor(nilIfEmpty(list.GetAfter()))
		part, err := a.counters.LocalReactions(ctx, list.GetUser(), list.GetKind(), after, clampSize(list.GetSize()))
		for _, r := range part.Items {
			res.Entries = append(res.Entries, &peerv1.Entry{Item: r.Item, Value: int64(r.Since)})
		}
		res.Yes = part.More
		return res, err
	case *peerv1.Question_Reactors:
		list := q.Reactors
		after := counters.PageCursor(nilIfEmpty(list.GetAfter()))
		part, err := a.counters.LocalReactors(ctx, list.GetItem(), list.GetKind(), after, clampSize(list.GetSize()))
		for _, r := range part.Reactors {
			res.Entries = append(res.Entries, &peerv1.Entry{Item: r.User, Value: int64(r.Since)})
		}
		res.Yes = part.More
		res.Number = part.Total
		return res, err
	case *peerv1.Question_Trending:
		t := q.Trending
		part, err := a.counters.Candidates(ctx, t.GetOwner(), t.GetSeq(), nilIfEmpty(t.GetAfter()), clampSize(t.GetSize()))
		for _, item := range part.Items {
			res.Entries = append(res.Entries, &peerv1.Entry{Item: item.Item, Value: item.Score})
		}
		res.Yes = part.More
		return res, err
	}
	return nil, connect.NewError(connect.CodeUnimplemented, errUnknownQuestion)
}

// nilIfEmpty returns nil for an empty slice. A message does not distinguish nil from empty bytes,
// and the queries need nil for the first page.
func nilIfEmpty(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
