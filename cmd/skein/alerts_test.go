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
	"strconv"
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
// (see shortenedRules). No alert may fire while nothing is wrong.
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
			t.Errorf("%s: got no fault that fired it, want one", alert)
		}
	}
	t.Logf("%d of %d alerts were fired", len(prometheus.fired), len(prometheus.alertNames))
}

// scrapedService is a service that a Prometheus scrapes.
type scrapedService struct {
	*serverProcess
	t            *testing.T
	api          *command.Client
	stopScraping func()
}

// startScraped starts a service and lets Prometheus scrape it until the end of the test.
func startScraped(t *testing.T, p *prometheusServer, dir string, flags ...string) *scrapedService {
	t.Helper()
	s := &scrapedService{t: t, serverProcess: &serverProcess{t: t, dir: dir, flags: flags}}
	s.mustStart()
	s.stopScraping = p.startScraping(t, targetName(t), scrapeTarget{addr: s.addr})

	// Stop scraping first, so that SkeinDown does not fire for a service that a test has ended.
	t.Cleanup(func() {
		s.stopScraping()
		s.kill()
	})
	return s
}

// mustStart starts the process and makes a client.
func (s *scrapedService) mustStart() {
	s.t.Helper()
	if err := s.start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.api = s.newClient()
}

// restartWith stops the service gracefully and starts it with other flags.
func (s *scrapedService) restartWith(flags ...string) {
	s.t.Helper()
	if err := s.stopGracefully(); err != nil {
		s.t.Fatal(err)
	}
	s.flags = flags
	s.mustStart()
}

// waitForAlerts waits until all alerts fire for the service, and calls cause repeatedly meanwhile.
func (s *scrapedService) waitForAlerts(p *prometheusServer, cause func(), alerts ...string) {
	s.t.Helper()
	p.waitForAlerts(s.t, targetName(s.t), cause, alerts...)
}

// newPublisher returns a function that publishes another follow each time, and ignores the outcome.
func (s *scrapedService) newPublisher() func() {
	var published atomic.Uint64
	return func() {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		_, _ = s.api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{userFollowed("ann", fmt.Sprint("user", published.Add(1)))},
		}))
	}
}

// checkNoAlertFires checks that no alert fires for a healthy service that archives and takes
// snapshots.
func checkNoAlertFires(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	s := startScraped(t, p, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "1s", "--snapshots", filepath.Join(dir, "snapshots"),
		"--snapshot-every", "1s")
	publish := s.newPublisher()

	// Prometheus scrapes each second. The longest range of the shortened rules is 20 s, so after 30
	// scrapes every rule was evaluated for longer than its time.
	const wantScrapes = 30
	checkUntilEnoughScrapes := func(ctx context.Context) error {
		publish()
		firing, err := p.firing(ctx, targetName(t))
		if err != nil {
			return err
		}
		if len(firing) > 0 {
			t.Errorf("firing alerts: got %v, want none", firing)
			return nil
		}

		count, hasCount := p.query(ctx, `count_over_time(up[60s])`)
		if !hasCount {
			return errors.New("Prometheus has not scraped the service")
		}
		scrapes, err := strconv.Atoi(count)
		if err != nil {
			return err
		}
		if scrapes < wantScrapes {
			return fmt.Errorf("got %d scrapes, want %d", scrapes, wantScrapes)
		}
		return nil
	}
	if err := eventually(t.Context(), checkUntilEnoughScrapes); err != nil {
		t.Error(err)
	}
}

// runOutOfDisk starts a service that must keep more space free than there is, while others publish
// to its log.
func runOutOfDisk(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	s := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, s.api, userFollowed("ann", "bob"))
	s.restartWith("--nats", url, "--archive", "off", "--disk-reserve", impossibleReserve)

	// The service does not fold this event while the disk is full, so reads that need its position
	// wait until their time is over.
	position := publishTo(t, url, "cid")
	publishRefused := s.newPublisher()
	var reads sync.WaitGroup
	s.waitForAlerts(p, func() {
		publishRefused()
		reads.Go(func() {
			_, _ = s.api.Graph().CheckFollows(t.Context(), connect.NewRequest(&skeinv1.CheckFollowsRequest{
				Pairs: []*skeinv1.FollowPair{userPair("ann", "cid")}, AtLeast: position,
			}))
		})
	}, "SkeinDiskLow", "SkeinDiskRefusing", "SkeinFoldsPaused", "SkeinNoRoom", "SkeinProjectionLag", "SkeinReadsSlow")
	reads.Wait()
}

// pauseAndKill stops the threads of a service while others publish, and then kills it.
func pauseAndKill(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	s := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, s.api, userFollowed("ann", "bob"))
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	publishTo(t, url, "cid")
	s.waitForAlerts(p, nil, "SkeinDown")

	// Let the envelope be visible only 6 seconds after it was published, which is slow for the
	// alert.
	published := time.Now()
	waitUntil(t.Context(), t, func(context.Context) error {
		if waited := time.Since(published); waited < 6*time.Second {
			return fmt.Errorf("only %v have passed since the publication", waited)
		}
		return nil
	})
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.waitForAlerts(p, nil, "SkeinVisibleSlow")

	// A process that is gone must fire the same alert as one that stands still.
	s.kill()
	s.waitForAlerts(p, nil, "SkeinDown")
}

// slowProxy passes connections on to a server, and delays everything that is sent on them.
type slowProxy struct {
	listener net.Listener
	delay    atomic.Int64 // in nanoseconds

	mu    sync.Mutex
	conns []net.Conn // of both sides
}

// startSlowProxy starts a proxy to a server, without a delay at first. It closes all connections at
// the end of the test.
func startSlowProxy(t *testing.T, serverAddr string) *slowProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := &slowProxy{listener: l}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // the listener was closed
			}
			server, err := net.Dial("tcp", serverAddr)
			if err != nil {
				client.Close()
				continue
			}
			proxy.mu.Lock()
			proxy.conns = append(proxy.conns, client, server)
			proxy.mu.Unlock()
			go proxy.copyDelayed(client, server)
			go proxy.copyDelayed(server, client)
		}
	}()
	t.Cleanup(proxy.closeAll)
	return proxy
}

// copyDelayed copies one direction of a connection.
func (p *slowProxy) copyDelayed(to io.WriteCloser, from io.Reader) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if delay := p.delay.Load(); delay > 0 {
			<-time.After(time.Duration(delay))
		}

		// A reader may return data together with its error, so write the data first.
		if _, writeErr := to.Write(buf[:n]); writeErr != nil || err != nil {
			return
		}
	}
}

// closeAll stops the proxy and closes all connections.
func (p *slowProxy) closeAll() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		conn.Close()
	}
}

// slowAndCutLog delays the connections to the log, and then cuts them.
func slowAndCutLog(t *testing.T, p *prometheusServer) {
	proxy := startSlowProxy(t, strings.TrimPrefix(startNATS(t).ClientURL(), "nats://"))
	s := startScraped(t, p, t.TempDir(), "--nats", "nats://"+proxy.listener.Addr().String(), "--archive", "off")
	mustPublish(t, s.api, userFollowed("ann", "bob"))

	// Scrape less often, because the page of metrics waits up to a second for the log.
	s.stopScraping()
	s.stopScraping = p.startScraping(t, targetName(t), scrapeTarget{addr: s.addr, interval: "3s"})

	proxy.delay.Store(int64(700 * time.Millisecond))
	var calls sync.WaitGroup
	publishFollow := s.newPublisher()
	s.waitForAlerts(p, func() { calls.Go(publishFollow) }, "SkeinAppendsSlow")

	// The calls of publishFollow end after a second. SkeinPublishUnavailable needs a call that
	// waits for longer than the service tries to append.
	proxy.closeAll()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	calls.Go(func() {
		_, err := s.api.Events().Publish(ctx, connect.NewRequest(&skeinv1.PublishRequest{
			Events: []*skeinv1.Event{userFollowed("ann", "late")},
		}))
		t.Log("publishing without a log:", err)
	})
	s.waitForAlerts(p, nil, "SkeinLogUnreachable", "SkeinPublishUnavailable")
	calls.Wait()
}

// loseNode kills one of two nodes, each of which serves some partitions alone. Nobody serves these
// until the other node takes them over.
func loseNode(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	nodeFlags := func(name string) []string {
		return []string{"--nats", url, "--archive", "off", "--node", name, "--node-addr", "127.0.0.1:0", "--copies", "1"}
	}
	s := startScraped(t, p, t.TempDir(), nodeFlags("a")...)

	otherNode := &serverProcess{t: t, dir: t.TempDir(), flags: nodeFlags("b")}
	if err := otherNode.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(otherNode.kill)

	// Without partitions, the other node would not be missed.
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		status, err := getStatus(ctx, s.api)
		if err != nil {
			return err
		}
		for _, node := range status.GetCluster().GetNodes() {
			if node.GetName() == "b" && node.GetServes() > 0 {
				return nil
			}
		}
		return errors.New("the other node serves nothing yet")
	})

	otherNode.kill()
	s.waitForAlerts(p, nil, "SkeinPartitionsUnserved", "SkeinPartitionsShort")
}

// fillLog publishes until the log has its maximum size.
func fillLog(t *testing.T, p *prometheusServer) {
	s := startScraped(t, p, t.TempDir(), "--archive", "off", "--log-max-bytes", "256KiB")
	publish25kB := func() error {
		req := &skeinv1.PublishRequest{}
		for n := range 100 {
			req.Events = append(req.Events, boardCreated("ann", fmt.Sprint("board", n), strings.Repeat("x", 250)))
		}
		_, err := s.api.Events().Publish(t.Context(), connect.NewRequest(req))
		return err
	}

	// A hundred calls are ten times as much as the log takes, so one of them must be refused.
	var err error
	for calls := 0; err == nil && calls < 100; calls++ {
		err = publish25kB()
	}
	if code := connect.CodeOf(err); code != connect.CodeResourceExhausted {
		t.Fatalf("Publish into a full log: got code %v of error %v, want %v", code, err, connect.CodeResourceExhausted)
	}
	s.waitForAlerts(p, func() { _ = publish25kB() }, "SkeinLogNearlyFull", "SkeinNoRoom")
}

// makeLogRefuse changes the stream, as an operator may do by mistake, so that it refuses every
// message.
func makeLogRefuse(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	s := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, s.api, userFollowed("ann", "bob"))

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
	s.waitForAlerts(p, s.newPublisher(), "SkeinInternalErrors")
}

// publishMalformedEvents publishes malformed events to the stream directly, as another program may
// do.
func publishMalformedEvents(t *testing.T, p *prometheusServer) {
	url := startNATS(t).ClientURL()
	s := startScraped(t, p, t.TempDir(), "--nats", url, "--archive", "off")
	mustPublish(t, s.api, userFollowed("ann", "bob"))
	js := jetStreamAt(t, url)
	s.waitForAlerts(p, func() {
		if _, err := js.Publish(t.Context(), eventlog.Subject, []byte("no events"), jetstream.WithExpectStream(eventlog.StreamName)); err != nil {
			t.Error(err)
		}
	}, "SkeinEventsRejected")
}

// replaceLog removes the log, but not the stores that were folded from it.
func replaceLog(t *testing.T, p *prometheusServer) {
	s := startScraped(t, p, t.TempDir(), "--archive", "off")
	mustPublish(t, s.api, userFollowed("ann", "bob"))
	if err := s.stopGracefully(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(s.dataDir(), service.LogDir)); err != nil {
		t.Fatal(err)
	}

	// The service serves, but never becomes ready.
	if err := s.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.waitForAlerts(p, nil, "SkeinProjectionFailed")
}

// loseMessage flips a bit of a message that is not archived.
func loseMessage(t *testing.T, p *prometheusServer) {
	s := startScraped(t, p, t.TempDir(), "--archive", "off")
	for _, user := range []string{"bob", "cid", "dee"} {
		mustPublish(t, s.api, userFollowed("ann", user))
	}
	if err := s.stopGracefully(); err != nil {
		t.Fatal(err)
	}
	if err := flipBit(filepath.Join(s.dataDir(), service.LogDir), "cid", 1, filepath.Join(s.dir, "whole")); err != nil {
		t.Fatal(err)
	}

	// The service serves, but never becomes ready.
	if err := s.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.waitForAlerts(p, nil, "SkeinLogHole")
}

// changeSettings starts the service with another setting of a projection, for which its store is
// outdated.
func changeSettings(t *testing.T, p *prometheusServer) {
	s := startScraped(t, p, t.TempDir(), "--archive", "off")
	mustPublish(t, s.api, userFollowed("ann", "bob"))
	s.restartWith("--archive", "off", "--feed-threshold", "77")
	s.waitForAlerts(p, nil, "SkeinProjectionOutdated")
}

// replaceDirWithFile renames a directory and puts a file in its place, so that nobody can write to
// the directory.
func replaceDirWithFile(t *testing.T, dir string) {
	t.Helper()
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// waitForSample waits until a query has a result.
func (s *scrapedService) waitForSample(p *prometheusServer, expr string) {
	s.t.Helper()
	waitUntil(s.t.Context(), s.t, func(ctx context.Context) error {
		if _, ok := p.query(ctx, expr); !ok {
			return fmt.Errorf("Prometheus has no sample with %s", expr)
		}
		return nil
	})
}

// breakArchive makes the directory of the archive unusable.
func breakArchive(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	s := startScraped(t, p, dir, "--archive", filepath.Join(dir, "archive"), "--archive-every", "1s")
	mustPublish(t, s.api, userFollowed("ann", "bob"))

	// The archive must work at first, so that it breaks under a running service.
	s.waitForSample(p, "skein_archive_position > 0")
	replaceDirWithFile(t, filepath.Join(dir, "archive"))
	s.waitForAlerts(p, s.newPublisher(), "SkeinArchiveFailing", "SkeinArchiveLag")
}

// breakSnapshots makes the directory of the snapshots unusable.
func breakSnapshots(t *testing.T, p *prometheusServer) {
	dir := t.TempDir()
	s := startScraped(t, p, dir, "--archive", "off", "--snapshots", filepath.Join(dir, "snapshots"), "--snapshot-every", "1s")
	mustPublish(t, s.api, userFollowed("ann", "bob"))

	// The first snapshot must succeed, so that the directory breaks under a running service.
	s.waitForSample(p, "skein_snapshots_total > 0")
	replaceDirWithFile(t, filepath.Join(dir, "snapshots"))
	s.waitForAlerts(p, s.newPublisher(), "SkeinSnapshotsFailing", "SkeinSnapshotOld")
}

// loseRows deletes a row of the graph, as a faulty disk may do. First it does so once, then again
// as soon as the row is repaired, which looks to the auditor like a fold that writes the row
// wrongly.
func loseRows(t *testing.T, p *prometheusServer) {
	var running *service.Service
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Maintenance.AuditShare = 1
		// The service passes itself only to this function.
		o.OfferedOperations = func(started *service.Service) service.OfferedOperations {
			running = started
			return started.OfferedOperations()
		}
	})
	defer stop()
	mustPublish(t, api, userFollowed("quiet", "silent"))
	name := targetName(t)
	stopScraping := p.startScraping(t, name, scrapeTarget{addr: strings.TrimPrefix(api.URL, "http://")})
	defer stopScraping()

	graphStore := running.Store("graph")
	deleteFollowerRow := func() {
		prefix := graph.FollowersPrefix(nil, "silent")
		_ = graphStore.Repair(t.Context(), func(_ events.Cursor, rows projections.Reader, m *store.Repair) error {
			it := rows.Iter(prefix, projections.PrefixEnd(prefix))
			if it.Next() {
				m.Delete(append([]byte(nil), it.Key()...))
			}
			return it.Close()
		})
	}

	// Rows that were written recently are audited first, so write another row of the same user.
	p.waitForAlerts(t, name, func() {
		deleteFollowerRow()
		mustPublish(t, api, userFollowed("quiet", "loud"))
	}, "SkeinAuditFinding")

	// Delete the row each millisecond, faster than the auditor repairs it.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var deletions sync.WaitGroup
	deletions.Go(func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			deleteFollowerRow()
			<-ticker.C
		}
	})
	p.waitForAlerts(t, name, func() { mustPublish(t, api, played("quiet", "film")) }, "SkeinAuditUnexplained")

	// The service must not be closed under a deletion.
	cancel()
	deletions.Wait()
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

	// serverProcess.start speaks plain HTTP, so wait only until the service has written its port.
	var port []byte
	waitUntil(t.Context(), t, func(context.Context) (err error) {
		port, err = os.ReadFile(filepath.Join(dir, "port"))
		return err
	})
	name := targetName(t)
	target := scrapeTarget{addr: "127.0.0.1:" + strings.TrimSpace(string(port)), scheme: "https", token: token}
	stopScraping := p.startScraping(t, name, target)
	defer stopScraping()
	p.waitForAlerts(t, name, nil, "SkeinCertificateExpires")

	// The service keeps the tokens that it has read, so Prometheus can still scrape it.
	if err := os.WriteFile(tokens, []byte("what is this?\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.waitForAlerts(t, name, nil, "SkeinAccessFileStale")
}

// openTooManyStreams opens more streams of Watch than the service admits.
func openTooManyStreams(t *testing.T, p *prometheusServer) {
	s := startScraped(t, p, t.TempDir(), "--archive", "off")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	// The streams get a transport of their own, whose connections the test can close.
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	s.api.HTTP.Transport = transport

	var streams sync.WaitGroup
	openStream := func() {
		streams.Go(func() {
			stream, err := s.api.Events().Watch(ctx, connect.NewRequest(&skeinv1.WatchRequest{}))
			if err != nil {
				return
			}
			defer stream.Close()
			for stream.Receive() {
			}
		})
	}
	// The service admits 32 streams of Watch, so it refuses every further one.
	for range 32 {
		openStream()
	}
	s.waitForAlerts(p, openStream, "SkeinOverloaded")
	cancel()
	streams.Wait()
}
