package feedservice

import (
	"context"
	"encoding/binary"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/gateway/internal/request"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Kinds of lists in page tokens. No two lists of the API may have the same kind: the lists of the
// graph use small numbers, and all others count down from 0xff. The kind of a list must never
// change, because clients keep tokens.
const (
	// FeedList is for the pages of a feed.
	FeedList = 0xfe
	// newestList is for tokens that mark the top of a feed (newest_token). newer_than takes such a
	// token.
	newestList = 0xfd
	pinsList   = 0xfc
)

// ValidateReadFeed checks the reader's id, and refuses options that exclude each other.
func ValidateReadFeed(c *request.Checker, req *skeinv1.ReadFeedRequest) {
	c.RequireID("reader_id", req.GetReaderId())
	if req.GetNewerThan() != "" && req.GetOrder() == skeinv1.FeedOrder_FEED_ORDER_TRENDING {
		c.Refuse("newer_than",
			"must be empty in the order TRENDING: only feeds in the order NEWEST return a newest_token")
	}
	if req.GetIgnoreServed() && !req.GetHideSeen() {
		c.Refuse("ignore_served", "must be false without hide_seen, because nothing is hidden then")
	}
}

// feedOf returns the feed that a request asks for. The caller must set what depends on the page
// token and on the stores: NewerThan, Heat, MaxRanked and HiddenItems.
func feedOf(req *skeinv1.ReadFeedRequest) inbox.Feed {
	f := inbox.Feed{
		Reader: req.GetReaderId(), IncludeOwn: req.GetIncludeOwn(), OnePerItem: req.GetOnePerItem(), Only: graphservice.SettingOf(req.GetOnly()),
	}
	if req.GetOrder() == skeinv1.FeedOrder_FEED_ORDER_TRENDING {
		f.Order = inbox.Trending
	}
	return f
}

// FeedListID returns the ID that page tokens carry for the list of a feed. The ID includes every
// option, because a token is valid only for a feed with the same options.
func FeedListID(kind byte, f inbox.Feed, req *skeinv1.ReadFeedRequest) pagetoken.ListID {
	var options byte
	for i, on := range []bool{f.IncludeOwn, req.GetHideSeen(), f.OnePerItem, f.Order == inbox.Trending, req.GetIgnoreServed()} {
		if on {
			options |= 1 << i
		}
	}
	// The setting of Only takes the three bits above the five options.
	options |= byte(f.Only) << 5
	return pagetoken.NewListID(kind, f.Reader, string([]byte{options}))
}

// ReadFeed returns a page of a feed.
func (s *Service) ReadFeed(
	ctx context.Context, req *skeinv1.ReadFeedRequest, info *call.Info,
) (*skeinv1.ReadFeedResponse, error) {
	f := feedOf(req)
	id := FeedListID(FeedList, f, req)
	newestID := FeedListID(newestList, f, req)
	start, err := s.startFeed(req, id, newestID)
	if err != nil {
		return nil, err
	}
	atLeast, err := views.DemandOf(req.GetAtLeast())
	if err != nil {
		return nil, err
	}
	r, err := s.OpenInbox(ctx, info, atLeast, start.token)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	opened := []*views.StoreView{&r.StoreView}
	if f.Order == inbox.Trending {
		heat, err := s.openHeat(ctx, &f, atLeast, start.heatDemand())
		if err != nil {
			return nil, err
		}
		defer heat.Close()
		opened = append(opened, &heat.StoreView)
	}

	f.NewerThan = start.lowerEnd
	page, filter, err := s.readPage(ctx, req, info, r, f, start, opened...)
	if err != nil {
		return nil, start.token.TokenError(err)
	}
	s.metrics.Feeds.Count(page)

	res := &skeinv1.ReadFeedResponse{
		Entries: feedEntries(page.Pins), Completeness: filter.completeness(r), Position: views.OldestPosition(opened...), ReadTime: readTime(page),
	}
	if page.Next != nil {
		// res.Position is the oldest position of the stores, but the token demands the newest one
		// of the inboxes that answered, here and on other nodes. Otherwise the next page could show
		// a pin whose deletion one of them already knew. The token does not demand the position of
		// the counters: an inbox that is outdated never reaches it (heatDemand).
		demanded := views.NextPagePosition(&r.StoreView)
		cursor := appendCursors(filter.appendLead(nil, demanded), start.lowerEnd, page.Next)
		res.NextPageToken = s.Keys.Sign(pagetoken.Token{List: id, Position: demanded, Cursor: cursor})
	}
	if f.Order == inbox.Newest {
		res.NewestToken = s.Keys.Sign(pagetoken.Token{List: newestID, Position: r.At, Cursor: page.Top})
	}
	return res, nil
}

// readTime returns the read marker of a page for the response, or nil if the reader has none.
func readTime(page inbox.Page) *timestamppb.Timestamp {
	if page.ReadMarker == 0 {
		return nil
	}
	return timestamppb.New(page.ReadMarker.Time())
}

// readPage reads a page from the opened views. With hide_seen, it also returns the seenFilter that
// it used and has closed. The caller needs the filter for the completeness and the page token of
// the response. Without hide_seen, the filter is nil.
func (s *Service) readPage(
	ctx context.Context, req *skeinv1.ReadFeedRequest, info *call.Info, r *views.Inbox, f inbox.Feed, start feedStart, opened ...*views.StoreView,
) (inbox.Page, *seenFilter, error) {
	size := call.FeedPageSize(req.GetPageSize())
	read := func() (page inbox.Page, err error) {
		err = views.RunUntilResolved(ctx, func() (err error) {
			page, err = r.Feed(ctx, f, start.after, size)
			return err
		}, opened...)
		return page, err
	}

	var filter *seenFilter
	if req.GetHideSeen() {
		filter = s.openSeenFilter(ctx, seenQuestion(f.Reader, req.GetIgnoreServed()), r.At, start.seenSeq)
		defer filter.close()
		if filter.view != nil {
			f.HiddenItems = filter.hasSeen
		}
	}

	// Wait for the budgets of expensive reads and long pages only when all stores are open.
	// Otherwise calls that wait for a store which lags could use up these budgets.
	if f.Order == inbox.Trending {
		if err := s.expensiveReads.Wait(ctx); err != nil {
			return inbox.Page{}, nil, err
		}
		defer s.expensiveReads.Done()
	}
	if err := info.ReserveLongPage(ctx, size); err != nil {
		return inbox.Page{}, nil, err
	}

	page, err := read()
	if filter != nil && filter.hasFailed {
		// An error of the seen store must not fail the feed. Read the page again and hide nothing.
		f.HiddenItems = nil
		page, err = read()
	}
	return page, filter, err
}

// feedStart is what the token of a request says about where a page begins and its session ends.
type feedStart struct {
	// lowerEnd is the [inbox.Page.Top] of an earlier page: the pages of this session show only
	// newer pins. It is nil if the session goes down to the oldest pin. after is the place of the
	// last entry of the page before, or nil for the first page.
	lowerEnd, after inbox.PageCursor
	// token demands the position of the page that returned the token. Without a token it demands
	// nothing.
	token views.Demand
	// seenSeq is the sequence of the log that the seen store must contain, because the page before
	// hid items at this sequence. 0 demands nothing.
	seenSeq uint64
}

// heatDemand returns the demand for the position that the counters must contain. They only give the
// scores as of the beginning of the session, so they need not contain the position of the page
// before. If they are outdated, they do not reach the position of the inbox.
func (s *feedStart) heatDemand() views.Demand {
	d := s.token
	if seq, err := s.after.TrendingSeq(); err == nil {
		d.Position.Seq = seq
	}
	return d
}

// startFeed reads the token of a request. A page token continues a session. newer_than begins a
// session that ends at the top of an earlier page. A request has at most one of the two. id and
// newestID are the lists for which the tokens must be signed.
func (s *Service) startFeed(req *skeinv1.ReadFeedRequest, id, newestID pagetoken.ListID) (start feedStart, err error) {
	if token := req.GetNewerThan(); token != "" {
		cursor, demand, err := s.Resume(token, "newer_than", newestID)
		return feedStart{lowerEnd: inbox.PageCursor(cursor), token: demand}, err
	}

	cursor, demand, err := s.Resume(req.GetPageToken(), "page_token", id)
	start.token = demand
	if err != nil || cursor == nil {
		return start, err
	}
	ok := true
	if req.GetHideSeen() {
		start.seenSeq, cursor, ok = cutLead(cursor, demand.Position)
	}
	if ok {
		start.lowerEnd, start.after, ok = splitCursors(cursor)
	}
	if !ok {
		return start, demand.BadTokenError(pagetoken.ErrDamaged)
	}
	return start, nil
}

// appendCursors appends the cursor of a page token: the length of lowerEnd (0 if it is nil),
// lowerEnd, and after. With hide_seen, the caller must write the lead of the seen store before them
// ([seenFilter.appendLead]).
func appendCursors(b []byte, lowerEnd, after inbox.PageCursor) []byte {
	b = binary.AppendUvarint(b, uint64(len(lowerEnd)))
	b = append(b, lowerEnd...)
	return append(b, after...)
}

// splitCursors reads what appendCursors has written. ok is false if b is damaged.
func splitCursors(b []byte) (lowerEnd, after inbox.PageCursor, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, nil, false
	}
	b = b[n:]
	if length > 0 {
		lowerEnd = inbox.PageCursor(b[:length])
	}
	return lowerEnd, inbox.PageCursor(b[length:]), true
}

// feedEntries converts pins to entries of a response. All entries share one allocation.
func feedEntries(pins []inbox.Pin) []*skeinv1.FeedEntry {
	list := make([]*skeinv1.FeedEntry, len(pins))
	entries := make([]skeinv1.FeedEntry, len(pins))
	times := call.NewTimes(len(pins))
	for i := range pins {
		p := &pins[i]
		e := &entries[i]
		e.PinId = p.ID
		e.ItemId = p.Item
		e.OwnerId = p.Owner
		e.BoardId = p.Board
		e.CreateTime = times.Next(p.Created)
		e.Score = p.Score
		e.Attributes = p.Attributes
		e.EditTime = editTime(p)
		e.RepinOf, e.RepinOfDeleted = repinOf(p)
		list[i] = e
	}
	return list
}
