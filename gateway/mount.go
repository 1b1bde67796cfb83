package gateway

import (
	"github.com/skein-feed/skein/gateway/internal/adminservice"
	"github.com/skein-feed/skein/gateway/internal/counterservice"
	"github.com/skein-feed/skein/gateway/internal/eventservice"
	"github.com/skein-feed/skein/gateway/internal/feedservice"
	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/gateway/internal/notificationservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/seenservice"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// mount mounts the methods of all services. A new method needs a line here, a line in rights.go,
// and a file in the package of its service. These functions mount a method:
//
//	mountUnary       a method with one answer
//	mountStream      a method that answers with a stream of messages
//	mountRead        mountUnary, for a method that reads rows of one home: in a cluster, a node that has these rows answers (cluster.go)
//	mountReadStream  the same for a stream
//	mountReadParts   mountUnary, for a request with parts that are about different homes: several nodes may answer parts of it (parts.go)
//
// Before the method runs, they check the request against the rules in its proto, and then with the
// function Validate…, if there is one. The variants with the suffix ByHand call only Validate…,
// because the rules are too slow for methods that are called often (method.go).
//
// A process need not have all projections. mountUnimplemented mounts an error for all methods that
// the lines before it have not mounted.
func (s *Server) mount() error {
	s.mountEvents()
	s.mountGraph()
	if err := s.mountFeed(); err != nil {
		return err
	}
	s.mountSeen()
	s.mountCounters()
	s.mountNotifications()
	s.mountOperations()
	s.mountHealth()
	if s.cluster != nil {
		s.mountPeers()
	}
	s.mountUnimplemented()
	return nil
}

func (s *Server) mountEvents() {
	e := s.events
	a := s.admin
	mountUnaryByHand(s, connectv1.EventServicePublishProcedure, eventservice.ValidatePublish, e.Publish)
	watch := mountStream(s, connectv1.EventServiceWatchProcedure, eventservice.ValidateWatch, e.Watch)
	mountForBrowsers(watch, func(req *skeinv1.WatchRequest, position string) { req.After = position })
	mountUnary(s, connectv1.AdminServiceGetStatusProcedure, nil, a.GetStatus)
	mountUnary(s, connectv1.AdminServiceAcceptLogHoleProcedure, adminservice.ValidateAcceptLogHole, a.AcceptLogHole)
	mountUnary(s, connectv1.AdminServiceDrainNodeProcedure, nil, a.DrainNode)
}

func (s *Server) mountGraph() {
	g := graphservice.New(s.views)
	mountReadPartsByHand(s, connectv1.GraphServiceCheckFollowsProcedure, graphservice.ValidateCheckFollows, byCheckFollows(), g.CheckFollows)
	mountReadByHand(s, connectv1.GraphServiceFilterFollowedProcedure, graphservice.ValidateFilterFollowed, g.FilterFollowed)
	mountRead(s, connectv1.GraphServiceBatchGetRelationshipsProcedure, graphservice.ValidateBatchGetRelationships, g.BatchGetRelationships)
	mountReadParts(s, connectv1.GraphServiceBatchGetFollowCountsProcedure, graphservice.ValidateBatchGetFollowCounts,
		byBatchGetFollowCounts(), g.BatchGetFollowCounts)
	mountRead(s, connectv1.GraphServiceListFollowingProcedure, graphservice.ValidateListFollowing, g.ListFollowing)
	mountRead(s, connectv1.GraphServiceListFollowersProcedure, request.ValidateUser, g.ListFollowers)
	mountRead(s, connectv1.GraphServiceListBoardFollowersProcedure, graphservice.ValidateListBoardFollowers, g.ListBoardFollowers)
	mountRead(s, connectv1.GraphServiceListFollowedBoardsProcedure, request.ValidateUser, g.ListFollowedBoards)
	mountRead(s, connectv1.GraphServiceListExcludedBoardsProcedure, request.ValidateUser, g.ListExcludedBoards)
	mountRead(s, connectv1.GraphServiceListBoardsProcedure, request.ValidateUser, g.ListBoards)
	mountRead(s, connectv1.GraphServiceListBlockedProcedure, request.ValidateUser, g.ListBlocked)
	mountRead(s, connectv1.GraphServiceListMutedProcedure, request.ValidateUser, g.ListMuted)
	mountRead(s, connectv1.GraphServiceListMutualsProcedure, graphservice.ValidateListMutuals, g.ListMutuals)
	mountReadStream(s, connectv1.GraphServiceScanFollowersProcedure, graphservice.ValidateScanFollowers, g.ScanFollowers)
}

func (s *Server) mountFeed() error {
	if s.views.Inbox == nil {
		return nil
	}
	f, err := feedservice.New(s.views, s.metrics, s.budgets.ExpensiveReads, s.logger)
	if err != nil {
		return err
	}
	s.feed = f
	mountRead(s, connectv1.FeedServiceReadFeedProcedure, feedservice.ValidateReadFeed, f.ReadFeed)
	mountRead(s, connectv1.FeedServiceCountNewerProcedure, feedservice.ValidateCountNewer, f.CountNewer)
	watch := mountReadStream(s, connectv1.FeedServiceWatchFeedProcedure, feedservice.ValidateWatchFeed, f.WatchFeed)
	// A stream that resumes begins with the current count of new pins. AtLeast makes sure that this
	// count is not older than the last one that the browser received.
	mountForBrowsers(watch, func(req *skeinv1.WatchFeedRequest, position string) { req.AtLeast = position })
	mountRead(s, connectv1.FeedServiceListPinsProcedure, feedservice.ValidateListPins, f.ListPins)
	mountReadPartsByHand(s, connectv1.FeedServiceBatchGetPinsProcedure, feedservice.ValidateBatchGetPins, byBatchGetPins(), f.BatchGetPins)
	mountRead(s, connectv1.FeedServiceExplainPinProcedure, feedservice.ValidateExplainPin, f.ExplainPin)
	if s.views.Seen != nil && s.views.Counters != nil {
		mountReadByHand(s, connectv1.FeedServiceBatchGetViewerStateProcedure, feedservice.ValidateBatchGetViewerState, f.BatchGetViewerState)
	}
	return nil
}

func (s *Server) mountSeen() {
	if s.views.Seen == nil {
		return
	}
	n := seenservice.New(s.views, s.metrics)
	mountReadByHand(s, connectv1.SeenServiceFilterSeenProcedure, seenservice.ValidateFilterSeen, n.FilterSeen)
	mountRead(s, connectv1.SeenServiceListServedProcedure, request.ValidateUser, n.ListServed)
	mountRead(s, connectv1.SeenServiceListHiddenProcedure, request.ValidateUser, n.ListHidden)
}

func (s *Server) mountCounters() {
	if s.views.Counters == nil {
		return
	}
	c := counterservice.New(s.views, s.metrics)
	mountReadPartsByHand(s, connectv1.CounterServiceBatchGetCountersProcedure, counterservice.ValidateBatchGetCounters,
		byBatchGetCounters(), c.BatchGetCounters)
	mountRead(s, connectv1.CounterServiceListTrendingProcedure, counterservice.ValidateListTrending, c.ListTrending)
	// The reactions of a user are in all partitions, so ListReactions itself asks the nodes.
	mountUnary(s, connectv1.CounterServiceListReactionsProcedure, counterservice.ValidateListReactions, c.ListReactions)
	mountRead(s, connectv1.CounterServiceListReactorsProcedure, counterservice.ValidateListReactors, c.ListReactors)
}

func (s *Server) mountNotifications() {
	if s.views.Notifications == nil || s.views.Inbox == nil {
		return
	}
	n := notificationservice.New(s.views)
	s.notifications = n
	mountRead(s, connectv1.NotificationServiceReadNotificationsProcedure, request.ValidateUser, n.ReadNotifications)
	mountRead(s, connectv1.NotificationServiceCountNotificationsProcedure, request.ValidateUser, n.CountNotifications)
	watch := mountReadStream(s, connectv1.NotificationServiceWatchNotificationsProcedure, request.ValidateUser, n.WatchNotifications)
	// As for WatchFeed: the stream begins with the current count, and AtLeast makes sure that the
	// count is not older than the last one.
	mountForBrowsers(watch, func(req *skeinv1.WatchNotificationsRequest, position string) { req.AtLeast = position })
}

func (s *Server) mountOperations() {
	if s.operator == nil {
		return
	}
	a := s.admin
	mountUnary(s, connectv1.AdminServiceStartRebuildProcedure, nil, a.StartRebuild)
	mountUnary(s, connectv1.AdminServiceVerifyProcedure, nil, a.Verify)
	mountUnary(s, connectv1.AdminServiceRepairProcedure, nil, a.Repair)
	mountUnary(s, connectv1.AdminServiceRollbackProcedure, nil, a.Rollback)
	mountUnary(s, connectv1.AdminServiceTakeSnapshotProcedure, nil, a.TakeSnapshot)
	mountUnary(s, connectv1.AdminServiceEraseUserProcedure, request.ValidateErasure, a.EraseUser)
	mountUnary(s, connectv1.AdminServiceGetOperationProcedure, nil, a.GetOperation)
	mountUnary(s, connectv1.AdminServiceListOperationsProcedure, nil, a.ListOperations)
	mountUnary(s, connectv1.AdminServiceCancelOperationProcedure, nil, a.CancelOperation)
	mountStream(s, connectv1.AdminServiceWatchOperationProcedure, nil, a.WatchOperation)
}
