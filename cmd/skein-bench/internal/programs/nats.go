package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// NATSServers is how many servers the cluster has.
const NATSServers = 3

// NATSOptions are the settings of one server. Ports are of the loopback.
type NATSOptions struct {
	Name, Dir             string
	Port, Monitor, Routes int
	// Peers are the ports at which all servers of the cluster accept routes.
	Peers []int
}

// ServeNATS runs one server of a cluster until the context ends. A message that it acknowledges is on its disk.
func ServeNATS(ctx context.Context, o NATSOptions) error {
	const host = "127.0.0.1"
	opts := &natsserver.Options{
		ServerName: o.Name, Host: host, Port: o.Port, HTTPHost: host, HTTPPort: o.Monitor, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: o.Dir, SyncAlways: true, JetStreamMaxStore: 1 << 40,
		Cluster: natsserver.ClusterOpts{Name: "bench", Host: host, Port: o.Routes},
	}
	for _, port := range o.Peers {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: net.JoinHostPort(host, strconv.Itoa(port))})
	}
	s, err := natsserver.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// NATS is a JetStream cluster. Each server is a process of its own, so that it can be killed.
type NATS struct {
	self    string
	options [NATSServers]NATSOptions
	running [NATSServers]*Process // nil: killed
}

// StartNATS starts the servers and waits until they form a cluster.
func StartNATS(ctx context.Context, b *measure.Bench) (_ *NATS, err error) {
	if b.Opts.Self == "" {
		return nil, errors.New("servers are processes: the path of this program is needed")
	}
	ports, err := freePorts(ctx, 3*NATSServers)
	if err != nil {
		return nil, err
	}
	c := &NATS{self: b.Opts.Self}
	for n := range c.options {
		name := fmt.Sprint("n", n)
		c.options[n] = NATSOptions{
			Name: name, Dir: filepath.Join(b.Dir, "nats", name),
			Port: ports[3*n], Monitor: ports[3*n+1], Routes: ports[3*n+2], Peers: []int{ports[2], ports[5], ports[8]},
		}
		if err := c.launch(ctx, n); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	for n := range c.options {
		if err := c.ready(ctx, n); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// freePorts returns different ports of the loopback that were free a moment ago.
func freePorts(ctx context.Context, n int) (ports []int, err error) {
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all of them at the end, so that no port is given twice
		addr, err := net.ResolveTCPAddr("tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, addr.Port)
	}
	return ports, nil
}

func (c *NATS) launch(ctx context.Context, n int) (err error) {
	o := c.options[n]
	encoded, err := json.Marshal(o)
	if err != nil {
		return err
	}
	c.running[n], err = start(ctx, "nats-server "+o.Name, c.self, "nats-server", "--options", string(encoded))
	return err
}

// ready waits until a server has found the others and has all that they have.
func (c *NATS) ready(ctx context.Context, n int) error {
	return c.running[n].until(ctx, "ready", func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return c.monitor(ctx, n, "healthz", nil) == nil
	})
}

// monitor asks a server for a page of its monitor.
func (c *NATS) monitor(ctx context.Context, n int, page string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://127.0.0.1:%d/%s", c.options[n].Monitor, page), http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", page, c.options[n].Name, res.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// MetaLeader returns the name of the server that leads the cluster, according to one server: it creates streams and consumers.
func (c *NATS) MetaLeader(ctx context.Context, n int) (string, error) {
	var page struct {
		Meta struct {
			Leader string `json:"leader"`
		} `json:"meta_cluster"`
	}
	err := c.monitor(ctx, n, "jsz", &page)
	return page.Meta.Leader, err
}

// Number returns which server has a name.
func (*NATS) Number(name string) (int, error) { return strconv.Atoi(strings.TrimPrefix(name, "n")) }

// URL names all servers; a client that does not shuffle them begins with number first.
func (c *NATS) URL(first int) string {
	urls := make([]string, NATSServers)
	for i := range urls {
		urls[i] = fmt.Sprintf("nats://127.0.0.1:%d", c.options[(first+i)%NATSServers].Port)
	}
	return strings.Join(urls, ",")
}

// Kill ends a server at once.
func (c *NATS) Kill(n int) error {
	p := c.running[n]
	c.running[n] = nil
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// Restart starts a server that was killed, and waits until it has all that the others have.
func (c *NATS) Restart(ctx context.Context, n int) error {
	if err := c.launch(ctx, n); err != nil {
		return err
	}
	return c.ready(ctx, n)
}

// NATSUsage is what a server has used since it started.
type NATSUsage struct {
	// CPU is in seconds; Disk is in bytes written. Both are 0 where the system does not report them.
	CPU, Disk float64
	// Clients and Servers are the bytes sent to clients and to other servers of the cluster.
	Clients, Servers float64
}

// Usage returns what each server has used. It is meant for differences while the same servers run.
func (c *NATS) Usage(ctx context.Context) (used [NATSServers]NATSUsage, err error) {
	for n := range c.running {
		var server struct {
			Clients float64 `json:"out_client_bytes"`
		}
		var routes struct {
			Routes []struct {
				Bytes float64 `json:"out_bytes"`
			} `json:"routes"`
		}
		if err := errors.Join(c.monitor(ctx, n, "varz", &server), c.monitor(ctx, n, "routez", &routes)); err != nil {
			return used, err
		}
		used[n].Clients = server.Clients
		for _, r := range routes.Routes {
			used[n].Servers += r.Bytes
		}
		used[n].CPU, used[n].Disk = processUsage(c.running[n].cmd.Process.Pid)
	}
	return used, nil
}

// processUsage returns the processor seconds of a process and the bytes that it wrote to disk.
func processUsage(pid int) (cpu, disk float64) {
	const ticks = 100 // a second, on every platform of Linux
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold spaces
	if fields := strings.Fields(rest); len(fields) > 12 {
		user, _ := strconv.ParseFloat(fields[11], 64)
		system, _ := strconv.ParseFloat(fields[12], 64)
		cpu = (user + system) / ticks
	}
	io, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	_, rest, _ = strings.Cut(string(io), "\nwrite_bytes: ")
	rest, _, _ = strings.Cut(rest, "\n")
	disk, _ = strconv.ParseFloat(rest, 64)
	return cpu, disk
}

// Close stops the servers.
func (c *NATS) Close() (err error) {
	for _, p := range c.running {
		if p != nil {
			err = errors.Join(err, p.Stop())
		}
	}
	return err
}
