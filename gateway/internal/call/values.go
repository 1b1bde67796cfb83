package call

import (
	"math"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
)

// Count returns a count as answers represent it. It has 32 bits, because JSON represents 64-bit
// integers as strings. No list is long enough to reach the limit.
func Count(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// Times makes timestamps that share one allocation.
type Times struct{ free []timestamppb.Timestamp }

// NewTimes returns Times for n timestamps.
func NewTimes(n int) *Times { return &Times{make([]timestamppb.Timestamp, n)} }

// Next returns the next timestamp, with the given time. It may be called as often as NewTimes was
// told.
func (s *Times) Next(micros events.Micros) *timestamppb.Timestamp {
	t := &s.free[0]
	s.free = s.free[1:]
	t.Seconds = int64(micros) / 1e6
	t.Nanos = int32(int64(micros)%1e6) * 1e3
	return t
}
