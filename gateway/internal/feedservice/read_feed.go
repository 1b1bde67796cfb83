package feedservice

import (
	"context"
	"encoding/binary"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Kinds of lists in page tokens, beside those of the graph, which are small, and rejectsList. They never change.
const (
	// FeedList are the pages of a feed, newestList the tops of feeds to refresh from.
	FeedList   = 0xfe
	newestList = 0xfd
	pinsList   = 0xfc
)

// ValidateReadFeed looks at the reader, and at options that exclude each other.
func ValidateReadFeed(c *request.Checker, req *skeinv1.ReadFeedRequest) {
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
	f := inbox.Feed{
		Reader: req.GetReaderId(), IncludeOwn: req.GetIncludeOwn(), OnePerItem: req.GetOnePerItem(), Only: graphservice.SettingOf(req.GetOnly()),
	}
	if req.GetOrder() == skeinv1.FeedOrder_FEED_ORDER_TRENDING {
		f.Order = inbox.Trending
	}
	return f
}

// FeedListID names a feed in tokens, with all that makes another list of it.
func FeedListID(kind byte, f inbox.Feed, req *skeinv1.ReadFeedRequest) pagetoken.ListID {
	var options byte
	for i, on := range []bool{f.IncludeOwn, req.GetHideSeen(), f.OnePerItem, f.Order == inbox.Trending, req.GetIgnoreServed()} {
		if on {
			options |= 1 << i
		}
	}
	// The settings are above the other options.
	options |= byte(f.Only) << 5
	return pagetoken.NewListID(kind, f.Reader, string([]byte{options}))
}

// ReadFeed returns a page of a feed.
func (s *Service) ReadFeed(
	ctx context.Context, req *skeinv1.ReadFeedRequest, x *call.Info,
) (*skeinv1.ReadFeedResponse, error) {
	f := feedOf(req)
	if f.Order == inbox.Trending {
		// A page by heat reads all that is ranked.
		if err := s.expensiveReads.Wait(ctx); err != nil {
			return nil, err
		}
		defer s.expensiveReads.Done()
	}
	id, newest := FeedListID(FeedList, f, req), FeedListID(newestList, f, req)
	start, err := s.startOf(req, id, newest)
	if err != nil {
		return nil, err
	}
	least, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenFeed(ctx, x, least, start.since)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// An answer contains what both stores contain, and the next page what either did, or another node that was asked.
	position, opened := r.Position, []*views.StoreView{&r.StoreView}
	if f.Order == inbox.Trending {
		heat, err := s.openHeat(ctx, &f, least, start.since)
		if err != nil {
			return nil, err
		}
		defer heat.Close()
		if heat.At.Seq < r.At.Seq {
			position = heat.Position
		}
		opened = append(opened, &heat.StoreView)
	}
	f.NewerThan = start.above
	page, hidden, err := s.feedPage(ctx, req, x, r, f, start, opened...)
	if err != nil {
		return nil, start.since.TokenError(err)
	}
	s.metrics.Feeds.Count(page)
	res := &skeinv1.ReadFeedResponse{
		Entries: feedEntries(page.Pins), Completeness: hidden.completeness(r), Position: position, ReadTime: readTime(page),
	}
	if page.Next != nil {
		next := views.Newest(opened...)
		cursor := hidden.appendAhead(nil, next)
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: next, Cursor: appendCursors(cursor, start.above, page.Next)})
	}
	if f.Order == inbox.Newest {
		res.NewestToken = s.Keys.Sign(pagetoken.Token{List: newest, Position: r.At, Cursor: page.Top})
	}
	return res, nil
}

// readTime is the read marker, if there is one.
func readTime(page inbox.Page) *timestamppb.Timestamp {
	if page.ReadMarker == 0 {
		return nil
	}
	return timestamppb.New(page.ReadMarker.Time())
}

// feedPage reads a page, less what the reader has seen if that is asked for.
func (s *Service) feedPage(
	ctx context.Context, req *skeinv1.ReadFeedRequest, x *call.Info, r *views.Inbox, f inbox.Feed, start feedStart, opened ...*views.StoreView,
) (inbox.Page, *hiding, error) {
	size := call.FeedPageSize(req.GetPageSize())
	read := func() (page inbox.Page, err error) {
		err = views.RunUntilResolved(ctx, func() (err error) {
			page, err = r.Feed(ctx, f, start.after, size)
			return err
		}, opened...)
		return page, err
	}
	if !req.GetHideSeen() {
		if err := x.MakeLong(ctx, size); err != nil {
			return inbox.Page{}, nil, err
		}
		page, err := read()
		return page, nil, err
	}
	h := s.hide(ctx, seenByReader(f.Reader, req.GetIgnoreServed()), r.At, start.seen)
	defer h.close()
	if h.r != nil {
		f.HiddenItems = h.items
	}
	if err := x.MakeLong(ctx, size); err != nil {
		return inbox.Page{}, nil, err
	}
	page, err := read()
	if h.broken {
		f.HiddenItems = nil
		page, err = read()
	}
	return page, h, err
}

// feedStart is where a page of a feed begins.
type feedStart struct {
	// above is the lower end of the session, after the cursor where it continues; nil means none.
	above, after inbox.PageCursor
	// since is the position of the page that the token is from.
	since views.Demand
	// seen is the sequence up to which what was seen is hidden at least; 0 means that of the page.
	seen uint64
}

// startOf reads the token of a request: a page token continues in a session, newer_than begins one that ends where the
// feed once began.
func (s *Service) startOf(req *skeinv1.ReadFeedRequest, id, newest pagetoken.ListID) (start feedStart, err error) {
	if token := req.GetNewerThan(); token != "" {
		cursor, since, err := s.Resume(token, "newer_than", newest)
		return feedStart{above: inbox.PageCursor(cursor), since: since}, err
	}
	cursor, since, err := s.Resume(req.GetPageToken(), "page_token", id)
	start.since = since
	if err != nil || cursor == nil {
		return start, err
	}
	ok := true
	if req.GetHideSeen() {
		start.seen, cursor, ok = cutAhead(cursor, since.Position)
	}
	if ok {
		start.above, start.after, ok = splitCursors(cursor)
	}
	if !ok {
		return start, since.BadToken(pagetoken.ErrDamaged)
	}
	return start, nil
}

// appendCursors appends what the page token of a feed holds: length of the lower end (0: none), lower end, cursor. The next
// page of a session that newer_than began ends where the first one does. With hide_seen it comes after [hiding.appendAhead].
func appendCursors(b []byte, above, after inbox.PageCursor) []byte {
	b = binary.AppendUvarint(b, uint64(len(above)))
	b = append(b, above...)
	return append(b, after...)
}

func splitCursors(b []byte) (above, after inbox.PageCursor, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, nil, false
	}
	if b = b[n:]; length > 0 {
		above = inbox.PageCursor(b[:length])
	}
	return above, inbox.PageCursor(b[length:]), true
}

func feedEntries(pins []inbox.Pin) []*skeinv1.FeedEntry {
	out, made, times := make([]*skeinv1.FeedEntry, len(pins)), make([]skeinv1.FeedEntry, len(pins)), call.NewTimes(len(pins))
	for i := range pins {
		p, e := &pins[i], &made[i]
		e.PinId, e.ItemId, e.OwnerId, e.BoardId = p.ID, p.Item, p.Owner, p.Board
		e.CreateTime, e.Score, e.Attributes = times.Of(p.Created), p.Score, p.Attributes
		e.RepinOf, e.RepinOfDeleted = repinOf(p)
		out[i] = e
	}
	return out
}
