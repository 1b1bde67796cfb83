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

// network has a network namespace for each node, on a bridge that the test and the NATS servers are on as well.
type network struct {
	bridge, prefix string
	nodes          int
}

func ip(args string) (string, error) {
	return tool(context.Background(), "ip", strings.Fields(args)...)
}

// newNetwork makes one, for which it needs root.
func newNetwork(t *testing.T, nodes int) *network {
	t.Helper()
	pid := os.Getpid()
	w := &network{bridge: fmt.Sprint("sk", pid), prefix: fmt.Sprintf("10.%d.%d.", 64+pid/256%128, pid%256), nodes: nodes}
	t.Cleanup(func() {
		for i := range nodes {
			_, err := ip("netns del " + w.namespace(i))
			if err != nil {
				t.Error(err)
			}
		}
		if _, err := ip("link del " + w.bridge); err != nil {
			t.Error(err)
		}
	})
	commands := []string{
		"link add " + w.bridge + " type bridge", "addr add " + w.host() + "/24 dev " + w.bridge, "link set " + w.bridge + " up",
	}
	for i := range nodes {
		ns, cable := w.namespace(i), w.cable(i)
		commands = append(commands,
			"netns add "+ns, "link add "+cable+" type veth peer name eth0 netns "+ns, "link set "+cable+" master "+w.bridge+" up",
			"-n "+ns+" addr add "+w.addr(i)+"/24 dev eth0", "-n "+ns+" link set eth0 up", "-n "+ns+" link set lo up")
	}
	for _, c := range commands {
		if _, err := ip(c); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *network) host() string           { return w.prefix + "1" }
func (w *network) addr(i int) string      { return fmt.Sprint(w.prefix, 10+i) }
func (w *network) namespace(i int) string { return fmt.Sprint(w.bridge, "n", i) }
func (w *network) cable(i int) string     { return fmt.Sprint(w.bridge, "c", i) }

// unplug takes the cable of a node out, until the end. The proof is that nobody can connect to it.
func (w *network) unplug(i int, port string) (end func() (string, error), err error) {
	_, err = ip("link set " + w.cable(i) + " down")
	return func() (string, error) {
		proof, err := w.unreachable(i, port)
		_, uerr := ip("link set " + w.cable(i) + " up")
		return proof, errors.Join(err, uerr)
	}, err
}

func (w *network) unreachable(i int, port string) (proof string, err error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(w.addr(i), port), time.Second)
	if err == nil {
		return "", errors.Join(fmt.Errorf("node %d can be reached", i), c.Close())
	}
	return err.Error(), nil
}

// unusedMAC is an Ethernet address that no interface has. Packets to it are lost, and the sender gets no error.
const unusedMAC = "02:00:00:00:00:99"

// deafen loses what one node sends to another one, until the end; what it gets arrives. With from < 0 it is what the test and the NATS
// servers send; with to < 0 what they get. The proof is the neighbor that the kernel has.
func (w *network) deafen(from, to int) (end func() (string, error), err error) {
	who, dev, target := "", w.bridge, w.host()
	if from >= 0 {
		who, dev = "-n "+w.namespace(from)+" ", "eth0"
	}
	if to >= 0 {
		target = w.addr(to)
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
