//go:build alerts

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/access/accesstest"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// noSuchDisk is more than any disk keeps free.
const noSuchDisk = "10000000GiB"

// TestEveryAlertFiresForItsFault fires each alert of docs/observability/alerts.yml by a fault of a
// real service that a real Prometheus scrapes. The rules are those of the file with shorter times
// (see shortened). No alert may fire while nothing is wrong.
func TestEveryAlertFiresForItsFault(t *testing.T) {
	p := startPrometheus(t)
	for _, f := range []struct {
		name string
		run  func(*testing.T, *prometheusServer)
	}{
		{"nothing is wrong", nothingIsWrong},
		{"no disk", noDisk},
		{"the process stands still, and is killed", stopsAndDies},
		{"the log is slow, then gone", logSlowThenGone},
		{"the log is full", logFull},
		{"the log refuses", logRefuses},
		{"malformed events", malformedEvents},
		{"a message is lost", messageLost},
		{"another log", anotherLog},
		{"other settings", otherSettings},
		{"the archive is not writable", archiveBroken},
		{"the target of snapshots is not writable", snapshotsBroken},
		{"a row is lost, and lost again", rowsLost},
		{"bad tokens and an old certificate", badFiles},
		{"too many streams", tooManyStreams},
		{"a node is lost", nodeLost},
	} {
		t.Run(f.name, func(t *testing.T) { f.run(t, p) })
	}
	for _, alert := range p.rules {
		if !p.fired[alert] {
			t.Errorf("%s was never fired", alert)
		}
	}
	t.Logf("%d of %d alerts were fired", len(p.fired), len(p.rules))
}

// watched is a service that is scraped.
type watched struct {
	*server
	t    *testing.T
	api  *command.Client
	stop func()
}

// watch starts a service and has it scraped until the end of the test.
func watch(t *testing.T, p *prometheusServer, dir string, flags ...string) *watched {
	t.Helper()
	w := &watched{t: t, server: &server{t: t, dir: dir, flags: flags}}
	w.open()
	w.stop = p.scrape(t, strings.ReplaceAll(t.Name(), "/", "-"), target{addr: w.addr})
	t.Cleanup(func() { w.stop(); w.kill() })
	return w
}

func (w *watched) open() {
	w.t.Helper()
	if err := w.start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.api = (&command.ClientFlags{Server: w.addr}).Client()
}

// reopen stops the service in order and starts it with other flags.
func (w *watched) reopen(flags ...string) {
	w.t.Helper()
	if err := w.stopInOrder(); err != nil {
		w.t.Fatal(err)
	}
	w.flags = flags
	w.open()
}

func (w *watched) await(p *prometheusServer, cause func(), alerts ...string) {
	w.t.Helper()
	p.await(w.t, strings.ReplaceAll(w.t.Name(), "/", "-"), cause, alerts...)
}

// publishes returns a function that publishes something else each time, for whatever that leads to.
func (w *watched) publishes() func() {
	var n atomic.Uint64
	return func() {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_, _ = w.api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{userFollowed("ann", fmt.Sprint("user", n.Add(1)))},
		}))
	}
}

func nothingIsWrong(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := watch(t, p, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "1s", "--snapshots", filepath.Join(dir, "snapshots"),
		"--snapshot-every", "1s")
	publish := w.publishes()
	name := strings.ReplaceAll(t.Name(), "/", "-")
	// So long that every rule, with its time, has been held against half a minute of samples.
	enough := func(ctx context.Context) error {
		publish()
		firing, err := p.firing(ctx, name)
		if err != nil {
			return err
		}
		if len(firing) > 0 {
			t.Errorf("firing: %v", firing)
			return nil
		}
		if n, _ := p.query(ctx, `count_over_time(up[60s])`); len(n) < 2 || n < "30" {
			return fmt.Errorf("%s scrapes", n)
		}
		return nil
	}
	if err := eventually(t.Context(), enough); err != nil {
		t.Error(err)
	}
}

// publishArchived appends a follow of ann to the log on a server, past the service, and returns its
// position.
func publishArchived(t *testing.T, url, user string) string {
	t.Helper()
	p, err := eventlog.Dial(t.Context(), eventlog.Config{URL: url}, eventlog.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Publish(t.Context(), []*skeinv1.Event{userFollowed("ann", user)}, eventlog.PublishOptions{})
	if err := errors.Join(err, p.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return res.Position.String()
}

// noDisk: there is less disk than is to be kept free, while others continue publishing.
func noDisk(t *testing.T, p *prometheusServer) {
	url := startNATS(t)
	w := watch(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	publish(t, w.api, userFollowed("ann", "bob"))
	w.reopen("--nats", url, "--archive", "off", "--disk-reserve", noSuchDisk)
	position := publishArchived(t, url, "cid")
	refused := w.publishes()
	var reads sync.WaitGroup
	w.await(p, func() {
		refused()
		reads.Go(func() {
			_, _ = w.api.Graph().CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
				Pairs: []*skeinv1.FollowPair{{UserId: "ann", Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: "cid"}}}, AtLeast: position,
			}))
		})
	}, "SkeinDiskLow", "SkeinDiskRefusing", "SkeinFoldsPaused", "SkeinNoRoom", "SkeinProjectionLag", "SkeinReadsSlow")
	reads.Wait()
}

// stopsAndDies: the process gets no processor while others publish, and is then killed.
func stopsAndDies(t *testing.T, p *prometheusServer) {
	url := startNATS(t)
	w := watch(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	publish(t, w.api, userFollowed("ann", "bob"))
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	publishArchived(t, url, "cid")
	w.await(p, nil, "SkeinDown")
	published := time.Now()
	if err := eventually(t.Context(), func(context.Context) error {
		if since := time.Since(published); since < 6*time.Second {
			return fmt.Errorf("%v", since)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.await(p, nil, "SkeinVisibleSlow")
	w.kill()
	w.await(p, nil, "SkeinDown")
}

// slowRoad passes connections on, and everything on them late.
type slowRoad struct {
	l     net.Listener
	late  atomic.Int64
	mu    sync.Mutex
	conns []net.Conn
}

func openRoad(t *testing.T, to string) *slowRoad {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &slowRoad{l: l}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, a, b)
			r.mu.Unlock()
			go r.pass(a, b)
			go r.pass(b, a)
		}
	}()
	t.Cleanup(r.cut)
	return r
}

func (r *slowRoad) pass(to io.WriteCloser, from io.Reader) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if late := r.late.Load(); late > 0 {
			<-time.After(time.Duration(late))
		}
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

func (r *slowRoad) cut() {
	r.l.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

func logSlowThenGone(t *testing.T, p *prometheusServer) {
	road := openRoad(t, strings.TrimPrefix(startNATS(t), "nats://"))
	w := watch(t, p, t.TempDir(), "--nats", "nats://"+road.l.Addr().String(), "--archive", "off")
	publish(t, w.api, userFollowed("ann", "bob"))
	// The page of metrics waits a second for the log, and is to be had still.
	w.stop()
	w.stop = p.scrape(t, strings.ReplaceAll(t.Name(), "/", "-"), target{addr: w.addr, every: "3s"})
	road.late.Store(int64(700 * time.Millisecond))
	var calls sync.WaitGroup
	publishOne := w.publishes()
	w.await(p, func() { calls.Go(publishOne) }, "SkeinAppendsSlow")
	road.cut()
	patient, end := context.WithTimeout(t.Context(), patience)
	defer end()
	calls.Go(func() { // longer than the service tries
		_, err := w.api.Events().Publish(patient, connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{userFollowed("ann", "late")},
		}))
		t.Log("publishing without a log:", err)
	})
	w.await(p, nil, "SkeinLogUnreachable", "SkeinPublishUnavailable")
	calls.Wait()
}

// nodeLost: each partition is on one of two nodes, and one of them is killed. Until others take its
// partitions over, nobody serves them.
func nodeLost(t *testing.T, p *prometheusServer) {
	url := startNATS(t)
	node := func(name string) []string {
		return []string{"--nats", url, "--archive", "off", "--node", name, "--node-addr", "127.0.0.1:0", "--copies", "1"}
	}
	w := watch(t, p, t.TempDir(), node("a")...)
	other := &server{t: t, dir: t.TempDir(), flags: node("b")}
	if err := other.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.kill)
	if err := eventually(t.Context(), func(ctx context.Context) error {
		res, err := w.api.Admin().GetStatus(ctx, connect.NewRequest(&skeinv1.GetStatusRequest{}))
		if err != nil {
			return err
		}
		for _, n := range res.Msg.GetCluster().GetNodes() {
			if n.GetName() == "b" && n.GetServes() > 0 {
				return nil
			}
		}
		return errors.New("the other node serves nothing yet")
	}); err != nil {
		t.Fatal(err)
	}
	other.kill()
	w.await(p, nil, "SkeinPartitionsUnserved", "SkeinPartitionsShort")
}

func logFull(t *testing.T, p *prometheusServer) {
	w := watch(t, p, t.TempDir(), "--archive", "off", "--log-max-bytes", "256KiB")
	more := func() error {
		req := &skeinv1.PublishRequest{}
		for n := range 100 {
			req.Events = append(req.Events, boardCreated("ann", fmt.Sprint("board", n), strings.Repeat("x", 250)))
		}
		_, err := w.api.Events().Publish(t.Context(), connect.NewRequest(req))
		return err
	}
	var err error
	for n := 0; err == nil && n < 100; n++ {
		err = more()
	}
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatal(err)
	}
	w.await(p, func() { _ = more() }, "SkeinLogNearlyFull", "SkeinNoRoom")
}

// logRefuses: an operator has changed the stream so that it accepts nothing.
func logRefuses(t *testing.T, p *prometheusServer) {
	url := startNATS(t)
	w := watch(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	publish(t, w.api, userFollowed("ann", "bob"))
	js := jetStreamAt(t, url)
	stream, err := js.Stream(t.Context(), eventlog.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxMsgSize = 8
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.await(p, w.publishes(), "SkeinInternalErrors")
}

// malformedEvents: another program publishes to the stream directly, with malformed events.
func malformedEvents(t *testing.T, p *prometheusServer) {
	url := startNATS(t)
	w := watch(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	publish(t, w.api, userFollowed("ann", "bob"))
	js := jetStreamAt(t, url)
	w.await(p, func() {
		if _, err := js.Publish(t.Context(), eventlog.Subject, []byte("no events"), jetstream.WithExpectStream(eventlog.StreamName)); err != nil {
			t.Error(err)
		}
	}, "SkeinEventsRejected")
}

// anotherLog: the log has gone, and the stores with what was folded of it are still there.
func anotherLog(t *testing.T, p *prometheusServer) {
	w := watch(t, p, t.TempDir(), "--archive", "off")
	publish(t, w.api, userFollowed("ann", "bob"))
	if err := errors.Join(w.stopInOrder(), os.RemoveAll(filepath.Join(w.dir, "data", service.LogDir))); err != nil {
		t.Fatal(err)
	}
	if err := w.launch(t.Context()); err != nil { // it serves, and is not ready
		t.Fatal(err)
	}
	w.await(p, nil, "SkeinProjectionFailed")
}

// messageLost: a bit of a message has flipped that is not archived.
func messageLost(t *testing.T, p *prometheusServer) {
	w := watch(t, p, t.TempDir(), "--archive", "off")
	for _, user := range []string{"bob", "cid", "dee"} {
		publish(t, w.api, userFollowed("ann", user))
	}
	if err := errors.Join(w.stopInOrder(), flipBit(filepath.Join(w.dir, "data", service.LogDir), "cid", 1, filepath.Join(w.dir, "whole"))); err != nil {
		t.Fatal(err)
	}
	if err := w.launch(t.Context()); err != nil { // it serves, and is not ready
		t.Fatal(err)
	}
	w.await(p, nil, "SkeinLogHole")
}

func otherSettings(t *testing.T, p *prometheusServer) {
	w := watch(t, p, t.TempDir(), "--archive", "off")
	publish(t, w.api, userFollowed("ann", "bob"))
	w.reopen("--archive", "off", "--feed-threshold", "77")
	w.await(p, nil, "SkeinProjectionOutdated")
}

// breakTarget puts a file where a directory was.
func breakTarget(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// awaitFigure waits until a service says something of itself.
func (w *watched) awaitFigure(p *prometheusServer, expr string) {
	w.t.Helper()
	if err := eventually(w.t.Context(), func(ctx context.Context) error {
		if _, ok := p.query(ctx, expr); !ok {
			return fmt.Errorf("never: %s", expr)
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

func archiveBroken(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := watch(t, p, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "1s")
	publish(t, w.api, userFollowed("ann", "bob"))
	w.awaitFigure(p, "skein_archive_position > 0")
	breakTarget(t, filepath.Join(dir, "archive"))
	w.await(p, w.publishes(), "SkeinArchiveFailing", "SkeinArchiveLag")
}

func snapshotsBroken(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := watch(t, p, dir, "--archive", "off", "--snapshots", filepath.Join(dir, "snapshots"), "--snapshot-every", "1s")
	publish(t, w.api, userFollowed("ann", "bob"))
	w.awaitFigure(p, "skein_snapshots_total > 0")
	breakTarget(t, filepath.Join(dir, "snapshots"))
	w.await(p, w.publishes(), "SkeinSnapshotsFailing", "SkeinSnapshotOld")
}

// rowsLost: a disk loses a row of the graph, once, and then again as soon as it is repaired: to the
// auditor the same as a fold that writes it wrongly.
func rowsLost(t *testing.T, p *prometheusServer) {
	var running *service.Service
	api, stop := startApp(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Maintenance.AuditShare = 1
		o.OfferedOperations = func(a *service.Service) service.OfferedOperations { running = a; return a.OfferedOperations() }
	})
	defer stop()
	publish(t, api, userFollowed("quiet", "silent"))
	name := strings.ReplaceAll(t.Name(), "/", "-")
	defer p.scrape(t, name, target{addr: strings.TrimPrefix(api.URL, "http://")})()
	live := running.Store("graph")
	lose := func() {
		prefix := graph.FollowersPrefix(nil, "silent")
		_ = live.Repair(t.Context(), func(_ events.Cursor, rows projections.Reader, m *store.Repair) error {
			it := rows.Iter(prefix, projections.PrefixEnd(prefix))
			if it.Next() {
				m.Delete(append([]byte(nil), it.Key()...))
			}
			return it.Close()
		})
	}
	p.await(t, name, func() {
		lose()
		publish(t, api, userFollowed("quiet", "loud")) // what is written lately is audited first
	}, "SkeinAuditFinding")
	ctx, cancel := context.WithCancel(t.Context())
	var saboteur sync.WaitGroup
	saboteur.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			lose()
		}
	})
	p.await(t, name, func() { publish(t, api, played("quiet", "film")) }, "SkeinAuditUnexplained")
	cancel()
	saboteur.Wait()
}

// badFiles: the token file is overwritten with something else, and the certificate is good for an
// hour.
func badFiles(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	cert, key := accesstest.NewAuthority(t).Server(dir)
	token, line, err := access.NewToken(access.Caller{Name: "prometheus", Roles: access.Read}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, flags: []string{"--archive", "off", "--tokens", tokens, "--tls-cert", cert, "--tls-key", key}}
	if err := s.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	var port []byte
	if err := eventually(t.Context(), func(context.Context) (err error) {
		port, err = os.ReadFile(filepath.Join(dir, "port"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(t.Name(), "/", "-")
	at := target{addr: "127.0.0.1:" + strings.TrimSpace(string(port)), scheme: "https", token: token}
	defer p.scrape(t, name, at)()
	p.await(t, name, nil, "SkeinCertificateExpires")
	if err := os.WriteFile(tokens, []byte("what is this?\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.await(t, name, nil, "SkeinAccessFileStale")
}

// tooManyStreams: more clients watch than may.
func tooManyStreams(t *testing.T, p *prometheusServer) {
	w := watch(t, p, t.TempDir(), "--archive", "off")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watching sync.WaitGroup
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	w.api.HTTP.Transport = transport
	more := func() {
		watching.Go(func() {
			stream, err := w.api.Events().Watch(ctx, connect.NewRequest(&skeinv1.WatchRequest{}))
			if err != nil {
				return
			}
			defer stream.Close()
			for stream.Receive() {
			}
		})
	}
	for range 32 {
		more()
	}
	w.await(p, more, "SkeinOverloaded")
	cancel()
	watching.Wait()
}
