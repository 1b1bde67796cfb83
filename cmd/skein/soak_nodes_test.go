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
// and a network namespace of its own. The nodes are the servers of the soakCluster.
type soakNodes struct {
	*soakCluster

	network   *testNetwork
	nodeDisks []*loopDisk // nodeDisks[i] is the disk of node i
	// members are the members of the cluster, as a process sees them that is no member itself.
	members *placement.Cluster
	// moveCount is how many times a partition was given to a node that did not have it.
	moveCount atomic.Int64
	// longestRecovery is the longest time from the end of a fault until each partition had two
	// copies again.
	longestRecovery time.Duration
}

const (
	// nodePort is the port on which every node serves clients, and peerPort the one on which it
	// serves other nodes.
	nodePort = "7411"
	peerPort = "7412"
)

// soakNodeCount returns the number of nodes: 5, or what SKEIN_FAULTS_NODES says.
func soakNodeCount(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SKEIN_FAULTS_NODES")
	if text == "" {
		return 5
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 3 {
		t.Fatalf("SKEIN_FAULTS_NODES: got %q, want a number of nodes, 3 or more", text)
	}
	return count
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

	// Start the nodes. They replace a node that is away after 20 seconds, so that a soak of minutes
	// has such faults, too.
	bin := buildWithClock(t, n.dir, "skein", ".")
	for i := range count {
		disk := mountLoopDisk(t, filepath.Join(n.dir, fmt.Sprint("disk-of-node", i)), 768)
		n.nodeDisks = append(n.nodeDisks, disk)
		process := &soakProcess{name: nodeName(i), bin: bin, namespace: n.network.nodeNamespace(i)}
		addr := n.network.nodeAddr(i)
		n.startProcess(process, filepath.Join(disk.dir, "data"), net.JoinHostPort(addr, nodePort), urls,
			"--node", nodeName(i), "--node-addr", net.JoinHostPort(addr, peerPort),
			"--replace-after", "20s", "--listen-anywhere", "--allowed-hosts", addr)
	}

	// The bucket of the cluster exists once a node has made it.
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
	foundNothing := n.injectFaults()
	n.finish(foundNothing, func() (string, error) {
		out, err := n.verifyStores()
		return fmt.Sprintf("%s\n%d nodes; partitions were given to nodes %d times; two copies of each again after at most %v",
			out, count, n.moveCount.Load(), n.longestRecovery.Round(100*time.Millisecond)), err
	})
}

// countMoves counts how many times a new table gives a partition to a node that did not have it in
// the table before, until the soak ends.
func (n *soakNodes) countMoves() {
	last := n.members.Table()
	for n.ctx.Err() == nil {
		// Get the channel before the table. Otherwise a change between the two would be missed.
		changed := n.members.Changed()
		next := n.members.Table()
		for partition, names := range &next.Nodes {
			for _, name := range names {
				if !slices.Contains(last.Nodes[partition], name) {
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

// randomNode returns the number of one of the nodes.
func (n *soakNodes) randomNode() int { return n.random.IntN(len(n.servers)) }

// waitUntilTwoCopies waits until all nodes are members, and two nodes have folded the log up to its
// current end for each partition.
func (n *soakNodes) waitUntilTwoCopies() error {
	// Ask for the end of the log only once: under traffic, the nodes are always a little behind an
	// end that moves.
	var end uint64
	return n.poll(func() error {
		if end == 0 {
			stream, err := n.js.Stream(n.ctx, eventlog.StreamName)
			if err != nil {
				return err
			}
			end = stream.CachedInfo().State.LastSeq
		}

		if got, want := len(n.members.Members()), len(n.servers); got < want {
			return fmt.Errorf("members of the cluster: got %d, want %d", got, want)
		}
		return n.checkTwoCopies(end)
	})
}

// checkTwoCopies returns an error unless two nodes, without those that are excluded, serve each
// partition and have folded the log up to a sequence.
func (n *soakNodes) checkTwoCopies(seq uint64, excluded ...string) error {
	var copyCounts [events.NumPartitions]int
	for _, m := range n.members.Members() {
		position, err := events.ParsePosition(m.Position)
		if err != nil || position.Seq < seq || slices.Contains(excluded, m.Name) {
			continue
		}
		for partition := range copyCounts {
			if m.Serves.Has(uint8(partition)) {
				copyCounts[partition]++
			}
		}
	}
	if least := slices.Min(copyCounts[:]); least < 2 {
		return fmt.Errorf("a partition has %d copies up to envelope %d, want at least 2", least, seq)
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
	const host = -1 // stands for the NATS servers as an end of lost packets
	return []faultKind{
		{name: "node: cut off", inject: n.cutOffNode},
		{name: "node: what it sends to the log is lost", inject: func() (string, error) { return n.losePackets(n.randomNode(), host) }},
		{name: "node: what the log sends to it is lost", inject: func() (string, error) { return n.losePackets(host, n.randomNode()) }},
		{name: "node: what it sends to another one is lost", inject: func() (string, error) {
			from := n.randomNode()
			distance := 1 + n.random.IntN(len(n.servers)-1)
			return n.losePackets(from, (from+distance)%len(n.servers))
		}},
		{name: "node: power cut", inject: func() (string, error) {
			i := n.randomNode()
			return n.cutPowerAndRestart(n.servers[i], n.nodeDisks[i])
		}},
		{name: "node: disk full", inject: n.fillNodeDisk},
		{name: "node: drained, and taken again", inject: n.drainAndUndo},
		{name: "node: stopped until others have replaced it", inject: n.stopUntilReplaced},
		{name: "controller: kill -9 while partitions move", inject: n.killController},
		{name: "all nodes: restarted one after the other", inject: n.restartAllNodes},
	}
}

// cutOffNode disconnects a node from all others and from the log for a while.
func (n *soakNodes) cutOffNode() (proof string, err error) {
	end, err := n.network.unplug(n.randomNode(), nodePort)
	if err != nil {
		return "", err
	}
	return n.holdFault(end)
}

// losePackets loses the packets that one end sends to another one for a while.
// [testNetwork.dropPackets] explains from and to.
func (n *soakNodes) losePackets(from, to int) (proof string, err error) {
	end, err := n.network.dropPackets(from, to)
	if err != nil {
		return "", err
	}
	return n.holdFault(end)
}

// holdFault lets a fault that has begun last for a while, and ends it.
func (n *soakNodes) holdFault(end func() (proof string, err error)) (proof string, err error) {
	sleepOrDone(n.ctx, n.faultDuration(30*time.Second))
	return end()
}

// fillNodeDisk fills the disk of a node, which then folds nothing until there is space again.
func (n *soakNodes) fillNodeDisk() (proof string, err error) {
	i := n.randomNode()
	process := n.servers[i]
	logSize := process.logSize()
	defer func() { err = errors.Join(err, n.nodeDisks[i].removeFiller()) }()
	if err := n.nodeDisks[i].fillToLastByte(n.ctx); err != nil {
		return "", err
	}

	err = eventually(n.ctx, func(context.Context) error {
		if len(process.logLines(logSize, "no space left", "the projections are paused")) == 0 {
			return fmt.Errorf("log of %s: got no line about a full disk, want one", process.name)
		}
		return nil
	})
	if err != nil {
		return "", err
	}

	sleepOrDone(n.ctx, n.faultDuration(10*time.Second))
	return process.name + " has noticed ENOSPC", nil
}

// drainNode asks another node to drain node i, or to undo that with the flag --undo.
func (n *soakNodes) drainNode(i int, flags ...string) error {
	other := (i + 1) % len(n.servers)
	args := slices.Concat([]string{"node", "drain", nodeName(i), "--server", n.apis[other].URL}, flags)
	return eventually(n.ctx, func(ctx context.Context) error {
		_, err := runTool(ctx, n.servers[other].bin, args...)
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

// poll calls check until it returns nil, for as long as partitions may need to move. It returns the
// last error of check after that.
func (n *soakNodes) poll(check func() error) error {
	ctx, cancel := context.WithTimeout(n.ctx, recoveryTime)
	defer cancel()
	for {
		err := check()
		if err == nil || ctx.Err() != nil {
			return err
		}
		sleepOrDone(ctx, 100*time.Millisecond)
	}
}

// drainAndUndo drains a node until it serves nothing, and undoes that until it serves again.
func (n *soakNodes) drainAndUndo() (proof string, err error) {
	i := n.randomNode()
	began := time.Now()
	err = n.drainNode(i)
	if err == nil {
		err = n.poll(func() error {
			if got := n.servedPartitions(i); got > 0 {
				return fmt.Errorf("partitions that %s serves while it is drained: got %d, want 0", nodeName(i), got)
			}
			return nil
		})
	}
	took := time.Since(began)

	// Undo also after an error, because the drain would outlive the fault.
	err = errors.Join(err, n.drainNode(i, "--undo"))
	if err == nil {
		err = n.poll(func() error {
			if n.servedPartitions(i) == 0 {
				return fmt.Errorf("partitions that %s serves after the drain: got 0, want at least 1", nodeName(i))
			}
			return nil
		})
	}
	return fmt.Sprintf("%s served nothing after %.1f s", nodeName(i), took.Seconds()), err
}

// stopUntilReplaced stops a node until the others have taken over its partitions, and starts it
// again.
func (n *soakNodes) stopUntilReplaced() (proof string, err error) {
	i := n.randomNode()
	if err := n.servers[i].stopGracefully(); err != nil {
		return "", err
	}

	began := time.Now()
	err = n.poll(func() error { return n.checkTwoCopies(0, nodeName(i)) })
	took := time.Since(began)
	return fmt.Sprintf("%s, replaced after %.1f s", nodeName(i), took.Seconds()), errors.Join(err, n.servers[i].start())
}

// killController drains a node, and kills the controller at a random moment while partitions move.
func (n *soakNodes) killController() (proof string, err error) {
	drained := n.randomNode()
	if err := n.drainNode(drained); err != nil {
		return "", err
	}

	n.pauseUpTo(3 * time.Second)
	controller, err := n.findController()
	if err != nil {
		return "", errors.Join(err, n.drainNode(drained, "--undo"))
	}
	killProof, err := n.killAndRestart(n.servers[controller])

	// Let the next controller continue the drain before it is undone.
	n.pauseUpTo(5 * time.Second)
	return "controller " + killProof, errors.Join(err, n.drainNode(drained, "--undo"))
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
	if _, err := fmt.Sscanf(lease.Name, "node%d", &i); err != nil {
		return 0, fmt.Errorf("controller: got %q, want the name of a node: %w", lease.Name, err)
	}
	return i, nil
}

// restartAllNodes restarts all nodes one after the other, as an upgrade does.
func (n *soakNodes) restartAllNodes() (proof string, err error) {
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
