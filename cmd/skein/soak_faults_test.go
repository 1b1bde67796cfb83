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

// The soak injects faults into real programs under traffic, for as long as SKEIN_FAULTS says: task
// soak:faults. It needs Linux, root, strace and cgroups of version 1. docs/reliability.md says what
// it shows.

// faultSoak injects faults one after the other. All its random choices follow from the seed.
type faultSoak struct {
	t            *testing.T
	ctx          context.Context
	seed         uint64
	length       time.Duration
	random       *rand.Rand
	traffic      *soakTraffic
	cancel       context.CancelFunc
	trafficEnded chan struct{} // closed when the traffic has ended

	processes []*soakProcess
	kinds     []faultKind
	began     time.Time

	mu              sync.Mutex
	records         map[string]*faultRecord
	unexpectedExits map[string]int // how often a process has ended by itself
	currentFault    string         // what is done to the processes now
	mayExit         bool           // whether a process may end by itself now
}

// faultKind is a kind of fault. inject injects one fault, heals it, and returns a proof that the
// fault had an effect.
type faultKind struct {
	name   string
	inject func() (proof string, err error)
	// mayExit says that a process may end by itself because of the fault.
	mayExit bool
}

// faultRecord is what the report says about one kind of fault. injected and proven count the
// faults, the durations are the longest ones, and proof is the last one.
type faultRecord struct {
	injected, proven                                 int
	longestWriteGap, longestReadGap, longestRecovery time.Duration
	proof                                            string
}

// soakLengthAndSeed returns how long the soak lasts and its seed, from SKEIN_FAULTS and
// SKEIN_FAULTS_SEED.
func soakLengthAndSeed(t *testing.T) (length time.Duration, seed uint64) {
	t.Helper()
	length, seed = 3*time.Minute, testSeed(t)
	var err error
	if text := os.Getenv("SKEIN_FAULTS"); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SKEIN_FAULTS: %v", err)
		}
	}
	if text := os.Getenv("SKEIN_FAULTS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SKEIN_FAULTS_SEED: %v", err)
		}
	}
	return length, seed
}

// newFaultSoak makes a soak without processes, traffic and kinds of faults.
func newFaultSoak(t *testing.T) *faultSoak {
	t.Helper()
	length, seed := soakLengthAndSeed(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := &faultSoak{
		t: t, ctx: ctx, cancel: cancel, seed: seed, length: length, random: rand.New(rand.NewPCG(seed, 0)),
		records: map[string]*faultRecord{}, unexpectedExits: map[string]int{}, trafficEnded: make(chan struct{}),
	}
	t.Cleanup(cancel)
	return c
}

// faultDuration returns a random time that a fault lasts: up to the given time in a soak of at
// least 20 minutes, and up to 4 seconds in a shorter one.
func (c *faultSoak) faultDuration(most time.Duration) time.Duration {
	if c.length < 20*time.Minute {
		most = min(most, 4*time.Second)
	}
	return 500*time.Millisecond + time.Duration(c.random.Int64N(int64(most)))
}

// pauseUpTo waits for a random time, at most the given one.
func (c *faultSoak) pauseUpTo(most time.Duration) {
	sleepOrDone(c.ctx, time.Duration(c.random.Int64N(int64(most))))
}

// recordExit records that a process has ended by itself, and fails the test unless the current
// fault allows that.
func (c *faultSoak) recordExit(p *soakProcess, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unexpectedExits[fmt.Sprintf("%s in %q", p.name, c.currentFault)]++
	if !c.mayExit {
		c.t.Errorf("%s ended by itself in %q: %s\n%s", p.name, c.currentFault, how, strings.Join(lastLines(p.logPath, 15), "\n"))
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
	c.kinds = c.selectedKinds()

	c.traffic = newSoakTraffic(c.seed, 6, clients, c.t.Logf)
	c.traffic.mixesPositions = mixesPositions
	c.began = time.Now()
	go func() {
		defer close(c.trafficEnded)
		c.traffic.run(c.ctx, 40*time.Millisecond)
	}()

	if err := c.traffic.compareAllWithin(c.ctx, recoveryTime); err != nil {
		c.t.Fatalf("before any fault: %v", err)
	}
}

// recoveryTime is how long it may take after a fault was healed until every answer is right again.
const recoveryTime = 4 * time.Minute

// injectAndCompare injects a fault, and lets the writers compare everything after it was healed. It
// reports whether the soak may continue.
func (c *faultSoak) injectAndCompare(kind faultKind) bool {
	c.mu.Lock()
	record := c.records[kind.name]
	if record == nil {
		record = &faultRecord{}
		c.records[kind.name] = record
	}
	record.injected++
	c.currentFault, c.mayExit = kind.name, kind.mayExit
	c.mu.Unlock()

	c.traffic.writeGaps.reset()
	c.traffic.readGaps.reset()
	began := time.Now()
	logOffsets := map[*soakProcess]int64{}
	for _, p := range c.processes {
		logOffsets[p] = p.logSize()
	}

	proof, err := kind.inject()
	if err != nil {
		c.t.Errorf("%s: not proven: %v", kind.name, err)
	} else {
		record.proven++
		record.proof = proof
	}

	healed := time.Now()
	err = c.traffic.compareAllWithin(c.ctx, recoveryTime)
	record.longestRecovery = max(record.longestRecovery, time.Since(healed))
	record.longestWriteGap = max(record.longestWriteGap, c.traffic.writeGaps.longest())
	record.longestReadGap = max(record.longestReadGap, c.traffic.readGaps.longest())

	c.t.Logf("%8v %s: %s; lasted %v, without a write %v, without a read %v, all compared after %v", time.Since(c.began).Round(time.Second),
		kind.name, proof, healed.Sub(began).Round(time.Millisecond), c.traffic.writeGaps.longest().Round(time.Millisecond),
		c.traffic.readGaps.longest().Round(time.Millisecond), time.Since(healed).Round(time.Millisecond))
	if err != nil {
		c.t.Errorf("%s: %v", kind.name, err)
	}

	// Log what the processes did if the recovery took long.
	if time.Since(healed) > 20*time.Second {
		for _, p := range c.processes {
			if lines := p.logLines(logOffsets[p], "level=ERROR", "rebuilt"); len(lines) > 0 {
				c.t.Logf("%s said:\n%s", p.name, strings.Join(lines[max(0, len(lines)-10):], "\n"))
			}
		}
	}

	lost, wrong, undocumented := c.traffic.findings()
	if err != nil || lost+wrong+undocumented > 0 || c.ctx.Err() != nil {
		for _, p := range c.processes {
			c.t.Logf("the end of the log of %s:\n%s", p.name, strings.Join(lastLines(p.logPath, 40), "\n"))
		}
		return false
	}
	return true
}

// selectedKinds returns the kinds of faults that SKEIN_FAULTS_ONLY names, or all kinds if the
// variable is empty.
func (c *faultSoak) selectedKinds() (kinds []faultKind) {
	only, names := os.Getenv("SKEIN_FAULTS_ONLY"), []string(nil)
	for _, k := range c.kinds {
		if names = append(names, k.name); only == "" || slices.Contains(strings.Split(only, ";"), k.name) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		c.t.Fatalf("SKEIN_FAULTS_ONLY is %q, and names none of the kinds of faults: %s", only, strings.Join(names, ";"))
	}
	return kinds
}

// injectFaults injects faults of all kinds in rounds, each in another order, until the time is up
// and every kind was injected at least once. It returns false, earlier, if something wrong was
// found.
func (c *faultSoak) injectFaults() bool {
	for round := 0; round == 0 || time.Since(c.began) < c.length; round++ {
		for _, i := range c.random.Perm(len(c.kinds)) {
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

// finish ends the traffic when everything is acknowledged and compared, lets every projection be
// verified against the log, and prints the report.
func (c *faultSoak) finish(foundNothing bool, verifyStores func() (string, error)) {
	if !foundNothing {
		c.cancel()
		<-c.trafficEnded
		c.t.Fatal("\n" + c.report(time.Since(c.began), "something was found before the end"))
	}

	c.mu.Lock()
	c.currentFault, c.mayExit = "the end", false
	c.mu.Unlock()
	if err := c.traffic.compareAllWithin(c.ctx, recoveryTime); err != nil {
		c.t.Error(err)
	}

	// While the gate is held, no batch is under way, so the log does not grow during the
	// verification.
	c.traffic.publishGate.Lock()
	took := time.Since(c.began)
	report, err := verifyStores()
	if err != nil {
		c.t.Errorf("verify: %v: %s", err, report)
	}

	c.cancel()
	c.traffic.publishGate.Unlock()
	<-c.trafficEnded

	lost, wrong, undocumented := c.traffic.findings()
	if lost+wrong+undocumented > 0 {
		c.t.Errorf("lost %d, wrong %d, undocumented %d:\n%s", lost, wrong, undocumented, strings.Join(c.traffic.examples, "\n"))
	}

	text := c.report(took, report)
	c.t.Log("\n" + text)
	if path := os.Getenv("SKEIN_FAULTS_REPORT"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			c.t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintln(f, text)
	}
}

// report returns the report in Markdown.
func (c *faultSoak) report(took time.Duration, verified string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\nSeed %d, %v, %s/%s, %d cores.\n\n", c.t.Name(), c.seed, took.Round(time.Second), runtime.GOOS,
		runtime.GOARCH, runtime.NumCPU())
	b.WriteString("| fault | injected | proven | proof of the last | longest without a write | … without a read | all compared after |\n")
	b.WriteString("|---|---:|---:|---|---:|---:|---:|\n")
	injected, fired := 0, 0
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	for _, name := range slices.Sorted(maps.Keys(c.records)) {
		r := c.records[name]
		injected += r.injected
		fired += r.proven
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s | %s |\n", name, r.injected, r.proven, r.proof, seconds(r.longestWriteGap),
			seconds(r.longestReadGap), seconds(r.longestRecovery))
	}
	fmt.Fprintf(&b, "| all | %d | %d | | | | |\n\n", injected, fired)

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
	fmt.Fprintf(&b, "%s\nAt the end:\n\n```\n%s\n```\n", c.traffic.report(), strings.TrimSpace(verified))
	return b.String()
}

// longest returns the longest time without an answer. That may be the time since the last answer.
func (g *answerGaps) longest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.longestGap, time.Since(g.lastAnswer))
}
