package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

const (
	// pausedSubject is the subject of the stream while an epoch ends. Publishers send to [Subject],
	// get no answer and retry. So nothing is appended between reading the head and starting the new
	// epoch.
	pausedSubject = "skein.paused"
	// metaPaused is the key of the deadline of the pause in the metadata of the stream, in decimal
	// microseconds since 1970. If the stream is still paused then, the process that paused it has
	// crashed, and any other process resumes the stream.
	metaPaused = "skein-paused-until"
	// maxPause is the longest pause. It must be well below retryFor, so that publishers keep trying
	// until the pause ends.
	maxPause = 15 * time.Second
	// purgeTime is the part of the pause that is left for the purge of the old epoch. Everything
	// before must end earlier, or the epoch does not begin.
	purgeTime = 5 * time.Second
	// propagationTime is the time that the other processes have to learn of the new epoch before
	// the epoch gets events.
	propagationTime = 200 * time.Millisecond
)

// errEpochBeingBegun means that a process has paused the stream, or is about to.
var errEpochBeingBegun = fmt.Errorf("%w: a new epoch is being begun", events.ErrLogUnavailable)

// ErrEpochNotBegun means that the log stays in its epoch, because archiving the rest of the epoch
// took too long, or because another process is beginning an epoch.
var ErrEpochNotBegun = errors.New("eventlog: the new epoch was not begun")

// meta returns the metadata of the stream as this process has last read it. The value never
// changes: new metadata is a new value, so callers compare pointers to notice a change.
func (l *Log) meta() *logMeta { return l.currentMeta.Load() }

// updateMeta replaces the metadata of this process by metadata that was just read from the stream.
// It fails with [events.ErrOtherEpoch] if the epoch in it does not continue from the epoch that
// this process is in.
func (l *Log) updateMeta(meta logMeta) error {
	for {
		current := l.currentMeta.Load()
		if meta.epoch == current.epoch {
			// A hole that was accepted stays accepted. Answers of the server may arrive out of
			// order, so an older one must not remove it.
			meta.holes = joinRanges(append(meta.holes, current.holes...))
			if slices.Equal(meta.holes, current.holes) || l.currentMeta.CompareAndSwap(current, &meta) {
				return nil
			}
			continue
		}

		isCurrent := func(p Predecessor) bool { return p.Epoch == current.epoch }
		if meta.epoch < current.epoch || !slices.ContainsFunc(meta.predecessors, isCurrent) {
			return fmt.Errorf("%w: the log is now in epoch %d, not %d: restart", events.ErrOtherEpoch, meta.epoch, current.epoch)
		}
		if l.currentMeta.CompareAndSwap(current, &meta) {
			l.logger.Info("log: it goes on in a new epoch", "epoch", meta.epoch, "from", meta.first)
			return nil
		}
	}
}

// NextEpoch ends the epoch after a scrub of the archive: the log continues in a new epoch, and
// NextEpoch destroys what the stream holds of the old one. Publishers wait meanwhile, and the
// readers of all processes start again at their cursors. Files of an embedded log may still have
// what was destroyed until [Log.RemovePurged] returns.
//
// seal must archive everything up to the given sequence, the head of the epoch, and return the
// cursor at the end of the archive, which must be at that sequence. deleted is the sequence of the
// deletion up to which the archive was scrubbed; afterwards [Log.LastErasure] returns it in all
// processes, and [Log.ErasedPartitions] returns partitions; nil means that they are not known.
//
// NextEpoch returns the last cursor of the epoch that ended. If it returns [ErrEpochNotBegun], with
// the cause, the log continues as it was. After another error the new epoch may have begun, and the
// stream may still hold messages of the old one, which the next call of NextEpoch destroys. A crash
// leaves a paused log, in the old epoch or the new one, and the next process that opens it or
// publishes to it resumes it.
func (l *Log) NextEpoch(
	ctx context.Context, deleted uint64, partitions map[string]events.Partitions,
	seal func(ctx context.Context, head uint64) (events.Cursor, error),
) (_ events.Cursor, err error) {
	if !l.reconfigureMu.TryLock() {
		return events.Cursor{}, fmt.Errorf("%w: another one is being begun", ErrEpochNotBegun)
	}
	defer l.reconfigureMu.Unlock()
	if l.archive == nil {
		return events.Cursor{}, fmt.Errorf("%w: there is no archive", ErrEpochNotBegun)
	}

	pauseCtx, cancel, pause, err := l.pauseForWork(ctx)
	if err != nil {
		return events.Cursor{}, fmt.Errorf("%w: %w", ErrEpochNotBegun, err)
	}
	defer cancel()
	defer func() {
		// The stream is resumed even if ctx has ended, because otherwise publishers would wait
		// until the deadline of the pause.
		resumeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxPause)
		defer cancel()
		// The consumers are deleted before events of the new epoch arrive, so that no reader takes
		// these for events of the old one.
		err = errors.Join(err, l.deleteConsumers(resumeCtx), l.unpauseStream(resumeCtx, pause))
	}()

	// The purge must end before the pause does, so everything before it must leave time for it.
	deadline, _ := pauseCtx.Deadline()
	sealCtx, cancelSeal := context.WithDeadline(pauseCtx, deadline.Add(-purgeTime))
	defer cancelSeal()

	head, err := l.settledHead(sealCtx)
	if err != nil {
		return events.Cursor{}, fmt.Errorf("%w: %w", ErrEpochNotBegun, err)
	}

	end, err := seal(sealCtx, head)
	if err == nil && (end.Seq != head || end.Log != l.ID()) {
		err = fmt.Errorf("the archive ends at sequence %d, the log at %d", end.Seq, head)
	}
	if err != nil {
		return events.Cursor{}, fmt.Errorf("%w: %w", ErrEpochNotBegun, err)
	}

	if err := l.writeNewEpoch(sealCtx, pause, end, deleted, partitions); err != nil {
		return events.Cursor{}, err
	}
	return end, l.purgeStream(pauseCtx, pause, head)
}

// updateStreamConfig reads the configuration of the stream, changes it and writes it back. It sends
// nothing if change leaves the configuration as it is.
//
// The request writes the whole configuration. So each attempt reads the configuration again:
// otherwise the second attempt would undo what another process has written since the first. If the
// first attempt was applied and its answer was lost, change gets its own result, and must accept
// that.
func (l *Log) updateStreamConfig(ctx context.Context, change func(c *jetstream.StreamConfig) error) error {
	var prepareErr error // of reading or changing, which has no use in another attempt
	err := retryAfterTimeouts(func(timeout time.Duration) error {
		var info *jetstream.StreamInfo
		if info, prepareErr = l.fetchStreamInfo(ctx); prepareErr != nil {
			return nil //nolint:nilerr // returned below; fetchStreamInfo has tried again itself
		}
		config := info.Config
		config.Metadata = maps.Clone(config.Metadata) // info still refers to the old map
		if prepareErr = change(&config); prepareErr != nil || reflect.DeepEqual(config, info.Config) {
			return nil //nolint:nilerr // returned below
		}

		return l.conn.request(ctx, l.conn.state(), timeout, func(ctx context.Context) error {
			_, err := l.conn.js.UpdateStream(ctx, config)
			return wrapUnavailable(err)
		}, streamUpdateSubject)
	})
	return cmp.Or(prepareErr, err)
}

// isPaused reports whether the stream is paused.
func isPaused(c *jetstream.StreamConfig) bool {
	return slices.Equal(c.Subjects, []string{pausedSubject})
}

// streamPause identifies a pause of the stream. It is the value of metaPaused, the deadline, which
// differs from those of the pauses of other processes.
type streamPause string

// holds reports whether the stream is paused by this pause.
func (p streamPause) holds(c *jetstream.StreamConfig) bool {
	return isPaused(c) && c.Metadata[metaPaused] == string(p)
}

// pauseForWork pauses the stream for maxPause, and returns the context of the work for which it is
// paused. That context ends well before the pause does, because after the pause another process may
// resume the stream.
func (l *Log) pauseForWork(ctx context.Context) (context.Context, context.CancelFunc, streamPause, error) {
	deadline := time.Now().Add(maxPause)
	workCtx, cancel := context.WithDeadline(ctx, deadline.Add(-2*propagationTime))
	pause, err := l.pauseStream(workCtx, deadline)
	if err != nil {
		cancel()
		// The answer may be all that was lost. Without this, publishers would wait until the
		// deadline. The request may also arrive later. Publishers of this process then resume the
		// stream (unpauseAbandoned), and those of other processes wait until the deadline.
		resumeCtx, cancelResume := context.WithTimeout(context.WithoutCancel(ctx), maxPause)
		defer cancelResume()
		l.failedPause = pause
		return nil, nil, pause, errors.Join(err, l.unpauseStream(resumeCtx, pause))
	}
	return workCtx, cancel, pause, nil
}

// pauseStream makes the stream reject envelopes. After the deadline, any process may resume it.
func (l *Log) pauseStream(ctx context.Context, deadline time.Time) (streamPause, error) {
	pause := streamPause(strconv.FormatInt(deadline.UnixMicro(), 10))
	return pause, l.updateStreamConfig(ctx, func(c *jetstream.StreamConfig) error {
		if isPaused(c) && !pause.holds(c) {
			return errors.New("another process has paused the stream")
		}
		c.Subjects = []string{pausedSubject}
		c.Metadata[metaPaused] = string(pause)
		return nil
	})
}

// unpauseStream makes the stream accept envelopes again, unless another process has done that or
// has paused the stream since. With an external log it first waits for propagationTime.
func (l *Log) unpauseStream(ctx context.Context, pause streamPause) error {
	if l.server == nil {
		// Other processes use the log, and must learn of the epoch first.
		if wait.For(ctx, propagationTime) != nil {
			return ctx.Err()
		}
	}
	return l.updateStreamConfig(ctx, func(c *jetstream.StreamConfig) error {
		if pause.holds(c) {
			c.Subjects = []string{Subject}
			delete(c.Metadata, metaPaused)
		}
		return nil
	})
}

// electionRetryPause and electionRetries make a request outlast the election of a leader, which a
// change of the stream's configuration may cause. No server answers until it is over.
const (
	electionRetryPause = 100 * time.Millisecond
	electionRetries    = 100
)

// settledHead returns the last sequence of a paused stream, after everything that the stream
// accepted before the pause is stored.
//
// The server does not report the envelopes that it has accepted but not stored yet. So settledHead
// publishes a message that the leader must reject: its headers expect a last sequence of the
// stream, and name a subject without the sequence that goes with it. The leader checks the headers
// in the order of arrival, after all earlier messages, and before any replica gets the message.
//
// In a cluster, the leader checks the expected last sequence first. errCodeNoSubjectSequence then
// means that it was right, and JSErrCodeStreamWrongLastSequence that it was not, so settledHead
// tries again. A single server always answers with errCodeNoSubjectSequence, once all earlier
// messages are stored.
func (l *Log) settledHead(ctx context.Context) (uint64, error) {
	head, err := l.Head(ctx)
	if err != nil {
		return 0, err
	}
	for {
		probe := &nats.Msg{Subject: pausedSubject, Header: nats.Header{
			jetstream.ExpectedStreamHeader:          {StreamName},
			jetstream.ExpectedLastSubjSeqSubjHeader: {pausedSubject},
		}}
		err := l.requestWithRetries(ctx, func(ctx context.Context) error {
			_, err := l.conn.js.PublishMsg(ctx, probe, jetstream.WithExpectLastSequence(head.Last),
				jetstream.WithRetryWait(electionRetryPause), jetstream.WithRetryAttempts(electionRetries))
			return err
		}, pausedSubject)
		code := apiError(err).ErrorCode
		if code != errCodeNoSubjectSequence && code != jetstream.JSErrCodeStreamWrongLastSequence {
			return 0, wrapUnavailable(fmt.Errorf("the stream did not tell its last sequence: %w", err))
		}

		// The head is read again, because the answer of a single server does not say whether the
		// expected sequence was right.
		expected := head.Last
		if head, err = l.Head(ctx); err != nil {
			return 0, err
		}
		if code == errCodeNoSubjectSequence && head.Last == expected {
			return expected, nil
		}
	}
}

// writeNewEpoch writes the new epoch into the metadata of the stream, which pause still pauses. end
// is the last cursor of the old epoch. The other arguments are those of NextEpoch.
func (l *Log) writeNewEpoch(
	ctx context.Context, pause streamPause, end events.Cursor, deleted uint64, partitions map[string]events.Partitions,
) error {
	old := l.Epoch()
	next := RestoredState{
		ID:           l.ID(),
		Epoch:        old + 1,
		Predecessors: append(l.Predecessors(), Predecessor{old, end.Seq}),
		Head:         end,
		LastErasure:  Erasure{old, deleted},
	}
	if err := next.validate(); err != nil {
		return err
	}
	metadata, err := next.streamMetadata()
	if err != nil {
		return err
	}
	erased, err := json.Marshal(erasedPartitionsMeta{Epoch: old, Partitions: partitions})
	if err != nil {
		return fmt.Errorf("eventlog: %w", err)
	}
	metadata[metaErasedPartitions] = string(erased)

	err = l.updateStreamConfig(ctx, func(c *jetstream.StreamConfig) error {
		if !pause.holds(c) {
			return fmt.Errorf("%w: the log was resumed by another process", ErrEpochNotBegun)
		}
		maps.Copy(c.Metadata, metadata)
		return nil
	})
	if err != nil {
		return err
	}

	// NATS cannot make the update depend on what was read before it. An update that another process
	// sent before the pause, and that arrived late, may have replaced this one.
	if _, err = l.fetchStream(ctx); err == nil && l.Epoch() != next.Epoch {
		err = fmt.Errorf("%w: another process has changed the stream", ErrEpochNotBegun)
	}
	return err
}

// purgeStream removes everything up to head, the last message, from the stream that pause pauses.
// Because the purge covers every message, the server deletes whole files, and no erased user id
// stays behind in one. If another process has resumed the stream, newer messages may share a file
// with the old ones, so purgeStream fails.
func (l *Log) purgeStream(ctx context.Context, pause streamPause, head uint64) error {
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return err
	}
	if !pause.holds(&stream.CachedInfo().Config) {
		return fmt.Errorf("eventlog: another process has resumed the log before its messages up to sequence %d were destroyed: "+
			"erase again", head)
	}
	return l.requestWithRetries(ctx, func(ctx context.Context) error {
		return wrapUnavailable(stream.Purge(ctx, jetstream.WithPurgeSequence(head+1)))
	}, streamPurgeSubject)
}

// RemovePurged removes the files of the messages that [Log.NextEpoch] has destroyed, if the log is
// embedded. Its server has only begun to remove them when NextEpoch returns. Those of a large log
// may take seconds, for which publishers must not wait.
func (l *Log) RemovePurged() error {
	if l.server == nil {
		return nil
	}
	return l.server.RemovePurged()
}

// deleteConsumers deletes the consumers of all processes. Their readers notice it, read the
// metadata and begin again at their cursors.
func (l *Log) deleteConsumers(ctx context.Context) error {
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return err
	}
	ctx, stop := l.conn.watchPermissions(ctx, consumerNamesSubject, consumerDeletePrefix)
	defer stop()

	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		if err := stream.DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return wrapUnavailable(permissionError(ctx, err))
		}
	}
	return wrapUnavailable(permissionError(ctx, names.Err()))
}

// unpauseAbandoned resumes a stream that a crash has left paused, and returns the information about
// the stream after that. It returns info itself if the stream is not paused.
//
// In an external log, the process that paused the stream may still be running. Until the deadline
// of the pause, unpauseAbandoned returns [events.ErrLogUnavailable], unless this process has
// already undone the pause, and the request for it has only arrived now (failedPause). The caller
// holds reconfigureMu, or is opening the log.
func (l *Log) unpauseAbandoned(ctx context.Context, info *jetstream.StreamInfo) (*jetstream.StreamInfo, error) {
	if !isPaused(&info.Config) {
		return info, nil
	}
	pause := streamPause(info.Config.Metadata[metaPaused])
	deadline, err := strconv.ParseInt(string(pause), 10, 64)
	if err == nil && l.server == nil && pause != l.failedPause && time.Now().UnixMicro() < deadline {
		return nil, errEpochBeingBegun
	}

	meta, err := parseMeta(info.Config.Metadata)
	if err != nil {
		return nil, mismatchError([]string{err.Error()})
	}
	if l.currentMeta.Load() == nil { // the log is just being opened
		l.currentMeta.Store(&meta)
	}
	// If the crash came after the new epoch was written, old consumers may remain. As in NextEpoch,
	// they go first.
	err = errors.Join(l.updateMeta(meta), l.deleteConsumers(ctx), l.unpauseStream(ctx, pause))
	if errors.Is(err, events.ErrForbidden) { // another user may resume it, and the process that began the epoch may return
		return nil, fmt.Errorf("%w: a new epoch was being begun and that was interrupted; this user cannot resume the log: %s",
			events.ErrLogUnavailable, err.Error())
	}
	if err != nil {
		return nil, err
	}
	l.logger.Warn("log: it was left paused, and goes on", "epoch", meta.epoch)
	if info, err = l.fetchStreamInfo(ctx); err == nil && isPaused(&info.Config) {
		return nil, errEpochBeingBegun // another process has paused it since
	}
	return info, err
}

// tryUnpauseAbandoned resumes a stream that a crash has left paused, for a publisher that got no
// answer. Errors are only logged, because the publisher retries anyway.
func (l *Log) tryUnpauseAbandoned(ctx context.Context) {
	if !l.reconfigureMu.TryLock() {
		return // this process itself has paused the stream, and will resume it
	}
	defer l.reconfigureMu.Unlock()
	info, err := l.fetchStreamInfo(ctx)
	if err == nil {
		_, err = l.unpauseAbandoned(ctx, info)
	}
	if err != nil {
		l.logger.Debug("log: no answer from the stream", "error", err)
	}
}
