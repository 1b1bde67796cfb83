package bench

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
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// skeinServer is `skein serve` with its own data directory.
type skeinServer struct {
	*process
	dir  string
	addr address
}

// skein builds the measured program as it is released, from the source around, and returns its path.
func (b *bench) skein(ctx context.Context) (string, error) {
	if b.program != "" {
		return b.program, nil
	}
	b.say("building skein")
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/skein-feed/skein").Output()
	if err != nil {
		return "", fmt.Errorf("skein is built from a clone, and this is not a directory of one: %w", err)
	}
	program, err := filepath.Abs(filepath.Join(b.dir, "skein"))
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/skein")
	build.Dir = strings.TrimSpace(string(root))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building skein: %w\n%s", err, out)
	}
	b.program = program
	return program, nil
}

// startSkein starts the service with an empty data directory, and waits until it is ready.
func (b *bench) startSkein(ctx context.Context) (*skeinServer, error) {
	dir, err := os.MkdirTemp(b.dir, "skein-")
	if err != nil {
		return nil, err
	}
	s, err := b.serveSkein(ctx, filepath.Join(dir, "data"), filepath.Join(dir, "port"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.dir = dir
	return s, nil
}

// serveSkein starts the service with a data directory, and waits until it is ready.
func (b *bench) serveSkein(ctx context.Context, data, portFile string, flags ...string) (*skeinServer, error) {
	path, err := b.skein(ctx)
	if err != nil {
		return nil, err
	}
	// The file of an earlier process names a port where nobody is any more.
	if err := os.Remove(portFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	args := append([]string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--port-file", portFile}, flags...)
	p, err := start(ctx, "skein serve", path, args...)
	if err != nil {
		return nil, err
	}
	s := &skeinServer{process: p}
	if s.addr, err = p.listening(ctx, portFile); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// memory is the resident memory of the process, in bytes.
func (p *process) memory(ctx context.Context) (float64, error) {
	pid := strconv.Itoa(p.cmd.Process.Pid)
	if n, ok := processStatus(pid, "VmRSS:"); ok {
		return n, nil
	}
	out, err := exec.CommandContext(ctx, "ps", "-o", "rss=", "-p", pid).Output()
	if err != nil {
		return 0, fmt.Errorf("the memory of %s: %w", p.name, err)
	}
	kib, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	return kib * 1024, err
}

// close stops the service and removes its data.
func (s *skeinServer) close() error { return errors.Join(s.stop(), os.RemoveAll(s.dir)) }

// publisher publishes over one connection of its own.
type publisher struct {
	skeinv1connect.EventServiceClient
	transport *http.Transport
}

func (s *skeinServer) publisher() *publisher {
	t := &http.Transport{
		DialContext:     (&net.Dialer{}).DialContext,
		MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1, DisableCompression: true,
	}
	return &publisher{
		skeinv1connect.NewEventServiceClient(&http.Client{Transport: t}, "http://"+s.addr.String()), t,
	}
}

// publish publishes calls one after the other and returns the last position.
func (p *publisher) publish(ctx context.Context, calls []*skeinv1.PublishRequest) (last events.Position, err error) {
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

// publish publishes several sequences of calls at once, each over a connection of its own, and returns when every
// projection shows the last event.
func (s *skeinServer) publish(ctx context.Context, sequences [][]*skeinv1.PublishRequest) error {
	positions, errs := make([]events.Position, len(sequences)), make([]error, len(sequences))
	var wg sync.WaitGroup
	for i, calls := range sequences {
		wg.Go(func() {
			p := s.publisher()
			defer p.transport.CloseIdleConnections()
			positions[i], errs[i] = p.publish(ctx, calls)
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
	return s.visible(ctx, last)
}

// visible waits until every projection of the service shows a position.
func (s *skeinServer) visible(ctx context.Context, p events.Position) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	admin := skeinv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+s.addr.String())
	ticker := time.NewTicker(pollInterval)
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
func behind(status *skeinv1.GetStatusResponse, p events.Position) (bool, error) {
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

// load brings a graph into the service as history, so that every follow has the time that it has in the graph.
// Each connection is a source of its own, since offsets rise within a source.
func (s *skeinServer) load(ctx context.Context, g *followGraph) error {
	const conns, batch = 4, events.MaxEnvelopeEvents
	sequences := make([][]*skeinv1.PublishRequest, conns)
	for i := range g.edges {
		conn := i / batch % conns
		if i%batch == 0 {
			sequences[conn] = append(sequences[conn], &skeinv1.PublishRequest{})
		}
		call := sequences[conn][len(sequences[conn])-1]
		call.Events = append(call.Events, &skeinv1.Event{
			Source: fmt.Sprintf("bench-%d", conn), Offset: uint64(i + 1),
			OccurredAt: timestamppb.New(g.since(i).Time()), Kind: followed(g.edges[i], userID),
		})
	}
	return s.publish(ctx, sequences)
}

// followed is the fact of a follow.
func followed(e edge, id func(uint32) string) *skeinv1.Event_UserFollowed {
	return &skeinv1.Event_UserFollowed{
		UserFollowed: &skeinv1.UserFollowed{UserId: id(e.follower), TargetUserId: id(e.followee)},
	}
}
