package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
)

// A hole of the log is a range of sequences that neither the stream nor the archive has, though nobody trimmed them: facts
// that were acknowledged and are lost. Nothing is folded across one: a store that has folded what is lost knows more than the
// log does. Messages that come back, by a replica or a file that is restored, close it. Else an operator accepts it, knowingly
// ([Log.AcceptHole]). That is recorded in the metadata of the stream, so every reader learns it before it reads on: each lost
// sequence is then an envelope without events, that takes no time and leaves one [events.Reject]. As such it is archived, restored and
// carried into new epochs as all envelopes are.

// ErrHole means that the log lacks envelopes that it had. The error returned is a [HoleError]. It passes when they come back or when
// the hole is accepted.
var ErrHole = errors.New("events: the log has a hole")

// ErrNotMissing means that what was to be accepted as lost is not, or never was in the log.
var ErrNotMissing = errors.New("events: not missing")

// HoleError names the first and the last sequence that are missing next to each other.
type HoleError struct{ First, Last uint64 }

// Error says what is missing, and what to do.
func (e *HoleError) Error() string {
	what := fmt.Sprintf("sequence %d is", e.First)
	if e.Last != e.First {
		what = fmt.Sprintf("sequences %d to %d are", e.First, e.Last)
	}
	return fmt.Sprintf("%v: %s neither in the stream nor in the archive, and nothing is folded, archived or repaired across it: "+
		"bring the messages back, or accept the loss with `%s`", ErrHole, what, AcceptCommand(SeqRange{e.First, e.Last}))
}

// AcceptCommand is the command by which an operator accepts a hole.
func AcceptCommand(r SeqRange) string {
	if r.From == r.To {
		return fmt.Sprintf("skein replay log accept-hole %d", r.From)
	}
	return fmt.Sprintf("skein replay log accept-hole %d %d", r.From, r.To)
}

// Is reports that it is an ErrHole.
func (e *HoleError) Is(target error) bool { return target == ErrHole }

// metaHoles lists the holes that an operator has accepted as JSON: [{"from":2,"to":7}].
const metaHoles = "skein-accepted-holes"

// parseHoles reads the list, and makes it one of disjoint rising ranges.
func parseHoles(text string) ([]SeqRange, error) {
	if text == "" {
		return nil, nil
	}
	var list []SeqRange
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("metadata %s is malformed: %w", metaHoles, err)
	}
	for _, r := range list {
		if r.From == 0 || r.To < r.From {
			return nil, fmt.Errorf("metadata %s has the range %d to %d", metaHoles, r.From, r.To)
		}
	}
	return joinRanges(list), nil
}

// joinRanges returns the same sequences in rising ranges that do not touch.
func joinRanges(list []SeqRange) []SeqRange {
	list = slices.Clone(list)
	sort.Slice(list, func(i, j int) bool { return list[i].From < list[j].From })
	joined := list[:0]
	for _, r := range list {
		if n := len(joined); n > 0 && r.From <= joined[n-1].To+1 {
			joined[n-1].To = max(joined[n-1].To, r.To)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// accepted returns the accepted hole that a sequence is in.
func (m *logMeta) accepted(seq uint64) (SeqRange, bool) {
	if len(m.holes) == 0 {
		return SeqRange{}, false
	}
	i := sort.Search(len(m.holes), func(i int) bool { return m.holes[i].To >= seq })
	if i == len(m.holes) || m.holes[i].From > seq {
		return SeqRange{}, false
	}
	return m.holes[i], true
}

// nextAccepted returns the first sequence from one on that is in an accepted hole; 0 means there is none.
func (m *logMeta) nextAccepted(seq uint64) uint64 {
	i := sort.Search(len(m.holes), func(i int) bool { return m.holes[i].To >= seq })
	if i == len(m.holes) {
		return 0
	}
	return max(seq, m.holes[i].From)
}

// AcceptedHoles returns the holes of the stream that were accepted.
func (l *Log) AcceptedHoles() []SeqRange { return slices.Clone(l.meta().holes) }

// noteMissing keeps what was found missing, for status and metrics, and returns the error.
func (l *Log) noteMissing(r SeqRange) error {
	l.missingMu.Lock()
	defer l.missingMu.Unlock()
	known := slices.ContainsFunc(l.missing, func(k SeqRange) bool { return k.From <= r.From && r.To <= k.To })
	err := &HoleError{First: r.From, Last: r.To}
	if !known {
		l.missing = joinRanges(append(l.missing, r))
		l.logger.Error("log: messages are lost, and nothing is folded across them", "first", r.From, "last", r.To, "error", err)
	}
	return err
}

// Holes returns what is known to be missing, lowest first, and asks the log whether it still is. Without an error, it has
// nothing that was found once and is there by now, in the stream or in the archive, or accepted.
func (l *Log) Holes(ctx context.Context) ([]SeqRange, error) {
	l.missingMu.Lock()
	noted := slices.Clone(l.missing)
	l.missingMu.Unlock()
	if len(noted) == 0 {
		return nil, nil
	}
	var still []SeqRange
	for _, r := range noted {
		left, err := l.stillMissing(ctx, r)
		if err != nil {
			return noted, err
		}
		still = append(still, left...)
	}
	l.missingMu.Lock()
	defer l.missingMu.Unlock()
	if slices.Equal(noted, l.missing) {
		l.missing = still
	}
	return slices.Clone(l.missing), nil
}

// stillMissing looks for the first sequence of a range that is missing still. What comes after it is not looked for.
func (l *Log) stillMissing(ctx context.Context, r SeqRange) ([]SeqRange, error) {
	stream, err := l.stream(ctx)
	if err != nil {
		return nil, err
	}
	for seq := r.From; seq <= r.To; seq++ {
		there, to, err := l.accountedFor(ctx, stream, seq)
		if err != nil {
			return nil, err
		}
		if !there {
			return []SeqRange{{seq, r.To}}, nil
		}
		seq = to
	}
	return nil, nil
}

// accountedFor reports whether a sequence is in the stream, in the archive or in an accepted hole, and up to where it is
// known that this is so.
func (l *Log) accountedFor(ctx context.Context, stream jetstream.Stream, seq uint64) (there bool, to uint64, err error) {
	if r, ok := l.meta().accepted(seq); ok {
		return true, r.To, nil
	}
	end, err := l.reloadedEnd(ctx, seq)
	if err != nil {
		return false, 0, err
	}
	if seq <= end {
		return true, end, nil
	}
	there, err = l.hasMessage(ctx, stream, seq)
	return there, seq, err
}

// reloadedEnd returns the last sequence of the archive, which is looked at again if it did not go to a sequence.
func (l *Log) reloadedEnd(ctx context.Context, seq uint64) (uint64, error) {
	if l.past == nil {
		return 0, nil
	}
	end, err := l.pastEnd()
	if err != nil {
		return 0, err
	}
	if past, ok := l.past.(reloader); ok && end.Seq < seq {
		if err := past.Reload(ctx); err != nil {
			return 0, fmt.Errorf("events: look for sequence %d in the archive: %w", seq, err)
		}
		if end, err = l.pastEnd(); err != nil {
			return 0, err
		}
	}
	return end.Seq, nil
}

// hasMessage reports whether the stream gives a message. Of one whose checksum does not match the server says that there is
// none.
func (l *Log) hasMessage(ctx context.Context, stream jetstream.Stream, seq uint64) (bool, error) {
	err := l.ask(ctx, func(ctx context.Context) (err error) {
		_, err = stream.GetMsg(ctx, seq)
		return err
	}, askMessage)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, unavailable(err)
}

// maxProbes bounds how far the end of a hole is looked for message by message.
const maxProbes = 1000

// holeFrom returns the hole that begins with a missing sequence and ends before another that is not.
func (l *Log) holeFrom(ctx context.Context, stream jetstream.Stream, first, before uint64) (SeqRange, error) {
	last := before - 1
	if next := l.meta().nextAccepted(first); next > 0 {
		last = min(last, next-1)
	}
	for seq := first + 1; seq <= last && seq-first <= maxProbes; seq++ {
		there, err := l.hasMessage(ctx, stream, seq)
		if err != nil {
			return SeqRange{}, err
		}
		if there {
			last = seq - 1
		}
	}
	return SeqRange{first, last}, nil
}

// AcceptHole records in the log that the envelopes of some sequences are lost, and has all readers, of all processes, continue
// over them. It cannot be taken back: a message that comes back later is not read. It refuses with [ErrNotMissing] what is in
// the stream or the archive, or beyond the end of the log. Nothing is accepted then.
func (l *Log) AcceptHole(ctx context.Context, r SeqRange) error {
	if !l.switching.TryLock() {
		return fmt.Errorf("%w: a new epoch is being begun", events.ErrLogUnavailable)
	}
	defer l.switching.Unlock()
	stream, err := l.stream(ctx)
	if err != nil {
		return err
	}
	switch last := stream.CachedInfo().State.LastSeq; {
	case r.From == 0 || r.To < r.From:
		return fmt.Errorf("%w: sequences %d to %d are no range", ErrNotMissing, r.From, r.To)
	case r.To > last:
		return fmt.Errorf("%w: sequence %d is beyond the end of the log, %d", ErrNotMissing, r.To, last)
	case r.From < l.meta().first:
		return fmt.Errorf("%w: sequence %d is of before the present epoch, which begins at %d: all that there is of it is "+
			"in the archive", ErrNotMissing, r.From, l.meta().first)
	}
	for seq := r.From; seq <= r.To; seq++ {
		there, _, err := l.accountedFor(ctx, stream, seq)
		if err != nil {
			return err
		}
		if there {
			return fmt.Errorf("%w: the log has sequence %d, or its loss is accepted already: nothing was changed", ErrNotMissing,
				seq)
		}
	}
	err = l.configure(ctx, func(c *jetstream.StreamConfig) error {
		now, err := parseHoles(c.Metadata[metaHoles])
		if err != nil {
			return err
		}
		text, err := json.Marshal(joinRanges(append(now, r)))
		c.Metadata[metaHoles] = string(text)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := l.stream(ctx); err != nil { // learns it
		return err
	}
	l.logger.Warn("log: a hole was accepted: what it held is lost", "first", r.From, "last", r.To)
	// Whoever is to read over the hole must know first.
	if err := l.dropConsumers(ctx); err != nil {
		return err
	}
	_, err = l.Holes(ctx)
	return err
}

// maxExamined bounds how much of the stream [Log.Examine] reads, in bytes as the server counts them: a second or two.
const maxExamined = 1 << 30

// Examine reads what the stream has and the archive has not, its newest GiB at most, and returns what it read of it. The
// server compares the checksum of each message that it reads from a file; those that it does not give are noted as missing
// ([Log.Holes]). Readers would meet them, too, but only from their cursors on.
func (l *Log) Examine(ctx context.Context) (read uint64, err error) {
	stream, err := l.stream(ctx)
	if err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	end, err := l.pastEnd()
	if err != nil {
		return 0, err
	}
	from := max(l.meta().first, end.Seq+1)
	if l.past == nil { // whoever has an archive may have trimmed it
		from = max(from, state.FirstSeq)
	}
	if state.Bytes > maxExamined {
		share := float64(maxExamined) / float64(state.Bytes)
		from = max(from, state.LastSeq-uint64(share*float64(state.Msgs)))
	}
	if from > state.LastSeq {
		return 0, nil
	}
	var c jetstream.Consumer
	err = l.ask(ctx, func(ctx context.Context) (err error) {
		c, err = l.link.js.CreateConsumer(ctx, StreamName, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: idleConsumer, HeadersOnly: true,
		})
		return err
	}, askConsumer)
	if err != nil {
		return 0, unavailable(err)
	}
	defer func() { _ = l.link.nc.Publish(askConsumerDelete+c.CachedInfo().Name, nil) }()
	at := from - 1
	for at < state.LastSeq && ctx.Err() == nil {
		batch, err := c.FetchNoWait(pullMessages)
		if err != nil {
			return read, unavailable(err)
		}
		n := 0
		for msg := range batch.Messages() {
			meta, err := msg.Metadata()
			if err != nil {
				return read, unavailable(err)
			}
			n++
			seq := meta.Sequence.Stream
			if err := l.examined(ctx, stream, at+1, min(seq, state.LastSeq+1)); err != nil {
				return read, err
			}
			at = seq
		}
		read += uint64(n)
		if err := batch.Error(); err != nil {
			return read, unavailable(err)
		}
		if n == 0 {
			break
		}
	}
	return read, errors.Join(ctx.Err(), l.examined(ctx, stream, at+1, state.LastSeq+1))
}

// examined notes what is missing of sequences that were not given.
func (l *Log) examined(ctx context.Context, stream jetstream.Stream, seq, before uint64) error {
	for seq < before {
		there, to, err := l.accountedFor(ctx, stream, seq)
		if err != nil {
			return err
		}
		if !there {
			hole, err := l.holeFrom(ctx, stream, seq, before)
			if err != nil {
				return err
			}
			_ = l.noteMissing(hole)
			to = hole.To
		}
		seq = to + 1
	}
	return nil
}
