package eventlog

import (
	"context"
	"errors"
	"fmt"
)

// ahead checks that the stream has the next sequence before a consumer is created. If the hole is at the end of the stream, no
// later message would be delivered, and the reader would wait instead of reporting it.
func (r *reader) ahead(ctx context.Context) error {
	stream, err := r.log.stream(ctx)
	if err != nil {
		return err
	}
	next, last := r.fed+1, stream.CachedInfo().State.LastSeq
	if next > last {
		return nil
	}
	if there, err := r.log.hasMessage(ctx, stream, next); there || err != nil {
		return err
	}
	msg, err := r.log.messageFrom(ctx, stream, next)
	switch {
	case errors.Is(err, ErrNoMessage):
		return r.gap(ctx, last+1)
	case err != nil:
		return err
	}
	return r.gap(ctx, msg.Sequence)
}

// gap handles a stream that continues at a later sequence than the next one. It passes over holes that an operator has accepted,
// and fails with [events.ErrHole] if anything else is lost.
func (r *reader) gap(ctx context.Context, seq uint64) error {
	for r.fed+1 < seq {
		if accepted, ok := r.log.meta().accepted(r.fed + 1); ok {
			if err := r.passLost(min(accepted.To, seq-1)); err != nil {
				return err
			}
			continue
		}
		meta := r.log.meta()
		if err := r.missing(ctx, seq); err != nil && r.log.meta() == meta {
			return err
		}
	}
	return nil
}

// passLost passes over an accepted hole.
func (r *reader) passLost(to uint64) error {
	for r.fed < to {
		env, err := r.dec.DecodeLost(r.fed + 1)
		if err != nil {
			return err
		}
		r.fed++
		r.log.noteLast(r.fed)
		if env == nil {
			continue
		}
		if passed, err := r.pass(env); err != nil {
			return err
		} else if !passed {
			r.lost = append(r.lost, env)
		}
	}
	return nil
}

// missing returns the reason why the stream delivered a later sequence than the next one. Trimming, a lagging replica and a gap
// that the archive covers interrupt the reader, which then begins again; only a loss is [events.ErrHole].
func (r *reader) missing(ctx context.Context, seq uint64) error {
	next := r.fed + 1
	stream, err := r.log.stream(ctx)
	if err != nil {
		return err
	}
	if stream.CachedInfo().State.FirstSeq > next {
		return fmt.Errorf("%w: the stream was trimmed beyond sequence %d while it was read", errLost, r.fed)
	}
	switch there, err := r.log.hasMessage(ctx, stream, next); {
	case err != nil:
		return err
	case there: // a replica is ahead of the leader in trimming, or behind in delivering
		return fmt.Errorf("%w: sequence %d was not delivered", errLost, next)
	}
	if noted, err := r.log.noteHoles(ctx, next, seq-1); noted || err != nil {
		return errors.Join(errLost, errHole, err)
	}
	hole, err := r.log.holeFrom(ctx, stream, next, seq)
	if err != nil {
		return err
	}
	return r.log.noteMissing(hole)
}
