package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

const (
	// pausedSubject is the subject of the stream while an epoch ends. Publishers send to [Subject], get no answer and retry. So nothing
	// is appended between reading the head and starting the new epoch.
	pausedSubject = "skein.paused"
	// metaPaused is the deadline of the pause, in decimal microseconds since 1970. If the stream is still paused then, the process that
	// paused it has crashed, and any other process resumes the stream.
	metaPaused = "skein-paused-until"
	// maxPause is the longest pause. It must be well below retryFor, so that publishers keep trying until the pause ends.
	maxPause = 10 * time.Second
	// spread is the time that the other processes have to learn of the new epoch before it gets events.
	spread = 200 * time.Millisecond
)

// ErrEpochNotBegun means that the log stays in its epoch, because archiving the rest of the epoch took too long, or because another
// process is beginning an epoch.
var ErrEpochNotBegun = errors.New("eventlog: the new epoch was not begun")

// meta returns the metadata of the stream as this process has last read it. The value never changes: new metadata is a new value, so
// callers compare pointers to notice a change.
func (l *Log) meta() *logMeta { return l.metas.Load() }

// enter takes over metadata that was read from the stream. It fails with [events.ErrOtherEpoch] if the epoch in it does not continue from
// the epoch that this process is in.
func (l *Log) enter(meta logMeta) error {
	for {
		now := l.metas.Load()
		if meta.epoch == now.epoch {
			// A hole that was accepted stays accepted. Answers of the server may arrive out of order, so an older one must not
			// remove it.
			meta.holes = joinRanges(append(meta.holes, now.holes...))
			if slices.Equal(meta.holes, now.holes) || l.metas.CompareAndSwap(now, &meta) {
				return nil
			}
			continue
		}

		known := func(p Predecessor) bool { return p.Epoch == now.epoch }
		if meta.epoch < now.epoch || !slices.ContainsFunc(meta.predecessors, known) {
			return fmt.Errorf("%w: the log is now in epoch %d, not %d: restart", events.ErrOtherEpoch, meta.epoch, now.epoch)
		}
		if l.metas.CompareAndSwap(now, &meta) {
			l.logger.Info("log: it goes on in a new epoch", "epoch", meta.epoch, "from", meta.first)
			return nil
		}
	}
}

// NextEpoch ends the epoch after a scrub of the archive: the log continues in a new epoch, and NextEpoch destroys what the stream holds of
// the old one. Publishers wait meanwhile, and the readers of all processes start again at their cursors.
//
// seal must archive everything up to the given sequence, the head of the epoch, and return the cursor at the end of the archive, which
// must be at that sequence. deleted is the sequence of the deletion up to which the archive was scrubbed; afterwards [Log.Erased]
// returns it in all processes.
//
// NextEpoch returns the last cursor of the epoch that ended. If it returns [ErrEpochNotBegun], with the cause, the log continues as it
// was. A crash leaves a paused log, in the old epoch or the new one, and the next process that opens it or publishes to it resumes it.
func (l *Log) NextEpoch(
	ctx context.Context, deleted uint64, seal func(ctx context.Context, head uint64) (events.Cursor, error),
) (_ events.Cursor, err error) {
	if !l.switching.TryLock() {
		return events.Cursor{}, fmt.Errorf("%w: another one is being begun", ErrEpochNotBegun)
	}
	defer l.switching.Unlock()
	if l.past == nil {
		return events.Cursor{}, fmt.Errorf("%w: there is no archive", ErrEpochNotBegun)
	}

	until := time.Now().Add(maxPause)
	within, cancel := context.WithDeadline(ctx, until.Add(-2*spread))
	defer cancel()
	if err := l.pause(within, until); err != nil {
		return events.Cursor{}, fmt.Errorf("%w: %w", ErrEpochNotBegun, err)
	}
	defer func() {
		resuming, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxPause)
		defer cancel()
		// The consumers are deleted before events of the new epoch arrive, so that no reader takes these for events of the old one.
		err = errors.Join(err, l.dropConsumers(resuming), l.unpause(resuming))
	}()

	head, err := l.pausedHead(within)
	if err != nil {
		return events.Cursor{}, fmt.Errorf("%w: %w", ErrEpochNotBegun, err)
	}

	end, err := seal(within, head)
	if err == nil && (end.Seq != head || end.Log != l.ID()) {
		err = fmt.Errorf("the archive ends at sequence %d, the log at %d", end.Seq, head)
	}
	if err != nil {
		return events.Cursor{}, fmt.Errorf("%w: %w", ErrEpochNotBegun, err)
	}

	if err := l.turn(within, end, deleted); err != nil {
		return events.Cursor{}, err
	}
	return end, l.destroy(ctx, head)
}

// configure reads the configuration of the stream, changes it and writes it back.
func (l *Log) configure(ctx context.Context, change func(c *jetstream.StreamConfig) error) error {
	stream, err := l.stream(ctx)
	if err != nil {
		return err
	}
	c := stream.CachedInfo().Config
	c.Metadata = maps.Clone(c.Metadata)
	if err := change(&c); err != nil {
		return err
	}
	return l.ask(ctx, func(ctx context.Context) error {
		_, err := l.link.js.UpdateStream(ctx, c)
		return unavailable(err)
	}, askUpdate)
}

// isPaused reports whether the stream is paused.
func isPaused(c *jetstream.StreamConfig) bool {
	return slices.Equal(c.Subjects, []string{pausedSubject})
}

// pause makes the stream take no envelopes. After until, any process may resume it.
func (l *Log) pause(ctx context.Context, until time.Time) error {
	return l.configure(ctx, func(c *jetstream.StreamConfig) error {
		if isPaused(c) {
			return errors.New("another process is at it")
		}
		c.Subjects = []string{pausedSubject}
		c.Metadata[metaPaused] = strconv.FormatInt(until.UnixMicro(), 10)
		return nil
	})
}

// unpause makes the stream take envelopes again.
func (l *Log) unpause(ctx context.Context) error {
	if l.server == nil {
		// Other processes use the log, and must learn of the epoch first.
		if wait.For(ctx, spread) != nil {
			return ctx.Err()
		}
	}
	return l.configure(ctx, func(c *jetstream.StreamConfig) error {
		c.Subjects = []string{Subject}
		delete(c.Metadata, metaPaused)
		return nil
	})
}

// electionPause and electionRetries make a request outlast the election of a leader, which a change of the stream's configuration
// may cause. No server answers until it is over.
const (
	electionPause   = 100 * time.Millisecond
	electionRetries = 100
)

// pausedHead returns the last sequence of a paused stream, once everything accepted before the pause is stored. To know that, it
// publishes a message that the leader must refuse, and does so in order, after all earlier messages and before any replica sees it.
// In a cluster the error code shows whether the expected last sequence was right. A single server always answers with the second
// code, when all earlier messages are stored.
func (l *Log) pausedHead(ctx context.Context) (uint64, error) {
	for head, err := l.Head(ctx); ; {
		if err != nil {
			return 0, err
		}
		msg := &nats.Msg{Subject: pausedSubject, Header: nats.Header{
			jetstream.ExpectedStreamHeader: {StreamName}, jetstream.ExpectedLastSubjSeqSubjHeader: {pausedSubject},
		}}
		err = l.ask(ctx, func(ctx context.Context) error {
			_, err := l.link.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequence(head.Last),
				jetstream.WithRetryWait(electionPause), jetstream.WithRetryAttempts(electionRetries))
			return err
		}, pausedSubject)
		code := apiError(err).ErrorCode
		if code != errCodeNoSubjectSequence && code != jetstream.JSErrCodeStreamWrongLastSequence {
			return 0, unavailable(fmt.Errorf("the stream did not tell its last sequence: %w", err))
		}
		before := head.Last
		if head, err = l.Head(ctx); err == nil && code == errCodeNoSubjectSequence && head.Last == before {
			return before, nil
		}
	}
}

// turn writes the new epoch into the metadata of the stream, which is still paused.
func (l *Log) turn(ctx context.Context, end events.Cursor, deleted uint64) error {
	next := Restored{
		ID: l.ID(), Epoch: l.Epoch() + 1, Predecessors: append(l.Predecessors(), Predecessor{l.Epoch(), end.Seq}), Head: end,
		Erased: Erased{l.Epoch(), deleted},
	}
	if err := next.valid(); err != nil {
		return err
	}
	metadata, err := next.metadata()
	if err != nil {
		return err
	}
	err = l.configure(ctx, func(c *jetstream.StreamConfig) error {
		if !isPaused(c) {
			return fmt.Errorf("%w: the log was resumed by another process", ErrEpochNotBegun)
		}
		maps.Copy(c.Metadata, metadata)
		return nil
	})
	if err != nil {
		return err
	}
	_, err = l.stream(ctx) // enters it
	return err
}

// destroy purges a paused stream. Because the purge covers every message, the server deletes whole files, and no erased user id
// stays behind in one.
func (l *Log) destroy(ctx context.Context, head uint64) error {
	stream, err := l.stream(ctx)
	if err != nil {
		return err
	}
	return l.ask(ctx, func(ctx context.Context) error {
		return unavailable(stream.Purge(ctx, jetstream.WithPurgeSequence(head+1)))
	}, askPurge)
}

// dropConsumers deletes the consumers of all processes. Their readers notice, read the metadata and begin again at their cursors.
func (l *Log) dropConsumers(ctx context.Context) error {
	stream, err := l.stream(ctx)
	if err != nil {
		return err
	}
	ctx, stop := l.link.heed(ctx, askConsumerNames, askConsumerDelete)
	defer stop()
	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		if err := stream.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return unavailable(forbidden(ctx, err))
		}
	}
	return unavailable(forbidden(ctx, names.Err()))
}

// resume repairs a stream that a crash left paused. In an external log the process that paused it may still be running: until the
// deadline has passed, the log is reported as unavailable.
func (l *Log) resume(ctx context.Context, info *jetstream.StreamInfo) (*jetstream.StreamInfo, error) {
	if !isPaused(&info.Config) {
		return info, nil
	}
	until, err := strconv.ParseInt(info.Config.Metadata[metaPaused], 10, 64)
	if err == nil && l.server == nil && time.Now().UnixMicro() < until {
		return nil, fmt.Errorf("%w: a new epoch is being begun", events.ErrLogUnavailable)
	}
	meta, err := parseMeta(info.Config.Metadata)
	if err != nil {
		return nil, mismatch([]string{err.Error()})
	}
	if l.metas.Load() == nil {
		l.metas.Store(&meta)
	}
	err = errors.Join(l.enter(meta), l.dropConsumers(ctx), l.unpause(ctx))
	if errors.Is(err, events.ErrForbidden) { // another user may resume it, and the process that began the epoch may return
		return nil, fmt.Errorf("%w: a new epoch was being begun and that was interrupted; this user cannot resume the log: %s",
			events.ErrLogUnavailable, err.Error())
	}
	if err != nil {
		return nil, err
	}
	l.logger.Warn("log: it was left paused, and goes on", "epoch", meta.epoch)
	return l.streamInfo(ctx)
}

// resumeNow resumes the stream for a publisher that got no answer.
func (l *Log) resumeNow(ctx context.Context) {
	if !l.switching.TryLock() { // this process is at it
		return
	}
	defer l.switching.Unlock()
	info, err := l.streamInfo(ctx)
	if err == nil {
		_, err = l.resume(ctx, info)
	}
	if err != nil {
		l.logger.Debug("log: no answer from the stream", "error", err)
	}
}
