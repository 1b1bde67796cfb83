package gateway

import (
	"math"
	"runtime"
	"time"

	"github.com/skein-feed/skein/gateway/internal/admission"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// Limits bound what one call and all calls together may take. A zero field stands for its default.
type Limits struct {
	// BodyBytes is the largest request body, as sent and decompressed. Default 4 MiB: the 10 000 candidates of 128 bytes
	// that one FilterSeen takes, as JSON with every letter beyond ASCII escaped, which triples some; the 768 KiB that one
	// Publish takes are less as JSON, too.
	BodyBytes int
	// HeaderBytes is the largest request header. Default 64 KiB. A GET has its message in there.
	HeaderBytes int
	// InFlight is how many reads may be in work together, and how many writes; more are refused as OVERLOADED. Default 4096. Streams,
	// health checks and the calls of operators have budgets of their own.
	InFlight int
	// ExpensiveReads is how many reads that keep a processor busy may run together. Default: three of four processors, at least one.
	ExpensiveReads int
	// RequestBytes is how many bytes of requests, as they came and decoded, and of answers that wait for their clients, all
	// calls together may hold; one caller may hold a quarter. Default 256 MiB. It should be an eighth of what the process may have.
	RequestBytes int
	// ShedAfter is how long calls may wait for a processor. While they wait longer, a part of the reads, writes and streams is refused
	// as OVERLOADED. Default 500 ms; negative: nothing is refused for that.
	ShedAfter time.Duration
	// Connections is how many may be open together, and half of them from one address. Beyond it one on which no call is worked
	// on is closed for each that comes, and if there is none the new one is refused. Default 10 000: some 100 MB.
	Connections int
	// CallerRate is how many calls a second each caller may make, over time; 0 means any number. Refused as CALLER_LIMIT.
	CallerRate float64
	// CallerBurst is how many a caller who was silent may make at once. Default: those of a second, at least 1.
	CallerBurst int
	// CallerInFlight is how many calls each caller may have under way, streams among them; 0 means any number.
	CallerInFlight int
	// AtLeastWait is how long a read waits for the position that it demands. Default 5 s. A read whose caller gives
	// up earlier waits shorter.
	AtLeastWait time.Duration
	// CallTimeout is how long any one read may take, waiting included. Default 30 s. A scan has no such limit.
	CallTimeout time.Duration
	// VisibleWait is how long Publish with VISIBLE waits after the events are in the log. Default 5 s.
	VisibleWait time.Duration
	// Watches is how many streams of events may be under way together. Each that falls behind reads the log for itself, with
	// some 20 MiB. Default 32.
	Watches int
	// FeedWatches is how many feeds may be watched together. Each takes some 20 KB, and 4 bytes for each owner that its reader follows;
	// with what the garbage collector leaves behind, reckon with 32 KiB of memory. Default 10 000.
	FeedWatches int
	// Followees is how many users one may follow, explicitly and implicitly together. Default 10 000; negative: no
	// limit. Backfills are history and not limited.
	Followees int
	// IOTimeout is how long a request may take to arrive, and each part of an answer to be taken. Default 30 s.
	IOTimeout time.Duration
	// IdleTimeout is how long a connection without requests stays open. Default 2 min.
	IdleTimeout time.Duration
	// DrainDelay is for how long after the order to stop everything continues but that /readyz says no, so that a
	// balancer that asks it now and then looks elsewhere first. Default none.
	DrainDelay time.Duration
	// ShutdownTimeout is how long calls under way may take after that. Default 30 s.
	ShutdownTimeout time.Duration
}

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

// healthStreams is how many health checks may be watched together.
const healthStreams = 256

func (l Limits) admissionLimits() admission.Limits {
	return admission.Limits{
		Calls: l.InFlight, ExpensiveReads: l.ExpensiveReads, CallerInFlight: l.CallerInFlight, Bytes: l.RequestBytes, Body: l.BodyBytes,
		ShedAfter: l.ShedAfter,
		Streams: map[string]admission.StreamLimit{
			healthv1connect.HealthWatchProcedure:    {Streams: healthStreams},
			connectv1.EventServiceWatchProcedure:    {Streams: l.Watches},
			connectv1.FeedServiceWatchFeedProcedure: {Streams: l.FeedWatches, Flag: "--memory"},
		},
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
