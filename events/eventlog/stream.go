package eventlog

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

const (
	// maxMsgSize is the size limit of a message of the stream. It leaves 64 KiB for the headers of
	// the largest envelope, and it is below the default max_payload of a NATS server.
	maxMsgSize = events.MaxEnvelopeBytes + 64<<10

	// dedupeWindow is how long the stream remembers the Nats-Msg-Id of an envelope. It must be more
	// than twice retryFor, so that the stream still knows the id when the last attempt arrives. It
	// should not be much more, because the server keeps every id of the window in memory: at about
	// 150 bytes per id and a few thousand envelopes per second, a minute costs tens of megabytes.
	dedupeWindow = time.Minute
	// retryFor is how long a publisher retries one envelope. It must outlast the election of a new
	// leader in a cluster, which takes about ten seconds in the worst case.
	retryFor = 25 * time.Second
)

// streamConfig returns the configuration of the stream of a new log. Every feature that it does not
// set must stay off; [configDifferences] checks that.
func streamConfig(id events.LogID, replicas int, maxBytes int64) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        StreamName,
		Description: "The log of skein. Written by skein; do not edit.",
		Subjects:    []string{Subject},
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		MaxBytes:    maxBytes,
		MaxMsgs:     -1,
		MaxMsgSize:  maxMsgSize,
		Duplicates:  dedupeWindow,
		Replicas:    replicas,
		// With AllowDirect, any replica would answer a request for a message. To a replica that
		// lags, a valid cursor would seem to be beyond the end of the log.
		AllowDirect: false,
		Metadata: map[string]string{
			metaLogID: hex.EncodeToString(id[:]),
			metaEpoch: "1",
		},
	}
}

// configDifferences lists the settings of a stream with which the stream cannot be a log. Settings
// that lose, change or reorder messages are rejected even if an administrator has chosen them.
// replicas is the required number of replicas, or 0 if any number will do.
func configDifferences(c jetstream.StreamConfig, replicas int) []string {
	var diffs []string
	require := func(ok bool, name string, got, want any) {
		if !ok {
			diffs = append(diffs, fmt.Sprintf("%s is %v, must be %v", name, got, want))
		}
	}
	requireOff := func(on bool, name, why string) {
		if on {
			diffs = append(diffs, fmt.Sprintf("%s is on: %s", name, why))
		}
	}

	require(slices.Equal(c.Subjects, []string{Subject}), "subjects", c.Subjects, []string{Subject})
	require(c.Storage == jetstream.FileStorage, "storage", c.Storage, jetstream.FileStorage)
	require(c.Retention == jetstream.LimitsPolicy, "retention", c.Retention, jetstream.LimitsPolicy)
	require(c.Discard == jetstream.DiscardNew, "discard", c.Discard, jetstream.DiscardNew)
	require(!c.DiscardNewPerSubject, "discard_new_per_subject", c.DiscardNewPerSubject, false)
	require(c.MaxAge == 0, "max_age", c.MaxAge, "0 (the log never forgets)")
	require(c.MaxMsgs <= 0, "max_msgs", c.MaxMsgs, "-1 (no bound)")
	require(c.MaxMsgsPerSubject <= 0, "max_msgs_per_subject", c.MaxMsgsPerSubject, "-1 (no bound)")
	require(c.MaxMsgSize <= 0 || c.MaxMsgSize >= maxMsgSize, "max_msg_size", c.MaxMsgSize,
		fmt.Sprintf("at least %d", maxMsgSize))
	require(c.Duplicates >= dedupeWindow, "duplicate_window", c.Duplicates, fmt.Sprintf("at least %v", dedupeWindow))
	require(replicas == 0 || c.Replicas == replicas, "num_replicas", c.Replicas, replicas)
	require(c.PersistMode == jetstream.DefaultPersistMode, "persist_mode", c.PersistMode,
		"default (async loses acknowledged messages)")
	require(c.SubjectTransform == nil, "subject_transform", "set", "absent")
	require(c.Mirror == nil, "mirror", "set", "absent")
	require(len(c.Sources) == 0, "sources", "set", "absent")

	requireOff(c.NoAck, "no_ack", "publishers need acknowledgements")
	requireOff(c.Sealed, "sealed", "it takes no messages")
	requireOff(c.DenyPurge, "deny_purge", "the archived prefix could not be trimmed")
	requireOff(c.AllowRollup, "allow_rollup_hdrs", "a publisher could erase the log")
	requireOff(c.AllowMsgTTL, "allow_msg_ttl", "messages could vanish")
	requireOff(c.AllowMsgCounter, "allow_msg_counter", "it rewrites bodies")
	requireOff(c.AllowMsgSchedules, "allow_msg_schedules", "messages could vanish")
	requireOff(c.AllowAtomicPublish, "allow_atomic", "readers are told of a batch before it is on disk")
	requireOff(c.AllowBatchPublish, "allow_batched", "readers are told of a batch before it is on disk")

	if _, err := parseMeta(c.Metadata); err != nil {
		diffs = append(diffs, err.Error())
	}
	return diffs
}

// openStream finds the stream of the log, or creates it if create is set, and stores its metadata
// in currentMeta. Servers that have just started or that are electing a leader give no answer, so
// openStream retries until the connect timeout.
func (l *Log) openStream(outer context.Context, create bool) error {
	ctx, cancel := context.WithTimeout(outer, l.cfg.connectTimeout())
	defer cancel()
	peersDeadline := time.Now().Add(min(peerDiscoveryTime, l.cfg.connectTimeout()/2))

	var lastErr error
	pause := firstRetryPause
	timeout := firstRequestTimeout
	for {
		state := l.conn.state()
		var info *jetstream.StreamInfo
		err := l.conn.request(ctx, state, timeout, func(ctx context.Context) (err error) {
			info, err = l.openStreamOnce(ctx, create, time.Now().After(peersDeadline))
			return err
		}, streamInfoSubject, streamCreateSubject)
		if err == nil {
			l.conn.markVerified(state)
			l.raiseLastKnownSeq(info.State.LastSeq)
			l.recordReplicas(info)
			return l.applyMaxBytes(ctx, info)
		}

		if lastErr != nil && outer.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return lastErr // our own timeout interrupted the request, so the error before it says more
		}
		// The servers of a cluster may not have found each other yet, or no server has answered.
		// Nothing else changes by waiting.
		noPeers := apiError(err).ErrorCode == errCodeNoPeers
		noAnswer := errors.Is(err, events.ErrLogUnavailable) || errors.Is(err, nats.ErrTimeout) ||
			errors.Is(err, nats.ErrDisconnected)
		if !noAnswer && !noPeers || errors.Is(err, events.ErrForbidden) {
			return err
		}

		l.logger.Debug("log: asking for the stream again", "error", err)
		lastErr = err
		if !noPeers {
			lastErr = fmt.Errorf("%w: the server does not tell about the stream: %w", events.ErrLogUnavailable, err)
		}
		if wait.For(ctx, pause) != nil {
			if err := outer.Err(); err != nil {
				return fmt.Errorf("%w: %w", err, lastErr)
			}
			return lastErr
		}
		pause = min(2*pause, maxRetryPause)
		timeout = min(2*timeout, requestTimeout)
	}
}

// openStreamOnce makes one attempt to find or create the stream. peersKnown is set once the servers
// of a cluster have had peerDiscoveryTime to find each other.
func (l *Log) openStreamOnce(ctx context.Context, create, peersKnown bool) (*jetstream.StreamInfo, error) {
	if l.restoreSpec != nil {
		if err := l.checkNoOtherLog(ctx); err != nil {
			return nil, err
		}
	}

	stream, err := l.conn.js.Stream(ctx, StreamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if l.cfg.Existing && l.restoreSpec == nil {
			return nil, fmt.Errorf("%w: no stream %s, where there was one: restore the log from its archive", events.ErrNoLog,
				StreamName)
		}
		if !create {
			return nil, fmt.Errorf("%w: no stream %s: start skein on this server first", events.ErrNoLog, StreamName)
		}
		stream, err = l.createStream(ctx, peersKnown)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
			stream, err = l.conn.js.Stream(ctx, StreamName)
		}
	}
	if err != nil {
		return nil, explainStreamError(err)
	}

	// A paused stream has another subject, so it must be resumed before its settings are compared.
	info, err := l.unpauseAbandoned(ctx, stream.CachedInfo())
	if err != nil {
		return nil, err
	}
	if diffs := configDifferences(info.Config, l.cfg.Replicas); len(diffs) > 0 {
		return nil, mismatchError(diffs)
	}
	meta, err := parseMeta(info.Config.Metadata)
	if err != nil {
		return nil, mismatchError([]string{err.Error()})
	}
	l.currentMeta.Store(&meta)
	return info, nil
}

// createStream creates the stream of a new log, or of the log that restoreSpec describes.
func (l *Log) createStream(ctx context.Context, peersKnown bool) (jetstream.Stream, error) {
	var id events.LogID
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("eventlog: make a log id: %w", err)
	}

	maxBytes := l.cfg.MaxBytes
	if maxBytes == 0 {
		maxBytes = -1
		if l.server != nil {
			free, err := l.server.Free()
			if err != nil {
				return nil, fmt.Errorf("eventlog: find the free space of %s (set MaxBytes to do without): %w",
					l.server.Dir(), err)
			}
			maxBytes = int64(float64(free) * defaultDiskShare)
		}
	}

	replicas := l.cfg.Replicas
	if replicas == 0 {
		replicas = 1
		if l.server == nil {
			replicas = defaultReplicas
		}
	}

	config := streamConfig(id, replicas, maxBytes)
	if spec := l.restoreSpec; spec != nil {
		var err error
		if config.Metadata, err = spec.streamMetadata(); err != nil {
			return nil, err
		}
		config.FirstSeq = spec.Head.Seq + 1
	}

	l.createSent = true
	stream, err := l.conn.js.CreateStream(ctx, config)
	// A single server, or two, cannot have the default number of replicas.
	if l.cfg.Replicas == 0 && replicas > 1 && l.hasTooFewServers(err, peersKnown) {
		config.Replicas = 1
		stream, err = l.conn.js.CreateStream(ctx, config)
	}
	return stream, err
}

const (
	// defaultDiskShare is the share of the free disk space that an embedded log may use. The stores
	// and the archive need the rest.
	defaultDiskShare = 0.8
	// defaultReplicas is the number of replicas of a log in a cluster. With three, one server may
	// be lost without losing an event and without an interruption.
	defaultReplicas = 3
	// peerDiscoveryTime is how long the servers of a cluster that has just started may take to find
	// each other.
	peerDiscoveryTime = 5 * time.Second
)

// Error codes of the server for which the client package has no names.
const (
	errCodeNoPeers         jetstream.ErrorCode = 10005
	errCodeNoReplicas      jetstream.ErrorCode = 10074
	errCodeResources       jetstream.ErrorCode = 10023
	errCodeAccountFull     jetstream.ErrorCode = 10002
	errCodeStorageFull     jetstream.ErrorCode = 10047
	errCodeStoreFailed     jetstream.ErrorCode = 10077
	errCodeNotLeader       jetstream.ErrorCode = 10009
	errCodeDuplicateInWork jetstream.ErrorCode = 10158
	errCodeSubjectOverlap  jetstream.ErrorCode = 10065

	// errCodeNoSubjectSequence means that the headers of a message name a subject whose last
	// sequence the publisher expects, but not that sequence.
	errCodeNoSubjectSequence jetstream.ErrorCode = 10193
)

// apiError returns the answer of the server that err wraps. If there is none, it returns an
// APIError without a code.
func apiError(err error) *jetstream.APIError {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api
	}
	return &jetstream.APIError{}
}

// hasTooFewServers reports whether the server refused replicas because it is alone or its cluster
// is too small.
//
// A large enough cluster must not get a log without replicas by mistake, because the log would then
// stay without them. If a server of the cluster is down or full, the description of the error gives
// the reason after a comma. A cluster that has just elected its first leader does not know all its
// servers yet, so the error counts only once peersKnown is set.
func (l *Log) hasTooFewServers(err error, peersKnown bool) bool {
	switch api := apiError(err); api.ErrorCode {
	case errCodeNoReplicas:
		return true
	case errCodeNoPeers:
		return peersKnown && !strings.Contains(api.Description, ",") && len(l.conn.nc.Servers()) < defaultReplicas
	}
	return false
}

// explainStreamError turns a failure to find or create the stream into an error that says what to
// do.
func explainStreamError(err error) error {
	switch api := apiError(err); {
	case api.ErrorCode == errCodeSubjectOverlap:
		return fmt.Errorf("%w: another stream of the account takes the subject %s: %w", events.ErrStreamMismatch, Subject, err)
	case api.ErrorCode == errCodeNoPeers:
		return fmt.Errorf("eventlog: the cluster cannot place the replicas of the log now: start or free the servers "+
			"that are missing, or choose the number of replicas: %w", err)
	case api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabled,
		api.ErrorCode == jetstream.JSErrCodeJetStreamNotEnabledForAccount,
		errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("eventlog: the server has no JetStream, which the log needs: %w", err)
	case errors.Is(err, events.ErrNoLog), errors.Is(err, events.ErrLogExists):
		return err
	}
	return wrapUnavailable(err)
}

// applyMaxBytes gives an existing embedded log the size limit of the configuration. An external log
// keeps the limit that it has, because several processes share it.
func (l *Log) applyMaxBytes(ctx context.Context, info *jetstream.StreamInfo) error {
	if l.cfg.MaxBytes == 0 || l.cfg.MaxBytes == info.Config.MaxBytes {
		return nil
	}

	if l.server == nil {
		l.logger.Warn("log: the stream exists with another bound, which stays",
			"max_bytes", info.Config.MaxBytes, "configured", l.cfg.MaxBytes)
		return nil
	}

	config := info.Config
	config.MaxBytes = l.cfg.MaxBytes
	if _, err := l.conn.js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("eventlog: set the bound of the log to %d bytes: %w", l.cfg.MaxBytes, err)
	}
	return nil
}

// fetchStream asks the server for the stream and checks that it still is the log that was opened.
// It also updates what this process knows of the metadata, the last sequence and the replicas of
// the stream.
func (l *Log) fetchStream(ctx context.Context) (stream jetstream.Stream, err error) {
	err = l.requestWithRetries(ctx, func(ctx context.Context) (err error) {
		stream, err = l.conn.js.Stream(ctx, StreamName)
		return err
	}, streamInfoSubject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: stream %s is gone: restore it, or rebuild everything from another log",
			events.ErrNoLog, StreamName)
	}
	if err != nil {
		return nil, wrapUnavailable(err)
	}

	info := stream.CachedInfo()
	meta, err := parseMeta(info.Config.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", events.ErrOtherLog, mismatchError([]string{err.Error()}))
	}
	if meta.id != l.meta().id {
		return nil, fmt.Errorf("%w: stream %s now holds log %x, not %x: connect to the right server, or start anew "+
			"with empty stores", events.ErrOtherLog, StreamName, meta.id, l.meta().id)
	}
	if err := l.updateMeta(meta); err != nil {
		return nil, err
	}
	l.raiseLastKnownSeq(info.State.LastSeq)
	l.recordReplicas(info)
	return stream, nil
}

// fetchStreamInfo is [Log.fetchStream] for callers that need only what the server says about the
// stream.
func (l *Log) fetchStreamInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// requestWithRetries sends a request that may be sent more than once, and sends it again after each
// timeout, until a timeout would exceed requestTimeout. A cluster that is electing a leader drops
// requests, so a single long wait would miss the new leader. subjects are those of the request, see
// [connection.watchPermissions].
func (l *Log) requestWithRetries(ctx context.Context, send func(context.Context) error, subjects ...string) error {
	return retryAfterTimeouts(func(timeout time.Duration) error {
		return l.conn.request(ctx, l.conn.state(), timeout, send, subjects...)
	})
}

// retryAfterTimeouts calls attempt with the timeout of a request. It repeats the call after each
// timeout, with twice the timeout, until that would exceed requestTimeout.
func retryAfterTimeouts(attempt func(timeout time.Duration) error) error {
	for timeout := firstRequestTimeout; ; timeout *= 2 {
		err := attempt(timeout)
		if !errors.Is(err, nats.ErrTimeout) || 2*timeout > requestTimeout {
			return err
		}
	}
}

// waitUntilVerified waits until the connection is up. Once after each reconnect, it also checks
// that the log is still the one that was opened. It returns the state of the connection that was
// checked.
func (l *Log) waitUntilVerified(ctx context.Context) (connState, error) {
	state, err := l.conn.waitUntilUp(ctx)
	if err != nil || l.conn.isVerified(state) {
		return state, err
	}
	if _, err := l.fetchStream(ctx); err != nil {
		return state, err
	}
	// If the connection was made again meanwhile, this marks the earlier one, so the next call
	// checks the new one.
	l.conn.markVerified(state)
	return state, nil
}
