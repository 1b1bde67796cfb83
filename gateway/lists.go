package gateway

import (
	"context"
	"fmt"
	"math"

	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// pageRequest is what the requests of all lists have.
type pageRequest interface {
	GetPageSize() int32
	GetPageToken() string
	GetAtLeast() string
}

// page is one page of a list.
type page struct {
	entries  []graph.Entry
	next     string
	total    uint32
	position string
}

func listIDOf(l graph.List) pagetoken.ListID {
	return pagetoken.NewListID(byte(l.Kind), l.User, l.Board, l.Peer)
}

// page reads one page of a list, from a state that contains that of the page before.
func (s *Server) page(ctx context.Context, l graph.List, req pageRequest, x *extra) (p page, err error) {
	id := listIDOf(l)
	mark, since, err := s.resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return p, err
	}
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return p, err
	}
	r, err := s.open(ctx, x, least, since)
	if err != nil {
		return p, err
	}
	defer r.close()
	var next graph.Mark
	if p.entries, next, err = r.List(ctx, l, mark, pageSize(req.GetPageSize())); err != nil {
		return p, err
	}
	total, err := r.Total(l)
	if err != nil {
		return p, err
	}
	p.total = count32(total)
	if next != nil {
		p.next = s.keys.Sign(pagetoken.Token{List: id, Position: r.at, Cursor: next})
	}
	p.position = r.position
	return p, nil
}

// resume reads a token of the list: where to go on, and the position that the answer must contain. The empty token is
// the start of the list.
func (s *Server) resume(token, field string, id pagetoken.ListID) (graph.Mark, demand, error) {
	d := demand{field: field, reason: skeinv1.Reason_REASON_INVALID_PAGE_TOKEN}
	if token == "" {
		return nil, d, nil
	}
	t, err := s.keys.Verify(token, id)
	if err != nil {
		return nil, d, d.badToken(err)
	}
	d.pos = t.Position
	return t.Cursor, d, nil
}

// badToken refuses a token, and says which one is wanted.
func (d demand) badToken(cause error) error {
	want := "the next_page_token of the page before"
	if d.field == "newer_than" {
		want = "the newest_token of an earlier page"
	}
	return d.refused(fmt.Sprintf("%s: send %s exactly as it came, with the same parameters, or nothing to begin again", cause, want), cause)
}

// count32 is a count as answers carry it: 32 bits are a number in JSON, 64 are text. No list comes near the end of it.
func count32(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

func followEntries(entries []graph.Entry) []*skeinv1.FollowEntry {
	out, made, times := make([]*skeinv1.FollowEntry, len(entries)), make([]skeinv1.FollowEntry, len(entries)),
		newStamps(len(entries))
	for i, e := range entries {
		out[i] = &made[i]
		out[i].UserId, out[i].Kind, out[i].FollowTime = e.User, followKinds[e.Kind], times.of(e.Since)
	}
	return out
}

func boardEntries(entries []graph.Entry) []*skeinv1.BoardEntry {
	out, times := make([]*skeinv1.BoardEntry, len(entries)), newStamps(len(entries))
	for i, e := range entries {
		out[i] = &skeinv1.BoardEntry{
			Board: &skeinv1.Board{OwnerId: e.User, BoardId: e.Board}, Time: times.of(e.Since), Title: e.Title,
		}
	}
	return out
}

func userEntries(entries []graph.Entry) []*skeinv1.UserEntry {
	out, times := make([]*skeinv1.UserEntry, len(entries)), newStamps(len(entries))
	for i, e := range entries {
		out[i] = &skeinv1.UserEntry{UserId: e.User, Time: times.of(e.Since)}
	}
	return out
}
