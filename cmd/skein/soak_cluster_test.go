//go:build faults

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events/eventlog"
)

// clustered are two processes over a log on three NATS servers, each of which has a small disk of
// its own.
type clustered struct {
	*campaign

	dir string
	// host is where the NATS servers listen.
	host    string
	servers []*process
	datas   []string
	apis    []*command.Client
	nats    [3]*process
	disks   [3]*loopDisk
	js      jetstream.JetStream
}

// TestSoakFaultsCluster injects faults into two processes and the NATS servers that have their log,
// and demands that no answer is wrong and nothing is lost.
func TestSoakFaultsCluster(t *testing.T) {
	dir := t.TempDir()
	c := &clustered{campaign: newCampaign(t), dir: dir, host: "127.0.0.1"}
	ports, err := freePorts(21000, 11)
	if err != nil {
		t.Fatal(err)
	}
	urls := c.startNATS(ports[2:])
	bin := buildWithClock(t, dir, "skein", ".")
	for i := range 2 {
		listen := fmt.Sprintf("127.0.0.1:%d", ports[i])
		c.serve(&process{name: fmt.Sprint("skein", i), bin: bin}, filepath.Join(dir, fmt.Sprint("data", i)), listen, urls)
	}
	c.connect(urls)
	c.kinds = c.all()
	c.begin(c.apis, false)
	c.end(c.torment(), c.verify)
}

// serve starts another process over the log.
func (c *clustered) serve(p *process, data, listen, urls string, flags ...string) {
	c.t.Helper()
	p.log, p.ended = filepath.Join(c.dir, p.name+".log"), c.died
	p.clock = newClock(c.t, filepath.Join(c.dir, p.name+".clock"), "http://"+listen+"/healthz")
	p.args = append([]string{
		"serve", "--data", data, "--listen", listen, "--nats", urls, "--nats-replicas", "3",
		"--archive", filepath.Join(c.dir, "archive"), "--archive-every", "10s", "--log-retention", "1m",
	}, flags...)
	if err := p.start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _, _ = p.kill() })
	c.servers, c.datas, c.processes = append(c.servers, p), append(c.datas, data), append(c.processes, p)
	c.apis = append(c.apis, (&command.ClientFlags{Server: listen, Timeout: readTime}).Client())
}

// connect connects the test itself to the log.
func (c *clustered) connect(urls string) {
	c.t.Helper()
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	if c.js, err = jetstream.New(nc); err != nil {
		c.t.Fatal(err)
	}
}

// startNATS builds and starts the real nats-server three times.
func (c *clustered) startNATS(ports []int) (urls string) {
	c.t.Helper()
	bin := buildWithClock(c.t, c.dir, "nats-server", "github.com/nats-io/nats-server/v2")
	var clients, routes []string
	for n := range c.nats {
		clients = append(clients, fmt.Sprintf("nats://%s:%d", c.host, ports[n]))
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", ports[3+n]))
	}
	for n := range c.nats {
		var err error
		if c.disks[n], err = newLoopDisk(filepath.Join(c.dir, fmt.Sprint("disk", n)), 768); err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() {
			if err := c.disks[n].remove(); err != nil {
				c.t.Error(err)
			}
		})
		config := filepath.Join(c.dir, fmt.Sprintf("nats%d.conf", n))
		text := fmt.Sprintf(`server_name: n%d
listen: %s:%d
http: 127.0.0.1:%d
jetstream { store_dir: %q, sync_interval: always, max_file_store: 512MB, max_memory_store: 64MB }
cluster { name: soak, listen: 127.0.0.1:%d, routes: [%s] }
`, n, c.host, ports[n], ports[6+n], filepath.Join(c.disks[n].dir, "js"), ports[3+n], strings.Join(routes, ", "))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
		c.nats[n] = &process{
			name: fmt.Sprint("nats", n), bin: bin, args: []string{"-c", config},
			log: filepath.Join(c.dir, fmt.Sprintf("nats%d.log", n)), ended: c.died,
			clock: newClock(c.t, filepath.Join(c.dir, fmt.Sprintf("nats%d.clock", n)), fmt.Sprintf("http://127.0.0.1:%d/healthz", ports[6+n])),
		}
		if err := c.nats[n].start(); err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { _, _ = c.nats[n].kill() })
		c.processes = append(c.processes, c.nats[n])
	}
	return strings.Join(clients, ",")
}

func (c *clustered) all() []faultKind {
	return []faultKind{
		{name: "process: kill -9", strike: func() (string, error) { return c.kill(c.any()) }},
		{name: "process: stop and continue", strike: func() (string, error) { return c.any().stop(c.ctx, c.hold(20*time.Second)) }},
		{name: "all processes: kill -9", strike: c.killAll},
		{name: "process: its directory lost", strike: c.loseDirectory},
		{name: "process: table of a store damaged", strike: func() (string, error) { return c.damage(tables) }},
		{name: "process: manifest of a store damaged", strike: func() (string, error) { return c.damage(manifests) }},
		{name: "process: its clock jumps", strike: func() (string, error) { return c.jump(c.any(), 1000*time.Hour) }},
		{name: "NATS: the clock of a server jumps", strike: func() (string, error) { return c.jump(c.nats[c.one()[0]], natsClock) }},
		{name: "NATS: a server cut (stop and continue)", strike: func() (string, error) { return c.cut(1, 20*time.Second) }},
		{name: "NATS: two servers cut", strike: func() (string, error) { return c.cut(2, 30*time.Second) }},
		{name: "NATS: all servers cut", strike: func() (string, error) { return c.cut(3, 40*time.Second) }},
		{name: "NATS: the leader, kill -9", strike: c.killLeader},
		{name: "NATS: all servers, kill -9", strike: c.killNATS},
		{name: "NATS: power cut at a server", strike: func() (string, error) { return c.natsPowerCut(c.one()) }},
		{name: "NATS: power cut at all servers", strike: func() (string, error) { return c.natsPowerCut([]int{0, 1, 2}) }},
		{name: "NATS: disk of a server full", strike: func() (string, error) { return c.diskFull(c.one()) }},
		{name: "NATS: disks of all servers full", strike: func() (string, error) { return c.diskFull([]int{0, 1, 2}) }},
		{name: "NATS: disk of a server slow", strike: func() (string, error) {
			n := c.one()[0]
			return c.diskSlow(c.nats[n], c.disks[n])
		}},
		{name: "NATS: fsync of the leader slow", strike: c.fsyncSlow},
		{name: "NATS: fsync of a server fails, then a power cut", strike: c.fsyncFails, ends: true},
		{name: "NATS: disk of a server lost", strike: c.diskLost},
	}
}

// natsClock is how far the clock of a NATS server may be off: less than the horizon within which a
// repeat is known (I6).
const natsClock = 14 * time.Minute

// any chooses one process.
func (c *clustered) any() *process { return c.servers[c.random.IntN(len(c.servers))] }

// one chooses one NATS server.
func (c *clustered) one() []int { return []int{c.random.IntN(3)} }

// whole waits until every replica of the log is up and has all of it, as an operator does before
// the next server is restarted. It returns the server that leads the log.
func (c *clustered) whole() (leader int, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, recoveryTime)
	defer cancel()
	for {
		if leader, err = c.wholeNow(ctx); err == nil {
			return leader, nil
		}
		if ctx.Err() != nil {
			return 0, fmt.Errorf("the cluster is not whole: %w", err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func (c *clustered) wholeNow(ctx context.Context) (leader int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := c.js.Stream(ctx, eventlog.StreamName)
	if err != nil {
		return 0, err
	}
	info := stream.CachedInfo()
	if info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
		return 0, fmt.Errorf("%+v", info.Cluster)
	}
	for _, r := range info.Cluster.Replicas {
		if r.Offline || !r.Current {
			return 0, fmt.Errorf("replica %s: %+v", r.Name, r)
		}
	}
	_, err = fmt.Sscanf(info.Cluster.Leader, "n%d", &leader)
	return leader, err
}

func (c *clustered) killAll() (string, error) {
	var proofs []string
	var errs []error
	for _, p := range c.servers {
		proof, err := p.kill()
		proofs, errs = append(proofs, proof), append(errs, err)
	}
	c.rest(2 * time.Second)
	for _, p := range c.servers {
		errs = append(errs, p.start())
	}
	return strings.Join(proofs, ", "), errors.Join(errs...)
}

func (c *clustered) loseDirectory() (string, error) {
	i := c.random.IntN(len(c.servers))
	if _, err := c.servers[i].kill(); err != nil {
		return "", err
	}
	before, err := files(c.datas[i], "*")
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(c.datas[i]); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %d files removed", c.servers[i].name, len(before)), c.servers[i].start()
}

func (c *clustered) damage(pattern string) (string, error) {
	i := c.random.IntN(len(c.servers))
	return c.damageStore(c.servers[i], c.datas[i], c.apis[i], pattern)
}

// cut stops so many servers at once for a while.
func (c *clustered) cut(servers int, most time.Duration) (string, error) {
	if _, err := c.whole(); err != nil {
		return "", err
	}
	d := c.hold(most)
	var proofs [3]string
	var errs [3]error
	var wg sync.WaitGroup
	for _, n := range c.random.Perm(3)[:servers] {
		wg.Go(func() { proofs[n], errs[n] = c.nats[n].stop(c.ctx, d) })
	}
	wg.Wait()
	return strings.Trim(strings.Join(proofs[:], " "), " "), errors.Join(errs[:]...)
}

func (c *clustered) killLeader() (string, error) {
	leader, err := c.whole()
	if err != nil {
		return "", err
	}
	proof, err := c.nats[leader].kill()
	if err != nil {
		return "", err
	}
	pause(c.ctx, c.hold(10*time.Second))
	if err := c.nats[leader].start(); err != nil {
		return "", err
	}
	next, err := c.whole()
	return fmt.Sprintf("%s; the leader was n%d, is n%d", proof, leader, next), err
}

func (c *clustered) killNATS() (string, error) {
	var proofs []string
	var errs []error
	for _, p := range c.nats {
		proof, err := p.kill()
		proofs, errs = append(proofs, proof), append(errs, err)
	}
	pause(c.ctx, c.hold(10*time.Second))
	for _, p := range c.nats {
		errs = append(errs, p.start())
	}
	return strings.Join(proofs, ", "), errors.Join(errs...)
}

// powerCut cuts the power of the disks of some servers, of all before any process can see it.
func (c *clustered) natsPowerCut(servers []int) (string, error) {
	if _, err := c.whole(); err != nil {
		return "", err
	}
	return c.natsPowerCutNow(servers)
}

func (c *clustered) natsPowerCutNow(servers []int) (string, error) {
	for _, n := range servers {
		if err := c.nats[n].freeze(c.ctx); err != nil {
			return "", err
		}
	}
	var proofs []string
	for _, n := range servers {
		proof, err := c.disks[n].cutPower()
		if err != nil {
			return "", err
		}
		proofs = append(proofs, fmt.Sprintf("n%d: %s", n, proof))
	}
	for _, n := range servers {
		if _, err := c.nats[n].kill(); err != nil {
			return "", err
		}
	}
	for _, n := range servers {
		if err := errors.Join(c.disks[n].restorePower(), c.nats[n].start()); err != nil {
			return "", err
		}
	}
	return strings.Join(proofs, ", "), nil
}

// diskFull fills the disks of some servers to the last byte, each until its server has noticed, and
// makes room again. A server that has met a full disk gives JetStream up until it is restarted:
// that is what the documentation tells its operator.
func (c *clustered) diskFull(servers []int) (proof string, err error) {
	if _, err := c.whole(); err != nil {
		return "", err
	}
	noticed := 0
	for _, n := range servers {
		from := c.nats[n].logSize()
		if err := c.disks[n].full(c.ctx); err != nil {
			return "", err
		}
		if err := eventually(c.ctx, func(context.Context) error {
			if len(c.nats[n].said(from, "no space left", "will be DISABLED", "out of")) == 0 {
				return fmt.Errorf("%s says nothing of a full disk", c.nats[n].name)
			}
			return nil
		}); err != nil && len(servers) == 1 {
			return "", err
		} else if err == nil {
			noticed++
		}
	}
	pause(c.ctx, c.hold(10*time.Second))
	for _, n := range servers {
		if _, err := c.nats[n].kill(); err != nil {
			return "", err
		}
		if err := errors.Join(c.disks[n].empty(), c.nats[n].start()); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("ENOSPC at %d, noticed by %d", len(servers), noticed), nil
}

func (c *clustered) fsyncSlow() (string, error) {
	leader, err := c.whole()
	if err != nil {
		return "", err
	}
	return c.injected(c.nats[leader], fmt.Sprintf("delay_enter=%d", 50_000+c.random.IntN(1_000_000)), "DELAYED", 15*time.Second)
}

// fsyncFails has fsync fail at one server without writing anything through, and then cuts its
// power.
func (c *clustered) fsyncFails() (string, error) {
	leader, err := c.whole()
	if err != nil {
		return "", err
	}
	proof, err := c.injected(c.nats[leader], "error=EIO", "INJECTED", 3*time.Second)
	if err != nil {
		return "", err
	}
	cut, err := c.natsPowerCutNow([]int{leader})
	return proof + ", " + cut, err
}

// diskLost empties the disk of one server, which then gets everything from the others.
func (c *clustered) diskLost() (string, error) {
	if _, err := c.whole(); err != nil {
		return "", err
	}
	n := c.one()[0]
	if _, err := c.nats[n].kill(); err != nil {
		return "", err
	}
	dir := filepath.Join(c.disks[n].dir, "js")
	before, err := files(dir, "*")
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(dir), c.nats[n].start()); err != nil {
		return "", err
	}
	_, err = c.whole()
	return fmt.Sprintf("%d files of n%d removed, caught up", len(before), n), err
}

// verify demands that every projection of all processes is what the log says.
func (c *clustered) verify() (string, error) {
	var all []string
	var errs []error
	for i, p := range c.servers {
		out, err := verified(c.ctx, func(ctx context.Context) (string, error) {
			return tool(ctx, p.bin, "replay", "verify", "--server", c.apis[i].URL)
		})
		all, errs = append(all, p.name+": "+out), append(errs, err)
	}
	return strings.Join(all, "\n"), errors.Join(errs...)
}
