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

// soakNodes is a soak of a cluster of nodes over a log on three NATS servers. Each node has a disk
// and a network namespace of its own.
type soakNodes struct {
	*soakCluster

	network   *testNetwork
	nodeDisks []*loopDisk // of the nodes
	// members are the members of the cluster, as a process sees them that is no member itself.
	members *placement.Cluster
	// moveCount is how many times a partition was given to a node that did not have it.
	moveCount atomic.Int64
	// longestRecovery is the longest time from the end of a fault until each partition had two
	// copies again.
	longestRecovery time.Duration
}

// nodePort is the port on which every node serves clients.
const nodePort = "7411"

// soakNodeCount returns the number of nodes: 5, or what SKEIN_FAULTS_NODES says.
func soakNodeCount(t *testing.T) int {
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
	count := soakNodeCount(t)
	n := &soakNodes{network: newNetwork(t, count)}
	n.soakCluster = &soakCluster{faultSoak: newFaultSoak(t), dir: t.TempDir(), host: n.network.hostAddr()}

	ports, err := findFreePorts(21000, 9)
	if err != nil {
		t.Fatal(err)
	}

	urls := n.startNATS(ports)
	bin := buildWithClock(t, n.dir, "skein", ".")
	for i := range count {
		disk := mountLoopDisk(t, filepath.Join(n.dir, fmt.Sprint("disk-of-node", i)), 768)
		n.nodeDisks = append(n.nodeDisks, disk)
		addr := n.network.nodeAddr(i)
		n.startProcess(&soakProcess{name: nodeName(i), bin: bin, namespace: n.network.nodeNamespace(i)}, filepath.Join(disk.dir, "data"),
			net.JoinHostPort(addr, nodePort), urls, "--node", nodeName(i), "--node-addr", net.JoinHostPort(addr, "7412"),
			"--replace-after", "20s", "--listen-anywhere", "--allowed-hosts", addr)
	}

	n.connectToLog(urls)
	waitUntil(n.ctx, t, func(ctx context.Context) (err error) {
		n.members, err = watchMembers(ctx, t, n.js)
		return err
	})

	// After each fault, wait until all partitions have two copies again, before another fault takes
	// one.
	n.kinds = slices.Concat(n.faultKinds(), n.nodeFaultKinds())
	for i := range n.kinds {
		n.kinds[i].inject = n.thenWaitForCopies(n.kinds[i].inject)
	}

	if err := n.waitUntilTwoCopies(); err != nil {
		t.Fatal(err)
	}
	go n.countMoves()
	n.startTraffic(n.apis, true)
	n.finish(n.injectFaults(), func() (string, error) {
		out, err := n.verifyStores()
		return fmt.Sprintf("%s\n%d nodes; partitions were given to nodes %d times; two copies of each again after at most %v", out, count,
			n.moveCount.Load(), n.longestRecovery.Round(100*time.Millisecond)), err
	})
}

// countMoves counts how many times a new table gives a partition to a node that did not have it in
// the table before.
func (n *soakNodes) countMoves() {
	for last := n.members.Table(); n.ctx.Err() == nil; {
		changed, next := n.members.Changed(), n.members.Table()
		for p, names := range next.Nodes {
			for _, name := range names {
				if !slices.Contains(last.Nodes[p], name) {
					n.moveCount.Add(1)
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

// nodeName returns the name of node i.
func nodeName(i int) string { return fmt.Sprint("node", i) }

// waitUntilTwoCopies waits until all nodes are members, and two nodes have folded the log up to its
// current end for each partition.
func (n *soakNodes) waitUntilTwoCopies() error {
	var head uint64
	return n.poll(func() error {
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
		return n.checkTwoCopies(head)
	})
}

// checkTwoCopies returns an error unless two nodes, without those that are named, serve each
// partition and have folded the log up to a sequence.
func (n *soakNodes) checkTwoCopies(seq uint64, without ...string) error {
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

// thenWaitForCopies returns a function that injects a fault, and waits afterwards until each
// partition has two copies.
func (n *soakNodes) thenWaitForCopies(inject func() (string, error)) func() (string, error) {
	return func() (string, error) {
		proof, err := inject()
		if err != nil {
			return "", err
		}
		healed := time.Now()
		err = n.waitUntilTwoCopies()
		took := time.Since(healed)
		n.longestRecovery = max(n.longestRecovery, took)
		return fmt.Sprintf("%s; two copies again after %.1f s", proof, took.Seconds()), err
	}
}

// nodeFaultKinds returns the kinds of faults that only nodes have.
func (n *soakNodes) nodeFaultKinds() []faultKind {
	node := func() int { return n.random.IntN(len(n.servers)) }
	return []faultKind{
		{name: "node: cut off", inject: func() (string, error) {
			i := node()
			return n.holdFault(func() (func() (string, error), error) { return n.network.unplug(i, nodePort) })
		}},
		{name: "node: what it sends to the log is lost", inject: n.losePackets(func() (int, int) { return node(), -1 })},
		{name: "node: what the log sends to it is lost", inject: n.losePackets(func() (int, int) { return -1, node() })},
		{name: "node: what it sends to another one is lost", inject: n.losePackets(func() (int, int) {
			i := node()
			return i, (i + 1 + n.random.IntN(len(n.servers)-1)) % len(n.servers)
		})},
		{name: "node: power cut", inject: func() (string, error) { i := node(); return n.cutPowerAndRestart(n.servers[i], n.nodeDisks[i]) }},
		{name: "node: disk full", inject: n.fillNodeDisk},
		{name: "node: drained, and taken again", inject: n.drainAndUndo},
		{name: "node: stopped until others have replaced it", inject: n.stopUntilReplaced},
		{name: "controller: kill -9 while partitions move", inject: n.killController},
		{name: "all nodes: restarted one after the other", inject: n.restartAllNodes},
	}
}

// holdFault begins a fault and ends it after a while.
func (n *soakNodes) holdFault(begin func() (end func() (string, error), err error)) (string, error) {
	end, err := begin()
	if err != nil {
		return "", err
	}
	sleepOrDone(n.ctx, n.faultDuration(30*time.Second))
	return end()
}

// losePackets returns a function that loses packets between two ends for a while.
func (n *soakNodes) losePackets(ends func() (from, to int)) func() (string, error) {
	return func() (string, error) {
		from, to := ends()
		return n.holdFault(func() (func() (string, error), error) { return n.network.dropPackets(from, to) })
	}
}

// fillNodeDisk fills the disk of a node, which then folds nothing until there is space again.
func (n *soakNodes) fillNodeDisk() (proof string, err error) {
	i := n.random.IntN(len(n.servers))
	defer func() { err = errors.Join(err, n.nodeDisks[i].removeFiller()) }()
	from := n.servers[i].logSize()
	if err := n.nodeDisks[i].fillToLastByte(n.ctx); err != nil {
		return "", err
	}
	if err := eventually(n.ctx, func(context.Context) error {
		if len(n.servers[i].logLines(from, "no space left", "the projections are paused")) == 0 {
			return fmt.Errorf("%s does not report a full disk", nodeName(i))
		}
		return nil
	}); err != nil {
		return "", err
	}
	sleepOrDone(n.ctx, n.faultDuration(10*time.Second))
	return nodeName(i) + " has noticed ENOSPC", nil
}

// drainNode asks another node to drain node i, or to undo that with the flag --undo.
func (n *soakNodes) drainNode(i int, flags ...string) error {
	return eventually(n.ctx, func(ctx context.Context) error {
		j := (i + 1) % len(n.servers)
		_, err := runTool(ctx, n.servers[j].bin, append([]string{"node", "drain", nodeName(i), "--server", n.apis[j].URL}, flags...)...)
		return err
	})
}

// servedPartitions returns how many partitions node i serves.
func (n *soakNodes) servedPartitions(i int) int {
	for _, m := range n.members.Members() {
		if m.Name == nodeName(i) {
			return m.Serves.Len()
		}
	}
	return 0
}

// poll calls check until it returns nil, for as long as partitions may need to move.
func (n *soakNodes) poll(holds func() error) error {
	ctx, cancel := context.WithTimeout(n.ctx, recoveryTime)
	defer cancel()
	for err := holds(); err != nil; err = holds() {
		if ctx.Err() != nil {
			return err
		}
		sleepOrDone(ctx, 100*time.Millisecond)
	}
	return nil
}

// drainAndUndo drains a node until it serves nothing, and undoes that until it serves again.
func (n *soakNodes) drainAndUndo() (string, error) {
	i := n.random.IntN(len(n.servers))
	began := time.Now()
	err := n.drainNode(i)
	if err == nil {
		err = n.poll(func() error {
			if remaining := n.servedPartitions(i); remaining > 0 {
				return fmt.Errorf("%s still serves %d partitions", nodeName(i), remaining)
			}
			return nil
		})
	}
	took := time.Since(began)
	err = errors.Join(err, n.drainNode(i, "--undo"))
	if err == nil {
		err = n.poll(func() error {
			if n.servedPartitions(i) == 0 {
				return fmt.Errorf("%s serves nothing", nodeName(i))
			}
			return nil
		})
	}
	return fmt.Sprintf("%s served nothing after %.1f s", nodeName(i), took.Seconds()), err
}

// stopUntilReplaced stops a node until the others have taken over its partitions, and starts it
// again.
func (n *soakNodes) stopUntilReplaced() (string, error) {
	i := n.random.IntN(len(n.servers))
	if err := n.servers[i].stopGracefully(); err != nil {
		return "", err
	}
	began := time.Now()
	err := n.poll(func() error { return n.checkTwoCopies(0, nodeName(i)) })
	took := time.Since(began)
	return fmt.Sprintf("%s, replaced after %.1f s", nodeName(i), took.Seconds()), errors.Join(err, n.servers[i].start())
}

// killController drains a node, and kills the controller at a random moment while partitions move.
func (n *soakNodes) killController() (string, error) {
	i := n.random.IntN(len(n.servers))
	if err := n.drainNode(i); err != nil {
		return "", err
	}
	n.pauseUpTo(3 * time.Second)
	holder, err := n.findController()
	if err != nil {
		return "", errors.Join(err, n.drainNode(i, "--undo"))
	}
	proof, err := n.killAndRestart(n.servers[holder])
	n.pauseUpTo(5 * time.Second)
	return "controller " + proof, errors.Join(err, n.drainNode(i, "--undo"))
}

// findController returns the number of the node that has the lease of the controller.
func (n *soakNodes) findController() (i int, err error) {
	id, err := findClusterLogID(n.ctx, n.js)
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

// restartAllNodes restarts all nodes one after the other, as an upgrade does.
func (n *soakNodes) restartAllNodes() (string, error) {
	began := time.Now()
	for _, p := range n.servers {
		if err := errors.Join(p.stopGracefully(), p.start()); err != nil {
			return "", err
		}
		if err := n.waitUntilTwoCopies(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d nodes in %.1f s", len(n.servers), time.Since(began).Seconds()), nil
}
