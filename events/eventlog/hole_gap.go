package eventlog

import (
	"context"
	"errors"
	"fmt"
)

// checkNextMessage checks that the stream has the next sequence. It runs before a consumer is
// created: behind a hole at the end of the stream there is no message to deliver, so the reader
// would wait instead of reporting the hole.
func (r *reader) checkNextMessage(ctx context.Context) error {
	stream, err := r.log.fetchStream(ctx)
	if err != nil {
		return err
	}

	next := r.decodedSeq + 1
	last := stream.CachedInfo().State.LastSeq
	if next > last {
		return nil
	}
	if found, err := r.log.hasMessage(ctx, stream, next); found || err != nil {
		return err
	}

	// The stream continues after the gap at the next message, or not at all.
	msg, err := r.log.messageAtOrAfter(ctx, stream, next)
	switch {
	case errors.Is(err, ErrNoMessage):
		return r.crossGap(ctx, last+1)
	case err != nil:
		return err
	}
	return r.crossGap(ctx, msg.Sequence)
}

// crossGap is called when the stream continues at seq, which is later than the next sequence. It
// crosses the holes that an operator has accepted, and fails with [events.ErrHole] if anything else
// is lost.
func (r *reader) crossGap(ctx context.Context, seq uint64) error {
	for r.decodedSeq+1 < seq {
		if accepted, ok := r.log.meta().acceptedHole(r.decodedSeq + 1); ok {
			if err := r.crossAcceptedHole(min(accepted.To, seq-1)); err != nil {
				return err
			}
			continue
		}

		// If the metadata has changed meanwhile, the hole may have been accepted, so the loop looks
		// again.
		meta := r.log.meta()
		if err := r.explainGap(ctx, seq); err != nil && r.log.meta() == meta {
			return err
		}
	}
	return nil
}

// crossAcceptedHole decodes the lost sequences of an accepted hole up to the given one. It stores
// their envelopes in lostEnvelopes, from where readAvailable returns them.
func (r *reader) crossAcceptedHole(to uint64) error {
	for r.decodedSeq < to {
		env, err := r.dec.DecodeLost(r.decodedSeq + 1)
		if err != nil {
			return err
		}
		r.decodedSeq++
		r.log.raiseLastKnownSeq(r.decodedSeq)
		if env == nil {
			continue // it belongs to the warm-up
		}
		skip, err := r.skipKnown(env)
		if err != nil {
			return err
		}
		if !skip {
			r.lostEnvelopes = append(r.lostEnvelopes, env)
		}
	}
	return nil
}

// explainGap returns the reason why the stream has delivered seq instead of the next sequence.
// After trimming, a lagging replica, or a hole that the archive covers, that is an interruption,
// and the reader starts again. Only a loss is [events.ErrHole].
func (r *reader) explainGap(ctx context.Context, seq uint64) error {
	next := r.decodedSeq + 1
	stream, err := r.log.fetchStream(ctx)
	if err != nil {
		return err
	}
	if stream.CachedInfo().State.FirstSeq > next {
		return fmt.Errorf("%w: the stream was trimmed beyond sequence %d while it was read", errInterrupted, r.decodedSeq)
	}

	found, err := r.log.hasMessage(ctx, stream, next)
	if err != nil {
		return err
	}
	if found { // the delivering replica is ahead of the leader in trimming, or lags behind it
		return fmt.Errorf("%w: sequence %d was not delivered", errInterrupted, next)
	}

	if covered, err := r.log.recordCoveredHoles(ctx, next, seq-1); covered || err != nil {
		return errors.Join(errInterrupted, errCoveredHole, err)
	}
	hole, err := r.log.measureHole(ctx, stream, next, seq)
	if err != nil {
		return err
	}
	return r.log.recordMissing(hole)
}
