package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/seen"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Kinds of lists in page tokens, beside those of the graph, which are small, and rejectsList. They never change.
const (
	// feedList are the pages of a feed, newestList the tops of feeds to refresh from.
	feedList   = 0xfe
	newestList = 0xfd
	pinsList   = 0xfc
	// hotList are the lists by heat of CounterService.
	hotList = 0xfb
)

func checkReadFeed(c *request.Checker, req *skeinv1.ReadFeedRequest) {
	c.ID("reader_id", req.GetReaderId())
	if req.GetNewerThan() != "" && req.GetOrder() == skeinv1.FeedOrder_FEED_ORDER_TRENDING {
		c.Found = append(c.Found, apierror.InvalidField("newer_than",
			"must be empty in the order TRENDING: only NEWEST has a top to refresh from"))
	}
	if req.GetIgnoreServed() && !req.GetHideSeen() {
		c.Found = append(c.Found, apierror.InvalidField("ignore_served", "must be false without hide_seen: nothing is hidden then"))
	}
}

// feedOf names the feed that a request is about.
func feedOf(req *skeinv1.ReadFeedRequest) inbox.Feed {
	f := inbox.Feed{Reader: req.GetReaderId(), Own: req.GetIncludeOwn(), OnePerItem: req.GetOnePerItem()}
	if req.GetOrder() == skeinv1.FeedOrder_FEED_ORDER_TRENDING {
		f.Order = inbox.Hot
	}
	return f
}

// feedListID names a feed in tokens, with all that makes another list of it.
func feedListID(kind byte, f inbox.Feed, req *skeinv1.ReadFeedRequest) pagetoken.ListID {
	var options byte
	for i, on := range []bool{f.Own, req.GetHideSeen(), f.OnePerItem, f.Order == inbox.Hot, req.GetIgnoreServed()} {
		if on {
			options |= 1 << i
		}
	}
	return pagetoken.NewListID(kind, f.Reader, string([]byte{options}))
}

func (s *Server) readFeed(
	ctx context.Context, req *skeinv1.ReadFeedRequest, x *extra,
) (*skeinv1.ReadFeedResponse, error) {
	f := feedOf(req)
	if f.Order == inbox.Hot {
		leave, err := s.budgets.heavy.enter(ctx) // it reads all that is ranked
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	id, newest := feedListID(feedList, f, req), feedListID(newestList, f, req)
	start, err := s.startOf(req, id, newest)
	if err != nil {
		return nil, err
	}
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.openFeed(ctx, x, least, start.since)
	if err != nil {
		return nil, err
	}
	defer r.close()
	// An answer contains what both stores contain, and the next page what either did.
	position, next := r.position, r.at
	if f.Order == inbox.Hot {
		heat, err := s.openHeat(ctx, &f, least, start.since)
		if err != nil {
			return nil, err
		}
		defer heat.close()
		if heat.at.Seq < r.at.Seq {
			position = heat.position
		} else {
			next = heat.at
		}
	}
	f.Above = start.above
	page, hidden, err := s.feedPage(ctx, req, r, f, start)
	if err != nil {
		return nil, start.since.outOf(err)
	}
	s.metrics.feeds.count(page)
	if req.GetMarkActive() {
		s.markActive(r, f.Reader)
	}
	res := &skeinv1.ReadFeedResponse{
		Entries: feedEntries(page.Pins), Completeness: hidden.completeness(r), Position: position,
	}
	if page.Next != nil {
		mark := hidden.appendAhead(nil, next)
		res.NextPageToken = s.keys.Sign(pagetoken.Token{List: id, Position: next, Cursor: appendMarks(mark, start.above, page.Next)})
	}
	if f.Order == inbox.Newest {
		res.NewestToken = s.keys.Sign(pagetoken.Token{List: newest, Position: r.at, Cursor: page.Newest})
	}
	return res, nil
}

// feedPage reads a page, less what the reader has seen if that is asked for.
func (s *Server) feedPage(
	ctx context.Context, req *skeinv1.ReadFeedRequest, r *feedReading, f inbox.Feed, start feedStart,
) (inbox.Page, *hiding, error) {
	size := feedPageSize(req.GetPageSize())
	if !req.GetHideSeen() {
		page, err := r.Feed(ctx, f, start.after, size)
		return page, nil, err
	}
	question := seen.Question{User: f.Reader, IgnoreServed: req.GetIgnoreServed()}
	h := s.hide(ctx, question, r.at, start.seen)
	defer h.close()
	if h.r != nil {
		f.Hide = h.items
	}
	page, err := r.Feed(ctx, f, start.after, size)
	if h.broken {
		f.Hide = nil
		page, err = r.Feed(ctx, f, start.after, size)
	}
	return page, h, err
}

// feedStart is where a page of a feed begins.
type feedStart struct {
	// above is the lower end of the session, after the place where it goes on; nil: none.
	above, after inbox.Mark
	// since is the position of the page that the token is from.
	since demand
	// seen is the sequence up to which what was seen is hidden at least; 0: that of the page.
	seen uint64
}

// startOf reads the token of a request: a page token goes on in a session, newer_than begins one that ends where the
// feed once began.
func (s *Server) startOf(req *skeinv1.ReadFeedRequest, id, newest pagetoken.ListID) (start feedStart, err error) {
	if token := req.GetNewerThan(); token != "" {
		mark, since, err := s.resume(token, "newer_than", newest)
		return feedStart{above: inbox.Mark(mark), since: since}, err
	}
	mark, since, err := s.resume(req.GetPageToken(), "page_token", id)
	start.since = since
	if err != nil || mark == nil {
		return start, err
	}
	ok := true
	if req.GetHideSeen() {
		start.seen, mark, ok = cutAhead(mark, since.pos)
	}
	if ok {
		start.above, start.after, ok = splitMarks(mark)
	}
	if !ok {
		return start, since.badToken(pagetoken.ErrDamaged)
	}
	return start, nil
}

// appendMarks appends what the page token of a feed holds: length of the lower end (0: none), lower end, place. The next
// page of a session that newer_than began ends where the first one does. With hide_seen it comes after [hiding.appendAhead].
func appendMarks(b []byte, above, after inbox.Mark) []byte {
	b = binary.AppendUvarint(b, uint64(len(above)))
	b = append(b, above...)
	return append(b, after...)
}

func splitMarks(b []byte) (above, after inbox.Mark, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, nil, false
	}
	if b = b[n:]; length > 0 {
		above = inbox.Mark(b[:length])
	}
	return above, inbox.Mark(b[length:]), true
}

// outOf tells what is wrong with a token that was good for the key ring and not for the projection.
func (d demand) outOf(err error) error {
	switch {
	case errors.Is(err, inbox.ErrExpired):
		return d.over("a feed", inbox.SessionLife, err)
	case errors.Is(err, counters.ErrExpired):
		return d.over("a list", counters.SessionLife, err)
	case errors.Is(err, inbox.ErrMark), errors.Is(err, counters.ErrMark):
		return d.badToken(pagetoken.ErrOtherList)
	}
	return err
}

// over refuses the token of a session by heat that lasted too long.
func (d demand) over(what string, life events.Micros, err error) error {
	d.reason = skeinv1.Reason_REASON_EXPIRED_PAGE_TOKEN
	hours := (time.Duration(life) * time.Microsecond).Hours()
	return d.refused(fmt.Sprintf("is of a session that is over: %s by heat can be continued for %.4g h of log time; "+
		"begin again without it", what, hours), err)
}

func feedEntries(pins []inbox.Pin) []*skeinv1.FeedEntry {
	out, made, times := make([]*skeinv1.FeedEntry, len(pins)), make([]skeinv1.FeedEntry, len(pins)), newStamps(len(pins))
	for i, p := range pins {
		e := &made[i]
		e.PinId, e.ItemId, e.OwnerId, e.BoardId = p.ID, p.Item, p.Owner, p.Board
		e.CreateTime, e.Score, e.Attributes = times.of(p.Created), p.Score, p.Attributes
		out[i] = e
	}
	return out
}

func checkListPins(c *request.Checker, req *skeinv1.ListPinsRequest) {
	if t, ok := req.GetTarget().(*skeinv1.ListPinsRequest_Board); ok {
		c.Board("board", t.Board)
		return
	}
	c.ID("owner_id", req.GetOwnerId())
}

func (s *Server) listPins(
	ctx context.Context, req *skeinv1.ListPinsRequest, x *extra,
) (*skeinv1.ListPinsResponse, error) {
	owner, id := req.GetOwnerId(), pagetoken.NewListID(pinsList, req.GetOwnerId())
	var board *string
	if b := req.GetBoard(); b != nil {
		owner, board = b.GetOwnerId(), &b.BoardId
		id = pagetoken.NewListID(pinsList, owner, *board)
	}
	mark, since, err := s.resume(req.GetPageToken(), "page_token", id)
	if err != nil {
		return nil, err
	}
	least, err := demandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.openFeed(ctx, x, least, since)
	if err != nil {
		return nil, err
	}
	defer r.close()
	pins, next, err := r.Pins(ctx, owner, board, inbox.Mark(mark), pageSize(req.GetPageSize()))
	if err != nil {
		return nil, since.outOf(err)
	}
	res := &skeinv1.ListPinsResponse{Entries: feedEntries(pins), Position: r.position}
	total, err := r.PinCount(owner, board)
	if err != nil {
		return nil, err
	}
	res.TotalSize = count32(total)
	if next != nil {
		res.NextPageToken = s.keys.Sign(pagetoken.Token{List: id, Position: r.at, Cursor: next})
	}
	return res, nil
}
