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
	// maxMsgSize leaves room for any headers beside the largest envelope, and is below the default max_payload of a
	// server.
	maxMsgSize = events.MaxEnvelopeBytes + 64<<10

	// dedupeWindow is how long the stream knows the Nats-Msg-Id of an envelope. It must be more than twice as long
	// as a publisher retries, which in turn must outlast the election of a new leader in a cluster (some ten
	// seconds at worst). The server keeps every id of the window in memory, about 150 bytes each, and a publisher
	// that is never idle makes some thousand envelopes a second: a minute costs tens of megabytes.
	dedupeWindow = time.Minute
	// retryFor is how long a publisher retries one envelope.
	retryFor = 25 * time.Second
)

// streamConfig is the configuration of a new log. Every feature that it does not set must stay off; [misfits] checks that.
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
		// Direct gets are answered by any replica, also by one that lags: a cursor would seem to be beyond the end.
		AllowDirect: false,
		Metadata: map[string]string{
			metaLogID: hex.EncodeToString(id[:]),
			metaEpoch: "1",
		},
	}
}

// misfits returns the differences that make a stream unfit to be a log. Settings that lose, rewrite or reorder messages are refused
// even if an administrator chose them.
func misfits(c jetstream.StreamConfig, replicas int) []string {
	var diffs []string
	want := func(ok bool, name string, got, want any) {
		if !ok {
			diffs = append(diffs, fmt.Sprintf("%s is %v, must be %v", name, got, want))
		}
	}
	off := func(on bool, name, why string) {
		if on {
			diffs = append(diffs, fmt.Sprintf("%s is on: %s", name, why))
		}
	}
	want(slices.Equal(c.Subjects, []string{Subject}), "subjects", c.Subjects, []string{Subject})
	want(c.Storage == jetstream.FileStorage, "storage", c.Storage, jetstream.FileStorage)
	want(c.Retention == jetstream.LimitsPolicy, "retention", c.Retention, jetstream.LimitsPolicy)
	want(c.Discard == jetstream.DiscardNew, "discard", c.Discard, jetstream.DiscardNew)
	want(!c.DiscardNewPerSubject, "discard_new_per_subject", c.DiscardNewPerSubject, false)
	want(c.MaxAge == 0, "max_age", c.MaxAge, "0 (the log never forgets)")
	want(c.MaxMsgs <= 0, "max_msgs", c.MaxMsgs, "-1 (no bound)")
	want(c.MaxMsgsPerSubject <= 0, "max_msgs_per_subject", c.MaxMsgsPerSubject, "-1 (no bound)")
	want(c.MaxMsgSize <= 0 || c.MaxMsgSize >= maxMsgSize, "max_msg_size", c.MaxMsgSize,
		fmt.Sprintf("at least %d", maxMsgSize))
	want(c.Duplicates >= dedupeWindow, "duplicate_window", c.Duplicates, fmt.Sprintf("at least %v", dedupeWindow))
	want(replicas == 0 || c.Replicas == replicas, "num_replicas", c.Replicas, replicas)
	want(c.PersistMode == jetstream.DefaultPersistMode, "persist_mode", c.PersistMode,
		"default (async loses acknowledged messages)")
	want(c.SubjectTransform == nil, "subject_transform", "set", "absent")
	want(c.Mirror == nil, "mirror", "set", "absent")
	want(len(c.Sources) == 0, "sources", "set", "absent")
	off(c.NoAck, "no_ack", "publishers need acknowledgements")
	off(c.Sealed, "sealed", "it takes no messages")
	off(c.DenyPurge, "deny_purge", "the archived prefix could not be trimmed")
	off(c.AllowRollup, "allow_rollup_hdrs", "a publisher could erase the log")
	off(c.AllowMsgTTL, "allow_msg_ttl", "messages could vanish")
	off(c.AllowMsgCounter, "allow_msg_counter", "it rewrites bodies")
	off(c.AllowMsgSchedules, "allow_msg_schedules", "messages could vanish")
	off(c.AllowAtomicPublish, "allow_atomic", "readers are told of a batch before it is on disk")
	off(c.AllowBatchPublish, "allow_batched", "readers are told of a batch before it is on disk")
	if _, err := parseMeta(c.Metadata); err != nil {
		diffs = append(diffs, err.Error())
	}
	return diffs
}

// findStream finds the log, or creates it if it may, and learns its id. Servers that have just started, or are
// electing a leader, give no answer, so it asks again until the connect timeout.
func (l *Log) findStream(outer context.Context, create bool) error {
	ctx, cancel := context.WithTimeout(outer, l.cfg.connectTimeout())
	defer cancel()
	var last error
	peersBy := time.Now().Add(min(peerTime, l.cfg.connectTimeout()/2))
	for pause, timeout := firstRetryPause, firstAsk; ; pause, timeout = min(2*pause, maxRetryPause), min(2*timeout, requestTimeout) {
		state := l.link.state()
		var info *jetstream.StreamInfo
		err := l.link.during(ctx, state, timeout, func(ctx context.Context) (err error) {
			info, err = l.ensureStream(ctx, create, time.Now().After(peersBy))
			return err
		}, askInfo, askCreate)
		if err == nil {
			l.link.verify(state)
			l.noteLast(info.State.LastSeq)
			l.noteReplicas(info)
			return l.adjustMaxBytes(ctx, info)
		}
		noPeers := apiError(err).ErrorCode == errCodeNoPeers
		if last != nil && outer.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return last // our own timeout interrupted the request: the error before it says more
		}
		silent := errors.Is(err, events.ErrLogUnavailable) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrDisconnected)
		if !silent && !noPeers || errors.Is(err, events.ErrForbidden) {
			return err
		}
		l.logger.Debug("log: asking for the stream again", "error", err)
		if last = err; !noPeers {
			last = fmt.Errorf("%w: the server does not tell about the stream: %w", events.ErrLogUnavailable, err)
		}
		if wait.For(ctx, pause) == nil {
			continue
		}
		if err := outer.Err(); err != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
		return last
	}
}

// ensureStream finds the stream or creates it. waited is set once the servers of a cluster have had time to find each other.
func (l *Log) ensureStream(ctx context.Context, create, waited bool) (*jetstream.StreamInfo, error) {
	if l.restored != nil {
		if err := l.refuseExisting(ctx); err != nil {
			return nil, err
		}
	}
	stream, err := l.link.js.Stream(ctx, StreamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if l.cfg.Existing && l.restored == nil {
			return nil, fmt.Errorf("%w: no stream %s, where there was one: restore the log from its archive", events.ErrNoLog,
				StreamName)
		}
		if !create {
			return nil, fmt.Errorf("%w: no stream %s: start skein on this server first", events.ErrNoLog, StreamName)
		}
		stream, err = l.createStream(ctx, waited)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
			stream, err = l.link.js.Stream(ctx, StreamName)
		}
	}
	if err != nil {
		return nil, streamError(err)
	}
	info := stream.CachedInfo()
	if info, err = l.resume(ctx, info); err != nil {
		return nil, err
	}
	if diffs := misfits(info.Config, l.cfg.Replicas); len(diffs) > 0 {
		return nil, mismatch(diffs)
	}
	meta, err := parseMeta(info.Config.Metadata)
	if err != nil {
		return nil, mismatch([]string{err.Error()})
	}
	l.metas.Store(&meta)
	return info, nil
}

func (l *Log) createStream(ctx context.Context, waited bool) (jetstream.Stream, error) {
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
	if r := l.restored; r != nil {
		var err error
		if config.Metadata, err = r.metadata(); err != nil {
			return nil, err
		}
		config.FirstSeq = r.Head.Seq + 1
	}
	l.creating = true
	stream, err := l.link.js.CreateStream(ctx, config)
	if l.cfg.Replicas == 0 && replicas > 1 && l.tooFewServers(err, waited) {
		config.Replicas = 1
		stream, err = l.link.js.CreateStream(ctx, config)
	}
	return stream, err
}

const (
	// defaultDiskShare is the share of the free disk space that an embedded log may use. The stores and the archive need the rest.
	defaultDiskShare = 0.8
	// defaultReplicas of a log in a cluster: one may be lost without losing an event or a moment.
	defaultReplicas = 3
	// peerTime is how long a cluster that has just started may take to count its servers.
	peerTime = 5 * time.Second
)

// Error codes of the server that the client package does not name.
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

	// errCodeNoSubjectSequence: a message names a subject whose last sequence it expects, and not the sequence.
	errCodeNoSubjectSequence jetstream.ErrorCode = 10193
)

func apiError(err error) *jetstream.APIError {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api
	}
	return &jetstream.APIError{}
}

// tooFewServers reports whether replicas were refused because the server is alone or the cluster too small. A large enough cluster
// must not silently get a log without replicas, because the log would stay so for ever. A cluster with a server that is down or
// full states a reason; one that has just elected its first leader does not count all its servers yet, so its answer is not
// believed before peerTime.
func (l *Log) tooFewServers(err error, waited bool) bool {
	switch api := apiError(err); api.ErrorCode {
	case errCodeNoReplicas:
		return true
	case errCodeNoPeers:
		return waited && !strings.Contains(api.Description, ",") && len(l.link.nc.Servers()) < defaultReplicas
	}
	return false
}

// streamError turns a failure to open or create the stream into an error that says what to do.
func streamError(err error) error {
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
	return unavailable(err)
}

// adjustMaxBytes gives an embedded log the bound of the configuration. An external log keeps its own, which
// several processes share.
func (l *Log) adjustMaxBytes(ctx context.Context, info *jetstream.StreamInfo) error {
	if l.cfg.MaxBytes == 0 || l.cfg.MaxBytes == info.Config.MaxBytes {
		return nil
	}
	if l.server == nil {
		l.logger.Warn("log: the stream exists with another bound, which stays",
			"max_bytes", info.Config.MaxBytes, "configured", l.cfg.MaxBytes)
		return nil
	}
	c := info.Config
	c.MaxBytes = l.cfg.MaxBytes
	if _, err := l.link.js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("eventlog: set the bound of the log to %d bytes: %w", l.cfg.MaxBytes, err)
	}
	return nil
}

// stream asks for the stream and checks that it is still the log that was opened.
func (l *Log) stream(ctx context.Context) (stream jetstream.Stream, err error) {
	err = l.ask(ctx, func(ctx context.Context) (err error) {
		stream, err = l.link.js.Stream(ctx, StreamName)
		return err
	}, askInfo)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: stream %s is gone: restore it, or rebuild everything from another log",
			events.ErrNoLog, StreamName)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	info := stream.CachedInfo()
	meta, err := parseMeta(info.Config.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", events.ErrOtherLog, mismatch([]string{err.Error()}))
	}
	if meta.id != l.meta().id {
		return nil, fmt.Errorf("%w: stream %s now holds log %x, not %x: connect to the right server, or start anew "+
			"with empty stores", events.ErrOtherLog, StreamName, meta.id, l.meta().id)
	}
	if err := l.enter(meta); err != nil {
		return nil, err
	}
	l.noteLast(info.State.LastSeq)
	l.noteReplicas(info)
	return stream, nil
}

// ask makes a request that may be repeated. It must repeat it, because a cluster that is electing a leader drops requests and never
// answers them.
func (l *Log) ask(ctx context.Context, question func(context.Context) error, subjects ...string) error {
	for timeout := firstAsk; ; timeout *= 2 {
		err := l.link.during(ctx, l.link.state(), timeout, question, subjects...)
		if !errors.Is(err, nats.ErrTimeout) || 2*timeout > requestTimeout {
			return err
		}
	}
}

func (l *Log) streamInfo(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := l.stream(ctx)
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// verify waits for the connection and checks, once after each reconnect, that the log is the one that was opened.
func (l *Log) verify(ctx context.Context) (linkState, error) {
	state, err := l.link.await(ctx)
	if err != nil || l.link.verified(state) {
		return state, err
	}
	if _, err := l.stream(ctx); err != nil {
		return state, err
	}
	l.link.verify(state) // if the connection changed meanwhile, the next state is not verified
	return state, nil
}
