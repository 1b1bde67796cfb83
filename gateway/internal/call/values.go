package call

import (
	"math"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
)

// Count is a count as answers carry it: 32 bits are a number in JSON, 64 are text. No list comes near the end of it.
func Count(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// Times makes timestamps, all in one allocation.
type Times struct{ free []timestamppb.Timestamp }

// NewTimes makes room for n timestamps.
func NewTimes(n int) *Times { return &Times{make([]timestamppb.Timestamp, n)} }

// Of returns the next timestamp. There are as many as were asked for.
func (s *Times) Of(at events.Micros) *timestamppb.Timestamp {
	t := &s.free[0]
	s.free = s.free[1:]
	t.Seconds, t.Nanos = int64(at)/1e6, int32(int64(at)%1e6)*1e3
	return t
}
