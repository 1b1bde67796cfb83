package audit

import (
	"context"
	"errors"
	"time"

	"github.com/skein-feed/skein/events"
)

const (
	// batch is the number of recently written entities that are checked at one position.
	batch = 64
	// work is the shortest work that is worth a rest.
	work = 5 * time.Millisecond
	// latelyMost is the time after which no other batch of recently written entities is begun. Then the round continues for as long as
	// these took, at least for stretchLeast, so that a load which never ends does not stop the round.
	latelyMost   = 10 * time.Second
	stretchLeast = 250 * time.Millisecond
)

// rester returns a function that rests between pieces of an audit, as the pace demands. The time in which the audit waits for a
// position is not work. Work that is too short to rest for is carried over to the next audit.
func (a *Auditor) rester(audit *Audit) func(context.Context) error {
	since, waited := time.Now(), audit.Waited
	return func(ctx context.Context) error {
		a.owed += time.Since(since) - (audit.Waited - waited)
		err := ctx.Err()
		if a.owed >= work {
			err = audit.pause(ctx, a.pace.Pause(a.owed))
			a.owed = 0
		}
		since, waited = time.Now(), audit.Waited
		return err
	}
}

// audit goes round all shards, without end. Before each stretch of shards it checks the recently written entities.
func (a *Auditor) audit(ctx context.Context) error {
	for {
		began := time.Now()
		for shard := events.Shard(0); shard < events.NumShards; {
			if err := a.retry(ctx); err != nil {
				return named("repair what has waited", err)
			}
			began := time.Now()
			if err := a.lately(ctx); err != nil {
				return named("audit what was written lately", err)
			}
			next, err := a.stretch(ctx, shard, max(time.Since(began), stretchLeast))
			if err != nil {
				return named("audit a partition", err)
			}
			shard = next
		}
		a.mu.Lock()
		a.status.Rounds++
		a.status.LastRound, a.status.LastTook = time.Now(), time.Since(began)
		clear(a.unexplained)
		a.mu.Unlock()
		a.observe()
		if err := a.pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits between two rounds, so that small stores are not audited all the time. A write ends it.
func (a *Auditor) pause(ctx context.Context) error {
	timer := time.NewTimer(a.pace.Pause(time.Second))
	defer timer.Stop()
	select {
	case <-a.written:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stretch audits the first shard with rows, at or after shard, and continues with the shards after it for as long as most. Most shards
// have few rows, and finding a common position costs more than auditing such a shard. stretch returns the shard that is next.
func (a *Auditor) stretch(ctx context.Context, shard events.Shard, most time.Duration) (next events.Shard, err error) {
	audit, err := a.open(ctx, a.round())
	if err != nil {
		return shard, err
	}
	began := time.Now()
	audit.Rest = a.rester(audit)
	for next = shard; err == nil && time.Since(began) < most; next++ {
		if next, err = audit.NextShard(next); err != nil || next == events.NumShards {
			break
		}
		a.note(func(s *Status) { s.Partition = int(next.Partition()) })
		err = audit.Shard(ctx, next)
	}
	err = errors.Join(err, audit.rest(ctx))
	a.note(func(s *Status) { s.Checks += audit.Checks })
	found := audit.Findings()
	if err := errors.Join(err, audit.Close()); err != nil {
		return shard, err
	}
	return next, a.handle(ctx, found)
}

// lately checks recently written entities, until there are none or latelyMost is over.
func (a *Auditor) lately(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < latelyMost; {
		entities := a.take(batch)
		if len(entities) == 0 {
			return nil
		}
		found, err := a.check(ctx, entities, a.cfg.Limits)
		if err != nil {
			return err
		}
		if err := a.handle(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// whole returns the limits of the round: only feeds are limited.
func (a *Auditor) whole() Limits { return Limits{Feed: a.cfg.Limits.Feed} }

// Turns is the number of rounds in which every feed and the other side of every entry of a list are read: they are four fifths of a
// round that reads all (BenchmarkRound).
const Turns = 16

// round are the limits of this round.
func (a *Auditor) round() Limits {
	l := a.whole()
	a.mu.Lock()
	defer a.mu.Unlock()
	l.Turn, l.Turns = (a.firstTurn+a.status.Rounds)%Turns, Turns
	return l
}

// check checks entities at a new common position, and returns the findings.
func (a *Auditor) check(ctx context.Context, entities []Entity, limits Limits) (found []Finding, err error) {
	audit, err := a.open(ctx, limits)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, audit.Close()) }()
	audit.Rest = a.rester(audit)
	defer func() { a.note(func(s *Status) { s.Checks += audit.Checks }) }()
	for _, e := range entities {
		if err := audit.Check(ctx, e); err != nil {
			return nil, err
		}
	}
	return audit.Findings(), nil
}
