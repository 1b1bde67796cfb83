package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// Trim permanently removes the envelopes up to and including upTo from the stream, and returns how
// many sequences it removed. It fails with [events.ErrTrimRefused] if the archive does not have
// these envelopes, or if they are within one horizon of the end of the archive: a reader that
// continues at that end needs their event ids (I6). Trim does nothing if the sequences are already
// gone.
func (l *Log) Trim(ctx context.Context, upTo uint64) (trimmed uint64, err error) {
	limit, err := l.trimLimit(ctx)
	if err != nil {
		return 0, err
	}
	if upTo > limit {
		return 0, fmt.Errorf("%w beyond sequence %d: what comes after is not archived, or needed by who goes on at the end "+
			"of the archive: up to %d was demanded", events.ErrTrimRefused, limit, upTo)
	}

	stream, err := l.fetchStream(ctx)
	if err != nil {
		return 0, err
	}
	before := stream.CachedInfo().State
	if upTo < before.FirstSeq || before.Msgs == 0 {
		return 0, nil
	}
	err = l.requestWithRetries(ctx, func(ctx context.Context) error {
		return stream.Purge(ctx, jetstream.WithPurgeSequence(upTo+1))
	}, streamPurgeSubject)
	if err != nil {
		return 0, wrapUnavailable(err)
	}

	info, err := l.fetchStreamInfo(ctx)
	if err != nil {
		return 0, err
	}
	// The beginning of a stream never moves back, so this is another stream.
	if info.State.FirstSeq < before.FirstSeq {
		return 0, fmt.Errorf("%w: it began at sequence %d, and now at %d", events.ErrRewritten, before.FirstSeq, info.State.FirstSeq)
	}
	return info.State.FirstSeq - before.FirstSeq, nil
}

// trimLimit returns the last sequence that may be trimmed. It does not rely on the archive alone:
// the message at the end of the archive must also be in the stream and agree with the archive.
func (l *Log) trimLimit(ctx context.Context) (uint64, error) {
	if l.archive == nil {
		return 0, fmt.Errorf("%w: there is no archive", events.ErrTrimRefused)
	}
	end, err := l.archiveEnd()
	if err != nil {
		return 0, err
	}
	o, err := l.locate(ctx, end)
	if err != nil {
		return 0, fmt.Errorf("eventlog: the end of the archive: %w", err)
	}

	if end.WarmSeq == 0 || o.part == inArchive {
		// Either the archive has nothing of this epoch, or it has grown since archiveEnd. In the
		// second case the next call can trim.
		return l.meta().first - 1, nil
	}
	return end.WarmSeq - 1, nil
}

// SeqBefore returns the highest sequence of the stream whose timestamp is before t, or 0 if there
// is none. If the server's clock was set back, several sequences are followed by one that is not
// before t, and SeqBefore returns one of them.
func (l *Log) SeqBefore(ctx context.Context, t time.Time) (uint64, error) {
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	if state.Msgs == 0 {
		return 0, nil
	}

	// This is a binary search. The messages up to low are before t, and those from high on are not.
	low := state.FirstSeq - 1
	high := state.LastSeq + 1
	found := uint64(0)
	for low+1 < high {
		mid := low + (high-low)/2
		msg, err := l.messageAtOrAfter(ctx, stream, mid)
		switch {
		case errors.Is(err, ErrNoMessage):
			high = mid
		case err != nil:
			return 0, err
		case msg.Time.Before(t):
			low = msg.Sequence
			found = max(found, msg.Sequence)
		default:
			high = mid
		}
	}
	return found, nil
}

// messageAtOrAfter returns the first message of the stream at or after a sequence. It fails with
// [ErrNoMessage] if there is none.
func (l *Log) messageAtOrAfter(ctx context.Context, stream jetstream.Stream, seq uint64) (msg *jetstream.RawStreamMsg, err error) {
	err = l.requestWithRetries(ctx, func(ctx context.Context) (err error) {
		// With a subject, the server returns the next message of that subject, and not only the one
		// at seq.
		msg, err = stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(Subject))
		return err
	}, getMessageSubject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w, nor after it: %d", ErrNoMessage, seq)
	}
	return msg, wrapUnavailable(err)
}

// RepeatsAt returns the event ids that a reader at a cursor of the stream remembers. When a new
// epoch begins after that cursor, the archive keeps them. RepeatsAt reads one horizon of the
// stream.
func (l *Log) RepeatsAt(ctx context.Context, c events.Cursor) ([]events.Repeat, error) {
	o, err := l.locate(ctx, c)
	if err != nil {
		return nil, err
	}
	if o.part == inArchive || o.cursor.Seq > o.decoderStart.Seq {
		return nil, fmt.Errorf("%w: what was seen before sequence %d is no longer in the stream", events.ErrTrimmed, c.Seq)
	}
	dec, err := l.newDecoder(ctx, o)
	if err != nil {
		return nil, err
	}
	if !dec.IsWarmingUp() {
		return dec.Repeats(), nil
	}

	r := newReader(l, o.decoderStart)
	defer r.close()
	if err := r.openSource(ctx); err != nil {
		return nil, err
	}
	// The loop reads one message at a time and ends with the warm-up. reader.nextEnvelopes would
	// also wait for the message after it, which may never arrive.
	for r.archive == nil && r.dec.IsWarmingUp() {
		if r.pullMessagesLeft <= 0 || r.pullBytesLeft <= 0 {
			if err := r.requestMessages(); err != nil {
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
