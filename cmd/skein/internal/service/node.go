package service

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/rebuild"
)

// openNode opens the part of the process in erasures, and joins the cluster if the process is a
// node.
func (s *Service) openNode(ctx context.Context, c *node.Config, registry prometheus.Registerer) (err error) {
	s.erasure = &erase.Part{
		Log: s.log, Archive: s.archive, Stores: s.Stores, Snapshots: s.snapshotBucket, RemoveTemporaryStores: s.removeTemporaryStores,
	}
	if c == nil {
		return s.erasure.OpenAlone(s.dir)
	}

	if err := s.erasure.Open(s.dir); err != nil {
		return err
	}
	s.node, err = node.Open(ctx, node.Options{
		Config:  *c,
		Log:     s.log,
		Hub:     s.hub,
		Stores:  s.Stores,
		Erasure: s.erasure,
		Builder: nodeBuilder{s},
		Logger:  s.logger,
	})
	if err != nil {
		return err
	}
	return registry.Register(node.NewCollector(s.node))
}

// nodeBuilder builds the stores of the process for its node. It implements [node.Builder].
type nodeBuilder struct{ service *Service }

// ResizeOptions is part of [node.Builder].
func (b nodeBuilder) ResizeOptions(ctx context.Context) rebuild.Options {
	return b.service.rebuildOptions(ctx, 0, nil)
}

// Subscribe is part of [node.Builder].
func (b nodeBuilder) Subscribe(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	return b.service.subscribeKinds(from, kinds)
}

// RebuildAfterErasure is part of [node.Builder].
func (b nodeBuilder) RebuildAfterErasure(ctx context.Context) error {
	return b.service.rebuildAfterErasure(ctx)
}

// setNodeOptions sets the options by which the gateway works in a cluster. Outside of a cluster
// they keep their zero values.
func (s *Service) setNodeOptions(o *gateway.Options) {
	if s.node == nil {
		return
	}
	o.NodeName = s.node.Name
	o.NodeAddr = s.node.Addr
	o.Nodes = s.node.Others
	o.IsJoined = s.node.IsReady
	o.StoreAccess = s.node.StoreAccess()
	o.Drain = s.node.Drain
}
