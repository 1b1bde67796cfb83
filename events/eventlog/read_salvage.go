package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
)

// SeqRange is a range of sequences. It contains both From and To.
type SeqRange struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// SalvageReport is the result of [Log.Salvage].
type SalvageReport struct {
	// Envelopes and Events are the numbers of envelopes, and of events in them, that were read and
	// passed on.
	Envelopes, Events uint64
	// Lost are the sequences, up to the last one that the stream knows of, that could not be read
	// or are gone.
	Lost []SeqRange
	// Head is the cursor after the last envelope that was passed on, for [RestoredState]. If there
	// was none, it is the cursor after which the salvage began.
	Head events.Cursor
	// Repeats are the event ids that must be remembered at the head, as far as they could be read.
	Repeats []events.Repeat
}

// Salvage reads what a damaged stream still holds after a cursor, message by message, for the
// archive of a log that is to be restored. The cursor is usually the end of the archive. Salvage
// passes the envelopes to emit, in order and with the cursors of an archive. It skips what cannot
// be read, and reports it.
//
// repeats are the event ids that a reader at the cursor knows. Salvage uses them if the stream no
// longer has the whole horizon before the cursor.
//
// Salvage fails if emit fails, with [events.ErrLogUnavailable] if the log does not answer, with
// [events.ErrForbidden] if the NATS user may not read messages, and with [events.ErrRewritten] if
// the message at the cursor can be read and differs from the cursor.
func (l *Log) Salvage(
	ctx context.Context, after events.Cursor, repeats []events.Repeat, emit func([]*events.Envelope) error,
) (SalvageReport, error) {
	s := &salvager{log: l, emit: emit, knownRepeats: repeats}
	err := s.prepare(ctx, after)
	if err != nil {
		return s.report, err
	}
	s.report.Head = archivalCursor(s.after, s.after.Seq, s.after.LastTime)

	state := s.stream.CachedInfo().State
	if s.after.IsArchival() || state.FirstSeq > s.warmUpStart {
		s.warmUpIncomplete = true
	}
	if state.FirstSeq > s.after.Seq+1 {
		if err := s.recordLost(s.after.Seq+1, min(state.FirstSeq-1, state.LastSeq)); err != nil {
			return s.report, err
		}
	}

	for seq := max(state.FirstSeq, s.warmUpStart); seq <= state.LastSeq; {
		msg, err := s.nextReadable(ctx, seq, state.LastSeq)
		if err != nil {
			return s.report, err
		}

		// Everything from seq to before next could not be read. Up to the cursor it was part of the
		// warm-up; after it, it is lost.
		next := state.LastSeq + 1
		if msg != nil {
			next = msg.Sequence
		}
		if seq < next && seq <= s.after.Seq {
			s.warmUpIncomplete = true
		}
		if from := max(seq, s.after.Seq+1); from < next {
			if err := s.recordLost(from, next-1); err != nil {
				return s.report, err
			}
		}

		if msg == nil {
			break
		}
		if err := s.decodeMessage(msg); err != nil {
			return s.report, err
		}
		seq = next + 1
	}

	s.report.Repeats = s.dec.Repeats()
	return s.report, s.emitPending()
}

// SalvageRepeats reads from a damaged stream the event ids that a reader at a cursor must know. The
// cursor is usually the end of the archive. whole is true if the stream has the entire horizon
// before the cursor. Otherwise the result may be incomplete, and the caller must add the event ids
// that are known from elsewhere.
func (l *Log) SalvageRepeats(ctx context.Context, at events.Cursor) (repeats []events.Repeat, whole bool, err error) {
	s := &salvager{log: l}
	if err := s.prepare(ctx, at); err != nil {
		return nil, false, err
	}
	at = s.after

	state := s.stream.CachedInfo().State
	// At the start of an epoch the warm-up reads nothing from the stream.
	startsEpoch := at.Seq+1 == l.meta().first
	hasHorizon := !at.IsArchival() && state.FirstSeq <= s.warmUpStart
	whole = !s.warmUpIncomplete && at.Seq <= state.LastSeq && (startsEpoch || hasHorizon)

	for seq := max(s.warmUpStart, state.FirstSeq); seq <= min(at.Seq, state.LastSeq); {
		msg, err := s.nextReadable(ctx, seq, at.Seq)
		if err != nil {
			return nil, false, err
		}
		if msg == nil || msg.Sequence > at.Seq {
			whole = false
			break
		}
		whole = whole && msg.Sequence == seq
		if err := s.decodeMessage(msg); err != nil {
			return nil, false, err
		}
		seq = msg.Sequence + 1
	}
	s.dec.ContinueFrom(at.LastTime)
	return s.dec.Repeats(), whole, nil
}

// salvager is one run of [Log.Salvage] or [Log.SalvageRepeats].
type salvager struct {
	log    *Log
	stream jetstream.Stream
	// after is the cursor after which the salvage begins, in the form of the present epoch.
	after events.Cursor
	dec   *events.Decoder
	// warmUpStart is the sequence of the first message of the warm-up.
	warmUpStart uint64
	// emit gets the envelopes after the cursor.
	emit   func([]*events.Envelope) error
	report SalvageReport

	// knownRepeats are the event ids that a reader at the cursor knows. The decoder gets them if
	// warmUpIncomplete is true, which means that some of the warm-up could not be read.
	knownRepeats     []events.Repeat
	warmUpIncomplete bool

	// pendingEnvs are the envelopes that emit gets next. pendingBytes is their size in the log.
	pendingEnvs  []*events.Envelope
	pendingBytes int
}

// archivalCursor returns a cursor of the log and epoch of c, as an archive has it: without checksum
// and warm-up start.
func archivalCursor(c events.Cursor, seq uint64, lastTime events.Micros) events.Cursor {
	return events.Cursor{Log: c.Log, Epoch: c.Epoch, Seq: seq, LastTime: lastTime}
}

// prepare adopts the cursor, opens the stream, and makes a decoder that begins where the warm-up of
// the cursor begins.
func (s *salvager) prepare(ctx context.Context, after events.Cursor) error {
	var err error
	if s.after, err = s.log.AdoptCursor(after); err != nil {
		return err
	}
	if s.stream, err = s.log.fetchStream(ctx); err != nil {
		return err
	}

	// The decoder does not get the checksum and the warm-up start of the cursor, because it would
	// fail if a part of the warm-up were missing.
	decoderStart := archivalCursor(s.after, s.after.Seq, s.after.LastTime)
	if events.NewDecoder(s.after).IsWarmingUp() {
		decoderStart = archivalCursor(s.after, s.after.WarmSeq-1, s.after.WarmTime)
	}
	s.dec = events.NewDecoder(decoderStart)
	s.warmUpStart = decoderStart.Seq + 1

	meta := s.log.meta()
	if s.warmUpStart != meta.first || len(meta.predecessors) == 0 || s.log.archive == nil {
		return nil
	}
	// The warm-up begins with the epoch, so the decoder also needs the event ids of before the
	// epoch (I6).
	repeats, err := s.log.archive.Repeats(ctx, meta.epoch)
	if err != nil && !errors.Is(err, events.ErrArchiveDamaged) {
		return fmt.Errorf("eventlog: read the event ids seen before the epoch: %w", err)
	}
	s.warmUpIncomplete = err != nil
	s.dec.SeedRepeats(repeats)
	return nil
}

// nextReadable returns the first message at or after a sequence that can be read. It returns nil if
// there is none up to last. It fails if the server does not answer.
func (s *salvager) nextReadable(ctx context.Context, seq, last uint64) (*jetstream.RawStreamMsg, error) {
	msg, err := s.log.messageAtOrAfter(ctx, s.stream, seq)
	if err == nil && msg.Sequence >= seq {
		return msg, nil
	}

	// The server's search for the next message stops at one that it cannot read, so each sequence
	// is requested by itself.
	for ; seq <= last; seq++ {
		err = s.log.requestWithRetries(ctx, func(ctx context.Context) (err error) {
			msg, err = s.stream.GetMsg(ctx, seq)
			return err
		}, getMessageSubject)
		switch {
		case err == nil:
			return msg, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, jetstream.ErrMsgNotFound):
			continue
		case errors.Is(err, nats.ErrBadHeaderMsg):
			s.log.logger.Warn("log: a message cannot be read", "seq", seq, "error", err)
			continue
		case errors.Is(err, events.ErrForbidden):
			return nil, err
		}
		// The other errors say nothing about the message: the server has not answered, or has
		// rejected the request. All messages would count as lost while that lasts.
		return nil, wrapUnavailable(err)
	}
	return nil, nil
}

// decodeMessage decodes a message, and passes it on if it is after the cursor.
func (s *salvager) decodeMessage(msg *jetstream.RawStreamMsg) error {
	if msg.Sequence == s.after.Seq && s.after.Checksum != 0 && xxh3.Hash(msg.Data) != s.after.Checksum {
		return fmt.Errorf("%w: sequence %d differs: it is another stream", events.ErrRewritten, s.after.Seq)
	}
	if _, lost := s.log.meta().acceptedHole(msg.Sequence); lost { // the message came back after its loss was accepted
		return s.decodeLost(msg.Sequence)
	}

	s.finishWarmUp(msg.Sequence)
	env, err := s.dec.Decode(msg.Sequence, events.Micros(msg.Time.UnixMicro()), msg.Data)
	if err != nil || env.Seq() <= s.after.Seq {
		return err
	}
	return s.queueEnvelope(env)
}

// decodeLost decodes a sequence whose loss an operator has accepted, and passes it on if it is
// after the cursor.
func (s *salvager) decodeLost(seq uint64) error {
	s.finishWarmUp(seq)
	env, err := s.dec.DecodeLost(seq)
	if err != nil || seq <= s.after.Seq {
		return err
	}
	return s.queueEnvelope(env)
}

// finishWarmUp brings the decoder to the cursor when seq is the first sequence after the cursor,
// even if part of the warm-up was lost.
func (s *salvager) finishWarmUp(seq uint64) {
	if seq <= s.after.Seq || s.dec.Seq() > s.after.Seq {
		return
	}
	s.dec.ContinueFrom(s.after.LastTime)
	if s.warmUpIncomplete {
		s.dec.MergeRepeats(s.knownRepeats)
	}
}

// queueEnvelope passes an envelope on, together with others, and counts it.
func (s *salvager) queueEnvelope(env *events.Envelope) error {
	env.Cursor = archivalCursor(s.after, env.Seq(), env.Cursor.LastTime)
	s.report.Head = env.Cursor
	s.report.Envelopes++
	s.report.Events += uint64(len(env.Events))

	s.pendingEnvs = append(s.pendingEnvs, env)
	s.pendingBytes += env.Bytes
	if s.pendingBytes >= readBytes {
		return s.emitPending()
	}
	return nil
}

// emitPending passes the queued envelopes to emit.
func (s *salvager) emitPending() error {
	envs := s.pendingEnvs
	s.pendingEnvs = nil
	s.pendingBytes = 0
	if len(envs) == 0 {
		return nil
	}
	return s.emit(envs)
}

// recordLost adds sequences to the report that could not be read. Those whose loss was accepted
// already are passed on as lost envelopes.
func (s *salvager) recordLost(from, to uint64) error {
	for seq := from; seq <= to; seq++ {
		if _, lost := s.log.meta().acceptedHole(seq); lost {
			if err := s.decodeLost(seq); err != nil {
				return err
			}
			continue
		}
		if n := len(s.report.Lost); n > 0 && s.report.Lost[n-1].To+1 == seq {
			s.report.Lost[n-1].To = seq
			continue
		}
		s.report.Lost = append(s.report.Lost, SeqRange{seq, seq})
	}
	return nil
}
