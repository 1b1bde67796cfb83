// Package gatewaytest generates random events and requests, for tests which check that several
// processes answer as one process does.
package gatewaytest

import (
	"math/rand/v2"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// questionMaker makes random requests that demand a position.
type questionMaker struct {
	randomChoices
	atLeast string
}

func (r questionMaker) users() []string {
	return []string{r.user(), r.user(), r.user(), r.user(), r.user(), r.user()}
}

func (r questionMaker) boards() []*skeinv1.Board {
	return []*skeinv1.Board{r.board(r.user()), r.board(r.user()), r.board(r.user())}
}

func (r questionMaker) pins() []*skeinv1.Pin {
	return []*skeinv1.Pin{r.pin(r.user()), r.pin(r.user()), r.pin(r.user()), r.pin(r.user())}
}

func (r questionMaker) direction() skeinv1.FollowDirection { return skeinv1.FollowDirection(r.IntN(4)) }

func (r questionMaker) order() skeinv1.FeedOrder {
	return []skeinv1.FeedOrder{skeinv1.FeedOrder_FEED_ORDER_NEWEST, skeinv1.FeedOrder_FEED_ORDER_TRENDING}[r.IntN(2)]
}

func (r questionMaker) only() skeinv1.FollowSetting {
	return []skeinv1.FollowSetting{0, 0, skeinv1.FollowSetting_FOLLOW_SETTING_FAVORITE, skeinv1.FollowSetting_FOLLOW_SETTING_NOTIFY}[r.IntN(4)]
}

// Question returns a random request of one of the unary methods that read, about the users and
// items of [Events]. Its at_least is the given position.
func Question(rng *rand.Rand, at string) proto.Message { return QuestionOf(rng, "", at) }

// QuestionOf is Question about what [EventsOf] are about. With a prefix, it does not ask for the
// list of all items by heat, which has those of all prefixes.
func QuestionOf(rng *rand.Rand, prefix, at string) proto.Message {
	r := questionMaker{randomChoices{rng, prefix}, at}
	switch k := r.IntN(27); {
	case k < 12:
		return r.graphQuestion(k)
	case k < 17:
		return r.feedQuestion(k)
	case k < 24:
		return r.itemQuestion(k)
	case k == 24:
		return &skeinv1.ReadNotificationsRequest{UserId: r.user(), PageSize: r.pageSize(), AtLeast: r.atLeast}
	case k == 25:
		return &skeinv1.CountNotificationsRequest{UserId: r.user(), AtLeast: r.atLeast}
	}
	return &skeinv1.ReadFeedRequest{
		ReaderId: r.user(), PageSize: r.pageSize(), Order: r.order(), IncludeOwn: r.bool(), HideSeen: r.bool(), OnePerItem: r.bool(), Only: r.only(),
		AtLeast: r.atLeast,
	}
}

func (r questionMaker) graphQuestion(k int) proto.Message {
	switch k {
	case 0:
		req := &skeinv1.CheckFollowsRequest{AtLeast: r.atLeast, IncludeTimes: r.bool()}
		for range 6 {
			req.Pairs = append(req.Pairs,
				&skeinv1.FollowPair{UserId: r.user(), Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: r.user()}},
				&skeinv1.FollowPair{UserId: r.user(), Target: &skeinv1.FollowPair_Board{Board: r.board(r.user())}})
		}
		return req
	case 1:
		return &skeinv1.FilterFollowedRequest{ViewerId: r.user(), UserIds: r.users(), Direction: r.direction(), AtLeast: r.atLeast}
	case 2:
		return &skeinv1.FilterFollowedRequest{ViewerId: r.user(), Boards: r.boards(), AtLeast: r.atLeast}
	case 3:
		return &skeinv1.BatchGetRelationshipsRequest{ViewerId: r.user(), UserIds: r.users(), AtLeast: r.atLeast}
	case 4:
		return &skeinv1.BatchGetFollowCountsRequest{UserIds: r.users(), Boards: r.boards(), AtLeast: r.atLeast}
	case 5:
		return &skeinv1.ListFollowingRequest{UserId: r.user(), PageSize: r.pageSize(), Only: r.only(), AtLeast: r.atLeast}
	case 6:
		return &skeinv1.ListFollowersRequest{UserId: r.user(), PageSize: r.pageSize(), AtLeast: r.atLeast}
	case 7:
		return &skeinv1.ListBoardFollowersRequest{Board: r.board(r.user()), PageSize: r.pageSize(), AtLeast: r.atLeast}
	case 8:
		return &skeinv1.ListFollowedBoardsRequest{UserId: r.user(), PageSize: r.pageSize(), AtLeast: r.atLeast}
	case 9:
		return &skeinv1.ListBoardsRequest{UserId: r.user(), PageSize: r.pageSize(), AtLeast: r.atLeast}
	case 10:
		return &skeinv1.ListBlockedRequest{UserId: r.user(), PageSize: r.pageSize(), AtLeast: r.atLeast}
	case 11:
		return &skeinv1.ListMutedRequest{UserId: r.user(), PageSize: r.pageSize(), AtLeast: r.atLeast}
	}
	return nil
}

func (r questionMaker) feedQuestion(k int) proto.Message {
	switch k {
	case 12:
		return &skeinv1.ListMutualsRequest{ViewerId: r.user(), UserId: r.user(), PageSize: r.pageSize(), AtLeast: r.atLeast}
	case 13:
		return &skeinv1.CountNewerRequest{ReaderId: r.user(), IncludeOwn: r.bool(), HideSeen: r.bool(), Only: r.only(), AtLeast: r.atLeast}
	case 14:
		return &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: r.user()}, PageSize: r.pageSize(), AtLeast: r.atLeast}
	case 15:
		return &skeinv1.BatchGetPinsRequest{Pins: r.pins(), AtLeast: r.atLeast}
	case 16:
		return &skeinv1.ExplainPinRequest{
			ReaderId: r.user(), Pin: r.pin(r.user()), Order: r.order(), IncludeOwn: r.bool(), HideSeen: r.bool(), OnePerItem: r.bool(), Only: r.only(),
			AtLeast: r.atLeast,
		}
	}
	return nil
}

func (r questionMaker) itemQuestion(k int) proto.Message {
	switch k {
	case 17:
		return &skeinv1.ListReactionsRequest{UserId: r.user(), Kind: r.reactionKind(), PageSize: r.pageSize(), AtLeast: r.atLeast}
	case 18:
		req := &skeinv1.BatchGetViewerStateRequest{ViewerId: r.user(), AtLeast: r.atLeast}
		for range 5 {
			req.Keys = append(req.Keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: r.pin(r.user())}},
				&skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_ItemId{ItemId: r.item()}})
		}
		return req
	case 19:
		return &skeinv1.FilterSeenRequest{UserId: r.user(), ItemIds: []string{r.item(), r.item(), r.item()}, AtLeast: r.atLeast}
	case 20:
		if r.bool() {
			return &skeinv1.ListHiddenRequest{UserId: r.user(), PageSize: r.pageSize(), AtLeast: r.atLeast}
		}
		return &skeinv1.ListServedRequest{UserId: r.user(), AtLeast: r.atLeast}
	case 21:
		req := &skeinv1.BatchGetCountersRequest{AtLeast: r.atLeast}
		if r.bool() {
			req.ReactionKinds = []string{"save", "like", "wow"}
		}
		for range 4 {
			req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: r.user()}},
				&skeinv1.CounterKey{Target: &skeinv1.CounterKey_Board{Board: r.board(r.user())}},
				&skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: r.item()}})
		}
		return req
	case 22:
		req := &skeinv1.ListTrendingRequest{PageSize: r.pageSize(), AtLeast: r.atLeast}
		switch scope := r.IntN(3); {
		case scope == 0:
			req.Scope = &skeinv1.ListTrendingRequest_Board{Board: r.board(r.user())}
		case scope == 1 || r.prefix != "":
			req.Scope = &skeinv1.ListTrendingRequest_OwnerId{OwnerId: r.user()}
		}
		return req
	case 23:
		req := &skeinv1.ListReactorsRequest{ItemId: r.item(), PageSize: r.pageSize(), AtLeast: r.atLeast}
		if r.bool() {
			req.ViewerId = r.user()
		}
		if r.bool() {
			req.Kind = "save"
		}
		return req
	}
	return nil
}

// Method returns the method of the API that accepts the request.
func Method(req proto.Message) (found protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("skein.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for j := range f.Services().Get(i).Methods().Len() {
				if m := f.Services().Get(i).Methods().Get(j); m.Input() == req.ProtoReflect().Descriptor() {
					found = m
				}
			}
		}
		return found == nil
	})
	return found
}

// field returns the field of a message with the name, or nil if there is none.
func field(m proto.Message, name string) protoreflect.FieldDescriptor {
	return m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
}

// Pages returns all pages of a list, at most 100, without the fields that differ between processes.
// ask makes the call for each page, which it gets with the number of the page, from 0.
func Pages(req proto.Message, ask func(page int, req proto.Message) (proto.Message, error)) (all []proto.Message, err error) {
	req = proto.Clone(req)
	for i := 0; ; i++ {
		res, err := ask(i, req)
		if err != nil {
			return all, err
		}
		m := res.ProtoReflect()
		token := ""
		if next := field(res, "next_page_token"); next != nil {
			token = m.Get(next).String()
		}
		for _, name := range []string{"position", "next_page_token", "newest_token"} {
			if f := field(res, name); f != nil {
				m.Clear(f)
			}
		}
		all = append(all, res)
		if token == "" || len(all) == 100 {
			return all, nil
		}
		req.ProtoReflect().Set(field(req, "page_token"), protoreflect.ValueOfString(token))
	}
}
