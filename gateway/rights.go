package gateway

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// right says which callers may call a method. The zero right admits no caller.
type right struct {
	// open admits every caller, even one without a token.
	open bool
	// roles admits callers that have at least one of these roles.
	roles access.Roles
	// bound restricts bound callers further. A bound caller is one whose token names a user, such
	// as an app on this user's phone. Comments in this file call the user U.
	bound binding
}

// binding says which requests a bound caller may send, and what the answers show. The zero binding
// admits no request.
type binding struct {
	// text describes the binding in docs/access.md.
	text string
	// refusedField returns the path of the field because of which a bound caller may not send the
	// request, such as one with the id of another user. It returns "" if the caller may send it. A
	// nil function admits no request.
	refusedField func(user string, req proto.Message) string
	// conceal removes from an answer what the user may not see. nil means that the user may see all
	// of it. conceal may change the answer, because no other call has the same message.
	conceal func(user string, req, res proto.Message)
}

// rights has the right of every method. docs/access.md shows the same table. Nobody may call a
// method that is missing here.
//
// Only the user sees what concerns this user alone, such as blocks, mutes and plays. Follows,
// boards, pins and their counts are public. Exclusions are not: to all but the excluding user, an
// exclusion looks like an unfollow. docs/access.md says what can still be inferred from public
// lists.
var rights = map[string]right{
	connectv1.EventServicePublishProcedure: {roles: access.Publish, bound: requireUserInEvents()},
	connectv1.EventServiceWatchProcedure:   {roles: access.Offline},

	connectv1.GraphServiceCheckFollowsProcedure:          {roles: access.Read, bound: requireUserInPairs()},
	connectv1.GraphServiceFilterFollowedProcedure:        {roles: access.Read, bound: requireUserIn("viewer_id")},
	connectv1.GraphServiceBatchGetRelationshipsProcedure: {roles: access.Read, bound: concealBlockers()},
	connectv1.GraphServiceBatchGetFollowCountsProcedure:  {roles: access.Read, bound: concealPrivateCounts()},
	connectv1.GraphServiceListFollowingProcedure:         {roles: access.Read, bound: concealSettingsOfOthers()},
	connectv1.GraphServiceListFollowersProcedure:         {roles: access.Read, bound: admitAll()},
	connectv1.GraphServiceListBoardFollowersProcedure:    {roles: access.Read, bound: refuseExcluders()},
	connectv1.GraphServiceListFollowedBoardsProcedure:    {roles: access.Read, bound: admitAll()},
	connectv1.GraphServiceListExcludedBoardsProcedure:    {roles: access.Read, bound: requireUserIn("user_id")},
	connectv1.GraphServiceListBoardsProcedure:            {roles: access.Read, bound: admitAll()},
	connectv1.GraphServiceListBlockedProcedure:           {roles: access.Read, bound: requireUserIn("user_id")},
	connectv1.GraphServiceListMutedProcedure:             {roles: access.Read, bound: requireUserIn("user_id")},
	connectv1.GraphServiceListMutualsProcedure:           {roles: access.Read, bound: requireUserIn("viewer_id")},
	connectv1.GraphServiceScanFollowersProcedure:         {roles: access.Offline},

	connectv1.FeedServiceReadFeedProcedure:            {roles: access.Read, bound: requireUserIn("reader_id")},
	connectv1.FeedServiceCountNewerProcedure:          {roles: access.Read, bound: requireUserIn("reader_id")},
	connectv1.FeedServiceWatchFeedProcedure:           {roles: access.Read, bound: requireUserIn("reader_id")},
	connectv1.FeedServiceListPinsProcedure:            {roles: access.Read, bound: admitAll()},
	connectv1.FeedServiceBatchGetPinsProcedure:        {roles: access.Read, bound: admitAll()},
	connectv1.FeedServiceBatchGetViewerStateProcedure: {roles: access.Read, bound: requireUserIn("viewer_id")},
	connectv1.FeedServiceExplainPinProcedure:          {roles: access.Read, bound: concealBlockReasons()},

	connectv1.SeenServiceFilterSeenProcedure: {roles: access.Read, bound: requireUserIn("user_id")},
	connectv1.SeenServiceListServedProcedure: {roles: access.Read, bound: requireUserIn("user_id")},
	connectv1.SeenServiceListHiddenProcedure: {roles: access.Read, bound: requireUserIn("user_id")},

	connectv1.CounterServiceBatchGetCountersProcedure: {roles: access.Read, bound: concealPlaysOfOthers()},
	connectv1.CounterServiceListTrendingProcedure:     {roles: access.Read, bound: admitAll()},
	connectv1.CounterServiceListReactionsProcedure:    {roles: access.Read, bound: refusePrivateReactionsOfOthers()},
	connectv1.CounterServiceListReactorsProcedure:     {roles: access.Read, bound: requireUserIn("viewer_id")},

	connectv1.NotificationServiceReadNotificationsProcedure:  {roles: access.Read, bound: requireUserIn("user_id")},
	connectv1.NotificationServiceCountNotificationsProcedure: {roles: access.Read, bound: requireUserIn("user_id")},
	connectv1.NotificationServiceWatchNotificationsProcedure: {roles: access.Read, bound: requireUserIn("user_id")},

	// Imports and dashboards call GetStatus. Bound callers may not, because the answer contains the
	// beginnings of refused events of all users.
	connectv1.AdminServiceGetStatusProcedure:       {roles: access.Read | access.Admin},
	connectv1.AdminServiceStartRebuildProcedure:    {roles: access.Admin},
	connectv1.AdminServiceVerifyProcedure:          {roles: access.Admin},
	connectv1.AdminServiceRepairProcedure:          {roles: access.Admin},
	connectv1.AdminServiceRollbackProcedure:        {roles: access.Admin},
	connectv1.AdminServiceTakeSnapshotProcedure:    {roles: access.Admin},
	connectv1.AdminServiceEraseUserProcedure:       {roles: access.Admin},
	connectv1.AdminServiceAcceptLogHoleProcedure:   {roles: access.Admin},
	connectv1.AdminServiceDrainNodeProcedure:       {roles: access.Admin},
	connectv1.AdminServiceGetOperationProcedure:    {roles: access.Admin},
	connectv1.AdminServiceListOperationsProcedure:  {roles: access.Admin},
	connectv1.AdminServiceCancelOperationProcedure: {roles: access.Admin},
	connectv1.AdminServiceWatchOperationProcedure:  {roles: access.Admin},

	// Load balancers have no tokens.
	healthv1connect.HealthCheckProcedure: {open: true},
	healthv1connect.HealthWatchProcedure: {open: true},
}

// admitAll admits every request.
func admitAll() binding {
	return binding{text: "everything", refusedField: func(string, proto.Message) string { return "" }}
}

// concealPrivateCounts admits every request, but shows only to U how many users and boards U has
// blocked, muted and excluded. It shows to no bound caller how many users exclude a board, because
// the owner of the board could then distinguish an exclusion from an unfollow.
func concealPrivateCounts() binding {
	b := admitAll()
	b.text = "everything, but 0 for `excluder_count`, and for `excluded_board_count`, `blocked_count` and `muted_count` of others"
	b.conceal = func(user string, _, res proto.Message) {
		counts, _ := res.(*skeinv1.BatchGetFollowCountsResponse)
		for _, c := range counts.GetUsers() {
			if c.GetUserId() != user {
				c.ExcludedBoardCount = 0
				c.BlockedCount = 0
				c.MutedCount = 0
			}
		}
		for _, c := range counts.GetBoards() {
			c.ExcluderCount = 0
		}
	}
	return b
}

// concealSettingsOfOthers admits requests for the follows of every user, but only U sees the
// settings of U's follows. It refuses lists of only those follows of another user that have a
// setting.
func concealSettingsOfOthers() binding {
	return binding{
		text: "everything, but of others without `settings`, and not with `only`",
		refusedField: func(user string, req proto.Message) string {
			list, _ := req.(*skeinv1.ListFollowingRequest)
			if list.GetOnly() != skeinv1.FollowSetting_FOLLOW_SETTING_UNSPECIFIED && list.GetUserId() != user {
				return "only"
			}
			return ""
		},
		conceal: func(user string, req, res proto.Message) {
			call, _ := req.(*skeinv1.ListFollowingRequest)
			list, _ := res.(*skeinv1.ListFollowingResponse)
			if call.GetUserId() == user {
				return
			}
			for _, e := range list.GetEntries() {
				e.Settings = nil
			}
		},
	}
}

// concealPlaysOfOthers admits every request, but shows only to U how many items U has played. How
// often an item was played is public.
func concealPlaysOfOthers() binding {
	b := admitAll()
	b.text = "everything, but 0 for `play_count` of other users"
	b.conceal = func(user string, req, res proto.Message) {
		call, _ := req.(*skeinv1.BatchGetCountersRequest)
		counters, _ := res.(*skeinv1.BatchGetCountersResponse)
		for i, key := range call.GetKeys() {
			if target, ok := key.GetTarget().(*skeinv1.CounterKey_UserId); ok && target.UserId != user {
				counters.GetCounters()[i].PlayCount = 0
			}
		}
	}
	return b
}

// refusePrivateReactionsOfOthers admits requests for the reactions of every user, but for those of
// a private kind only if they are U's. Reactions of other kinds are public: the lists of who
// reacted to an item also contain them.
func refusePrivateReactionsOfOthers() binding {
	return binding{text: "everything, but of a private `kind` only if `user_id` is U", refusedField: func(user string, req proto.Message) string {
		list, ok := req.(*skeinv1.ListReactionsRequest)
		if !ok || events.IsPrivateReaction(list.GetKind()) && list.GetUserId() != user {
			return "user_id"
		}
		return ""
	}}
}

// requireUserIn admits requests whose given field has the id of U.
func requireUserIn(field protoreflect.Name) binding {
	return binding{text: "`" + string(field) + "` is U", refusedField: func(user string, req proto.Message) string {
		m := req.ProtoReflect()
		if f := m.Descriptor().Fields().ByName(field); f != nil && f.Kind() == protoreflect.StringKind && m.Get(f).String() == user {
			return ""
		}
		return string(field)
	}}
}

// concealBlockers admits requests for the relationships of U, but conceals who blocks U. The rest
// of the answer looks as if the two users had unfollowed each other, because a block ends the
// follows between them.
func concealBlockers() binding {
	b := requireUserIn("viewer_id")
	b.text += "; `blocked_by` is false"
	b.conceal = func(_ string, _, res proto.Message) {
		answer, _ := res.(*skeinv1.BatchGetRelationshipsResponse)
		for _, r := range answer.GetRelationships() {
			r.BlockedBy = false
		}
	}
	return b
}

// concealBlockReasons admits questions about the feed of U, but removes the reason BLOCKED, because
// it could tell U that the owner of the pin blocks U. The answer still has a reason, because
// NOT_FOLLOWED always accompanies BLOCKED. BatchGetRelationships tells U whom U blocks.
//
// REPIN_OF_BLOCKED may be the only reason, so it is replaced and not removed. The same reason
// replaces REPIN_OF_DELETED, so that U cannot distinguish the two.
func concealBlockReasons() binding {
	b := requireUserIn("reader_id")
	b.text += "; without the reason BLOCKED, and with REPIN_OF_UNAVAILABLE for REPIN_OF_BLOCKED and REPIN_OF_DELETED"
	b.conceal = func(_ string, _, res proto.Message) {
		answer, ok := res.(*skeinv1.ExplainPinResponse)
		if !ok {
			return
		}
		answer.Reasons = slices.DeleteFunc(answer.GetReasons(), func(reason skeinv1.AbsenceReason) bool {
			return reason == skeinv1.AbsenceReason_ABSENCE_REASON_BLOCKED
		})
		for i, reason := range answer.GetReasons() {
			switch reason {
			case skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_BLOCKED, skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_DELETED:
				answer.Reasons[i] = skeinv1.AbsenceReason_ABSENCE_REASON_REPIN_OF_UNAVAILABLE
			}
		}
	}
	return b
}

// requireUserInPairs admits requests that ask only about follows of U.
func requireUserInPairs() binding {
	return binding{text: "`user_id` of every pair is U", refusedField: func(user string, req proto.Message) string {
		check, _ := req.(*skeinv1.CheckFollowsRequest)
		for i, pair := range check.GetPairs() {
			if pair.GetUserId() != user {
				return fmt.Sprintf("pairs[%d].user_id", i)
			}
		}
		return ""
	}}
}

// refuseExcluders admits every request except those for the users who exclude a board.
func refuseExcluders() binding {
	return binding{text: "`kind` is not EXCLUDERS", refusedField: func(_ string, req proto.Message) string {
		list, ok := req.(*skeinv1.ListBoardFollowersRequest)
		if !ok || list.GetKind() == skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS {
			return "kind"
		}
		return ""
	}}
}

// requireUserInEvents admits live events whose acting user is U. It refuses backfills, because
// their senders choose their time, and because after a backfill with a high offset the log ignores
// all backfills of the same source with lower offsets.
//
// requireUserInEvents admits malformed events, because the method itself then refuses them, with a
// list of all errors. To save time, requireUserInEvents validates only an event that it would
// refuse if the event were well-formed.
func requireUserInEvents() binding {
	return binding{text: "the acting user of every event is U; no backfills", refusedField: func(user string, req proto.Message) string {
		call, _ := req.(*skeinv1.PublishRequest)
		for i, msg := range call.GetEvents() {
			ev, _ := events.FromLog(msg)
			if (ev.User != user || ev.Backfill) && events.Validate(msg) == nil {
				return fmt.Sprintf("events[%d]", i)
			}
		}
		return ""
	}}
}
