// Package gatewaytest has random events and questions, for tests that demand that several processes answer as one does.
package gatewaytest

import (
	"math/rand/v2"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// asking has random names, and the position that questions demand.
type asking struct {
	some
	at string
}

func (r asking) users() []string {
	return []string{r.user(), r.user(), r.user(), r.user(), r.user(), r.user()}
}

func (r asking) boards() []*skeinv1.Board {
	return []*skeinv1.Board{r.board(r.user()), r.board(r.user()), r.board(r.user())}
}

func (r asking) pins() []*skeinv1.Pin {
	return []*skeinv1.Pin{r.pin(r.user()), r.pin(r.user()), r.pin(r.user()), r.pin(r.user())}
}

func (r asking) direction() skeinv1.FollowDirection { return skeinv1.FollowDirection(r.IntN(4)) }

func (r asking) order() skeinv1.FeedOrder {
	return []skeinv1.FeedOrder{skeinv1.FeedOrder_FEED_ORDER_NEWEST, skeinv1.FeedOrder_FEED_ORDER_TRENDING}[r.IntN(2)]
}

func (r asking) only() skeinv1.FollowSetting {
	return []skeinv1.FollowSetting{0, 0, skeinv1.FollowSetting_FOLLOW_SETTING_FAVORITE, skeinv1.FollowSetting_FOLLOW_SETTING_NOTIFY}[r.IntN(4)]
}

// Question is a request of any method that reads, but not of streams, about what [Events] are about, at or after a position.
func Question(rng *rand.Rand, at string) proto.Message {
	r := asking{some{rng}, at}
	switch k := r.IntN(25); {
	case k < 12:
		return r.ofGraph(k)
	case k < 17:
		return r.ofFeed(k)
	case k < 24:
		return r.ofItems(k)
	}
	return &skeinv1.ReadFeedRequest{
		ReaderId: r.user(), PageSize: r.size(), Order: r.order(), IncludeOwn: r.yes(), HideSeen: r.yes(), OnePerItem: r.yes(), Only: r.only(),
		AtLeast: r.at,
	}
}

func (r asking) ofGraph(k int) proto.Message {
	switch k {
	case 0:
		req := &skeinv1.CheckFollowsRequest{AtLeast: r.at, IncludeTimes: r.yes()}
		for range 6 {
			req.Pairs = append(req.Pairs,
				&skeinv1.FollowPair{UserId: r.user(), Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: r.user()}},
				&skeinv1.FollowPair{UserId: r.user(), Target: &skeinv1.FollowPair_Board{Board: r.board(r.user())}})
		}
		return req
	case 1:
		return &skeinv1.FilterFollowedRequest{ViewerId: r.user(), UserIds: r.users(), Direction: r.direction(), AtLeast: r.at}
	case 2:
		return &skeinv1.FilterFollowedRequest{ViewerId: r.user(), Boards: r.boards(), AtLeast: r.at}
	case 3:
		return &skeinv1.BatchGetRelationshipsRequest{ViewerId: r.user(), UserIds: r.users(), AtLeast: r.at}
	case 4:
		return &skeinv1.BatchGetFollowCountsRequest{UserIds: r.users(), Boards: r.boards(), AtLeast: r.at}
	case 5:
		return &skeinv1.ListFollowingRequest{UserId: r.user(), PageSize: r.size(), Only: r.only(), AtLeast: r.at}
	case 6:
		return &skeinv1.ListFollowersRequest{UserId: r.user(), PageSize: r.size(), AtLeast: r.at}
	case 7:
		return &skeinv1.ListBoardFollowersRequest{Board: r.board(r.user()), PageSize: r.size(), AtLeast: r.at}
	case 8:
		return &skeinv1.ListFollowedBoardsRequest{UserId: r.user(), PageSize: r.size(), AtLeast: r.at}
	case 9:
		return &skeinv1.ListBoardsRequest{UserId: r.user(), PageSize: r.size(), AtLeast: r.at}
	case 10:
		return &skeinv1.ListBlockedRequest{UserId: r.user(), PageSize: r.size(), AtLeast: r.at}
	case 11:
		return &skeinv1.ListMutedRequest{UserId: r.user(), PageSize: r.size(), AtLeast: r.at}
	}
	return nil
}

func (r asking) ofFeed(k int) proto.Message {
	switch k {
	case 12:
		return &skeinv1.ListMutualsRequest{ViewerId: r.user(), UserId: r.user(), PageSize: r.size(), AtLeast: r.at}
	case 13:
		return &skeinv1.CountNewerRequest{ReaderId: r.user(), IncludeOwn: r.yes(), HideSeen: r.yes(), Only: r.only(), AtLeast: r.at}
	case 14:
		return &skeinv1.ListPinsRequest{Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: r.user()}, PageSize: r.size(), AtLeast: r.at}
	case 15:
		return &skeinv1.BatchGetPinsRequest{Pins: r.pins(), AtLeast: r.at}
	case 16:
		return &skeinv1.ExplainPinRequest{
			ReaderId: r.user(), Pin: r.pin(r.user()), Order: r.order(), IncludeOwn: r.yes(), HideSeen: r.yes(), OnePerItem: r.yes(), Only: r.only(),
			AtLeast: r.at,
		}
	}
	return nil
}

func (r asking) ofItems(k int) proto.Message {
	switch k {
	case 17:
		return &skeinv1.ListReactionsRequest{UserId: r.user(), Kind: r.kind(), PageSize: r.size(), AtLeast: r.at}
	case 18:
		req := &skeinv1.BatchGetViewerStateRequest{ViewerId: r.user(), AtLeast: r.at}
		for range 5 {
			req.Keys = append(req.Keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: r.pin(r.user())}},
				&skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_ItemId{ItemId: r.item()}})
		}
		return req
	case 19:
		return &skeinv1.FilterSeenRequest{UserId: r.user(), ItemIds: []string{r.item(), r.item(), r.item()}, AtLeast: r.at}
	case 20:
		if r.yes() {
			return &skeinv1.ListHiddenRequest{UserId: r.user(), PageSize: r.size(), AtLeast: r.at}
		}
		return &skeinv1.ListServedRequest{UserId: r.user(), AtLeast: r.at}
	case 21:
		req := &skeinv1.BatchGetCountersRequest{AtLeast: r.at}
		if r.yes() {
			req.ReactionKinds = []string{"save", "like", "wow"}
		}
		for range 4 {
			req.Keys = append(req.Keys, &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: r.user()}},
				&skeinv1.CounterKey{Target: &skeinv1.CounterKey_Board{Board: r.board(r.user())}},
				&skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: r.item()}})
		}
		return req
	case 22:
		req := &skeinv1.ListTrendingRequest{PageSize: r.size(), AtLeast: r.at}
		switch r.IntN(3) {
		case 0:
			req.Scope = &skeinv1.ListTrendingRequest_OwnerId{OwnerId: r.user()}
		case 1:
			req.Scope = &skeinv1.ListTrendingRequest_Board{Board: r.board(r.user())}
		}
		return req
	case 23:
		req := &skeinv1.ListReactorsRequest{ItemId: r.item(), PageSize: r.size(), AtLeast: r.at}
		if r.yes() {
			req.ViewerId = r.user()
		}
		if r.yes() {
			req.Kind = "save"
		}
		return req
	}
	return nil
}

// Method is the method that takes a request.
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

// field is a field of a message; nil means it has none of the name.
func field(m proto.Message, name string) protoreflect.FieldDescriptor {
	return m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
}

// Pages reads all pages of a question, without what differs between processes. ask puts a request; page is the number of its page.
func Pages(req proto.Message, ask func(page int, req proto.Message) (proto.Message, error)) (all []proto.Message, err error) {
	req = proto.Clone(req)
	for i := 0; ; i++ {
		res, err := ask(i, req)
		if err != nil {
			return all, err
		}
		m, token := res.ProtoReflect(), ""
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
