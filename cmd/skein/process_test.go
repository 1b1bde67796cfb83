package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
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
	lines := bufio.NewScanner(out)
	for serving := false; !serving && lines.Scan(); {
		serving = strings.HasPrefix(lines.Text(), "Serving ")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil { // all that it writes must be read before Wait
		t.Fatalf("%q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the demo ended with %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v, %v", left, err)
	}
}

// server is a service process that can be killed and started again on the same data and port.
type server struct {
	t    *testing.T
	dir  string
	addr string
	// flags are those of serve beside the data, the address and the port file.
	flags []string
	// program is another skein than this one; empty means this one.
	program string
	cmd     *exec.Cmd
}

// start starts the process and waits until it is ready.
func (s *server) start(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	url, err := awaitReady(ctx, filepath.Join(s.dir, "port"))
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
		s.t.Logf("the log of the server:\n%s", text)
		return err
	}
	s.addr = strings.TrimPrefix(url, "http://")
	return nil
}

// launch starts the process.
func (s *server) launch(ctx context.Context) error {
	portFile := filepath.Join(s.dir, "port")
	if err := os.RemoveAll(portFile); err != nil {
		return err
	}
	listen := s.addr
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.CommandContext(ctx, cmp.Or(s.program, "skein"), append([]string{
		"serve", "--data", filepath.Join(s.dir, "data"), "--listen", listen, "--port-file", portFile,
	}, s.flags...)...)
	s.cmd.Stderr = log

	// Nothing is written to this pipe. It closes when the test binary ends, also when that is
	// killed, and runSkein ends the process then.
	s.cmd.Env = append(os.Environ(), endsWithStdin+"=1")
	if _, err := s.cmd.StdinPipe(); err != nil {
		return err
	}
	return s.cmd.Start()
}

// kill ends the process as a power cut would, as far as the process can tell.
func (s *server) kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return // it was not started
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // "signal: killed"
}

// givenPorts are the ports that [freePorts] has returned.
var givenPorts sync.Map

// freePorts finds ports, from one on, that no client of this machine is given by chance, so that a
// server can have them again. None is returned twice: two tests may ask before either listens.
func freePorts(from, n int) (ports []int, err error) {
	for port := from; port < 30000 && len(ports) < n; port++ {
		if _, given := givenPorts.Load(port); given {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			if _, given := givenPorts.LoadOrStore(port, nil); !given {
				ports = append(ports, port)
			}
		}
	}
	if len(ports) < n {
		return nil, errors.New("no free ports")
	}
	return ports, nil
}
