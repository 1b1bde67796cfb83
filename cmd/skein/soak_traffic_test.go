package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// soak is all that clients do in a soak: writers that keep a ledger of what was acknowledged, and
// readers that compare. It knows the service by its API only.
type soak struct {
	doors  []*command.Client // any may be asked
	realms []*realm
	logf   func(format string, args ...any)
	// parted says that parts of a batch may be of different positions, because different nodes
	// answer them.
	parted bool

	// gate is held for reading while a batch is under way, so that who holds it for writing has all
	// of them acknowledged.
	gate sync.RWMutex
	// round is raised to have every realm compared as a whole.
	round atomic.Int64
	// writes and reads tell how long there was no answer.
	writes, reads meter

	mu sync.Mutex
	// operations that succeeded, errors that came instead, and what proves a fault of the service.
	operations, errs map[string]int
	// lastFailure is the call that failed last, with its error.
	lastFailure  string
	lost, wrong  int
	undocumented int
	examples     []string
	// taken are unseen items that were taken for seen, of how many. The API allows one in a
	// thousand.
	taken, candidates int
}

// meter measures the longest time without an answer.
type meter struct {
	mu    sync.Mutex
	last  time.Time
	worst time.Duration
}

func (m *meter) answered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.worst = max(m.worst, now.Sub(m.last))
	m.last = now
}

// begin measures anew.
func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worst, m.last = 0, time.Now()
}

const (
	// writeTime and readTime are how long a client waits for one call.
	writeTime = 30 * time.Second
	readTime  = 10 * time.Second
	// ackTime is how long one batch may remain without an acknowledgement: event ids make a retry
	// safe for 15 minutes.
	ackTime = 10 * time.Minute
)

func newSoak(seed uint64, realms int, doors []*command.Client, logf func(string, ...any)) *soak {
	f := &soak{doors: doors, logf: logf, operations: map[string]int{}, errs: map[string]int{}}
	for n := range realms {
		f.realms = append(f.realms, newRealm(f, seed, n))
	}
	f.writes.begin()
	f.reads.begin()
	return f
}

// run makes traffic until the context ends; calls begins so often a second in each realm at most.
func (f *soak) run(ctx context.Context, pace time.Duration) {
	var wg sync.WaitGroup
	for _, w := range f.realms {
		wg.Go(func() { w.run(ctx, pace) })
		wg.Go(func() { w.glance(ctx, pace) })
	}
	wg.Wait()
}

// did counts an operation that was answered.
func (f *soak) did(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.operations[name]++
}

// fault is a kind of disagreement.
type verdict string

const (
	isLost         verdict = "LOST"         // acknowledged, and not there
	isWrong        verdict = "WRONG"        // any other answer that does not follow from the facts
	isUndocumented verdict = "UNDOCUMENTED" // an error that clients are not told to expect
)

// accuse notes what proves a fault of the service.
func (f *soak) accuse(v verdict, format string, args ...any) {
	text := time.Now().UTC().Format(time.TimeOnly+".000") + " " + string(v) + ": " + fmt.Sprintf(format, args...)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch v {
	case isLost:
		f.lost++
	case isWrong:
		f.wrong++
	case isUndocumented:
		f.undocumented++
	}
	if len(f.examples) < 30 {
		f.examples = append(f.examples, text)
		f.logf("%s", text)
	}
}

// failed notes an error and reports whether the call may be made again: a documented error that
// passes.
func (f *soak) failed(ctx context.Context, name string, err error) (again bool) {
	if ctx.Err() != nil {
		return false
	}
	kind, code := "no answer", connect.CodeOf(err)
	var refused *connect.Error
	wire := errors.As(err, &refused) && connect.IsWireError(err)
	if wire {
		kind = code.String()
		if reason := command.ReasonOf(refused); reason != "" {
			kind += " " + reason
		}
	} else if code == connect.CodeDeadlineExceeded {
		kind = "no answer in time"
	}
	f.mu.Lock()
	f.errs[strings.TrimSuffix(strings.Fields(name)[0], ",")+": "+kind]++
	f.lastFailure = fmt.Sprintf("%s: %v", name, err)
	f.mu.Unlock()
	if !wire {
		return true // the connection says nothing about the service but that it is away
	}
	switch code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeResourceExhausted:
		return true
	}
	if strings.Contains(kind, "INVALID_POSITION") {
		f.accuse(isLost, "%s: an acknowledged position is refused: %v", name, err)
	} else {
		f.accuse(isUndocumented, "%s: %s: %v", name, kind, err)
	}
	return false
}

// equalWithin has every realm compared as a whole with what it holds by now, and reports whether
// all are within the time.
func (f *soak) equalWithin(ctx context.Context, limit time.Duration) error {
	round := f.round.Add(1)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var late []string
		for _, w := range f.realms {
			if w.compared.Load() < round {
				late = append(late, w.name)
			}
		}
		if len(late) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			return fmt.Errorf("after %v realms %v could not be compared; the last call that failed: %s", limit, late, f.lastFailure)
		}
	}
}

// verdict returns what was found.
func (f *soak) verdict() (lost, wrong, undocumented int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken*100 > f.candidates { // ten times what is allowed: no matter of luck any more
		f.wrong++
		f.examples = append(f.examples, fmt.Sprintf("%d of %d unseen items were taken for seen", f.taken, f.candidates))
		f.taken = 0
	}
	return f.lost, f.wrong, f.undocumented
}

// tableOf is a table of numbers in Markdown.
func tableOf(head string, rows map[string]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | |\n|---|---:|\n", head)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, rows[name])
	}
	return b.String()
}

// report tells in Markdown what was done and found.
func (f *soak) report() string {
	lost, wrong, undocumented := f.verdict()
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	b.WriteString(tableOf("operations", f.operations) + "\n" + tableOf("errors", f.errs))
	fmt.Fprintf(&b, "\nLost: %d. Wrong: %d. Undocumented errors: %d. Unseen items taken for seen: %d of %d.\n",
		lost, wrong, undocumented, f.taken, f.candidates)
	return b.String()
}
