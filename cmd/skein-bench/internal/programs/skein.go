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

// Skein is a process of `skein serve`.
type Skein struct {
	*Process
	// dir is removed by Close. It is empty if the data directory belongs to the caller.
	dir  string
	Addr Address
}

// BuildSkein returns the path of the measured program. If there is none yet, BuildSkein builds it
// as releases are built, from the clone in which the bench runs.
func BuildSkein(ctx context.Context, b *measure.Bench) (string, error) {
	if b.Program != "" {
		return b.Program, nil
	}

	b.Logf("building skein")
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

// StartEmptySkein starts the service on a new data directory, and waits until the service is ready.
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

// StartSkeinWithData starts the service on a data directory that may have data, and waits until the
// service is ready. The service writes its port to portFile.
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
	if b.Opts.Quick {
		// A smoke test must also pass on a machine that is too busy for the service to take all
		// calls.
		args = append(args, "--shed-after", "0s")
	}
	if b.ServeOn != "" {
		args = append([]string{"--cpu-list", b.ServeOn, path}, args...)
		path = "taskset"
	}
	p, err := start(ctx, "skein serve", path, args...)
	if err != nil {
		return nil, err
	}
	s := &Skein{Process: p}
	s.Addr, err = p.waitUntilListening(ctx, portFile)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// compactionTimeout is how long a service may flush and compact what was loaded.
const compactionTimeout = 5 * time.Minute

// WaitUntilCompacted waits until the service has flushed and compacted what was loaded: until it
// uses less than a tenth of a core for two seconds. The processor time of another process is known
// only on Linux. On other systems the wait ends after two seconds.
func (s *Skein) WaitUntilCompacted(ctx context.Context) error {
	const period = 2 * time.Second
	used := 0.0
	var periodStart time.Time
	return s.waitUntilWithin(ctx, compactionTimeout, "at rest", func(context.Context) bool {
		elapsed := time.Since(periodStart)
		if elapsed < period {
			return false
		}
		// The first call only begins a period.
		isFirst := periodStart.IsZero()
		usedBefore := used
		used = processorSeconds(s.cmd.Process.Pid)
		periodStart = time.Now()
		return !isFirst && used-usedBefore < elapsed.Seconds()/10
	})
}

// processorSeconds returns the processor time that a process has used so far, or 0 on systems other
// than Linux.
func processorSeconds(pid int) float64 {
	const ticksPerSecond = 100 // on every platform of Linux
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The second field is the name of the program in parentheses, which may contain spaces.
	_, afterName, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(afterName)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticksPerSecond
}

// Close stops the service and removes its data, if [StartEmptySkein] has made the directory.
func (s *Skein) Close() error { return errors.Join(s.Stop(), os.RemoveAll(s.dir)) }

// Publisher publishes over a connection that no other publisher uses.
type Publisher struct {
	skeinv1connect.EventServiceClient
	Transport *http.Transport
}

// NewPublisher returns a publisher with a new connection.
func (s *Skein) NewPublisher() *Publisher {
	t := &http.Transport{
		DialContext:         (&net.Dialer{}).DialContext,
		MaxConnsPerHost:     1,
		MaxIdleConnsPerHost: 1,
		DisableCompression:  true,
	}
	return &Publisher{
		skeinv1connect.NewEventServiceClient(&http.Client{Transport: t}, "http://"+s.Addr.String()), t,
	}
}

// publishInOrder makes calls one after the other, and returns the position of the last one. It
// returns an error if the service does not accept every event.
func (p *Publisher) publishInOrder(ctx context.Context, calls []*skeinv1.PublishRequest) (last events.Position, err error) {
	for _, call := range calls {
		res, err := p.Publish(ctx, connect.NewRequest(call))
		if err != nil {
			return last, err
		}
		if int(res.Msg.GetAcceptedCount()) != len(call.GetEvents()) {
			return last, fmt.Errorf("%d of %d events were accepted", res.Msg.GetAcceptedCount(), len(call.GetEvents()))
		}
		last, err = events.ParsePosition(res.Msg.GetPosition())
		if err != nil {
			return last, err
		}
	}
	return last, nil
}

// PublishSequences publishes several sequences of calls at once, each over a connection of its own
// and in order. It returns when every projection of the service shows the last event.
func (s *Skein) PublishSequences(ctx context.Context, sequences [][]*skeinv1.PublishRequest) error {
	positions := make([]events.Position, len(sequences))
	errs := make([]error, len(sequences))
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

// WaitUntilVisible waits until every projection of the service shows a position of the log: until
// reads contain all events up to it.
func (s *Skein) WaitUntilVisible(ctx context.Context, p events.Position) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	admin := skeinv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+s.Addr.String())
	ticker := time.NewTicker(PollInterval)
	defer ticker.Stop()
	for {
		// The service answers with Unavailable if a projection does not show the position for some
		// time.
		res, err := admin.GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{AtLeast: p.String()}))
		if err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
			return err
		}
		if err == nil {
			isMissing, err := isBehind(res.Msg, p)
			if err != nil || !isMissing {
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

// isBehind reports whether a projection does not show a position yet.
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
