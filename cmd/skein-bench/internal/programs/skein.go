package programs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// Skein is `skein serve` with its own data directory.
type Skein struct {
	*Process
	dir  string
	Addr Address
}

// BuildSkein builds the measured program as it is released, from the source around, if it is not built yet, and returns its path.
func BuildSkein(ctx context.Context, b *measure.Bench) (string, error) {
	if b.Program != "" {
		return b.Program, nil
	}
	b.Say("building skein")
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/skein-feed/skein").Output()
	if err != nil {
		return "", fmt.Errorf("skein is built from a clone, and this is not a directory of one: %w", err)
	}
	program, err := filepath.Abs(filepath.Join(b.Dir, "skein"))
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/skein")
	build.Dir = strings.TrimSpace(string(root))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building skein: %w\n%s", err, out)
	}
	b.Program = program
	return program, nil
}

// StartEmptySkein starts the service with an empty data directory, and waits until it is ready.
func StartEmptySkein(ctx context.Context, b *measure.Bench) (*Skein, error) {
	dir, err := os.MkdirTemp(b.Dir, "skein-")
	if err != nil {
		return nil, err
	}
	s, err := StartSkeinWithData(ctx, b, filepath.Join(dir, "data"), filepath.Join(dir, "port"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.dir = dir
	return s, nil
}

// StartSkeinWithData starts the service with a data directory, and waits until it is ready.
func StartSkeinWithData(ctx context.Context, b *measure.Bench, data, portFile string, flags ...string) (*Skein, error) {
	path, err := BuildSkein(ctx, b)
	if err != nil {
		return nil, err
	}
	// The file of an earlier process names a port on which no process listens any more.
	if err := os.Remove(portFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	args := append([]string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--port-file", portFile}, flags...)
	if b.ServeOn != "" {
		path, args = "taskset", append([]string{"--cpu-list", b.ServeOn, path}, args...)
	}
	p, err := start(ctx, "skein serve", path, args...)
	if err != nil {
		return nil, err
	}
	s := &Skein{Process: p}
	if s.Addr, err = p.waitUntilListening(ctx, portFile); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// settledTime is how long a service may flush and compact what was loaded.
const settledTime = 5 * time.Minute

// WaitUntilCompacted waits until the service has flushed and compacted what was loaded: until it takes less than a tenth of a core. Only Linux says
// what it takes; elsewhere it waits for two seconds.
func (s *Skein) WaitUntilCompacted(ctx context.Context) error {
	const period = 2 * time.Second
	used, since := 0.0, time.Time{}
	return s.waitUntilWithin(ctx, settledTime, "at rest", func(context.Context) bool {
		took := time.Since(since)
		if took < period {
			return false
		}
		before, first := used, since.IsZero()
		used = processorSeconds(s.cmd.Process.Pid)
		since = time.Now()
		return !first && used-before < took.Seconds()/10
	})
}

// processorSeconds returns the processor time that a process has used so far, or 0 where the system does not say it.
func processorSeconds(pid int) float64 {
	const ticksPerSecond = 100 // on every platform of Linux
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticksPerSecond
}

// Close stops the service and removes its data.
func (s *Skein) Close() error { return errors.Join(s.Stop(), os.RemoveAll(s.dir)) }

// Publisher publishes over one connection of its own.
type Publisher struct {
	skeinv1connect.EventServiceClient
	Transport *http.Transport
}

// Publisher returns a publisher over a new connection.
func (s *Skein) NewPublisher() *Publisher {
	t := &http.Transport{
		DialContext:     (&net.Dialer{}).DialContext,
		MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1, DisableCompression: true,
	}
	return &Publisher{
		skeinv1connect.NewEventServiceClient(&http.Client{Transport: t}, "http://"+s.Addr.String()), t,
	}
}

// publish publishes calls one after the other and returns the last position.
func (p *Publisher) publishInOrder(ctx context.Context, calls []*skeinv1.PublishRequest) (last events.Position, err error) {
	for _, call := range calls {
		res, err := p.Publish(ctx, connect.NewRequest(call))
		if err != nil {
			return last, err
		}
		if int(res.Msg.GetAcceptedCount()) != len(call.GetEvents()) {
			return last, fmt.Errorf("%d of %d events were accepted", res.Msg.GetAcceptedCount(), len(call.GetEvents()))
		}
		if last, err = events.ParsePosition(res.Msg.GetPosition()); err != nil {
			return last, err
		}
	}
	return last, nil
}

// Publish publishes several sequences of calls at once, each over a connection of its own, and returns when every
// projection shows the last event.
func (s *Skein) PublishSequences(ctx context.Context, sequences [][]*skeinv1.PublishRequest) error {
	positions, errs := make([]events.Position, len(sequences)), make([]error, len(sequences))
	var wg sync.WaitGroup
	for i, calls := range sequences {
		wg.Go(func() {
			p := s.NewPublisher()
			defer p.Transport.CloseIdleConnections()
			positions[i], errs[i] = p.publishInOrder(ctx, calls)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var last events.Position
	for _, p := range positions {
		if p.Seq > last.Seq {
			last = p
		}
	}
	return s.WaitUntilVisible(ctx, last)
}

// WaitUntilVisible waits until every projection of the service shows a position.
func (s *Skein) WaitUntilVisible(ctx context.Context, p events.Position) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	admin := skeinv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+s.Addr.String())
	ticker := time.NewTicker(PollInterval)
	defer ticker.Stop()
	for {
		res, err := admin.GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{AtLeast: p.String()}))
		if err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
			return err
		}
		if err == nil {
			behind, err := behind(res.Msg, p)
			if err != nil || !behind {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not visible in time: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}

// behind reports whether some projection does not yet show a position.
func isBehind(status *skeinv1.GetStatusResponse, p events.Position) (bool, error) {
	if len(status.GetProjections()) == 0 {
		return false, errors.New("the service has no projections")
	}
	for _, pr := range status.GetProjections() {
		shown, err := events.ParsePosition(pr.GetPosition())
		if err != nil {
			return false, fmt.Errorf("projection %s: %w", pr.GetName(), err)
		}
		if shown.Seq < p.Seq {
			return true, nil
		}
	}
	return false, nil
}
