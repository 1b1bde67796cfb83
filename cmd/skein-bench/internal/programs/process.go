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

// How long a started program may take until it answers, and a stopped one until it is killed.
const (
	startTimeout = 2 * time.Minute
	StopTimeout  = time.Minute
	PollInterval = 10 * time.Millisecond
)

// Address is where a program listens.
type Address struct{ host, port string }

// String returns host and port.
func (a Address) String() string { return net.JoinHostPort(a.host, a.port) }

// Process is a program that the bench started and will stop.
type Process struct {
	name string
	cmd  *exec.Cmd
	out  outputTail
	// done is closed when the program has ended, with err.
	done chan struct{}
	err  error
}

// start runs a program until it is stopped or the context ends.
func start(ctx context.Context, name, path string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // ourselves, or a program that was looked up by name
	p := &Process{name: name, cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Env = WithoutSkeinSettings(os.Environ())
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

// WithoutSkeinSettings removes what would change the defaults of the measured service.
func WithoutSkeinSettings(env []string) []string {
	var kept []string
	for _, e := range env {
		if !strings.HasPrefix(e, "SKEIN_") {
			kept = append(kept, e)
		}
	}
	return kept
}

// Stop ends the program in order and waits for its end.
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

// until polls a condition until it holds, the program has ended, or it has taken too long.
func (p *Process) waitUntil(ctx context.Context, what string, ready func(context.Context) bool) error {
	return p.waitUntilWithin(ctx, startTimeout, what, ready)
}

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

// listening waits for the file into which the program writes its port, then for its /readyz.
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

// freePort returns a port of the loopback that was free a moment ago.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// tail keeps the end of what a program prints, for error messages.
type outputTail struct {
	mu  sync.Mutex
	buf []byte
}

const outputTailBytes = 4096

// Write implements io.Writer.
func (t *outputTail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - outputTailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

// String returns the last few thousand bytes.
func (t *outputTail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// Alone waits for a time, in which the process must not end.
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

// Memory is the resident memory of the process, in bytes.
func (p *Process) ResidentBytes(ctx context.Context) (float64, error) {
	pid := strconv.Itoa(p.cmd.Process.Pid)
	if n, ok := measure.ProcessStatus(pid, "VmRSS:"); ok {
		return n, nil
	}
	out, err := exec.CommandContext(ctx, "ps", "-o", "rss=", "-p", pid).Output()
	if err != nil {
		return 0, fmt.Errorf("the memory of %s: %w", p.name, err)
	}
	kib, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return kib * 1024, err
}
