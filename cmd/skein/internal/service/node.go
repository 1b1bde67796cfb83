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

// openNode joins the cluster, if the process is a node.
func (a *Service) openNode(ctx context.Context, c *node.Config, registry prometheus.Registerer) (err error) {
	if c == nil {
		return nil
	}
	a.erasure = &erase.Part{Log: a.log, Archive: a.archive, Stores: a.Stores, Snapshots: a.snapshotBucket}
	if err := a.erasure.Open(a.dir); err != nil {
		return err
	}
	a.node, err = node.Open(ctx, node.Options{
		Config: *c, Log: a.log, Hub: a.hub, Stores: a.Stores, Part: a.erasure, Builder: nodeBuilder{a}, Logger: a.logger,
	})
	if err != nil {
		return err
	}
	return registry.Register(node.NewCollector(a.node))
}

// nodeBuilder is the [node.Builder] of the process.
type nodeBuilder struct{ service *Service }

// ResizeOptions is part of [node.Builder].
func (b nodeBuilder) ResizeOptions(ctx context.Context) rebuild.Options {
	return b.service.rebuildOptions(ctx, 0, nil)
}

// Subscribe is part of [node.Builder].
func (b nodeBuilder) Subscribe(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	return b.service.subscribeKinds(from, kinds)
}

// BuildErased is part of [node.Builder].
func (b nodeBuilder) BuildErased(ctx context.Context) error {
	return b.service.rebuildAfterErasure(ctx)
}

// addNode adds to the options of the gateway what it needs of the node; nothing outside of a cluster.
func (a *Service) setNodeOptions(o *gateway.Options) {
	if a.node == nil {
		return
	}
	o.NodeName = a.node.Name
	o.NodeAddr = a.node.Addr
	o.Nodes = a.node.Others
	o.IsJoined = a.node.IsReady
	o.StoreAccess = a.node.Keeper()
	o.Drain = a.node.Drain
}
