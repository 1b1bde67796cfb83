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
	// Dir is the data directory. Start creates it if it is missing. If Dir is empty, Start makes a
	// temporary directory, which Stop removes.
	Dir string
	// Stream is the name of the stream whose files are examined before the server starts.
	Stream string
	// VerifyBytes is the number of bytes of these files to examine, newest first.
	VerifyBytes int64
	// Socket makes the server listen on a socket in the directory ([SocketFile]).
	Socket bool
	// Logger gets the log messages of the server.
	Logger *slog.Logger
}

// Server is a NATS server in this process, and its data directory. Only this process can reach it
// and, with Options.Socket, other processes of the same user.
type Server struct {
	opts Options
	// dir is Options.Dir, or the temporary directory.
	dir string
	// removeDir is true if Stop removes the directory.
	removeDir bool
	// lock is the locked file in the directory. It is nil before the start and after the stop.
	lock *os.File
	log  *serverLog
	// socket is nil if the server has none.
	socket *socket

	// restartMu is locked while the NATS server is stopped or replaced.
	restartMu sync.Mutex
	// natsServer is the running NATS server. It is nil before the start and after the stop.
	natsServer atomic.Pointer[server.Server]
	// restartFailed is true if Restart has stopped the server and could not start another one.
	restartFailed atomic.Bool
}

// lockFile is the file that the process with the open data directory locks. It has no content.
// JetStream itself has no lock: two servers on one directory destroy it.
const lockFile = "LOCK"

// readyTimeout is how long the server may take to accept connections after its start, and with it
// the recovery of the stream, has returned.
const readyTimeout = time.Minute

// serverOptions returns the options of nats-server. SyncAlways is not a setting, because
// acknowledged means on disk (I2).
func serverOptions(dir string) *server.Options {
	return &server.Options{
		ServerName: "skein",
		DontListen: true, // only connections within the process
		NoSigs:     true, // the signals of the process are those of skein
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: true,
		// The stream limits the size of the log. A limit here would be a second one that counts
		// differently.
		JetStreamMaxStore:     math.MaxInt64 / 4,
		JetStreamMaxMemory:    64 << 20, // the state of consumers
		DisableShortFirstPing: true,
	}
}

// Start locks the data directory and starts a server on it. It fails with [events.ErrLocked] if
// another process has the directory open.
func Start(ctx context.Context, o Options) (*Server, error) {
	e := &Server{opts: o, dir: o.Dir, log: &serverLog{logger: o.Logger}}

	// The lock comes first, because starting NATS changes files.
	err := e.lockDirectory()
	if err == nil {
		err = e.startNATS(ctx)
	}
	if err == nil && o.Socket {
		err = e.openSocket(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Stop(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// Dir returns the data directory.
func (e *Server) Dir() string { return e.dir }

// Free returns how many bytes of the disk under the data directory are free for this process.
func (e *Server) Free() (uint64, error) { return freeBytes(e.dir) }

// lockDirectory makes the data directory if it is missing, and locks it.
func (e *Server) lockDirectory() (err error) {
	if e.dir == "" {
		if e.dir, err = os.MkdirTemp("", "skein-log-"); err != nil {
			return fmt.Errorf("embedded: make a temporary data directory: %w", err)
		}
		e.removeDir = true
	}
	if err = os.MkdirAll(e.dir, 0o700); err != nil {
		return fmt.Errorf("embedded: make the data directory: %w", err)
	}

	e.lock, err = lockDir(filepath.Join(e.dir, lockFile))
	if errors.Is(err, errLockHeld) {
		return fmt.Errorf("%w: %s is open in another process: stop it, or choose another directory", events.ErrLocked, e.dir)
	}
	if err != nil {
		return fmt.Errorf("embedded: lock the data directory %s: %w", e.dir, err)
	}
	return nil
}

// startNATS repairs the files, starts the server and waits until the server has recovered the
// stream from the disk, or until ctx ends. Recovery has no time limit.
func (e *Server) startNATS(ctx context.Context) error {
	// The files must be on disk before the server reads them, because the server acknowledges the
	// repeats of messages that it has read.
	if err := writeThrough(e.dir); err != nil {
		return fmt.Errorf("embedded: the log in %s cannot be written through to the disk: %w", e.dir, err)
	}
	if err := errors.Join(repairStreamMeta(e.opts, e.dir), repairBlocks(e.opts, e.dir)); err != nil {
		return fmt.Errorf("embedded: the log in %s: %w", e.dir, err)
	}

	ns, err := server.NewServer(serverOptions(e.dir))
	if err != nil {
		return fmt.Errorf("embedded: configure the NATS server: %w", err)
	}
	debug := e.opts.Logger.Enabled(ctx, slog.LevelDebug)
	ns.SetLoggerV2(e.log, debug, false, false)

	// Start returns when the stream is recovered, which may take minutes, and has no context.
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

	e.natsServer.Store(ns)
	if !ns.ReadyForConnections(readyTimeout) || !ns.JetStreamEnabled() {
		return fmt.Errorf("embedded: the NATS server on %s did not start: %s", e.dir, e.log.lastErrorText())
	}
	return nil
}

// Restart replaces a server that accepts no more writes by a new one. The client reconnects by
// itself.
func (e *Server) Restart(ctx context.Context) error {
	e.restartMu.Lock()
	defer e.restartMu.Unlock()
	if err := e.stopNATS(ctx); err != nil {
		return err
	}
	err := e.startNATS(ctx)
	e.restartFailed.Store(err != nil) // so that Stuck asks for another attempt
	return err
}

// purgedDir is the directory to which a server of NATS moves the files of messages that it purges.
const purgedDir = "__msgs__"

// RemovePurged removes the files of messages that were purged from the stream. The server does that
// itself, but only after it has answered the purge, and nobody learns when it is done.
func (e *Server) RemovePurged() error {
	dirs, err := findStreamFiles(e.dir, e.opts.Stream, purgedDir)
	if err != nil {
		return fmt.Errorf("embedded: find purged messages: %w", err)
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// InProcessConn connects to the running server. It implements nats.InProcessConnProvider.
func (e *Server) InProcessConn() (net.Conn, error) {
	if ns := e.natsServer.Load(); ns != nil {
		return ns.InProcessConn()
	}
	return nil, errNotRunning
}

var errNotRunning = errors.New("embedded: the NATS server is not running")

// Healthy returns nil if the server finds nothing wrong with itself, and otherwise an
// [events.ErrLogUnavailable] with what it finds. That includes disk errors: after one, the stream
// accepts nothing and answers no publisher.
func (e *Server) Healthy() error {
	ns := e.natsServer.Load()
	if ns == nil {
		return fmt.Errorf("%w: %w", events.ErrLogUnavailable, errNotRunning)
	}

	// The server allows itself one millisecond for the check, and may exceed it on a busy machine.
	// A lasting problem fails every attempt.
	var health *server.HealthStatus
	for range 5 {
		health = ns.Healthz(nil)
		if health.Error == "" {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", events.ErrLogUnavailable, health.Error)
}

// Stuck returns the disk error after which the stream accepts nothing until a restart, or nil if
// there was none. All other problems that Healthy reports may pass by themselves. For example, a
// stream that is being replaced by an erasure is missing for a moment.
func (e *Server) Stuck() error {
	if e.restartFailed.Load() {
		return e.Healthy()
	}
	// nats-server 2.15.2 marks the error only by this text.
	if err := e.Healthy(); err != nil && strings.Contains(err.Error(), " write error: ") {
		return err
	}
	return nil
}

// Stop shuts the server down and waits for it. Then it unlocks the directory, and removes it if it
// is a temporary one. Further calls do nothing.
func (e *Server) Stop(ctx context.Context) error {
	e.restartMu.Lock()
	defer e.restartMu.Unlock()
	if err := e.stopNATS(ctx); err != nil {
		return err // the directory stays locked, because the server still writes
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
	if e.removeDir && e.dir != "" {
		errs = append(errs, os.RemoveAll(e.dir))
	}
	return errors.Join(errs...)
}

// stopNATS shuts the server down and waits for it until ctx ends. The caller holds restartMu.
func (e *Server) stopNATS(ctx context.Context) error {
	ns := e.natsServer.Load()
	if ns == nil {
		return nil
	}

	// Neither call has a context. If ctx ends first, the goroutine ends with the server.
	stopped := make(chan struct{})
	go func() {
		ns.Shutdown()
		ns.WaitForShutdown()
		close(stopped)
	}()
	select {
	case <-stopped:
		e.natsServer.Store(nil)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("embedded: the NATS server did not stop in time: %w", ctx.Err())
	}
}

// serverLog passes the log lines of the NATS server to a logger. Warnings and errors become
// warnings, and all other lines debug lines.
type serverLog struct {
	logger *slog.Logger

	mu sync.Mutex
	// lastError is the last error or fatal error that the server has logged.
	lastError string
}

// Noticef is part of server.Logger, like the next five methods.
func (s *serverLog) Noticef(format string, v ...any) { s.logLine(slog.LevelDebug, format, v) }

// Debugf logs a debug line of the server.
func (s *serverLog) Debugf(format string, v ...any) { s.logLine(slog.LevelDebug, format, v) }

// Tracef logs what the server says about every message, if it is told to.
func (s *serverLog) Tracef(format string, v ...any) { s.logLine(slog.LevelDebug, format, v) }

// Warnf logs a warning.
func (s *serverLog) Warnf(format string, v ...any) { s.logLine(slog.LevelWarn, format, v) }

// Errorf logs an error as a warning, and records it for [serverLog.lastErrorText].
func (s *serverLog) Errorf(format string, v ...any) { s.recordError(format, v) }

// Fatalf does the same as Errorf. It does not end the process, which is up to the caller of Start.
func (s *serverLog) Fatalf(format string, v ...any) { s.recordError(format, v) }

// recordError records an error and logs it as a warning.
func (s *serverLog) recordError(format string, v []any) {
	s.mu.Lock()
	s.lastError = fmt.Sprintf(format, v...)
	s.mu.Unlock()
	s.logLine(slog.LevelWarn, format, v)
}

// lastErrorText returns the last error that the server has logged, as the reason why the server did
// not start.
func (s *serverLog) lastErrorText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastError == "" {
		return "it was not ready in time"
	}
	return s.lastError
}

// logLine formats a line and passes it to the logger.
func (s *serverLog) logLine(level slog.Level, format string, v []any) {
	if s.logger.Enabled(context.Background(), level) {
		s.logger.Log(context.Background(), level, "nats: "+strings.TrimSpace(fmt.Sprintf(format, v...)))
	}
}
