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

// The names of the log in JetStream. There is one log in an account.
const (
	StreamName = "SKEIN"
	Subject    = "skein.log"
)

// Config says where the log is. The zero value with Dir set is a log in an embedded server.
type Config struct {
	// Dir is the data directory of the embedded server. It is created if it is missing and locked while open.
	Dir string
	// Ephemeral puts the embedded server into a new temporary directory that Close removes. Dir must be empty.
	Ephemeral bool

	// URL of an external server or cluster, such as "nats://a:4222,nats://b:4222"; empty means embedded. Acknowledged
	// envelopes are on disk only if these servers run with sync_interval: always.
	URL string
	// Socket is the socket in the data directory of another process whose embedded log is opened ([embedded.SocketFile]), in place of Dir and
	// URL. Empty means none.
	Socket string
	// CredsFile holds the credentials for an external server; empty means none.
	CredsFile string
	// InboxPrefix begins the subjects on which an external server answers; empty means "_INBOX". A NATS user who may subscribe to
	// the inboxes of another user sees the answers to that user. If some users must not read the log, either they or the readers
	// need a prefix of their own.
	InboxPrefix string
	// TLS names the files for a TLS connection to an external server.
	TLS TLSFiles
	// ConnectTimeout bounds how long Open and Dial try to reach the server, and then the log in it. Default 30 s each.
	ConnectTimeout time.Duration

	// Replicas of the log when it is created, on an external cluster. 0 means 3 if the cluster has at least three servers,
	// otherwise 1. If the log exists and Replicas is not 0, the log must have that many.
	Replicas int
	// MaxBytes bounds the log. A full log refuses events with [events.ErrLogFull]; it never drops old ones. 0 means, for an
	// embedded log, 80 % of the free disk space at creation, unchanged later; for an external log, what the server allows.
	MaxBytes int64

	// Existing makes Open fail with [events.ErrNoLog] instead of creating a log. It is set when the data directory already has an
	// archive: a new, empty log beside it would reuse sequences that the archive holds.
	Existing bool

	// Logger takes what happens to the connection and the server's own log. Default: none.
	Logger *slog.Logger
}

// TLSFiles names PEM files. Empty names are left out.
type TLSFiles struct {
	// CertFile and KeyFile are the client's certificate and key.
	CertFile, KeyFile string
	// CAFile holds the authorities that may have signed the server's certificate; empty means the system's.
	CAFile string
}

func (f TLSFiles) any() bool { return f != TLSFiles{} }

// Log is an open log. Its methods are safe for concurrent use.
type Log struct {
	cfg    Config
	logger *slog.Logger
	server *embedded.Server // nil: external
	link   *link
	// metas holds what the metadata of the stream last said; see [Log.meta].
	metas atomic.Pointer[logMeta]
	past  events.Archive // nil: there is no archive, the stream is the whole log
	// restored is set by [Restore] to describe the stream to create. creating is set once the first attempt was sent: an existing
	// stream may then be our own, made by an attempt whose answer was lost.
	restored *Restored
	creating bool
	// last is the highest sequence known to be in the log. It never falls.
	last atomic.Uint64
	// replicated says that the stream has, or had, replicas.
	replicated atomic.Bool
	// coveredHoleEnd is the highest sequence known to be in the archive and missing in the stream.
	coveredHoleEnd atomic.Uint64
	missingMu      sync.Mutex
	// missing are the ranges found in neither the stream nor the archive; see [Log.Holes].
	missing []SeqRange
	// interruptions counts how often reading was interrupted.
	interruptions atomic.Uint64

	// switching is held while this process begins a new epoch.
	switching sync.Mutex

	mu      sync.Mutex
	closed  bool
	closers map[closer]struct{} // publishers and hubs to close before the connection
}

// closer is a publisher or hub that a Log closes before its connection: publishers (intake) first, so that readers still see what
// was accepted.
type closer interface {
	shut(ctx context.Context) error
	intake() bool
}

// Open opens the log of the configuration and creates it if there is none. It returns an error that names the
// differences ([events.ErrStreamMismatch]) when the stream is there but is not fit to be a log, and one that names the
// directory ([events.ErrLocked]) when another process has it open.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	return open(ctx, cfg, true)
}

func open(ctx context.Context, cfg Config, create bool) (_ *Log, err error) {
	l := &Log{cfg: cfg, logger: cfg.Logger, closers: make(map[closer]struct{})}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.valid(); err != nil {
		return nil, err
	}
	if cfg.Socket != "" {
		cfg.URL = socketURL
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.release(context.WithoutCancel(ctx)))
		}
	}()
	if cfg.URL == "" {
		if l.server, err = startServer(ctx, cfg, l.logger); err != nil {
			return nil, err
		}
	}
	if l.link, err = connect(ctx, cfg, l.server, l.logger); err != nil {
		return nil, err
	}
	if err := l.findStream(ctx, create); err != nil {
		return nil, err
	}
	return l, nil
}

func (cfg Config) connectTimeout() time.Duration {
	if cfg.ConnectTimeout > 0 {
		return cfg.ConnectTimeout
	}
	return defaultConnectTimeout
}

func (cfg Config) valid() error {
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
	case cfg.URL == "" && (cfg.CredsFile != "" || cfg.InboxPrefix != "" || cfg.TLS.any()):
		return errors.New("eventlog: credentials, an inbox prefix and TLS are for an external server (URL)")
	case cfg.MaxBytes < 0 || cfg.Replicas < 0:
		return errors.New("eventlog: MaxBytes and Replicas must not be negative")
	case cfg.URL != "":
		return cfg.validExternal()
	}
	return nil
}

// ID returns the id that the log got when it was created.
func (l *Log) ID() events.LogID { return l.meta().id }

// Epoch returns the epoch of the log: 1 for a log that was never restored, moved or scrubbed.
func (l *Log) Epoch() uint32 { return l.meta().epoch }

// JetStream is the connection to the servers of the log, for what is kept beside it. It ends with the log.
func (l *Log) JetStream() jetstream.JetStream { return l.link.js }

// Replicas returns how many servers have the log.
func (l *Log) Replicas(ctx context.Context) (int, error) {
	info, err := l.streamInfo(ctx)
	if err != nil {
		return 0, err
	}
	return info.Config.Replicas, nil
}

// Start returns the cursor of a reader that has read nothing.
func (l *Log) Start() events.Cursor { return events.Cursor{Log: l.meta().id, Epoch: l.meta().epoch} }

// SetArchive gives the log its archived part, which readers read where the stream no longer begins early enough. It is
// called before anything reads, once.
func (l *Log) SetArchive(p events.Archive) { l.past = p }

// Position returns the position of a sequence of this log.
func (l *Log) Position(seq uint64) events.Position {
	return events.Position{Log: [4]byte(l.meta().id[:4]), Epoch: l.meta().epoch, Seq: seq}
}

// Head is the extent of the log.
type Head struct {
	// First and Last are the sequences of the first and last envelope of the stream; If First > Last, the stream is empty. Earlier
	// envelopes are in the archive.
	First, Last uint64
	// Bytes is the size of the log on disk (of each replica), MaxBytes its bound; -1 means none.
	Bytes, MaxBytes int64
}

// Head asks the log for its extent.
func (l *Log) Head(ctx context.Context) (Head, error) {
	info, err := l.streamInfo(ctx)
	if err != nil {
		return Head{}, err
	}
	return headOf(info), nil
}

func headOf(info *jetstream.StreamInfo) Head {
	return Head{
		First: info.State.FirstSeq, Last: info.State.LastSeq,
		Bytes: int64(info.State.Bytes), MaxBytes: info.Config.MaxBytes,
	}
}

// Recover restarts the embedded server if it has met a disk error: after one it never accepts another message. Acknowledged
// messages are on disk and are found again; publishers and readers continue by themselves. For an external server Recover does
// nothing, because it is not ours to restart.
//
// Call it once the disk has free space or works again.
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

// Close stops intake, waits until every accepted event is acknowledged, ends the readers, closes the connection and stops the
// embedded server. If the context ends first, events that still wait are given up.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	var intake, readers []closer
	for c := range l.closers {
		if c.intake() {
			intake = append(intake, c)
		} else {
			readers = append(readers, c)
		}
	}
	l.mu.Unlock()
	var errs []error
	for _, c := range append(intake, readers...) {
		errs = append(errs, c.shut(ctx))
	}
	return errors.Join(append(errs, l.release(ctx))...)
}

// release ends the connection and the server.
func (l *Log) release(ctx context.Context) error {
	if l.link != nil {
		l.link.close()
	}
	if l.server != nil {
		return l.server.Stop(ctx)
	}
	return nil
}

// adopt registers what must be closed before the connection.
func (l *Log) adopt(c closer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return events.ErrClosed
	}
	l.closers[c] = struct{}{}
	return nil
}

func (l *Log) disown(c closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.closers, c)
}

func (l *Log) noteReplicas(info *jetstream.StreamInfo) {
	if info.Config.Replicas > 1 {
		l.replicated.Store(true)
	}
}

// noteLast raises the highest sequence known to be in the log.
func (l *Log) noteLast(seq uint64) {
	for {
		last := l.last.Load()
		if seq <= last || l.last.CompareAndSwap(last, seq) {
			return
		}
	}
}

// Message is one message of the stream, not decoded.
type Message struct {
	Seq uint64
	// Time is the stream's timestamp: a wall clock, not the log time of the events.
	Time time.Time
	// Header holds the NATS headers.
	Header map[string][]string
	// Data is the body: an EventBatch, if it is well formed.
	Data []byte
}

// ErrNoMessage is returned by [Log.ReadMessage] for a sequence that the stream does not hold.
var ErrNoMessage = errors.New("eventlog: the log holds no message at this sequence")

// ReadMessage reads one message, for tools.
func (l *Log) ReadMessage(ctx context.Context, seq uint64) (Message, error) {
	stream, err := l.stream(ctx)
	if err != nil {
		return Message{}, err
	}
	var raw *jetstream.RawStreamMsg
	err = l.ask(ctx, func(ctx context.Context) (err error) {
		raw, err = stream.GetMsg(ctx, seq)
		return err
	}, askMessage)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Message{}, fmt.Errorf("%w: %d", ErrNoMessage, seq)
	}
	if err != nil {
		return Message{}, unavailable(err)
	}
	return Message{Seq: raw.Sequence, Time: raw.Time, Header: raw.Header, Data: raw.Data}, nil
}

// startServer starts the embedded server of a log.
func startServer(ctx context.Context, cfg Config, logger *slog.Logger) (*embedded.Server, error) {
	return embedded.Start(ctx, embedded.Options{Dir: cfg.Dir, Stream: StreamName, Examined: maxExamined, Logger: logger})
}
