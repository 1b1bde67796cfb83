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

// right says which callers may call a method. The zero right admits no caller, so a method that is forgotten in the table is closed.
type right struct {
	// open admits every caller, also an unauthenticated one.
	open bool
	// roles admits callers that have at least one of them.
	roles access.Roles
	// bound is what is left for a caller who is bound to a user.
	bound binding
}

// binding says which requests a caller that is bound to a user may send. The zero binding admits none.
type binding struct {
	// text is for docs/access.md, where U is the user.
	text string
	// other returns the field by which a request is about another user; empty means none.
	other func(user string, req proto.Message) string
	// conceal takes out of an answer what is not for the user, who got the rest; nil means nothing. The answer is the caller's alone.
	conceal func(user string, req, res proto.Message)
}

// rights are those of every method, as docs/access.md shows them. No caller may call a method that is not here.
//
// A user's own affairs, such as blocks, mutes and plays, are for the user alone. Follows, boards,
// pins and their counts are public, except exclusions: these are between two users, and look like an unfollow to all others. docs/access.md
// says what follows from public lists all the same.
var rights = map[string]right{
	connectv1.EventServicePublishProcedure: {roles: access.Publish, bound: ownEvents()},
	connectv1.EventServiceWatchProcedure:   {roles: access.Offline},

	connectv1.GraphServiceCheckFollowsProcedure:          {roles: access.Read, bound: ownPairs()},
	connectv1.GraphServiceFilterFollowedProcedure:        {roles: access.Read, bound: own("viewer_id")},
	connectv1.GraphServiceBatchGetRelationshipsProcedure: {roles: access.Read, bound: ownRelationships()},
	connectv1.GraphServiceBatchGetFollowCountsProcedure:  {roles: access.Read, bound: ownCounts()},
	connectv1.GraphServiceListFollowingProcedure:         {roles: access.Read, bound: everything()},
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
	connectv1.FeedServiceListLikesProcedure:           {roles: access.Read, bound: own("user_id")},
	connectv1.FeedServiceExplainPinProcedure:          {roles: access.Read, bound: ownFeedReasons()},

	connectv1.SeenServiceFilterSeenProcedure: {roles: access.Read, bound: own("user_id")},
	connectv1.SeenServiceListServedProcedure: {roles: access.Read, bound: own("user_id")},

	connectv1.CounterServiceBatchGetCountersProcedure: {roles: access.Read, bound: ownPlays()},
	connectv1.CounterServiceListTrendingProcedure:     {roles: access.Read, bound: everything()},

	// Imports ask it first, and dashboards; it shows the beginnings of refused events, with whatever ids are in them.
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

	// Balancers have no tokens.
	healthv1connect.HealthCheckProcedure: {open: true},
	healthv1connect.HealthWatchProcedure: {open: true},
}

func everything() binding {
	return binding{text: "everything", other: func(string, proto.Message) string { return "" }}
}

// ownCounts permits every request, but of the counts between two users it shows only those of U's own actions. A bound caller never learns
// how many users exclude a board: its owner could distinguish an exclusion from an unfollow.
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

// ownPlays lets pass everything but how much another user has played. Plays of items are public.
func ownPlays() binding {
	b := everything()
	b.text = "everything, but 0 for `play_count` of other users"
	b.conceal = func(user string, req, res proto.Message) {
		call, _ := req.(*skeinv1.BatchGetCountersRequest)
		counters, _ := res.(*skeinv1.BatchGetCountersResponse)
		for i, key := range call.GetKeys() {
			if of, ok := key.GetTarget().(*skeinv1.CounterKey_UserId); ok && of.UserId != user {
				counters.GetCounters()[i].PlayCount = 0
			}
		}
	}
	return b
}

// own lets pass what has the user in a field.
func own(field protoreflect.Name) binding {
	return binding{text: "`" + string(field) + "` is U", other: func(user string, req proto.Message) string {
		m := req.ProtoReflect()
		if f := m.Descriptor().Fields().ByName(field); f != nil && f.Kind() == protoreflect.StringKind && m.Get(f).String() == user {
			return ""
		}
		return string(field)
	}}
}

// ownRelationships permits the relationships of U, but never says who blocks U. An answer without a block does not contradict the others:
// no follow between the two users holds, as if both had unfollowed each other.
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

// ownFeedReasons permits questions about the feed of U, but does not give the reason BLOCKED, which does not say which of the two users
// blocks the other. NOT_FOLLOWED is always given beside BLOCKED, so some reason remains. The method BatchGetRelationships says whom U blocks.
func ownFeedReasons() binding {
	b := own("reader_id")
	b.text += "; without the reason BLOCKED"
	b.conceal = func(_ string, _, res proto.Message) {
		answer, ok := res.(*skeinv1.ExplainPinResponse)
		if !ok {
			return
		}
		answer.Reasons = slices.DeleteFunc(answer.GetReasons(), func(reason skeinv1.AbsenceReason) bool {
			return reason == skeinv1.AbsenceReason_ABSENCE_REASON_BLOCKED
		})
	}
	return b
}

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

func noExcluders() binding {
	return binding{text: "`kind` is not EXCLUDERS", other: func(_ string, req proto.Message) string {
		list, ok := req.(*skeinv1.ListBoardFollowersRequest)
		if !ok || list.GetKind() == skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS {
			return "kind"
		}
		return ""
	}}
}

// ownEvents lets pass live events that the user does. A backfill chooses its time and takes offsets of its source, which keeps
// every lower one out for ever. So imports are for callers that are not bound to a user. A malformed event is refused later, with all
// its errors. Only an event that would be refused here is checked for that: the others are checked once, by the method.
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
