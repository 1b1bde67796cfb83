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

// CheckCursor returns nil if a reader can continue after the cursor, in the stream or in the archive. [events.ErrOtherLog],
// [events.ErrOtherEpoch], [events.ErrLogShorter], [events.ErrRewritten], [events.ErrTrimmed] and [events.ErrArchiveDamaged] mean that
// it never can. [events.ErrHole] means that it cannot while the log lacks envelopes. Other errors mean that the log or the archive did not
// answer.
func (l *Log) CheckCursor(ctx context.Context, c events.Cursor) error {
	o, err := l.locate(ctx, c)
	if err != nil || o.part != inArchive {
		return err
	}
	r, err := l.past.Read(ctx, o.cur, 0)
	if err != nil {
		return fmt.Errorf("eventlog: read the archive after sequence %d: %w", o.cur.Seq, err)
	}
	r.Close()
	return nil
}

const (
	// confirmAfter is the pause before another look that confirms that a log is gone or shorter.
	confirmAfter = time.Second
	// catchUpReplicas is how long a stream with replicas must look shorter than it was to be so. A leader that was elected when servers
	// came back was seen to need some seconds on a busy machine.
	catchUpReplicas = 30 * time.Second
)

// checkMessage compares the message at a cursor with the cursor's checksum. It fails with [errCoveredHole] if only the archive has the
// message, and with [events.ErrHole] if neither has it.
func (l *Log) checkMessage(ctx context.Context, stream jetstream.Stream, c events.Cursor) error {
	if _, lost := l.meta().accepted(c.Seq); lost {
		return nil // a reader at this cursor has folded the message before it was lost, or passed over it
	}
	var msg *jetstream.RawStreamMsg
	err := l.ask(ctx, func(ctx context.Context) (err error) {
		msg, err = stream.GetMsg(ctx, c.Seq)
		return err
	}, askMessage)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		if noted, err := l.noteCoveredHole(c.Seq); noted || err != nil {
			return errors.Join(errCoveredHole, err)
		}
		return l.noteMissing(SeqRange{c.Seq, c.Seq})
	}
	if err != nil {
		return unavailable(err)
	}
	if xxh3.Hash(msg.Data) != c.Checksum {
		return fmt.Errorf("%w: sequence %d holds another message: restore the right log, or rebuild the store from "+
			"this one", events.ErrRewritten, c.Seq)
	}
	return nil
}

// CheckPosition reports whether a state can ever contain the position: [events.ErrOtherLog], [events.ErrOtherEpoch] and
// [events.ErrPositionAhead] say that it is of no use here. A position of an epoch before is as good as its sequence, as far as the
// present epoch continues from it. It asks the log only when the position is beyond what is known.
func (l *Log) CheckPosition(ctx context.Context, p events.Position) error {
	if p.Log != [4]byte(l.meta().id[:4]) {
		return fmt.Errorf("%w: the position was given by another service", events.ErrOtherLog)
	}
	if !l.meta().isContinuedFrom(p.Epoch, p.Seq) {
		return l.meta().otherEpoch("position", p.Epoch, p.Seq)
	}
	// A caller may hold a position that the leader does not report yet: in a cluster, any replica delivers an envelope once a
	// quorum has it, and the leader may learn of that later.
	var doubted doubt
	for pause := firstRetryPause; ; pause = min(4*pause, confirmAfter) {
		err := l.checkReached(ctx, p.Seq)
		if err == nil || !doubted.still(l.doubtful(err)) {
			return err
		}
		if wait.For(ctx, pause) != nil {
			return ctx.Err()
		}
	}
}

// checkReached asks the log whether it goes to seq, unless that is known.
func (l *Log) checkReached(ctx context.Context, seq uint64) error {
	if seq <= l.last.Load() {
		return nil
	}
	if _, err := l.streamInfo(ctx); err != nil {
		return err
	}
	if last := l.last.Load(); seq > last {
		return fmt.Errorf("%w: it is at sequence %d, the log ends at %d", events.ErrPositionAhead, seq, last)
	}
	return nil
}
