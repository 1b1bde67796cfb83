package graphservice

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateListBoardFollowers checks the board.
func ValidateListBoardFollowers(c *request.Checker, req *skeinv1.ListBoardFollowersRequest) {
	c.RequireBoard("board", req.GetBoard())
}

// ListBoardFollowers returns a page of the users who follow or exclude a board.
func (s *Service) ListBoardFollowers(
	ctx context.Context, req *skeinv1.ListBoardFollowersRequest, info *call.Info,
) (*skeinv1.ListBoardFollowersResponse, error) {
	kind := graph.BoardFollowers
	switch req.GetKind() {
	case skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT:
		kind = graph.BoardFollowersExplicit
	case skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS:
		kind = graph.BoardExcluders
	}

	l := graph.List{Kind: kind, User: req.GetBoard().GetOwnerId(), Board: req.GetBoard().GetBoardId()}
	p, err := s.readPage(ctx, l, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListBoardFollowersResponse{
		Entries: followEntries(p.entries), NextPageToken: p.nextToken, TotalSize: p.total, Position: p.position,
	}, nil
}

// ListFollowedBoards returns a page of the boards that a user follows explicitly.
func (s *Service) ListFollowedBoards(
	ctx context.Context, req *skeinv1.ListFollowedBoardsRequest, info *call.Info,
) (*skeinv1.ListFollowedBoardsResponse, error) {
	p, err := s.readPage(ctx, graph.List{Kind: graph.FollowedBoards, User: req.GetUserId()}, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListFollowedBoardsResponse{
		Entries: boardEntries(p.entries), NextPageToken: p.nextToken, TotalSize: p.total, Position: p.position,
	}, nil
}

// ListExcludedBoards returns a page of the boards that a user excludes.
func (s *Service) ListExcludedBoards(
	ctx context.Context, req *skeinv1.ListExcludedBoardsRequest, info *call.Info,
) (*skeinv1.ListExcludedBoardsResponse, error) {
	p, err := s.readPage(ctx, graph.List{Kind: graph.ExcludedBoards, User: req.GetUserId()}, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListExcludedBoardsResponse{
		Entries: boardEntries(p.entries), NextPageToken: p.nextToken, TotalSize: p.total, Position: p.position,
	}, nil
}

// ListBoards returns a page of the boards that a user has.
func (s *Service) ListBoards(
	ctx context.Context, req *skeinv1.ListBoardsRequest, info *call.Info,
) (*skeinv1.ListBoardsResponse, error) {
	p, err := s.readPage(ctx, graph.List{Kind: graph.Boards, User: req.GetUserId()}, req, info)
	if err != nil {
		return nil, err
	}
	return &skeinv1.ListBoardsResponse{
		Entries: boardEntries(p.entries), NextPageToken: p.nextToken, TotalSize: p.total, Position: p.position,
	}, nil
}
