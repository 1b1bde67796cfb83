package serving

import (
	"math/rand/v2"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

const (
	// requestsPerMethod is how many different requests are made for a method.
	requestsPerMethod = 5000
	// These are how many users, keys, pins or items one call asks about.
	usersPerRelationshipsCall = 25
	usersPerCountsCall        = 25
	keysPerCountersCall       = 50
	pinsPerCall               = 50
	itemsPerFilterCall        = 200
	// feedPageSize is how many pins a page of a feed or of pins has.
	feedPageSize = 20
)

// readMethod is a method of the API that reads, with the requests that are sent to it.
type readMethod struct {
	// id and title are those of the row.
	id, title string
	// projection is the name of the projection whose store answers.
	projection string
	procedure  string
	requests   []proto.Message
	// answer is an empty message of the type of the answers.
	answer proto.Message
}

// randomRequests calls newRequest for each request of a method.
func randomRequests(r *rand.Rand, newRequest func(r *rand.Rand) proto.Message) (all []proto.Message) {
	for range requestsPerMethod {
		all = append(all, newRequest(r))
	}
	return all
}

// methods returns all methods that read, except streams. Applications do not wait for a stream.
func (w *loadWorld) methods() (all []readMethod) {
	r := rand.New(rand.NewPCG(59, 0)) // a fixed seed: every run of the bench sends the same requests
	all = append(all, w.graphMethods(r)...)
	all = append(all, w.listMethods(r)...)
	all = append(all, w.boardMethods(r)...)
	all = append(all, w.feedMethods(r)...)
	all = append(all, w.seenMethods(r)...)
	return append(all, w.counterMethods(r)...)
}

// follower returns the follower of a random follow. Users who follow many others are drawn more
// often.
func (w *loadWorld) follower(r *rand.Rand) uint32 {
	return w.graph.Edges[r.IntN(len(w.graph.Edges))].Follower
}

// followee returns the followee of a random follow. Users with many followers are drawn more often.
func (w *loadWorld) followee(r *rand.Rand) uint32 {
	return w.graph.Edges[r.IntN(len(w.graph.Edges))].Followee
}

// busyUser returns a random user who has lists of every kind.
func (w *loadWorld) busyUser(r *rand.Rand) uint32 { return w.busy[r.IntN(len(w.busy))] }

// graphMethods returns the methods about relations and counts of users.
func (w *loadWorld) graphMethods(r *rand.Rand) []readMethod {
	check := readMethod{
		id: "check", title: "CheckFollows, 1 pair", projection: "graph",
		procedure: skeinv1connect.GraphServiceCheckFollowsProcedure, answer: new(skeinv1.CheckFollowsResponse),
	}
	for _, p := range w.graph.Pairs(r, requestsPerMethod) {
		check.requests = append(check.requests, checkRequest(p))
	}

	filter := readMethod{
		id: "filter", title: "FilterFollowed, 25 users", projection: "graph",
		procedure: skeinv1connect.GraphServiceFilterFollowedProcedure, answer: new(skeinv1.FilterFollowedResponse),
	}
	for _, f := range w.graph.Filters(r, requestsPerMethod) {
		filter.requests = append(filter.requests, filterRequest(f))
	}

	return []readMethod{check, filter, {
		id: "relationships", title: "BatchGetRelationships, 25 users", projection: "graph",
		procedure: skeinv1connect.GraphServiceBatchGetRelationshipsProcedure, answer: new(skeinv1.BatchGetRelationshipsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			m := &skeinv1.BatchGetRelationshipsRequest{ViewerId: workload.UserID(w.follower(r))}
			for range usersPerRelationshipsCall {
				m.UserIds = append(m.UserIds, workload.UserID(w.followee(r)))
			}
			return m
		}),
	}, {
		id: "counts", title: "BatchGetFollowCounts, 25 users", projection: "graph",
		procedure: skeinv1connect.GraphServiceBatchGetFollowCountsProcedure, answer: new(skeinv1.BatchGetFollowCountsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			m := &skeinv1.BatchGetFollowCountsRequest{}
			for range usersPerCountsCall {
				m.UserIds = append(m.UserIds, workload.UserID(w.followee(r)))
			}
			return m
		}),
	}}
}

// listMethods returns the methods that list users.
func (w *loadWorld) listMethods(r *rand.Rand) []readMethod {
	return []readMethod{{
		id: "following", title: "ListFollowing, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListFollowingProcedure, answer: new(skeinv1.ListFollowingResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListFollowingRequest{UserId: workload.UserID(w.follower(r)), PageSize: workload.PageSize}
		}),
	}, {
		id: "followers", title: "ListFollowers, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListFollowersProcedure, answer: new(skeinv1.ListFollowersResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message { return newestRequest(w.followee(r), workload.PageSize) }),
	}, {
		id: "mutuals", title: "ListMutuals, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListMutualsProcedure, answer: new(skeinv1.ListMutualsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListMutualsRequest{
				// The users with the lowest numbers have the most followers, so most pages are
				// full.
				ViewerId: workload.UserID(w.busyUser(r)), UserId: workload.UserID(uint32(r.IntN(w.graph.Users / 100))), PageSize: workload.PageSize,
			}
		}),
	}, {
		id: "blocked", title: "ListBlocked, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListBlockedProcedure, answer: new(skeinv1.ListBlockedResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListBlockedRequest{UserId: workload.UserID(w.busyUser(r)), PageSize: workload.PageSize}
		}),
	}, {
		id: "muted", title: "ListMuted, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListMutedProcedure, answer: new(skeinv1.ListMutedResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListMutedRequest{UserId: workload.UserID(w.busyUser(r)), PageSize: workload.PageSize}
		}),
	}}
}

// boardMethods returns the methods that list boards, or the followers of a board.
func (w *loadWorld) boardMethods(r *rand.Rand) []readMethod {
	return []readMethod{{
		id: "board-followers", title: "ListBoardFollowers, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListBoardFollowersProcedure, answer: new(skeinv1.ListBoardFollowersResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListBoardFollowersRequest{
				Board: board(w.followee(r), ""), PageSize: workload.PageSize, Kind: skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_ALL,
			}
		}),
	}, {
		id: "followed-boards", title: "ListFollowedBoards, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListFollowedBoardsProcedure, answer: new(skeinv1.ListFollowedBoardsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListFollowedBoardsRequest{UserId: workload.UserID(w.busyUser(r)), PageSize: workload.PageSize}
		}),
	}, {
		id: "excluded-boards", title: "ListExcludedBoards, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListExcludedBoardsProcedure, answer: new(skeinv1.ListExcludedBoardsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListExcludedBoardsRequest{UserId: workload.UserID(w.busyUser(r)), PageSize: workload.PageSize}
		}),
	}, {
		id: "boards", title: "ListBoards, 50", projection: "graph",
		procedure: skeinv1connect.GraphServiceListBoardsProcedure, answer: new(skeinv1.ListBoardsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListBoardsRequest{UserId: workload.UserID(w.busyUser(r)), PageSize: workload.PageSize}
		}),
	}}
}

// feedMethods returns the methods about feeds, pins and reactions.
func (w *loadWorld) feedMethods(r *rand.Rand) []readMethod {
	feed := func(id, title string, order skeinv1.FeedOrder, hideSeen bool) readMethod {
		return readMethod{
			id: id, title: title, projection: "inbox",
			procedure: skeinv1connect.FeedServiceReadFeedProcedure, answer: new(skeinv1.ReadFeedResponse),
			requests: randomRequests(r, func(r *rand.Rand) proto.Message {
				return &skeinv1.ReadFeedRequest{
					ReaderId: workload.UserID(w.follower(r)), PageSize: feedPageSize, Order: order, HideSeen: hideSeen,
				}
			}),
		}
	}
	return []readMethod{
		feed("feed-newest", "ReadFeed, newest 20", skeinv1.FeedOrder_FEED_ORDER_NEWEST, false),
		feed("feed-unseen", "ReadFeed, newest 20 unseen", skeinv1.FeedOrder_FEED_ORDER_NEWEST, true),
		feed("feed-hot", "ReadFeed, hottest 20", skeinv1.FeedOrder_FEED_ORDER_TRENDING, false),
		{
			id: "pins", title: "ListPins, 20", projection: "inbox",
			procedure: skeinv1connect.FeedServiceListPinsProcedure, answer: new(skeinv1.ListPinsResponse),
			requests: randomRequests(r, func(r *rand.Rand) proto.Message {
				return &skeinv1.ListPinsRequest{
					Target:   &skeinv1.ListPinsRequest_OwnerId{OwnerId: workload.UserID(w.authors[r.IntN(len(w.authors))])},
					PageSize: feedPageSize,
				}
			}),
		},
		w.pinStates(r), w.viewerState(r), w.likes(r), w.reactors(r), w.countNewer(r), w.explainPin(r),
	}
}

// likes lists the likes of watchers. A watcher is a user who has plays.
func (w *loadWorld) likes(r *rand.Rand) readMethod {
	return readMethod{
		id: "likes", title: "ListReactions, 50", projection: "counters",
		procedure: skeinv1connect.CounterServiceListReactionsProcedure, answer: new(skeinv1.ListReactionsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListReactionsRequest{UserId: workload.UserID(uint32(r.IntN(w.watchers))), PageSize: workload.PageSize}
		}),
	}
}

// reactors lists the users who like an item, as a viewer sees them. Popular items are drawn more
// often.
func (w *loadWorld) reactors(r *rand.Rand) readMethod {
	return readMethod{
		id: "reactors", title: "ListReactors, 50", projection: "counters",
		procedure: skeinv1connect.CounterServiceListReactorsProcedure, answer: new(skeinv1.ListReactorsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			viewer := r.IntN(w.watchers)
			return &skeinv1.ListReactorsRequest{
				ItemId: w.playedItem(viewer, 0), ViewerId: workload.UserID(uint32(viewer)), PageSize: workload.PageSize,
			}
		}),
	}
}

// countNewer counts the unread pins of watchers who have read nothing, which costs most.
func (w *loadWorld) countNewer(r *rand.Rand) readMethod {
	return readMethod{
		id: "count-newer", title: "CountNewer, up to 100", projection: "inbox",
		procedure: skeinv1connect.FeedServiceCountNewerProcedure, answer: new(skeinv1.CountNewerResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.CountNewerRequest{ReaderId: workload.UserID(uint32(r.IntN(w.watchers)))}
		}),
	}
}

// explainPin asks why a pin is or is not in the feed of a watcher. Most pins are of owners whom the
// watcher does not follow.
func (w *loadWorld) explainPin(r *rand.Rand) readMethod {
	return readMethod{
		id: "explain-pin", title: "ExplainPin", projection: "inbox",
		procedure: skeinv1connect.FeedServiceExplainPinProcedure, answer: new(skeinv1.ExplainPinResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ExplainPinRequest{ReaderId: workload.UserID(uint32(r.IntN(w.watchers))), Pin: w.pinName(r.IntN(w.pins))}
		}),
	}
}

// pinStates reads pins of many authors, as an application does that stores the names of pins.
func (w *loadWorld) pinStates(r *rand.Rand) readMethod {
	return readMethod{
		id: "pin-states", title: "BatchGetPins, 50 pins", projection: "inbox",
		procedure: skeinv1connect.FeedServiceBatchGetPinsProcedure, answer: new(skeinv1.BatchGetPinsResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			m := &skeinv1.BatchGetPinsRequest{}
			for range pinsPerCall {
				m.Pins = append(m.Pins, w.pinName(r.IntN(w.pins)))
			}
			return m
		}),
	}
}

// viewerState asks how a watcher relates to many pins: which of them the watcher has liked, played
// and so on.
func (w *loadWorld) viewerState(r *rand.Rand) readMethod {
	return readMethod{
		id: "viewer-state", title: "BatchGetViewerState, 50 pins", projection: "inbox",
		procedure: skeinv1connect.FeedServiceBatchGetViewerStateProcedure, answer: new(skeinv1.BatchGetViewerStateResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			m := &skeinv1.BatchGetViewerStateRequest{ViewerId: workload.UserID(uint32(r.IntN(w.watchers)))}
			for range pinsPerCall {
				m.Keys = append(m.Keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: w.pinName(r.IntN(w.pins))}})
			}
			return m
		}),
	}
}

// seenMethods returns the methods about what a watcher has played, was served or hides.
func (w *loadWorld) seenMethods(r *rand.Rand) []readMethod {
	return []readMethod{{
		id: "seen", title: "FilterSeen, 200 items", projection: "seen",
		procedure: skeinv1connect.SeenServiceFilterSeenProcedure, answer: new(skeinv1.FilterSeenResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			watcher := r.IntN(w.watchers)
			m := &skeinv1.FilterSeenRequest{UserId: workload.UserID(uint32(watcher))}
			for i := range itemsPerFilterCall {
				// The watcher has played every tenth item.
				item := w.itemID(r.IntN(w.itemCount()))
				if i%10 == 0 {
					item = w.playedItem(watcher, r.IntN(watcherPlays))
				}
				m.ItemIds = append(m.ItemIds, item)
			}
			return m
		}),
	}, {
		id: "served", title: "ListServed", projection: "seen",
		procedure: skeinv1connect.SeenServiceListServedProcedure, answer: new(skeinv1.ListServedResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListServedRequest{UserId: workload.UserID(uint32(r.IntN(w.watchers)))}
		}),
	}, {
		id: "hidden", title: "ListHidden", projection: "seen",
		procedure: skeinv1connect.SeenServiceListHiddenProcedure, answer: new(skeinv1.ListHiddenResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListHiddenRequest{UserId: workload.UserID(uint32(r.IntN(w.watchers)))}
		}),
	}}
}

// counterMethods returns the methods about counts and trending items.
func (w *loadWorld) counterMethods(r *rand.Rand) []readMethod {
	return []readMethod{{
		id: "counters", title: "BatchGetCounters, 50 keys", projection: "counters",
		procedure: skeinv1connect.CounterServiceBatchGetCountersProcedure, answer: new(skeinv1.BatchGetCountersResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			m := &skeinv1.BatchGetCountersRequest{}
			for i := range keysPerCountersCall {
				key := &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: w.itemID(workload.PowerLaw(r, w.itemCount(), workload.PlaySkew))}}
				if i%5 == 0 { // every fifth key is a user
					key.Target = &skeinv1.CounterKey_UserId{UserId: workload.UserID(w.followee(r))}
				}
				m.Keys = append(m.Keys, key)
			}
			return m
		}),
	}, {
		id: "hot", title: "ListTrending, 50 of all", projection: "counters",
		procedure: skeinv1connect.CounterServiceListTrendingProcedure, answer: new(skeinv1.ListTrendingResponse),
		// The list is the same for everybody, so there is only one request.
		requests: []proto.Message{&skeinv1.ListTrendingRequest{PageSize: workload.PageSize}},
	}, {
		id: "hot-owner", title: "ListTrending, 50 of an author", projection: "counters",
		procedure: skeinv1connect.CounterServiceListTrendingProcedure, answer: new(skeinv1.ListTrendingResponse),
		requests: randomRequests(r, func(r *rand.Rand) proto.Message {
			return &skeinv1.ListTrendingRequest{
				Scope:    &skeinv1.ListTrendingRequest_OwnerId{OwnerId: workload.UserID(w.authors[r.IntN(len(w.authors))])},
				PageSize: workload.PageSize,
			}
		}),
	}}
}

// countEntries returns how many things an answer has: the elements of all its lists, or the number
// that it counts.
func countEntries(answer proto.Message) (n int) {
	if c, ok := answer.(*skeinv1.CountNewerResponse); ok {
		return int(c.GetCount())
	}

	answer.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if field.IsList() {
			n += v.List().Len()
		}
		return true
	})
	return n
}
