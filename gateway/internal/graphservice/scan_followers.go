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

// ValidateScanFollowers checks the user or board.
func ValidateScanFollowers(c *request.Checker, req *skeinv1.ScanFollowersRequest) {
	if t, ok := req.GetTarget().(*skeinv1.ScanFollowersRequest_Board); ok {
		c.RequireBoard("board", t.Board)
		return
	}
	c.RequireID("user_id", req.GetUserId())
}

// maxScanPart is how many entries one message of a scan has at most.
const maxScanPart = 1000

// endCursor returns the cursor in the resume token of the last message of a scan. It sorts after
// all entries, and no entry has it as its sort key: a sort key is the complement of a time in 8
// bytes and then an id, and the encoding of an id never begins with 0xff.
func endCursor() graph.PageCursor { return bytes.Repeat([]byte{0xff}, 9) }

// isEnd reports whether a scan has sent its last message.
func isEnd(c graph.PageCursor) bool { return bytes.Equal(c, endCursor()) }

// ScanFollowers sends all followers of a user or board, in parts. It reads each part from a new
// view, and closes the view before it sends the part. So while it waits for a slow client, it holds
// one part in memory, but no view of the store.
func (s *Service) ScanFollowers(
	ctx context.Context, req *skeinv1.ScanFollowersRequest, out call.Stream[skeinv1.ScanFollowersResponse],
) error {
	l := graph.List{Kind: graph.Followers, User: req.GetUserId()}
	if b := req.GetBoard(); b != nil {
		l = graph.List{Kind: graph.BoardFollowers, User: b.GetOwnerId(), Board: b.GetBoardId()}
	}
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return err
	}
	cursor, token, err := s.Resume(req.GetResumeToken(), "resume_token", ListIDOf(l))
	if err != nil {
		return err
	}

	for isFirst := true; ; isFirst = false {
		var info call.Info
		var res *skeinv1.ScanFollowersResponse
		res, cursor, err = s.readScanPart(ctx, &info, l, cursor, atLeast, token)
		if err != nil {
			return err
		}

		if isFirst {
			out.SetLag(info.Lag) // a header, which can be sent only before the first message
		}
		if err := out.Send(res); err != nil {
			return err
		}
		if isEnd(cursor) {
			return nil
		}

		// Send notices only that the client has gone away, and not that the server stops or that
		// the caller has lost its rights.
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

// readScanPart reads the part after a cursor. It also returns the cursor of the next part, or
// endCursor after the last part. The node that holds the user or board has all rows of the list, so
// no other node must be asked.
func (s *Service) readScanPart(
	ctx context.Context, info *call.Info, l graph.List, after graph.PageCursor, demands ...views.Demand,
) (*skeinv1.ScanFollowersResponse, graph.PageCursor, error) {
	r, err := s.OpenGraph(ctx, info, demands...)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()

	// A client may resume with the token of the last message. It then gets an empty part.
	var entries []graph.Entry
	next := endCursor()
	if !isEnd(after) {
		entries, next, err = r.List(ctx, l, after, maxScanPart)
		if err != nil {
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
