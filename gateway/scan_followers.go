package gateway

import (
	"bytes"
	"context"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func checkScan(c *request.Checker, req *skeinv1.ScanFollowersRequest) {
	if t, ok := req.GetTarget().(*skeinv1.ScanFollowersRequest_Board); ok {
		c.Board("board", t.Board)
		return
	}
	c.ID("user_id", req.GetUserId())
}

// endMark is the mark after the last entry. Nothing comes after it: it sorts after the earliest time with any id, and
// is nobody's place.
func endMark() graph.Mark { return bytes.Repeat([]byte{0xff}, 9) }

func isEnd(m graph.Mark) bool { return bytes.Equal(m, endMark()) }

// scanFollowers sends the list in chunks. Each is read from a view of its own that is closed before the chunk is sent:
// a client that takes its time holds one chunk in memory, and nothing in the store.
func (s *Server) scanFollowers(
	ctx context.Context, req *skeinv1.ScanFollowersRequest, out *connect.ServerStream[skeinv1.ScanFollowersResponse],
) error {
	l := graph.List{Kind: graph.Followers, User: req.GetUserId()}
	if b := req.GetBoard(); b != nil {
		l = graph.List{Kind: graph.BoardFollowers, User: b.GetOwnerId(), Board: b.GetBoardId()}
	}
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return err
	}
	mark, since, err := s.resume(req.GetResumeToken(), "resume_token", listIDOf(l))
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		var res *skeinv1.ScanFollowersResponse
		var x extra
		if res, mark, err = s.scanChunk(ctx, &x, l, mark, least, since); err != nil {
			return err
		}
		if first {
			out.ResponseHeader()[LagHeader] = lagValue(x.lag)
		}
		if p := patienceOf(ctx); p != nil {
			p.renew()
		}
		if err := out.Send(res); err != nil {
			return err
		}
		if isEnd(mark) {
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

// scanChunk reads the next chunk and the mark after it.
func (s *Server) scanChunk(
	ctx context.Context, x *extra, l graph.List, after graph.Mark, demands ...demand,
) (*skeinv1.ScanFollowersResponse, graph.Mark, error) {
	r, err := s.open(ctx, x, demands...)
	if err != nil {
		return nil, nil, err
	}
	defer r.close()
	var entries []graph.Entry
	next := endMark()
	if !isEnd(after) {
		if entries, next, err = r.List(ctx, l, after, scanChunk); err != nil {
			return nil, nil, err
		}
		if next == nil {
			next = endMark()
		}
	}
	return &skeinv1.ScanFollowersResponse{
		Entries:     followEntries(entries),
		ResumeToken: s.keys.Sign(pagetoken.Token{List: listIDOf(l), Position: r.at, Cursor: next}),
		Position:    r.position,
	}, next, nil
}
