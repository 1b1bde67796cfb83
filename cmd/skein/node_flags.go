package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/gateway/access"
)

// nodeFlags make the service a node of a cluster.
type nodeFlags struct {
	Node         string        `help:"Run as a node of a cluster, with this name. The node holds some of the partitions. Needs --nats." placeholder:"NAME"`
	NodeAddr     string        `help:"Private address at which the other nodes reach this one, and on which it listens." placeholder:"HOST:PORT"`
	NodeZone     string        `help:"Zone of the node. The copies of a partition are put into different zones." placeholder:"ZONE"`
	NodeWeight   int           `help:"Weight of the node. A node with weight 2 gets twice as many partitions as one with weight 1." default:"1"`
	NodeCert     string        `help:"Certificate that the node shows to other nodes, as server and as client, PEM." type:"path" placeholder:"FILE"`
	NodeKey      string        `help:"Key of that certificate, PEM." type:"path" placeholder:"FILE"`
	NodeCA       string        `name:"node-ca" help:"Authorities that sign the certificates of nodes, PEM." type:"path" placeholder:"FILE"`
	Router       bool          `help:"Run as a router of a cluster, which takes calls and holds no partitions. Needs --nats."`
	Copies       int           `help:"How many nodes hold each partition. Give all nodes and routers the same number." default:"2"`
	ReplaceAfter time.Duration `help:"How long a node may be unreachable before others take over its partitions." default:"1m"`
}

// nodeCertificates reads the certificates for other nodes; without their flags it returns nil.
func (f *nodeFlags) nodeCertificates(logger *slog.Logger) (*access.Certificates, error) {
	if f.NodeCert == "" && f.NodeKey == "" && f.NodeCA == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	if f.NodeCert == "" || f.NodeKey == "" || f.NodeCA == "" {
		return nil, command.Usagef("--node-cert, --node-key and --node-ca need each other: either all nodes show certificates, or none does")
	}

	certs, err := access.OpenCertificates(access.Files{
		Name: "node_certificates", Cert: f.NodeCert, Key: f.NodeKey, ClientCA: f.NodeCA,
	}, logger)
	if err != nil {
		return nil, fmt.Errorf("--node-cert, --node-key, --node-ca: %w", err)
	}
	return certs, nil
}

// nodeConfig checks the flags, and listens for other nodes. It returns nil for a service that is
// not part of a cluster.
func (f *nodeFlags) nodeConfig(ctx context.Context, c *serveCmd) (*node.Config, error) {
	switch {
	case f.Router && (f.Node != "" || f.NodeAddr != "" || f.NodeZone != ""):
		return nil, command.Usagef("--router does not go with --node, --node-addr and --node-zone: a router holds no partitions")
	case f.Router && c.NATS == "":
		return nil, command.Usagef("--router needs --nats, the servers that have the log of the cluster")
	case f.Router && c.Snapshots != "":
		return nil, command.Usagef("--router does not go with --snapshots: a router has no stores")
	case f.Router:
		return &node.Config{Copies: f.Copies, ReplaceAfter: f.ReplaceAfter}, nil
	}

	if f.Node == "" {
		if f.NodeCert != "" {
			return nil, command.Usagef("--node-cert needs --node or --router")
		}
		if f.NodeAddr != "" || f.NodeZone != "" {
			return nil, command.Usagef("--node-addr and --node-zone need --node")
		}
		return nil, nil //nolint:nilnil // the service is not part of a cluster
	}

	switch {
	case c.NATS == "":
		return nil, command.Usagef("--node needs --nats: the nodes of a cluster share one log")
	case f.NodeAddr == "":
		return nil, command.Usagef("--node needs --node-addr, the address at which the other nodes reach this one")
	case f.NodeWeight < 1 || f.NodeWeight > 1000:
		return nil, command.Usagef("--node-weight must be from 1 to 1000, is %d", f.NodeWeight)
	case f.Copies < 1 || f.Copies > 10:
		return nil, command.Usagef("--copies must be from 1 to 10, is %d", f.Copies)
	}

	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.NodeAddr)
	if err != nil {
		return nil, fmt.Errorf("--node-addr: %w", err)
	}
	host, _, _ := net.SplitHostPort(f.NodeAddr)
	_, port, _ := net.SplitHostPort(l.Addr().String()) // the system has chosen the port if the flag has port 0
	return &node.Config{
		Name: f.Node, Addr: net.JoinHostPort(host, port), Listener: l, Zone: f.NodeZone, Weight: f.NodeWeight,
		Copies: f.Copies, ReplaceAfter: f.ReplaceAfter,
	}, nil
}
