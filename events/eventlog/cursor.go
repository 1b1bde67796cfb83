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

// CheckCursor reports whether a reader can continue after the cursor, in the stream or in the archive: [events.ErrOtherLog],
// [events.ErrOtherEpoch], [events.ErrLogShorter], [events.ErrRewritten], [events.ErrTrimmed] and [events.ErrPastDamaged] say that
// it cannot, ever; [ErrHole] that it cannot while the log lacks envelopes; other errors that the log or the archive did not answer.
func (l *Log) CheckCursor(ctx context.Context, c events.Cursor) error {
	o, err := l.locate(ctx, c)
	if err != nil || o.part != inArchive {
		return err
	}
	r, err := l.past.Read(ctx, o.cur, 0)
	if err != nil {
		return fmt.Errorf("events: read the archive after sequence %d: %w", o.cur.Seq, err)
	}
	r.Close()
	return nil
}

// confirmAfter is the pause before a log is declared to be gone or shorter.
const confirmAfter = time.Second

// checkMessage compares the message at a cursor of the stream. [errHole]: only the archive has it; [ErrHole]: nothing has.
func (l *Log) checkMessage(ctx context.Context, stream jetstream.Stream, c events.Cursor) error {
	if _, lost := l.meta().accepted(c.Seq); lost {
		return nil // whoever stands there has folded it, or passed over it
	}
	var msg *jetstream.RawStreamMsg
	err := l.ask(ctx, func(ctx context.Context) (err error) {
		msg, err = stream.GetMsg(ctx, c.Seq)
		return err
	}, askMessage)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		if noted, err := l.noteHole(c.Seq); noted || err != nil {
			return errors.Join(errHole, err)
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
	if !l.meta().reaches(p.Epoch, p.Seq) {
		return l.meta().otherEpoch("position", p.Epoch, p.Seq)
	}
	err := l.checkReached(ctx, p.Seq)
	// In a cluster a replica delivers an envelope when a quorum has it. The leader may come to that a moment later.
	for pause := firstRetry; l.server == nil && errors.Is(err, events.ErrPositionAhead) && pause < confirmAfter; pause *= 4 {
		if wait.For(ctx, pause) != nil {
			return ctx.Err()
		}
		err = l.checkReached(ctx, p.Seq)
	}
	return err
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
