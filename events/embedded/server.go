package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
)

// Options are the settings of a [Server].
type Options struct {
	// Dir is the data directory. Start creates it if it is missing. If Dir is empty, Start makes a temporary directory, which Stop removes.
	Dir string
	// Stream is the name of the stream whose files are examined before the server starts.
	Stream string
	// Examined is the number of bytes of these files to examine, newest first.
	Examined int64
	// Logger gets the log messages of the server.
	Logger *slog.Logger
}

// Server is a NATS server in this process, and its data directory. Besides this process, only processes of the same user on the same machine
// reach it, by a Unix socket in the directory ([SocketFile]).
type Server struct {
	opts Options
	// turning is locked while a server is stopped or replaced.
	turning sync.Mutex
	// running is the NATS server. It is nil before the start and after the stop.
	running atomic.Pointer[server.Server]
	// down is true if the last server was stopped and no other could be started.
	down   atomic.Bool
	trace  bool
	dir    string
	lock   *os.File
	remove bool // Stop removes the directory
	log    *serverLog
	// socket is nil if the directory has none.
	socket *socket
}

// lockFile is the file that the process with the open data directory locks. It has no content. JetStream itself has no lock: two servers
// on one directory destroy it.
const lockFile = "LOCK"

// readyTimeout is how long the server may take to accept connections after its start, and with it the recovery of the stream, has returned.
const readyTimeout = time.Minute

// serverOptions returns the options of nats-server. SyncAlways is not a setting, because acknowledged means on disk (I2).
func serverOptions(dir string) *server.Options {
	return &server.Options{
		ServerName: "skein",
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: true,
		// The stream limits the size of the log. A limit here would be a second one that counts differently.
		JetStreamMaxStore:     math.MaxInt64 / 4,
		JetStreamMaxMemory:    64 << 20, // the state of consumers
		DisableShortFirstPing: true,
	}
}

// Start locks the data directory and starts a server on it. It fails with [events.ErrLocked] if another process has the directory open.
func Start(ctx context.Context, o Options) (*Server, error) {
	e := &Server{opts: o, dir: o.Dir, log: &serverLog{logger: o.Logger}}
	if err := e.run(ctx); err != nil {
		return nil, errors.Join(err, e.Stop(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// Dir returns the data directory.
func (e *Server) Dir() string { return e.dir }

// Free returns how many bytes of the disk under the data directory are free for this process.
func (e *Server) Free() (uint64, error) { return freeBytes(e.dir) }

func (e *Server) run(ctx context.Context) (err error) {
	if e.dir == "" {
		if e.dir, err = os.MkdirTemp("", "skein-log-"); err != nil {
			return fmt.Errorf("embedded: make a temporary data directory: %w", err)
		}
		e.remove = true
	}
	if err = os.MkdirAll(e.dir, 0o700); err != nil {
		return fmt.Errorf("embedded: make the data directory: %w", err)
	}
	if e.lock, err = lockDir(filepath.Join(e.dir, lockFile)); err != nil {
		if errors.Is(err, errLockHeld) {
			return fmt.Errorf("%w: %s is open in another process: stop it, or choose another directory", events.ErrLocked, e.dir)
		}
		return fmt.Errorf("embedded: lock the data directory %s: %w", e.dir, err)
	}
	e.trace = e.opts.Logger.Enabled(ctx, slog.LevelDebug)
	if err := e.start(ctx); err != nil {
		return err
	}
	return e.listen()
}

// start starts the server and waits until it has recovered the stream from the disk, or until ctx ends. Recovery has no time limit.
func (e *Server) start(ctx context.Context) error {
	if err := writeThrough(e.dir); err != nil {
		return fmt.Errorf("embedded: the log in %s cannot be written through to the disk: %w", e.dir, err)
	}
	if err := repairBlocks(e.opts, e.dir); err != nil {
		return fmt.Errorf("embedded: the log in %s: %w", e.dir, err)
	}
	ns, err := server.NewServer(serverOptions(e.dir))
	if err != nil {
		return fmt.Errorf("embedded: configure the NATS server: %w", err)
	}
	ns.SetLoggerV2(e.log, e.trace, false, false)

	started := make(chan struct{})
	go func() {
		ns.Start()
		close(started)
	}()
	select {
	case <-started:
	case <-ctx.Done():
		ns.Shutdown()
		<-started
		ns.WaitForShutdown()
		return ctx.Err()
	}

	e.running.Store(ns)
	if !ns.ReadyForConnections(readyTimeout) || !ns.JetStreamEnabled() {
		return fmt.Errorf("embedded: the NATS server on %s did not start: %s", e.dir, e.log.worst())
	}
	return nil
}

// Restart replaces a server that accepts no more writes by a new one. The client reconnects by itself.
func (e *Server) Restart(ctx context.Context) error {
	e.turning.Lock()
	defer e.turning.Unlock()
	if err := e.shutDown(ctx); err != nil {
		return err
	}
	if err := e.start(ctx); err != nil {
		e.down.Store(true) // to be tried again
		return err
	}
	e.down.Store(false)
	return nil
}

// InProcessConn connects to the server that is running. It is part of nats.InProcessConnProvider.
func (e *Server) InProcessConn() (net.Conn, error) {
	if ns := e.running.Load(); ns != nil {
		return ns.InProcessConn()
	}
	return nil, errNotRunning
}

var errNotRunning = errors.New("embedded: the NATS server is not running")

// Healthy returns what the server itself finds wrong, disk errors included: after one the stream takes nothing
// and answers no publisher.
func (e *Server) Healthy() error {
	ns := e.running.Load()
	if ns == nil {
		return fmt.Errorf("%w: %w", events.ErrLogUnavailable, errNotRunning)
	}
	// The server gives itself a millisecond for this, and on a busy machine may miss it: what is wrong stays wrong.
	var h *server.HealthStatus
	for range 5 {
		if h = ns.Healthz(nil); h.Error == "" {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", events.ErrLogUnavailable, h.Error)
}

// Stuck returns the error of the disk after which the stream takes nothing, if there was one. Of what else the server may find wrong
// nothing is for ever: a stream that is being replaced, as by an erasure, is missing for a moment, too.
func (e *Server) Stuck() error {
	if e.down.Load() {
		return e.Healthy()
	}
	// As it stands in the text of a nats-server 2.15.2: the error has no other mark.
	if err := e.Healthy(); err != nil && strings.Contains(err.Error(), " write error: ") {
		return err
	}
	return nil
}

// Stop shuts the server down and waits for it, then unlocks the directory. To stop it again does nothing.
func (e *Server) Stop(ctx context.Context) error {
	e.turning.Lock()
	defer e.turning.Unlock()
	if err := e.shutDown(ctx); err != nil {
		return err // the lock stays: the server still writes
	}
	var errs []error
	if e.socket != nil {
		errs = append(errs, e.socket.close())
		e.socket = nil
	}
	if e.lock != nil {
		errs = append(errs, unlockDir(e.lock))
		e.lock = nil
	}
	if e.remove && e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}

// shutDown shuts the server down and waits for it. turning is held.
func (e *Server) shutDown(ctx context.Context) error {
	ns := e.running.Load()
	if ns == nil {
		return nil
	}
	down := make(chan struct{})
	go func() {
		ns.Shutdown()
		ns.WaitForShutdown()
		close(down)
	}()
	select {
	case <-down:
		e.running.Store(nil)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("embedded: the NATS server did not stop in time: %w", ctx.Err())
	}
}

// serverLog routes the log of the embedded server: what matters as warnings, the rest as debugging.
type serverLog struct {
	logger *slog.Logger

	mu  sync.Mutex
	bad string
}

// Noticef is part of server.Logger, as are the next five.
func (s *serverLog) Noticef(format string, v ...any) { s.write(slog.LevelDebug, format, v) }

// Debugf logs what the server says while it is debugged.
func (s *serverLog) Debugf(format string, v ...any) { s.write(slog.LevelDebug, format, v) }

// Tracef logs what the server says of every message.
func (s *serverLog) Tracef(format string, v ...any) { s.write(slog.LevelDebug, format, v) }

// Warnf logs a warning as one.
func (s *serverLog) Warnf(format string, v ...any) { s.write(slog.LevelWarn, format, v) }

// Errorf logs an error as a warning, and keeps it for [serverLog.worst].
func (s *serverLog) Errorf(format string, v ...any) { s.note(format, v) }

// Fatalf only notes: the caller of Open decides what becomes of the process.
func (s *serverLog) Fatalf(format string, v ...any) { s.note(format, v) }

func (s *serverLog) note(format string, v []any) {
	s.mu.Lock()
	s.bad = fmt.Sprintf(format, v...)
	s.mu.Unlock()
	s.write(slog.LevelWarn, format, v)
}

// worst returns the last error that the server logged.
func (s *serverLog) worst() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad == "" {
		return "it was not ready in time"
	}
	return s.bad
}

func (s *serverLog) write(level slog.Level, format string, v []any) {
	if s.logger.Enabled(context.Background(), level) {
		s.logger.Log(context.Background(), level, "nats: "+strings.TrimSpace(fmt.Sprintf(format, v...)))
	}
}
