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

// impossibleReserve is more than any disk keeps free.
const impossibleReserve = "10000000GiB"

// TestEveryAlertFiresForItsFault fires each alert of docs/observability/alerts.yml by a fault of a
// real service that a real Prometheus scrapes. The rules are those of the file with shorter times
// (see shortened). No alert may fire while nothing is wrong.
func TestEveryAlertFiresForItsFault(t *testing.T) {
	prometheus := startPrometheus(t)
	for _, fault := range []struct {
		name string
		run  func(*testing.T, *prometheusServer)
	}{
		{"nothing is wrong", checkNoAlertFires},
		{"no disk", runOutOfDisk},
		{"the process stands still, and is killed", pauseAndKill},
		{"the log is slow, then gone", slowAndCutLog},
		{"the log is full", fillLog},
		{"the log refuses", makeLogRefuse},
		{"malformed events", publishMalformedEvents},
		{"a message is lost", loseMessage},
		{"another log", replaceLog},
		{"other settings", changeSettings},
		{"the archive is not writable", breakArchive},
		{"the target of snapshots is not writable", breakSnapshots},
		{"a row is lost, and lost again", loseRows},
		{"bad tokens and an old certificate", breakAccessFiles},
		{"too many streams", openTooManyStreams},
		{"a node is lost", loseNode},
	} {
		t.Run(fault.name, func(t *testing.T) { fault.run(t, prometheus) })
	}
	for _, alert := range prometheus.alertNames {
		if !prometheus.fired[alert] {
			t.Errorf("%s was never fired", alert)
		}
	}
	t.Logf("%d of %d alerts were fired", len(prometheus.fired), len(prometheus.alertNames))
}

// scrapedService is a service that is scraped.
type scrapedService struct {
	*serverProcess
	t    *testing.T
	api  *command.Client
	stop func()
}

// startScraped starts a service and has it scraped until the end of the test.
func startScraped(t *testing.T, p *prometheusServer, dir string, flags ...string) *scrapedService {
	t.Helper()
	w := &scrapedService{t: t, serverProcess: &serverProcess{t: t, dir: dir, flags: flags}}
	w.mustStart()
	w.stop = p.startScraping(t, strings.ReplaceAll(t.Name(), "/", "-"), scrapeTarget{addr: w.addr})
	t.Cleanup(func() { w.stop(); w.kill() })
	return w
}

func (w *scrapedService) mustStart() {
	w.t.Helper()
	if err := w.start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.api = w.newClient()
}

// restartWith stops the service in order and starts it with other flags.
func (w *scrapedService) restartWith(flags ...string) {
	w.t.Helper()
	if err := w.stopGracefully(); err != nil {
		w.t.Fatal(err)
	}
	w.flags = flags
	w.mustStart()
}

func (w *scrapedService) waitForAlerts(p *prometheusServer, cause func(), alerts ...string) {
	w.t.Helper()
	p.waitForAlerts(w.t, strings.ReplaceAll(w.t.Name(), "/", "-"), cause, alerts...)
}

// newPublisher returns a function that publishes something else each time, for whatever that leads to.
func (w *scrapedService) newPublisher() func() {
	var published atomic.Uint64
	return func() {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_, _ = w.api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{userFollowed("ann", fmt.Sprint("user", published.Add(1)))},
		}))
	}
}

func checkNoAlertFires(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := startScraped(t, p, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "1s", "--snapshots", filepath.Join(dir, "snapshots"),
		"--snapshot-every", "1s")
	publish := w.newPublisher()
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

// noDisk: there is less disk than is to be kept free, while others continue publishing.
func runOutOfDisk(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	w := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	w.restartWith("--nats", url, "--archive", "off", "--disk-reserve", impossibleReserve)
	position := publishTo(t, url, "cid")
	refused := w.newPublisher()
	var reads sync.WaitGroup
	w.waitForAlerts(p, func() {
		refused()
		reads.Go(func() {
			_, _ = w.api.Graph().CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
				Pairs: []*skeinv1.FollowPair{userPair("ann", "cid")}, AtLeast: position,
			}))
		})
	}, "SkeinDiskLow", "SkeinDiskRefusing", "SkeinFoldsPaused", "SkeinNoRoom", "SkeinProjectionLag", "SkeinReadsSlow")
	reads.Wait()
}

// stopsAndDies: the process gets no processor while others publish, and is then killed.
func pauseAndKill(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	w := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	publishTo(t, url, "cid")
	w.waitForAlerts(p, nil, "SkeinDown")
	published := time.Now()
	waitUntil(t.Context(), t, func(context.Context) error {
		if since := time.Since(published); since < 6*time.Second {
			return fmt.Errorf("%v", since)
		}
		return nil
	})
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.waitForAlerts(p, nil, "SkeinVisibleSlow")
	w.kill()
	w.waitForAlerts(p, nil, "SkeinDown")
}

// slowProxy passes connections on, and everything on them late.
type slowProxy struct {
	listener net.Listener
	delay    atomic.Int64
	mu       sync.Mutex
	conns    []net.Conn
}

func startSlowProxy(t *testing.T, to string) *slowProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &slowProxy{listener: l}
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
			go r.copyDelayed(a, b)
			go r.copyDelayed(b, a)
		}
	}()
	t.Cleanup(r.closeAll)
	return r
}

func (r *slowProxy) copyDelayed(to io.WriteCloser, from io.Reader) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if delay := r.delay.Load(); delay > 0 {
			<-time.After(time.Duration(delay))
		}
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

func (r *slowProxy) closeAll() {
	r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

func slowAndCutLog(t *testing.T, p *prometheusServer) {
	road := startSlowProxy(t, strings.TrimPrefix(startNATS(t).ClientURL(), "nats://"))
	w := startScraped(t, p, t.TempDir(), "--nats", "nats://"+road.listener.Addr().String(), "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	// The page of metrics waits a second for the log, and is to be had still.
	w.stop()
	w.stop = p.startScraping(t, strings.ReplaceAll(t.Name(), "/", "-"), scrapeTarget{addr: w.addr, interval: "3s"})
	road.delay.Store(int64(700 * time.Millisecond))
	var calls sync.WaitGroup
	publishOne := w.newPublisher()
	w.waitForAlerts(p, func() { calls.Go(publishOne) }, "SkeinAppendsSlow")
	road.closeAll()
	patient, end := context.WithTimeout(t.Context(), waitLimit)
	defer end()
	calls.Go(func() { // longer than the service tries
		_, err := w.api.Events().Publish(patient, connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{userFollowed("ann", "late")},
		}))
		t.Log("publishing without a log:", err)
	})
	w.waitForAlerts(p, nil, "SkeinLogUnreachable", "SkeinPublishUnavailable")
	calls.Wait()
}

// nodeLost: each partition is on one of two nodes, and one of them is killed. Until others take its
// partitions over, nobody serves them.
func loseNode(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	node := func(name string) []string {
		return []string{"--nats", url, "--archive", "off", "--node", name, "--node-addr", "127.0.0.1:0", "--copies", "1"}
	}
	w := startScraped(t, p, t.TempDir(), node("a")...)
	other := &serverProcess{t: t, dir: t.TempDir(), flags: node("b")}
	if err := other.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.kill)
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		status, err := getStatus(ctx, w.api)
		if err != nil {
			return err
		}
		for _, n := range status.GetCluster().GetNodes() {
			if n.GetName() == "b" && n.GetServes() > 0 {
				return nil
			}
		}
		return errors.New("the other node serves nothing yet")
	})
	other.kill()
	w.waitForAlerts(p, nil, "SkeinPartitionsUnserved", "SkeinPartitionsShort")
}

func fillLog(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off", "--log-max-bytes", "256KiB")
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
	w.waitForAlerts(p, func() { _ = more() }, "SkeinLogNearlyFull", "SkeinNoRoom")
}

// logRefuses: an operator has changed the stream so that it accepts nothing.
func makeLogRefuse(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	w := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
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
	w.waitForAlerts(p, w.newPublisher(), "SkeinInternalErrors")
}

// malformedEvents: another program publishes to the stream directly, with malformed events.
func publishMalformedEvents(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	w := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	js := jetStreamAt(t, url)
	w.waitForAlerts(p, func() {
		if _, err := js.Publish(t.Context(), eventlog.Subject, []byte("no events"), jetstream.WithExpectStream(eventlog.StreamName)); err != nil {
			t.Error(err)
		}
	}, "SkeinEventsRejected")
}

// anotherLog: the log has gone, and the stores with what was folded of it are still there.
func replaceLog(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	if err := errors.Join(w.stopGracefully(), os.RemoveAll(filepath.Join(w.dataDir(), service.LogDir))); err != nil {
		t.Fatal(err)
	}
	if err := w.launch(t.Context()); err != nil { // it serves, and is not ready
		t.Fatal(err)
	}
	w.waitForAlerts(p, nil, "SkeinProjectionFailed")
}

// messageLost: a bit of a message has flipped that is not archived.
func loseMessage(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off")
	for _, user := range []string{"bob", "cid", "dee"} {
		mustPublish(t, w.api, userFollowed("ann", user))
	}
	if err := errors.Join(w.stopGracefully(), flipBit(filepath.Join(w.dataDir(), service.LogDir), "cid", 1, filepath.Join(w.dir, "whole"))); err != nil {
		t.Fatal(err)
	}
	if err := w.launch(t.Context()); err != nil { // it serves, and is not ready
		t.Fatal(err)
	}
	w.waitForAlerts(p, nil, "SkeinLogHole")
}

func changeSettings(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	w.restartWith("--archive", "off", "--feed-threshold", "77")
	w.waitForAlerts(p, nil, "SkeinProjectionOutdated")
}

// replaceDirWithFile puts a file where a directory was.
func replaceDirWithFile(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// waitForSample waits until a service says something of itself.
func (w *scrapedService) waitForSample(p *prometheusServer, expr string) {
	w.t.Helper()
	waitUntil(w.t.Context(), w.t, func(ctx context.Context) error {
		if _, ok := p.query(ctx, expr); !ok {
			return fmt.Errorf("never: %s", expr)
		}
		return nil
	})
}

func breakArchive(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := startScraped(t, p, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "1s")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	w.waitForSample(p, "skein_archive_position > 0")
	replaceDirWithFile(t, filepath.Join(dir, "archive"))
	w.waitForAlerts(p, w.newPublisher(), "SkeinArchiveFailing", "SkeinArchiveLag")
}

func breakSnapshots(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := startScraped(t, p, dir, "--archive", "off", "--snapshots", filepath.Join(dir, "snapshots"), "--snapshot-every", "1s")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	w.waitForSample(p, "skein_snapshots_total > 0")
	replaceDirWithFile(t, filepath.Join(dir, "snapshots"))
	w.waitForAlerts(p, w.newPublisher(), "SkeinSnapshotsFailing", "SkeinSnapshotOld")
}

// rowsLost: a disk loses a row of the graph, once, and then again as soon as it is repaired: to the
// auditor the same as a fold that writes it wrongly.
func loseRows(t *testing.T, p *prometheusServer) {
	var running *service.Service
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Maintenance.AuditShare = 1
		o.OfferedOperations = func(a *service.Service) service.OfferedOperations { running = a; return a.OfferedOperations() }
	})
	defer stop()
	mustPublish(t, api, userFollowed("quiet", "silent"))
	name := strings.ReplaceAll(t.Name(), "/", "-")
	defer p.startScraping(t, name, scrapeTarget{addr: strings.TrimPrefix(api.URL, "http://")})()
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
	p.waitForAlerts(t, name, func() {
		lose()
		mustPublish(t, api, userFollowed("quiet", "loud")) // what is written lately is audited first
	}, "SkeinAuditFinding")
	ctx, cancel := context.WithCancel(t.Context())
	var saboteur sync.WaitGroup
	saboteur.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			lose()
		}
	})
	p.waitForAlerts(t, name, func() { mustPublish(t, api, played("quiet", "film")) }, "SkeinAuditUnexplained")
	cancel()
	saboteur.Wait()
}

// badFiles: the token file is overwritten with something else, and the certificate is good for an
// hour.
func breakAccessFiles(t *testing.T, p *prometheusServer) {
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
	s := &serverProcess{t: t, dir: dir, flags: []string{"--archive", "off", "--tokens", tokens, "--tls-cert", cert, "--tls-key", key}}
	if err := s.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	var port []byte
	waitUntil(t.Context(), t, func(context.Context) (err error) {
		port, err = os.ReadFile(filepath.Join(dir, "port"))
		return err
	})
	name := strings.ReplaceAll(t.Name(), "/", "-")
	at := scrapeTarget{addr: "127.0.0.1:" + strings.TrimSpace(string(port)), scheme: "https", token: token}
	defer p.startScraping(t, name, at)()
	p.waitForAlerts(t, name, nil, "SkeinCertificateExpires")
	if err := os.WriteFile(tokens, []byte("what is this?\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.waitForAlerts(t, name, nil, "SkeinAccessFileStale")
}

// tooManyStreams: more clients watch than may.
func openTooManyStreams(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off")
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
	w.waitForAlerts(p, more, "SkeinOverloaded")
	cancel()
	watching.Wait()
}
