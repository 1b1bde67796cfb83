//go:build faults

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// The soak injects faults into real programs under traffic. The task soak:faults runs it for as
// long as SKEIN_FAULTS says. It needs Linux, root, strace and cgroups of version 1.
// docs/reliability.md says what the soak shows.

// defaultSoakLength is how long the soak lasts without SKEIN_FAULTS.
const defaultSoakLength = 3 * time.Minute

// recoveryTime is how long it may take after a fault was healed until every answer is right again.
const recoveryTime = 4 * time.Minute

// faultSoak injects faults one after the other. All its random choices follow from the seed.
type faultSoak struct {
	t      *testing.T
	ctx    context.Context
	cancel context.CancelFunc
	seed   uint64
	length time.Duration
	random *rand.Rand
	began  time.Time // when the traffic began

	traffic *soakTraffic
	// trafficEnded is closed when the traffic has ended.
	trafficEnded chan struct{}

	processes []*soakProcess
	kinds     []faultKind
	// records has a record for the name of each kind that was injected.
	records map[string]*faultRecord

	// mu protects the fields below, because recordExit runs in a goroutine of each process.
	mu sync.Mutex
	// unexpectedExits counts how often a process has ended by itself. A key names the process and
	// the fault.
	unexpectedExits map[string]int
	// currentFault is the name of the latest fault. mayExit says whether a process may end by
	// itself because of that fault.
	currentFault string
	mayExit      bool
}

// faultKind is a kind of fault. inject injects one fault, heals it, and returns a proof that the
// fault had an effect.
type faultKind struct {
	name   string
	inject func() (proof string, err error)
	// mayExit says that a process may end by itself because of the fault.
	mayExit bool
}

// faultRecord is what the report says about one kind of fault.
type faultRecord struct {
	// injected and proven count the faults.
	injected, proven int
	// lastProof is the proof of the last fault that was proven.
	lastProof string
	// These are the longest times of all faults of the kind: without an answer to a write, without
	// an answer to a read, and from the end of a fault until everything was compared.
	longestWriteGap, longestReadGap, longestRecovery time.Duration
}

// soakLengthAndSeed returns how long the soak lasts and its seed, from SKEIN_FAULTS and
// SKEIN_FAULTS_SEED.
func soakLengthAndSeed(t *testing.T) (length time.Duration, seed uint64) {
	t.Helper()
	length = defaultSoakLength
	if text := os.Getenv("SKEIN_FAULTS"); text != "" {
		parsed, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("SKEIN_FAULTS: got %v, want a duration", err)
		}
		length = parsed
	}

	seed = testSeed(t)
	if text := os.Getenv("SKEIN_FAULTS_SEED"); text != "" {
		parsed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SKEIN_FAULTS_SEED: got %v, want a number", err)
		}
		seed = parsed
	}
	return length, seed
}

// newFaultSoak makes a soak without processes, traffic and kinds of faults.
func newFaultSoak(t *testing.T) *faultSoak {
	t.Helper()
	length, seed := soakLengthAndSeed(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &faultSoak{
		t:      t,
		ctx:    ctx,
		cancel: cancel,
		seed:   seed,
		length: length,
		random: rand.New(rand.NewPCG(seed, 0)),

		trafficEnded:    make(chan struct{}),
		records:         map[string]*faultRecord{},
		unexpectedExits: map[string]int{},
	}
}

// faultDuration returns a random time that a fault lasts: half a second and up to limit more. In a
// soak of less than 20 minutes it is at most 4.5 seconds, so that also a short soak injects every
// kind.
func (c *faultSoak) faultDuration(limit time.Duration) time.Duration {
	if c.length < 20*time.Minute {
		limit = min(limit, 4*time.Second)
	}
	return 500*time.Millisecond + time.Duration(c.random.Int64N(int64(limit)))
}

// pauseUpTo waits for a random time of less than limit.
func (c *faultSoak) pauseUpTo(limit time.Duration) {
	sleepOrDone(c.ctx, time.Duration(c.random.Int64N(int64(limit))))
}

// recordExit records that a process has ended by itself, and fails the test unless the current
// fault allows that. The text says how the process ended.
func (c *faultSoak) recordExit(p *soakProcess, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unexpectedExits[fmt.Sprintf("%s in %q", p.name, c.currentFault)]++
	if !c.mayExit {
		c.t.Errorf("%s in %q: got that it %s, want that it runs; the end of its log:\n%s",
			p.name, c.currentFault, how, strings.Join(lastLines(p.logPath, 15), "\n"))
	}
}

// lastLines returns the last n lines of a file.
func lastLines(path string, n int) []string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[max(0, len(lines)-n):]
}

// startTraffic starts the traffic through these clients, and waits until everything was compared
// once. [soakTraffic] explains mixesPositions.
func (c *faultSoak) startTraffic(clients []*command.Client, mixesPositions bool) {
	// Select the kinds first, so that a wrong SKEIN_FAULTS_ONLY ends the test before the traffic.
	c.kinds = c.selectedKinds()

	c.traffic = newSoakTraffic(c.seed, 6, clients, c.t.Logf)
	c.traffic.mixesPositions = mixesPositions
	c.began = time.Now()
	go func() {
		defer close(c.trafficEnded)
		c.traffic.run(c.ctx, 40*time.Millisecond)
	}()

	if err := c.traffic.compareAllWithin(c.ctx, recoveryTime); err != nil {
		c.t.Fatalf("before any fault: got %v, want that everything is compared", err)
	}
}

// selectedKinds returns the kinds of faults that SKEIN_FAULTS_ONLY names, or all kinds if the
// variable is empty.
func (c *faultSoak) selectedKinds() []faultKind {
	only := os.Getenv("SKEIN_FAULTS_ONLY")
	if only == "" {
		return c.kinds
	}

	var selected []faultKind
	var names []string
	for _, kind := range c.kinds {
		names = append(names, kind.name)
		if slices.Contains(strings.Split(only, ";"), kind.name) {
			selected = append(selected, kind)
		}
	}
	if len(selected) == 0 {
		c.t.Fatalf("SKEIN_FAULTS_ONLY: got %q, want some of the kinds of faults: %s", only, strings.Join(names, ";"))
	}
	return selected
}

// injectFaults injects faults of all kinds in rounds, each in another order, until the time is up
// and every kind was injected at least once. It returns false, earlier, if something wrong was
// found.
func (c *faultSoak) injectFaults() bool {
	for round := 0; round == 0 || time.Since(c.began) < c.length; round++ {
		for _, i := range c.random.Perm(len(c.kinds)) {
			// Only the first round is completed after the time is up.
			if round > 0 && time.Since(c.began) >= c.length {
				return true
			}
			if !c.injectAndCompare(c.kinds[i]) {
				return false
			}
			c.pauseUpTo(2 * time.Second)
		}
	}
	return true
}

// injectAndCompare injects a fault, and lets the writers compare everything after it was healed. It
// reports whether the soak may continue. A fault that is not proven fails the test, and the soak
// continues.
func (c *faultSoak) injectAndCompare(kind faultKind) bool {
	record := c.records[kind.name]
	if record == nil {
		record = &faultRecord{}
		c.records[kind.name] = record
	}
	record.injected++

	// Remember where the logs end and measure from here, so that everything below concerns this
	// fault alone.
	c.setCurrentFault(kind.name, kind.mayExit)
	c.traffic.writeGaps.reset()
	c.traffic.readGaps.reset()
	logSizes := map[*soakProcess]int64{}
	for _, p := range c.processes {
		logSizes[p] = p.logSize()
	}

	began := time.Now()
	proof, err := kind.inject()
	healed := time.Now()
	if err != nil {
		c.t.Errorf("%s: got %v, want a proof of the fault", kind.name, err)
	} else {
		record.proven++
		record.lastProof = proof
	}

	compareErr := c.traffic.compareAllWithin(c.ctx, recoveryTime)
	recovery := time.Since(healed)
	writeGap := c.traffic.writeGaps.longest()
	readGap := c.traffic.readGaps.longest()
	record.longestRecovery = max(record.longestRecovery, recovery)
	record.longestWriteGap = max(record.longestWriteGap, writeGap)
	record.longestReadGap = max(record.longestReadGap, readGap)

	c.t.Logf("%8v %s: %s; lasted %v, without a write %v, without a read %v, all compared after %v",
		time.Since(c.began).Round(time.Second), kind.name, proof, healed.Sub(began).Round(time.Millisecond),
		writeGap.Round(time.Millisecond), readGap.Round(time.Millisecond), recovery.Round(time.Millisecond))
	if compareErr != nil {
		c.t.Errorf("%s: got %v, want that everything is compared after the fault", kind.name, compareErr)
	}

	// Log what the processes did if the recovery took long.
	if recovery > 20*time.Second {
		for _, p := range c.processes {
			if lines := p.logLines(logSizes[p], "level=ERROR", "rebuilt"); len(lines) > 0 {
				c.t.Logf("%s logged during the fault:\n%s", p.name, strings.Join(lines[max(0, len(lines)-10):], "\n"))
			}
		}
	}

	lost, wrong, undocumented := c.traffic.findings()
	if compareErr != nil || lost+wrong+undocumented > 0 || c.ctx.Err() != nil {
		for _, p := range c.processes {
			c.t.Logf("the end of the log of %s:\n%s", p.name, strings.Join(lastLines(p.logPath, 40), "\n"))
		}
		return false
	}
	return true
}

// setCurrentFault sets the fault to which recordExit attributes the end of a process.
func (c *faultSoak) setCurrentFault(name string, mayExit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.currentFault = name
	c.mayExit = mayExit
}

// finish compares everything once more, ends the traffic when all batches are acknowledged, lets
// every projection be verified against the log, and prints the report. If foundNothing is false, it
// only ends the traffic and fails the test with the report.
func (c *faultSoak) finish(foundNothing bool, verifyStores func() (string, error)) {
	if !foundNothing {
		c.cancel()
		<-c.trafficEnded
		c.t.Fatal("\n" + c.report(time.Since(c.began), "something was found before the end"))
	}

	c.setCurrentFault("the end", false)
	if err := c.traffic.compareAllWithin(c.ctx, recoveryTime); err != nil {
		c.t.Errorf("at the end: got %v, want that everything is compared", err)
	}

	// While the gate is held, no batch is under way, so the log does not grow during the
	// verification.
	c.traffic.publishGate.Lock()
	took := time.Since(c.began)
	verification, err := verifyStores()
	if err != nil {
		c.t.Errorf("verification of the stores: got %v, want no difference: %s", err, verification)
	}

	// Cancel before the gate opens, so that no writer begins another batch.
	c.cancel()
	c.traffic.publishGate.Unlock()
	<-c.trafficEnded

	lost, wrong, undocumented := c.traffic.findings()
	if lost+wrong+undocumented > 0 {
		c.t.Errorf("findings: got %d lost, %d wrong and %d undocumented, want none:\n%s",
			lost, wrong, undocumented, strings.Join(c.traffic.examples, "\n"))
	}

	text := c.report(took, verification)
	c.t.Log("\n" + text)

	// Append the report to the file, because all modes of the soak use the same file.
	path := os.Getenv("SKEIN_FAULTS_REPORT")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintln(f, text)
}

// report returns the report in Markdown. verification is what the verification of the stores has
// printed.
func (c *faultSoak) report(took time.Duration, verification string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\nSeed %d, %v, %s/%s, %d cores.\n\n",
		c.t.Name(), c.seed, took.Round(time.Second), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())

	b.WriteString("| fault | injected | proven | proof of the last | longest without a write | … without a read | all compared after |\n")
	b.WriteString("|---|---:|---:|---|---:|---:|---:|\n")
	injected := 0
	proven := 0
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	for _, name := range slices.Sorted(maps.Keys(c.records)) {
		r := c.records[name]
		injected += r.injected
		proven += r.proven
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s | %s |\n", name, r.injected, r.proven, r.lastProof,
			seconds(r.longestWriteGap), seconds(r.longestReadGap), seconds(r.longestRecovery))
	}
	fmt.Fprintf(&b, "| all | %d | %d | | | | |\n\n", injected, proven)

	starts := map[string]int{}
	for _, p := range c.processes {
		starts[p.name] = p.starts()
	}
	b.WriteString(markdownTable("process", starts) + "\n")

	// The processes still run, and may end by themselves now.
	c.mu.Lock()
	if len(c.unexpectedExits) > 0 {
		b.WriteString(markdownTable("ended by itself", c.unexpectedExits) + "\n")
	}
	c.mu.Unlock()

	fmt.Fprintf(&b, "%s\nAt the end:\n\n```\n%s\n```\n", c.traffic.report(), strings.TrimSpace(verification))
	return b.String()
}

// longest returns the longest time without an answer. That may be the time since the last answer.
func (g *answerGaps) longest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.longestGap, time.Since(g.lastAnswer))
}
