package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/replay/erase"
)

// Keeper returns what answers other nodes about the stores of this one.
func (n *Node) Keeper() gateway.StoreAccess { return storeExporter{n.Part, n.Stores} }

// storeExporter is the [gateway.StoreAccess] of a node.
type storeExporter struct {
	*erase.Part

	stores []*live.Live
}

// Rows is part of [gateway.StoreAccess].
func (k storeExporter) Rows(
	ctx context.Context, projection, fold string, epoch uint32, of events.Partitions, do func(key, value []byte) error,
) error {
	i := slices.IndexFunc(k.stores, func(s *live.Live) bool { return s.Name() == projection })
	if i < 0 {
		return fmt.Errorf("there is no projection %q", projection)
	}
	if err := k.Gives(epoch); err != nil {
		return err
	}
	return k.stores[i].ExportPartitions(ctx, fold, of, do)
}

// EraseNodes returns the other nodes as an erasure asks them; nil outside of a cluster.
func (n *Node) EraseNodes() *erase.Nodes {
	if n == nil {
		return nil
	}
	return &erase.Nodes{
		List: func() []erase.Node { return otherNodes(n.cluster.Members(), n.cluster.Table(), n.Name) },
		Flush: func(ctx context.Context, name string, epoch uint32, seq uint64) (done bool, why string, err error) {
			to, err := n.findMember(name)
			if err != nil {
				return false, "", err
			}
			return n.server.FlushNode(ctx, to, epoch, seq)
		},
		Clean: func(ctx context.Context, name string, epoch uint32) (done bool, why string, err error) {
			to, err := n.findMember(name)
			if err != nil {
				return false, "", err
			}
			return n.server.CleanNode(ctx, to, epoch)
		},
	}
}

func (n *Node) findMember(name string) (gateway.Node, error) {
	for _, m := range n.cluster.Members() {
		if m.Name == name {
			return gateway.Node{Name: m.Name, Addr: m.Addr}, nil
		}
	}
	return gateway.Node{}, errors.New("it is not among the members of the cluster")
}

// otherNodes returns the members but one, and those that the table names.
func otherNodes(members []placement.Member, table placement.Table, self string) (nodes []erase.Node) {
	add := func(name string, alive bool) {
		if name != self && !slices.ContainsFunc(nodes, func(n erase.Node) bool { return n.Name == name }) {
			nodes = append(nodes, erase.Node{Name: name, Alive: alive})
		}
	}
	for _, m := range members {
		add(m.Name, true)
	}
	for _, given := range &table.Nodes {
		for _, name := range given {
			add(name, false)
		}
	}
	return nodes
}
