package embedded

import (
	"errors"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// countingListener counts the calls of Accept.
type countingListener struct {
	*net.UnixListener
	calls int
}

// Accept implements [net.Listener].
func (l *countingListener) Accept() (net.Conn, error) {
	l.calls++
	return l.UnixListener.Accept()
}

// TestFailingAcceptIsRetriedWithPauses checks that a listener that accepts no connection, as in a
// process with too many open files, does not keep a core busy.
func TestFailingAcceptIsRetriedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"}
		unix, err := net.ListenUnix("unix", address)
		if err != nil {
			t.Fatal(err)
		}

		// A deadline in the past makes every Accept fail.
		if err := unix.SetDeadline(time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}

		listener := &countingListener{UnixListener: unix}
		s := newSocket(listener)
		s.running.Go(func() {
			s.acceptClients(func() (net.Conn, error) { return nil, errors.New("no connection is accepted") })
		})
		<-time.After(10*acceptRetryPause + acceptRetryPause/2)
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if listener.calls != 11 {
			t.Errorf("calls of Accept in ten and a half pauses: got %d, want 11", listener.calls)
		}
	})
}
