package admission

import (
	"strings"
	"time"
)

// Limits are what [NewBudgets] takes from the configuration of a server.
type Limits struct {
	// Calls is how many reads may be in work, and how many writes.
	Calls int
	// ExpensiveReads is how many of the reads that keep a processor busy may run.
	ExpensiveReads int
	// CallerInFlight is how many calls and streams each caller may have under way; 0 means any number.
	CallerInFlight int
	// Bytes is how many bytes of requests and answers may be held, and Body the largest body of a request.
	Bytes, Body int
	// ShedAfter is how long calls may wait for a processor; negative means any time.
	ShedAfter time.Duration
	// Streams bounds the streams of some methods, by procedure. Of each other method defaultStreams may be under way.
	Streams map[string]StreamLimit
}

// StreamLimit bounds the streams of one method.
type StreamLimit struct {
	// Streams is how many may be under way.
	Streams int
	// Flag names the flag by which an operator changes this limit, for errors; empty means that there is none.
	Flag string
}

// Limits that no configuration sets.
const (
	operatorCalls  = 64
	healthCalls    = 256
	defaultStreams = 32
	pages          = 32
	// longPages is how many pages of many entries are made at a time. Until such an answer is counted as bytes that wait for their
	// client, it takes up to half a megabyte, and thousands of calls may be in work.
	longPages = 32
	// At most 1/expensiveDivisor of the reads may be expensive ones, including those that wait to begin.
	expensiveDivisor = 8
	// expensivePatience is how long an expensive read waits until it begins.
	expensivePatience = time.Second
	// One caller may hold at most 1/callerDivisor of all bytes.
	callerDivisor = 4
	// bytesPerRequest of the limit of bytes allow one request that arrives or waits for its client. A stream of HTTP/2 without a body
	// takes somewhat more memory.
	bytesPerRequest = 16 << 10
)

// Budgets are the budgets of a server, one for each class.
type Budgets struct {
	// Reads, Writes, Operators and Health are for calls in work: from when the request has arrived until the answer is made. Operators
	// is for the calls that an operator needs to see what is wrong, and Health for those that need no token.
	Reads, Writes, Operators, Health *Budget
	// ExpensiveReads is for reads that read much more than they answer, such as a page by heat. LongPages is for reads that make
	// a page of many entries. Both are in Reads too.
	ExpensiveReads, LongPages *Budget
	// Streams has one budget for each method that answers with a stream, by procedure.
	Streams map[string]*Budget
	// Callers is for calls and streams of all methods but those that need no token. It bounds those of each caller, and not all together.
	Callers *Budget
	// Requests, HealthRequests and StreamRequests are for requests in net/http from their head to the end of their answer. Those that
	// are not in work wait for their client.
	Requests, HealthRequests, StreamRequests *Budget
	// Pages is for metrics and reflection.
	Pages *Budget
	// Bytes is for the bodies of requests, and for answers that wait for their clients ([Holding]).
	Bytes *Budget

	// Processors has the budgets of reads, writes and streams refuse a part while calls wait long for a processor.
	Processors *Processors
	// streamLimits are the limits of some streams, by procedure.
	streamLimits map[string]StreamLimit
	all          []*Budget
}

// NewBudgets returns the budgets of a server.
func NewBudgets(l Limits) Budgets {
	calls, bytes, expensive := int64(l.Calls), int64(l.Bytes), int64(l.ExpensiveReads)
	expensiveOrWaiting := max(1, calls/expensiveDivisor)
	requests := min(4*calls, max(operatorCalls, bytes/bytesPerRequest))
	// All streams fit: those of methods with a limit of their own, and those of up to 32 other methods.
	streamRequests := int64(32 * defaultStreams)
	for _, limit := range l.Streams {
		streamRequests += int64(limit.Streams)
	}
	// The largest body must always fit.
	bytesOfCaller := min(bytes, max(bytes/callerDivisor, HeldPerByte*int64(l.Body)))

	b := Budgets{Streams: map[string]*Budget{}, Processors: NewProcessors(l.ShedAfter), streamLimits: l.Streams}
	b.Reads = b.add(Class{Name: "reads", Limit: calls, Processors: b.Processors})
	b.Writes = b.add(Class{Name: "writes", Limit: calls, Processors: b.Processors})
	b.Operators = b.add(Class{Name: "calls of operators", Limit: operatorCalls})
	b.Health = b.add(Class{Name: "health checks", Limit: healthCalls})
	b.Callers = b.add(Class{Name: "calls and streams", Limit: Unlimited, CallerLimit: int64(l.CallerInFlight), Flag: "--caller-in-flight"})
	b.ExpensiveReads = b.add(Class{
		Name: "expensive reads", Limit: min(expensive, expensiveOrWaiting),
		Queue: max(1, expensiveOrWaiting-expensive), Patience: expensivePatience,
	})
	b.LongPages = b.add(Class{Name: "long pages", Limit: longPages})
	b.Requests = b.add(Class{Name: "requests", Limit: requests, CallerLimit: requests / 2, Flag: "--memory"})
	b.HealthRequests = b.add(Class{Name: "requests about health", Limit: 4 * healthCalls, CallerLimit: 2 * healthCalls})
	b.StreamRequests = b.add(Class{
		Name: "requests for streams", Limit: streamRequests, CallerLimit: streamRequests - 16*defaultStreams,
	})
	b.Pages = b.add(Class{Name: "pages", Limit: pages})
	b.Bytes = b.add(Class{Name: "bytes of requests and answers", Limit: bytes, CallerLimit: bytesOfCaller, Flag: "--memory"})
	return b
}

func (b *Budgets) add(class Class) *Budget {
	budget := NewBudget(class)
	b.all = append(b.all, budget)
	return budget
}

// NewStream adds the budget of a method that answers with a stream, unless the method has one already. With shed, a part of its streams
// is refused while calls wait for a processor.
func (b *Budgets) NewStream(procedure string, shed bool) *Budget {
	if budget, ok := b.Streams[procedure]; ok {
		return budget
	}

	limit, ok := b.streamLimits[procedure]
	if !ok {
		limit.Streams = defaultStreams
	}
	class := Class{Name: "streams of " + strings.TrimPrefix(procedure, "/"), Limit: int64(limit.Streams), Flag: limit.Flag}
	if shed {
		class.Processors = b.Processors
	}
	b.Streams[procedure] = b.add(class)
	return b.Streams[procedure]
}

// UnderWay returns how many calls are in work, and how many streams there are.
func (b *Budgets) UnderWay() int64 {
	n := b.Reads.Used() + b.Writes.Used() + b.Operators.Used() + b.Health.Used()
	for _, stream := range b.Streams {
		n += stream.Used()
	}
	return n
}

// All returns every budget, for metrics.
func (b *Budgets) All() []*Budget { return b.all }
