package graphservice

import (
	"context"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// listOfKind selects one of three lists by the kind of follows that a request asks for: both kinds
// (if the request names none), explicit or implicit ones. The rules of the proto refuse all other
// kinds.
func listOfKind(kind skeinv1.FollowKind, both, explicit, implicit graph.ListKind) graph.ListKind {
	switch kind {
	case skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT:
		return explicit
	case skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT:
		return implicit
	}
	return both
}

// ValidateListFollowing checks the user, and refuses options that exclude each other.
func ValidateListFollowing(c *request.Checker, req *skeinv1.ListFollowingRequest) {
	c.RequireID("user_id", req.GetUserId())
	if req.Kind != nil && req.GetOnly() != skeinv1.FollowSetting_FOLLOW_SETTING_UNSPECIFIED {
		c.Refuse("kind", "must be absent with only: follows of both kinds have settings")
	}
}

// ListFollowing returns a page of the users whom a user follows.
func (s *Service) ListFollowing(
	ctx context.Context, req *skeinv1.ListFollowingRequest, info *call.Info,
) (*skeinv1.ListFollowingResponse, error) {
	kind := listOfKind(req.GetKind(), graph.Following, graph.FollowingExplicit, graph.FollowingImplicit)
	switch SettingOf(req.GetOnly()) {
	case events.SettingFavorite:
		kind = graph.Favorites
	case events.SettingNotify:
		kind = graph.Notifying
	}

	p, err := s.readPage(ctx, graph.List{Kind: kind, User: req.GetUserId()}, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListFollowingResponse{
		Entries: followEntries(p.entries), NextPageToken: p.nextToken, TotalSize: p.total, Position: p.position,
	}, nil
}

// ListFollowers returns a page of the users who follow a user.
func (s *Service) ListFollowers(
	ctx context.Context, req *skeinv1.ListFollowersRequest, info *call.Info,
) (*skeinv1.ListFollowersResponse, error) {
	kind := listOfKind(req.GetKind(), graph.Followers, graph.FollowersExplicit, graph.FollowersImplicit)
	p, err := s.readPage(ctx, graph.List{Kind: kind, User: req.GetUserId()}, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListFollowersResponse{
		Entries: followEntries(p.entries), NextPageToken: p.nextToken, TotalSize: p.total, Position: p.position,
	}, nil
}

// ValidateListMutuals checks both ids.
func ValidateListMutuals(c *request.Checker, req *skeinv1.ListMutualsRequest) {
	c.RequireID("viewer_id", req.GetViewerId())
	c.RequireID("user_id", req.GetUserId())
}

// ListMutuals returns a page of the users whom the viewer follows and who follow the user. The
// answer has no total size, because the graph does not count these users.
func (s *Service) ListMutuals(
	ctx context.Context, req *skeinv1.ListMutualsRequest, info *call.Info,
) (*skeinv1.ListMutualsResponse, error) {
	l := graph.List{Kind: graph.Mutuals, User: req.GetViewerId(), Peer: req.GetUserId()}
	p, err := s.readPage(ctx, l, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListMutualsResponse{
		Entries: followEntries(p.entries), NextPageToken: p.nextToken, Position: p.position,
	}, nil
}

// ListBlocked returns a page of the users whom a user blocks.
func (s *Service) ListBlocked(
	ctx context.Context, req *skeinv1.ListBlockedRequest, info *call.Info,
) (*skeinv1.ListBlockedResponse, error) {
	p, err := s.readPage(ctx, graph.List{Kind: graph.Blocked, User: req.GetUserId()}, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListBlockedResponse{
		Entries: userEntries(p.entries), NextPageToken: p.nextToken, TotalSize: p.total, Position: p.position,
	}, nil
}

// ListMuted returns a page of the users whom a user mutes.
func (s *Service) ListMuted(
	ctx context.Context, req *skeinv1.ListMutedRequest, info *call.Info,
) (*skeinv1.ListMutedResponse, error) {
	p, err := s.readPage(ctx, graph.List{Kind: graph.Muted, User: req.GetUserId()}, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListMutedResponse{
		Entries: userEntries(p.entries), NextPageToken: p.nextToken, TotalSize: p.total, Position: p.position,
	}, nil
}
