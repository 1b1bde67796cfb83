package graphservice

import (
	"bytes"
	"context"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ValidateScanFollowers looks at the user or board.
func ValidateScanFollowers(c *request.Checker, req *skeinv1.ScanFollowersRequest) {
	if t, ok := req.GetTarget().(*skeinv1.ScanFollowersRequest_Board); ok {
		c.Board("board", t.Board)
		return
	}
	c.ID("user_id", req.GetUserId())
}

// scanChunk is how many entries one part of a scan has.
const scanChunk = 1000

// endCursor is the cursor after the last entry. Nothing comes after it: it sorts after the earliest time with any id, and
// is no entry's sort key.
func endCursor() graph.PageCursor { return bytes.Repeat([]byte{0xff}, 9) }

func isEnd(m graph.PageCursor) bool { return bytes.Equal(m, endCursor()) }

// ScanFollowers sends the list in chunks. Each is read from a view of its own that is closed before the chunk is sent:
// a client that takes its time holds one chunk in memory, and nothing in the store.
func (s *Service) ScanFollowers(
	ctx context.Context, req *skeinv1.ScanFollowersRequest, out call.Stream[skeinv1.ScanFollowersResponse],
) error {
	l := graph.List{Kind: graph.Followers, User: req.GetUserId()}
	if b := req.GetBoard(); b != nil {
		l = graph.List{Kind: graph.BoardFollowers, User: b.GetOwnerId(), Board: b.GetBoardId()}
	}
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return err
	}
	cursor, since, err := s.Resume(req.GetResumeToken(), "resume_token", ListIDOf(l))
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		var res *skeinv1.ScanFollowersResponse
		var x call.Info
		if res, cursor, err = s.scanChunk(ctx, &x, l, cursor, least, since); err != nil {
			return err
		}
		if first {
			out.SetLag(x.Lag)
		}
		if err := out.Send(res); err != nil {
			return err
		}
		if isEnd(cursor) {
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

// scanChunk reads the next chunk and the page cursor after it.
func (s *Service) scanChunk(
	ctx context.Context, x *call.Info, l graph.List, after graph.PageCursor, demands ...views.Demand,
) (*skeinv1.ScanFollowersResponse, graph.PageCursor, error) {
	r, err := s.Open(ctx, x, demands...)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	var entries []graph.Entry
	next := endCursor()
	if !isEnd(after) {
		if entries, next, err = r.List(ctx, l, after, scanChunk); err != nil {
			return nil, nil, err
		}
		if next == nil {
			next = endCursor()
		}
	}
	return &skeinv1.ScanFollowersResponse{
		Entries:     followEntries(entries),
		ResumeToken: s.Keys.Sign(pagetoken.Token{List: ListIDOf(l), Position: r.At, Cursor: next}),
		Position:    r.Position,
	}, next, nil
}
