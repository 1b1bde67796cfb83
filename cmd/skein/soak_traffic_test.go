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

// soakTraffic is everything that clients do in a soak: writers publish and compare answers with
// what they expect, and readers check that states consist of whole batches. It uses only the API of
// the service.
type soakTraffic struct {
	// clients are the addresses of the service. Any of them may be called.
	clients []*command.Client
	writers []*soakWriter
	logf    func(format string, args ...any)
	// mixesPositions says that one answer may have parts from different positions, because
	// different nodes answer them.
	mixesPositions bool

	// publishGate is held for reading while a batch is under way. Whoever holds it for writing
	// knows that all batches are acknowledged.
	publishGate sync.RWMutex
	// compareRound is increased to let every writer compare everything.
	compareRound atomic.Int64
	// writeGaps and readGaps measure how long no write, or no read, was answered.
	writeGaps, readGaps answerGaps

	mu sync.Mutex
	// operationCounts counts the calls that succeeded, and errorCounts the errors, by name.
	operationCounts, errorCounts map[string]int
	// lastFailure is the last call that failed, with its error.
	lastFailure string
	// lost, wrong and undocumented count the findings, and examples has the first 30 of them.
	lost, wrong  int
	undocumented int
	examples     []string
	// falselySeen of unseenAsked unseen items were taken for seen. The API allows one in a
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

// reset starts the measurement again.
func (m *answerGaps) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worst, m.last = 0, time.Now()
}

const (
	// writeTime and readTime are how long a client waits for one call.
	writeTime = 30 * time.Second
	readTime  = 10 * time.Second
	// ackTime is how long a batch may remain without an acknowledgement. Event ids make a retry
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

// run makes traffic until the context ends. pace is the least time between two batches of a writer,
// and between two reads of a reader.
func (s *soakTraffic) run(ctx context.Context, pace time.Duration) {
	var wg sync.WaitGroup
	for _, w := range s.writers {
		wg.Go(func() { w.run(ctx, pace) })
		wg.Go(func() { w.readAnyState(ctx, pace) })
	}
	wg.Wait()
}

// countOperation counts a call that was answered.
func (s *soakTraffic) countOperation(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operationCounts[name]++
}

// findingKind is a kind of wrong behavior of the service.
type findingKind string

const (
	// isLost: an event was acknowledged, and is missing.
	isLost findingKind = "LOST"
	// isWrong: any other answer that does not follow from the events.
	isWrong findingKind = "WRONG"
	// isUndocumented: an error that the documentation does not tell clients to expect.
	isUndocumented findingKind = "UNDOCUMENTED"
)

// reportFinding records wrong behavior of the service.
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

// recordError counts an error, and reports whether the client may make the call again. An error
// that is neither documented nor temporary is a finding.
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
		return true // there was no connection, so the service is down
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

// compareAllWithin lets every writer compare everything, and returns an error if they have not
// finished within the limit.
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

// findings returns how many events were lost, and how many answers and errors were wrong.
func (s *soakTraffic) findings() (lost, wrong, undocumented int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Ten times the allowed share cannot be chance.
	if s.falselySeen*100 > s.unseenAsked {
		s.wrong++
		s.examples = append(s.examples, fmt.Sprintf("%d of %d unseen items were taken for seen", s.falselySeen, s.unseenAsked))
		s.falselySeen = 0
	}
	return s.lost, s.wrong, s.undocumented
}

// markdownTable returns a table of numbers in Markdown.
func markdownTable(head string, rows map[string]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | |\n|---|---:|\n", head)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, rows[name])
	}
	return b.String()
}

// report describes in Markdown what was done and found.
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
