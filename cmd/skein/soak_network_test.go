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
// nodes with the host, on which the test and the NATS servers run. Each node is connected to a port
// of the bridge by a pair of virtual interfaces (veth).
//
// The bridge has a namespace of its own because firewall rules of the machine may apply to packets
// that a bridge forwards. Docker drops such packets (policy of FORWARD), also after it has ended:
// the nodes would reach the log, but not each other.
type testNetwork struct {
	// name is the beginning of the names of all namespaces and of the interface of the host.
	name string
	// addrPrefix is the beginning of all addresses.
	addrPrefix string
	nodeCount  int
}

// runIP runs the tool ip with arguments that are separated by spaces. It has no context of a test,
// which would end before the cleanups run.
func runIP(args string) (string, error) {
	return runTool(context.Background(), "ip", strings.Fields(args)...)
}

// newNetwork makes a network for this many nodes. It needs root.
func newNetwork(t *testing.T, nodes int) *testNetwork {
	t.Helper()

	// The process id is in all names and addresses, so that two runs at once have different ones.
	pid := os.Getpid()
	n := &testNetwork{
		name:       fmt.Sprint("sk", pid),
		addrPrefix: fmt.Sprintf("10.%d.%d.", 64+(pid/256)%128, pid%256),
		nodeCount:  nodes,
	}
	t.Cleanup(func() {
		// Interfaces disappear with their namespaces, and the interface of the host with its other
		// end.
		for _, namespace := range append(n.nodeNamespaces(), n.bridgeNamespace()) {
			if _, err := runIP("netns del " + namespace); err != nil {
				t.Error(err)
			}
		}
	})

	// Make the bridge, and connect the host to it.
	inBridge := "-n " + n.bridgeNamespace() + " "
	commands := []string{
		"netns add " + n.bridgeNamespace(),
		inBridge + "link add br0 type bridge",
		inBridge + "link set br0 up",
		"link add " + n.hostInterface() + " type veth peer name host netns " + n.bridgeNamespace(),
		inBridge + "link set host master br0 up",
		"addr add " + n.hostAddr() + "/24 dev " + n.hostInterface(),
		"link set " + n.hostInterface() + " up",
	}

	// Connect each node to a port of the bridge.
	for i, namespace := range n.nodeNamespaces() {
		inNode := "-n " + namespace + " "
		commands = append(commands,
			"netns add "+namespace,
			inBridge+"link add "+n.bridgePort(i)+" type veth peer name eth0 netns "+namespace,
			inBridge+"link set "+n.bridgePort(i)+" master br0 up",
			inNode+"addr add "+n.nodeAddr(i)+"/24 dev eth0",
			inNode+"link set eth0 up",
			inNode+"link set lo up",
		)
	}
	for _, command := range commands {
		if _, err := runIP(command); err != nil {
			t.Fatal(err)
		}
	}

	n.checkConnected(t)
	return n
}

// checkConnected fails the test if a node cannot reach another one. A connection to a port where
// nobody listens is refused, but it times out if packets are lost.
func (n *testNetwork) checkConnected(t *testing.T) {
	t.Helper()
	const unusedPort = "9"
	const want = "Connection refused"
	for i, namespace := range n.nodeNamespaces() {
		for j := range n.nodeCount {
			connect := fmt.Sprintf("exec 3<>/dev/tcp/%s/%s", n.nodeAddr(j), unusedPort)
			out, err := runTool(t.Context(), "nsenter", "--net=/run/netns/"+namespace, "timeout", "60", "bash", "-c", connect)
			if err == nil || !strings.Contains(out, want) {
				t.Fatalf("connection from node %d to node %d: got %v and %q, want %q", i, j, err, out, want)
			}
		}
	}
}

// hostAddr returns the address on which the nodes reach the test and the NATS servers.
func (n *testNetwork) hostAddr() string { return n.addrPrefix + "1" }

// hostInterface returns the name of the interface that connects the host to the bridge.
func (n *testNetwork) hostInterface() string { return n.name + "h" }

// bridgeNamespace returns the name of the network namespace with the bridge.
func (n *testNetwork) bridgeNamespace() string { return n.name + "sw" }

// nodeAddr returns the address of node i.
func (n *testNetwork) nodeAddr(i int) string { return fmt.Sprint(n.addrPrefix, 10+i) }

// nodeNamespace returns the name of the network namespace of node i.
func (n *testNetwork) nodeNamespace(i int) string { return fmt.Sprint(n.name, "n", i) }

// bridgePort returns the name of the interface in the namespace of the bridge that connects node i.
func (n *testNetwork) bridgePort(i int) string { return fmt.Sprint("c", i) }

// nodeNamespaces returns the names of the network namespaces of all nodes.
func (n *testNetwork) nodeNamespaces() (namespaces []string) {
	for i := range n.nodeCount {
		namespaces = append(namespaces, n.nodeNamespace(i))
	}
	return namespaces
}

// unplug disconnects node i from the bridge until end is called. The proof is that nobody can
// connect to the port of the node.
func (n *testNetwork) unplug(i int, port string) (end func() (proof string, err error), err error) {
	setLink := "-n " + n.bridgeNamespace() + " link set " + n.bridgePort(i)
	if _, err := runIP(setLink + " down"); err != nil {
		return nil, err
	}
	return func() (string, error) {
		// Look for the proof before the node is connected again.
		proof, err := n.checkUnreachable(i, port)
		_, upErr := runIP(setLink + " up")
		return proof, errors.Join(err, upErr)
	}, nil
}

// checkUnreachable tries to connect to node i, which must fail. The proof is the error.
func (n *testNetwork) checkUnreachable(i int, port string) (proof string, err error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(n.nodeAddr(i), port), time.Second)
	if err == nil {
		return "", errors.Join(fmt.Errorf("node %d: got a connection, want that it cannot be reached", i), conn.Close())
	}
	return err.Error(), nil
}

// unusedMAC is an Ethernet address that no interface has. Packets to it are lost, and the sender
// gets no error.
const unusedMAC = "02:00:00:00:00:99"

// dropPackets loses the packets that node from sends to node to, until end is called. Packets in
// the other direction arrive. A negative from stands for the host with the test and the NATS
// servers as the sender, and a negative to for the host as the receiver. The proof is the entry of
// the receiver in the neighbor table of the sender's kernel.
func (n *testNetwork) dropPackets(from, to int) (end func() (proof string, err error), err error) {
	inSender := ""
	device := n.hostInterface()
	if from >= 0 {
		inSender = "-n " + n.nodeNamespace(from) + " "
		device = "eth0"
	}
	receiver := n.hostAddr()
	if to >= 0 {
		receiver = n.nodeAddr(to)
	}

	// The sender's kernel sends packets for the receiver to the address that the entry has. It does
	// not replace a permanent entry.
	_, err = runIP(fmt.Sprintf("%sneigh replace %s lladdr %s dev %s nud permanent", inSender, receiver, unusedMAC, device))
	if err != nil {
		return nil, err
	}
	return func() (string, error) {
		entry, err := runIP(fmt.Sprintf("%sneigh show %s dev %s", inSender, receiver, device))
		if err == nil && !strings.Contains(entry, unusedMAC) {
			err = fmt.Errorf("neighbor entry of %s: got %q, want %s", receiver, entry, unusedMAC)
		}
		_, deleteErr := runIP(fmt.Sprintf("%sneigh del %s dev %s", inSender, receiver, device))
		return strings.TrimSpace(entry), errors.Join(err, deleteErr)
	}, nil
}
