package feedservice

import (
	"context"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway/internal/metrics"
	"github.com/skein-feed/skein/gateway/internal/views"
	"github.com/skein-feed/skein/projections/seen"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// seenFilter leaves out of one page of a feed what the reader has seen. It asks the seen store the
// same question as FilterSeen.
//
// A page is read from two stores: the pins from the inbox, at the position P, and what was seen
// from the seen store, which must contain P. Both stores fold the same log in the same process, so
// there is seldom anything to wait for. In return, no play before P is forgotten (I10), and
// everything that the page demands (at_least, the position in its token) is in the seen store, too,
// because P contains it.
//
// The seen store may be ahead of P, and hide an item because of a play after P. The next page must
// not show another pin of this item (I9). So the page token says by how many sequences of the log
// the seen store was ahead, and the next page demands that from the seen store alone. It does not
// demand it from the inbox, because a page should not wait for an inbox that lags.
//
// A client may publish the items of a page as served before it reads the next page. That does not
// shift the next page: it begins after the last entry of the page before, not after a number of
// entries, and only other pins of the served items are left out.
//
// No feed fails because of the seen store. If the store is missing, has failed, is being built or
// does not reach P in time, the page hides nothing and says so
// (FEED_COMPLETENESS_SEEN_UNAVAILABLE).
type seenFilter struct {
	service  *Service
	question seen.Question
	// view is the seen store at one position. It is nil if the store cannot answer, and the page
	// then hides nothing.
	view *views.Seen
	// containedSeq is the sequence up to which the hidden items are known: that of view. Without a
	// view it is what the page had to demand, so that the next page demands the same again.
	containedSeq uint64
	// hasFailed says that the view returned an error while the page was read.
	hasFailed bool
}

// openSeenFilter opens the seen store for a page that is read from the inbox at a position.
// tokenSeq is what the page token demands of the seen store, or 0. The caller must close the filter
// after the page.
func (s *Service) openSeenFilter(ctx context.Context, question seen.Question, at events.Position, tokenSeq uint64) *seenFilter {
	f := &seenFilter{service: s, question: question, containedSeq: max(at.Seq, tokenSeq)}
	if s.Seen == nil || s.Seen.Rebuilding() {
		return f
	}
	// A page that shows again what was seen is worse than one that is a little late, so the page
	// waits as long as it would for a demand.
	waiting, cancel := views.BoundWait(ctx, s.Wait)
	defer cancel()
	if s.Seen.WaitFor(waiting, f.containedSeq) != nil {
		return f
	}
	if view, err := s.OpenSeen(ctx, nil); err == nil {
		f.view = view
		f.containedSeq = view.At.Seq
	}
	return f
}

// seenQuestion returns the question for what a reader has seen. It leaves out the items that the
// reader hides, because the inbox leaves these out of every feed, also while the seen store does
// not answer.
func seenQuestion(reader string, ignoreServed bool) seen.Question {
	return seen.Question{User: reader, IgnoreServed: ignoreServed, IgnoreHidden: true}
}

func (f *seenFilter) close() {
	if f.view != nil {
		f.view.Close()
	}
}

// hasSeen reports for each of the items whether the reader has seen it. It is the function
// [inbox.Feed.HiddenItems] of a page.
func (f *seenFilter) hasSeen(items []string) ([]bool, error) {
	unseen, months, err := f.view.Unseen(f.question, views.Candidates{Items: items})
	if err != nil {
		f.service.logger.Error("the seen store cannot say what to hide from a feed; the page hides nothing", "error", err)
		f.hasFailed = true
		return nil, err
	}
	f.service.metrics.Seen.Count(metrics.ByFeed, len(items), len(unseen), months)

	// The store returns the unseen items, and the inbox asks for the seen ones.
	hide := make([]bool, len(items))
	for i := range hide {
		hide[i] = true
	}
	for _, i := range unseen {
		hide[i] = false
	}
	return hide, nil
}

// completeness says whether the page may lack pins, or have some that should be hidden. f is nil if
// the request does not ask to hide anything.
func (f *seenFilter) completeness(r *views.Inbox) skeinv1.FeedCompleteness {
	switch {
	// This comes first. An inbox that is being rebuilt only lacks pins, and none of those that it
	// shows is wrong.
	case f != nil && (f.view == nil || f.hasFailed):
		return skeinv1.FeedCompleteness_FEED_COMPLETENESS_SEEN_UNAVAILABLE
	case r.Rebuilding:
		return skeinv1.FeedCompleteness_FEED_COMPLETENESS_REBUILDING
	}
	return skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
}

// appendLead appends to the cursor of a page token by how many sequences the seen store is ahead of
// the position of the token. It appends nothing if f is nil, because the cursors of feeds that hide
// nothing do not have this number.
func (f *seenFilter) appendLead(cursor []byte, at events.Position) []byte {
	if f == nil {
		return cursor
	}
	return binary.AppendUvarint(cursor, max(f.containedSeq, at.Seq)-at.Seq)
}

// cutLead reads what appendLead has written for a token at the position. It returns the sequence
// that the seen store must contain, and the rest of the cursor. ok is false if the cursor is
// damaged.
func cutLead(cursor []byte, at events.Position) (seq uint64, rest []byte, ok bool) {
	lead, n := binary.Uvarint(cursor)
	// Real sequences are far below 2^62. The limits only prevent an overflow of the sum.
	if n <= 0 || lead > 1<<62 || at.Seq > 1<<62 {
		return 0, nil, false
	}
	return at.Seq + lead, cursor[n:], true
}
