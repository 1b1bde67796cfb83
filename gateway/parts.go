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

// mountReadParts mounts a method whose request has parts that are each about one home. See
// [mountUnary].
func mountReadParts[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(*request.Checker, P), splitter partSplitter[Req, Res, P], handle unaryHandler[Req, Res, P],
) {
	mountUnary(s, procedure, check, routeByParts(s, procedure, splitter, handle))
}

// mountReadPartsByHand is mountReadParts with a hand-written check. See [mountUnaryByHand].
func mountReadPartsByHand[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, check func(P) []apierror.Violation, splitter partSplitter[Req, Res, P], handle unaryHandler[Req, Res, P],
) {
	mountUnaryByHand(s, procedure, check, routeByParts(s, procedure, splitter, handle))
}

// partSplitter says how to split the requests of a method into parts that are each about one home,
// and how to merge the answers. Parts are identified by their indexes in the result of homes.
type partSplitter[Req, Res any, P request.Message[Req]] struct {
	// homes returns the home of each part, in the order of the request.
	homes func(P) []string
	// selectParts returns a request for the parts with the given indexes.
	selectParts func(req P, indexes []int) P
	// newAnswer returns an answer to the whole request into which all parts can be merged.
	newAnswer func(P) *Res
	// mergePart copies the answer for the parts with the given indexes into the whole answer.
	mergePart func(whole *Res, indexes []int, part *Res)
	// isComplete reports whether an answer has exactly one result for each of the parts with the
	// given indexes. It guards mergePart against bad answers of other nodes.
	isComplete func(req P, indexes []int, part *Res) bool
	// position returns the field that holds the position of an answer.
	position func(*Res) *string
}

// routeByParts returns a handler by which each part of a request is answered by a node that holds
// its home. If this node can answer for all homes, it calls handle with the whole request. The
// position of a merged answer is the lowest of the positions of the parts. Outside of a cluster
// routeByParts returns handle.
func routeByParts[Req, Res any, P request.Message[Req]](
	s *Server, procedure string, splitter partSplitter[Req, Res, P], handle unaryHandler[Req, Res, P],
) unaryHandler[Req, Res, P] {
	if s.cluster == nil {
		return handle
	}
	mountPeerMethod(s, procedure, func(req P) bool { return s.holdsAll(splitter.homes(req)) }, handle)

	return func(ctx context.Context, req P, info *call.Info) (*Res, error) {
		homes := splitter.homes(req)
		isRemote := func(home string) bool { return !s.canAnswerFor(home) }
		if !slices.ContainsFunc(homes, isRemote) {
			// As in routeByHome, the answer counts only if this node still holds all homes.
			res, err := handle(ctx, req, info)
			if s.holdsAll(homes) && !s.shouldAskOthers(err, homes...) {
				return res, err
			}
		}

		d := &dividedCall[Req, Res, P]{
			s: s, splitter: splitter, req: req, homes: homes, answer: splitter.newAnswer(req), lag: -1,
		}
		remote, err := d.answerLocalParts(ctx, handle, info)
		if err == nil {
			err = d.askOtherNodes(ctx, procedure, remote)
		}
		info.Lag = d.lag
		return d.answer, err
	}
}

// holdsAll reports whether this node holds all of the homes.
func (s *Server) holdsAll(homes []string) bool {
	return !slices.ContainsFunc(homes, func(home string) bool { return !s.holds(home) })
}

// dividedCall is a call whose parts are answered by several nodes, with the answers that have
// arrived.
type dividedCall[Req, Res any, P request.Message[Req]] struct {
	s        *Server
	splitter partSplitter[Req, Res, P]
	req      P
	homes    []string
	answer   *Res
	// position is the lowest position of the merged parts, and lag their greatest lag. Before the
	// first part they are zero and -1.
	position events.Position
	lag      int64
}

// answerLocalParts answers the parts about homes that this node can answer for. It returns the
// indexes of the remaining parts.
func (d *dividedCall[Req, Res, P]) answerLocalParts(
	ctx context.Context, handle unaryHandler[Req, Res, P], info *call.Info,
) (remaining []int, err error) {
	var local []int
	for i, home := range d.homes {
		if d.s.canAnswerFor(home) {
			local = append(local, i)
		} else {
			remaining = append(remaining, i)
		}
	}
	if len(local) == 0 {
		return remaining, nil
	}

	part, err := handle(ctx, d.splitter.selectParts(d.req, local), info)
	switch {
	case err == nil && d.s.holdsAll(selectAt(d.homes, local)):
		position, err := events.ParsePosition(*d.splitter.position(part))
		if err == nil {
			d.merge(local, part, position, info.Lag)
		}
		return remaining, err
	case err == nil || d.s.shouldAskOthers(err, d.homes...):
		// This node has given up some of the homes meanwhile, or its store has stopped or is too
		// far behind: other nodes answer these parts, too.
		return append(remaining, local...), nil
	}
	return nil, err
}

// askOtherNodes has other nodes answer the parts with the given indexes.
func (d *dividedCall[Req, Res, P]) askOtherNodes(ctx context.Context, procedure string, remaining []int) error {
	partitions := make([]uint8, len(remaining))
	for i, index := range remaining {
		partitions[i] = peers.PartitionOf(d.homes[index])
	}

	// Scatter gives each node a selection of partitions, which refers to remaining.
	ask := func(ctx context.Context, n *Node, selection []int) (keep func(), err error) {
		indexes := selectAt(remaining, selection)
		req := d.splitter.selectParts(d.req, indexes)
		part, lag, err := peers.Call[Req, Res](ctx, d.s.cluster.Peers, n, procedure, (*Req)(req))
		if err != nil {
			return nil, err
		}
		position, err := events.ParsePosition(*d.splitter.position(part))
		if err != nil || !d.splitter.isComplete(d.req, indexes, part) {
			return nil, peers.BadAnswerError(n.Name)
		}
		return func() { d.merge(indexes, part, position, lag) }, nil
	}
	return d.s.cluster.Scatter(ctx, procedure, partitions, ask)
}

// merge copies the answer for some parts into the whole answer.
func (d *dividedCall[Req, Res, P]) merge(indexes []int, part *Res, position events.Position, lag int64) {
	d.splitter.mergePart(d.answer, indexes, part)
	d.lag = max(d.lag, lag)

	// The answer promises the lowest position, because only that is contained in all of its parts.
	if d.position == (events.Position{}) || position.Seq < d.position.Seq {
		d.position = position
		*d.splitter.position(d.answer) = *d.splitter.position(part)
	}
}

// selectAt returns the elements of a list at the given indexes.
func selectAt[T any](all []T, indexes []int) []T {
	selected := make([]T, len(indexes))
	for i, index := range indexes {
		selected[i] = all[index]
	}
	return selected
}

// placeAt is the reverse of selectAt: it stores the selected elements at the given indexes of all.
// indexes may be longer than selected.
func placeAt[T any](all []T, indexes []int, selected []T) {
	for i := range selected {
		all[indexes[i]] = selected[i]
	}
}

// byCheckFollows splits the requests of CheckFollows.
func byCheckFollows() partSplitter[skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse, *skeinv1.CheckFollowsRequest] {
	return partSplitter[skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse, *skeinv1.CheckFollowsRequest]{
		homes: func(req *skeinv1.CheckFollowsRequest) (homes []string) {
			for _, p := range req.GetPairs() {
				homes = append(homes, p.GetUserId())
			}
			return homes
		},
		selectParts: func(req *skeinv1.CheckFollowsRequest, indexes []int) *skeinv1.CheckFollowsRequest {
			return &skeinv1.CheckFollowsRequest{
				Pairs: selectAt(req.GetPairs(), indexes), AtLeast: req.GetAtLeast(), IncludeTimes: req.GetIncludeTimes(),
			}
		},
		newAnswer: func(req *skeinv1.CheckFollowsRequest) *skeinv1.CheckFollowsResponse {
			res := &skeinv1.CheckFollowsResponse{Kinds: make([]skeinv1.FollowKind, len(req.GetPairs()))}
			if req.GetIncludeTimes() {
				res.FollowTimes = make([]*skeinv1.FollowTime, len(req.GetPairs()))
			}
			return res
		},
		mergePart: func(whole *skeinv1.CheckFollowsResponse, indexes []int, part *skeinv1.CheckFollowsResponse) {
			placeAt(whole.Kinds, indexes, part.GetKinds())
			placeAt(whole.FollowTimes, indexes, part.GetFollowTimes())
		},
		isComplete: func(req *skeinv1.CheckFollowsRequest, indexes []int, part *skeinv1.CheckFollowsResponse) bool {
			return len(part.GetKinds()) == len(indexes) && (!req.GetIncludeTimes() || len(part.GetFollowTimes()) == len(indexes))
		},
		position: func(res *skeinv1.CheckFollowsResponse) *string { return &res.Position },
	}
}

// byBatchGetPins splits the requests of BatchGetPins.
func byBatchGetPins() partSplitter[skeinv1.BatchGetPinsRequest, skeinv1.BatchGetPinsResponse, *skeinv1.BatchGetPinsRequest] {
	return partSplitter[skeinv1.BatchGetPinsRequest, skeinv1.BatchGetPinsResponse, *skeinv1.BatchGetPinsRequest]{
		homes: func(req *skeinv1.BatchGetPinsRequest) (homes []string) {
			for _, p := range req.GetPins() {
				homes = append(homes, p.GetOwnerId())
			}
			return homes
		},
		selectParts: func(req *skeinv1.BatchGetPinsRequest, indexes []int) *skeinv1.BatchGetPinsRequest {
			return &skeinv1.BatchGetPinsRequest{Pins: selectAt(req.GetPins(), indexes), AtLeast: req.GetAtLeast()}
		},
		newAnswer: func(req *skeinv1.BatchGetPinsRequest) *skeinv1.BatchGetPinsResponse {
			return &skeinv1.BatchGetPinsResponse{Pins: make([]*skeinv1.PinState, len(req.GetPins()))}
		},
		mergePart: func(whole *skeinv1.BatchGetPinsResponse, indexes []int, part *skeinv1.BatchGetPinsResponse) {
			placeAt(whole.Pins, indexes, part.GetPins())
		},
		isComplete: func(_ *skeinv1.BatchGetPinsRequest, indexes []int, part *skeinv1.BatchGetPinsResponse) bool {
			return len(part.GetPins()) == len(indexes)
		},
		position: func(res *skeinv1.BatchGetPinsResponse) *string { return &res.Position },
	}
}

// byBatchGetCounters splits the requests of BatchGetCounters.
func byBatchGetCounters() partSplitter[skeinv1.BatchGetCountersRequest, skeinv1.BatchGetCountersResponse, *skeinv1.BatchGetCountersRequest] {
	return partSplitter[skeinv1.BatchGetCountersRequest, skeinv1.BatchGetCountersResponse, *skeinv1.BatchGetCountersRequest]{
		homes: func(req *skeinv1.BatchGetCountersRequest) (homes []string) {
			for _, k := range req.GetKeys() {
				homes = append(homes, cmp.Or(k.GetUserId(), k.GetItemId(), k.GetBoard().GetOwnerId()))
			}
			return homes
		},
		selectParts: func(req *skeinv1.BatchGetCountersRequest, indexes []int) *skeinv1.BatchGetCountersRequest {
			return &skeinv1.BatchGetCountersRequest{
				Keys: selectAt(req.GetKeys(), indexes), AtLeast: req.GetAtLeast(), ReactionKinds: req.GetReactionKinds(),
			}
		},
		newAnswer: func(req *skeinv1.BatchGetCountersRequest) *skeinv1.BatchGetCountersResponse {
			return &skeinv1.BatchGetCountersResponse{Counters: make([]*skeinv1.Counters, len(req.GetKeys()))}
		},
		mergePart: func(whole *skeinv1.BatchGetCountersResponse, indexes []int, part *skeinv1.BatchGetCountersResponse) {
			placeAt(whole.Counters, indexes, part.GetCounters())
		},
		isComplete: func(_ *skeinv1.BatchGetCountersRequest, indexes []int, part *skeinv1.BatchGetCountersResponse) bool {
			return len(part.GetCounters()) == len(indexes)
		},
		position: func(res *skeinv1.BatchGetCountersResponse) *string { return &res.Position },
	}
}

type (
	countsRequest  = skeinv1.BatchGetFollowCountsRequest
	countsResponse = skeinv1.BatchGetFollowCountsResponse
)

// byBatchGetFollowCounts splits the requests of BatchGetFollowCounts. The users are the first
// parts, and the boards follow them.
func byBatchGetFollowCounts() partSplitter[countsRequest, countsResponse, *countsRequest] {
	return partSplitter[countsRequest, countsResponse, *countsRequest]{
		homes: func(req *countsRequest) (homes []string) {
			homes = append(homes, req.GetUserIds()...)
			for _, b := range req.GetBoards() {
				homes = append(homes, b.GetOwnerId())
			}
			return homes
		},
		selectParts: func(req *countsRequest, indexes []int) *countsRequest {
			users, boards := usersAndBoards(len(req.GetUserIds()), indexes)
			return &countsRequest{
				UserIds: selectAt(req.GetUserIds(), users), Boards: selectAt(req.GetBoards(), boards), AtLeast: req.GetAtLeast(),
			}
		},
		newAnswer: func(req *countsRequest) *countsResponse {
			return &countsResponse{
				Users:  make([]*skeinv1.UserFollowCounts, len(req.GetUserIds())),
				Boards: make([]*skeinv1.BoardFollowCounts, len(req.GetBoards())),
			}
		},
		mergePart: func(whole *countsResponse, indexes []int, part *countsResponse) {
			users, boards := usersAndBoards(len(whole.GetUsers()), indexes)
			placeAt(whole.Users, users, part.GetUsers())
			placeAt(whole.Boards, boards, part.GetBoards())
		},
		isComplete: func(req *countsRequest, indexes []int, part *countsResponse) bool {
			users, boards := usersAndBoards(len(req.GetUserIds()), indexes)
			return len(part.GetUsers()) == len(users) && len(part.GetBoards()) == len(boards)
		},
		position: func(res *countsResponse) *string { return &res.Position },
	}
}

// usersAndBoards separates the indexes of parts of a request with userCount users into indexes of
// users and indexes of boards.
func usersAndBoards(userCount int, indexes []int) (users, boards []int) {
	for _, i := range indexes {
		if i < userCount {
			users = append(users, i)
		} else {
			boards = append(boards, i-userCount)
		}
	}
	return users, boards
}
