package events

import (
	"bytes"
	"cmp"
)

// CompareBackfill orders two backfills about the same thing, in whatever order they arrived: by occurred_at,
// removals last, then by their encoding, of which the larger counts as the later. It returns a negative number
// when a is the earlier, and 0 when the two say the same.
func CompareBackfill(a, b *Event) int {
	return cmp.Or(
		cmp.Compare(a.Time, b.Time),
		cmp.Compare(removal(a.Kind), removal(b.Kind)),
		bytes.Compare(a.Encoded, b.Encoded),
	)
}

// removal is 1 for the kinds that end something: a backfilled block counts as an unfollow.
func removal(k Kind) int {
	if k == UserUnfollowed || k == BoardUnfollowed || k == UserBlocked {
		return 1
	}
	return 0
}
