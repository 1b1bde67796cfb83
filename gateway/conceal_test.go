package gateway

import (
	"slices"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// full is an answer in which every count is 7.
func full[M proto.Message](m M) M {
	for fields, i := m.ProtoReflect().Descriptor().Fields(), 0; i < fields.Len(); i++ {
		switch f := fields.Get(i); f.Kind() {
		case protoreflect.Uint32Kind:
			m.ProtoReflect().Set(f, protoreflect.ValueOfUint32(7))
		case protoreflect.Int64Kind:
			m.ProtoReflect().Set(f, protoreflect.ValueOfInt64(7))
		}
	}
	return m
}

// A caller who is bound to a user gets all counts of this user that the table calls own, and only
// public counts of others. A new count must be added to the table.
func TestCountsAreConcealed(t *testing.T) {
	const public, own, nobody = "public", "own", "nobody's who is bound"
	users := map[protoreflect.Name]string{
		"follower_count": public, "explicit_follower_count": public, "implicit_follower_count": public, "following_count": public,
		"explicit_following_count": public, "implicit_following_count": public, "board_count": public, "followed_board_count": public,
		"excluded_board_count": own, "blocked_count": own, "muted_count": own,
	}
	boards := map[protoreflect.Name]string{"follower_count": public, "explicit_follower_count": public, "excluder_count": nobody}
	ofUser := map[protoreflect.Name]string{
		"pin_count": public, "board_count": public, "follower_count": public, "play_count": own, "repin_count": public,
	}
	ofItem := map[protoreflect.Name]string{
		"pin_count": public, "board_count": public, "follower_count": public, "play_count": public, "repin_count": public,
	}
	see := func(name string, m proto.Message, table map[protoreflect.Name]string, mine bool) {
		t.Helper()
		for fields, i := m.ProtoReflect().Descriptor().Fields(), 0; i < fields.Len(); i++ {
			f := fields.Get(i)
			if f.Kind() != protoreflect.Uint32Kind && f.Kind() != protoreflect.Int64Kind {
				continue
			}
			whose, known := table[f.Name()]
			if !known {
				t.Errorf("%s: say in this table whose %s is", name, f.Name())
			}
			want := whose == public || whose == own && mine
			if shown := m.ProtoReflect().Has(f); shown != want {
				t.Errorf("%s: %s is shown: %v, and it is %s", name, f.Name(), shown, whose)
			}
		}
	}
	counts := &skeinv1.BatchGetFollowCountsResponse{
		Users: []*skeinv1.UserFollowCounts{
			full(&skeinv1.UserFollowCounts{UserId: "ann"}), full(&skeinv1.UserFollowCounts{UserId: "bob"}),
		},
		Boards: []*skeinv1.BoardFollowCounts{
			full(&skeinv1.BoardFollowCounts{Board: board("ann", "b")}), full(&skeinv1.BoardFollowCounts{Board: board("bob", "b")}),
		},
	}
	rights[connectv1.GraphServiceBatchGetFollowCountsProcedure].bound.conceal("ann", nil, counts)
	for i, whose := range []string{"own", "another's"} {
		see(whose+" user", counts.GetUsers()[i], users, i == 0)
		see(whose+" board", counts.GetBoards()[i], boards, i == 0)
	}
	ask := &skeinv1.BatchGetCountersRequest{Keys: []*skeinv1.CounterKey{
		{Target: &skeinv1.CounterKey_UserId{UserId: "ann"}},
		{Target: &skeinv1.CounterKey_UserId{UserId: "bob"}},
		countsOfItem("i"),
		{Target: &skeinv1.CounterKey_Board{Board: board("bob", "b")}},
	}}
	res := &skeinv1.BatchGetCountersResponse{}
	for range ask.GetKeys() {
		res.Counters = append(res.Counters, full(&skeinv1.Counters{}))
	}
	rights[connectv1.CounterServiceBatchGetCountersProcedure].bound.conceal("ann", ask, res)
	see("own counters", res.GetCounters()[0], ofUser, true)
	see("another's counters", res.GetCounters()[1], ofUser, false)
	see("counters of an item", res.GetCounters()[2], ofItem, false)
	see("counters of a board", res.GetCounters()[3], ofItem, false)
}

// A caller who is bound to ann is not told who blocks her, neither by a relationship nor by the
// reason why a pin is not in her feed. It is told whom she blocks.
func TestBlocksByOthersAreConcealed(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["all"]).publish(
		follow("ann", "bob"), follow("bob", "ann"), pinned("bob", "", "p"), block("bob", "ann"),
		follow("ann", "cid"), pinned("cid", "", "p"), block("ann", "cid"),
		follow("ann", "dan"), pinned("dan", "", "p"), unfollow("ann", "dan"),
	)
	type answers struct {
		blocking, blockedBy bool
		reasons             []skeinv1.AbsenceReason
	}
	for name, c := range map[string]struct {
		token, user string
		want        answers
	}{
		"bound, blocked":      {"ann", "bob", answers{reasons: []skeinv1.AbsenceReason{notFollowed}}},
		"bound, blocking":     {"ann", "cid", answers{blocking: true, reasons: []skeinv1.AbsenceReason{notFollowed}}},
		"bound, unfollowed":   {"ann", "dan", answers{reasons: []skeinv1.AbsenceReason{notFollowed}}},
		"unbound, blocked":    {"reader", "bob", answers{blockedBy: true, reasons: []skeinv1.AbsenceReason{notFollowed, blockStands}}},
		"unbound, blocking":   {"reader", "cid", answers{blocking: true, reasons: []skeinv1.AbsenceReason{notFollowed, blockStands}}},
		"unbound, unfollowed": {"reader", "dan", answers{reasons: []skeinv1.AbsenceReason{notFollowed}}},
	} {
		t.Run(name, func(t *testing.T) {
			for way, options := range map[string][]connect.ClientOption{"plain": nil, "JSON": {connect.WithProtoJSON()}} {
				w := g.as(g.tokens[c.token], options...)
				relationship := ask(w, w.graph.BatchGetRelationships, &skeinv1.BatchGetRelationshipsRequest{
					ViewerId: "ann", UserIds: []string{c.user}, AtLeast: at,
				}).GetRelationships()[0]
				explained := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, c.user, "p")
				got := answers{relationship.GetBlocking(), relationship.GetBlockedBy(), explained.GetReasons()}
				if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(answers{})); diff != "" {
					t.Errorf("%s (-want +got)\n%s", way, diff)
				}
			}
		})
	}
}

// A caller who is bound to ann gets one reason for a re-pin of a user whom a block separates from
// her and for one of a deleted user, and is told of her own mutes.
func TestBlocksAreConcealedInReasonsOfRepins(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["all"]).publish(
		follow("ann", "joe"), repinned("joe", "of-bob", "i", "bob", "p"), repinned("joe", "of-cid", "i", "cid", "p"),
		repinned("joe", "of-dan", "i", "dan", "p"), block("bob", "ann"), deletedUser("cid"), mute("ann", "dan"),
	)
	for name, c := range map[string]struct {
		token, pin string
		want       skeinv1.AbsenceReason
	}{
		"bound, blocked":   {"ann", "of-bob", repinOfAny},
		"bound, deleted":   {"ann", "of-cid", repinOfAny},
		"bound, muted":     {"ann", "of-dan", repinOfMuted},
		"unbound, blocked": {"reader", "of-bob", repinOfBlock},
		"unbound, deleted": {"reader", "of-cid", repinOfGone},
		"unbound, muted":   {"reader", "of-dan", repinOfMuted},
	} {
		t.Run(name, func(t *testing.T) {
			w := g.as(g.tokens[c.token])
			explained := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, "joe", c.pin)
			if diff := cmp.Diff([]skeinv1.AbsenceReason{c.want}, explained.GetReasons()); diff != "" || explained.GetInFeed() {
				t.Errorf("in the feed: %v, reasons (-want +got)\n%s", explained.GetInFeed(), diff)
			}
		})
	}
}

// Publish accepts a follow of a user who blocks the follower, and gives no reason. The follow has
// no effect.
func TestPublishDoesNotTellOfBlocks(t *testing.T) {
	g := newGuarded(t)
	g.as(g.tokens["all"]).publish(block("bob", "ann"))
	w := g.as(g.tokens["ann"])
	published := ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "bob")}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})
	if len(published.GetRejections()) > 0 {
		t.Errorf("the follow is refused, which tells of the block: %v", published.GetRejections())
	}
	following := ask(w, w.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: published.GetPosition()})
	if following.GetTotalSize() != 0 {
		t.Errorf("ann follows %v", following.GetEntries())
	}
}

// docs/access.md says that a bound caller can conclude who excludes a board, from two lists that
// are public. This test shows how, so that the page is corrected if it becomes untrue.
func TestExclusionsFollowFromPublicLists(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["all"]).publish(
		createBoard("bob", "trips", ""), follow("cid", "bob"), follow("dan", "bob"), unfollowBoard("cid", "bob", "trips"),
	)
	w := g.as(g.tokens["ann"])
	var excluders []string
	for _, e := range ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at}).GetEntries() {
		excluders = append(excluders, e.GetUserId())
	}
	listed := ask(w, w.graph.ListBoardFollowers, &skeinv1.ListBoardFollowersRequest{Board: board("bob", "trips"), AtLeast: at})
	for _, e := range listed.GetEntries() {
		excluders = slices.DeleteFunc(excluders, func(user string) bool { return user == e.GetUserId() })
	}
	if diff := cmp.Diff([]string{"cid"}, excluders); diff != "" {
		t.Errorf("users who exclude the board (-want +got)\n%s", diff)
	}
}
