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
	// worldDivisor is how many times smaller the graph is than that of other rows, because it is
	// loaded into all projections.
	worldDivisor = 5
	// readRateShare is the share of the saturation rate of a method at which its calls are timed.
	// The saturation rate is reached if each connection sends the next call after the answer.
	// Beyond a third of it, times would mostly show how calls queue, and not how long the service
	// works.
	readRateShare = 0.2
	// writeRateShare is the share of the greatest rate of writes at which events are written in the
	// background.
	writeRateShare = 0.1
	// maxLateMillis is the greatest p99 of the delays with which the client itself starts calls.
	// Beyond it, a measurement is void.
	maxLateMillis = 1.0
	// eventsPerWrite is how many events a call in the background publishes.
	eventsPerWrite = 10
	// writeWorkers is how many of these calls can be under way at the same time.
	writeWorkers = 8
	// throttledShare is the share of a core of the rebuilds in the scenario with throttled
	// rebuilds.
	throttledShare = 0.25
	// decodedAnswers is how many answers of each method are decoded and checked before calls are
	// timed.
	decodedAnswers = 100
)

// The names of the scenarios.
const (
	scenarioQuiet            = "quiet"
	scenarioWrites           = "writes"
	scenarioAtLeast          = "at_least"
	scenarioRebuild          = "rebuild"
	scenarioThrottledRebuild = "rebuild, a quarter of a core"
)

// scenario is what happens in the background while calls are timed.
type scenario struct {
	name string
	// writes says that events are written.
	writes bool
	// atLeast says that each call asks for an answer that contains the last write.
	atLeast bool
	// rebuild says that the projection that answers is rebuilt, again and again.
	rebuild bool
	// share is the share of a core that the rebuilds may use; 0 does not limit them.
	share float64
}

// scenarios returns all scenarios, in the order of the table.
func scenarios() []scenario {
	return []scenario{
		{name: scenarioQuiet},
		{name: scenarioWrites, writes: true},
		{name: scenarioAtLeast, writes: true, atLeast: true},
		{name: scenarioRebuild, rebuild: true},
		{name: scenarioThrottledRebuild, rebuild: true, share: throttledShare},
	}
}

// timedMethod is a method with its encoded calls and its row.
type timedMethod struct {
	readMethod
	calls *programs.EncodedCalls
	row   *measure.Row
}

// latencyBench is one run of the group latency.
type latencyBench struct {
	*measure.Bench
	world *loadWorld
	// cores is nil if the service and its client share all cores.
	cores   *programs.Cores
	skein   *programs.Skein
	conns   programs.CallConns
	methods []*timedMethod
	random  *rand.Rand
	// peakWriteRate is how many events per second the service can take, until every projection
	// shows them.
	peakWriteRate float64
	// writtenEvents is how many events were written, so that the next ones are new.
	writtenEvents int
	// timePerMethod is how long the calls of a method are timed in each scenario.
	timePerMethod time.Duration
	// voidCount is how many measurements do not count.
	voidCount int
	// finishedRebuilds is how many rebuilds in the background have succeeded.
	finishedRebuilds int
}

// MeasureUnderLoad measures the latencies of all methods that read, in several scenarios, at a
// fifth of the rate that the service can reach. The service and its client have cores of their own
// if the machine has several.
func MeasureUnderLoad(ctx context.Context, b *measure.Bench) (err error) {
	users := max(1000, b.Opts.Users/worldDivisor)
	l := &latencyBench{
		Bench:         b,
		timePerMethod: b.Opts.Time,
		cores:         programs.DivideCores(),
		random:        rand.New(rand.NewPCG(71, 0)),
	}
	if b.Opts.Quick {
		l.timePerMethod /= 20 // there are more than a hundred measurements
	}
	b.Logf("making a world of %d users and %d follows", users, b.Opts.Edges/worldDivisor)
	l.world = newLoadWorld(users, b.Opts.Edges/worldDivisor, time.Now())

	// The service starts on its own cores. Then this process, which is the client, is confined to
	// the others.
	if l.cores != nil {
		b.ServeOn = l.cores.Service
		defer func() { b.ServeOn = "" }()
	}
	l.skein, err = programs.StartEmptySkein(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.skein.Close()) }()
	if l.cores != nil {
		var release func() error
		release, err = l.cores.ConfineToClient(ctx)
		if err != nil {
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
	l.conns, err = programs.DialCallConns(ctx, l.skein.Addr, connections)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.conns.Close()) }()
	if err := l.findReadRates(ctx); err != nil {
		return err
	}

	// In a random order, what changes on the machine in the meantime affects all scenarios alike.
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

// shuffled returns a copy of a list in a random order.
func shuffled[T any](r *rand.Rand, all []T) []T {
	all = slices.Clone(all)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// findReadRates measures the saturation rate of each method, while events are written, and adds the
// rows of all methods.
func (l *latencyBench) findReadRates(ctx context.Context) (err error) {
	w := l.startWrites(ctx)
	defer func() { err = errors.Join(err, w.stop(l)) }()
	for _, m := range l.world.methods() {
		t := &timedMethod{readMethod: m}
		t.calls, err = programs.EncodeCalls(l.skein.Addr, m.procedure, programs.Protobuf(), m.requests)
		if err != nil {
			return err
		}
		entries, err := l.averageEntries(t)
		if err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}

		rate, err := measure.ClosedLoop(ctx, l.timePerMethod/2, len(l.conns), l.methodCaller(t, func() string { return "" }))
		if err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}

		t.row = l.AddRow("latency-"+m.id, m.title, "ms, p99", "")
		t.row.Load = &measure.Load{Saturated: rate, Rate: rate * readRateShare, Entries: entries}
		for _, c := range scenarios() {
			t.row.SeriesOf(c.name) // adds the series in the order of the table
		}
		l.Logf("  %-22s %s calls/s saturated", t.row.ID, measure.FormatFigure(rate))
		l.methods = append(l.methods, t)
	}
	return nil
}

// findWriteRate measures how many events per second the service can take, until every projection
// shows them, and adds the row of writes.
func (l *latencyBench) findWriteRate(ctx context.Context) error {
	n := max(1000, l.Opts.Follows/10)
	sequences := dealCalls(groupIntoCalls(l.world.writtenEvents(0, n), ingestPipeline), ingestConnections)
	begin := time.Now()
	if err := l.skein.PublishSequences(ctx, sequences); err != nil {
		return err
	}
	m := measure.RateSince(n, begin)
	l.peakWriteRate = m.Value
	l.writtenEvents = n

	row := l.AddRow("latency-peak", "writes until visible in every projection, 2 connections × 50", "events/s", fmt.Sprintf(
		"%d events of all kinds: of ten five plays, two likes, two follows, and a pin. Latencies are measured while a tenth of it is "+
			"written.", n))
	row.SeriesOf(measure.Skein).Add(m)
	row.Compare(measure.Skein, "", 0, false)
	l.Logf("  %-22s %s events/s", row.ID, measure.FormatFigure(m.Value))
	return nil
}

// averageEntries makes some calls and returns how many entries an answer has on average. It returns
// an error if all answers are empty, because their times would say nothing.
func (l *latencyBench) averageEntries(m *timedMethod) (average float64, err error) {
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

// methodCaller returns a function that makes the i-th call of a method over the connection of a
// worker. The function atLeast returns the position that the answer must contain; it is empty if
// any position will do.
func (l *latencyBench) methodCaller(m *timedMethod, atLeast func() string) func(ctx context.Context, worker, i int) error {
	return func(_ context.Context, worker, i int) error {
		return l.conns[worker].Call(m.calls, i, atLeast(), nil)
	}
}

// timeAllMethods times the calls of all methods in a scenario.
func (l *latencyBench) timeAllMethods(ctx context.Context, c scenario) (err error) {
	atLeast := func() string { return "" }
	if c.writes {
		w := l.startWrites(ctx)
		defer func() { err = errors.Join(err, w.stop(l)) }()
		if c.atLeast {
			atLeast = w.newestPosition
		}
	}

	// The rebuilder rebuilds the projection of the methods that are timed. It is nil if none is
	// rebuilt.
	var rebuilds *rebuilder
	rebuiltProjection := ""
	stopRebuilds := func() error {
		if rebuilds == nil {
			return nil
		}
		err := rebuilds.stop(ctx)
		l.finishedRebuilds += int(rebuilds.finished.Load())
		rebuilds = nil
		return err
	}
	defer func() { err = errors.Join(err, stopRebuilds()) }()

	for _, m := range l.shuffledMethods() {
		if c.rebuild && m.projection != rebuiltProjection {
			if err := stopRebuilds(); err != nil {
				return err
			}
			rebuilds, err = l.startRebuilds(ctx, m.projection, c.share)
			if err != nil {
				return err
			}
			rebuiltProjection = m.projection
		}
		if err := l.timeMethod(ctx, c, m, atLeast); err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}
	}
	return nil
}

// shuffledMethods returns the methods in a random order in which those of the same projection
// follow each other, so that rebuilds change seldom.
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

// timeMethod times the calls of a method, and adds the measurement to the series of the scenario.
func (l *latencyBench) timeMethod(ctx context.Context, c scenario, m *timedMethod, atLeast func() string) error {
	var loop measure.OpenLoop
	moments := measure.PoissonMoments(m.row.Load.Rate, l.timePerMethod, l.random.Uint64())
	if err := loop.Run(ctx, moments, len(l.conns), l.methodCaller(m, atLeast)); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}

	series := m.row.SeriesOf(c.name)
	p50 := loop.AnswerTimes.Milliseconds(50)
	p99 := loop.AnswerTimes.Milliseconds(99)
	p999 := loop.AnswerTimes.Milliseconds(99.9)
	late := loop.StartDelays.Milliseconds(99)
	l.Logf("  %-22s %-30s %s / %s / %s ms of %d; the client was late by %s", m.row.ID, c.name,
		measure.FormatFigure(p50), measure.FormatFigure(p99), measure.FormatFigure(p999), loop.AnswerTimes.Count(), measure.FormatFigure(late))

	// A smoke test measures nothing, so the client may be late. In its short time, there may be no
	// call at all at a low rate.
	if late > maxLateMillis && !l.Opts.Quick || loop.AnswerTimes.Count() == 0 {
		series.Void++
		l.voidCount++
		return nil
	}
	series.Add(measure.Measurement{Value: p99, P50: p50, P99: p99, P999: p999, WorstSecond: loop.WorstSecond(99)})
	return nil
}

// finishRows compares each scenario with the quiet one, and writes the note below the table.
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
		connections, cores, l.timePerMethod/2, l.timePerMethod, l.Opts.Runs, l.voidCount, measure.FormatFigure(maxLateMillis),
		scenarioWrites, measure.FormatFigure(l.peakWriteRate*writeRateShare),
		eventsPerWrite, scenarioAtLeast, scenarioRebuild, l.finishedRebuilds, scenarioThrottledRebuild, throttledShare)
}
