package call

import (
	"context"

	"github.com/skein-feed/skein/gateway/internal/admission"
)

// Info is what a unary answer carries beside its message.
type Info struct {
	// Lag is how many envelopes the answering state is behind the log; negative: does not apply.
	Lag int64
	// LongPages bounds how many long pages the server makes at a time; nil means no bound.
	LongPages *admission.Budget
	// makesLong reports whether the call has a place in LongPages.
	holdsLongPage bool
}

// LagHeader is the response header with [Info.Lag].
const LagHeader = "Skein-Lag"

// Stream is an answer that is sent in parts.
type Stream[Res any] interface {
	// Send sends a part. It waits until its client takes it, for as long as parts may take.
	Send(part *Res) error
	// SetLag says by how many envelopes the answer is behind the log. It is called before the first part is sent.
	SetLag(lag int64)
}

// Poll looks now and then whether the caller still waits.
func Poll(ctx context.Context, i int) error {
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

// PageSize applies the default and the limit. A negative size was refused before.
func PageSize(asked int32) int { return clampPageSize(asked, defaultPageSize, maxPageSize) }

// FeedPageSize is that of feeds, whose pages are read by people and cost more an entry.
func FeedPageSize(asked int32) int { return clampPageSize(asked, defaultFeedPageSize, maxFeedPageSize) }

func clampPageSize(asked int32, byDefault, limit int) int {
	if asked == 0 {
		return byDefault
	}
	return min(int(asked), limit)
}
