package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/zeebo/xxh3"
)

// CheckCursor tells whether a reader can go on after the cursor: [ErrOtherLog], [ErrOtherEpoch], [ErrLogShorter],
// [ErrRewritten] and [ErrTrimmed] say that it cannot, ever; other errors that the log did not answer.
func (l *Log) CheckCursor(ctx context.Context, c Cursor) error {
	if err := l.checkOwn(c); err != nil {
		return err
	}
	err := l.checkHeld(ctx, c)
	// A cluster that has just elected a leader may not tell the whole truth at once.
	if l.server == nil && (errors.Is(err, ErrLogShorter) || errors.Is(err, ErrNoLog)) {
		pause := time.NewTimer(confirmAfter)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		err = l.checkHeld(ctx, c)
	}
	return err
}

// confirmAfter is the pause before a log is declared to be gone or shorter.
const confirmAfter = time.Second

// checkOwn checks what needs no question to the log.
func (l *Log) checkOwn(c Cursor) error {
	if c.Log != l.meta.id {
		return fmt.Errorf("%w: the cursor is of log %x, this is %x: connect to the right server or data directory, "+
			"or start anew with an empty store", ErrOtherLog, c.Log, l.meta.id)
	}
	if c.Epoch != l.meta.epoch {
		return fmt.Errorf("%w: the cursor is of epoch %d, the log is in %d: rebuild the store", ErrOtherEpoch,
			c.Epoch, l.meta.epoch)
	}
	return nil
}

func (l *Log) checkHeld(ctx context.Context, c Cursor) error {
	stream, err := l.stream(ctx)
	if err != nil {
		return err
	}
	state := stream.CachedInfo().State
	if c.Seq > state.LastSeq {
		return fmt.Errorf("%w: it ends at sequence %d, the cursor is at %d: the log lost events or is an older copy; "+
			"restore the right log, or rebuild the store from this one", ErrLogShorter, state.LastSeq, c.Seq)
	}
	from := NewDecoder(c).WarmFrom()
	if c.Seq == 0 {
		from = l.meta.first
	}
	if from < state.FirstSeq {
		return fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs %d: rebuild the store, from the archive "+
			"and the log", ErrTrimmed, state.FirstSeq, c.Seq, from)
	}
	if c.Seq == 0 {
		return nil
	}
	var msg *jetstream.RawStreamMsg
	err = l.ask(ctx, func(ctx context.Context) (err error) {
		msg, err = stream.GetMsg(ctx, c.Seq)
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("%w: sequence %d, at which the cursor stands, was deleted: rebuild the store", ErrRewritten, c.Seq)
	}
	if err != nil {
		return unavailable(err)
	}
	if xxh3.Hash(msg.Data) != c.Checksum {
		return fmt.Errorf("%w: sequence %d holds another message: restore the right log, or rebuild the store from "+
			"this one", ErrRewritten, c.Seq)
	}
	return nil
}

// CheckPosition tells whether a state can ever contain the position: [ErrOtherLog], [ErrOtherEpoch] and
// [ErrPositionAhead] say that it is of no use here. It asks the log only when the position is beyond what is known.
func (l *Log) CheckPosition(ctx context.Context, p Position) error {
	if p.Log != [4]byte(l.meta.id[:4]) {
		return fmt.Errorf("%w: the position was given by another service", ErrOtherLog)
	}
	if p.Epoch != l.meta.epoch {
		return fmt.Errorf("%w: the position is of epoch %d, the log is in %d", ErrOtherEpoch, p.Epoch, l.meta.epoch)
	}
	err := l.checkReached(ctx, p.Seq)
	// In a cluster a replica delivers an envelope when a quorum has it. The leader may come to that a moment later.
	for pause := firstRetry; l.server == nil && errors.Is(err, ErrPositionAhead) && pause < confirmAfter; pause *= 4 {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
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
		return fmt.Errorf("%w: it is at sequence %d, the log ends at %d", ErrPositionAhead, seq, last)
	}
	return nil
}
