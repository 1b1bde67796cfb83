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

// The soak torments real programs under traffic, for as long as it is asked to: task soak:faults.
// It needs Linux, root, strace and cgroups of version 1. docs/reliability.md says what it shows.

// campaign is the controller of one soak. All that it chooses follows from the seed.
type campaign struct {
	t      *testing.T
	ctx    context.Context
	seed   uint64
	length time.Duration
	random *rand.Rand
	soak   *soak
	cancel context.CancelFunc
	gone   chan struct{} // closed when the traffic has ended

	processes []*process
	kinds     []faultKind
	began     time.Time

	mu    sync.Mutex
	kept  map[string]*faultRecord
	ends  map[string]int // how often a process has ended by itself
	spoke string         // what is done to the processes now
	fatal bool           // whether a process may end by itself now
}

// faultKind is a kind of fault. strike injects one, heals it, and returns the proof that it has
// fired.
type faultKind struct {
	name   string
	strike func() (proof string, err error)
	// ends reports that a process may end by itself in it.
	ends bool
}

// faultRecord is what is reported of a kind.
type faultRecord struct {
	injected, fired                     int
	withoutWrite, withoutRead, recovery time.Duration
	proof                               string
}

func fromEnv(t *testing.T) (length time.Duration, seed uint64) {
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

func newCampaign(t *testing.T) *campaign {
	t.Helper()
	length, seed := fromEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := &campaign{
		t: t, ctx: ctx, cancel: cancel, seed: seed, length: length, random: rand.New(rand.NewPCG(seed, 0)),
		kept: map[string]*faultRecord{}, ends: map[string]int{}, gone: make(chan struct{}),
	}
	t.Cleanup(cancel)
	return c
}

// hold is how long a fault lasts: up to so long in a soak of an hour, less in a short one.
func (c *campaign) hold(most time.Duration) time.Duration {
	if c.length < 20*time.Minute {
		most = min(most, 4*time.Second)
	}
	return 500*time.Millisecond + time.Duration(c.random.Int64N(int64(most)))
}

// rest waits between faults.
func (c *campaign) rest(most time.Duration) {
	pause(c.ctx, time.Duration(c.random.Int64N(int64(most))))
}

// died notes that a process has ended by itself.
func (c *campaign) died(p *process, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends[fmt.Sprintf("%s in %q", p.name, c.spoke)]++
	if !c.fatal {
		c.t.Errorf("%s ended by itself in %q: %s\n%s", p.name, c.spoke, how, strings.Join(tail(p.log, 15), "\n"))
	}
}

func tail(path string, n int) []string {
	text, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[max(0, len(lines)-n):]
}

// begin begins the traffic through these addresses. Answers are parted as [soak] says.
func (c *campaign) begin(doors []*command.Client, parted bool) {
	c.kinds = c.chosen()
	c.soak = newSoak(c.seed, 6, doors, c.t.Logf)
	c.soak.parted = parted
	c.began = time.Now()
	go func() {
		defer close(c.gone)
		c.soak.run(c.ctx, 40*time.Millisecond)
	}()
	if err := c.soak.equalWithin(c.ctx, recoveryTime); err != nil {
		c.t.Fatalf("before any fault: %v", err)
	}
}

// recoveryTime is how long it may take until everything is answered exactly again after a fault was
// healed.
const recoveryTime = 4 * time.Minute

// do injects a fault, and has everything compared when it is healed.
func (c *campaign) do(kind faultKind) bool {
	c.mu.Lock()
	r := c.kept[kind.name]
	if r == nil {
		r = &faultRecord{}
		c.kept[kind.name] = r
	}
	r.injected++
	c.spoke, c.fatal = kind.name, kind.ends
	c.mu.Unlock()
	c.soak.writes.begin()
	c.soak.reads.begin()
	began := time.Now()
	from := map[*process]int64{}
	for _, p := range c.processes {
		from[p] = p.logSize()
	}
	proof, err := kind.strike()
	if err != nil {
		c.t.Errorf("%s: not proven: %v", kind.name, err)
	} else {
		r.fired++
		r.proof = proof
	}
	healed := time.Now()
	err = c.soak.equalWithin(c.ctx, recoveryTime)
	r.recovery = max(r.recovery, time.Since(healed))
	r.withoutWrite = max(r.withoutWrite, c.soak.writes.longest())
	r.withoutRead = max(r.withoutRead, c.soak.reads.longest())
	c.t.Logf("%8v %s: %s; lasted %v, without a write %v, without a read %v, all compared after %v", time.Since(c.began).Round(time.Second),
		kind.name, proof, healed.Sub(began).Round(time.Millisecond), c.soak.writes.longest().Round(time.Millisecond),
		c.soak.reads.longest().Round(time.Millisecond), time.Since(healed).Round(time.Millisecond))
	if err != nil {
		c.t.Errorf("%s: %v", kind.name, err)
	}
	if time.Since(healed) > 20*time.Second { // it is asked why
		for _, p := range c.processes {
			if lines := p.said(from[p], "level=ERROR", "rebuilt"); len(lines) > 0 {
				c.t.Logf("%s said:\n%s", p.name, strings.Join(lines[max(0, len(lines)-10):], "\n"))
			}
		}
	}
	lost, wrong, undocumented := c.soak.verdict()
	if err != nil || lost+wrong+undocumented > 0 || c.ctx.Err() != nil {
		for _, p := range c.processes {
			c.t.Logf("the end of the log of %s:\n%s", p.name, strings.Join(tail(p.log, 40), "\n"))
		}
		return false
	}
	return true
}

// chosen returns the kinds that SKEIN_FAULTS_ONLY names; all if it is empty.
func (c *campaign) chosen() (kinds []faultKind) {
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

// torment injects faults of all kinds, in rounds of another order each, until the time is up and
// every kind was there. It ends early, and returns false, when something was found.
func (c *campaign) torment() bool {
	for round := 0; round == 0 || time.Since(c.began) < c.length; round++ {
		for _, i := range c.random.Perm(len(c.kinds)) {
			if round > 0 && time.Since(c.began) >= c.length {
				return true
			}
			if !c.do(c.kinds[i]) {
				return false
			}
			c.rest(2 * time.Second)
		}
	}
	return true
}

// end ends the traffic with everything acknowledged and compared, and has every projection verified
// against the log.
func (c *campaign) end(well bool, verify func() (string, error)) {
	if !well {
		c.cancel()
		<-c.gone
		c.t.Fatal("\n" + c.report(time.Since(c.began), "something was found before the end"))
	}
	c.mu.Lock()
	c.spoke, c.fatal = "the end", false
	c.mu.Unlock()
	if err := c.soak.equalWithin(c.ctx, recoveryTime); err != nil {
		c.t.Error(err)
	}
	c.soak.gate.Lock() // nothing is under way
	took := time.Since(c.began)
	verified, err := verify()
	if err != nil {
		c.t.Errorf("verify: %v: %s", err, verified)
	}
	c.cancel()
	c.soak.gate.Unlock()
	<-c.gone
	lost, wrong, undocumented := c.soak.verdict()
	if lost+wrong+undocumented > 0 {
		c.t.Errorf("lost %d, wrong %d, undocumented %d:\n%s", lost, wrong, undocumented, strings.Join(c.soak.examples, "\n"))
	}
	text := c.report(took, verified)
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

// report is the report in Markdown.
func (c *campaign) report(took time.Duration, verified string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\nSeed %d, %v, %s/%s, %d cores.\n\n", c.t.Name(), c.seed, took.Round(time.Second), runtime.GOOS,
		runtime.GOARCH, runtime.NumCPU())
	b.WriteString("| fault | injected | proven | proof of the last | longest without a write | … without a read | all compared after |\n")
	b.WriteString("|---|---:|---:|---|---:|---:|---:|\n")
	injected, fired := 0, 0
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	for _, name := range slices.Sorted(maps.Keys(c.kept)) {
		r := c.kept[name]
		injected += r.injected
		fired += r.fired
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %s | %s | %s |\n", name, r.injected, r.fired, r.proof, seconds(r.withoutWrite),
			seconds(r.withoutRead), seconds(r.recovery))
	}
	fmt.Fprintf(&b, "| all | %d | %d | | | | |\n\n", injected, fired)
	starts := map[string]int{}
	for _, p := range c.processes {
		starts[p.name] = p.started
	}
	b.WriteString(tableOf("process", starts) + "\n")
	if len(c.ends) > 0 {
		b.WriteString(tableOf("ended by itself", c.ends) + "\n")
	}
	fmt.Fprintf(&b, "%s\nAt the end:\n\n```\n%s\n```\n", c.soak.report(), strings.TrimSpace(verified))
	return b.String()
}

func (m *meter) longest() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.worst, time.Since(m.last))
}
