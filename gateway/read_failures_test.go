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
	// ask returns the answer: one message, or the messages of a stream.
	ask func(context.Context) ([]proto.Message, error)
	// withoutSeen is the answer of a server that cannot read the seen store, if the method can
	// answer without that store. nil means that it cannot.
	withoutSeen []proto.Message
}

// questionOf returns a call of a unary method.
func questionOf[Req, Res any](
	name, procedure string, method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error), req *Req,
) question {
	askMethod := func(ctx context.Context) ([]proto.Message, error) {
		res, err := method(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return []proto.Message{any(res.Msg).(proto.Message)}, nil
	}
	return question{name: name, procedure: procedure, ask: askMethod}
}

// questionOfStream returns a call of a streaming method that reads only the first messages. If
// limit is 0, it reads all messages.
func questionOfStream[Req, Res any](
	name, procedure string, method func(context.Context, *connect.Request[Req]) (*connect.ServerStreamForClient[Res], error), req *Req, limit int,
) question {
	askMethod := func(ctx context.Context) (answer []proto.Message, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := method(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}

		for (limit == 0 || len(answer) < limit) && stream.Receive() {
			answer = append(answer, proto.Clone(any(stream.Msg()).(proto.Message)))
		}
		err = stream.Err()

		// Without this, Close would read the rest of a stream that has not ended.
		cancel()
		_ = stream.Close() // The error is that of the canceled context.
		return answer, err
	}
	return question{name: name, procedure: procedure, ask: askMethod}
}

// longID returns an id that is so long that about 100 rows fill a block of a table.
func longID(name string) string { return name + "-" + strings.Repeat("x", 110) }

// longIDs returns n ids that begin with a name.
func longIDs(name string, n int) (ids []string) {
	for i := range n {
		ids = append(ids, longID(fmt.Sprintf("%s%03d", name, i)))
	}
	return ids
}

// neighbors returns the ids of n users in the partition of a user.
func neighbors(user string, n int) (users []string) {
	for i := 0; len(users) < n; i++ {
		id := longID(fmt.Sprintf("neighbor%d", i))
		if events.ShardOf(id).Partition() == events.ShardOf(user).Partition() {
			users = append(users, id)
		}
	}
	return users
}

// worldOfBlocks names the users, items and pins that publishBlocks publishes.
type worldOfBlocks struct {
	reader, star        string
	owners, items, pins []string
	// token is the newest_token of the reader's feed when the feed had about half of its pins.
	token string
}

// publishBlocks fills the stores, so that the lists that the questions read have rows in several
// blocks. Then it stops the folding.
func (w *world) publishBlocks() worldOfBlocks {
	w.t.Helper()
	b := worldOfBlocks{
		reader: longID("reader"), star: longID("star"), owners: longIDs("owner", 12), items: longIDs("item", 40), pins: longIDs("pin", 20),
	}
	evs := []*skeinv1.Event{createBoard(b.star, "cats", "Cats"), createBoard(b.star, "dogs", "Dogs"), unfollowBoard(b.reader, b.star, "none")}

	// The reader follows owners, or boards of owners.
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

	// Neighbors of the reader follow two of the owners. These have so many followers in the
	// partition that their pins are read from their outboxes.
	for _, user := range neighbors(b.reader, 3) {
		evs = append(evs, follow(user, b.owners[1]), followBoard(user, b.owners[5], "news"))
	}

	// The reader has settings and hidden items of every kind.
	evs = append(evs,
		unfollowBoard(b.reader, b.owners[2], "news"),
		mute(b.reader, b.owners[3]),
		hideRepins(b.reader, b.owners[4]),
		follow(b.reader, b.star),
		unfollow(b.reader, b.star),
	)
	for _, item := range longIDs("hidden", 40) {
		evs = append(evs, hidden(b.reader, item))
	}
	w.publishAll(evs)

	// Two owners have many pins, and the others have three each.
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
			evs = append(evs, block(b.star, longID(fmt.Sprintf("blocked%03d", i))), mute(b.star, longID(fmt.Sprintf("muted%03d", i))))
		case 3:
			evs = append(evs, followBoard(b.star, fan, "news"), followBoard(b.star, fan, "more"))
		case 4:
			evs = append(evs, follow(b.star, fan), unfollowBoard(b.star, fan, "news"))
		}
	}
	for i, title := range longIDs("board", 100) {
		evs = append(evs, createBoard(b.star, fmt.Sprintf("board%03d", i), title))
	}

	// Items are played and liked, so that they have scores, and the reader has seen some of them.
	for i, item := range b.items {
		for k := range 1 + i%7 {
			evs = append(evs, played(b.owners[k], item))
		}
		evs = append(evs, liked(b.star, item), repinned(b.owners[i%8+4], longID(fmt.Sprintf("repin%d", i)), item, b.owners[0], "p"))
		if i%5 == 0 {
			evs = append(evs, played(b.reader, item))
		}
	}
	for i, item := range longIDs("other", 200) {
		evs = append(evs, liked(b.star, item), played(b.star, item), history(played(b.reader, item), uint64(i+1), i%4))
	}
	evs = append(evs, served(b.reader, b.items[1], b.items[2]))

	w.flushAndStopFolding(w.publishAll(evs))
	return b
}

// publishAll publishes events in several calls, and returns the position of the last call.
func (w *world) publishAll(evs []*skeinv1.Event) (at string) {
	w.t.Helper()
	for chunk := range slices.Chunk(evs, 500) {
		at = w.publish(chunk...)
	}
	return at
}

// flushAndStopFolding waits until the stores have folded a position, and moves all rows into
// tables. It stops the folding, so that from then on only calls read tables.
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

// dropCaches empties the caches of rows that the stores have in memory. Every repair does that,
// even this one, which writes the first row again as it is.
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
func (w *world) questions(b worldOfBlocks) []question {
	return slices.Concat(w.questionsOfGraph(b), w.questionsOfFeeds(b), w.questionsOfNotifications(b), w.questionsOfItems(b))
}

func (w *world) questionsOfGraph(b worldOfBlocks) []question {
	pairs := []*skeinv1.FollowPair{}
	for _, owner := range b.owners[:6] {
		pairs = append(pairs,
			&skeinv1.FollowPair{UserId: b.reader, Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: owner}},
			&skeinv1.FollowPair{UserId: b.reader, Target: &skeinv1.FollowPair_Board{Board: board(owner, "news")}})
	}

	following := &skeinv1.ListFollowingRequest{UserId: b.star, PageSize: 100}
	secondPage := proto.CloneOf(following)
	secondPage.PageToken = ask(w, w.graph.ListFollowing, following).GetNextPageToken()

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
		questionOf("second page", connectv1.GraphServiceListFollowingProcedure, w.graph.ListFollowing, secondPage),
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
	addFeed := func(name string, req *skeinv1.ReadFeedRequest) {
		req.ReaderId = b.reader
		req.PageSize = 8
		first := ask(w, w.feed.ReadFeed, req)
		q := questionOf(name, connectv1.FeedServiceReadFeedProcedure, w.feed.ReadFeed, req)

		// If the seen store cannot be read, the page has the pins that the reader has seen, too.
		if req.GetHideSeen() {
			withSeenItems := proto.CloneOf(req)
			withSeenItems.HideSeen = false
			res := ask(w, w.feed.ReadFeed, withSeenItems)
			res.Completeness = seenUnavailable
			q.withoutSeen = []proto.Message{res}
		}
		all = append(all, q)

		// A feed that hides what was seen is asked for one page only, because the second page
		// without the seen store is not known here.
		if first.GetNextPageToken() != "" && !req.GetHideSeen() {
			next := proto.CloneOf(req)
			next.Start = after(first.GetNextPageToken())
			all = append(all, questionOf(name+", second page", connectv1.FeedServiceReadFeedProcedure, w.feed.ReadFeed, next))
		}
	}
	addFeed("newest", &skeinv1.ReadFeedRequest{})
	addFeed("newest, own", &skeinv1.ReadFeedRequest{IncludeOwn: true})
	addFeed("newest, each item once", &skeinv1.ReadFeedRequest{OnePerItem: true})
	addFeed("newest, less what was seen", &skeinv1.ReadFeedRequest{HideSeen: true})
	addFeed("newest, a refresh", &skeinv1.ReadFeedRequest{Start: newerThan(b.token)})
	addFeed("heat", &skeinv1.ReadFeedRequest{Order: byHeat})
	addFeed("heat, each item once", &skeinv1.ReadFeedRequest{Order: byHeat, OnePerItem: true})

	// Pins of six owners; four of them are explained.
	var pins []*skeinv1.Pin
	keys := []*skeinv1.ViewerStateKey{{Target: &skeinv1.ViewerStateKey_ItemId{ItemId: b.items[5]}}}
	for i, owner := range b.owners[:6] {
		pin := &skeinv1.Pin{OwnerId: owner, PinId: b.pins[i%3]}
		pins = append(pins, pin)
		keys = append(keys, &skeinv1.ViewerStateKey{Target: &skeinv1.ViewerStateKey_Pin{Pin: pin}})
	}
	for i, pin := range pins[:4] {
		all = append(all,
			questionOf(fmt.Sprint("newest ", i), connectv1.FeedServiceExplainPinProcedure, w.feed.ExplainPin,
				&skeinv1.ExplainPinRequest{ReaderId: b.reader, Pin: pin}),
			questionOf(fmt.Sprint("heat ", i), connectv1.FeedServiceExplainPinProcedure, w.feed.ExplainPin,
				&skeinv1.ExplainPinRequest{ReaderId: b.reader, Pin: pin, Order: byHeat}))
	}

	starsPins := pinsOf(b.star)
	starsPins.PageSize = 10
	secondPins := proto.CloneOf(starsPins)
	secondPins.PageToken = ask(w, w.feed.ListPins, starsPins).GetNextPageToken()
	catsPins := pinsOn(b.star, "cats")
	catsPins.PageSize = 10
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
	secondPage := proto.CloneOf(everybody)
	secondPage.PageToken = ask(w, w.counterClient.ListTrending, everybody).GetNextPageToken()

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
		questionOf("everybody, second page", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending, secondPage),
		questionOf("owner of many pins", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending,
			&skeinv1.ListTrendingRequest{Scope: &skeinv1.ListTrendingRequest_OwnerId{OwnerId: b.star}, PageSize: 10}),
		questionOf("owner of few pins", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending,
			&skeinv1.ListTrendingRequest{Scope: &skeinv1.ListTrendingRequest_OwnerId{OwnerId: b.owners[0]}, PageSize: 10}),
		questionOf("board", connectv1.CounterServiceListTrendingProcedure, w.counterClient.ListTrending,
			&skeinv1.ListTrendingRequest{Scope: cats, PageSize: 10}),
	}
}

// mostReads is about how many reads of a question fail in turn when tests run with -short. Without
// -short, all of them do.
const mostReads = 20

// TestFailedReadIsNeverAWrongAnswer lets one read of a table fail: the first one, then the second
// one, and so on. Each time it asks a method that reads three times in a row, with empty caches the
// first time. Every answer must be the right one or an error. At most one of the three calls may
// fail, because a failed read must leave nothing wrong in memory.
func TestFailedReadIsNeverAWrongAnswer(t *testing.T) {
	t.Parallel()
	faults := &conformance.FailingRead{}
	w := newWorld(t, withFeeds, withSeen, withNotifications, func(o *worldOptions) {
		o.fs = faults.FileSystem(nil)
		o.cache = noCache
		o.inbox = &inbox.Settings{Threshold: 2, Keep: 20}
	})
	b := w.publishBlocks()

	failedReads := map[string]int{} // per method
	failedCalls := 0
	for _, q := range w.questions(b) {
		t.Run(strings.TrimPrefix(q.procedure, "/skein.v1.")+" "+q.name, func(t *testing.T) {
			w.dropCaches()
			want, err := q.ask(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			// Count the reads without a failure.
			w.dropCaches()
			failedWithoutFault := 0
			reads := faults.Count(func() { failedWithoutFault = w.askThreeTimes(t, q, want) })
			if failedWithoutFault > 0 {
				t.Fatalf("no read fails: got %d failed calls, want none", failedWithoutFault)
			}
			step := int64(1)
			if testing.Short() {
				step = max(1, reads/mostReads)
			}

			for n := int64(1); n <= reads; n += step {
				w.dropCaches()
				faults.FailAt(n)
				failed := w.askThreeTimes(t, q, want)

				// The number of reads may vary a little, so that read n does not always happen.
				if faults.HasFailed() {
					failedReads[q.procedure]++
				}
				faults.FailAt(0)
				if failed > 1 || t.Failed() {
					t.Fatalf("read %d of %d fails: got %d failed calls, want at most 1, and no wrong answers", n, reads, failed)
				}
				failedCalls += failed
			}
		})
	}

	// Every method that reads must have met a failed read. The log's own Watch reads no table.
	for procedure, right := range rights {
		reads := right.roles.Any(access.Read|access.Offline) && !right.roles.Any(access.Admin) && procedure != connectv1.EventServiceWatchProcedure
		if reads && failedReads[procedure] == 0 {
			t.Errorf("%s: no read has failed", procedure)
		}
	}
	total := 0
	for _, n := range failedReads {
		total += n
	}
	t.Logf("%d reads of %d methods have failed, and with them %d calls", total, len(failedReads), failedCalls)
}

// askThreeTimes fails the test if an answer is not the right one, and returns how many calls have
// failed.
func (w *world) askThreeTimes(t *testing.T, q question, want []proto.Message) (failed int) {
	t.Helper()
	for i := range 3 {
		got, err := q.ask(t.Context())
		if err != nil {
			failed++
			continue
		}

		if slices.EqualFunc(want, got, proto.Equal) {
			continue
		}
		if q.withoutSeen != nil && cmp.Equal(q.withoutSeen, got, protocmp.Transform(), ignoreTokens) {
			continue
		}
		t.Errorf("answer %d (-want +got):\n%s", i+1, cmp.Diff(want, got, protocmp.Transform()))
	}
	return failed
}

// ignoreTokens leaves the tokens out of the comparison of a feed with the feed without the seen
// store. Each of the two has its own tokens.
var ignoreTokens = protocmp.IgnoreFields(&skeinv1.ReadFeedResponse{}, "next_page_token", "newest_token")
