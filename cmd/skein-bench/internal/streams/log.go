package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
)

const (
	// messageBytes is the size of an envelope of a thousand plays.
	messageBytes = 36_000
	// manyUnderWay is the number of publishes under way when the stream is saturated. A process of skein has one under way.
	manyUnderWay = 64
	// pacedBytes a second are published when readers are meant to keep up.
	pacedBytes = 3_000_000
	mega, giga = 1e6, 1e9
)

// bench is one run of the group.
type bench struct {
	*measure.Bench

	servers *programs.NATS
}

// figure is one of several that a run gives. Each is a row of the report.
type figure struct {
	title, unit string
	measure.Measurement
}

// Log measures a stream with three replicas as the log of many nodes: the rate at which it takes messages, what readers cost its
// servers, and how long a killed leader interrupts it.
func Log(ctx context.Context, b *measure.Bench) (err error) {
	l := bench{Bench: b}
	if l.servers, err = programs.StartNATS(ctx, b); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.servers.Close()) }()
	readers := []int{1, 8, 32}
	if b.Opts.Quick {
		readers = []int{2}
	}
	for _, n := range []int{1, 8, manyUnderWay} {
		if err := l.tails(ctx, load{underWay: n}, 0, ways[:1]); err != nil {
			return err
		}
	}
	for _, n := range readers {
		if err := l.tails(ctx, load{underWay: manyUnderWay}, n, ways[:]); err != nil {
			return err
		}
	}
	paced := load{underWay: 256, rate: pacedBytes / messageBytes}
	for _, n := range slices.Concat([]int{0}, readers) {
		if err := l.tails(ctx, paced, n, ways[:]); err != nil {
			return err
		}
	}
	if err := l.wholes(ctx, readers); err != nil {
		return err
	}
	return l.failover(ctx, readers[len(readers)-1])
}

// inTurn measures ways in turn. The figures that they return become rows.
func (l *bench) inTurn(ctx context.Context, id, title string, ws []way, run func(context.Context, way) ([]figure, error)) error {
	var rows []*measure.Row
	var contenders []measure.Contender
	for _, w := range ws {
		contenders = append(contenders, measure.Contender{Name: w.name, Measure: func(ctx context.Context) (m measure.Measurement, err error) {
			figures, err := run(ctx, w)
			if err != nil {
				return m, err
			}
			for i, f := range figures {
				if i == len(rows) {
					rows = append(rows, l.Row(fmt.Sprintf("%s-%d", id, i+1), title+": "+f.title, f.unit, ""))
				}
				rows[i].SeriesOf(w.name).Add(f.Measurement)
			}
			return figures[0].Measurement, nil
		}})
	}
	if err := l.Alternate(ctx, &measure.Row{ID: id}, contenders...); err != nil {
		return err
	}
	for _, row := range rows {
		row.Compare(ws[0].name, "", 0, false)
		switch {
		case len(ws) == 1:
		case row.SeriesOf(ws[0].name).Median == 0: // there is no ratio to it
			row.Compare(ws[1].name, "", 0, false)
		default:
			row.Compare(ws[1].name, ws[0].name, 0, false)
		}
	}
	return nil
}

// tails measures n readers at the end of a stream while others write to it.
func (l *bench) tails(ctx context.Context, p load, n int, ws []way) error {
	id, title := fmt.Sprintf("log-%d-under-way-%d-readers", p.underWay, n), fmt.Sprintf("%d publishes under way, %d readers", p.underWay, n)
	if p.rate > 0 {
		id, title = fmt.Sprintf("log-paced-%d-readers", n), fmt.Sprintf("%s MB/s published, %d readers", measure.Figure(pacedBytes/mega), n)
	}
	return l.inTurn(ctx, id, title, ws, func(ctx context.Context, w way) ([]figure, error) { return l.tail(ctx, w, p, n) })
}

func (l *bench) tail(ctx context.Context, w way, p load, n int) (_ []figure, err error) {
	s, err := newStream(ctx, l.servers, w.republished)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.remove(ctx)) }()
	lags := make([][]float64, n)
	rs, err := s.read(ctx, w, n, func(reader int, _ uint64, body []byte) {
		lags[reader] = append(lags[reader], measure.Micros(time.Since(sentAt(body))))
	})
	if err != nil {
		return nil, err
	}
	defer rs.close()
	before, err := l.servers.Usage(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	took, err := s.publishFor(ctx, l.Opts.Time, p)
	if err == nil && p.rate > 0 {
		err = rs.await(ctx, s.last.Load())
	}
	if err != nil {
		return nil, err
	}
	seconds := time.Since(begin).Seconds()
	after, err := l.servers.Usage(ctx)
	if err != nil {
		return nil, err
	}
	rs.close()
	written := float64(s.last.Load()) * messageBytes
	cpu, disk, between := difference(before, after)
	took.Value = written / mega / seconds
	figures := []figure{
		{"written, acknowledged after", "MB/s", took},
		{"processor time of the servers", "s/GB written", measure.Measurement{Value: cpu / written * giga}},
		{"sent between servers", "GB/GB written", measure.Measurement{Value: between / written}},
		{"written to disk", "GB/GB written", measure.Measurement{Value: disk / written}},
	}
	all := slices.Concat(lags...)
	if len(all) == 0 {
		return figures, nil
	}
	lag := measure.Latency(all)
	lag.Value = float64(len(all)) * messageBytes / mega / seconds
	return append(figures, figure{"read by all, after sending", "MB/s", lag},
		figure{"read by direct gets", "%", measure.Measurement{Value: 100 * float64(rs.fetched()) / float64(len(all))}}), nil
}

// difference returns what all servers used between two moments: seconds, and bytes to disk and between servers.
func difference(before, after [programs.NATSServers]programs.NATSUsage) (cpu, disk, between float64) {
	for n := range before {
		cpu += after[n].CPU - before[n].CPU
		disk += after[n].Disk - before[n].Disk
		between += after[n].Servers - before[n].Servers
	}
	return cpu, disk, between
}

// wholes measures readers that begin at the start of a long stream while nothing is written to it.
func (l *bench) wholes(ctx context.Context, readers []int) (err error) {
	s, err := newStream(ctx, l.servers, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.remove(ctx)) }()
	l.Say("publishing %s bytes", measure.Figure(float64(l.Opts.LogBytes)))
	for int(s.last.Load())*messageBytes < l.Opts.LogBytes {
		if _, err := s.publishFor(ctx, time.Second/10, load{underWay: manyUnderWay}); err != nil {
			return err
		}
	}
	for _, n := range readers {
		id, title := fmt.Sprintf("log-whole-%d-readers", n), fmt.Sprintf("%d readers, each of a whole stream", n)
		run := func(ctx context.Context, w way) ([]figure, error) { return l.whole(ctx, s, w, n) }
		if err := l.inTurn(ctx, id, title, ways[:], run); err != nil {
			return err
		}
	}
	return nil
}

func (l *bench) whole(ctx context.Context, s *stream, w way, n int) ([]figure, error) {
	leader, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	before, err := l.servers.Usage(ctx)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	rs, err := s.read(ctx, w, n, nil)
	if err != nil {
		return nil, err
	}
	defer rs.close()
	if err := rs.await(ctx, s.last.Load()); err != nil {
		return nil, err
	}
	seconds := time.Since(begin).Seconds()
	after, err := l.servers.Usage(ctx)
	if err != nil {
		return nil, err
	}
	read := float64(s.last.Load()) * messageBytes * float64(n)
	cpu, _, between := difference(before, after)
	ofLeader := (after[leader].CPU - before[leader].CPU) / cpu
	return []figure{
		{"read by all", "MB/s", measure.Measurement{Value: read / mega / seconds}},
		{"processor time of the servers", "s/GB read", measure.Measurement{Value: cpu / read * giga}},
		{"sent between servers", "GB/GB read", measure.Measurement{Value: between / read}},
		{"processor time of the leader", "% of that of all servers", measure.Measurement{Value: 100 * ofLeader}},
	}, nil
}
