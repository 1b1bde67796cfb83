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
	Node         string        `help:"The name of this node of a cluster, which holds some partitions. It needs --nats." placeholder:"NAME"`
	NodeAddr     string        `help:"Where the other nodes reach it: a private address, on which it listens, too." placeholder:"HOST:PORT"`
	NodeZone     string        `help:"Its zone: the copies of a partition are in different ones." placeholder:"ZONE"`
	NodeWeight   int           `help:"Its share of the partitions, beside the weights of other nodes." default:"1"`
	NodeCert     string        `help:"Certificate for other nodes, PEM, for servers and clients." type:"path" placeholder:"FILE"`
	NodeKey      string        `help:"Key of the certificate, PEM." type:"path" placeholder:"FILE"`
	NodeCA       string        `name:"node-ca" help:"Authorities of the certificates of nodes, PEM." type:"path" placeholder:"FILE"`
	Router       bool          `help:"Take calls for a cluster, and hold none of its partitions. It needs --nats."`
	Copies       int           `help:"How many nodes hold each partition. All nodes say the same." default:"2"`
	ReplaceAfter time.Duration `help:"How long a node may be away before others take over its partitions." default:"1m"`
}

// nodeCertificates reads the certificates for other nodes; without their flags it returns nil.
func (f *nodeFlags) nodeCertificates(logger *slog.Logger) (*access.Certificates, error) {
	if f.NodeCert == "" && f.NodeKey == "" && f.NodeCA == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	if f.NodeCert == "" || f.NodeKey == "" || f.NodeCA == "" {
		return nil, command.Usagef("--node-cert, --node-key and --node-ca need each other: nodes show certificates to each other, or none does")
	}
	certs, err := access.OpenCertificates(access.Files{
		Name: "node_certificates", Cert: f.NodeCert, Key: f.NodeKey, ClientCA: f.NodeCA,
	}, logger)
	if err != nil {
		return nil, fmt.Errorf("--node-cert, --node-key, --node-ca: %w", err)
	}
	return certs, nil
}

// nodeConfig returns nil for a service that is no part of a cluster.
func (f *nodeFlags) nodeConfig(ctx context.Context, c *serveCmd) (*node.Config, error) {
	switch {
	case f.Router && (f.Node != "" || f.NodeAddr != "" || f.NodeZone != ""):
		return nil, command.Usagef("--router holds no partitions, so it is no --node, and has no --node-addr or --node-zone")
	case f.Router && c.NATS == "":
		return nil, command.Usagef("--router needs --nats, where its cluster has the log")
	case f.Router && c.Snapshots != "":
		return nil, command.Usagef("--router has nothing of which --snapshots could be taken")
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
		return nil, nil //nolint:nilnil // it is none
	}
	switch {
	case c.NATS == "":
		return nil, command.Usagef("--node needs --nats: the nodes of a cluster share one log")
	case f.NodeAddr == "":
		return nil, command.Usagef("--node needs --node-addr, where the other nodes reach it")
	case f.NodeWeight < 1 || f.NodeWeight > 1000:
		return nil, command.Usagef("--node-weight is %d, must be from 1 to 1000", f.NodeWeight)
	case f.Copies < 1 || f.Copies > 10:
		return nil, command.Usagef("--copies is %d, must be from 1 to 10", f.Copies)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.NodeAddr)
	if err != nil {
		return nil, fmt.Errorf("--node-addr: %w", err)
	}
	host, _, _ := net.SplitHostPort(f.NodeAddr)
	_, port, _ := net.SplitHostPort(l.Addr().String()) // another one if 0 was asked for
	return &node.Config{
		Name: f.Node, Addr: net.JoinHostPort(host, port), Listener: l, Zone: f.NodeZone, Weight: f.NodeWeight,
		Copies: f.Copies, ReplaceAfter: f.ReplaceAfter,
	}, nil
}
