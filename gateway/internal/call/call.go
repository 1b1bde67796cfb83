package call

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/admission"
)

// Info has what a method returns in addition to the message of a unary answer, and what it needs to
// make long pages.
type Info struct {
	// Lag is by how many envelopes the state that answered is behind the log. It is negative for an
	// answer that has no lag.
	Lag int64
	// LongPages limits how many long pages the server makes at a time. Nil means that there is no
	// limit.
	LongPages *admission.Budget
	// holdsLongPage says that the call holds a place in LongPages.
	holdsLongPage bool
}

// LagHeader is the response header that has [Info.Lag].
const LagHeader = "Skein-Lag"

// Stream is an answer that is sent in parts.
type Stream[Res any] interface {
	// Send sends a part. It blocks until the client has read the part, or fails when the time for
	// that has passed.
	Send(part *Res) error
	// SetLag sets by how many envelopes the answer is behind the log. It must be called before the
	// first part is sent.
	SetLag(lag int64)
}

// CheckCanceled returns the error of ctx if the caller no longer waits. A loop calls it with the
// number i of its iteration. CheckCanceled checks ctx only in every 64th iteration, because the
// check has a cost.
func CheckCanceled(ctx context.Context, i int) error {
	if i%64 == 63 {
		return ctx.Err()
	}
	return nil
}

// Sizes of pages, as the API documents them.
const (
	defaultPageSize = 50
	maxPageSize     = 1000

	defaultFeedPageSize = 20
	maxFeedPageSize     = 200
)

// PageSize returns the size of a page of a list, given the requested size: the default for 0, and
// at most the largest size. Negative sizes were refused before.
func PageSize(requested int32) int { return clampPageSize(requested, defaultPageSize, maxPageSize) }

// FeedPageSize is PageSize for feeds. Their pages are shorter, because people read them and each
// entry costs more.
func FeedPageSize(requested int32) int {
	return clampPageSize(requested, defaultFeedPageSize, maxFeedPageSize)
}

func clampPageSize(requested int32, defaultSize, maxSize int) int {
	if requested == 0 {
		return defaultSize
	}
	return min(int(requested), maxSize)
}
