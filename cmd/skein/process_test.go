package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

// TestDemoServesUntilSignal demands that a demo continues to serve after its tour, and that a
// signal ends it and removes its files.
func TestDemoServesUntilSignal(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()

	cmd := exec.CommandContext(t.Context(), "skein", "demo", "--port", "0")
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	// The demo prints this line after its tour, when it has become an ordinary service.
	lines := bufio.NewScanner(out)
	isServing := false
	for !isServing && lines.Scan() {
		isServing = strings.HasPrefix(lines.Text(), "Serving ")
	}
	if !isServing {
		t.Errorf("the demo ended its output without a line that it is serving: %v", lines.Err())
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Wait closes the pipe, so everything that the demo writes must be read first.
	if rest, err := io.ReadAll(out); err != nil {
		t.Fatalf("%q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the demo ended with %v, want no error", err)
	}

	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("the demo left the files %v, want none", left)
	}
}

// serverProcess is a service in a process of its own, which a test can kill and start again on the
// same data and the same port.
type serverProcess struct {
	t    *testing.T
	dir  string
	addr string
	// flags are the flags of `skein serve`, without --data, --listen and --port-file.
	flags []string
	// program is the path of another version of skein; empty means the program under test.
	program string
	cmd     *exec.Cmd
}

// startServer starts a service with flags on an empty data directory, waits until it is ready, and
// kills it at the end of the test.
func startServer(ctx context.Context, t *testing.T, flags ...string) *serverProcess {
	t.Helper()
	s := &serverProcess{t: t, dir: t.TempDir(), flags: flags}
	t.Cleanup(s.kill)
	if err := s.start(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// dataDir returns the data directory of the process.
func (s *serverProcess) dataDir() string { return filepath.Join(s.dir, "data") }

// newClient returns a client of the process. The address of the process does not change when it is
// started again.
func (s *serverProcess) newClient() *command.Client {
	api := (&command.ClientFlags{Server: s.addr}).Client()
	s.t.Cleanup(api.HTTP.CloseIdleConnections)
	return api
}

// logFile returns the file to which the log of the process is copied.
func (s *serverProcess) logFile() string { return filepath.Join(s.dir, "server.log") }

// readLogFile returns what the process has logged since it was first started. After the process has
// ended, that is everything.
func (s *serverProcess) readLogFile() (string, error) {
	text, err := os.ReadFile(s.logFile())
	return string(text), err
}

// fileAppender appends what is written to a file.
type fileAppender struct{ path string }

// Write is part of [io.Writer].
func (a fileAppender) Write(p []byte) (int, error) {
	f, err := os.OpenFile(a.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := f.Write(p)
	return n, errors.Join(err, f.Close())
}

// start starts the process and waits until it is ready.
func (s *serverProcess) start(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	_, err := waitUntilReady(ctx, filepath.Join(s.dir, "port"))
	if err != nil {
		text, _ := s.readLogFile()
		s.t.Logf("the log of the server:\n%s", text)
	}
	return err
}

// launch starts the process and does not wait until it is ready.
func (s *serverProcess) launch(ctx context.Context) error {
	portFile := filepath.Join(s.dir, "port")
	if err := os.RemoveAll(portFile); err != nil {
		return err
	}

	// Later starts take the same port again, because clients know it.
	if s.addr == "" {
		ports, err := findFreePorts(22000, 1)
		if err != nil {
			return err
		}
		s.addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
	}

	args := []string{"serve", "--data", s.dataDir(), "--listen", s.addr, "--port-file", portFile}
	s.cmd = exec.CommandContext(ctx, cmp.Or(s.program, "skein"), append(args, s.flags...)...)

	// The log is no file of the process, but a pipe, which the workers of the service inherit. So
	// Wait also waits for these: after the end of a service that was killed, a worker still writes
	// to the data directory for a moment.
	s.cmd.Stderr = fileAppender{s.logFile()}

	// Nothing is written to this pipe. It closes when the test binary ends, even if the binary is
	// killed, and runSkein then ends the process.
	s.cmd.Env = append(os.Environ(), exitOnStdinEOF+"=1")

	// A test that limits the memory of a service measures it.
	if slices.Contains(s.flags, "--memory") {
		s.cmd.Env = append(s.cmd.Env, gcPercentVar+"=")
	}
	if _, err := s.cmd.StdinPipe(); err != nil {
		return err
	}
	return s.cmd.Start()
}

// stopGracefully ends the process as an operator or a supervisor does.
func (s *serverProcess) stopGracefully() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(waitLimit):
		return fmt.Errorf("the service does not end within %v", waitLimit)
	}
}

// kill ends the process with SIGKILL, which the process cannot tell from a power cut, and waits
// until its workers have ended, too. It does nothing if the process was never started.
func (s *serverProcess) kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // "signal: killed"
}

// findFreePorts reserves free ports from first up to 30000, until the test binary ends. The system
// gives no port of this range to outgoing connections, or to servers that take any port, so a
// server that was stopped can have its port again.
func findFreePorts(first, count int) (ports []int, err error) {
	for port := first; port < 30000 && len(ports) < count; port++ {
		if err := reservePort(port); err != nil {
			continue // it is reserved, or something else listens there
		}
		ports = append(ports, port)
	}
	if len(ports) < count {
		return nil, fmt.Errorf("found %d free ports from %d, want %d", len(ports), first, count)
	}
	return ports, nil
}
