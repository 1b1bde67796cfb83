package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/embedded"
)

// The names of the log in JetStream. A NATS account has at most one log.
const (
	StreamName = "SKEIN"
	Subject    = "skein.log"
)

// Config says where the log is and how to reach it. A Config that sets only Dir describes a log in
// an embedded server.
type Config struct {
	// Dir is the data directory of the embedded server. Open creates it if it is missing, and locks
	// it while the log is open.
	Dir string
	// Ephemeral puts the embedded server into a new temporary directory, which Close removes. Dir
	// must then be empty.
	Ephemeral bool

	// URL is the address of an external server or cluster, such as "nats://a:4222,nats://b:4222".
	// If it is empty, the log is in an embedded server. External servers must run with
	// sync_interval: always; otherwise they acknowledge envelopes that are not on disk yet.
	URL string
	// ListenOnSocket makes the embedded server also listen on the socket [embedded.SocketFile] in
	// Dir. Another process of the same user can then open the log through it with Socket.
	ListenOnSocket bool
	// Socket is the path of the socket on which the embedded server of another process listens; see
	// ListenOnSocket. It is set instead of Dir, Ephemeral and URL. Empty means that the log is not
	// opened through a socket.
	Socket string
	// CredsFile holds the credentials for an external server. Empty means that the server needs
	// none.
	CredsFile string
	// InboxPrefix begins the subjects to which an external server sends its answers. Empty means
	// "_INBOX". A NATS user who may subscribe to the inboxes of another user sees the answers to
	// that user. So if some NATS users must not read the log, either they or the readers need a
	// prefix of their own.
	InboxPrefix string
	// TLS names the files for a TLS connection to an external server.
	TLS TLSFiles
	// ConnectTimeout limits how long Open and Dial try to reach the server, and after that how long
	// they try to find the log there. The default is 30 s for each.
	ConnectTimeout time.Duration

	// Replicas is the number of servers of an external cluster that store a new log. 0 means 3 if
	// the cluster has at least three servers, and otherwise 1. If the log already exists and
	// Replicas is not 0, the log must have that many replicas.
	Replicas int
	// MaxBytes limits the size of the log. A full log refuses events with [events.ErrLogFull]; it
	// never drops old ones. With 0, a new embedded log gets 80 % of the disk space that is free at
	// the time, and a new external log has no limit of its own.
	MaxBytes int64

	// Existing makes Open fail with [events.ErrNoLog] instead of creating a log. Set it when the
	// data directory already has an archive: a new, empty log beside the archive would assign
	// sequences that the archive already has.
	Existing bool

	// Logger gets the log lines of this package and those of the embedded server. With nil, nothing
	// is logged.
	Logger *slog.Logger
}

// TLSFiles names PEM files. An empty name means that there is no such file.
type TLSFiles struct {
	// CertFile and KeyFile are the client's certificate and its key.
	CertFile, KeyFile string
	// CAFile holds the authorities that the client trusts to sign the server's certificate. Empty
	// means those of the system.
	CAFile string
}

// isSet reports whether any file is named.
func (f TLSFiles) isSet() bool { return f != TLSFiles{} }

// Log is an open log. Its methods are safe for concurrent use.
type Log struct {
	cfg    Config
	logger *slog.Logger
	// server is the embedded server. It is nil for an external log.
	server *embedded.Server
	conn   *connection
	// currentMeta is the metadata of the stream as it was last read; see [Log.meta].
	currentMeta atomic.Pointer[logMeta]
	// archive has the older part of the log. It is nil if there is no archive, so that the stream
	// is the whole log.
	archive events.Archive

	// restoreSpec is set only by [Restore]. It describes the stream to create.
	restoreSpec *RestoredState
	// createSent is true once a request to create the stream was sent. A stream that exists after
	// that may be our own, created by a request whose answer was lost.
	createSent bool

	// lastKnownSeq is the highest sequence that is known to be in the log. It never decreases.
	lastKnownSeq atomic.Uint64
	// hasReplicas is true if the stream has, or once had, more than one replica.
	hasReplicas atomic.Bool
	// coveredHoleEnd is the highest sequence at which the stream lacks, or is treated as if it
	// lacked, what the archive has. Up to there, readers read the archive. 0 means that there is no
	// such sequence.
	coveredHoleEnd atomic.Uint64
	// missingRanges are the sequences that were found neither in the stream nor in the archive; see
	// [Log.Holes]. missingMu guards the slice.
	missingMu     sync.Mutex
	missingRanges []SeqRange
	// interruptions is how often a reader of this log was interrupted and had to try again.
	interruptions atomic.Uint64

	// reconfigureMu is held while this process changes the stream: while it begins an epoch,
	// accepts a hole or resumes a paused stream. Nobody waits for it: if it is held, a second
	// change fails or is skipped.
	reconfigureMu sync.Mutex
	// failedPause is the last pause that this process could not make, and has undone. It is empty
	// if there is none. reconfigureMu guards it.
	failedPause streamPause

	// mu guards closed and closers.
	mu     sync.Mutex
	closed bool
	// closers are the open publishers and hubs, which Close ends before it closes the connection.
	closers map[closer]struct{}
}

// closer is a publisher or a hub. A Log closes it before it closes the connection that the closer
// uses.
type closer interface {
	// closeFromLog closes the publisher or hub because its log is being closed.
	closeFromLog(ctx context.Context) error
	// acceptsEvents is true for publishers. They are closed first, so that the hubs still deliver
	// what the publishers accepted.
	acceptsEvents() bool
}

// Open opens the log that the configuration describes, and creates the log if there is none. If the
// stream exists but its settings are not those of a log, the error is an [events.ErrStreamMismatch]
// that lists the differences. If another process has the data directory open, the error is an
// [events.ErrLocked] that names the directory.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	return openLog(ctx, cfg, true)
}

// openLog is Open. With create unset, it fails with [events.ErrNoLog] if there is no log.
func openLog(ctx context.Context, cfg Config, create bool) (_ *Log, err error) {
	l := newLog(cfg)
	if err := cfg.validate(); err != nil {
		return nil, err
	}

	// The server must be stopped even if the end of ctx is the reason why opening failed.
	defer func() {
		if err != nil {
			err = errors.Join(err, l.disconnect(context.WithoutCancel(ctx)))
		}
	}()
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	if err := l.openStream(ctx, create); err != nil {
		return nil, err
	}
	return l, nil
}

// newLog returns a log that is not connected yet.
func newLog(cfg Config) *Log {
	if cfg.Socket != "" {
		cfg.URL = socketURL
	}
	l := &Log{cfg: cfg, logger: cfg.Logger, closers: make(map[closer]struct{})}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	return l
}

// connect starts the embedded server, if the log has one, and connects to the server of the log.
func (l *Log) connect(ctx context.Context) (err error) {
	if l.cfg.URL == "" {
		l.server, err = embedded.Start(ctx, embedded.Options{
			Dir: l.cfg.Dir, Stream: StreamName, VerifyBytes: maxExaminedBytes,
			Socket: l.cfg.ListenOnSocket, Logger: l.logger,
		})
		if err != nil {
			return err
		}
	}
	l.conn, err = connect(ctx, l.cfg, l.server, l.logger)
	return err
}

// connectTimeout returns ConnectTimeout or its default.
func (cfg Config) connectTimeout() time.Duration {
	if cfg.ConnectTimeout > 0 {
		return cfg.ConnectTimeout
	}
	return defaultConnectTimeout
}

// validate returns an error if no log can be opened with the configuration.
func (cfg Config) validate() error {
	switch {
	case cfg.URL != "" && (cfg.Dir != "" || cfg.Ephemeral):
		return errors.New("eventlog: a log is embedded (Dir, Ephemeral) or external (URL), not both")
	case cfg.Socket != "" && (cfg.URL != "" || cfg.Dir != "" || cfg.Ephemeral):
		return errors.New("eventlog: a log behind a Socket has neither Dir, Ephemeral nor URL")
	case cfg.URL == "" && cfg.Dir == "" && !cfg.Ephemeral && cfg.Socket == "":
		return errors.New("eventlog: a log needs Dir, Ephemeral, URL or Socket")
	case cfg.Dir != "" && cfg.Ephemeral:
		return errors.New("eventlog: an ephemeral log chooses its own directory: leave Dir empty")
	case cfg.URL == "" && cfg.Replicas > 1:
		return errors.New("eventlog: an embedded log has one replica; several need an external cluster (URL)")
	case cfg.URL == "" && (cfg.CredsFile != "" || cfg.InboxPrefix != "" || cfg.TLS.isSet()):
		return errors.New("eventlog: credentials, an inbox prefix and TLS are for an external server (URL)")
	case cfg.MaxBytes < 0 || cfg.Replicas < 0:
		return errors.New("eventlog: MaxBytes and Replicas must not be negative")
	case cfg.URL != "":
		return cfg.validateExternal()
	}
	return nil
}

// ID returns the id that the log got when it was created.
func (l *Log) ID() events.LogID { return l.meta().id }

// Epoch returns the epoch of the log. It is 1 for a log that was never restored, moved or scrubbed.
func (l *Log) Epoch() uint32 { return l.meta().epoch }

// JetStream returns the connection to the servers of the log, for other data that is stored on
// them. Closing the log closes the connection.
func (l *Log) JetStream() jetstream.JetStream { return l.conn.js }

// Replicas returns how many servers store the stream of the log, and the names of those that are
// offline, as far as the cluster knows.
func (l *Log) Replicas(ctx context.Context) (count int, offline []string, err error) {
	info, err := l.fetchStreamInfo(ctx)
	if err != nil {
		return 0, nil, err
	}
	if info.Cluster != nil {
		for _, replica := range info.Cluster.Replicas {
			if replica.Offline {
				offline = append(offline, replica.Name)
			}
		}
	}
	return info.Config.Replicas, offline, nil
}

// Start returns the cursor at which a reader begins that reads the whole log.
func (l *Log) Start() events.Cursor {
	meta := l.meta()
	return events.Cursor{Log: meta.id, Epoch: meta.epoch}
}

// SetArchive sets the archive, from which readers read what the stream no longer has. Call it at
// most once, before anything reads the log, because no lock guards the archive.
func (l *Log) SetArchive(archive events.Archive) { l.archive = archive }

// Position returns the position of a sequence of this log.
func (l *Log) Position(seq uint64) events.Position {
	meta := l.meta()
	return events.Position{Log: [4]byte(meta.id[:4]), Epoch: meta.epoch, Seq: seq}
}

// Head is the extent of the stream of a log.
type Head struct {
	// First and Last are the sequences of the first and the last envelope in the stream. If First >
	// Last, the stream is empty. Earlier envelopes are in the archive.
	First, Last uint64
	// Bytes is the size of the stream on the disk of each replica. MaxBytes is its limit, or -1 if
	// there is none.
	Bytes, MaxBytes int64
}

// Head asks the server for the extent of the stream.
func (l *Log) Head(ctx context.Context) (Head, error) {
	info, err := l.fetchStreamInfo(ctx)
	if err != nil {
		return Head{}, err
	}
	return headFromInfo(info), nil
}

// headFromInfo returns the extent that the server reports in the information about the stream.
func headFromInfo(info *jetstream.StreamInfo) Head {
	return Head{
		First: info.State.FirstSeq, Last: info.State.LastSeq,
		Bytes: int64(info.State.Bytes), MaxBytes: info.Config.MaxBytes,
	}
}

// Recover restarts the embedded server if the server has met a disk error, because after one it
// never accepts another message. Call Recover once the disk works again or has free space.
// Acknowledged messages are on disk, so the new server has them. Publishers and readers continue by
// themselves.
//
// For an external server Recover does nothing, because that server is not ours to restart.
func (l *Log) Recover(ctx context.Context) error {
	if l.server == nil {
		return nil
	}
	err := l.server.Stuck()
	if err == nil {
		return nil
	}
	l.logger.Warn("log: the embedded server is started anew", "error", err)
	return l.server.Restart(ctx)
}

// Close rejects new events, waits until every accepted event is acknowledged, closes the hubs and
// the connection, and stops the embedded server. If ctx ends first, Close gives up the events that
// still wait. Further calls return nil at once.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	var publishers, hubs []closer
	for c := range l.closers {
		if c.acceptsEvents() {
			publishers = append(publishers, c)
		} else {
			hubs = append(hubs, c)
		}
	}
	// The lock is released before the calls of closeFromLog, because these call unregisterCloser,
	// which takes the lock.
	l.mu.Unlock()

	// Publishers are closed first, so that the hubs still deliver what the publishers accepted.
	var errs []error
	for _, c := range append(publishers, hubs...) {
		errs = append(errs, c.closeFromLog(ctx))
	}
	return errors.Join(append(errs, l.disconnect(ctx))...)
}

// disconnect closes the connection and stops the embedded server, as far as they exist.
func (l *Log) disconnect(ctx context.Context) error {
	// The connection is closed before the server, because otherwise the client would try to
	// reconnect.
	if l.conn != nil {
		l.conn.close()
	}
	if l.server != nil {
		return l.server.Stop(ctx)
	}
	return nil
}

// registerCloser makes Close end the publisher or hub before it closes the connection. It fails
// with [events.ErrClosed] after Close.
func (l *Log) registerCloser(c closer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return events.ErrClosed
	}
	l.closers[c] = struct{}{}
	return nil
}

// unregisterCloser removes a publisher or hub that has ended, or that Close is closing.
func (l *Log) unregisterCloser(c closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.closers, c)
}

// recordReplicas sets hasReplicas if the stream has replicas now.
func (l *Log) recordReplicas(info *jetstream.StreamInfo) {
	if info.Config.Replicas > 1 {
		l.hasReplicas.Store(true)
	}
}

// raiseLastKnownSeq records that the sequence is in the log.
func (l *Log) raiseLastKnownSeq(seq uint64) {
	for {
		// The answers of several requests may arrive out of order, so the number never goes back.
		known := l.lastKnownSeq.Load()
		if seq <= known || l.lastKnownSeq.CompareAndSwap(known, seq) {
			return
		}
	}
}

// Message is one message of the stream, not decoded.
type Message struct {
	Seq uint64
	// Time is the stream's timestamp. It is wall clock time, not the log time of the events.
	Time time.Time
	// Header holds the NATS headers.
	Header map[string][]string
	// Data is the body. It is an EventBatch, unless it is malformed.
	Data []byte
}

// ErrNoMessage is returned by [Log.ReadMessage] for a sequence that the stream does not hold.
var ErrNoMessage = errors.New("eventlog: the log holds no message at this sequence")

// ReadMessage reads one message of the stream, for tools that inspect a log.
func (l *Log) ReadMessage(ctx context.Context, seq uint64) (Message, error) {
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return Message{}, err
	}
	var raw *jetstream.RawStreamMsg
	err = l.requestWithRetries(ctx, func(ctx context.Context) (err error) {
		raw, err = stream.GetMsg(ctx, seq)
		return err
	}, getMessageSubject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Message{}, fmt.Errorf("%w: %d", ErrNoMessage, seq)
	}
	if err != nil {
		return Message{}, wrapUnavailable(err)
	}
	return Message{Seq: raw.Sequence, Time: raw.Time, Header: raw.Header, Data: raw.Data}, nil
}
