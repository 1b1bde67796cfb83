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

// A hole of the log is a range of sequences that neither the stream nor the archive has, although
// they were not trimmed. The events in it were acknowledged and are lost. No reader crosses a hole,
// because a store that has folded the lost events knows more than the log.
//
// A hole closes when its messages come back, with a replica or a restored file. Otherwise an
// operator accepts the hole ([Log.AcceptHole]), which is recorded in the metadata of the stream.
// Every reader reads that metadata before it continues. Each lost sequence is then an envelope
// without events, which takes no time and has one [events.Reject]. It is archived, restored and
// carried into new epochs like any other envelope.

// ErrNotMissing is the error of [Log.AcceptHole] for a sequence that is not missing or was never in
// the log.
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

// metaHoles is the key of the accepted holes in the metadata of the stream. Its value is JSON:
// [{"from":2,"to":7}].
const metaHoles = "skein-accepted-holes"

// parseHoles parses the JSON list of accepted holes, and returns disjoint ranges in ascending
// order.
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

// joinRanges returns the same sequences as ranges in ascending order that neither overlap nor
// touch.
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

// acceptedHole returns the accepted hole that contains the sequence.
func (m *logMeta) acceptedHole(seq uint64) (SeqRange, bool) {
	i := m.firstHoleEndingAtOrAfter(seq)
	if i == len(m.holes) || m.holes[i].From > seq {
		return SeqRange{}, false
	}
	return m.holes[i], true
}

// nextAcceptedSeq returns the first sequence at or after seq that is in an accepted hole, or 0 if
// there is none.
func (m *logMeta) nextAcceptedSeq(seq uint64) uint64 {
	i := m.firstHoleEndingAtOrAfter(seq)
	if i == len(m.holes) {
		return 0
	}
	return max(seq, m.holes[i].From)
}

// firstHoleEndingAtOrAfter returns the index of that accepted hole, or len(m.holes) if there is
// none.
func (m *logMeta) firstHoleEndingAtOrAfter(seq uint64) int {
	return sort.Search(len(m.holes), func(i int) bool { return m.holes[i].To >= seq })
}

// AcceptedHoles returns the holes of the log that an operator has accepted.
func (l *Log) AcceptedHoles() []SeqRange { return slices.Clone(l.meta().holes) }

// recordMissing records a missing range for [Log.Holes], logs it the first time, and returns it as
// a [HoleError].
func (l *Log) recordMissing(r SeqRange) error {
	l.missingMu.Lock()
	defer l.missingMu.Unlock()

	isKnown := slices.ContainsFunc(l.missingRanges, func(known SeqRange) bool {
		return known.From <= r.From && r.To <= known.To
	})
	err := &HoleError{First: r.From, Last: r.To}
	if !isKnown {
		l.missingRanges = joinRanges(append(l.missingRanges, r))
		l.logger.Error("log: messages are lost, and nothing is folded across them", "first", r.From, "last", r.To, "error", err)
	}
	return err
}

// Holes returns the missing ranges in ascending order. It checks every range that was recorded
// earlier, and forgets those that are in the stream or the archive by now or were accepted.
func (l *Log) Holes(ctx context.Context) ([]SeqRange, error) {
	l.missingMu.Lock()
	recorded := slices.Clone(l.missingRanges)
	l.missingMu.Unlock()
	if len(recorded) == 0 {
		return nil, nil
	}

	var missing []SeqRange
	for _, r := range recorded {
		left, err := l.missingPart(ctx, r)
		if err != nil {
			return recorded, err
		}
		missing = append(missing, left...)
	}

	l.missingMu.Lock()
	defer l.missingMu.Unlock()
	// If another range was recorded during the checks, keep everything. The next call checks it.
	if slices.Equal(recorded, l.missingRanges) {
		l.missingRanges = missing
	}
	return slices.Clone(l.missingRanges), nil
}

// missingPart returns the part of a range that begins with the first sequence that is still
// missing. It does not check the sequences after that one, because one request per sequence would
// be too many for a large hole.
func (l *Log) missingPart(ctx context.Context, r SeqRange) ([]SeqRange, error) {
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return nil, err
	}
	for seq := r.From; seq <= r.To; seq++ {
		found, upTo, err := l.isAccountedFor(ctx, stream, seq)
		if err != nil {
			return nil, err
		}
		if !found {
			return []SeqRange{{seq, r.To}}, nil
		}
		seq = upTo
	}
	return nil, nil
}

// isAccountedFor reports whether a sequence is in the stream, in the archive or in an accepted
// hole. If it is, then so are all sequences from it to upTo.
func (l *Log) isAccountedFor(ctx context.Context, stream jetstream.Stream, seq uint64) (found bool, upTo uint64, err error) {
	if hole, ok := l.meta().acceptedHole(seq); ok {
		return true, hole.To, nil
	}
	end, err := l.archiveEndSeq(ctx, seq)
	if err != nil {
		return false, 0, err
	}
	if seq <= end {
		return true, end, nil
	}
	found, err = l.hasMessage(ctx, stream, seq)
	return found, seq, err
}

// archiveEndSeq returns the last sequence of the archive. If the archive ends before seq,
// archiveEndSeq reloads it first, because another process may have written more of it.
func (l *Log) archiveEndSeq(ctx context.Context, seq uint64) (uint64, error) {
	if l.archive == nil {
		return 0, nil
	}
	end, err := l.archiveEnd()
	if err != nil {
		return 0, err
	}
	if archive, ok := l.archive.(reloader); ok && end.Seq < seq {
		if err := archive.Reload(ctx); err != nil {
			return 0, fmt.Errorf("eventlog: look for sequence %d in the archive: %w", seq, err)
		}
		if end, err = l.archiveEnd(); err != nil {
			return 0, err
		}
	}
	return end.Seq, nil
}

// hasMessage reports whether the stream can return the message. The server answers "not found" also
// for a message whose checksum does not match.
func (l *Log) hasMessage(ctx context.Context, stream jetstream.Stream, seq uint64) (bool, error) {
	err := l.requestWithRetries(ctx, func(ctx context.Context) (err error) {
		_, err = stream.GetMsg(ctx, seq)
		return err
	}, getMessageSubject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, wrapUnavailable(err)
}

// maxProbes is the number of messages that measureHole requests one by one to find the end of a
// hole. A larger hole is reported as if it reached to the next delivered message.
const maxProbes = 1000

// measureHole returns the hole that begins at first, which is missing, and ends before next, the
// first sequence after it that is known not to be missing.
func (l *Log) measureHole(ctx context.Context, stream jetstream.Stream, first, next uint64) (SeqRange, error) {
	last := next - 1
	if accepted := l.meta().nextAcceptedSeq(first); accepted > 0 {
		last = min(last, accepted-1)
	}
	for seq := first + 1; seq <= last && seq-first <= maxProbes; seq++ {
		found, err := l.hasMessage(ctx, stream, seq)
		if err != nil {
			return SeqRange{}, err
		}
		if found {
			last = seq - 1
		}
	}
	return SeqRange{first, last}, nil
}

// AcceptHole records in the log that the envelopes of a range are lost, and lets the readers of all
// processes continue after them. It cannot be undone: a message that comes back later is not read.
// If any sequence of the range is in the stream or the archive, or beyond the end of the log,
// nothing is accepted and the error is [ErrNotMissing]. While a process begins a new epoch, nothing
// is accepted either, and the error is [events.ErrLogUnavailable].
func (l *Log) AcceptHole(ctx context.Context, r SeqRange) error {
	if !l.reconfigureMu.TryLock() {
		return errEpochBeingBegun
	}
	defer l.reconfigureMu.Unlock()

	epoch := l.Epoch()
	if err := l.checkMissing(ctx, r); err != nil {
		return err
	}

	err := l.updateStreamConfig(ctx, func(c *jetstream.StreamConfig) error {
		accepted, err := parseHoles(c.Metadata[metaHoles])
		if err != nil {
			return err
		}
		holes := joinRanges(append(accepted, r))
		if slices.Equal(holes, accepted) {
			return nil // an earlier attempt has written them, and its answer was lost
		}

		// A new epoch deletes the messages that it has archived. So if it begins, or has begun
		// since checkMissing looked for the messages, they need not be lost.
		if isPaused(c) || l.Epoch() != epoch {
			return errEpochBeingBegun
		}
		text, err := json.Marshal(holes)
		c.Metadata[metaHoles] = string(text)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := l.fetchStream(ctx); err != nil { // reads the new metadata
		return err
	}
	l.logger.Warn("log: a hole was accepted: what it held is lost", "first", r.From, "last", r.To)

	// Readers of other processes read the metadata only when they start again. A reader that
	// reached the hole with the old metadata would stop there. Deleting the consumers makes all
	// readers start again.
	if err := l.deleteConsumers(ctx); err != nil {
		return err
	}
	_, err = l.Holes(ctx) // forgets the range
	return err
}

// checkMissing returns [ErrNotMissing] unless every sequence of the range was in the log in this
// epoch and is missing now.
func (l *Log) checkMissing(ctx context.Context, r SeqRange) error {
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return err
	}
	last := stream.CachedInfo().State.LastSeq
	switch {
	case r.From == 0 || r.To < r.From:
		return fmt.Errorf("%w: sequences %d to %d are no range", ErrNotMissing, r.From, r.To)
	case r.To > last:
		return fmt.Errorf("%w: sequence %d is beyond the end of the log, %d", ErrNotMissing, r.To, last)
	case r.From < l.meta().first:
		return fmt.Errorf("%w: sequence %d is of before the present epoch, which begins at %d: all that there is of it is "+
			"in the archive", ErrNotMissing, r.From, l.meta().first)
	}

	for seq := r.From; seq <= r.To; seq++ {
		found, _, err := l.isAccountedFor(ctx, stream, seq)
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("%w: the log has sequence %d, or its loss is accepted already: nothing was changed", ErrNotMissing,
				seq)
		}
	}
	return nil
}

// maxExaminedBytes limits how many bytes of the stream, as the server counts them,
// [Log.VerifyUnarchived] reads when a process starts. Reading one GiB takes a second or two.
const maxExaminedBytes = 1 << 30

// VerifyUnarchived reads the part of the stream that is not archived, at most its newest GiB, and
// returns the number of messages read. The server verifies the checksum of each message that it
// reads from a file. VerifyUnarchived records the messages that the server does not deliver as
// missing ([Log.Holes]). Readers would find the same holes, but only after their cursors.
func (l *Log) VerifyUnarchived(ctx context.Context) (read uint64, err error) {
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return 0, err
	}
	state := stream.CachedInfo().State
	from, err := l.examineFrom(state)
	if err != nil || from > state.LastSeq {
		return 0, err
	}

	// The server reads each message from its file, and so verifies it, also if it sends only the
	// headers.
	consumer, err := l.createConsumer(ctx, from, true)
	if err != nil {
		return 0, err
	}
	defer l.discardConsumer(consumer.CachedInfo().Name)

	examined := from - 1 // the last sequence that was examined
	for examined < state.LastSeq && ctx.Err() == nil {
		batch, err := consumer.FetchNoWait(pullMessages)
		if err != nil {
			return read, wrapUnavailable(err)
		}
		delivered := uint64(0)
		for msg := range batch.Messages() {
			meta, err := msg.Metadata()
			if err != nil {
				return read, wrapUnavailable(err)
			}
			delivered++
			seq := meta.Sequence.Stream
			if err := l.recordMissingBetween(ctx, stream, examined+1, min(seq, state.LastSeq+1)); err != nil {
				return read, err
			}
			examined = seq
		}
		read += delivered
		if err := batch.Error(); err != nil {
			return read, wrapUnavailable(err)
		}
		if delivered == 0 {
			break // nothing that can be read is left
		}
	}
	return read, errors.Join(ctx.Err(), l.recordMissingBetween(ctx, stream, examined+1, state.LastSeq+1))
}

// examineFrom returns the first sequence that VerifyUnarchived reads.
func (l *Log) examineFrom(state jetstream.StreamState) (uint64, error) {
	end, err := l.archiveEnd()
	if err != nil {
		return 0, err
	}
	from := max(l.meta().first, end.Seq+1)
	if l.archive == nil { // a process with an archive may have trimmed the stream
		from = max(from, state.FirstSeq)
	}
	if state.Bytes > maxExaminedBytes {
		// The server does not say where the newest GiB begins, so the messages count as equally
		// large.
		share := float64(maxExaminedBytes) / float64(state.Bytes)
		from = max(from, state.LastSeq-uint64(share*float64(state.Msgs)))
	}
	return from, nil
}

// recordMissingBetween records which of the sequences from seq to before next, which the server did
// not deliver, are missing. The others are archived or in an accepted hole.
func (l *Log) recordMissingBetween(ctx context.Context, stream jetstream.Stream, seq, next uint64) error {
	for seq < next {
		found, upTo, err := l.isAccountedFor(ctx, stream, seq)
		if err != nil {
			return err
		}
		if !found {
			hole, err := l.measureHole(ctx, stream, seq, next)
			if err != nil {
				return err
			}
			_ = l.recordMissing(hole) // the caller reports holes by Log.Holes
			upTo = hole.To
		}
		seq = upTo + 1
	}
	return nil
}
