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

// hiding leaves out of a page of a feed what its reader has seen, by the code that answers FilterSeen.
//
// The page is read at the position of the inbox, P, and the seen store at one of its own, which must contain P. That is
// cheap: both fold the same envelopes in the same process, so there is seldom anything to wait for, and then it is the
// rest of an envelope. It buys that no play before P is forgotten (I10), and that whatever the page demands (at_least,
// the position in its token) is demanded of the seen store too, since P contains it.
//
// The seen store may be ahead of P and hide what was seen since. The next page must not show it after all (I9), by
// another pin of the item, so the token says by how much it was ahead, and the next page demands that of the seen store
// alone: a page never waits for an inbox that lags.
//
// A caller that publishes what a page has shown as served does not move the pages behind it: a page continues after the
// entry that the page before showed last, not after a number of entries, and only other pins of those items go.
//
// A seen store that is missing, has failed, is being built or does not get to P in time fails no feed. The page hides
// nothing then, and says so.
type hiding struct {
	s        *Service
	question seen.Question
	// r is nil when nothing is hidden.
	r *views.Seen
	// upTo is the sequence that what is hidden contains; without r, what the page before had hidden contained.
	upTo uint64
	// broken reports that the seen store could not answer, whatever it hid before.
	broken bool
}

// hide opens the seen store for a page at a position of the inbox; upTo is what the page before it demands of the seen
// store beside that. The result is to be closed after the page.
func (s *Service) hide(ctx context.Context, question seen.Question, at events.Position, upTo uint64) *hiding {
	h := &hiding{s: s, question: question, upTo: max(at.Seq, upTo)}
	if s.Seen == nil || s.Seen.Rebuilding() {
		return h
	}
	waiting, cancel := views.BoundWait(ctx, s.Wait)
	defer cancel()
	if s.Seen.WaitFor(waiting, h.upTo) != nil {
		return h
	}
	if r, err := s.OpenSeen(ctx, nil); err == nil {
		h.r, h.upTo = r, r.At.Seq
	}
	return h
}

// seenByReader asks what a reader has seen. The items that the reader hides are left to the inbox, which leaves them out of every feed, also while
// the seen store does not answer.
func seenByReader(reader string, ignoreServed bool) seen.Question {
	return seen.Question{User: reader, IgnoreServed: ignoreServed, IgnoreHidden: true}
}

func (h *hiding) close() {
	if h.r != nil {
		h.r.Close()
	}
}

// items is the Hide of the page's inbox.Feed.
func (h *hiding) items(items []string) ([]bool, error) {
	unseen, months, err := h.r.Unseen(h.question, views.Candidates{Items: items})
	if err != nil {
		h.s.logger.Error("a feed is not hidden from what was seen", "error", err)
		h.broken = true
		return nil, err
	}
	h.s.metrics.Seen.Count(metrics.ByFeed, len(items), len(unseen), months)
	hide := make([]bool, len(items))
	for i := range hide {
		hide[i] = true
	}
	for _, i := range unseen {
		hide[i] = false
	}
	return hide, nil
}

// completeness says what is missing in a page or should not be there. That nothing was hidden comes first: of a feed
// that is only being rebuilt clients know that no entry is wrong. h is nil if nothing was to be hidden.
func (h *hiding) completeness(r *views.Inbox) skeinv1.FeedCompleteness {
	switch {
	case h != nil && (h.r == nil || h.broken):
		return skeinv1.FeedCompleteness_FEED_COMPLETENESS_SEEN_UNAVAILABLE
	case r.Rebuilding:
		return skeinv1.FeedCompleteness_FEED_COMPLETENESS_REBUILDING
	}
	return skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
}

// appendAhead appends to the page cursor of a page token by how many sequences what is hidden is ahead of the page; h is nil if
// nothing was to be hidden, and so are the page cursors of other feeds.
func (h *hiding) appendAhead(b []byte, at events.Position) []byte {
	if h == nil {
		return b
	}
	return binary.AppendUvarint(b, max(h.upTo, at.Seq)-at.Seq)
}

// cutAhead reads what appendAhead has written, and returns the sequence and the rest of the page cursor.
func cutAhead(cursor []byte, at events.Position) (upTo uint64, rest []byte, ok bool) {
	ahead, n := binary.Uvarint(cursor)
	if n <= 0 || ahead > 1<<62 || at.Seq > 1<<62 {
		return 0, nil, false
	}
	return at.Seq + ahead, cursor[n:], true
}
