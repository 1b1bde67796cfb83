package gateway

import (
	"cmp"
	"context"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/cluster/peers"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// readParts mounts a method whose request has parts that are each about a home; readPartsByHand likewise. See [unary] and [unaryByHand].
func readParts[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(*request.Checker, P), by partSplitter[Req, Res, P], do unaryHandler[Req, Res, P],
) {
	unary(s, procedure, check, routeByParts(s, procedure, by, do))
}

func readPartsByHand[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(P) []apierror.Violation, by partSplitter[Req, Res, P], do unaryHandler[Req, Res, P],
) {
	unaryByHand(s, procedure, check, routeByParts(s, procedure, by, do))
}

// partedBy says how a request is cut into parts that are about one home each, and how answers are put together again.
type partSplitter[Req, Res any, P request.Message[Req]] struct {
	// homes returns the home of each part, in order.
	homes func(P) []string
	// only returns a request for some of the parts.
	selectParts func(req P, of []int) P
	// whole makes room for the answer to a request.
	newAnswer func(P) *Res
	// put puts the answer for some of the parts into the whole one.
	mergePart func(whole *Res, of []int, part *Res)
	// isComplete reports whether an answer has what was asked for some of the parts of a request, and no more.
	isComplete func(req P, of []int, part *Res) bool
	// position is that of an answer.
	position func(*Res) *string
}

// parted has each node answer those parts of a request that are about homes that it holds. The position of the answer is the least of
// theirs.
func routeByParts[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, by partSplitter[Req, Res, P], do unaryHandler[Req, Res, P],
) unaryHandler[Req, Res, P] {
	if s.cluster == nil {
		return do
	}
	mountPeerMethod(s, procedure, func(req P) bool { return s.holdsAll(by.homes(req)) }, do)
	return func(ctx context.Context, req P, x *call.Info) (*Res, error) {
		homes := by.homes(req)
		if !slices.ContainsFunc(homes, func(home string) bool { return !s.canAnswerFor(home) }) {
			if res, err := do(ctx, req, x); s.holdsAll(homes) && !s.shouldAskOthers(err, homes...) {
				return res, err
			}
		}
		d := &dividedCall[Req, Res, P]{s: s, by: by, req: req, homes: homes, answer: by.newAnswer(req), lag: -1}
		elsewhere, err := d.answerLocalParts(ctx, do, x)
		if err == nil {
			err = d.askOtherNodes(ctx, procedure, elsewhere)
		}
		x.Lag = d.lag
		return d.answer, err
	}
}

// holdsAll is holds of some homes.
func (s *Server) holdsAll(homes []string) bool {
	return !slices.ContainsFunc(homes, func(home string) bool { return !s.holds(home) })
}

// division is a request that is divided, and what is known of its answer.
type dividedCall[Req, Res any, P request.Message[Req]] struct {
	s      *Server
	by     partSplitter[Req, Res, P]
	req    P
	homes  []string
	answer *Res
	// at is the least position of the parts that are kept.
	position events.Position
	lag      int64
}

// answerHere answers the parts about homes that this node holds, and returns the others.
func (d *dividedCall[Req, Res, P]) answerLocalParts(ctx context.Context, do unaryHandler[Req, Res, P], x *call.Info) (elsewhere []int, err error) {
	var here []int
	for i, home := range d.homes {
		if d.s.canAnswerFor(home) {
			here = append(here, i)
		} else {
			elsewhere = append(elsewhere, i)
		}
	}
	if len(here) == 0 {
		return elsewhere, nil
	}
	part, err := do(ctx, d.by.selectParts(d.req, here), x)
	if err == nil && d.s.holdsAll(selectAt(d.homes, here)) {
		at, err := events.ParsePosition(*d.by.position(part))
		if err == nil {
			d.mergePart(here, part, at, x.Lag)
		}
		return elsewhere, err
	}
	if err == nil || d.s.shouldAskOthers(err, d.homes...) {
		return append(elsewhere, here...), nil
	}
	return nil, err
}

// ask has other nodes answer some parts.
func (d *dividedCall[Req, Res, P]) askOtherNodes(ctx context.Context, procedure string, elsewhere []int) error {
	partitions := make([]uint8, len(elsewhere))
	for i, of := range elsewhere {
		partitions[i] = peers.PartitionOf(d.homes[of])
	}
	return d.s.cluster.Scatter(ctx, procedure, partitions, func(ctx context.Context, n *Node, some []int) (keep func(), err error) {
		of := selectAt(elsewhere, some)
		part, behind, err := peers.Call[Req, Res](ctx, d.s.cluster.Peers, n, procedure, (*Req)(d.by.selectParts(d.req, of)))
		if err != nil {
			return nil, err
		}
		at, err := events.ParsePosition(*d.by.position(part))
		if err != nil || !d.by.isComplete(d.req, of, part) {
			return nil, peers.BadAnswerError(n.Name)
		}
		return func() { d.mergePart(of, part, at, behind) }, nil
	})
}

// keep puts the answer for some parts into the whole one.
func (d *dividedCall[Req, Res, P]) mergePart(of []int, part *Res, at events.Position, behind int64) {
	d.by.mergePart(d.answer, of, part)
	d.lag = max(d.lag, behind)
	if d.position == (events.Position{}) || at.Seq < d.position.Seq {
		d.position = at
		*d.by.position(d.answer) = *d.by.position(part)
	}
}

// chosen returns some of the elements of a list.
func selectAt[T any](all []T, of []int) []T {
	some := make([]T, len(of))
	for i, at := range of {
		some[i] = all[at]
	}
	return some
}

// place puts elements to their places in a longer list.
func placeAt[T any](all []T, of []int, some []T) {
	for i := range some {
		all[of[i]] = some[i]
	}
}

func byCheckFollows() partSplitter[skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse, *skeinv1.CheckFollowsRequest] {
	return partSplitter[skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse, *skeinv1.CheckFollowsRequest]{
		homes: func(req *skeinv1.CheckFollowsRequest) (homes []string) {
			for _, p := range req.GetPairs() {
				homes = append(homes, p.GetUserId())
			}
			return homes
		},
		selectParts: func(req *skeinv1.CheckFollowsRequest, of []int) *skeinv1.CheckFollowsRequest {
			return &skeinv1.CheckFollowsRequest{
				Pairs: selectAt(req.GetPairs(), of), AtLeast: req.GetAtLeast(), IncludeTimes: req.GetIncludeTimes(),
			}
		},
		newAnswer: func(req *skeinv1.CheckFollowsRequest) *skeinv1.CheckFollowsResponse {
			res := &skeinv1.CheckFollowsResponse{Kinds: make([]skeinv1.FollowKind, len(req.GetPairs()))}
			if req.GetIncludeTimes() {
				res.FollowTimes = make([]*skeinv1.FollowTime, len(req.GetPairs()))
			}
			return res
		},
		mergePart: func(whole *skeinv1.CheckFollowsResponse, of []int, part *skeinv1.CheckFollowsResponse) {
			placeAt(whole.Kinds, of, part.GetKinds())
			placeAt(whole.FollowTimes, of, part.GetFollowTimes())
		},
		isComplete: func(req *skeinv1.CheckFollowsRequest, of []int, part *skeinv1.CheckFollowsResponse) bool {
			return len(part.GetKinds()) == len(of) && (!req.GetIncludeTimes() || len(part.GetFollowTimes()) == len(of))
		},
		position: func(res *skeinv1.CheckFollowsResponse) *string { return &res.Position },
	}
}

func byBatchGetPins() partSplitter[skeinv1.BatchGetPinsRequest, skeinv1.BatchGetPinsResponse, *skeinv1.BatchGetPinsRequest] {
	return partSplitter[skeinv1.BatchGetPinsRequest, skeinv1.BatchGetPinsResponse, *skeinv1.BatchGetPinsRequest]{
		homes: func(req *skeinv1.BatchGetPinsRequest) (homes []string) {
			for _, p := range req.GetPins() {
				homes = append(homes, p.GetOwnerId())
			}
			return homes
		},
		selectParts: func(req *skeinv1.BatchGetPinsRequest, of []int) *skeinv1.BatchGetPinsRequest {
			return &skeinv1.BatchGetPinsRequest{Pins: selectAt(req.GetPins(), of), AtLeast: req.GetAtLeast()}
		},
		newAnswer: func(req *skeinv1.BatchGetPinsRequest) *skeinv1.BatchGetPinsResponse {
			return &skeinv1.BatchGetPinsResponse{Pins: make([]*skeinv1.PinState, len(req.GetPins()))}
		},
		mergePart: func(whole *skeinv1.BatchGetPinsResponse, of []int, part *skeinv1.BatchGetPinsResponse) {
			placeAt(whole.Pins, of, part.GetPins())
		},
		isComplete: func(_ *skeinv1.BatchGetPinsRequest, of []int, part *skeinv1.BatchGetPinsResponse) bool {
			return len(part.GetPins()) == len(of)
		},
		position: func(res *skeinv1.BatchGetPinsResponse) *string { return &res.Position },
	}
}

func byBatchGetCounters() partSplitter[skeinv1.BatchGetCountersRequest, skeinv1.BatchGetCountersResponse, *skeinv1.BatchGetCountersRequest] {
	return partSplitter[skeinv1.BatchGetCountersRequest, skeinv1.BatchGetCountersResponse, *skeinv1.BatchGetCountersRequest]{
		homes: func(req *skeinv1.BatchGetCountersRequest) (homes []string) {
			for _, k := range req.GetKeys() {
				homes = append(homes, cmp.Or(k.GetUserId(), k.GetItemId(), k.GetBoard().GetOwnerId()))
			}
			return homes
		},
		selectParts: func(req *skeinv1.BatchGetCountersRequest, of []int) *skeinv1.BatchGetCountersRequest {
			return &skeinv1.BatchGetCountersRequest{Keys: selectAt(req.GetKeys(), of), AtLeast: req.GetAtLeast()}
		},
		newAnswer: func(req *skeinv1.BatchGetCountersRequest) *skeinv1.BatchGetCountersResponse {
			return &skeinv1.BatchGetCountersResponse{Counters: make([]*skeinv1.Counters, len(req.GetKeys()))}
		},
		mergePart: func(whole *skeinv1.BatchGetCountersResponse, of []int, part *skeinv1.BatchGetCountersResponse) {
			placeAt(whole.Counters, of, part.GetCounters())
		},
		isComplete: func(_ *skeinv1.BatchGetCountersRequest, of []int, part *skeinv1.BatchGetCountersResponse) bool {
			return len(part.GetCounters()) == len(of)
		},
		position: func(res *skeinv1.BatchGetCountersResponse) *string { return &res.Position },
	}
}

type (
	countsRequest  = skeinv1.BatchGetFollowCountsRequest
	countsResponse = skeinv1.BatchGetFollowCountsResponse
)

// The boards are the parts behind the users.
func byBatchGetFollowCounts() partSplitter[countsRequest, countsResponse, *countsRequest] {
	return partSplitter[countsRequest, countsResponse, *countsRequest]{
		homes: func(req *countsRequest) (homes []string) {
			homes = append(homes, req.GetUserIds()...)
			for _, b := range req.GetBoards() {
				homes = append(homes, b.GetOwnerId())
			}
			return homes
		},
		selectParts: func(req *countsRequest, of []int) *countsRequest {
			users, boards := usersAndBoards(len(req.GetUserIds()), of)
			return &countsRequest{
				UserIds: selectAt(req.GetUserIds(), users), Boards: selectAt(req.GetBoards(), boards), AtLeast: req.GetAtLeast(),
			}
		},
		newAnswer: func(req *countsRequest) *countsResponse {
			return &countsResponse{
				Users: make([]*skeinv1.UserFollowCounts, len(req.GetUserIds())), Boards: make([]*skeinv1.BoardFollowCounts, len(req.GetBoards())),
			}
		},
		mergePart: func(whole *countsResponse, of []int, part *countsResponse) {
			users, boards := usersAndBoards(len(whole.GetUsers()), of)
			placeAt(whole.Users, users, part.GetUsers())
			placeAt(whole.Boards, boards, part.GetBoards())
		},
		isComplete: func(req *countsRequest, of []int, part *countsResponse) bool {
			users, boards := usersAndBoards(len(req.GetUserIds()), of)
			return len(part.GetUsers()) == len(users) && len(part.GetBoards()) == len(boards)
		},
		position: func(res *countsResponse) *string { return &res.Position },
	}
}

// usersAndBoards divides the parts of a request with so many users.
func usersAndBoards(all int, of []int) (users, boards []int) {
	for _, i := range of {
		if i < all {
			users = append(users, i)
		} else {
			boards = append(boards, i-all)
		}
	}
	return users, boards
}
