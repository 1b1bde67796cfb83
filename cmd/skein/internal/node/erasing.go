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

// StoreAccess returns what answers the calls of other nodes that copy rows of this one, or that
// erase a user.
func (n *Node) StoreAccess() gateway.StoreAccess { return storeExporter{n.Erasure, n.Stores} }

// storeExporter exports rows of the stores to other nodes. It implements [gateway.StoreAccess]; the
// methods about erasures are those of [erase.Part].
type storeExporter struct {
	*erase.Part

	stores []*live.Live
}

// Rows is part of [gateway.StoreAccess].
func (e storeExporter) Rows(
	ctx context.Context, projection, fold string, epoch uint32, of events.Partitions, do func(key, value []byte) error,
) error {
	i := slices.IndexFunc(e.stores, func(s *live.Live) bool { return s.Name() == projection })
	if i < 0 {
		return fmt.Errorf("there is no projection %q", projection)
	}
	// Refuse if the rows may contain a user whom the stores of the asking node no longer have.
	if err := e.CheckMayCopy(epoch); err != nil {
		return err
	}
	return e.stores[i].ExportPartitions(ctx, fold, of, do)
}

// EraseNodes returns the other nodes, which take part when this process erases a user; nil outside
// of a cluster, where n is nil.
func (n *Node) EraseNodes() *erase.Nodes {
	if n == nil {
		return nil
	}
	return &erase.Nodes{
		List: func() []erase.Node { return otherNodes(n.cluster.Members(), n.cluster.Table(), n.Name) },
		Flush: func(ctx context.Context, name string, epoch uint32, seq uint64) (done bool, why string, err error) {
			member, err := n.findMember(name)
			if err != nil {
				return false, "", err
			}
			return n.server.FlushNode(ctx, member, epoch, seq)
		},
		Clean: func(ctx context.Context, name string, epoch uint32) (done bool, why string, err error) {
			member, err := n.findMember(name)
			if err != nil {
				return false, "", err
			}
			return n.server.CleanNode(ctx, member, epoch)
		},
	}
}

// findMember returns the member of the cluster with a name.
func (n *Node) findMember(name string) (gateway.Node, error) {
	for _, m := range n.cluster.Members() {
		if m.Name == name {
			return gateway.Node{Name: m.Name, Addr: m.Addr}, nil
		}
	}
	return gateway.Node{}, errors.New("the node is not a member of the cluster")
}

// otherNodes returns all nodes other than self that may have rows of an erased user: the members,
// which are alive, and the nodes that only the table names, which are not.
func otherNodes(members []placement.Member, table placement.Table, self string) (nodes []erase.Node) {
	add := func(name string, alive bool) {
		if name != self && !slices.ContainsFunc(nodes, func(n erase.Node) bool { return n.Name == name }) {
			nodes = append(nodes, erase.Node{Name: name, Alive: alive})
		}
	}
	for _, m := range members {
		add(m.Name, true)
	}
	for _, owners := range &table.Nodes {
		for _, name := range owners {
			add(name, false)
		}
	}
	return nodes
}
