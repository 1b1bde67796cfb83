package eventlog

import (
	"context"
	"errors"
	"fmt"
)

// checkNextMessage checks that the stream has the next sequence before a consumer is created. If the hole is at the end of the stream, no
// later message would be delivered, and the reader would wait instead of reporting it.
func (r *reader) checkNextMessage(ctx context.Context) error {
	stream, err := r.log.stream(ctx)
	if err != nil {
		return err
	}
	next, last := r.decodedSeq+1, stream.CachedInfo().State.LastSeq
	if next > last {
		return nil
	}
	if there, err := r.log.hasMessage(ctx, stream, next); there || err != nil {
		return err
	}
	msg, err := r.log.messageFrom(ctx, stream, next)
	switch {
	case errors.Is(err, ErrNoMessage):
		return r.crossGap(ctx, last+1)
	case err != nil:
		return err
	}
	return r.crossGap(ctx, msg.Sequence)
}

// crossGap handles a stream that continues at a later sequence than the next one. It passes over holes that an operator has accepted,
// and fails with [events.ErrHole] if anything else is lost.
func (r *reader) crossGap(ctx context.Context, seq uint64) error {
	for r.decodedSeq+1 < seq {
		if accepted, ok := r.log.meta().accepted(r.decodedSeq + 1); ok {
			if err := r.crossAcceptedHole(min(accepted.To, seq-1)); err != nil {
				return err
			}
			continue
		}
		meta := r.log.meta()
		if err := r.explainGap(ctx, seq); err != nil && r.log.meta() == meta {
			return err
		}
	}
	return nil
}

// crossAcceptedHole passes over an accepted hole.
func (r *reader) crossAcceptedHole(to uint64) error {
	for r.decodedSeq < to {
		env, err := r.dec.DecodeLost(r.decodedSeq + 1)
		if err != nil {
			return err
		}
		r.decodedSeq++
		r.log.noteLast(r.decodedSeq)
		if env == nil {
			continue
		}
		if passed, err := r.skipKnown(env); err != nil {
			return err
		} else if !passed {
			r.lostEnvelopes = append(r.lostEnvelopes, env)
		}
	}
	return nil
}

// explainGap returns the reason why the stream delivered a later sequence than the next one. Trimming, a lagging replica and a gap
// that the archive covers interrupt the reader, which then begins again; only a loss is [events.ErrHole].
func (r *reader) explainGap(ctx context.Context, seq uint64) error {
	next := r.decodedSeq + 1
	stream, err := r.log.stream(ctx)
	if err != nil {
		return err
	}
	if stream.CachedInfo().State.FirstSeq > next {
		return fmt.Errorf("%w: the stream was trimmed beyond sequence %d while it was read", errInterrupted, r.decodedSeq)
	}
	switch there, err := r.log.hasMessage(ctx, stream, next); {
	case err != nil:
		return err
	case there: // a replica is ahead of the leader in trimming, or behind in delivering
		return fmt.Errorf("%w: sequence %d was not delivered", errInterrupted, next)
	}
	if noted, err := r.log.noteCoveredHoles(ctx, next, seq-1); noted || err != nil {
		return errors.Join(errInterrupted, errCoveredHole, err)
	}
	hole, err := r.log.holeFrom(ctx, stream, next, seq)
	if err != nil {
		return err
	}
	return r.log.noteMissing(hole)
}
