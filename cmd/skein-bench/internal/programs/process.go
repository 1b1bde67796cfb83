package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

const (
	// startTimeout is how long a program may take from its start until it answers.
	startTimeout = 2 * time.Minute
	// StopTimeout is how long a program may take to stop before it is killed.
	StopTimeout = time.Minute
	// PollInterval is the time between two attempts to find out whether a program has reached a
	// state.
	PollInterval = 10 * time.Millisecond
)

// Address is where a program listens.
type Address struct{ host, port string }

// String returns the address in the form host:port.
func (a Address) String() string { return net.JoinHostPort(a.host, a.port) }

// Process is a program that the bench has started, and that it stops in the end.
type Process struct {
	// name is the name of the program in errors.
	name string
	cmd  *exec.Cmd
	// out has the end of what the program has printed.
	out outputTail
	// done is closed when the program has ended.
	done chan struct{}
	// err is the error with which the program ended. It may be read after done was closed.
	err error
}

// start starts a program, which runs until Stop is called or the context ends.
func start(ctx context.Context, name, path string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the path is that of this program, or of one that was looked up by name
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout = &p.out
	p.cmd.Stderr = &p.out
	p.cmd.Env = WithoutSkeinSettings(os.Environ())
	// Cancel is called when the context ends. The program may then end in order, as after Stop.
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = StopTimeout
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// WithoutSkeinSettings removes the variables that would change settings of `skein serve`. A
// measured service has its default settings.
func WithoutSkeinSettings(env []string) []string {
	var others []string
	for _, e := range env {
		if !strings.HasPrefix(e, "SKEIN_") {
			others = append(others, e)
		}
	}
	return others
}

// Stop asks the program to end, and waits until it has ended. After StopTimeout it kills the
// program and returns an error.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}

	timer := time.NewTimer(StopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		err := p.cmd.Process.Kill()
		<-p.done
		return errors.Join(fmt.Errorf("%s did not stop within %v", p.name, StopTimeout), err)
	}
}

// waitUntil polls the condition ready until it holds. waitUntil returns an error if the program
// ends before, or after startTimeout. The state is a word such as "ready", for the error.
func (p *Process) waitUntil(ctx context.Context, what string, ready func(context.Context) bool) error {
	return p.waitUntilWithin(ctx, startTimeout, what, ready)
}

// waitUntilWithin is waitUntil with another timeout.
func (p *Process) waitUntilWithin(
	ctx context.Context, timeout time.Duration, what string, ready func(context.Context) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(PollInterval)
	defer ticker.Stop()

	for !ready(ctx) {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was %s: %w\n%s", p.name, what, p.err, p.out.String())
		case <-ctx.Done():
			return fmt.Errorf("%s was not %s in time: %w\n%s", p.name, what, ctx.Err(), p.out.String())
		case <-ticker.C:
		}
	}
	return nil
}

// waitUntilListening waits until the program has written its port to portFile, and then until its
// path /readyz answers with status 200. It returns the address of the program.
func (p *Process) waitUntilListening(ctx context.Context, portFile string) (Address, error) {
	addr := Address{host: "127.0.0.1"}
	err := p.waitUntil(ctx, "listening", func(context.Context) bool {
		data, err := os.ReadFile(portFile)
		addr.port = string(bytes.TrimSpace(data))
		return err == nil && addr.port != ""
	})
	if err != nil {
		return addr, err
	}

	return addr, p.waitUntil(ctx, "ready", func(ctx context.Context) bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr.String()+"/readyz", http.NoBody)
		if err != nil {
			return false
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// freePort returns a port of the loopback that was free a moment ago. Another program may take it
// before the caller does.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// outputTail is an io.Writer that keeps only the end of what a program prints, for error messages.
type outputTail struct {
	mu  sync.Mutex
	buf []byte
}

// outputTailBytes is how much of the output is kept.
const outputTailBytes = 4096

// Write appends b, and drops the oldest bytes that are too many.
func (t *outputTail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - outputTailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String returns the end of the output.
func (t *outputTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// StayIdle waits for a time without calling the process. It returns an error if the process ends in
// that time.
func (p *Process) StayIdle(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.done:
		return fmt.Errorf("%s has ended: %w", p.name, p.err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ResidentBytes returns the resident memory of the process.
func (p *Process) ResidentBytes(ctx context.Context) (float64, error) {
	pid := strconv.Itoa(p.cmd.Process.Pid)
	if n, ok := measure.ProcessStatus(pid, "VmRSS:"); ok {
		return n, nil
	}

	// Systems other than Linux have no /proc.
	out, err := exec.CommandContext(ctx, "ps", "-o", "rss=", "-p", pid).Output()
	if err != nil {
		return 0, fmt.Errorf("the memory of %s: %w", p.name, err)
	}
	kib, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return kib * 1024, err
}
