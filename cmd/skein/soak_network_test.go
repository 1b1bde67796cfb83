//go:build faults

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// testNetwork has a network namespace for each node, and one with the bridge that connects the
// nodes with the test and the NATS servers.
//
// The bridge has a namespace of its own because firewall rules of the machine may apply to packets
// that a bridge forwards. Docker drops such packets (policy of FORWARD), also after it has ended:
// the nodes would reach the log, but not each other.
type testNetwork struct {
	name, prefix string
	nodes        int
}

// ip runs the tool ip.
func ip(args string) (string, error) {
	return runTool(context.Background(), "ip", strings.Fields(args)...)
}

// newNetwork makes a network for this many nodes. It needs root.
func newNetwork(t *testing.T, nodes int) *testNetwork {
	t.Helper()
	pid := os.Getpid()
	w := &testNetwork{name: fmt.Sprint("sk", pid), prefix: fmt.Sprintf("10.%d.%d.", 64+pid/256%128, pid%256), nodes: nodes}
	t.Cleanup(func() {
		// Interfaces disappear with their namespaces, and the interface of the host with its other
		// end.
		for _, ns := range append(w.namespaces(), w.switchNamespace()) {
			if _, err := ip("netns del " + ns); err != nil {
				t.Error(err)
			}
		}
	})

	inBridge := "-n " + w.switchNamespace() + " "
	commands := []string{
		"netns add " + w.switchNamespace(), inBridge + "link add br0 type bridge", inBridge + "link set br0 up",
		"link add " + w.hostInterface() + " type veth peer name host netns " + w.switchNamespace(), inBridge + "link set host master br0 up",
		"addr add " + w.hostAddr() + "/24 dev " + w.hostInterface(), "link set " + w.hostInterface() + " up",
	}
	for i, ns := range w.namespaces() {
		commands = append(commands,
			"netns add "+ns, inBridge+"link add "+w.cableName(i)+" type veth peer name eth0 netns "+ns, inBridge+"link set "+w.cableName(i)+" master br0 up",
			"-n "+ns+" addr add "+w.nodeAddr(i)+"/24 dev eth0", "-n "+ns+" link set eth0 up", "-n "+ns+" link set lo up")
	}

	for _, c := range commands {
		if _, err := ip(c); err != nil {
			t.Fatal(err)
		}
	}
	w.checkConnected(t)
	return w
}

// checkConnected fails the test if a node cannot reach another one. A connection to a port where
// nobody listens is refused, but it times out if packets are lost.
func (w *testNetwork) checkConnected(t *testing.T) {
	t.Helper()
	const unusedPort = "9"
	for i, ns := range w.namespaces() {
		for j := range w.nodes {
			out, err := runTool(t.Context(), "nsenter", "--net=/run/netns/"+ns, "timeout", "60", "bash", "-c",
				fmt.Sprintf("exec 3<>/dev/tcp/%s/%s", w.nodeAddr(j), unusedPort))
			if !strings.Contains(out+fmt.Sprint(err), "Connection refused") {
				t.Fatalf("node %d does not reach node %d: %v %s", i, j, err, out)
			}
		}
	}
}

func (w *testNetwork) hostAddr() string           { return w.prefix + "1" }
func (w *testNetwork) hostInterface() string      { return w.name + "h" }
func (w *testNetwork) switchNamespace() string    { return w.name + "sw" }
func (w *testNetwork) nodeAddr(i int) string      { return fmt.Sprint(w.prefix, 10+i) }
func (w *testNetwork) namespaceName(i int) string { return fmt.Sprint(w.name, "n", i) }
func (w *testNetwork) cableName(i int) string     { return fmt.Sprint("c", i) }

// namespaces returns the network namespaces of the nodes.
func (w *testNetwork) namespaces() (all []string) {
	for i := range w.nodes {
		all = append(all, w.namespaceName(i))
	}
	return all
}

// unplug disconnects a node from the bridge until end is called. The proof is that nobody can
// connect to the port of the node.
func (w *testNetwork) unplug(i int, port string) (end func() (string, error), err error) {
	link := "-n " + w.switchNamespace() + " link set " + w.cableName(i)
	_, err = ip(link + " down")
	return func() (string, error) {
		proof, err := w.checkUnreachable(i, port)
		_, uerr := ip(link + " up")
		return proof, errors.Join(err, uerr)
	}, err
}

// checkUnreachable returns the error of a connection to a node, and fails if the connection
// succeeds.
func (w *testNetwork) checkUnreachable(i int, port string) (proof string, err error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(w.nodeAddr(i), port), time.Second)
	if err == nil {
		return "", errors.Join(fmt.Errorf("node %d can be reached", i), c.Close())
	}
	return err.Error(), nil
}

// unusedMAC is an Ethernet address that no interface has. Packets to it are lost, and the sender
// gets no error.
const unusedMAC = "02:00:00:00:00:99"

// dropPackets loses the packets that one node sends to another one, until end is called. Packets in
// the other direction arrive. A negative from stands for the test and the NATS servers as senders,
// and a negative to for them as receivers. The proof is the neighbor entry of the kernel.
func (w *testNetwork) dropPackets(from, to int) (end func() (string, error), err error) {
	who, dev, target := "", w.hostInterface(), w.hostAddr()
	if from >= 0 {
		who, dev = "-n "+w.namespaceName(from)+" ", "eth0"
	}
	if to >= 0 {
		target = w.nodeAddr(to)
	}
	_, err = ip(fmt.Sprintf("%sneigh replace %s lladdr %s dev %s nud permanent", who, target, unusedMAC, dev))
	return func() (string, error) {
		out, err := ip(fmt.Sprintf("%sneigh show %s dev %s", who, target, dev))
		if err == nil && !strings.Contains(out, unusedMAC) {
			err = fmt.Errorf("the neighbor has come back: %s", out)
		}
		_, derr := ip(fmt.Sprintf("%sneigh del %s dev %s", who, target, dev))
		return strings.TrimSpace(out), errors.Join(err, derr)
	}, err
}
