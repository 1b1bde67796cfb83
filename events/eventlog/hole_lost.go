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

// A hole of the log is a range of sequences that neither the stream nor the archive has, although they were not trimmed. The events in it
// were acknowledged and are lost. No reader crosses a hole, because a store that has folded the lost events knows more than the log.
//
// A hole closes when its messages come back, with a replica or a restored file. Otherwise an operator accepts the hole
// ([Log.AcceptHole]), which is recorded in the metadata of the stream. Every reader reads that metadata before it continues. Each lost
// sequence is then an envelope without events, which takes no time and has one [events.Reject]. It is archived, restored and carried
// into new epochs like any other envelope.

// ErrNotMissing is the error of [Log.AcceptHole] for a sequence that is not missing or was never in the log.
var ErrNotMissing = errors.New("eventlog: not missing")

// HoleError is an [events.ErrHole] with the first and the last sequence of the hole.
type HoleError struct{ First, Last uint64 }

// Error says which sequences are missing and what an operator can do.
func (e *HoleError) Error() string {
	what := fmt.Sprintf("sequence %d is", e.First)
	if e.Last != e.First {
		what = fmt.Sprintf("sequences %d to %d are", e.First, e.Last)
	}
	return fmt.Sprintf("%v: %s neither in the stream nor in the archive, and nothing is folded, archived or repaired across it: "+
		"bring the messages back, or accept the loss with `%s`", events.ErrHole, what, AcceptCommand(SeqRange{e.First, e.Last}))
}

// AcceptCommand returns the command with which an operator accepts a hole.
func AcceptCommand(r SeqRange) string {
	if r.From == r.To {
		return fmt.Sprintf("skein replay log accept-hole %d", r.From)
	}
	return fmt.Sprintf("skein replay log accept-hole %d %d", r.From, r.To)
}

// Is makes errors.Is match events.ErrHole.
func (e *HoleError) Is(target error) bool { return target == events.ErrHole }

// metaHoles lists the holes that an operator has accepted as JSON: [{"from":2,"to":7}].
const metaHoles = "skein-accepted-holes"

// parseHoles parses the JSON list of accepted holes, and returns disjoint ranges in ascending order.
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

// joinRanges returns the same sequences as ranges in ascending order that neither overlap nor touch.
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

// accepted returns the accepted hole that contains the sequence.
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

// nextAccepted returns the first sequence at or after seq that is in an accepted hole, or 0 if there is none.
func (m *logMeta) nextAccepted(seq uint64) uint64 {
	i := sort.Search(len(m.holes), func(i int) bool { return m.holes[i].To >= seq })
	if i == len(m.holes) {
		return 0
	}
	return max(seq, m.holes[i].From)
}

// AcceptedHoles returns the accepted holes of the stream.
func (l *Log) AcceptedHoles() []SeqRange { return slices.Clone(l.meta().holes) }

// noteMissing records a missing range for status and metrics, logs it the first time, and returns it as an error.
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

// Holes returns the missing ranges in ascending order. It checks every range that was noted earlier, and forgets those that are in the
// stream or the archive by now or were accepted.
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

// stillMissing returns the part of a range that begins with the first sequence that is still missing. It does not check what follows:
// one request per sequence would be too many for a large hole.
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

// accountedFor reports whether a sequence is in the stream, in the archive or in an accepted hole. If it is, the same is known for the
// sequences up to the returned one.
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

// reloadedEnd returns the last sequence of the archive. If the archive ends before seq, reloadedEnd reloads it first, because another
// process may write it.
func (l *Log) reloadedEnd(ctx context.Context, seq uint64) (uint64, error) {
	if l.past == nil {
		return 0, nil
	}
	end, err := l.archiveEnd()
	if err != nil {
		return 0, err
	}
	if past, ok := l.past.(reloader); ok && end.Seq < seq {
		if err := past.Reload(ctx); err != nil {
			return 0, fmt.Errorf("eventlog: look for sequence %d in the archive: %w", seq, err)
		}
		if end, err = l.archiveEnd(); err != nil {
			return 0, err
		}
	}
	return end.Seq, nil
}

// hasMessage reports whether the stream can return the message. The server answers "not found" also for a message whose checksum does
// not match.
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

// maxProbes is the number of messages that holeFrom requests one by one to find the end of a hole. A larger hole is reported as if it
// reached to the next delivered message.
const maxProbes = 1000

// holeFrom returns the hole that begins at first, which is missing, and ends before the sequence before, which is not.
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

// AcceptHole records in the log that the envelopes of a range are lost, and lets the readers of all processes continue after them.
// It cannot be undone: a message that comes back later is not read. If any sequence of the range is in the stream or the archive,
// or beyond the end of the log, nothing is accepted and the error is [ErrNotMissing].
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
	// Readers of other processes learn of the accepted hole when they begin again, so they are made to: a reader that crossed the
	// hole without knowing would stop.
	if err := l.dropConsumers(ctx); err != nil {
		return err
	}
	_, err = l.Holes(ctx)
	return err
}

// maxExamined bounds how many bytes of the stream, as the server counts them, [Log.Examine] reads. A GiB takes a second or two at
// start.
const maxExamined = 1 << 30

// Examine reads the part of the stream that is not archived, at most its newest GiB, and returns the number of messages read. The
// server verifies the checksum of each message that it reads from a file; those that it does not deliver are noted as missing
// ([Log.Holes]). Readers would find the same holes, but only after their cursors.
func (l *Log) Examine(ctx context.Context) (read uint64, err error) {
	stream, err := l.stream(ctx)
	if err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	end, err := l.archiveEnd()
	if err != nil {
		return 0, err
	}
	from := max(l.meta().first, end.Seq+1)
	if l.past == nil { // a process with an archive may have trimmed the stream
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

// examined notes which of the sequences that were not delivered are missing; others are archived or accepted.
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
