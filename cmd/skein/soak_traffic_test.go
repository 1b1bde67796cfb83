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

// soakTraffic is all that clients do in a soak: writers that keep a ledger of what was acknowledged, and
// readers that compare. It knows the service by its API only.
type soakTraffic struct {
	clients []*command.Client // any may be asked
	writers []*soakWriter
	logf    func(format string, args ...any)
	// mixesPositions says that parts of a batch may be of different positions, because different nodes
	// answer them.
	mixesPositions bool

	// publishGate is held for reading while a batch is under way, so that who holds it for writing has all
	// of them acknowledged.
	publishGate sync.RWMutex
	// compareRound is raised to have every realm compared as a whole.
	compareRound atomic.Int64
	// writeGaps and reads tell how long there was no answer.
	writeGaps, readGaps answerGaps

	mu sync.Mutex
	// operationCounts that succeeded, errors that came instead, and what proves a fault of the service.
	operationCounts, errorCounts map[string]int
	// lastFailure is the call that failed last, with its error.
	lastFailure  string
	lost, wrong  int
	undocumented int
	examples     []string
	// falselySeen are unseen items that were taken for seen, of how many. The API allows one in a
	// thousand.
	falselySeen, unseenAsked int
}

// answerGaps measures the longest time without an answer.
type answerGaps struct {
	mu    sync.Mutex
	last  time.Time
	worst time.Duration
}

func (m *answerGaps) recordAnswer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.worst = max(m.worst, now.Sub(m.last))
	m.last = now
}

// reset measures anew.
func (m *answerGaps) reset() {
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

func newSoakTraffic(seed uint64, writers int, clients []*command.Client, logf func(string, ...any)) *soakTraffic {
	s := &soakTraffic{clients: clients, logf: logf, operationCounts: map[string]int{}, errorCounts: map[string]int{}}
	for n := range writers {
		s.writers = append(s.writers, newSoakWriter(s, seed, n))
	}
	s.writeGaps.reset()
	s.readGaps.reset()
	return s
}

// run makes traffic until the context ends; calls begins so often a second in each realm at most.
func (s *soakTraffic) run(ctx context.Context, pace time.Duration) {
	var wg sync.WaitGroup
	for _, w := range s.writers {
		wg.Go(func() { w.run(ctx, pace) })
		wg.Go(func() { w.readAnyState(ctx, pace) })
	}
	wg.Wait()
}

// countOperation counts an operation that was answered.
func (s *soakTraffic) countOperation(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operationCounts[name]++
}

// fault is a kind of disagreement.
type findingKind string

const (
	isLost         findingKind = "LOST"         // acknowledged, and not there
	isWrong        findingKind = "WRONG"        // any other answer that does not follow from the facts
	isUndocumented findingKind = "UNDOCUMENTED" // an error that clients are not told to expect
)

// reportFinding notes what proves a fault of the service.
func (s *soakTraffic) reportFinding(kind findingKind, format string, args ...any) {
	text := time.Now().UTC().Format(time.TimeOnly+".000") + " " + string(kind) + ": " + fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch kind {
	case isLost:
		s.lost++
	case isWrong:
		s.wrong++
	case isUndocumented:
		s.undocumented++
	}
	if len(s.examples) < 30 {
		s.examples = append(s.examples, text)
		s.logf("%s", text)
	}
}

// recordError notes an error and reports whether the call may be made again: a documented error that
// passes.
func (s *soakTraffic) recordError(ctx context.Context, name string, err error) (again bool) {
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
	s.mu.Lock()
	s.errorCounts[strings.TrimSuffix(strings.Fields(name)[0], ",")+": "+kind]++
	s.lastFailure = fmt.Sprintf("%s: %v", name, err)
	s.mu.Unlock()
	if !wire {
		return true // the connection says nothing about the service but that it is away
	}
	switch code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeResourceExhausted:
		return true
	}
	if strings.Contains(kind, "INVALID_POSITION") {
		s.reportFinding(isLost, "%s: an acknowledged position is refused: %v", name, err)
	} else {
		s.reportFinding(isUndocumented, "%s: %s: %v", name, kind, err)
	}
	return false
}

// compareAllWithin has every realm compared as a whole with what it holds by now, and reports whether
// all are within the time.
func (s *soakTraffic) compareAllWithin(ctx context.Context, limit time.Duration) error {
	round := s.compareRound.Add(1)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var late []string
		for _, w := range s.writers {
			if w.comparedRound.Load() < round {
				late = append(late, w.name)
			}
		}
		if len(late) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return fmt.Errorf("after %v realms %v could not be compared; the last call that failed: %s", limit, late, s.lastFailure)
		}
	}
}

// findings returns what was found.
func (s *soakTraffic) findings() (lost, wrong, undocumented int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.falselySeen*100 > s.unseenAsked { // ten times what is allowed: no matter of luck any more
		s.wrong++
		s.examples = append(s.examples, fmt.Sprintf("%d of %d unseen items were taken for seen", s.falselySeen, s.unseenAsked))
		s.falselySeen = 0
	}
	return s.lost, s.wrong, s.undocumented
}

// markdownTable is a table of numbers in Markdown.
func markdownTable(head string, rows map[string]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | |\n|---|---:|\n", head)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, rows[name])
	}
	return b.String()
}

// report tells in Markdown what was done and found.
func (s *soakTraffic) report() string {
	lost, wrong, undocumented := s.findings()
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	b.WriteString(markdownTable("operations", s.operationCounts) + "\n" + markdownTable("errors", s.errorCounts))
	fmt.Fprintf(&b, "\nLost: %d. Wrong: %d. Undocumented errors: %d. Unseen items taken for seen: %d of %d.\n",
		lost, wrong, undocumented, s.falselySeen, s.unseenAsked)
	return b.String()
}
