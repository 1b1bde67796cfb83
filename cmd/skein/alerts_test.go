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

// impossibleReserve is more space than any disk has free.
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

// scrapedService is a service that a Prometheus scrapes.
type scrapedService struct {
	*serverProcess
	t    *testing.T
	api  *command.Client
	stop func()
}

// startScraped starts a service and lets Prometheus scrape it until the end of the test.
func startScraped(t *testing.T, p *prometheusServer, dir string, flags ...string) *scrapedService {
	t.Helper()
	w := &scrapedService{t: t, serverProcess: &serverProcess{t: t, dir: dir, flags: flags}}
	w.mustStart()
	w.stop = p.startScraping(t, strings.ReplaceAll(t.Name(), "/", "-"), scrapeTarget{addr: w.addr})
	t.Cleanup(func() { w.stop(); w.kill() })
	return w
}

// mustStart starts the process and makes a client.
func (w *scrapedService) mustStart() {
	w.t.Helper()
	if err := w.start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.api = w.newClient()
}

// restartWith stops the service gracefully and starts it with other flags.
func (w *scrapedService) restartWith(flags ...string) {
	w.t.Helper()
	if err := w.stopGracefully(); err != nil {
		w.t.Fatal(err)
	}
	w.flags = flags
	w.mustStart()
}

// waitForAlerts waits until all alerts fire for the service, and calls cause repeatedly meanwhile.
func (w *scrapedService) waitForAlerts(p *prometheusServer, cause func(), alerts ...string) {
	w.t.Helper()
	p.waitForAlerts(w.t, strings.ReplaceAll(w.t.Name(), "/", "-"), cause, alerts...)
}

// newPublisher returns a function that publishes another follow each time, and ignores the outcome.
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

// checkNoAlertFires checks that no alert fires for a healthy service that archives and takes
// snapshots.
func checkNoAlertFires(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := startScraped(t, p, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "1s", "--snapshots", filepath.Join(dir, "snapshots"),
		"--snapshot-every", "1s")
	publish := w.newPublisher()
	name := strings.ReplaceAll(t.Name(), "/", "-")

	// Wait for 30 samples, so that every rule was evaluated for longer than its shortened time.
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

// runOutOfDisk starts a service that must keep more space free than there is, while others publish
// to its log.
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

// pauseAndKill stops the threads of a service while others publish, and then kills it.
func pauseAndKill(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	w := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	publishTo(t, url, "cid")
	w.waitForAlerts(p, nil, "SkeinDown")

	// Let the envelope be visible only 6 seconds after it was published, which is slow for the
	// alert.
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

// slowProxy passes connections on to a server, and delays everything that is sent on them.
type slowProxy struct {
	listener net.Listener
	delay    atomic.Int64
	mu       sync.Mutex
	conns    []net.Conn
}

// startSlowProxy starts a proxy to a server, without a delay at first. It closes all connections at
// the end of the test.
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

// copyDelayed copies one direction of a connection.
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

// closeAll stops the proxy and closes all connections.
func (r *slowProxy) closeAll() {
	r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
}

// slowAndCutLog delays the connections to the log, and then cuts them.
func slowAndCutLog(t *testing.T, p *prometheusServer) {
	road := startSlowProxy(t, strings.TrimPrefix(startNATS(t).ClientURL(), "nats://"))
	w := startScraped(t, p, t.TempDir(), "--nats", "nats://"+road.listener.Addr().String(), "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))

	// Scrape less often, because the page of metrics waits up to a second for the log.
	w.stop()
	w.stop = p.startScraping(t, strings.ReplaceAll(t.Name(), "/", "-"), scrapeTarget{addr: w.addr, interval: "3s"})

	road.delay.Store(int64(700 * time.Millisecond))
	var calls sync.WaitGroup
	publishOne := w.newPublisher()
	w.waitForAlerts(p, func() { calls.Go(publishOne) }, "SkeinAppendsSlow")

	road.closeAll()
	patient, end := context.WithTimeout(t.Context(), waitLimit)
	defer end()
	calls.Go(func() { // this call waits for longer than the service tries to append
		_, err := w.api.Events().Publish(patient, connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{userFollowed("ann", "late")},
		}))
		t.Log("publishing without a log:", err)
	})
	w.waitForAlerts(p, nil, "SkeinLogUnreachable", "SkeinPublishUnavailable")
	calls.Wait()
}

// loseNode kills one of two nodes, each of which serves some partitions alone. Nobody serves these
// until the other node takes them over.
func loseNode(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	node := func(name string) []string {
		return []string{"--nats", url, "--archive", "off", "--node", name, "--node-addr", "127.0.0.1:0", "--copies", "1"}
	}
	w := startScraped(t, p, t.TempDir(), node("a")...)

	otherNode := &serverProcess{t: t, dir: t.TempDir(), flags: node("b")}
	if err := otherNode.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(otherNode.kill)
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

	otherNode.kill()
	w.waitForAlerts(p, nil, "SkeinPartitionsUnserved", "SkeinPartitionsShort")
}

// fillLog publishes until the log has its maximum size.
func fillLog(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off", "--log-max-bytes", "256KiB")
	publishMore := func() error {
		req := &skeinv1.PublishRequest{}
		for n := range 100 {
			req.Events = append(req.Events, boardCreated("ann", fmt.Sprint("board", n), strings.Repeat("x", 250)))
		}
		_, err := w.api.Events().Publish(t.Context(), connect.NewRequest(req))
		return err
	}

	var err error
	for n := 0; err == nil && n < 100; n++ {
		err = publishMore()
	}
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatal(err)
	}
	w.waitForAlerts(p, func() { _ = publishMore() }, "SkeinLogNearlyFull", "SkeinNoRoom")
}

// makeLogRefuse changes the stream, as an operator may do by mistake, so that it refuses every
// message.
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

// publishMalformedEvents publishes malformed events to the stream directly, as another program may
// do.
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

// replaceLog removes the log, but not the stores that were folded from it.
func replaceLog(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	if err := errors.Join(w.stopGracefully(), os.RemoveAll(filepath.Join(w.dataDir(), service.LogDir))); err != nil {
		t.Fatal(err)
	}
	// The service serves, but never becomes ready.
	if err := w.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.waitForAlerts(p, nil, "SkeinProjectionFailed")
}

// loseMessage flips a bit of a message that is not archived.
func loseMessage(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off")
	for _, user := range []string{"bob", "cid", "dee"} {
		mustPublish(t, w.api, userFollowed("ann", user))
	}
	if err := errors.Join(w.stopGracefully(), flipBit(filepath.Join(w.dataDir(), service.LogDir), "cid", 1, filepath.Join(w.dir, "whole"))); err != nil {
		t.Fatal(err)
	}
	// The service serves, but never becomes ready.
	if err := w.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.waitForAlerts(p, nil, "SkeinLogHole")
}

// changeSettings starts the service with another setting of a projection, for which its store is
// outdated.
func changeSettings(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	w.restartWith("--archive", "off", "--feed-threshold", "77")
	w.waitForAlerts(p, nil, "SkeinProjectionOutdated")
}

// replaceDirWithFile renames a directory and puts a file in its place, so that nobody can write to
// the directory.
func replaceDirWithFile(t *testing.T, dir string) {
	t.Helper()
	if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// waitForSample waits until a query has a result.
func (w *scrapedService) waitForSample(p *prometheusServer, expr string) {
	w.t.Helper()
	waitUntil(w.t.Context(), w.t, func(ctx context.Context) error {
		if _, ok := p.query(ctx, expr); !ok {
			return fmt.Errorf("never: %s", expr)
		}
		return nil
	})
}

// breakArchive makes the directory of the archive unusable.
func breakArchive(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := startScraped(t, p, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "1s")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	w.waitForSample(p, "skein_archive_position > 0")
	replaceDirWithFile(t, filepath.Join(dir, "archive"))
	w.waitForAlerts(p, w.newPublisher(), "SkeinArchiveFailing", "SkeinArchiveLag")
}

// breakSnapshots makes the directory of the snapshots unusable.
func breakSnapshots(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	w := startScraped(t, p, dir, "--archive", "off", "--snapshots", filepath.Join(dir, "snapshots"), "--snapshot-every", "1s")
	mustPublish(t, w.api, userFollowed("ann", "bob"))
	w.waitForSample(p, "skein_snapshots_total > 0")
	replaceDirWithFile(t, filepath.Join(dir, "snapshots"))
	w.waitForAlerts(p, w.newPublisher(), "SkeinSnapshotsFailing", "SkeinSnapshotOld")
}

// loseRows deletes a row of the graph, as a faulty disk may do. First it does so once, then again
// as soon as the row is repaired, which looks to the auditor like a fold that writes the row
// wrongly.
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
		mustPublish(t, api, userFollowed("quiet", "loud")) // rows that were written recently are audited first
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

// breakAccessFiles overwrites the token file with invalid text, and uses a certificate that expires
// in an hour.
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
	target := scrapeTarget{addr: "127.0.0.1:" + strings.TrimSpace(string(port)), scheme: "https", token: token}
	defer p.startScraping(t, name, target)()

	p.waitForAlerts(t, name, nil, "SkeinCertificateExpires")
	if err := os.WriteFile(tokens, []byte("what is this?\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.waitForAlerts(t, name, nil, "SkeinAccessFileStale")
}

// openTooManyStreams opens more streams of Watch than the service admits.
func openTooManyStreams(t *testing.T, p *prometheusServer) {
	w := startScraped(t, p, t.TempDir(), "--archive", "off")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watching sync.WaitGroup
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	w.api.HTTP.Transport = transport
	openStream := func() {
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
		openStream()
	}
	w.waitForAlerts(p, openStream, "SkeinOverloaded")
	cancel()
	watching.Wait()
}
