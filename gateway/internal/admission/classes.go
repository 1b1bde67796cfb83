package admission

import (
	"strings"
	"time"
)

// Limits are the limits that the configuration of a server sets.
type Limits struct {
	// Calls is how many reads may be in work at a time, and how many writes.
	Calls int
	// ExpensiveReads is how many CPU-intensive reads may run at a time.
	ExpensiveReads int
	// CallerInFlight is how many calls and streams each caller may have under way; 0 means any
	// number.
	CallerInFlight int
	// Bytes is how many bytes of requests and answers may be in memory.
	Bytes int
	// Body is the largest body of a request, in bytes.
	Body int
	// ShedAfter is how long calls may wait for a processor before a share of them is refused;
	// negative means any time.
	ShedAfter time.Duration
	// Streams limits the streams of some methods, by procedure. Each other method may have
	// defaultStreams streams.
	Streams map[string]StreamLimit
}

// StreamLimit limits the streams of one method.
type StreamLimit struct {
	// Streams is how many streams may be under way at a time.
	Streams int
	// Flag is the flag by which an operator changes this limit, for errors. It is empty if there is
	// none.
	Flag string
	// SharedWith is the procedure of another method, of whose streams this method's streams are a
	// part. The other fields are not used then.
	SharedWith string
}

// Limits that cannot be configured.
const (
	operatorCalls  = 64
	healthCalls    = 256
	defaultStreams = 32
	pages          = 32
	// longPages is how many pages of many entries are made at a time. While a page is made, it
	// takes up to half a megabyte that no budget of bytes counts yet, and thousands of calls may be
	// in work.
	longPages = 32
	// expensiveDivisor limits expensive reads, including those that wait for their turn, to
	// 1/expensiveDivisor of all reads.
	expensiveDivisor = 8
	// expensivePatience is how long an expensive read waits for its turn.
	expensivePatience = time.Second
	// callerDivisor limits one caller to 1/callerDivisor of all bytes.
	callerDivisor = 4
	// bytesPerRequest derives the limit of requests from that of bytes: one request for each 16
	// KiB. A stream of HTTP/2 without a body takes somewhat more memory than that.
	bytesPerRequest = 16 << 10
)

// Budgets are the budgets of a server, one per class.
type Budgets struct {
	// Reads, Writes, Operators and Health limit calls in work. A call is in work from when its
	// request has arrived until its answer is made. Operators is for the calls that an operator
	// needs to find out what is wrong, and Health for the calls that need no token.
	Reads, Writes, Operators, Health *Budget
	// ExpensiveReads is for reads that read much more than they return, such as a page by heat.
	// LongPages is for reads that return a page of many entries. Both kinds of reads also count in
	// Reads.
	ExpensiveReads, LongPages *Budget
	// Streams has the budget of each method that answers with a stream, by procedure. Two methods
	// may share one.
	Streams map[string]*Budget
	// Callers limits the calls and streams of each caller, except for methods that need no token.
	// It has no limit for all callers together.
	Callers *Budget
	// Requests, HealthRequests and StreamRequests limit requests in net/http, from their head to
	// the end of their answer. They include the requests that are not in work because they wait for
	// their client.
	Requests, HealthRequests, StreamRequests *Budget
	// Pages is for /metrics and reflection.
	Pages *Budget
	// Bytes is for the bodies of requests, and for answers that wait for their clients
	// ([Reservation]).
	Bytes *Budget

	// Shedder makes the budgets of reads, writes and streams refuse a share of the calls while
	// calls wait long for a processor.
	Shedder *LoadShedder
	// streamLimits are the configured limits of streams, by procedure.
	streamLimits map[string]StreamLimit
	all          []*Budget
}

// NewBudgets returns the budgets of a server.
func NewBudgets(l Limits) Budgets {
	calls := int64(l.Calls)
	bytes := int64(l.Bytes)
	expensive := int64(l.ExpensiveReads)
	expensiveOrWaiting := max(1, calls/expensiveDivisor)
	requests := min(4*calls, max(operatorCalls, bytes/bytesPerRequest))
	// All streams fit: those of the methods in l.Streams, and those of up to 32 other methods.
	streamRequests := int64(32 * defaultStreams)
	for _, limit := range l.Streams {
		streamRequests += int64(limit.Streams)
	}
	// The largest body fits into the share of one caller.
	callerBytes := min(bytes, max(bytes/callerDivisor, HeldPerByte*int64(l.Body)))

	b := Budgets{Streams: map[string]*Budget{}, Shedder: NewLoadShedder(l.ShedAfter), streamLimits: l.Streams}
	b.Reads = b.add(Class{Name: "reads", Limit: calls, Shedder: b.Shedder})
	b.Writes = b.add(Class{Name: "writes", Limit: calls, Shedder: b.Shedder})
	b.Operators = b.add(Class{Name: "calls of operators", Limit: operatorCalls})
	b.Health = b.add(Class{Name: "health checks", Limit: healthCalls})
	b.Callers = b.add(Class{Name: "calls and streams", Limit: Unlimited, CallerLimit: int64(l.CallerInFlight), Flag: "--caller-in-flight"})
	b.ExpensiveReads = b.add(Class{
		Name: "expensive reads", Limit: min(expensive, expensiveOrWaiting),
		Queue: max(1, expensiveOrWaiting-expensive), MaxWait: expensivePatience,
	})
	b.LongPages = b.add(Class{Name: "long pages", Limit: longPages})
	b.Requests = b.add(Class{Name: "requests", Limit: requests, CallerLimit: requests / 2, Flag: "--memory"})
	b.HealthRequests = b.add(Class{Name: "requests about health", Limit: 4 * healthCalls, CallerLimit: 2 * healthCalls})
	b.StreamRequests = b.add(Class{
		Name: "requests for streams", Limit: streamRequests, CallerLimit: streamRequests - 16*defaultStreams,
	})
	b.Pages = b.add(Class{Name: "pages", Limit: pages})
	b.Bytes = b.add(Class{Name: "bytes of requests and answers", Limit: bytes, CallerLimit: callerBytes, Flag: "--memory"})
	return b
}

func (b *Budgets) add(class Class) *Budget {
	budget := NewBudget(class)
	b.all = append(b.all, budget)
	return budget
}

// NewStream returns the budget of a method that answers with a stream, and adds it if the method
// has none yet. If shed is set, a share of the streams is refused while calls wait long for a
// processor.
func (b *Budgets) NewStream(procedure string, shed bool) *Budget {
	if budget, ok := b.Streams[procedure]; ok {
		return budget
	}

	limit, ok := b.streamLimits[procedure]
	if !ok {
		limit.Streams = defaultStreams
	}
	if limit.SharedWith != "" {
		b.Streams[procedure] = b.NewStream(limit.SharedWith, shed)
		return b.Streams[procedure]
	}
	class := Class{Name: "streams of " + strings.TrimPrefix(procedure, "/"), Limit: int64(limit.Streams), Flag: limit.Flag}
	if shed {
		class.Shedder = b.Shedder
	}
	b.Streams[procedure] = b.add(class)
	return b.Streams[procedure]
}

// InFlight returns the number of calls in work plus the number of streams.
func (b *Budgets) InFlight() int64 {
	n := b.Reads.Used() + b.Writes.Used() + b.Operators.Used() + b.Health.Used()
	for procedure, stream := range b.Streams {
		if b.streamLimits[procedure].SharedWith == "" {
			n += stream.Used()
		}
	}
	return n
}

// All returns every budget, for metrics.
func (b *Budgets) All() []*Budget { return b.all }
