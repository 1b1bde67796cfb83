package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

const (
	// confirmDelay is how long the package waits before it asks again, to confirm that a log is
	// gone or shorter than it was.
	confirmDelay = time.Second
	// replicaCatchUpTime is how long a stream with replicas must look shorter than it was before
	// the package believes it. On a busy machine, a leader that was elected when servers came back
	// was seen to need some seconds to catch up.
	replicaCatchUpTime = 30 * time.Second
)

// CheckCursor returns nil if a reader can continue after the cursor, in the stream or in the
// archive.
//
// [events.ErrOtherLog], [events.ErrOtherEpoch], [events.ErrLogShorter], [events.ErrRewritten],
// [events.ErrTrimmed] and [events.ErrArchiveDamaged] mean that no reader can ever continue there.
// [events.ErrHole] means that none can as long as the log lacks envelopes. All other errors mean
// that the log or the archive did not answer.
func (l *Log) CheckCursor(ctx context.Context, c events.Cursor) error {
	o, err := l.locate(ctx, c)
	if err != nil || o.part != inArchive {
		return err
	}

	// Opening a reader makes the archive compare the cursor with what it has.
	r, err := l.archive.Read(ctx, o.cursor, 0)
	if err != nil {
		return fmt.Errorf("eventlog: read the archive after sequence %d: %w", o.cursor.Seq, err)
	}
	r.Close()
	return nil
}

// checkMessage compares the message at a cursor with the cursor's checksum. It fails with
// [errCoveredHole] if only the archive has the message, and with [events.ErrHole] if neither has
// it.
func (l *Log) checkMessage(ctx context.Context, stream jetstream.Stream, c events.Cursor) error {
	if _, lost := l.meta().acceptedHole(c.Seq); lost {
		return nil // a reader at this cursor has either read the message before it was lost, or crossed the accepted hole
	}

	var msg *jetstream.RawStreamMsg
	err := l.requestWithRetries(ctx, func(ctx context.Context) (err error) {
		msg, err = stream.GetMsg(ctx, c.Seq)
		return err
	}, getMessageSubject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		if covered, err := l.recordCoveredHole(c.Seq); covered || err != nil {
			return errors.Join(errCoveredHole, err)
		}
		return l.recordMissing(SeqRange{c.Seq, c.Seq})
	}
	if err != nil {
		return wrapUnavailable(err)
	}

	if xxh3.Hash(msg.Data) != c.Checksum {
		return fmt.Errorf("%w: sequence %d holds another message: restore the right log, or rebuild the store from "+
			"this one", events.ErrRewritten, c.Seq)
	}
	return nil
}

// CheckPosition returns nil if the log has the position. [events.ErrOtherLog],
// [events.ErrOtherEpoch] and [events.ErrPositionAhead] mean that no store will ever reach it. A
// position of an earlier epoch counts as the same sequence of the present epoch, if the present
// epoch continues from it.
//
// CheckPosition makes a request only if the position is after everything that this process knows of
// the log.
func (l *Log) CheckPosition(ctx context.Context, p events.Position) error {
	meta := l.meta()
	if p.Log != [4]byte(meta.id[:4]) {
		return fmt.Errorf("%w: the position was given by another service", events.ErrOtherLog)
	}
	if !meta.isContinuedFrom(p.Epoch, p.Seq) {
		return meta.otherEpoch("position", p.Epoch, p.Seq)
	}

	// A caller may have a position that the leader does not report yet. In a cluster, any replica
	// delivers an envelope once a quorum has it, and the leader may learn of that later.
	var failing errorTimer
	for pause := firstRetryPause; ; pause = min(4*pause, confirmDelay) {
		err := l.checkNotBeyondEnd(ctx, p.Seq)
		if err == nil || !failing.isYoungerThan(l.confirmationTime(err)) {
			return err
		}

		if wait.For(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// checkNotBeyondEnd returns [events.ErrPositionAhead] if the log ends before seq. It asks the
// server unless this process already knows that the log has seq.
func (l *Log) checkNotBeyondEnd(ctx context.Context, seq uint64) error {
	if seq <= l.lastKnownSeq.Load() {
		return nil
	}
	if _, err := l.fetchStreamInfo(ctx); err != nil {
		return err
	}
	if last := l.lastKnownSeq.Load(); seq > last {
		return fmt.Errorf("%w: it is at sequence %d, the log ends at %d", events.ErrPositionAhead, seq, last)
	}
	return nil
}

// errorTimer measures how long an error has persisted. The zero value has not seen the error yet.
type errorTimer struct{ firstSeen time.Time }

// isYoungerThan reports whether less than the limit has passed since its first call. Callers call
// it each time that the error occurs, and retry as long as it returns true.
func (t *errorTimer) isYoungerThan(limit time.Duration) bool {
	now := time.Now()
	if t.firstSeen.IsZero() {
		t.firstSeen = now
	}
	return now.Sub(t.firstSeen) < limit
}

// confirmationTime returns how long an error must persist before it is believed. It is 0 for errors
// that are believed at once.
//
// The others would stop a store for good, or reject a position that was acknowledged, although they
// may pass: a leader that a cluster has just elected answers before it has caught up, and another
// process may have trimmed the stream after it wrote archive files that this process has not read
// yet.
func (l *Log) confirmationTime(err error) time.Duration {
	switch {
	case errors.Is(err, events.ErrLogShorter), errors.Is(err, events.ErrNoLog), errors.Is(err, events.ErrPositionAhead):
		return l.catchUpTime()
	case l.archive != nil && errors.Is(err, events.ErrTrimmed):
		return confirmDelay
	}
	return 0
}

// catchUpTime returns how long the servers may report less of the log than they have.
func (l *Log) catchUpTime() time.Duration {
	switch {
	case l.hasReplicas.Load():
		return replicaCatchUpTime
	case l.server != nil:
		return 0
	}
	return confirmDelay
}
