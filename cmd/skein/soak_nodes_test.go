//go:build faults

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/placement"
)

// noded are five nodes over a log on three NATS servers. Each has a disk and a network of its own.
type noded struct {
	*clustered

	network *network
	drives  []*loopDisk // of the nodes
	// members is what a process that only watches knows of the nodes.
	members *placement.Cluster
	// moves is how many partitions came to a node that did not have them.
	moves atomic.Int64
	// longest is the longest time until each partition had two copies again, after the fault had
	// ended.
	longest time.Duration
}

const nodePort = "7411"

// nodesFromEnv is how many nodes there are.
func nodesFromEnv(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SKEIN_FAULTS_NODES")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 3 {
		t.Fatalf("SKEIN_FAULTS_NODES must be a number of nodes, 3 or more: %q", text)
	}
	return n
}

// TestSoakFaultsNodes injects faults into a cluster of nodes, and demands that no answer is wrong
// and nothing is lost.
func TestSoakFaultsNodes(t *testing.T) {
	count := nodesFromEnv(t)
	n := &noded{network: newNetwork(t, count)}
	n.clustered = &clustered{campaign: newCampaign(t), dir: t.TempDir(), host: n.network.host()}
	ports, err := freePorts(21000, 9)
	if err != nil {
		t.Fatal(err)
	}
	urls := n.startNATS(ports)
	bin := buildWithClock(t, n.dir, "skein", ".")
	for i := range count {
		drive, err := newLoopDisk(filepath.Join(n.dir, fmt.Sprint("drive", i)), 768)
		if err != nil {
			t.Fatal(err)
		}
		n.drives = append(n.drives, drive)
		t.Cleanup(func() {
			if err := drive.remove(); err != nil {
				t.Error(err)
			}
		})
		addr := n.network.addr(i)
		n.serve(&process{name: nodeName(i), bin: bin, namespace: n.network.namespace(i)}, filepath.Join(drive.dir, "data"),
			net.JoinHostPort(addr, nodePort), urls, "--node", nodeName(i), "--node-addr", net.JoinHostPort(addr, "7412"),
			"--replace-after", "20s", "--listen-anywhere", "--allowed-hosts", addr)
	}
	n.connect(urls)
	if err := eventually(n.ctx, func(ctx context.Context) (err error) {
		n.members, err = watchMembers(ctx, t, n.js)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	n.kinds = slices.Concat(n.all(), n.ofNodes())
	for i := range n.kinds {
		n.kinds[i].strike = n.thenWhole(n.kinds[i].strike)
	}
	if err := n.complete(); err != nil {
		t.Fatal(err)
	}
	go n.countMoves()
	n.begin(n.apis, true)
	n.end(n.torment(), func() (string, error) {
		out, err := n.verify()
		return fmt.Sprintf("%s\n%d nodes; partitions were given to nodes %d times; two copies of each again after at most %v", out, count,
			n.moves.Load(), n.longest.Round(100*time.Millisecond)), err
	})
}

// countMoves counts the partitions that a table gives to a node that did not have them in the one
// before.
func (n *noded) countMoves() {
	for last := n.members.Table(); n.ctx.Err() == nil; {
		changed, next := n.members.Changed(), n.members.Table()
		for p, names := range next.Nodes {
			for _, name := range names {
				if !slices.Contains(last.Nodes[p], name) {
					n.moves.Add(1)
				}
			}
		}
		last = next
		select {
		case <-changed:
		case <-n.ctx.Done():
		}
	}
}

func nodeName(i int) string { return fmt.Sprint("node", i) }

// complete waits until all nodes are there, and each partition has two that have folded all that
// the log has now.
func (n *noded) complete() error {
	var head uint64
	return n.until(func() error {
		if head == 0 {
			stream, err := n.js.Stream(n.ctx, eventlog.StreamName)
			if err != nil {
				return err
			}
			head = stream.CachedInfo().State.LastSeq
		}
		if there := len(n.members.Members()); there < len(n.servers) {
			return fmt.Errorf("%d nodes of %d", there, len(n.servers))
		}
		return n.copies(head)
	})
}

// copies demands two nodes for each partition that have folded the log up to a sequence.
func (n *noded) copies(seq uint64, without ...string) error {
	var copies [events.NumPartitions]int
	for _, m := range n.members.Members() {
		at, err := events.ParsePosition(m.Position)
		if err != nil || at.Seq < seq || slices.Contains(without, m.Name) {
			continue
		}
		for p := range copies {
			if m.Serves.Has(uint8(p)) {
				copies[p]++
			}
		}
	}
	if least := slices.Min(copies[:]); least < 2 {
		return fmt.Errorf("a partition has %d copies", least)
	}
	return nil
}

// thenWhole has a strike wait, when it has ended, until each partition has two copies.
func (n *noded) thenWhole(strike func() (string, error)) func() (string, error) {
	return func() (string, error) {
		proof, err := strike()
		if err != nil {
			return "", err
		}
		healed := time.Now()
		err = n.complete()
		took := time.Since(healed)
		n.longest = max(n.longest, took)
		return fmt.Sprintf("%s; two copies again after %.1f s", proof, took.Seconds()), err
	}
}

func (n *noded) ofNodes() []faultKind {
	node := func() int { return n.random.IntN(len(n.servers)) }
	return []faultKind{
		{name: "node: cut off", strike: func() (string, error) {
			i := node()
			return n.during(func() (func() (string, error), error) { return n.network.unplug(i, nodePort) })
		}},
		{name: "node: what it sends to the log is lost", strike: n.deaf(func() (int, int) { return node(), -1 })},
		{name: "node: what the log sends to it is lost", strike: n.deaf(func() (int, int) { return -1, node() })},
		{name: "node: what it sends to another one is lost", strike: n.deaf(func() (int, int) {
			i := node()
			return i, (i + 1 + n.random.IntN(len(n.servers)-1)) % len(n.servers)
		})},
		{name: "node: power cut", strike: func() (string, error) { i := node(); return n.powerCut(n.servers[i], n.drives[i]) }},
		{name: "node: disk full", strike: n.driveFull},
		{name: "node: drained, and taken again", strike: n.drained},
		{name: "node: stopped until others have replaced it", strike: n.replaced},
		{name: "controller: kill -9 while partitions move", strike: n.controllerKilled},
		{name: "all nodes: restarted one after the other", strike: n.rolled},
	}
}

// during has a fault last for a while.
func (n *noded) during(begin func() (end func() (string, error), err error)) (string, error) {
	end, err := begin()
	if err != nil {
		return "", err
	}
	pause(n.ctx, n.hold(30*time.Second))
	return end()
}

func (n *noded) deaf(ends func() (from, to int)) func() (string, error) {
	return func() (string, error) {
		from, to := ends()
		return n.during(func() (func() (string, error), error) { return n.network.deafen(from, to) })
	}
}

// driveFull fills the disk of a node, which folds nothing until there is room again.
func (n *noded) driveFull() (proof string, err error) {
	i := n.random.IntN(len(n.servers))
	defer func() { err = errors.Join(err, n.drives[i].empty()) }()
	from := n.servers[i].logSize()
	if err := n.drives[i].full(n.ctx); err != nil {
		return "", err
	}
	if err := eventually(n.ctx, func(context.Context) error {
		if len(n.servers[i].said(from, "no space left", "the projections are paused")) == 0 {
			return fmt.Errorf("%s says nothing of a full disk", nodeName(i))
		}
		return nil
	}); err != nil {
		return "", err
	}
	pause(n.ctx, n.hold(10*time.Second))
	return nodeName(i) + " has noticed ENOSPC", nil
}

// drain takes the partitions away from a node, or undoes that.
func (n *noded) drain(i int, flags ...string) error {
	return eventually(n.ctx, func(ctx context.Context) error {
		j := (i + 1) % len(n.servers)
		_, err := tool(ctx, n.servers[j].bin, append([]string{"node", "drain", nodeName(i), "--server", n.apis[j].URL}, flags...)...)
		return err
	})
}

// serves is how many partitions a node serves.
func (n *noded) serves(i int) int {
	for _, m := range n.members.Members() {
		if m.Name == nodeName(i) {
			return m.Serves.Len()
		}
	}
	return 0
}

// until waits, as long as partitions may need to move.
func (n *noded) until(holds func() error) error {
	ctx, cancel := context.WithTimeout(n.ctx, recoveryTime)
	defer cancel()
	for err := holds(); err != nil; err = holds() {
		if ctx.Err() != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
	return nil
}

func (n *noded) drained() (string, error) {
	i := n.random.IntN(len(n.servers))
	began := time.Now()
	err := n.drain(i)
	if err == nil {
		err = n.until(func() error {
			if left := n.serves(i); left > 0 {
				return fmt.Errorf("%s still serves %d partitions", nodeName(i), left)
			}
			return nil
		})
	}
	took := time.Since(began)
	err = errors.Join(err, n.drain(i, "--undo"))
	if err == nil {
		err = n.until(func() error {
			if n.serves(i) == 0 {
				return fmt.Errorf("%s serves nothing", nodeName(i))
			}
			return nil
		})
	}
	return fmt.Sprintf("%s served nothing after %.1f s", nodeName(i), took.Seconds()), err
}

func (n *noded) replaced() (string, error) {
	i := n.random.IntN(len(n.servers))
	if err := n.servers[i].terminate(); err != nil {
		return "", err
	}
	began := time.Now()
	err := n.until(func() error { return n.copies(0, nodeName(i)) })
	took := time.Since(began)
	return fmt.Sprintf("%s, replaced after %.1f s", nodeName(i), took.Seconds()), errors.Join(err, n.servers[i].start())
}

// controllerKilled drains a node, and kills the controller at a random moment of the moves.
func (n *noded) controllerKilled() (string, error) {
	i := n.random.IntN(len(n.servers))
	if err := n.drain(i); err != nil {
		return "", err
	}
	n.rest(3 * time.Second)
	holder, err := n.controller()
	if err != nil {
		return "", errors.Join(err, n.drain(i, "--undo"))
	}
	proof, err := n.kill(n.servers[holder])
	n.rest(5 * time.Second)
	return "controller " + proof, errors.Join(err, n.drain(i, "--undo"))
}

// controller is the node that has the lease.
func (n *noded) controller() (i int, err error) {
	id, err := clusterLog(n.ctx, n.js)
	if err != nil {
		return 0, err
	}
	bucket, err := n.js.KeyValue(n.ctx, placement.BucketName(id))
	if err != nil {
		return 0, err
	}
	entry, err := bucket.Get(n.ctx, "controller")
	if err != nil {
		return 0, err
	}
	var lease struct{ Name string }
	if err := json.Unmarshal(entry.Value(), &lease); err != nil {
		return 0, err
	}
	_, err = fmt.Sscanf(lease.Name, "node%d", &i)
	return i, err
}

// rolled restarts all nodes as an upgrade does.
func (n *noded) rolled() (string, error) {
	began := time.Now()
	for _, p := range n.servers {
		if err := errors.Join(p.terminate(), p.start()); err != nil {
			return "", err
		}
		if err := n.complete(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d nodes in %.1f s", len(n.servers), time.Since(began).Seconds()), nil
}
