package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// SocketFile is the name of the Unix socket in the data directory. Another process of the same user
// reaches the server through it: a newer version of skein that builds its stores beside the running
// one.
const SocketFile = "SOCKET"

// acceptRetryPause is the pause after a connection could not be accepted. The usual reason is that
// the process has too many open files, which does not change at once.
const acceptRetryPause = 100 * time.Millisecond

// socket passes connections of other processes on to the server. It outlives a restart of the
// server.
type socket struct {
	listener net.Listener
	// running counts the goroutine that accepts, and those that copy bytes.
	running sync.WaitGroup
	// closing is closed when close begins. It ends a pause of acceptClients.
	closing chan struct{}
}

// newSocket returns a socket whose connections arrive at the listener.
func newSocket(listener net.Listener) *socket {
	return &socket{listener: listener, closing: make(chan struct{})}
}

// openSocket opens the socket of the data directory. The lock of the directory is held, so a file
// that is there belongs to a process that has ended.
func (e *Server) openSocket(ctx context.Context) error {
	path := filepath.Join(e.dir, SocketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("embedded: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		// The longest path of a socket is about 100 bytes. A data directory with a longer path
		// works without.
		e.opts.Logger.Info("other processes cannot read the log of this process", "error", err)
		return nil
	}
	// The directory is private as well. The mode says so once more for directories that an operator
	// has opened up.
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("embedded: %w", err), listener.Close())
	}

	e.socket = newSocket(listener)
	e.socket.running.Go(func() { e.socket.acceptClients(e.InProcessConn) })
	return nil
}

// acceptClients connects every client of the socket with the server, until the socket is closed.
func (s *socket) acceptClients(connect func() (net.Conn, error)) {
	for {
		client, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-time.After(acceptRetryPause):
				continue
			case <-s.closing:
				return
			}
		}

		// Between the two servers of a restart there is nothing to connect to. The client tries
		// again.
		server, err := connect()
		if err != nil {
			_ = client.Close()
			continue
		}

		// Each direction ends when either side closes, and then closes both.
		for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
			s.running.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
				_ = pair[1].Close()
			})
		}
	}
}

// close ends the socket. The server must have been shut down, which closes its connections.
func (s *socket) close() error {
	close(s.closing)
	err := s.listener.Close() // it removes the file
	s.running.Wait()
	return err
}
