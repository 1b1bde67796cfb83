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
	// clients call the processes of the service, one client for each. Any of them may be called.
	clients []*command.Client
	writers []*soakWriter
	logf    func(format string, args ...any)
	// mixesPositions says that one answer may have parts from different positions, because
	// different nodes answer them.
	mixesPositions bool

	// publishGate is held for reading while a batch is under way. Whoever holds it for writing
	// knows that all batches are acknowledged, unless a writer has given up, which is a finding.
	publishGate sync.RWMutex
	// compareRound is increased to let every writer compare everything.
	compareRound atomic.Int64
	// writeGaps and readGaps measure how long no write, or no read, was answered.
	writeGaps, readGaps answerGaps

	// mu protects the fields below.
	mu sync.Mutex
	// operationCounts counts the calls that succeeded, and errorCounts the errors, by name.
	operationCounts, errorCounts map[string]int
	// lastFailure is the last call that failed, with its error.
	lastFailure string
	// lost, wrong and undocumented count the findings. examples has the first ones.
	lost, wrong, undocumented int
	examples                  []string
	// The writers asked about unseenAsked unseen items, and the service took falselySeen of them
	// for seen. The API allows one in a thousand.
	falselySeen, unseenAsked int
}

// maxExamples is how many findings are logged and kept as examples. After one wrong event, many
// answers are wrong.
const maxExamples = 30

// answerGaps measures the longest time without an answer.
type answerGaps struct {
	mu         sync.Mutex
	lastAnswer time.Time
	// longestGap is the longest time between two answers. It does not include the time since the
	// last answer.
	longestGap time.Duration
}

func (g *answerGaps) recordAnswer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.longestGap = max(g.longestGap, now.Sub(g.lastAnswer))
	g.lastAnswer = now
}

// reset starts the measurement again, as if there was an answer now.
func (g *answerGaps) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longestGap = 0
	g.lastAnswer = time.Now()
}

const (
	// writeTime and readTime are how long a client waits for one call, before it tries again.
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
	now := time.Now().UTC().Format(time.TimeOnly + ".000")
	text := fmt.Sprintf("%s %s: %s", now, kind, fmt.Sprintf(format, args...))

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
	if len(s.examples) < maxExamples {
		s.examples = append(s.examples, text)
		s.logf("%s", text)
	}
}

// recordError counts an error of a call, and reports whether the client may make the call again.
// The name begins with the method. An error that is neither documented nor temporary is a finding.
// After the end of the context, calls fail because the test ends, so recordError ignores the error.
func (s *soakTraffic) recordError(ctx context.Context, name string, err error) (again bool) {
	if ctx.Err() != nil {
		return false
	}

	// Only an error from the wire was sent by the service. Without an answer, the client has made
	// the error.
	code := connect.CodeOf(err)
	var callError *connect.Error
	isFromService := errors.As(err, &callError) && connect.IsWireError(err)
	kind := "no answer"
	switch {
	case isFromService:
		kind = code.String()
		if reason := command.ReasonOf(callError); reason != "" {
			kind += " " + reason
		}
	case code == connect.CodeDeadlineExceeded:
		kind = "no answer in time"
	}

	method := strings.TrimSuffix(strings.Fields(name)[0], ",")
	s.mu.Lock()
	s.errorCounts[method+": "+kind]++
	s.lastFailure = fmt.Sprintf("%s: %v", name, err)
	s.mu.Unlock()

	if !isFromService {
		return true // the process is down, paused or cut off
	}
	switch code {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeResourceExhausted:
		return true
	}
	if strings.Contains(kind, "INVALID_POSITION") {
		// The log has lost the position, which it has acknowledged.
		s.reportFinding(isLost, "%s: an acknowledged position is refused: %v", name, err)
	} else {
		s.reportFinding(isUndocumented, "%s: %s: %v", name, kind, err)
	}
	return false
}

// compareAllWithin lets every writer compare everything, and returns an error if they have not
// finished within the limit.
func (s *soakTraffic) compareAllWithin(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	round := s.compareRound.Add(1)

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var unfinished []string
		for _, w := range s.writers {
			if w.comparedRound.Load() < round {
				unfinished = append(unfinished, w.name)
			}
		}
		if len(unfinished) == 0 {
			return nil
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			s.mu.Lock()
			lastFailure := s.lastFailure
			s.mu.Unlock()
			return fmt.Errorf("after at most %v the writers %v have not compared everything; the last call that failed: %s",
				limit, unfinished, lastFailure)
		}
	}
}

// findings returns how many events were lost, how many answers were wrong, and how many errors were
// undocumented. Too many unseen items that were taken for seen count as one wrong answer.
func (s *soakTraffic) findings() (lost, wrong, undocumented int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The limit is ten times the allowed share, because more cannot be chance.
	if s.falselySeen*100 > s.unseenAsked {
		s.wrong++
		s.examples = append(s.examples, fmt.Sprintf("unseen items taken for seen: got %d of %d, want at most one in 1000",
			s.falselySeen, s.unseenAsked))
		s.falselySeen = 0 // the next call must not count the same items again
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
	b.WriteString(markdownTable("operations", s.operationCounts) + "\n")
	b.WriteString(markdownTable("errors", s.errorCounts))
	fmt.Fprintf(&b, "\nLost: %d. Wrong: %d. Undocumented errors: %d. Unseen items taken for seen: %d of %d.\n",
		lost, wrong, undocumented, s.falselySeen, s.unseenAsked)
	return b.String()
}
