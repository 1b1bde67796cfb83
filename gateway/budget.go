package gateway

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/internal/apierror"
	"github.com/skein-feed/skein/proto/grpc/health/v1/healthv1connect"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	connectv1 "github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// budget bounds how much of one thing is taken at any time: calls of a kind, streams of a kind, bytes of requests. Each thing has a
// budget of its own, so a flood of one takes nothing from the others (docs/access.md, "More than there is room for").
type budget struct {
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

func newBudget(what string, most, each int64) *budget {
	return &budget{what: what, most: most, each: each, by: map[string]int64{}}
}

// take takes n for a party, or refuses it. What was taken must be given back.
func (b *budget) take(party string, n int64) *apierror.Failure {
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

// give gives back what a party has taken.
func (b *budget) give(party string, n int64) {
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

// budgets are those of a server.
type budgets struct {
	// calls is for ordinary calls, admin for those that an operator needs to see what is wrong, health for health checks.
	calls, admin, health *budget
	// heavy is for calls that read much more than they answer, heavyRunning for those of them that have begun.
	heavy *heavy
	// streams has one for each method that answers with a stream, by procedure.
	streams map[string]*budget
	// arriving is for requests in net/http from their head to the end of their answer: what is above the calls waits for its
	// client. openArriving is for those of methods that anyone may call, streamsArriving for those of streams.
	arriving, openArriving, streamsArriving *budget
	// pages is for metrics and reflection.
	pages *budget
	// bytes is for the bodies of requests and for answers that wait for their clients.
	bytes *budget
}

// Budgets that no limit sets.
const (
	adminCalls    = 64
	healthCalls   = 256
	healthStreams = 256
	otherStreams  = 32
	pageCalls     = 32
	// partOfBytes is the part of all bytes that one caller may take: one of so many.
	partOfBytes = 4
	// partOfCalls is the part of calls that may be heavy, those that wait to begin among them: one of so many.
	partOfCalls = 8
)

func newBudgets(l Limits) budgets {
	calls, bytes := int64(l.InFlight), int64(l.RequestBytes)
	// The largest body must always fit.
	own := min(bytes, max(bytes/partOfBytes, heldPerByte*int64(l.BodyBytes)))
	return budgets{
		calls:           newBudget("calls", calls, 0),
		admin:           newBudget("calls of operators", adminCalls, 0),
		health:          newBudget("health checks", healthCalls, 0),
		heavy:           newHeavy(max(1, calls/partOfCalls), l.Heavy),
		streams:         map[string]*budget{},
		arriving:        newBudget("requests", 4*calls, 2*calls),
		openArriving:    newBudget("requests about health", 4*healthCalls, 2*healthCalls),
		streamsArriving: newBudget("requests for streams", 32*otherStreams, 16*otherStreams),
		pages:           newBudget("pages", pageCalls, 0),
		bytes:           newBudget("bytes of requests and answers", bytes, own),
	}
}

// ofCalls is for the calls of a method.
func (b *budgets) ofCalls(r right) *budget {
	switch {
	case r.open:
		return b.health
	case r.roles.Any(access.Admin):
		return b.admin
	}
	return b.calls
}

// ofStream is for the streams of a method, which are those of no other.
func (b *budgets) ofStream(procedure string, l Limits) *budget {
	most := otherStreams
	switch procedure {
	case healthv1connect.HealthWatchProcedure:
		most = healthStreams
	case connectv1.EventServiceWatchProcedure:
		most = l.Watches
	}
	b.streams[procedure] = newBudget("streams of "+strings.TrimPrefix(procedure, "/"), int64(most), 0)
	return b.streams[procedure]
}

// underWay returns how many calls and streams are.
func (b *budgets) underWay() int64 {
	n := b.calls.taken.Load() + b.admin.taken.Load() + b.health.taken.Load()
	for _, stream := range b.streams {
		n += stream.taken.Load()
	}
	return n
}

// all returns every budget, for metrics.
func (b *budgets) all() []*budget {
	all := []*budget{b.calls, b.admin, b.health, b.heavy.budget, b.arriving, b.openArriving, b.streamsArriving, b.pages, b.bytes}
	for _, stream := range b.streams {
		all = append(all, stream)
	}
	return all
}
