package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
)

// SeqRange is a range of sequences, both ends in it.
type SeqRange struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// SalvageReport is the result of [Log.Salvage].
type SalvageReport struct {
	// Envelopes and Events were read and handed on.
	Envelopes, Events uint64
	// Lost are the sequences, up to the last that the stream knows of, that could not be read or are gone.
	Lost []SeqRange
	// Head is the cursor after the last envelope handed on, for [Restored]; the one that it began after, if there was none.
	Head events.Cursor
	// Repeats are the event ids that must be remembered at the head, as far as they could be read.
	Repeats []events.Repeat
}

// Salvage reads what a damaged stream still holds after a cursor, the end of the archive as a rule, message by message, and hands
// it on in order, for the archive of a log that is to be restored. It passes over what cannot be read, and reports it. The cursors
// of the envelopes are those of an archive. Repeats are the event ids that a reader at the cursor knows, for where the stream no
// longer has the horizon before it. It fails if each fails, if the log does not answer, or with [events.ErrRewritten] if the
// message at the cursor can be read and differs.
func (l *Log) Salvage(
	ctx context.Context, after events.Cursor, repeats []events.Repeat, each func([]*events.Envelope) error,
) (SalvageReport, error) {
	s := &salvage{log: l, each: each, known: repeats}
	after, err := l.Adopt(after)
	if err != nil {
		return s.report, err
	}
	if s.stream, err = l.stream(ctx); err != nil {
		return s.report, err
	}
	s.report.Head = events.Cursor{Log: after.Log, Epoch: after.Epoch, Seq: after.Seq, LastTime: after.LastTime}
	state := s.stream.CachedInfo().State
	warm, err := s.begin(ctx, after)
	if err != nil {
		return s.report, err
	}
	s.cold = s.cold || after.IsArchival() || state.FirstSeq > warm
	if state.FirstSeq > after.Seq+1 {
		if err := s.lose(after.Seq+1, min(state.FirstSeq-1, state.LastSeq), after); err != nil {
			return s.report, err
		}
	}
	for seq := max(state.FirstSeq, warm); seq <= state.LastSeq; {
		msg, err := s.load(ctx, seq, state.LastSeq)
		if err != nil {
			return s.report, err
		}
		next := state.LastSeq + 1
		if msg != nil {
			next = msg.Sequence
		}
		s.cold = s.cold || seq < next && seq <= after.Seq
		if from := max(seq, after.Seq+1); from < next {
			if err := s.lose(from, next-1, after); err != nil {
				return s.report, err
			}
		}
		if seq = next + 1; msg == nil {
			break
		}
		if err := s.take(msg, after); err != nil {
			return s.report, err
		}
	}
	s.report.Repeats = s.dec.Repeats()
	return s.report, s.flush()
}

// SalvageRepeats reads in a damaged stream which event ids a reader at a cursor, the end of the archive as a rule, must know. whole
// is set if the stream has the entire horizon before the cursor. Otherwise the result may be incomplete, and the caller must add
// the event ids known from elsewhere.
func (l *Log) SalvageRepeats(ctx context.Context, at events.Cursor) (repeats []events.Repeat, whole bool, err error) {
	s := &salvage{log: l}
	if at, err = l.Adopt(at); err != nil {
		return nil, false, err
	}
	if s.stream, err = l.stream(ctx); err != nil {
		return nil, false, err
	}
	state := s.stream.CachedInfo().State
	seq, err := s.begin(ctx, at)
	if err != nil {
		return nil, false, err
	}
	// At the start of an epoch the warm-up reads nothing from the stream.
	whole = !s.cold && at.Seq <= state.LastSeq && (at.Seq+1 == l.meta().first || !at.IsArchival() && state.FirstSeq <= seq)
	for seq = max(seq, state.FirstSeq); seq <= min(at.Seq, state.LastSeq); {
		msg, err := s.load(ctx, seq, at.Seq)
		if err != nil {
			return nil, false, err
		}
		if msg == nil || msg.Sequence > at.Seq {
			whole = false
			break
		}
		whole = whole && msg.Sequence == seq
		seq = msg.Sequence + 1
		if err := s.take(msg, at); err != nil {
			return nil, false, err
		}
	}
	s.dec.ContinueFrom(at.LastTime)
	return s.dec.Repeats(), whole, nil
}

// salvage is one run of [Log.Salvage].
type salvage struct {
	log    *Log
	stream jetstream.Stream
	dec    *events.Decoder
	each   func([]*events.Envelope) error
	report SalvageReport
	// known are the event ids that a reader at the cursor knows. cold is set if some of the warm-up could not be read: the decoder
	// is then given known.
	known []events.Repeat
	cold  bool

	envs  []*events.Envelope // to hand on
	bytes int
}

// begin makes a decoder that takes what there is of the warm-up, and returns where that begins.
func (s *salvage) begin(ctx context.Context, after events.Cursor) (warm uint64, err error) {
	from := after
	if warm := events.NewDecoder(after); warm.Warming() {
		from = events.Cursor{Log: after.Log, Epoch: after.Epoch, Seq: after.WarmSeq - 1, LastTime: after.WarmTime}
	}
	s.dec = events.NewDecoder(events.Cursor{Log: from.Log, Epoch: from.Epoch, Seq: from.Seq, LastTime: from.LastTime})
	if from.Seq+1 == s.log.meta().first && len(s.log.meta().predecessors) > 0 && s.log.past != nil {
		repeats, err := s.log.past.Repeats(ctx, s.log.meta().epoch)
		if err != nil && !errors.Is(err, events.ErrArchiveDamaged) {
			return 0, fmt.Errorf("eventlog: read the event ids seen before the epoch: %w", err)
		}
		s.cold = err != nil
		s.dec.SeedRepeats(repeats)
	}
	return from.Seq + 1, nil
}

// load returns the first message from a sequence on that can be read; nil means there is none up to the last.
func (s *salvage) load(ctx context.Context, seq, last uint64) (*jetstream.RawStreamMsg, error) {
	if msg, err := s.log.messageFrom(ctx, s.stream, seq); err == nil && msg.Sequence >= seq {
		return msg, nil
	}
	// The server's search for the next message stops at one that it cannot read, so each sequence is requested by itself.
	for ; seq <= last; seq++ {
		var msg *jetstream.RawStreamMsg
		err := s.log.ask(ctx, func(ctx context.Context) (err error) {
			msg, err = s.stream.GetMsg(ctx, seq)
			return err
		})
		switch {
		case err == nil:
			return msg, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, jetstream.ErrMsgNotFound):
			continue
		}
		if _, gone := s.log.stream(ctx); gone != nil {
			return nil, gone
		}
		s.log.logger.Warn("log: a message cannot be read", "seq", seq, "error", err)
	}
	return nil, nil
}

// take decodes a message.
func (s *salvage) take(msg *jetstream.RawStreamMsg, after events.Cursor) error {
	if msg.Sequence == after.Seq && after.Checksum != 0 && xxh3.Hash(msg.Data) != after.Checksum {
		return fmt.Errorf("%w: sequence %d differs: it is another stream", events.ErrRewritten, after.Seq)
	}
	s.cross(msg.Sequence, after)
	if _, lost := s.log.meta().accepted(msg.Sequence); lost { // it has come back, too late
		return s.pass(msg.Sequence, after)
	}
	env, err := s.dec.Decode(msg.Sequence, events.Micros(msg.Time.UnixMicro()), msg.Data)
	if err != nil || env.Seq() <= after.Seq {
		return err
	}
	return s.give(env, after)
}

// cross brings the decoder to the cursor when the first sequence after it arrives, even if part of the warm-up was lost.
func (s *salvage) cross(seq uint64, after events.Cursor) {
	if seq > after.Seq && s.dec.Seq() <= after.Seq {
		s.dec.ContinueFrom(after.LastTime) // whatever of the warm-up is lost
		if s.cold {
			s.dec.MergeRepeats(s.known)
		}
	}
}

// pass hands on a lost envelope that was accepted as such.
func (s *salvage) pass(seq uint64, after events.Cursor) error {
	s.cross(seq, after)
	env, err := s.dec.DecodeLost(seq)
	if err != nil || seq <= after.Seq {
		return err
	}
	return s.give(env, after)
}

func (s *salvage) give(env *events.Envelope, after events.Cursor) error {
	env.Cursor = events.Cursor{Log: after.Log, Epoch: after.Epoch, Seq: env.Seq(), LastTime: env.Cursor.LastTime}
	s.report.Head = env.Cursor
	s.report.Envelopes++
	s.report.Events += uint64(len(env.Events))
	s.envs, s.bytes = append(s.envs, env), s.bytes+env.Bytes
	if s.bytes >= readBytes {
		return s.flush()
	}
	return nil
}

func (s *salvage) flush() error {
	envs := s.envs
	if s.envs, s.bytes = nil, 0; len(envs) == 0 {
		return nil
	}
	return s.each(envs)
}

// lose notes sequences that could not be read. Those that were accepted as lost are handed on as that.
func (s *salvage) lose(from, to uint64, after events.Cursor) error {
	for seq := from; seq <= to; seq++ {
		if _, lost := s.log.meta().accepted(seq); lost {
			if err := s.pass(seq, after); err != nil {
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
