package gateway

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The lists of users: following, followers, mutuals, blocked, muted. docs of each stand in the proto.

// ofUser is a request about one user.
type ofUser interface{ GetUserId() string }

func checkUser[P ofUser](c *request.Checker, req P) { c.ID("user_id", req.GetUserId()) }

func checkMutuals(c *request.Checker, req *skeinv1.ListMutualsRequest) {
	c.ID("viewer_id", req.GetViewerId())
	c.ID("user_id", req.GetUserId())
}

// byKind chooses the list of a kind; any other kind was refused before.
func byKind(k skeinv1.FollowKind, both, explicit, implicit graph.ListKind) graph.ListKind {
	switch k {
	case skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT:
		return explicit
	case skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT:
		return implicit
	}
	return both
}

func (s *Server) listFollowing(
	ctx context.Context, req *skeinv1.ListFollowingRequest, x *extra,
) (*skeinv1.ListFollowingResponse, error) {
	kind := byKind(req.GetKind(), graph.Following, graph.FollowingExplicit, graph.FollowingImplicit)
	p, err := s.page(ctx, graph.List{Kind: kind, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListFollowingResponse{
		Entries: followEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

func (s *Server) listFollowers(
	ctx context.Context, req *skeinv1.ListFollowersRequest, x *extra,
) (*skeinv1.ListFollowersResponse, error) {
	kind := byKind(req.GetKind(), graph.Followers, graph.FollowersExplicit, graph.FollowersImplicit)
	p, err := s.page(ctx, graph.List{Kind: kind, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListFollowersResponse{
		Entries: followEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

func (s *Server) listMutuals(
	ctx context.Context, req *skeinv1.ListMutualsRequest, x *extra,
) (*skeinv1.ListMutualsResponse, error) {
	l := graph.List{Kind: graph.Mutuals, User: req.GetViewerId(), Peer: req.GetUserId()}
	p, err := s.page(ctx, l, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListMutualsResponse{
		Entries: followEntries(p.entries), NextPageToken: p.next, Position: p.position,
	}, nil
}

func (s *Server) listBlocked(
	ctx context.Context, req *skeinv1.ListBlockedRequest, x *extra,
) (*skeinv1.ListBlockedResponse, error) {
	p, err := s.page(ctx, graph.List{Kind: graph.Blocked, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListBlockedResponse{
		Entries: userEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

func (s *Server) listMuted(
	ctx context.Context, req *skeinv1.ListMutedRequest, x *extra,
) (*skeinv1.ListMutedResponse, error) {
	p, err := s.page(ctx, graph.List{Kind: graph.Muted, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListMutedResponse{
		Entries: userEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}
