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

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
)

// Options are the settings of a [Server].
type Options struct {
	// Dir is the data directory. Start creates the directory if it is missing. If Dir is empty,
	// Start makes a temporary directory, which Stop removes.
	Dir string
	// Stream is the name of the stream whose configuration and block files are checked for damage
	// and repaired before each start of the NATS server. It is also the stream of
	// [Server.RemovePurged].
	Stream string
	// VerifyBytes limits how many bytes of block files are checked for damage. Only whole files are
	// checked: the newest ones that have at most VerifyBytes in all. If the newest file is larger
	// than VerifyBytes, no block file is checked.
	VerifyBytes int64
	// Socket makes Start open a Unix socket in the data directory ([SocketFile]), through which
	// other processes of the same user reach the server. If the path of the socket is too long for
	// the system, Start logs that and continues without a socket.
	Socket bool
	// Logger gets the log messages of the NATS server and of this package. It must not be nil.
	Logger *slog.Logger
}

// Server is a NATS server that runs in this process on a locked data directory. [Server.Restart]
// replaces the NATS server, while the Server and its lock stay. The NATS server listens on no
// network port. This process connects to the NATS server in memory. Other processes of the same
// user can connect only if Options.Socket is set.
type Server struct {
	opts Options
	// dir is Options.Dir, or the temporary directory.
	dir string
	// removeDir is true if dir is a temporary directory, which Stop removes.
	removeDir bool
	// lock is the open and locked lockFile. It is nil until lockDirectory has locked the file, and
	// after Stop.
	lock *os.File
	log  *serverLog
	// socket is the Unix socket of Options.Socket. It is nil if there is none.
	socket *socket

	// restartMu is held by Restart and Stop, so that only one of them at a time stops or replaces
	// the NATS server. Start needs no lock, because nobody else has the Server yet.
	restartMu sync.Mutex
	// natsServer is the NATS server that startNATS started last. It is nil while there is none:
	// until the first one has recovered its streams, between the two servers of a Restart, and
	// after Stop.
	natsServer atomic.Pointer[server.Server]
	// restartFailed is true if the last Restart stopped the NATS server and could not start a new
	// one.
	restartFailed atomic.Bool
}

// lockFile is the name of the file in the data directory that a Server keeps locked as long as the
// directory is in use. The file has no content. JetStream has no lock of its own, and two NATS
// servers on one directory would destroy each other's files.
const lockFile = "LOCK"

// serverOptions returns the options of nats-server. SyncAlways makes the server sync each message
// before it acknowledges the message. The operator cannot switch SyncAlways off, because
// acknowledged means on disk (I2).
func serverOptions(dir string) *server.Options {
	return &server.Options{
		ServerName: "skein",
		DontListen: true, // only connections within the process
		NoSigs:     true, // skein handles the signals of the process
		JetStream:  true,
		StoreDir:   dir,
		SyncAlways: true,
		// The next two limits must be positive, because the server would otherwise choose them by
		// the free disk and the memory of the machine. JetStreamMaxStore is too large to be
		// reached: the MaxBytes of the stream limits the log, and a second limit would count
		// differently.
		JetStreamMaxStore:     math.MaxInt64 / 4,
		JetStreamMaxMemory:    64 << 20, // for streams in memory, of which skein has none here
		DisableShortFirstPing: true,
	}
}

// Start locks the data directory, starts a NATS server on the directory and, with Options.Socket,
// opens the socket. It returns when the server has recovered its streams and accepts connections.
// It fails with [events.ErrLocked] if another process, or another Server of this process, has
// locked the directory. If Start fails, it stops everything that it has started.
//
// If ctx ends during the recovery of the streams, Start fails, but returns only when the NATS
// server has ended the recovery. Once Start has returned a Server, the end of ctx has no effect on
// the Server.
func Start(ctx context.Context, o Options) (*Server, error) {
	e := &Server{opts: o, dir: o.Dir, log: &serverLog{logger: o.Logger}}

	// The lock comes first, because both the repairs and the NATS server change files.
	err := e.lockDirectory()
	if err == nil {
		err = e.startNATS(ctx)
	}
	if err == nil && o.Socket {
		err = e.openSocket(ctx)
	}
	if err != nil {
		// The end of ctx may be the reason of the error, and the server must be stopped even then.
		return nil, errors.Join(err, e.Stop(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// Dir returns the data directory.
func (e *Server) Dir() string { return e.dir }

// Free returns how many bytes this process can still write on the disk that has the data directory.
func (e *Server) Free() (uint64, error) { return freeBytes(e.dir) }

// lockDirectory makes the data directory if it is missing, and locks the directory. It fails with
// [events.ErrLocked] if the directory is locked already.
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

// startNATS writes the files through to the disk, repairs them and starts a new NATS server. Then
// it waits until the server has recovered its streams from the disk, for which there is no time
// limit, and accepts connections. The caller is Start, or holds restartMu.
//
// If ctx ends during the recovery, startNATS shuts the new server down, waits until the recovery
// has ended, and returns the error of ctx. If startNATS did not wait, Stop would unlock the
// directory while the recovery still uses the files.
func (e *Server) startNATS(ctx context.Context) error {
	// After a kill or a failed fsync, the files may contain messages that are only in the memory
	// of the kernel. If a publisher repeats such a message, the server takes the message for stored
	// and acknowledges the repeat without a write. So the files must be on disk before the server
	// reads them.
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
	e.log.fatal.Store(false)
	ns.SetLoggerV2(e.log, debug, false, false)

	// ns.Start has no context, so it runs in a goroutine. It returns when the streams are
	// recovered, which may take minutes, or when the server has logged a fatal error.
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

	// A server whose Start has returned accepts connections, because it opens no network port. If
	// the server gave up, for example because it could not enable JetStream, it has logged a fatal
	// error before. nats-server 2.15.2 may report JetStream as enabled even then.
	e.natsServer.Store(ns)
	if e.log.fatal.Load() || !ns.JetStreamEnabled() {
		return fmt.Errorf("embedded: the NATS server on %s did not start: %s", e.dir, e.log.lastErrorText())
	}
	return nil
}

// Restart stops the NATS server and starts a new one on the same directory, with the same repairs
// as Start. Call Restart when [Server.Stuck] returns an error. The lock and the socket stay.
// Connections to the old server end, and the NATS clients reconnect by themselves.
//
// If ctx ends before the old server has stopped, Restart fails and starts no new server. If the new
// server cannot be started, Restart fails, and there may be no server until a later Restart
// succeeds. Do not call Restart after Stop, because Restart does not lock the directory again.
func (e *Server) Restart(ctx context.Context) error {
	e.restartMu.Lock()
	defer e.restartMu.Unlock()
	if err := e.stopNATS(ctx); err != nil {
		return err
	}
	err := e.startNATS(ctx)
	e.restartFailed.Store(err != nil) // makes Stuck return an error, so that its caller tries again
	return err
}

// purgedDir is the name of the directory, inside the directory of a stream, to which the NATS
// server moves the files of a purge before it removes them.
const purgedDir = "__msgs__"

// RemovePurged removes the files of the messages that were purged from the stream Options.Stream.
// The NATS server also removes these files, but does so in the background after it has answered the
// purge, and reports to nobody when it has finished. Directories that cannot be listed count as
// empty. RemovePurged does not sync the directory from which it removes the files.
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

// InProcessConn returns a new connection, in memory, to the NATS server. It fails while there is no
// server, for example between the two servers of a Restart. It implements
// nats.InProcessConnProvider.
func (e *Server) InProcessConn() (net.Conn, error) {
	if ns := e.natsServer.Load(); ns != nil {
		return ns.InProcessConn()
	}
	return nil, errNotRunning
}

// errNotRunning means that there is no NATS server at the moment.
var errNotRunning = errors.New("embedded: the NATS server is not running")

// Healthy asks the NATS server to check itself. It returns nil if the server finds no problem, and
// otherwise an [events.ErrLogUnavailable] with the first problem that the server found. A failed
// write to the disk is such a problem: after one, the stream stores no message and does not answer
// publishers. If there is no NATS server, Healthy returns an [events.ErrLogUnavailable], too.
func (e *Server) Healthy() error {
	ns := e.natsServer.Load()
	if ns == nil {
		return fmt.Errorf("%w: %w", events.ErrLogUnavailable, errNotRunning)
	}

	// The server allows itself one millisecond to find out whether it accepts connections. On a
	// busy machine the millisecond may pass although nothing is wrong. So Healthy reports a problem
	// only if each of five checks has found one.
	var health *server.HealthStatus
	for range 5 {
		health = ns.Healthz(nil)
		if health.Error == "" {
			return nil
		}
	}
	return fmt.Errorf("%w: %s", events.ErrLogUnavailable, health.Error)
}

// Stuck returns an error if the caller must call [Server.Restart], and otherwise nil. There are
// three such cases:
//
//   - A write of a stream to the disk has failed. The stream then stores nothing more until a
//     restart. Stuck returns the error of Healthy.
//   - The NATS server has disabled JetStream. It does so if a write fails with EACCES. Stuck returns
//     the error of Healthy.
//   - The last Restart has failed. Stuck then returns whatever Healthy returns.
//
// Stuck returns nil for all other problems that Healthy reports, because such a problem may pass
// without a restart. For example, while the server creates a stream, Healthy may report that the
// stream could not be recovered.
func (e *Server) Stuck() error {
	ns := e.natsServer.Load()
	if e.restartFailed.Load() || ns != nil && !ns.JetStreamEnabled() {
		return e.Healthy()
	}
	// nats-server 2.15.2 reports a failed write only as text. Its text for a stream is
	// "JetStream stream 'ACCOUNT > STREAM' write error: CAUSE".
	if err := e.Healthy(); err != nil && strings.Contains(err.Error(), " write error: ") {
		return err
	}
	return nil
}

// Stop shuts the NATS server down and waits until it has stopped. Then Stop closes the socket,
// unlocks the directory, and removes the directory if it is a temporary one. After that, further
// calls do nothing.
//
// If ctx ends before the NATS server has stopped, Stop fails, and the socket, the lock and the
// directory stay. A further call of Stop then waits again and finishes the work.
func (e *Server) Stop(ctx context.Context) error {
	e.restartMu.Lock()
	defer e.restartMu.Unlock()
	if err := e.stopNATS(ctx); err != nil {
		return err // the directory stays locked, because the NATS server may still write
	}

	var errs []error
	if e.socket != nil {
		// The shutdown of the server has ended all its connections, as close requires.
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

// stopNATS shuts the NATS server down and waits until it has stopped, or until ctx ends. If there
// is no NATS server, stopNATS does nothing. If ctx ends first, stopNATS fails, the shutdown
// continues, and natsServer still points to the server. The caller holds restartMu.
func (e *Server) stopNATS(ctx context.Context) error {
	ns := e.natsServer.Load()
	if ns == nil {
		return nil
	}

	// Neither method of ns takes a context, so they run in a goroutine. If ctx ends first, the
	// goroutine runs until the server has stopped.
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

// serverLog passes the log lines of the NATS server to a logger. Warnings, errors and fatal errors
// become warnings, and all other lines become debug lines. serverLog implements server.Logger. A
// Restart keeps the serverLog.
type serverLog struct {
	logger *slog.Logger
	// fatal is set when the NATS server that startNATS started last has logged a fatal error.
	fatal atomic.Bool

	// mu guards lastError.
	mu sync.Mutex
	// lastError is the last error or fatal error that any NATS server of this Server has logged. It
	// is empty if there was none.
	lastError string
}

// Noticef logs a notice of the server, such as the lines about its start, as a debug line.
func (s *serverLog) Noticef(format string, v ...any) { s.logLine(slog.LevelDebug, format, v) }

// Debugf logs a debug line of the server.
func (s *serverLog) Debugf(format string, v ...any) { s.logLine(slog.LevelDebug, format, v) }

// Tracef is required by server.Logger. The server does not call Tracef, because startNATS does not
// enable tracing, which would log every message.
func (s *serverLog) Tracef(format string, v ...any) { s.logLine(slog.LevelDebug, format, v) }

// Warnf logs a warning of the server.
func (s *serverLog) Warnf(format string, v ...any) { s.logLine(slog.LevelWarn, format, v) }

// Errorf logs an error as a warning, and records it for [serverLog.lastErrorText].
func (s *serverLog) Errorf(format string, v ...any) { s.recordError(format, v) }

// Fatalf does the same as Errorf, and sets fatal. It does not end the process. Instead, startNATS
// notices that the NATS server did not start, and returns the recorded error.
func (s *serverLog) Fatalf(format string, v ...any) {
	s.recordError(format, v)
	s.fatal.Store(true)
}

// recordError records an error and logs it as a warning.
func (s *serverLog) recordError(format string, v []any) {
	s.mu.Lock()
	s.lastError = fmt.Sprintf(format, v...)
	s.mu.Unlock()
	s.logLine(slog.LevelWarn, format, v)
}

// lastErrorText returns why the NATS server did not start: the last error that a server has logged,
// or else a text that says that JetStream is not enabled. After a failed Restart, the error may be
// an older one of the server before the Restart.
func (s *serverLog) lastErrorText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastError == "" {
		return "JetStream is not enabled"
	}
	return s.lastError
}

// logLine formats a line of the server and passes it to the logger, if the logger logs the level.
func (s *serverLog) logLine(level slog.Level, format string, v []any) {
	if s.logger.Enabled(context.Background(), level) {
		s.logger.Log(context.Background(), level, "nats: "+strings.TrimSpace(fmt.Sprintf(format, v...)))
	}
}
