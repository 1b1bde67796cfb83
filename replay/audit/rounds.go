package audit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay/verify"
)

const (
	// batch is how many entities that were written lately are checked at one position.
	batch = 64
	// batches are checked at the most between two shards of the round.
	batches = 8
	// work is how long is audited between two rests.
	work = 5 * time.Millisecond
)

// rester rests between checks, as the pace demands.
func (a *Auditor) rester() func(context.Context) error {
	since := time.Now()
	return func(ctx context.Context) error {
		worked := time.Since(since)
		if worked < work {
			return ctx.Err()
		}
		err := a.pace.Rest(ctx, worked)
		since = time.Now()
		return err
	}
}

// audit goes round all shards, and before each checks what was written lately.
func (a *Auditor) audit(ctx context.Context) error {
	for {
		began := time.Now()
		for shard := range events.Shard(events.NumShards) {
			if err := a.lately(ctx); err != nil {
				return named("audit what was written lately", err)
			}
			a.note(func(s *Status) { s.Partition = int(shard.Partition()) })
			if err := a.shard(ctx, shard); err != nil {
				return named("audit a partition", err)
			}
		}
		a.mu.Lock()
		a.status.Rounds++
		a.status.LastRound, a.status.LastTook = time.Now(), time.Since(began)
		clear(a.unexplained)
		a.mu.Unlock()
		a.observe()
	}
}

// shard audits all that stands in a shard.
func (a *Auditor) shard(ctx context.Context, shard events.Shard) error {
	began := time.Now()
	audit, err := a.open(ctx, Limits{Feed: a.cfg.Limits.Feed})
	if err != nil {
		return err
	}
	audit.Rest = a.rester()
	err = audit.Shard(ctx, shard)
	a.note(func(s *Status) { s.Checks += audit.Checks })
	found := audit.Findings()
	if err := errors.Join(err, audit.Close()); err != nil {
		return err
	}
	if err := a.settle(ctx, found); err != nil {
		return err
	}
	// An empty shard costs something too.
	return a.pace.Rest(ctx, min(time.Since(began), work))
}

// lately checks what was written lately. Under a load that never ends the round goes on too.
func (a *Auditor) lately(ctx context.Context) error {
	for range batches {
		entities := a.take(batch)
		if len(entities) == 0 {
			return nil
		}
		found, err := a.check(ctx, entities)
		if err != nil {
			return err
		}
		if err := a.settle(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// check checks some entities at one position.
func (a *Auditor) check(ctx context.Context, entities []Entity) (found []Finding, err error) {
	audit, err := a.open(ctx, a.cfg.Limits)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, audit.Close()) }()
	audit.Rest = a.rester()
	defer func() { a.note(func(s *Status) { s.Checks += audit.Checks }) }()
	for _, e := range entities {
		if err := audit.Check(ctx, e); err != nil {
			return nil, err
		}
	}
	return audit.Findings(), nil
}

// settle sees to what was found: checks it again at another position, has the stores repaired, and checks again.
func (a *Auditor) settle(ctx context.Context, found []Finding) error {
	found, err := a.again(ctx, found)
	if err != nil || len(found) == 0 {
		return err
	}
	var stores []string
	for _, f := range found {
		a.cfg.Logger.Warn("the stores disagree", "finding", f.String())
		a.note(func(s *Status) {
			for _, name := range f.Stores {
				s.Findings[name]++
			}
			s.LastFinding = f.String()
		})
		stores = append(stores, f.Stores...)
	}
	slices.Sort(stores)
	order := repairOrder{slices.Compact(stores), make(chan repairOutcome, 1)}
	select {
	case a.repairs <- order:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case out := <-order.done:
		if out.err != nil {
			return out.err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	left, err := a.again(ctx, found)
	if err != nil {
		return err
	}
	for _, f := range left {
		a.cfg.Logger.Error("the stores are equal to the log and disagree still: a fold is wrong", "finding", f.String())
		a.mu.Lock()
		a.status.Unexplained++
		a.unexplained[f.Entity] = struct{}{}
		a.mu.Unlock()
		a.observe()
	}
	return nil
}

// again checks the entities of findings, but those that people know of.
func (a *Auditor) again(ctx context.Context, found []Finding) ([]Finding, error) {
	var entities []Entity
	a.mu.Lock()
	for _, f := range found {
		if _, known := a.unexplained[f.Entity]; !known && !slices.Contains(entities, f.Entity) {
			entities = append(entities, f.Entity)
		}
	}
	a.mu.Unlock()
	if len(entities) == 0 {
		return nil, nil
	}
	return a.check(ctx, entities)
}

// shadows verifies one projection after the other, round and round, and between them, at once, what is to be repaired.
func (a *Auditor) shadows(ctx context.Context) error {
	names := make([]string, 0, len(a.cfg.All))
	for name := range a.cfg.All {
		names = append(names, name)
	}
	slices.Sort(names)
	for at := 0; ; at = (at + 1) % len(names) {
		order, err := a.interruptible(ctx, names[at])
		if err != nil && !stopped(err) {
			return err
		}
		if err != nil {
			a.cfg.Logger.Warn("a store cannot be verified", "projection", names[at], "error", err)
			if err := a.pace.Rest(ctx, time.Second); err != nil {
				return err
			}
		}
		if order == nil {
			continue
		}
		at-- // the interrupted one comes again
		if at < 0 {
			at += len(names)
		}
		var out repairOutcome
		for _, name := range order.projections {
			n, err := a.repair(ctx, name, 1)
			out.repaired, out.err = out.repaired+n, errors.Join(out.err, err)
		}
		order.done <- out
	}
}

// interruptible verifies a projection at the pace, and breaks off when something is to be repaired.
func (a *Auditor) interruptible(ctx context.Context, name string) (*repairOrder, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var err error
	ended := make(chan struct{})
	wg.Go(func() {
		defer close(ended)
		if _, err = a.repair(within, name, a.pace.Share); err == nil {
			err = a.pace.Rest(within, time.Second) // a small store is not verified all the time
		}
	})
	select {
	case order := <-a.repairs:
		cancel()
		wg.Wait()
		return &order, nil
	case <-ended:
		return nil, err
	}
}

// repair verifies a projection and repairs what differs from the log.
func (a *Auditor) repair(ctx context.Context, name string, share float64) (uint64, error) {
	store, o := a.cfg.All[name], a.cfg.Shadow(name)
	o.Pace.Share = share
	o.Logger = a.cfg.Logger
	r, err := verify.Repair(ctx, store, o)
	if err != nil {
		return 0, err
	}
	if r.Differences > 0 {
		a.cfg.Logger.Warn("a store differed from the log", "report", r.String())
	}
	a.note(func(s *Status) {
		s.Differences[name] += r.Differences
		s.Repaired[name] += r.Repaired
		if r.Equal {
			s.Verified[name], s.VerifiedAt[name] = time.Now(), r.At
		}
	})
	a.observe()
	return r.Repaired, nil
}
