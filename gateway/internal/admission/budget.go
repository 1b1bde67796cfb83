package admission

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Budget bounds how much of one thing is taken at any time: calls of a kind, streams of a kind, bytes of requests. Each thing has a
// budget of its own, so a flood of one takes nothing from the others (docs/access.md, "More than there is room for").
type Budget struct {
	// what names the thing in errors and metrics: "calls".
	what string
	// most is how much may be taken by all together, and each by one party; each = 0: as much as all.
	most, each int64
	// taken may exceed most for a moment, while something is refused.
	taken atomic.Int64

	// mu guards by and peak, which are only kept if each is set: what each party has taken, and the most that all had.
	mu   sync.Mutex
	by   map[string]int64
	peak int64
}

func newBudget(what string, most, each int64) *Budget {
	return &Budget{what: what, most: most, each: each, by: map[string]int64{}}
}

// Take takes n for a party, or refuses it. The caller must give back what it has taken.
func (b *Budget) Take(party string, n int64) *apierror.Failure {
	if b.taken.Add(n) > b.most {
		b.taken.Add(-n)
		return &apierror.Failure{
			Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_OVERLOADED, Retry: apierror.RetrySoon,
			Text: fmt.Sprintf("the service allows %d %s at a time, and others have taken them; nothing was done", b.most, b.what),
		}
	}
	if b.each == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[party]+n > b.each {
		b.taken.Add(-n)
		return &apierror.Failure{
			Code: connect.CodeResourceExhausted, Reason: skeinv1.Reason_REASON_CALLER_LIMIT, Retry: apierror.RetrySoon,
			Text: fmt.Sprintf("one caller may take %d %s at a time; nothing was done", b.each, b.what),
		}
	}
	b.by[party] += n
	b.peak = max(b.peak, b.taken.Load())
	return nil
}

// Give gives back what a party has taken.
func (b *Budget) Give(party string, n int64) {
	b.taken.Add(-n)
	if b.each == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[party] -= n; b.by[party] <= 0 {
		delete(b.by, party)
	}
}

// Used returns how much is taken.
func (b *Budget) Used() int64 { return b.taken.Load() }

// Name names the thing in errors and metrics.
func (b *Budget) Name() string { return b.what }

// Limit is how much may be taken by all together.
func (b *Budget) Limit() int64 { return b.most }

// LimitEach is how much one party may take; 0 means as much as all.
func (b *Budget) LimitEach() int64 { return b.each }

// Highest is the most that all had taken at a time, if parties are bounded.
func (b *Budget) Highest() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peak
}

// Budgets are those of a server.
type Budgets struct {
	// Calls is for ordinary calls, admin for those that an operator needs to see what is wrong, health for health checks.
	Calls, admin, health *Budget
	// Heavy is for calls that read much more than they answer, heavyRunning for those of them that have begun.
	Heavy *Heavy
	// Streams has one for each method that answers with a stream, by procedure.
	Streams map[string]*Budget
	// mostStreams are the limits of some of them.
	mostStreams map[string]int
	// Arriving is for requests in net/http from their head to the end of their answer: what is above the calls waits for its
	// client. openArriving is for those of methods that anyone may call, streamsArriving for those of streams.
	Arriving, OpenArriving, StreamsArriving *Budget
	// Pages is for metrics and reflection.
	Pages *Budget
	// Bytes is for the bodies of requests and for answers that wait for their clients.
	Bytes *Budget
}

// Budgets that no limit sets.
const (
	adminCalls   = 64
	healthCalls  = 256
	otherStreams = 32
	pageCalls    = 32
	// arrivalBytes of the bytes there are for each request that arrives or waits for its client: a stream of HTTP/2 without a body
	// costs somewhat more.
	arrivalBytes = 16 << 10
	// partOfBytes is the part of all bytes that one caller may take: one of so many.
	partOfBytes = 4
	// partOfCalls is the part of calls that may be heavy, those that wait to begin among them: one of so many.
	partOfCalls = 8
)

// BudgetLimits are what budgets may be set to.
type BudgetLimits struct {
	// Calls is how many may be under way together, Heavy how many expensive ones of them may run.
	Calls, Heavy int
	// Bytes is how many bytes of requests and answers may be held, Body the largest request body.
	Bytes, Body int
	// Streams is how many streams of some methods may be under way, by procedure. Of each other method it is otherStreams.
	Streams map[string]int
}

// NewBudgets makes the budgets of a server.
func NewBudgets(l BudgetLimits) Budgets {
	calls, bytes := int64(l.Calls), int64(l.Bytes)
	// The largest body must always fit.
	own := min(bytes, max(bytes/partOfBytes, HeldPerByte*int64(l.Body)))
	streams := 0
	for _, n := range l.Streams {
		streams += n
	}
	arriving := min(4*calls, max(adminCalls, bytes/arrivalBytes))
	return Budgets{
		Calls:           newBudget("calls", calls, 0),
		admin:           newBudget("calls of operators", adminCalls, 0),
		health:          newBudget("health checks", healthCalls, 0),
		Heavy:           newHeavy(max(1, calls/partOfCalls), l.Heavy),
		Streams:         map[string]*Budget{},
		mostStreams:     l.Streams,
		Arriving:        newBudget("requests", arriving, arriving/2),
		OpenArriving:    newBudget("requests about health", 4*healthCalls, 2*healthCalls),
		StreamsArriving: newBudget("requests for streams", int64(32*otherStreams+streams), int64(16*otherStreams+streams)),
		Pages:           newBudget("pages", pageCalls, 0),
		Bytes:           newBudget("bytes of requests and answers", bytes, own),
	}
}

// OfCalls is for the calls of a method: one that anyone may call, one that operators need, or another one.
func (b *Budgets) OfCalls(open, operators bool) *Budget {
	switch {
	case open:
		return b.health
	case operators:
		return b.admin
	}
	return b.Calls
}

// OfStream is for the streams of a method, which are those of no other.
func (b *Budgets) OfStream(procedure string) *Budget {
	most := otherStreams
	if n, ok := b.mostStreams[procedure]; ok {
		most = n
	}
	b.Streams[procedure] = newBudget("streams of "+strings.TrimPrefix(procedure, "/"), int64(most), 0)
	return b.Streams[procedure]
}

// UnderWay returns how many calls and streams are.
func (b *Budgets) UnderWay() int64 {
	n := b.Calls.Used() + b.admin.Used() + b.health.Used()
	for _, stream := range b.Streams {
		n += stream.Used()
	}
	return n
}

// All returns every budget, for metrics.
func (b *Budgets) All() []*Budget {
	all := []*Budget{b.Calls, b.admin, b.health, b.Heavy.Budget, b.Arriving, b.OpenArriving, b.StreamsArriving, b.Pages, b.Bytes}
	for _, stream := range b.Streams {
		all = append(all, stream)
	}
	return all
}
