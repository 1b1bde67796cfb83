package serving

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
)

const (
	// worldDivisor is how much smaller than the graph of other rows the world is: it is loaded into all projections.
	worldDivisor = 5
	// readRateShare is the part of the saturation rate, writeRateShare of that of writes, at which is measured. Queues beyond a third of
	// the saturation are those of the load, not of the service.
	readRateShare, writeRateShare = 0.2, 0.1
	// maxLateMillis is by how many milliseconds the client may miss 99 of 100 moments: beyond it a measurement is void.
	maxLateMillis = 1.0
	// eventsPerWrite is how many events a call publishes, writeWorkers how many such calls are under way at most.
	eventsPerWrite, writeWorkers = 10, 8
	// throttledShare is what --share of a rebuild is also measured.
	throttledShare = 0.25
	// decodedAnswers of each method are decoded before anything is timed.
	decodedAnswers = 100
)

// The scenarios of calls.
const (
	scenarioQuiet            = "quiet"
	scenarioWrites           = "writes"
	scenarioAtLeast          = "at_least"
	scenarioRebuild          = "rebuild"
	scenarioThrottledRebuild = "rebuild, a quarter of a core"
	loadWritesName           = "skein"
)

// scenario is what continues while calls are timed.
type scenario struct {
	name string
	// writes continue; atLeast: each call asks for the position that a write returned last.
	writes, atLeast bool
	// rebuild: the projection that answers is rebuilt, again and again, with that share of a core; 0 means the default.
	rebuild bool
	share   float64
}

func scenarios() []scenario {
	return []scenario{
		{name: scenarioQuiet},
		{name: scenarioWrites, writes: true},
		{name: scenarioAtLeast, writes: true, atLeast: true},
		{name: scenarioRebuild, rebuild: true},
		{name: scenarioThrottledRebuild, rebuild: true, share: throttledShare},
	}
}

// timedMethod is a method whose calls are timed.
type timedMethod struct {
	readMethod
	calls *programs.EncodedCalls
	row   *measure.Row
}

// latencyBench is one run of the group.
type latencyBench struct {
	*measure.Bench
	world   *loadWorld
	cores   *programs.Cores
	skein   *programs.Skein
	conns   programs.CallConns
	methods []*timedMethod
	random  *rand.Rand
	// peak is how many events a second are written, and visible everywhere.
	peakWriteRate float64
	// written is how many events were written.
	written int
	// each is how long the calls of a method are timed in each scenario.
	timePerMethod time.Duration
	// void is how many measurements do not count, rebuilds how many ended.
	void, rebuilds int
}

// UnderLoad measures the latencies of all methods that read at a fifth of their saturation rates, in several scenarios. The
// service and its client have cores of their own, where the machine can give them.
func UnderLoad(ctx context.Context, b *measure.Bench) (err error) {
	users := max(1000, b.Opts.Users/worldDivisor)
	l := &latencyBench{Bench: b, timePerMethod: b.Opts.Time, cores: programs.DivideCores(), random: rand.New(rand.NewPCG(71, 0))}
	if b.Opts.Quick {
		l.timePerMethod /= 20 // there are a hundred of them
	}
	b.Say("making a world of %d users and %d follows", users, b.Opts.Edges/worldDivisor)
	l.world = newLoadWorld(users, b.Opts.Edges/worldDivisor, time.Now())
	if l.cores != nil {
		b.ServeOn = l.cores.Service
		defer func() { b.ServeOn = "" }()
	}
	if l.skein, err = programs.StartEmptySkein(ctx, b); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.skein.Close()) }()
	if l.cores != nil {
		var release func() error
		if release, err = l.cores.ConfineToClient(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release()) }()
	}
	if err := l.world.load(ctx, l.skein); err != nil {
		return err
	}
	if err := l.findWriteRate(ctx); err != nil {
		return err
	}
	if l.conns, err = programs.DialCallConns(ctx, l.skein.Addr, connections); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.conns.Close()) }()
	if err := l.findReadRates(ctx); err != nil {
		return err
	}
	// What drifts on the machine meets all alike.
	for range b.Opts.Runs {
		for _, c := range shuffled(l.random, scenarios()) {
			if err := l.timeAllMethods(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	l.finishRows()
	return nil
}

func shuffled[T any](r *rand.Rand, all []T) []T {
	all = slices.Clone(all)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// findReadRates finds the rates of reads that are reached beside writes when the next call follows the answer.
func (l *latencyBench) findReadRates(ctx context.Context) (err error) {
	w := l.startWrites(ctx)
	defer func() { err = errors.Join(err, w.stop(l)) }()
	for _, m := range l.world.methods() {
		t := &timedMethod{readMethod: m}
		if t.calls, err = programs.EncodeCalls(l.skein.Addr, m.procedure, programs.Protobuf(), m.requests); err != nil {
			return err
		}
		each, err := l.averageEntries(t)
		if err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}
		rate, err := measure.ClosedLoop(ctx, l.timePerMethod/2, len(l.conns), l.caller(t, func() string { return "" }))
		if err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}
		t.row = l.Row("latency-"+m.id, m.title, "ms, p99", "")
		t.row.Load = &measure.Load{Saturated: rate, Rate: rate * readRateShare, Entries: each}
		for _, c := range scenarios() {
			t.row.SeriesOf(c.name) // the order of the table
		}
		l.Say("  %-22s %s calls/s saturated", t.row.ID, measure.Figure(rate))
		l.methods = append(l.methods, t)
	}
	return nil
}

// findWriteRate finds how many events a second are written until they are visible everywhere.
func (l *latencyBench) findWriteRate(ctx context.Context) error {
	n := max(1000, l.Opts.Follows/10)
	sequences := dealCalls(groupIntoCalls(l.world.writtenEvents(0, n), ingestPipeline), ingestConnections)
	begin := time.Now()
	if err := l.skein.PublishSequences(ctx, sequences); err != nil {
		return err
	}
	m := measure.Rate(n, begin)
	l.peakWriteRate, l.writtenEvents = m.Value, n
	row := l.Row("latency-peak", "writes until visible in every projection, 2 connections × 50", "events/s", fmt.Sprintf(
		"%d events of all kinds: of ten five plays, two likes, two follows, and a pin. Latencies are measured while a tenth of it is "+
			"written.", n))
	row.SeriesOf(loadWritesName).Add(m)
	row.Compare(loadWritesName, "", 0, false)
	l.Say("  %-22s %s events/s", row.ID, measure.Figure(m.Value))
	return nil
}

// check puts some calls and decodes the answers. It returns how many entries an answer has: none at all is an error, for it
// would measure nothing.
func (l *latencyBench) averageEntries(m *timedMethod) (each float64, err error) {
	total := 0
	for i := range decodedAnswers {
		var body bytes.Buffer
		if err := l.conns[i%len(l.conns)].Call(m.calls, i, "", &body); err != nil {
			return 0, err
		}
		answer := m.answer.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(body.Bytes(), answer); err != nil {
			return 0, err
		}
		total += countEntries(answer)
	}
	if total == 0 {
		return 0, errors.New("all answers are empty")
	}
	return float64(total) / decodedAnswers, nil
}

// call makes calls of a method, at a position.
func (l *latencyBench) caller(m *timedMethod, atLeast func() string) func(ctx context.Context, worker, i int) error {
	return func(_ context.Context, worker, i int) error {
		return l.conns[worker].Call(m.calls, i, atLeast(), nil)
	}
}

// all times the calls of all methods in some scenarios.
func (l *latencyBench) timeAllMethods(ctx context.Context, c scenario) (err error) {
	newest := func() string { return "" }
	if c.writes {
		w := l.startWrites(ctx)
		defer func() { err = errors.Join(err, w.stop(l)) }()
		if c.atLeast {
			newest = w.newestPosition
		}
	}
	var (
		building string
		r        *rebuilder
	)
	stop := func() error {
		if r == nil {
			return nil
		}
		err := r.stop(ctx)
		l.finishedRebuilds += int(r.finished.Load())
		r = nil
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, m := range l.shuffledMethods() {
		if c.rebuild && m.projection != building {
			if err := stop(); err != nil {
				return err
			}
			if r, err = l.startRebuilds(ctx, m.projection, c.share); err != nil {
				return err
			}
			building = m.projection
		}
		if err := l.timeMethod(ctx, c, m, newest); err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}
	}
	return nil
}

// order is a random one of the methods, in which those of a projection stay together.
func (l *latencyBench) shuffledMethods() []*timedMethod {
	rank := map[string]int{}
	for _, m := range l.methods {
		if _, ok := rank[m.projection]; !ok {
			rank[m.projection] = l.random.Int()
		}
	}
	all := shuffled(l.random, l.methods)
	slices.SortStableFunc(all, func(a, b *timedMethod) int { return cmp.Compare(rank[a.projection], rank[b.projection]) })
	return all
}

// time times the calls of a method.
func (l *latencyBench) timeMethod(ctx context.Context, c scenario, m *timedMethod, newest func() string) error {
	var loop measure.OpenLoop
	moments := measure.Poisson(m.row.Load.Rate, l.timePerMethod, l.random.Uint64())
	if err := loop.Run(ctx, moments, len(l.conns), l.caller(m, newest)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	series, p99, late := m.row.SeriesOf(c.name), loop.Took.MS(99), loop.Late.MS(99)
	l.Say("  %-22s %-30s %s / %s / %s ms of %d; the client was late by %s", m.row.ID, c.name,
		measure.Figure(loop.Took.MS(50)), measure.Figure(p99), measure.Figure(loop.Took.MS(99.9)), loop.Took.Count(), measure.Figure(late))
	if late > maxLateMillis && !l.Opts.Quick || loop.Took.Count() == 0 { // at a low rate there may be no call in a short time
		series.Void++
		l.voidCount++
		return nil
	}
	series.Add(measure.Measurement{
		Value: p99, P50: loop.Took.MS(50), P99: p99, P999: loop.Took.MS(99.9), WorstSecond: loop.WorstSecond(99),
	})
	return nil
}

// tell ends the rows.
func (l *latencyBench) finishRows() {
	for _, m := range l.methods {
		for _, c := range scenarios()[1:] {
			if len(m.row.SeriesOf(c.name).Values) > 0 && len(m.row.SeriesOf(scenarioQuiet).Values) > 0 {
				m.row.Compare(c.name, scenarioQuiet, 0, true)
			}
		}
	}
	cores := "The service and its client share all cores."
	if l.cores != nil {
		cores = fmt.Sprintf("The service has the cores %s, its client %s.", l.cores.Service, l.cores.Client)
	}
	l.methods[0].row.Note = fmt.Sprintf("p50 / p99 / p99.9 in ms of calls over HTTP/1.1 in protobuf, and the p99 of the worst second of "+
		"all runs; %d kept connections, by a client on the same machine that sends ready-made calls and drops the answers. %s Saturated: "+
		"the next call follows the answer, for %v, while writes go on. Then calls are due at random moments (Poisson) at a fifth of that "+
		"rate, for %v, %d times in shuffled order, and a call's time counts from its moment, however long it waits to be sent. %d "+
		"measurements are void, because the client missed 99 of 100 moments by more than %s ms. %q: %s events/s, a tenth of the peak, "+
		"go on being written in calls of %d. %q: each call asks for the position that the last such write returned. %q: the projection that "+
		"answers is rebuilt again and again, %d times in all, at full speed, as without --share; %q: with --share %.2f. Every call was answered.",
		connections, cores, l.timePerMethod/2, l.timePerMethod, l.Opts.Runs, l.voidCount, measure.Figure(maxLateMillis), scenarioWrites, measure.Figure(l.peakWriteRate*writeRateShare),
		eventsPerWrite, scenarioAtLeast, scenarioRebuild, l.finishedRebuilds, scenarioThrottledRebuild, throttledShare)
}
