package serving

import (
	"context"
	"errors"
	"slices"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// overTimePhase is how long each phase of [latencyBench.overTime] takes, in measurements of a method.
const overTimePhase = 8

// overTimeMethods are those of a home screen. They are called in turn.
func overTimeMethods() []string { return []string{"check", "filter", "followers", "feed-newest"} }

// overTime times calls of a home screen second by second: quiet, then beside writes, then while the graph is rebuilt as well.
func (l *latencyBench) overTime(ctx context.Context) (err error) {
	var methods []*timedMethod
	for _, m := range l.methods {
		if slices.Contains(overTimeMethods(), m.id) {
			methods = append(methods, m)
		}
	}
	phase := overTimePhase * l.each
	newest := func() string { return "" }
	call := func(ctx context.Context, worker, i int) error {
		return l.call(methods[i%len(methods)], newest)(ctx, worker, i/len(methods))
	}
	w := l.startWrites(ctx)
	saturated, err := measure.ClosedLoop(ctx, phase/10, len(l.wires), call)
	if err := errors.Join(err, w.stop(l)); err != nil {
		return err
	}
	timed := func(name string) error {
		var loop measure.OpenLoop
		if err := loop.Run(ctx, measure.Poisson(saturated*loadPart, phase, l.random.Uint64()), len(l.wires), call); err != nil {
			return err
		}
		p50, p99 := loop.BySecond(50), loop.BySecond(99)
		for i := range p50 {
			l.Report.Seconds = append(l.Report.Seconds, measure.Second{Beside: name, P50: p50[i], P99: p99[i]})
		}
		l.Say("  %-22s %-30s %s / %s ms", "latency-over-time", name, measure.Figure(loop.Took.MS(50)), measure.Figure(loop.Took.MS(99)))
		return ctx.Err()
	}
	if err := timed(quietly); err != nil {
		return err
	}
	w = l.startWrites(ctx)
	defer func() { err = errors.Join(err, w.stop(l)) }()
	if err := timed(amongWrites); err != nil {
		return err
	}
	r, err := l.startRebuilds(ctx, "graph", 0)
	if err != nil {
		return err
	}
	return errors.Join(timed(amongWrites+", "+whileRebuilt), r.stop(ctx))
}
