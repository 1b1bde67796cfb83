package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// Trim permanently removes the envelopes up to and including a sequence from the stream, and returns how many sequences it removed.
// It fails with [events.ErrTrimRefused] for envelopes that are not archived, and for those within the horizon before the end of the
// archive: a reader that continues there needs their event ids (I6). Sequences that are already gone are no error.
func (l *Log) Trim(ctx context.Context, upTo uint64) (trimmed uint64, err error) {
	limit, err := l.trimLimit(ctx)
	if err != nil {
		return 0, err
	}
	if upTo > limit {
		return 0, fmt.Errorf("%w beyond sequence %d: what comes after is not archived, or needed by who goes on at the end "+
			"of the archive: up to %d was demanded", events.ErrTrimRefused, limit, upTo)
	}
	stream, err := l.stream(ctx)
	if err != nil {
		return 0, err
	}
	before := stream.CachedInfo().State
	if upTo < before.FirstSeq || before.Msgs == 0 {
		return 0, nil
	}
	if err := l.ask(ctx, func(ctx context.Context) error {
		return stream.Purge(ctx, jetstream.WithPurgeSequence(upTo+1))
	}, askPurge); err != nil {
		return 0, unavailable(err)
	}
	info, err := l.streamInfo(ctx)
	if err != nil {
		return 0, err
	}
	if info.State.FirstSeq < before.FirstSeq {
		return 0, fmt.Errorf("%w: it began at sequence %d, and now at %d", events.ErrRewritten, before.FirstSeq, info.State.FirstSeq)
	}
	return info.State.FirstSeq - before.FirstSeq, nil
}

// trimLimit returns up to where the stream may be trimmed. The archive's word is checked: its end must be in the stream.
func (l *Log) trimLimit(ctx context.Context) (uint64, error) {
	if l.past == nil {
		return 0, fmt.Errorf("%w: there is no archive", events.ErrTrimRefused)
	}
	end, err := l.archiveEnd()
	if err != nil {
		return 0, err
	}
	o, err := l.locate(ctx, end)
	switch {
	case err != nil:
		return 0, fmt.Errorf("eventlog: the end of the archive: %w", err)
	case end.WarmSeq == 0, o.part == inArchive: // nothing of this epoch is archived, or the archive grew meanwhile: the next call trims
		return l.meta().first - 1, nil
	}
	return end.WarmSeq - 1, nil
}

// SeqBefore returns the highest sequence of the stream whose timestamp is before a time; 0 means there is none. If the server's
// clock was set back, several sequences qualify, and it returns one of them.
func (l *Log) SeqBefore(ctx context.Context, t time.Time) (uint64, error) {
	stream, err := l.stream(ctx)
	if err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	// Messages up to low are before t, messages from high on are not.
	low, high := state.FirstSeq-1, state.LastSeq+1
	if state.Msgs == 0 {
		return 0, nil
	}
	found := uint64(0)
	for low+1 < high {
		mid := low + (high-low)/2
		msg, err := l.messageFrom(ctx, stream, mid)
		switch {
		case errors.Is(err, ErrNoMessage):
			high = mid
		case err != nil:
			return 0, err
		case msg.Time.Before(t):
			low, found = msg.Sequence, max(found, msg.Sequence)
		default:
			high = mid
		}
	}
	return found, nil
}

// messageFrom returns the first message at or after a sequence.
func (l *Log) messageFrom(ctx context.Context, stream jetstream.Stream, seq uint64) (msg *jetstream.RawStreamMsg, err error) {
	err = l.ask(ctx, func(ctx context.Context) (err error) {
		msg, err = stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(Subject))
		return err
	}, askMessage)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w, nor after it: %d", ErrNoMessage, seq)
	}
	return msg, unavailable(err)
}

// RepeatsAt returns the event ids that a reader at a cursor of the stream remembers. The archive keeps them when the log continues
// in a new epoch after that cursor. It reads one horizon of the stream.
func (l *Log) RepeatsAt(ctx context.Context, c events.Cursor) ([]events.Repeat, error) {
	o, err := l.locate(ctx, c)
	if err != nil {
		return nil, err
	}
	if o.part == inArchive || o.cur.Seq > o.from.Seq {
		return nil, fmt.Errorf("%w: what was seen before sequence %d is no longer in the stream", events.ErrTrimmed, c.Seq)
	}
	d, err := l.decoder(ctx, o)
	if err != nil {
		return nil, err
	}
	if !d.Warming() {
		return d.Repeats(), nil
	}
	r := newReader(l, o.from)
	defer r.close()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	for r.archive == nil && r.dec.Warming() { // one message at a time, because waiting for more than the last would not end
		if r.pullMessagesLeft <= 0 || r.pullBytesLeft <= 0 {
			if err := r.pull(); err != nil {
				return nil, err
			}
		}
		msg, err := r.nextMessage(ctx, true)
		if err != nil {
			return nil, err
		}
		if _, err := r.decodeMessage(ctx, msg); err != nil {
			return nil, err
		}
	}
	if r.archive != nil {
		return nil, fmt.Errorf("%w: the stream was trimmed beyond what was seen before sequence %d", events.ErrTrimmed, c.Seq)
	}
	return r.dec.Repeats(), nil
}
