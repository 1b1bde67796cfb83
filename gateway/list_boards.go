package gateway

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The lists of boards, and of who follows or excludes one. docs of each stand in the proto.

func checkBoard(c *request.Checker, req *skeinv1.ListBoardFollowersRequest) {
	c.Board("board", req.GetBoard())
}

func (s *Server) listBoardFollowers(
	ctx context.Context, req *skeinv1.ListBoardFollowersRequest, x *extra,
) (*skeinv1.ListBoardFollowersResponse, error) {
	kind := graph.BoardFollowers
	switch req.GetKind() {
	case skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT:
		kind = graph.BoardFollowersExplicit
	case skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS:
		kind = graph.BoardExcluders
	}
	l := graph.List{Kind: kind, User: req.GetBoard().GetOwnerId(), Board: req.GetBoard().GetBoardId()}
	p, err := s.page(ctx, l, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListBoardFollowersResponse{
		Entries: followEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

func (s *Server) listFollowedBoards(
	ctx context.Context, req *skeinv1.ListFollowedBoardsRequest, x *extra,
) (*skeinv1.ListFollowedBoardsResponse, error) {
	p, err := s.page(ctx, graph.List{Kind: graph.FollowedBoards, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListFollowedBoardsResponse{
		Entries: boardEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

func (s *Server) listExcludedBoards(
	ctx context.Context, req *skeinv1.ListExcludedBoardsRequest, x *extra,
) (*skeinv1.ListExcludedBoardsResponse, error) {
	p, err := s.page(ctx, graph.List{Kind: graph.ExcludedBoards, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListExcludedBoardsResponse{
		Entries: boardEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}

func (s *Server) listBoards(
	ctx context.Context, req *skeinv1.ListBoardsRequest, x *extra,
) (*skeinv1.ListBoardsResponse, error) {
	p, err := s.page(ctx, graph.List{Kind: graph.Boards, User: req.GetUserId()}, req, x)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListBoardsResponse{
		Entries: boardEntries(p.entries), NextPageToken: p.next, TotalSize: p.total, Position: p.position,
	}, nil
}
