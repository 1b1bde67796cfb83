//go:build faults

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events/eventlog"
)

// soakCluster is a soak of several processes over a log on three NATS servers. Each NATS server has
// a small disk of its own.
type soakCluster struct {
	*faultSoak

	// dir is a directory on the disk of the machine.
	dir string
	// servers are the processes of skein, with their data directories and a client of each.
	servers  []*soakProcess
	dataDirs []string
	apis     []*command.Client
	// natsServers are the servers n0, n1 and n2, with their disks.
	natsServers [3]*soakProcess
	natsDisks   [3]*loopDisk
	// host is the address on which the NATS servers listen for clients.
	host string
	// js is a connection of the test itself to the NATS servers.
	js jetstream.JetStream
}

// TestSoakFaultsCluster injects faults into two processes and the NATS servers that have their log,
// and demands that no answer is wrong and nothing is lost.
func TestSoakFaultsCluster(t *testing.T) {
	dir := t.TempDir()
	c := &soakCluster{faultSoak: newFaultSoak(t), dir: dir, host: "127.0.0.1"}

	// Each process needs one port, and each NATS server three.
	ports, err := findFreePorts(21000, 2+9)
	if err != nil {
		t.Fatal(err)
	}

	urls := c.startNATS(ports[2:])
	bin := buildWithClock(t, dir, "skein", ".")
	for i := range 2 {
		process := &soakProcess{name: fmt.Sprint("skein", i), bin: bin}
		dataDir := filepath.Join(dir, fmt.Sprint("data", i))
		listen := fmt.Sprintf("127.0.0.1:%d", ports[i])
		c.startProcess(process, dataDir, listen, urls)
	}

	c.connectToLog(urls)
	c.kinds = c.faultKinds()
	c.startTraffic(c.apis, false)
	c.finish(c.injectFaults(), c.verifyStores)
}

// startProcess starts another process of skein over the log on the NATS servers. It serves clients
// at listen, which also serves the page that shows its clock.
func (c *soakCluster) startProcess(p *soakProcess, dataDir, listen, urls string, flags ...string) {
	c.t.Helper()
	p.logPath = filepath.Join(c.dir, p.name+".log")
	p.onExit = c.recordExit
	p.clock = newProcessClock(c.t, filepath.Join(c.dir, p.name+".clock"), "http://"+listen+"/healthz")

	// Archive and trim the log so often that both are under way during faults.
	p.args = append([]string{
		"serve", "--data", dataDir, "--listen", listen, "--nats", urls, "--nats-replicas", "3",
		"--archive", filepath.Join(c.dir, "archive"), "--archive-every", "10s", "--log-retention", "1m",
	}, flags...)
	if err := p.start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _, _ = p.kill() })

	c.processes = append(c.processes, p)
	c.servers = append(c.servers, p)
	c.dataDirs = append(c.dataDirs, dataDir)
	c.apis = append(c.apis, (&command.ClientFlags{Server: listen, Timeout: readTime}).Client())
}

// connectToLog connects the test itself to the NATS servers. The connection is made again after
// each fault that ends it.
func (c *soakCluster) connectToLog(urls string) {
	c.t.Helper()
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)

	c.js, err = jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
}

// startNATS builds the real nats-server, starts it three times on the nine ports, and returns the
// addresses for clients.
func (c *soakCluster) startNATS(ports []int) (urls string) {
	c.t.Helper()
	bin := buildWithClock(c.t, c.dir, "nats-server", "github.com/nats-io/nats-server/v2")
	clientPorts := ports[0:3]
	routePorts := ports[3:6]
	monitorPorts := ports[6:9]
	var clientURLs, routeURLs []string
	for n := range c.natsServers {
		clientURLs = append(clientURLs, "nats://"+net.JoinHostPort(c.host, strconv.Itoa(clientPorts[n])))
		routeURLs = append(routeURLs, fmt.Sprintf("nats://127.0.0.1:%d", routePorts[n]))
	}

	for n := range c.natsServers {
		c.natsDisks[n] = mountLoopDisk(c.t, filepath.Join(c.dir, fmt.Sprint("disk", n)), 768)

		// With "sync_interval: always", a server syncs every message to its disk before it
		// acknowledges the message. Otherwise power cuts would lose acknowledged events.
		config := filepath.Join(c.dir, fmt.Sprintf("nats%d.conf", n))
		text := fmt.Sprintf(`server_name: n%d
listen: %s:%d
http: 127.0.0.1:%d
jetstream { store_dir: %q, sync_interval: always, max_file_store: 512MB, max_memory_store: 64MB }
cluster { name: soak, listen: 127.0.0.1:%d, routes: [%s] }
`, n, c.host, clientPorts[n], monitorPorts[n], filepath.Join(c.natsDisks[n].dir, "js"), routePorts[n], strings.Join(routeURLs, ", "))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}

		// The page for health checks shows the clock of the server.
		clockFile := filepath.Join(c.dir, fmt.Sprintf("nats%d.clock", n))
		healthURL := fmt.Sprintf("http://127.0.0.1:%d/healthz", monitorPorts[n])
		c.natsServers[n] = &soakProcess{
			name: fmt.Sprint("nats", n), bin: bin, args: []string{"-c", config},
			logPath: filepath.Join(c.dir, fmt.Sprintf("nats%d.log", n)), onExit: c.recordExit,
			clock: newProcessClock(c.t, clockFile, healthURL),
		}
		if err := c.natsServers[n].start(); err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _, _ = c.natsServers[n].kill() })
		c.processes = append(c.processes, c.natsServers[n])
	}
	return strings.Join(clientURLs, ",")
}

// faultKinds returns the kinds of faults of processes and NATS servers.
func (c *soakCluster) faultKinds() []faultKind {
	return []faultKind{
		{name: "process: kill -9", inject: func() (string, error) { return c.killAndRestart(c.randomProcess()) }},
		{name: "process: stop and continue", inject: func() (string, error) { return c.randomProcess().pause(c.ctx, c.faultDuration(20*time.Second)) }},
		{name: "all processes: kill -9", inject: c.killAllProcesses},
		{name: "process: its directory lost", inject: c.loseDataDir},
		{name: "process: table of a store damaged", inject: func() (string, error) { return c.damageRandomStore(tableFiles) }},
		{name: "process: manifest of a store damaged", inject: func() (string, error) { return c.damageRandomStore(manifestFiles) }},
		{name: "process: its clock jumps", inject: func() (string, error) { return c.jumpClock(c.randomProcess(), 1000*time.Hour) }},
		{name: "NATS: the clock of a server jumps", inject: func() (string, error) { return c.jumpClock(c.natsServers[c.randomServer()], maxNATSClockOffset) }},
		{name: "NATS: a server cut (stop and continue)", inject: func() (string, error) { return c.pauseServers(1, 20*time.Second) }},
		{name: "NATS: two servers cut", inject: func() (string, error) { return c.pauseServers(2, 30*time.Second) }},
		{name: "NATS: all servers cut", inject: func() (string, error) { return c.pauseServers(3, 40*time.Second) }},
		{name: "NATS: the leader, kill -9", inject: c.killLeader},
		{name: "NATS: all servers, kill -9", inject: c.killAllServers},
		{name: "NATS: power cut at a server", inject: func() (string, error) { return c.cutServerPower([]int{c.randomServer()}) }},
		{name: "NATS: power cut at all servers", inject: func() (string, error) { return c.cutServerPower([]int{0, 1, 2}) }},
		{name: "NATS: disk of a server full", inject: func() (string, error) { return c.fillDisks([]int{c.randomServer()}) }},
		{name: "NATS: disks of all servers full", inject: func() (string, error) { return c.fillDisks([]int{0, 1, 2}) }},
		{name: "NATS: disk of a server slow", inject: func() (string, error) {
			n := c.randomServer()
			return c.slowDisk(c.natsServers[n], c.natsDisks[n])
		}},
		{name: "NATS: fsync of the leader slow", inject: c.slowFsync},
		{name: "NATS: fsync of a server fails, then a power cut", inject: c.failFsync, mayExit: true},
		{name: "NATS: disk of a server lost", inject: c.loseDisk},
	}
}

// maxNATSClockOffset is how far the clock of a NATS server may be off. It is less than the horizon
// of 15 minutes within which a repeated event id is known (I6).
const maxNATSClockOffset = 14 * time.Minute

// randomProcess returns one of the processes of skein.
func (c *soakCluster) randomProcess() *soakProcess { return c.servers[c.random.IntN(len(c.servers))] }

// randomServer returns the number of one NATS server.
func (c *soakCluster) randomServer() int { return c.random.IntN(len(c.natsServers)) }

// waitUntilReplicated waits until every replica of the log is up and has all messages, as an
// operator does before the next server is restarted. It returns the number of the server that leads
// the log.
func (c *soakCluster) waitUntilReplicated() (leader int, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, recoveryTime)
	defer cancel()
	for {
		leader, err = c.checkReplicated(ctx)
		if err == nil {
			return leader, nil
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("the log is not replicated within %v: %w", recoveryTime, err)
		}
		sleepOrDone(ctx, 100*time.Millisecond)
	}
}

// checkReplicated returns the number of the server that leads the log, or an error if a replica is
// down or behind.
func (c *soakCluster) checkReplicated(ctx context.Context) (leader int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := c.js.Stream(ctx, eventlog.StreamName)
	if err != nil {
		return 0, err
	}

	// The leader is not among the replicas.
	cluster := stream.CachedInfo().Cluster
	if cluster == nil || len(cluster.Replicas) != len(c.natsServers)-1 {
		return 0, fmt.Errorf("cluster of the stream: got %+v, want one with %d replicas", cluster, len(c.natsServers)-1)
	}
	for _, r := range cluster.Replicas {
		if r.Offline || !r.Current {
			return 0, fmt.Errorf("replica %s: got %+v, want it online and current", r.Name, r)
		}
	}
	_, err = fmt.Sscanf(cluster.Leader, "n%d", &leader)
	return leader, err
}

// killAllProcesses kills all processes of skein and starts them again.
func (c *soakCluster) killAllProcesses() (string, error) {
	var proofs []string
	var errs []error
	for _, p := range c.servers {
		proof, err := p.kill()
		proofs = append(proofs, proof)
		errs = append(errs, err)
	}

	c.pauseUpTo(2 * time.Second)
	for _, p := range c.servers {
		errs = append(errs, p.start())
	}
	return strings.Join(proofs, ", "), errors.Join(errs...)
}

// loseDataDir removes the data directory of a process, which must build its stores again.
func (c *soakCluster) loseDataDir() (string, error) {
	i := c.random.IntN(len(c.servers))
	if _, err := c.servers[i].kill(); err != nil {
		return "", err
	}

	removed, err := findFiles(c.dataDirs[i], "*")
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(c.dataDirs[i]); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %d files removed", c.servers[i].name, len(removed)), c.servers[i].start()
}

// damageRandomStore damages a file of a store of a random process.
func (c *soakCluster) damageRandomStore(pattern string) (string, error) {
	i := c.random.IntN(len(c.servers))
	return c.damageStore(c.servers[i], c.dataDirs[i], c.apis[i], pattern)
}

// pauseServers pauses this many NATS servers at once, for the same time of at most maxPause.
func (c *soakCluster) pauseServers(count int, maxPause time.Duration) (string, error) {
	if _, err := c.waitUntilReplicated(); err != nil {
		return "", err
	}

	// Each goroutine writes the elements of its own server, so these need no lock.
	duration := c.faultDuration(maxPause)
	servers := c.random.Perm(len(c.natsServers))[:count]
	proofs := make([]string, count)
	errs := make([]error, count)
	var wg sync.WaitGroup
	for i, n := range servers {
		wg.Go(func() {
			proofs[i], errs[i] = c.natsServers[n].pause(c.ctx, duration)
		})
	}
	wg.Wait()
	return strings.Join(proofs, ", "), errors.Join(errs...)
}

// killLeader kills the NATS server that leads the log, and starts it again.
func (c *soakCluster) killLeader() (string, error) {
	leader, err := c.waitUntilReplicated()
	if err != nil {
		return "", err
	}
	proof, err := c.natsServers[leader].kill()
	if err != nil {
		return "", err
	}

	// The others elect a new leader meanwhile, unless the server is back before.
	sleepOrDone(c.ctx, c.faultDuration(10*time.Second))
	if err := c.natsServers[leader].start(); err != nil {
		return "", err
	}
	newLeader, err := c.waitUntilReplicated()
	return fmt.Sprintf("%s; the leader was n%d, is n%d", proof, leader, newLeader), err
}

// killAllServers kills all NATS servers and starts them again.
func (c *soakCluster) killAllServers() (string, error) {
	var proofs []string
	var errs []error
	for _, p := range c.natsServers {
		proof, err := p.kill()
		proofs = append(proofs, proof)
		errs = append(errs, err)
	}

	sleepOrDone(c.ctx, c.faultDuration(10*time.Second))
	for _, p := range c.natsServers {
		errs = append(errs, p.start())
	}
	return strings.Join(proofs, ", "), errors.Join(errs...)
}

// cutServerPower waits until the log is replicated, and cuts the power of some NATS servers and
// their disks. Like an operator, it touches no server while another one is still catching up.
func (c *soakCluster) cutServerPower(servers []int) (string, error) {
	if _, err := c.waitUntilReplicated(); err != nil {
		return "", err
	}
	return c.cutServerPowerAtOnce(servers)
}

// cutServerPowerAtOnce cuts the power of some NATS servers and their disks, and starts the servers
// again. It freezes all servers first, so that the power of all disks is cut before any server can
// see it.
func (c *soakCluster) cutServerPowerAtOnce(servers []int) (string, error) {
	for _, n := range servers {
		if err := c.natsServers[n].freeze(c.ctx); err != nil {
			return "", err
		}
	}

	var proofs []string
	for _, n := range servers {
		proof, err := c.natsDisks[n].cutPower()
		if err != nil {
			return "", err
		}
		proofs = append(proofs, fmt.Sprintf("n%d: %s", n, proof))
	}

	// The servers must have ended before their disks can be mounted again.
	for _, n := range servers {
		if _, err := c.natsServers[n].kill(); err != nil {
			return "", err
		}
	}
	for _, n := range servers {
		if err := errors.Join(c.natsDisks[n].restorePower(), c.natsServers[n].start()); err != nil {
			return "", err
		}
	}
	return strings.Join(proofs, ", "), nil
}

// fillDisks fills the disks of some NATS servers to the last byte, each until its server has
// noticed, and then frees the space. A server that has met a full disk gives up JetStream until it
// is restarted, which the documentation tells operators to do.
func (c *soakCluster) fillDisks(servers []int) (proof string, err error) {
	if _, err := c.waitUntilReplicated(); err != nil {
		return "", err
	}

	noticed := 0
	for _, n := range servers {
		server := c.natsServers[n]
		logOffset := server.logSize()
		if err := c.natsDisks[n].fillToLastByte(c.ctx); err != nil {
			return "", err
		}

		err := eventually(c.ctx, func(context.Context) error {
			if len(server.logLines(logOffset, "no space left", "will be DISABLED", "out of")) == 0 {
				return fmt.Errorf("log of %s: got no line about a full disk, want one", server.name)
			}
			return nil
		})
		if err == nil {
			noticed++
			continue
		}

		// Once a majority has given up JetStream, the log takes no more messages, and the last
		// server may never write to its full disk. A single server must notice.
		if len(servers) == 1 {
			return "", err
		}
	}

	sleepOrDone(c.ctx, c.faultDuration(10*time.Second))
	for _, n := range servers {
		if _, err := c.natsServers[n].kill(); err != nil {
			return "", err
		}
		if err := errors.Join(c.natsDisks[n].removeFiller(), c.natsServers[n].start()); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("ENOSPC at %d, noticed by %d", len(servers), noticed), nil
}

// slowFsync delays every fsync of the leader by up to about a second.
func (c *soakCluster) slowFsync() (string, error) {
	leader, err := c.waitUntilReplicated()
	if err != nil {
		return "", err
	}
	return c.injectIntoFsync(c.natsServers[leader], c.randomFsyncDelay(), "DELAYED", 15*time.Second)
}

// failFsync makes fsync fail at the leader without writing anything, and then cuts the power of the
// server. The log may not be replicated then, so the cut does not wait for that.
func (c *soakCluster) failFsync() (string, error) {
	leader, err := c.waitUntilReplicated()
	if err != nil {
		return "", err
	}
	proof, err := c.injectIntoFsync(c.natsServers[leader], "error=EIO", "INJECTED", 3*time.Second)
	if err != nil {
		return "", err
	}

	cut, err := c.cutServerPowerAtOnce([]int{leader})
	return proof + ", " + cut, err
}

// loseDisk empties the disk of one NATS server, which then copies everything from the others.
func (c *soakCluster) loseDisk() (string, error) {
	if _, err := c.waitUntilReplicated(); err != nil {
		return "", err
	}
	n := c.randomServer()
	if _, err := c.natsServers[n].kill(); err != nil {
		return "", err
	}

	dir := filepath.Join(c.natsDisks[n].dir, "js")
	removed, err := findFiles(dir, "*")
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(dir), c.natsServers[n].start()); err != nil {
		return "", err
	}

	_, err = c.waitUntilReplicated()
	return fmt.Sprintf("%d files of n%d removed, caught up", len(removed), n), err
}

// verifyStores lets all processes of skein verify that every projection equals the log.
func (c *soakCluster) verifyStores() (string, error) {
	var reports []string
	var errs []error
	for i, p := range c.servers {
		out, err := verifyWithRetry(c.ctx, func(ctx context.Context) (string, error) {
			return runTool(ctx, p.bin, "replay", "verify", "--server", c.apis[i].URL)
		})
		reports = append(reports, p.name+": "+out)
		errs = append(errs, err)
	}
	return strings.Join(reports, "\n"), errors.Join(errs...)
}
