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

// seenFilter leaves out of one page of a feed what the reader has seen. It uses the seen store as
// FilterSeen does, except that it ignores hidden items ([seenQuestion]).
//
// A page is read from two stores: the pins from the inbox, at the position P, and what was seen
// from the seen store, which must contain P. Both stores fold the same log in the same process, so
// the page seldom has to wait. In return, no play before P is forgotten (I10). The seen store also
// contains everything that the page demands (at_least, the position in its token), because P does.
//
// The seen store may be ahead of P, and hide an item because of a play after P. The next page must
// not show another pin of this item (I9). So the page token says by how many sequences of the log
// the seen store was ahead, and the next page demands as much of the seen store. It does not demand
// this of the inbox, because a page should not wait for an inbox that lags.
//
// A client may publish the items of a page as served before it reads the next page. This does not
// shift the next page, which begins after the last entry of the page before, not after a number of
// entries. The next page only leaves out other pins of the served items.
//
// No feed fails because of the seen store. If the store does not contain P in time, for example
// because it is being built or is outdated, the page hides what the store has. If the store is
// missing or has failed, the page hides nothing. In all these cases the completeness of the page is
// FEED_COMPLETENESS_SEEN_UNAVAILABLE.
type seenFilter struct {
	service  *Service
	question seen.Question
	// view is the seen store at one position. It is nil if the store cannot answer, and the page
	// then hides nothing.
	view *views.Seen
	// isBehind says that the view lacks a part of what the page has demanded of the seen store.
	isBehind bool
	// containedSeq is the sequence of view. If view is nil or behind, it is the sequence that the
	// page has demanded of the seen store, so that the next page demands at least the same.
	containedSeq uint64
	// hasFailed says that the view returned an error while the page was read. The caller must then
	// read the page again without the filter.
	hasFailed bool
}

// openSeenFilter opens the seen store for a page that is read from the inbox at the position at.
// tokenSeq is the sequence that the page token demands of the seen store, or 0. The caller must
// close the filter after it has read the page.
func (s *Service) openSeenFilter(ctx context.Context, question seen.Question, at events.Position, tokenSeq uint64) *seenFilter {
	f := &seenFilter{service: s, question: question, containedSeq: max(at.Seq, tokenSeq)}
	if s.Seen == nil {
		return f
	}
	view, err := s.OpenSeen(ctx, nil)
	if err != nil {
		return f
	}

	// Showing again what was seen is worse than answering a little late. So wait for the seen store
	// as long as for a position that a request demands. Do not wait for a store that is being built,
	// which may take hours, or that is outdated, which has not caught up either.
	if view.At.Seq < f.containedSeq && !s.Seen.Rebuilding() {
		view.Close()
		waiting, cancel := views.BoundWait(ctx, s.Wait)
		defer cancel()
		_ = s.Seen.WaitFor(waiting, f.containedSeq) // the position of the view says whether the store has got there
		view, err = s.OpenSeen(ctx, nil)
		if err != nil {
			return f
		}
	}
	f.view = view
	f.isBehind = view.At.Seq < f.containedSeq
	f.containedSeq = max(f.containedSeq, view.At.Seq)
	return f
}

// seenQuestion returns the question to the seen store for what a reader has seen. The question sets
// IgnoreHidden, because the inbox itself leaves the items that the reader hides out of every feed,
// even while the seen store does not answer.
func seenQuestion(reader string, ignoreServed bool) seen.Question {
	return seen.Question{User: reader, IgnoreServed: ignoreServed, IgnoreHidden: true}
}

func (f *seenFilter) close() {
	if f.view != nil {
		f.view.Close()
	}
}

// hasSeen reports for each of the items whether the reader has seen it. A feed uses it as
// [inbox.Feed.HiddenItems]. f.view must not be nil.
func (f *seenFilter) hasSeen(items []string) ([]bool, error) {
	unseen, months, err := f.view.Unseen(f.question, views.Candidates{Items: items})
	if err != nil {
		f.service.logger.Error("the seen store cannot say what to hide from a feed; the page hides nothing", "error", err)
		f.hasFailed = true
		return nil, err
	}
	f.service.metrics.Seen.Count(metrics.ByFeed, len(items), len(unseen), months)

	// Unseen returns the indexes of the unseen items, so all other items were seen.
	hide := make([]bool, len(items))
	for i := range hide {
		hide[i] = true
	}
	for _, i := range unseen {
		hide[i] = false
	}
	return hide, nil
}

// completeness says whether the page may lack pins, or have pins that should be hidden. f is nil if
// the request does not set hide_seen.
func (f *seenFilter) completeness(r *views.Inbox) skeinv1.FeedCompleteness {
	switch {
	// This case comes first, because it means that the page may show pins that it should hide. An
	// inbox that is being rebuilt only lacks pins.
	case f != nil && (f.view == nil || f.isBehind || f.hasFailed):
		return skeinv1.FeedCompleteness_FEED_COMPLETENESS_SEEN_UNAVAILABLE
	case r.Rebuilding:
		return skeinv1.FeedCompleteness_FEED_COMPLETENESS_REBUILDING
	}
	return skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
}

// appendLead appends the lead to the cursor of a page token. The lead is by how many sequences the
// seen store is ahead of the position of the token, which is at. appendLead appends nothing if f is
// nil, because the cursors of feeds without hide_seen have no lead.
func (f *seenFilter) appendLead(cursor []byte, at events.Position) []byte {
	if f == nil {
		return cursor
	}
	return binary.AppendUvarint(cursor, max(f.containedSeq, at.Seq)-at.Seq)
}

// cutLead reads what appendLead has written for a token with the position at. It returns the
// sequence that the seen store must contain, and the rest of the cursor. ok is false if the cursor
// is damaged.
func cutLead(cursor []byte, at events.Position) (seq uint64, rest []byte, ok bool) {
	lead, n := binary.Uvarint(cursor)
	// Real sequences are far below 2^62. The limits only prevent an overflow of the sum.
	if n <= 0 || lead > 1<<62 || at.Seq > 1<<62 {
		return 0, nil, false
	}
	return at.Seq + lead, cursor[n:], true
}
