package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// question is a call of a method that reads.
type question struct {
	name, procedure string
	// ask returns the answer: a message, or those of a stream.
	ask func(context.Context) ([]proto.Message, error)
	// without is the answer without the seen store, which is also right if that store cannot be
	// read; nil means that there is none.
	without []proto.Message
}

// questionOf returns a call of a unary method.
func questionOf[Req, Res any](
	name, procedure string, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) question {
	return question{name: name, procedure: procedure, ask: func(ctx context.Context) ([]proto.Message, error) {
		res, err := method(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return []proto.Message{any(res.Msg).(proto.Message)}, nil
	}}
}

// questionOfStream returns a call of a streaming method that reads the first messages; 0 means all.
func questionOfStream[Req, Res any](
	name, procedure string, method func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error), req *Req, first int,
) question {
	return question{name: name, procedure: procedure, ask: func(ctx context.Context) (answer []proto.Message, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := method(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		for (first == 0 || len(answer) < first) && stream.Receive() {
			answer = append(answer, proto.Clone(any(stream.Msg()).(proto.Message)))
		}
		err = stream.Err()
		cancel()
		_ = stream.Close() // the error is that of the canceled context
		return answer, err
	}}
}

// long returns an id that is so long that some 100 rows fill a block of a table.
func long(name string) string { return name + "-" + strings.Repeat("x", 110) }

// longIDs returns n ids that begin with a name.
func longIDs(name string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, long(fmt.Sprintf("%s%03d", name, i)))
	}
	return ids
}

// neighbors returns the ids of n users in the partition of a user.
func neighbors(user string, n int) (users []string) {
	for i := 0; len(users) < n; i++ {
		if id := long(fmt.Sprintf("neighbor%d", i)); events.ShardOf(id).Partition() == events.ShardOf(user).Partition() {
			users = append(users, id)
		}
	}
	return users
}

// worldOfBlocks has the names of what publishBlocks publishes.
type worldOfBlocks struct {
	reader, star        string
	owners, items, pins []string
	// token is the newest_token of the reader's feed when it had half of its pins.
	token string
}

// publishBlocks fills the stores, so that the lists that are read have rows in several blocks, and
// ends the folding.
func (w *world) publishBlocks() worldOfBlocks {
	w.t.Helper()
	b := worldOfBlocks{
		reader: long("reader"), star: long("star"), owners: longIDs("owner", 12), items: longIDs("item", 40), pins: longIDs("pin", 20),
	}
	evs := []*skeinv1.Event{createBoard(b.star, "cats", "Cats"), createBoard(b.star, "dogs", "Dogs"), unfollowBoard(b.reader, b.star, "none")}

	// The reader follows owners, or boards of owners. Neighbors of the reader follow two of the
	// owners, who are therefore pulled.
	for i, owner := range b.owners {
		if i%6 == 5 {
			evs = append(evs, followBoard(b.reader, owner, "news"))
		} else {
			evs = append(evs, follow(b.reader, owner))
		}
		evs = append(evs, follow(owner, b.star), follow(b.star, owner))
		if i%4 == 0 {
			evs = append(evs, follow(owner, b.reader))
		}
	}
	for _, user := range neighbors(b.reader, 3) {
		evs = append(evs, follow(user, b.owners[1]), followBoard(user, b.owners[5], "news"))
	}
	evs = append(evs, unfollowBoard(b.reader, b.owners[2], "news"), mute(b.reader, b.owners[3]), hideRepins(b.reader, b.owners[4]),
		follow(b.reader, b.star), unfollow(b.reader, b.star))
	for _, item := range longIDs("hidden", 40) {
		evs = append(evs, hidden(b.reader, item))
	}

	// Two owners have many pins, the others few.
	w.publishAll(evs)
	evs = nil
	for k, pin := range b.pins {
		for i, owner := range b.owners {
			if k >= 3 && i >= 2 {
				break
			}
			ev := showing(owner, pin, b.items[(7*i+k)%len(b.items)])
			if k%2 == 0 {
				ev.GetPinCreated().BoardId = "news"
			}
			ev.GetPinCreated().Attributes = []byte(strings.Repeat("a", events.MaxAttributesBytes))
			evs = append(evs, ev)
		}
		if k == 8 {
			read := w.readFeed(&skeinv1.ReadFeedRequest{ReaderId: b.reader, AtLeast: w.publishAll(evs)})
			b.token = read.GetNewestToken()
			evs = []*skeinv1.Event{feedRead(b.reader, read.GetEntries()[3].GetCreateTime())}
		}
	}

	// The star has long lists of all kinds.
	for i, pin := range longIDs("show", 260) {
		ev := showing(b.star, pin, b.items[i%len(b.items)])
		if i%13 == 0 {
			ev.GetPinCreated().BoardId = "cats"
		}
		evs = append(evs, ev)
	}
	for i, pin := range longIDs("show", 40) {
		evs = append(evs, showingReaction(b.owners[i%len(b.owners)], b.star, pin, b.items[i]))
	}
	for i, fan := range longIDs("fan", 180) {
		evs = append(evs, follow(fan, b.star))
		switch i % 5 {
		case 0:
			evs = append(evs, followBoard(fan, b.star, "cats"))
		case 1:
			evs = append(evs, unfollowBoard(fan, b.star, "cats"))
		case 2:
			evs = append(evs, block(b.star, long(fmt.Sprintf("blocked%03d", i))), mute(b.star, long(fmt.Sprintf("muted%03d", i))))
		case 3:
			evs = append(evs, followBoard(b.star, fan, "news"), followBoard(b.star, fan, "more"))
		case 4:
			evs = append(evs, follow(b.star, fan), unfollowBoard(b.star, fan, "news"))
		}
	}
	for i, title := range longIDs("board", 100) {
		evs = append(evs, createBoard(b.star, fmt.Sprintf("board%03d", i), title))
	}

	// Items are played and liked, so that they have scores, and some are seen.
	for i, item := range b.items {
		for k := range 1 + i%7 {
			evs = append(evs, played(b.owners[k], item))
		}
		evs = append(evs, liked(b.star, item), repinned(b.owners[i%8+4], long(fmt.Sprintf("repin%d", i)), item, b.owners[0], "p"))
		if i%5 == 0 {
			evs = append(evs, played(b.reader, item))
		}
	}
	for i, item := range longIDs("other", 200) {
		evs = append(evs, liked(b.star, item), played(b.star, item), history(played(b.reader, item), uint64(i+1), i%4))
	}
	w.flushAndStopFolding(w.publishAll(append(evs, served(b.reader, b.items[1], b.items[2]))))
	return b
}

// publishAll publishes events in several calls.
func (w *world) publishAll(evs []*skeinv1.Event) (at string) {
	w.t.Helper()
	for part := range slices.Chunk(evs, 500) {
		at = w.publish(part...)
	}
	return at
}

// flushAndStopFolding brings all that was published into tables, and stops the folding, so that all
// reads of tables are those of calls.
func (w *world) flushAndStopFolding(at string) {
	w.t.Helper()
	position, err := events.ParsePosition(at)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, store := range w.stores() {
		if err := store.WaitFor(w.t.Context(), position.Seq); err != nil {
			w.t.Fatal(err)
		}
	}
	w.unfold()
	for _, store := range w.stores() {
		if err := store.Serving().Compact(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) stores() []*live.Live {
	return []*live.Live{w.store, w.inbox, w.seen, w.counters, w.notifications}
}

// dropCaches drops all that the stores keep in memory of rows. A repair does that, also one of a
// row that is right.
func (w *world) dropCaches() {
	w.t.Helper()
	for _, projection := range w.stores() {
		err := projection.Repair(w.t.Context(), func(_ events.Cursor, rows projections.Reader, m *store.Repair) error {
			it := rows.Iter(nil, nil)
			if it.Next() {
				m.Set(it.Key(), it.Value())
			}
			return it.Close()
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// questions returns calls of all methods that read.
func (w *world) questions(b worldOfBlocks) (all []question) {
	all = append(w.questionsOfGraph(b), w.questionsOfFeeds(b)...)
	all = append(all, w.questionsOfNotifications(b)...)
	return append(all, w.questionsOfItems(b)...)
}

func (w *world) questionsOfGraph(b worldOfBlocks) []question {
	pairs := []*skeinv1.FollowPair{}
	for _, owner := range b.owners[:6] {
		pairs = append(pairs,
			&skeinv1.FollowPair{UserId: b.reader, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: owner}},
			&skeinv1.FollowPair{UserId: b.reader, Target: &skeinv1.FollowPair_Board{Board: board(owner, "news")}})
	}
	following := &skeinv1.ListFollowingRequest{UserId: b.star, PageSize: 100}
	following2 := proto.CloneOf(following)
	following2.PageToken = ask(w, w.graph.ListFollowing, following).GetNextPageToken()
	cats := board(b.star, "cats")
	return []question{
		questionOf("pairs", connectv1.GraphServiceCheckFollowsProcedure, w.graph.CheckFollows,
			&skeinv1.CheckFollowsRequest{Pairs: pairs, IncludeTimes: true}),
		questionOf("users", connectv1.GraphServiceFilterFollowedProcedure, w.graph.FilterFollowed,
			&skeinv1.FilterFollowedRequest{ViewerId: b.reader, UserIds: append([]string{b.star}, b.owners...)}),
		questionOf("mutual users", connectv1.GraphServiceFilterFollowedProcedure, w.graph.FilterFollowed,
			&skeinv1.FilterFollowedRequest{
				ViewerId: b.star, UserIds: b.owners[:9], Direction: skeinv1.FollowDirection_FOLLOW_DIRECTION_MUTUAL,
			}),
		questionOf("boards", connectv1.GraphServiceFilterFollowedProcedure, w.graph.FilterFollowed,
			&skeinv1.FilterFollowedRequest{ViewerId: b.reader, Boards: []*skeinv1.Board{cats, board(b.owners[5], "news"), board(b.owners[0], "")}}),
		questionOf("users", connectv1.GraphServiceBatchGetRelationshipsProcedure, w.graph.BatchGetRelationships,
			&skeinv1.BatchGetRelationshipsRequest{ViewerId: b.reader, UserIds: append([]string{b.star}, b.owners[:7]...)}),
		questionOf("users and boards", connectv1.GraphServiceBatchGetFollowCountsProcedure, w.graph.BatchGetFollowCounts,
			&skeinv1.BatchGetFollowCountsRequest{UserIds: []string{b.star, b.reader}, Boards: []*skeinv1.Board{cats, board(b.star, "")}}),
		questionOf("first page", connectv1.GraphServiceListFollowingProcedure, w.graph.ListFollowing, following),
		questionOf("second page", connectv1.GraphServiceListFollowingProcedure, w.graph.ListFollowing, following2),
		questionOf("short list", connectv1.GraphServiceListFollowingProcedure, w.graph.ListFollowing,
			&skeinv1.ListFollowingRequest{UserId: b.reader, PageSize: 10}),
		questionOf("page", connectv1.GraphServiceListFollowersProcedure, w.graph.ListFollowers,
			&skeinv1.ListFollowersRequest{UserId: b.star, PageSize: 200}),
		questionOf("page", connectv1.GraphServiceListBoardFollowersProcedure, w.graph.ListBoardFollowers,
			&skeinv1.ListBoardFollowersRequest{Board: cats, PageSize: 15}),
		questionOf("explicit", connectv1.GraphServiceListBoardFollowersProcedure, w.graph.ListBoardFollowers,
			&skeinv1.ListBoardFollowersRequest{Board: cats, Kind: skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT}),
		questionOf("excluders", connectv1.GraphServiceListBoardFollowersProcedure, w.graph.ListBoardFollowers,
			&skeinv1.ListBoardFollowersRequest{Board: cats, Kind: skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS}),
		questionOf("page", connectv1.GraphServiceListFollowedBoardsProcedure, w.graph.ListFollowedBoards,
			&skeinv1.ListFollowedBoardsRequest{UserId: b.star, PageSize: 100}),
		questionOf("page", connectv1.GraphServiceListExcludedBoardsProcedure, w.graph.ListExcludedBoards,
			&skeinv1.ListExcludedBoardsRequest{UserId: b.star, PageSize: 100}),
		questionOf("page", connectv1.GraphServiceListBoardsProcedure, w.graph.ListBoards,
			&skeinv1.ListBoardsRequest{UserId: b.star, PageSize: 15}),
		questionOf("page", connectv1.GraphServiceListBlockedProcedure, w.graph.ListBlocked,
			&skeinv1.ListBlockedRequest{UserId: b.star, PageSize: 100}),
		questionOf("page", connectv1.GraphServiceListMutedProcedure, w.graph.ListMuted,
			&skeinv1.ListMutedRequest{UserId: b.star, PageSize: 100}),
		questionOf("page", connectv1.GraphServiceListMutualsProcedure, w.graph.ListMutuals,
			&skeinv1.ListMutualsRequest{ViewerId: b.reader, UserId: b.star, PageSize: 10}),
		questionOfStream("user", connectv1.GraphServiceScanFollowersProcedure, w.graph.ScanFollowers,
			&skeinv1.ScanFollowersRequest{Target: &skeinv1.ScanFollowersRequest_UserId{UserId: b.star}}, 0),
		questionOfStream("board", connectv1.GraphServiceScanFollowersProcedure, w.graph.ScanFollowers,
			&skeinv1.ScanFollowersRequest{Target: &skeinv1.ScanFollowersRequest_Board{Board: board(b.owners[5], "news")}}, 0),
	}
}

func (w *world) questionsOfFeeds(b worldOfBlocks) (all []question) {
	feed := func(name string, req *skeinv1.ReadFeedRequest) {
		req.ReaderId, req.PageSize = b.reader, 8
		first := ask(w, w.feed.ReadFeed, req)
		q := questionOf(name, connectv1.FeedServiceReadFeedProcedure, w.feed.ReadFeed, req)
		if req.GetHideSeen() {
			shown := proto.CloneOf(req)
			shown.HideSeen = false
			res := ask(w, w.feed.ReadFeed, shown)
			res.Completeness = seenUnavailable
			q.without = []proto.Message{res}
		}
		all = append(all, q)
		if next := proto.CloneOf(req); first.GetNextPageToken() != "" && !req.GetHideSeen() {
			next.Start = after(first.GetNextPageToken())
			all = append(all, questionOf(name+", second page", connectv1.FeedServiceReadFeedProcedure, w.feed.ReadFeed, next))
		}
	}
	feed("newest", &skeinv1.ReadFeedRequest{})
	feed("newest, own", &skeinv1.ReadFeedRequest{IncludeOwn: true})
	feed("newest, each item once", &skeinv1.ReadFeedRequest{OnePerItem: true})
	feed("newest, less what was seen", &skeinv1.ReadFeedRequest{HideSeen: true})
	feed("newest, a refresh", &skeinv1.ReadFeedRequest{Start: newerThan(b.token)})
	feed("heat", &skeinv1.ReadFeedRequest{Order: byHeat})
	feed("heat, each item once", &skeinv1.ReadFeedRequest{Order: byHeat, OnePerItem: true})

	keys := []*skeinv1.ViewerStateKey{{Target: &skeinv1.ViewerStateKey_ItemId{ItemId: b.items[5]}}}
	for i, owner := range b.owners[:6] {
		pin := &skeinv1.Pin{OwnerId: owner, PinId: b.pins[i%3]}
		keys = append(keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: pin}})
		if i >= 4 {
			continue
		}
		all = append(all,
			questionOf(fmt.Sprint("newest ", i), connectv1.FeedServiceExplainPinProcedure, w.feed.ExplainPin,
				&skeinv1.ExplainPinRequest{ReaderId: b.reader, Pin: pin}),
			questionOf(fmt.Sprint("heat ", i), connectv1.FeedServiceExplainPinProcedure, w.feed.ExplainPin,
				&skeinv1.ExplainPinRequest{ReaderId: b.reader, Pin: pin, Order: byHeat}))
	}
	pins := []*skeinv1.Pin{}
	for _, key := range keys[1:] {
		pins = append(pins, key.GetPin())
	}
	starsPins := pinsOf(b.star)
	starsPins.PageSize = 10
	catsPins := pinsOn(b.star, "cats")
	catsPins.PageSize = 10
	secondPins := proto.CloneOf(starsPins)
	secondPins.PageToken = ask(w, w.feed.ListPins, starsPins).GetNextPageToken()
	return append(all,
		questionOf("newer than a token", connectv1.FeedServiceCountNewerProcedure, w.feed.CountNewer,
			&skeinv1.CountNewerRequest{ReaderId: b.reader, NewerThan: b.token}),
		questionOf("newer than the read marker", connectv1.FeedServiceCountNewerProcedure, w.feed.CountNewer,
			&skeinv1.CountNewerRequest{ReaderId: b.reader}),
		questionOfStream("first message", connectv1.FeedServiceWatchFeedProcedure, w.feed.WatchFeed,
			&skeinv1.WatchFeedRequest{ReaderId: b.reader}, 1),
		questionOf("owner", connectv1.FeedServiceListPinsProcedure, w.feed.ListPins, starsPins),
		questionOf("owner, second page", connectv1.FeedServiceListPinsProcedure, w.feed.ListPins, secondPins),
		questionOf("board", connectv1.FeedServiceListPinsProcedure, w.feed.ListPins, catsPins),
		questionOf("pins", connectv1.FeedServiceBatchGetPinsProcedure, w.feed.BatchGetPins, &skeinv1.BatchGetPinsRequest{Pins: pins}),
		questionOf("keys", connectv1.FeedServiceBatchGetViewerStateProcedure, w.feed.BatchGetViewerState,
			&skeinv1.BatchGetViewerStateRequest{ViewerId: b.reader, Keys: keys}),
	)
}

func (w *world) questionsOfNotifications(b worldOfBlocks) []question {
	client := w.notifyClient
	first := &skeinv1.ReadNotificationsRequest{UserId: b.star, PageSize: 10}
	second := proto.CloneOf(first)
	second.PageToken = ask(w, client.ReadNotifications, first).GetNextPageToken()
	return []question{
		questionOf("first page", connectv1.NotificationServiceReadNotificationsProcedure, client.ReadNotifications, first),
		questionOf("second page", connectv1.NotificationServiceReadNotificationsProcedure, client.ReadNotifications, second),
		questionOf("count", connectv1.NotificationServiceCountNotificationsProcedure, client.CountNotifications,
			&skeinv1.CountNotificationsRequest{UserId: b.star}),
		questionOfStream("first message", connectv1.NotificationServiceWatchNotificationsProcedure, client.WatchNotifications,
			&skeinv1.WatchNotificationsRequest{UserId: b.star}, 1),
	}
}

func (w *world) questionsOfItems(b worldOfBlocks) []question {
	cats := &skeinv1.ListTrendingRequest_Board{Board: board(b.star, "cats")}
	everybody := &skeinv1.ListTrendingRequest{PageSize: 100}
	next := proto.CloneOf(everybody)
	next.PageToken = ask(w, w.counterClient.ListTrending, everybody).GetNextPageToken()
	return []question{
		questionOf("items", connectv1.SeenServiceFilterSeenProcedure, w.seenClient.FilterSeen,
			&skeinv1.FilterSeenRequest{UserId: b.reader, ItemIds: append(longIDs("other", 20), b.items...)}),
		questionOf("user", connectv1.SeenServiceListServedProcedure, w.seenClient.ListServed, &skeinv1.ListServedRequest{UserId: b.reader}),
		questionOf("user", connectv1.SeenServiceListHiddenProcedure, w.seenClient.ListHidden, &skeinv1.ListHiddenRequest{UserId: b.reader}),
		questionOf("keys", connectv1.CounterServiceBatchGetCountersProcedure, w.counterClient.BatchGetCounters,
			&skeinv1.BatchGetCountersRequest{Keys: []*skeinv1.CounterKey{
				countsOfUser(b.star), countsOfUser(b.reader), countsOfBoard(b.star, "cats"), countsOfItem(b.items[3]), countsOfItem(b.items[30]),
			}}),
		questionOf("page", connectv1.CounterServiceListReactionsProcedure, w.counterClient.ListReactions,
			&skeinv1.ListReactionsRequest{UserId: b.star, PageSize: 200}),
		questionOf("viewer", connectv1.CounterServiceListReactorsProcedure, w.counterClient.ListReactors,
			&skeinv1.ListReactorsRequest{ItemId: b.items[3], ViewerId: b.reader, PageSize: 200}),
		questionOf("everybody", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending, everybody),
		questionOf("everybody, second page", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending, next),
		questionOf("owner of many pins", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending,
			&skeinv1.ListTrendingRequest{Scope: &skeinv1.ListTrendingRequest_OwnerId{OwnerId: b.star}, PageSize: 10}),
		questionOf("owner of few pins", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending,
			&skeinv1.ListTrendingRequest{Scope: &skeinv1.ListTrendingRequest_OwnerId{OwnerId: b.owners[0]}, PageSize: 10}),
		questionOf("board", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending,
			&skeinv1.ListTrendingRequest{Scope: cats, PageSize: 10}),
	}
}

// mostReads is about how many reads of a question fail, one at a time, in the merge gate. At full
// length all of them do.
const mostReads = 20

// TestFailedReadIsNeverAWrongAnswer asks each method that reads three times in a row, with nothing
// in memory the first time, while one read of a table fails: the first one, then the second one,
// and so on. Every answer is the right one or an error, and at most one of the three calls fails: a
// failed read leaves nothing wrong in memory.
func TestFailedReadIsNeverAWrongAnswer(t *testing.T) {
	faults := &conformance.FailingRead{}
	w := newWorld(t, withFeeds, withSeen, withNotifications, func(o *worldOptions) {
		o.fs, o.cache = faults.FileSystem(nil), noCache
		o.inbox = &inbox.Settings{Threshold: 2, Keep: 20}
	})
	b := w.publishBlocks()

	swept, pairs, errored := map[string]int{}, 0, 0
	for _, q := range w.questions(b) {
		t.Run(strings.TrimPrefix(q.procedure, "/skein.v1.")+" "+q.name, func(t *testing.T) {
			w.dropCaches()
			want, err := q.ask(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			w.dropCaches()
			reads := faults.Count(func() { w.askThreeTimes(t, q, want) })
			step := int64(1)
			if testing.Short() {
				step = max(1, reads/mostReads)
			}

			for n := int64(1); n <= reads; n += step {
				w.dropCaches()
				faults.FailAt(n)
				failed := w.askThreeTimes(t, q, want)
				if faults.HasFailed() {
					pairs++
					swept[q.procedure]++
				}
				faults.FailAt(0)
				if failed > 1 || t.Failed() {
					t.Fatalf("read %d of %d fails, and with it %d calls", n, reads, failed)
				}
				errored += failed
			}
		})
	}
	for procedure, right := range rights {
		reads := right.roles.Any(access.Read|access.Offline) && !right.roles.Any(access.Admin) && procedure != connectv1.EventServiceWatchProcedure
		if reads && swept[procedure] == 0 {
			t.Errorf("%s: no read has failed", procedure)
		}
	}
	t.Logf("%d pairs of a question and a read that fails, of %d methods: %d calls have failed", pairs, len(swept), errored)
}

// askThreeTimes fails the test if an answer is not the right one, and returns how many calls have
// failed.
func (w *world) askThreeTimes(t *testing.T, q question, want []proto.Message) (failed int) {
	t.Helper()
	for call := range 3 {
		got, err := q.ask(t.Context())
		switch diff := cmp.Diff(want, got, protocmp.Transform()); {
		case err != nil:
			failed++
		case diff != "" && (q.without == nil || !cmp.Equal(q.without, got, protocmp.Transform(), ignoreTokens)):
			t.Errorf("answer %d differs (-expected +got):\n%s", call+1, diff)
		}
	}
	return failed
}

// ignoreTokens leaves tokens out of a comparison of feeds with and without what was seen: each has
// its own.
var ignoreTokens = protocmp.IgnoreFields(&skeinv1.ReadFeedResponse{}, "next_page_token", "newest_token")
