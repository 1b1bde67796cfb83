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

// countFields returns the fields of a message that are counts.
func countFields(m proto.Message) (counts []protoreflect.FieldDescriptor) {
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Kind() == protoreflect.Uint32Kind || f.Kind() == protoreflect.Int64Kind {
			counts = append(counts, f)
		}
	}
	return counts
}

// setAllCounts sets every count of a message to 7, and returns the message.
func setAllCounts[M proto.Message](m M) M {
	for _, f := range countFields(m) {
		value := protoreflect.ValueOfUint32(7)
		if f.Kind() == protoreflect.Int64Kind {
			value = protoreflect.ValueOfInt64(7)
		}
		m.ProtoReflect().Set(f, value)
	}
	return m
}

// countVisibility says which of the callers who are bound to a user get a count.
type countVisibility string

const (
	visibleToAll     countVisibility = "visible to all"
	visibleToItsUser countVisibility = "visible to the user it is about"
	visibleToUnbound countVisibility = "visible to no bound caller"
)

// checkVisibleCounts checks which counts are left in a message for a bound caller. Every count of
// the message must be in the table.
func checkVisibleCounts(t *testing.T, m proto.Message, table map[protoreflect.Name]countVisibility, isAboutCaller bool) {
	t.Helper()
	for _, f := range countFields(m) {
		visibility, ok := table[f.Name()]
		if !ok {
			t.Errorf("the table of this test does not have %s: add to whom it is visible", f.Name())
		}
		want := visibility == visibleToAll || visibility == visibleToItsUser && isAboutCaller
		if got := m.ProtoReflect().Has(f); got != want {
			t.Errorf("%s, which is %s: got shown %v, want %v", f.Name(), visibility, got, want)
		}
	}
}

// TestCountsAreConcealed checks that a caller who is bound to a user gets all counts of this user,
// and only public counts of others.
func TestCountsAreConcealed(t *testing.T) {
	followCountsOfUser := map[protoreflect.Name]countVisibility{
		"follower_count":           visibleToAll,
		"explicit_follower_count":  visibleToAll,
		"implicit_follower_count":  visibleToAll,
		"following_count":          visibleToAll,
		"explicit_following_count": visibleToAll,
		"implicit_following_count": visibleToAll,
		"board_count":              visibleToAll,
		"followed_board_count":     visibleToAll,
		"excluded_board_count":     visibleToItsUser,
		"blocked_count":            visibleToItsUser,
		"muted_count":              visibleToItsUser,
	}
	followCountsOfBoard := map[protoreflect.Name]countVisibility{
		"follower_count":          visibleToAll,
		"explicit_follower_count": visibleToAll,
		"excluder_count":          visibleToUnbound,
	}
	countersOfUser := map[protoreflect.Name]countVisibility{
		"pin_count":      visibleToAll,
		"board_count":    visibleToAll,
		"follower_count": visibleToAll,
		"play_count":     visibleToItsUser,
		"repin_count":    visibleToAll,
	}
	countersOfItem := map[protoreflect.Name]countVisibility{
		"pin_count":      visibleToAll,
		"board_count":    visibleToAll,
		"follower_count": visibleToAll,
		"play_count":     visibleToAll,
		"repin_count":    visibleToAll,
	}

	followCounts := &skeinv1.BatchGetFollowCountsResponse{
		Users: []*skeinv1.UserFollowCounts{
			setAllCounts(&skeinv1.UserFollowCounts{UserId: "ann"}),
			setAllCounts(&skeinv1.UserFollowCounts{UserId: "bob"}),
		},
		Boards: []*skeinv1.BoardFollowCounts{
			setAllCounts(&skeinv1.BoardFollowCounts{Board: board("ann", "b")}),
			setAllCounts(&skeinv1.BoardFollowCounts{Board: board("bob", "b")}),
		},
	}
	rights[connectv1.GraphServiceBatchGetFollowCountsProcedure].bound.conceal("ann", nil, followCounts)

	counterRequest := &skeinv1.BatchGetCountersRequest{Keys: []*skeinv1.CounterKey{
		countsOfUser("ann"), countsOfUser("bob"), countsOfItem("i"), countsOfBoard("bob", "b"),
	}}
	counters := &skeinv1.BatchGetCountersResponse{}
	for range counterRequest.GetKeys() {
		counters.Counters = append(counters.Counters, setAllCounts(&skeinv1.Counters{}))
	}
	rights[connectv1.CounterServiceBatchGetCountersProcedure].bound.conceal("ann", counterRequest, counters)

	for _, c := range []struct {
		name          string
		message       proto.Message
		table         map[protoreflect.Name]countVisibility
		isAboutCaller bool
	}{
		{"follow counts of ann", followCounts.GetUsers()[0], followCountsOfUser, true},
		{"follow counts of another user", followCounts.GetUsers()[1], followCountsOfUser, false},
		{"follow counts of a board of ann", followCounts.GetBoards()[0], followCountsOfBoard, true},
		{"follow counts of another user's board", followCounts.GetBoards()[1], followCountsOfBoard, false},
		{"counters of ann", counters.GetCounters()[0], countersOfUser, true},
		{"counters of another user", counters.GetCounters()[1], countersOfUser, false},
		{"counters of an item", counters.GetCounters()[2], countersOfItem, false},
		{"counters of a board", counters.GetCounters()[3], countersOfItem, false},
	} {
		t.Run(c.name, func(t *testing.T) { checkVisibleCounts(t, c.message, c.table, c.isAboutCaller) })
	}
}

// TestBlocksByOthersAreConcealed checks that a caller who is bound to ann does not learn who blocks
// her, neither from a relationship nor from the reason why a pin is not in her feed. The caller
// learns whom she blocks.
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
			for format, options := range map[string][]connect.ClientOption{"plain": nil, "JSON": {connect.WithProtoJSON()}} {
				w := g.as(g.tokens[c.token], options...)
				relationship := ask(w, w.graph.BatchGetRelationships, &skeinv1.BatchGetRelationshipsRequest{
					ViewerId: "ann", UserIds: []string{c.user}, AtLeast: at,
				}).GetRelationships()[0]
				explained := w.explain(&skeinv1.ReadFeedRequest{ReaderId: "ann", AtLeast: at}, c.user, "p")
				got := answers{relationship.GetBlocking(), relationship.GetBlockedBy(), explained.GetReasons()}
				if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(answers{})); diff != "" {
					t.Errorf("%s (-want +got)\n%s", format, diff)
				}
			}
		})
	}
}

// TestBlocksAreConcealedInReasonsOfRepins checks that a caller who is bound to ann cannot tell why
// a re-pin is not in her feed: because a block separates her from the user whose pin it repeats, or
// because that user was deleted. The caller learns of her own mutes.
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
			if diff := cmp.Diff([]skeinv1.AbsenceReason{c.want}, explained.GetReasons()); diff != "" {
				t.Errorf("reasons (-want +got)\n%s", diff)
			}
			if explained.GetInFeed() {
				t.Error("got a pin in the feed, want it not to be")
			}
		})
	}
}

// TestPublishDoesNotTellOfBlocks checks that Publish accepts a follow of a user who blocks the
// follower, because a refusal would tell of the block. The follow has no effect.
func TestPublishDoesNotTellOfBlocks(t *testing.T) {
	g := newGuarded(t)
	g.as(g.tokens["all"]).publish(block("bob", "ann"))
	w := g.as(g.tokens["ann"])
	published := ask(w, w.events.Publish, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{follow("ann", "bob")}, Wait: skeinv1.PublishWait_PUBLISH_WAIT_VISIBLE,
	})
	if got := published.GetRejections(); len(got) > 0 {
		t.Errorf("got the rejections %v, want none", got)
	}
	following := ask(w, w.graph.ListFollowing, &skeinv1.ListFollowingRequest{UserId: "ann", AtLeast: published.GetPosition()})
	if following.GetTotalSize() != 0 {
		t.Errorf("ann follows %v, want nobody", following.GetEntries())
	}
}

// TestExclusionsFollowFromPublicLists shows how a bound caller can conclude who excludes a board,
// from two lists that are public. docs/access.md says so, and must be corrected if this test fails.
func TestExclusionsFollowFromPublicLists(t *testing.T) {
	g := newGuarded(t)
	at := g.as(g.tokens["all"]).publish(
		createBoard("bob", "trips", ""), follow("cid", "bob"), follow("dan", "bob"), unfollowBoard("cid", "bob", "trips"),
	)
	w := g.as(g.tokens["ann"])

	// Who follows the owner, but not the board, excludes the board.
	followersOfOwner := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at})
	followersOfBoard := ask(w, w.graph.ListBoardFollowers, &skeinv1.ListBoardFollowersRequest{Board: board("bob", "trips"), AtLeast: at})
	var excluders []string
	for _, follower := range followersOfOwner.GetEntries() {
		followsBoard := slices.ContainsFunc(followersOfBoard.GetEntries(), func(e *skeinv1.FollowEntry) bool {
			return e.GetUserId() == follower.GetUserId()
		})
		if !followsBoard {
			excluders = append(excluders, follower.GetUserId())
		}
	}
	if diff := cmp.Diff([]string{"cid"}, excluders); diff != "" {
		t.Errorf("users who exclude the board (-want +got)\n%s", diff)
	}
}
