package gateway

import (
	"math"
	"runtime"
	"time"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// Limits bound what one call and all calls together may use. A field that is zero means its
// default.
type Limits struct {
	// BodyBytes is the largest request body, both as sent and decompressed. Default 4 MiB, which is
	// enough for the largest valid requests: the 10 000 candidates of 128 bytes of one FilterSeen,
	// as JSON that escapes each non-ASCII letter and so needs up to three times the bytes. The
	// events of one Publish, at most 768 KiB, need less, even as JSON.
	BodyBytes int
	// HeaderBytes is the largest request header. Default 64 KiB. The message of a GET is part of
	// the header.
	HeaderBytes int
	// InFlight is how many reads may be in work at a time, and how many writes. More are refused as
	// OVERLOADED. Default 4096. Streams, health checks and the calls of operators have budgets of
	// their own.
	InFlight int
	// ExpensiveReads is how many CPU-intensive reads may run at a time. Default: three quarters of
	// the processors, at least one.
	ExpensiveReads int
	// RequestBytes is how many bytes of memory the requests (as sent and decoded) and the answers
	// that wait for their clients may use together. One caller may use a quarter of it. Default 256
	// MiB. It should be an eighth of the memory of the process.
	RequestBytes int
	// ShedAfter is how long calls may wait for a processor. While they wait longer, a share of the
	// reads, writes and streams is refused as OVERLOADED. Default 500 ms. If it is negative, no
	// call is refused for this reason.
	ShedAfter time.Duration
	// Connections is how many connections may be open at a time. One client address may have half
	// of them. A connection above the limit replaces one that has no call in work. If every
	// connection has one, the new connection is refused. Default 10 000, which need about 100 MB.
	Connections int
	// CallerRate is how many calls per second each caller may make on average; 0 means any number.
	// More are refused as CALLER_LIMIT.
	CallerRate float64
	// CallerBurst is how many calls a caller may make at once after it was silent. Default:
	// CallerRate, at least 1.
	CallerBurst int
	// CallerInFlight is how many calls and streams each caller may have under way; 0 means any
	// number.
	CallerInFlight int
	// AtLeastWait is how long a read waits for the position that it demands. Default 5 s. A read
	// waits less if the deadline of its caller is earlier.
	AtLeastWait time.Duration
	// CallTimeout is how long a read may take, including the time that it waits. Default 30 s. It
	// does not apply to streams.
	CallTimeout time.Duration
	// VisibleWait is how long Publish with VISIBLE waits after the events are in the log. Default 5
	// s.
	VisibleWait time.Duration
	// Watches is how many streams of EventService.Watch may be under way at a time. Each stream
	// that falls behind reads the log by itself, which takes about 20 MiB. Default 32.
	Watches int
	// FeedWatches is how many streams of WatchFeed and of WatchNotifications there may be at a
	// time, together. Each takes about 20 KB, and 4 bytes for each owner that its reader follows.
	// Including garbage that is not collected yet, plan with 32 KiB of memory per watched feed.
	// Default 10 000.
	FeedWatches int
	// Followees is how many users a user may follow, counting explicit and implicit follows.
	// Default 10 000; negative means no limit. Backfills are history, and are not limited.
	Followees int
	// IOTimeout is how long a request may take to arrive, and how long a client may take to read
	// each part of an answer. Default 30 s.
	IOTimeout time.Duration
	// IdleTimeout is how long a connection without requests stays open. Default 2 min.
	IdleTimeout time.Duration
	// DrainDelay is how long the server continues to answer after it was told to stop, while
	// /readyz already reports that it is not ready, so that a load balancer that polls /readyz
	// sends its calls elsewhere. Default 0.
	DrainDelay time.Duration
	// ShutdownTimeout is how long calls under way may take after the drain. Default 30 s.
	ShutdownTimeout time.Duration
}

// withDefaults returns the limits with a default for each field that is zero.
func (l Limits) withDefaults() Limits {
	setDefault(&l.BodyBytes, 4<<20)
	setDefault(&l.HeaderBytes, 64<<10)
	setDefault(&l.InFlight, 4096)
	setDefault(&l.ExpensiveReads, max(1, 3*runtime.GOMAXPROCS(0)/4))
	setDefault(&l.RequestBytes, 256<<20)
	setDefault(&l.ShedAfter, 500*time.Millisecond)
	setDefault(&l.Connections, 10_000)
	setDefault(&l.CallerBurst, max(1, int(math.Ceil(l.CallerRate))))
	setDefault(&l.AtLeastWait, 5*time.Second)
	setDefault(&l.CallTimeout, 30*time.Second)
	setDefault(&l.VisibleWait, 5*time.Second)
	setDefault(&l.Watches, 32)
	setDefault(&l.FeedWatches, 10_000)
	setDefault(&l.Followees, 10_000)
	setDefault(&l.IOTimeout, 30*time.Second)
	setDefault(&l.IdleTimeout, 2*time.Minute)
	setDefault(&l.ShutdownTimeout, 30*time.Second)
	return l
}

// healthStreams is how many streams of the health service may be under way at a time.
const healthStreams = 256

// admissionLimits returns the limits of package admission.
func (l Limits) admissionLimits() admission.Limits {
	return admission.Limits{
		Calls: l.InFlight, ExpensiveReads: l.ExpensiveReads, CallerInFlight: l.CallerInFlight,
		Bytes: l.RequestBytes, Body: l.BodyBytes, ShedAfter: l.ShedAfter,
		Streams: map[string]admission.StreamLimit{
			healthv1connect.HealthWatchProcedure:                     {Streams: healthStreams},
			connectv1.EventServiceWatchProcedure:                     {Streams: l.Watches},
			connectv1.FeedServiceWatchFeedProcedure:                  {Streams: l.FeedWatches, Flag: "--memory"},
			connectv1.NotificationServiceWatchNotificationsProcedure: {SharedWith: connectv1.FeedServiceWatchFeedProcedure},
		},
	}
}

// setDefault sets a field to value if the field is zero.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
