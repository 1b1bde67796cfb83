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

// right says which callers may call a method. The zero right admits no caller, so a method that is missing in the table cannot be called.
type right struct {
	// open admits every caller, even an unauthenticated one.
	open bool
	// roles admits callers that have at least one of the roles.
	roles access.Roles
	// bound further restricts callers who are bound to one user.
	bound binding
}

// binding says which requests a caller who is bound to one user may send. The zero binding admits none.
type binding struct {
	// text describes the binding in docs/access.md, where U is the user.
	text string
	// other returns the path of the field by which a request is about another user, or "" if the request is about the user alone.
	other func(user string, req proto.Message) string
	// conceal removes from an answer what the user may not see. It is nil if the user may see all of it. It may change the answer, which no
	// other call shares.
	conceal func(user string, req, res proto.Message)
}

// rights has the right of every method. docs/access.md shows the same table. Nobody may call a method that is missing here.
//
// What concerns a user alone, such as blocks, mutes and plays, is visible to that user alone. Follows, boards, pins and their counts are
// public, except exclusions: an exclusion is between two users, and looks like an unfollow to everybody else. docs/access.md says what can still
// be inferred from public lists.
var rights = map[string]right{
	connectv1.EventServicePublishProcedure: {roles: access.Publish, bound: ownEvents()},
	connectv1.EventServiceWatchProcedure:   {roles: access.Offline},

	connectv1.GraphServiceCheckFollowsProcedure:          {roles: access.Read, bound: ownPairs()},
	connectv1.GraphServiceFilterFollowedProcedure:        {roles: access.Read, bound: own("viewer_id")},
	connectv1.GraphServiceBatchGetRelationshipsProcedure: {roles: access.Read, bound: ownRelationships()},
	connectv1.GraphServiceBatchGetFollowCountsProcedure:  {roles: access.Read, bound: ownCounts()},
	connectv1.GraphServiceListFollowingProcedure:         {roles: access.Read, bound: ownSettings()},
	connectv1.GraphServiceListFollowersProcedure:         {roles: access.Read, bound: everything()},
	connectv1.GraphServiceListBoardFollowersProcedure:    {roles: access.Read, bound: noExcluders()},
	connectv1.GraphServiceListFollowedBoardsProcedure:    {roles: access.Read, bound: everything()},
	connectv1.GraphServiceListExcludedBoardsProcedure:    {roles: access.Read, bound: own("user_id")},
	connectv1.GraphServiceListBoardsProcedure:            {roles: access.Read, bound: everything()},
	connectv1.GraphServiceListBlockedProcedure:           {roles: access.Read, bound: own("user_id")},
	connectv1.GraphServiceListMutedProcedure:             {roles: access.Read, bound: own("user_id")},
	connectv1.GraphServiceListMutualsProcedure:           {roles: access.Read, bound: own("viewer_id")},
	connectv1.GraphServiceScanFollowersProcedure:         {roles: access.Offline},

	connectv1.FeedServiceReadFeedProcedure:            {roles: access.Read, bound: own("reader_id")},
	connectv1.FeedServiceCountNewerProcedure:          {roles: access.Read, bound: own("reader_id")},
	connectv1.FeedServiceWatchFeedProcedure:           {roles: access.Read, bound: own("reader_id")},
	connectv1.FeedServiceListPinsProcedure:            {roles: access.Read, bound: everything()},
	connectv1.FeedServiceBatchGetPinsProcedure:        {roles: access.Read, bound: everything()},
	connectv1.FeedServiceBatchGetViewerStateProcedure: {roles: access.Read, bound: own("viewer_id")},
	connectv1.FeedServiceExplainPinProcedure:          {roles: access.Read, bound: ownFeedReasons()},

	connectv1.SeenServiceFilterSeenProcedure: {roles: access.Read, bound: own("user_id")},
	connectv1.SeenServiceListServedProcedure: {roles: access.Read, bound: own("user_id")},
	connectv1.SeenServiceListHiddenProcedure: {roles: access.Read, bound: own("user_id")},

	connectv1.CounterServiceBatchGetCountersProcedure: {roles: access.Read, bound: ownPlays()},
	connectv1.CounterServiceListTrendingProcedure:     {roles: access.Read, bound: everything()},
	connectv1.CounterServiceListReactionsProcedure:    {roles: access.Read, bound: ownPrivateKinds()},
	connectv1.CounterServiceListReactorsProcedure:     {roles: access.Read, bound: own("viewer_id")},

	connectv1.NotificationServiceReadNotificationsProcedure:  {roles: access.Read, bound: own("user_id")},
	connectv1.NotificationServiceCountNotificationsProcedure: {roles: access.Read, bound: own("user_id")},
	connectv1.NotificationServiceWatchNotificationsProcedure: {roles: access.Read, bound: own("user_id")},

	// Imports and dashboards call GetStatus. It is not for bound callers, because it shows the beginnings of refused events with their ids.
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

// everything admits every request.
func everything() binding {
	return binding{text: "everything", other: func(string, proto.Message) string { return "" }}
}

// ownCounts admits every request, but shows counts of blocks, mutes and exclusions only for U's own actions. A bound caller never learns how
// many users exclude a board, because the owner of the board could then distinguish an exclusion from an unfollow.
func ownCounts() binding {
	b := everything()
	b.text = "everything, but 0 for `excluder_count`, and for `excluded_board_count`, `blocked_count` and `muted_count` of others"
	b.conceal = func(user string, _, res proto.Message) {
		counts, _ := res.(*skeinv1.BatchGetFollowCountsResponse)
		for _, c := range counts.GetUsers() {
			if c.GetUserId() != user {
				c.ExcludedBoardCount, c.BlockedCount, c.MutedCount = 0, 0, 0
			}
		}
		for _, c := range counts.GetBoards() {
			c.ExcluderCount = 0
		}
	}
	return b
}

// ownSettings permits every list of follows. The settings of follows are the follower's own affair: of the follows of others, U neither gets
// them nor learns from a list which follows have one.
func ownSettings() binding {
	return binding{
		text: "everything, but of others without `settings`, and not with `only`",
		other: func(user string, req proto.Message) string {
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

// ownPlays admits every request, but conceals how much other users have played. How often an item was played is public.
func ownPlays() binding {
	b := everything()
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

// ownPrivateKinds permits lists of every user's reactions, but those of private kinds only of U. What others react to with other kinds is
// public, as their names are in the lists of who reacted.
func ownPrivateKinds() binding {
	return binding{text: "everything, but of a private `kind` only if `user_id` is U", other: func(user string, req proto.Message) string {
		list, ok := req.(*skeinv1.ListReactionsRequest)
		if !ok || events.IsPrivateReaction(list.GetKind()) && list.GetUserId() != user {
			return "user_id"
		}
		return ""
	}}
}

// own admits requests that have the user in the given field.
func own(field protoreflect.Name) binding {
	return binding{text: "`" + string(field) + "` is U", other: func(user string, req proto.Message) string {
		m := req.ProtoReflect()
		if f := m.Descriptor().Fields().ByName(field); f != nil && f.Kind() == protoreflect.StringKind && m.Get(f).String() == user {
			return ""
		}
		return string(field)
	}}
}

// ownRelationships admits requests for the relationships of U, but conceals who blocks U. The rest of the answer does not reveal a block, because
// a block ends the follows between the two users, as if both had unfollowed each other.
func ownRelationships() binding {
	b := own("viewer_id")
	b.text += "; `blocked_by` is false"
	b.conceal = func(_ string, _, res proto.Message) {
		answer, _ := res.(*skeinv1.BatchGetRelationshipsResponse)
		for _, r := range answer.GetRelationships() {
			r.BlockedBy = false
		}
	}
	return b
}

// ownFeedReasons admits questions about the feed of U, but removes the reason BLOCKED, which would not say which of the two users blocks the
// other. The answer still has a reason, because NOT_FOLLOWED always accompanies BLOCKED. BatchGetRelationships says whom U blocks.
//
// Beside REPIN_OF_BLOCKED no other reason need hold, so another one takes its place, and that of REPIN_OF_DELETED so that the two look alike.
func ownFeedReasons() binding {
	b := own("reader_id")
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

// ownPairs admits requests that ask only about follows of U.
func ownPairs() binding {
	return binding{text: "`user_id` of every pair is U", other: func(user string, req proto.Message) string {
		check, _ := req.(*skeinv1.CheckFollowsRequest)
		for i, pair := range check.GetPairs() {
			if pair.GetUserId() != user {
				return fmt.Sprintf("pairs[%d].user_id", i)
			}
		}
		return ""
	}}
}

// noExcluders admits every request except those for the users who exclude a board.
func noExcluders() binding {
	return binding{text: "`kind` is not EXCLUDERS", other: func(_ string, req proto.Message) string {
		list, ok := req.(*skeinv1.ListBoardFollowersRequest)
		if !ok || list.GetKind() == skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS {
			return "kind"
		}
		return ""
	}}
}

// ownEvents admits live events whose acting user is U. Backfills are only for callers who are not bound to a user: a backfill chooses its own
// time, and uses up offsets of its source, so that no later backfill of that source with a lower offset is accepted.
//
// ownEvents does not object to a malformed event, because the method refuses it with all of its errors. It validates only events that it would
// otherwise refuse, so the method remains the only one that validates the others.
func ownEvents() binding {
	return binding{text: "the acting user of every event is U; no backfills", other: func(user string, req proto.Message) string {
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
