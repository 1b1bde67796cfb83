package audit

import (
	"context"
	"errors"
	"time"

	"github.com/skein-feed/skein/events"
)

const (
	// entitiesPerPosition is how many recently written entities are checked at one position.
	// Finding a common position makes the stores wait for each other, so several entities share
	// one.
	entitiesPerPosition = 64
	// minWork is the shortest work after which the auditor rests. Shorter rests would mostly cost
	// the wake-up.
	minWork = 5 * time.Millisecond
	// maxQueueTime is for how long recently written entities are checked at a time. Then the round
	// continues for as long as that took, but at least for minShardsTime, so that a load that never
	// ends does not stop the round.
	maxQueueTime  = 10 * time.Second
	minShardsTime = 250 * time.Millisecond
)

// newRest returns a function for [Audit].Rest that rests as the pace demands. The time in which the
// audit waits for a position does not count as work. Work that is too short for a rest counts at
// the next call, which may be that of the next audit.
func (a *Auditor) newRest(audit *Audit) func(context.Context) error {
	workStart := time.Now()
	waited := audit.Waited
	return func(ctx context.Context) error {
		a.unrestedWork += time.Since(workStart) - (audit.Waited - waited)
		err := ctx.Err()
		if a.unrestedWork >= minWork {
			err = audit.sleepUnlessClosing(ctx, a.pace.Pause(a.unrestedWork))
			a.unrestedWork = 0
		}
		workStart = time.Now()
		waited = audit.Waited
		return err
	}
}

// runRounds audits all shards in rounds, without end. Before each group of shards, it checks the
// recently written entities.
func (a *Auditor) runRounds(ctx context.Context) error {
	for {
		roundStart := time.Now()
		for shard := events.Shard(0); shard < events.NumShards; {
			if err := a.retryWaiting(ctx); err != nil {
				return wrapError("repair what has waited", err)
			}

			// Writes come first, because a user notices a wrong answer about them soonest.
			queueStart := time.Now()
			if err := a.checkQueued(ctx); err != nil {
				return wrapError("audit what was written lately", err)
			}

			next, err := a.auditShards(ctx, shard, max(time.Since(queueStart), minShardsTime))
			if err != nil {
				return wrapError("audit a partition", err)
			}
			shard = next
		}

		a.mu.Lock()
		a.status.Rounds++
		a.status.LastRound = time.Now()
		a.status.LastTook = time.Since(roundStart)
		clear(a.unexplained) // the next round logs again what is still wrong
		a.mu.Unlock()
		a.notifyObserver()

		if err := a.pauseBetweenRounds(ctx); err != nil {
			return err
		}
	}
}

// pauseBetweenRounds waits between two rounds, so that small stores are not audited without a
// pause. A write ends the wait.
func (a *Auditor) pauseBetweenRounds(ctx context.Context) error {
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

// auditShards audits the first shard with rows, at or after shard, and continues with the following
// shards until the time maxTime has passed. Most shards have few rows, and finding a common
// position costs more than auditing such a shard. It returns the shard to continue with.
func (a *Auditor) auditShards(
	ctx context.Context, shard events.Shard, maxTime time.Duration,
) (next events.Shard, err error) {
	audit, err := a.openAudit(ctx, a.nextRoundLimits())
	if err != nil {
		return shard, err
	}

	startTime := time.Now()
	audit.Rest = a.newRest(audit)
	for next = shard; err == nil && time.Since(startTime) < maxTime; next++ {
		next, err = audit.NextShard(next)
		if err != nil || next == events.NumShards {
			break
		}
		a.updateStatus(func(s *Status) { s.Partition = int(next.Partition()) })
		err = audit.Shard(ctx, next)
	}

	err = errors.Join(err, audit.rest(ctx)) // rest for the last shard
	a.updateStatus(func(s *Status) { s.Checks += audit.Checks })
	found := audit.Findings()
	if err := errors.Join(err, audit.Close()); err != nil {
		return shard, err
	}
	return next, a.handleFindings(ctx, found)
}

// checkQueued checks recently written entities until none are left or maxQueueTime is over.
func (a *Auditor) checkQueued(ctx context.Context) error {
	startTime := time.Now()
	for time.Since(startTime) < maxQueueTime {
		entities := a.takeQueued(entitiesPerPosition)
		if len(entities) == 0 {
			return nil
		}

		found, err := a.checkEntities(ctx, entities, a.cfg.Limits)
		if err != nil {
			return err
		}
		if err := a.handleFindings(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// roundLimits returns the limits of rounds: only feeds are limited.
func (a *Auditor) roundLimits() Limits {
	return Limits{Feed: a.cfg.Limits.Feed}
}

// FeedTurns is the number of rounds in which the feeds of all users and the other sides of all list
// entries are read once. Without turns, they would take four fifths of each round (BenchmarkRound).
const FeedTurns = 16

// nextRoundLimits returns the limits of the current round, with its turn.
func (a *Auditor) nextRoundLimits() Limits {
	l := a.roundLimits()
	a.mu.Lock()
	defer a.mu.Unlock()
	l.FeedTurn = (a.firstTurn + a.status.Rounds) % FeedTurns
	l.FeedTurns = FeedTurns
	return l
}

// checkEntities checks entities at a new common position and returns the findings.
func (a *Auditor) checkEntities(ctx context.Context, entities []Entity, limits Limits) (found []Finding, err error) {
	audit, err := a.openAudit(ctx, limits)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, audit.Close()) }()
	defer func() { a.updateStatus(func(s *Status) { s.Checks += audit.Checks }) }()

	audit.Rest = a.newRest(audit)
	for _, e := range entities {
		if err := audit.Check(ctx, e); err != nil {
			return nil, err
		}
	}
	return audit.Findings(), nil
}
