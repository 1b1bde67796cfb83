package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/rebuild"
)

// Config is what an operator says of a node.
type Config struct {
	// Name is the name of the node, which stays the same. It is empty for a router, which holds nothing.
	Name string
	// Addr is host:port by which the other nodes reach it, and Listener listens there.
	Addr     string
	Listener net.Listener
	// Zone is where it is: copies of a partition are in different zones. Weight is its share of the partitions beside others.
	Zone   string
	Weight int
	// Copies is how many nodes hold each partition.
	Copies int
	// ReplaceAfter is how long a node may be away before others take over its partitions.
	ReplaceAfter time.Duration
}

// Options are the configuration of a node and the parts of the process that it works with.
type Options struct {
	Config

	Log    *eventlog.Log
	Hub    *eventlog.Hub
	Stores []*live.Live
	// Part is what the node does when a user is erased. It is open.
	Part    *erase.Part
	Builder Builder
	Logger  *slog.Logger
}

// Builder builds the stores of the process.
type Builder interface {
	// ResizeOptions returns how the stores are built. The node adds which nodes have rows.
	ResizeOptions(ctx context.Context) rebuild.Options
	// Subscribe subscribes a fold of only these kinds to the log.
	Subscribe(from events.Cursor, kinds events.KindSet) (store.Subscription, error)
	// BuildErased builds the stores anew after an erasure.
	BuildErased(ctx context.Context) error
}

// announceEvery is how often a node announces how far its stores are.
const announceEvery = 2 * time.Second

// Node is a node of a cluster. It passes through its states, and owns the changes of its partitions.
type Node struct {
	Options
	cluster *placement.Cluster
	// server asks the other nodes, and answers them. Attach sets it before Run.
	server *gateway.Server
	// others are the other nodes that are alive, as the gateway asks them.
	others  atomic.Pointer[[]gateway.Node]
	changer *changer

	// state is a State, which Run alone changes.
	state atomic.Uint32
	// ready is closed when the node passes from Joining to Serving.
	ready chan struct{}
	// wereAtHead is set once all stores have been at the head of the log at the same time. It belongs to the goroutine of Run.
	allStoresWereAtHead bool
}

// Open joins the cluster. The node neither says anything nor follows the cluster before Run.
func Open(ctx context.Context, o Options) (*Node, error) {
	n := &Node{Options: o, ready: make(chan struct{})}
	n.changer = newChanger(n)
	n.others.Store(&[]gateway.Node{})
	replicas, err := o.Log.Replicas(ctx)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	var self *placement.Member
	if o.Name != "" {
		self = &placement.Member{Name: o.Name, Addr: o.Addr, Zone: o.Zone, Weight: o.Weight, State: Joining.String()}
	}
	n.cluster, err = placement.Open(ctx, placement.Options{
		JS: o.Log.JetStream(), LogID: fmt.Sprintf("%x", o.Log.ID()), PartitionReplicas: o.Copies, ReplaceAfter: o.ReplaceAfter,
		BucketReplicas: replicas, Logger: o.Logger, Self: self,
	})
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	return n, nil
}

// Attach sets the server that asks the other nodes, and answers them. Call it once, before Run.
func (n *Node) Attach(server *gateway.Server) { n.server = server }

// Others returns the other nodes that are alive, as the gateway asks them.
func (n *Node) Others() []gateway.Node { return *n.others.Load() }

// Run is a node until ctx ends. When stopping ends, the node leaves: it tells the others not to ask it. caughtUp is closed when every store
// has been at the head of the log, or has failed. Run fails if another process takes the name of the node, and if a user was erased while
// the node did not take part.
func (n *Node) Run(ctx, stopping context.Context, caughtUp <-chan struct{}) error {
	n.updateOthers() // before the changer asks which nodes have rows
	parts, within := errgroup.WithContext(ctx)
	parts.Go(func() error { return n.cluster.Run(within) })
	parts.Go(func() error { return n.changer.Run(within) })
	parts.Go(func() error { return n.handleEvents(within, stopping.Done(), caughtUp) })
	return parts.Wait()
}

// passStates turns what happens into events of the node, until ctx ends.
func (n *Node) handleEvents(ctx context.Context, stopping, caughtUp <-chan struct{}) error {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		changed := n.cluster.Changed() // before the members are read, so that no change is missed
		n.updateOthers()
		if caughtUp == nil && (n.Name == "" || n.cluster.IsPublished()) {
			n.handle(announcementSeen)
		}
		select {
		case <-changed:
		case <-caughtUp:
			caughtUp = nil // a closed channel would be received from again
			n.handle(storesCaughtUp)
		case <-stopping:
			stopping = nil
			n.handle(stopRequested)
		case <-tick.C:
			if err := n.checkErasures(); err != nil {
				return err
			}
			n.handle(announcementDue)
		case <-n.changer.announcementDue:
			n.handle(announcementDue)
		case <-ctx.Done():
			return nil
		}
	}
}

// handle carries out the table of states for an event.
func (n *Node) handle(e nodeEvent) {
	before := n.State()
	after, action := before.next(e)
	if after != before {
		n.state.Store(uint32(after))
		n.Logger.Info("the state of this node has changed", "name", n.Name, "from", before, "to", after)
	}
	switch action {
	case stay:
	case announce:
		n.announce(n.servablePartitions())
	case reportReady:
		close(n.ready)
		n.announce(n.servablePartitions())
	case withdraw:
		n.announce(events.Partitions{})
	}
}

// State returns the state of the node.
func (n *Node) State() State { return State(n.state.Load()) }

// Ready is closed when the other nodes can know what this one serves, for the first time.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// IsReady reports whether the other nodes can know what this one serves.
func (n *Node) IsReady() bool {
	select {
	case <-n.ready:
		return true
	default:
		return false
	}
}

// AwaitComplete waits until the stores hold what the table says, which is something. It returns false if the context ends before.
func (n *Node) AwaitComplete(ctx context.Context) bool {
	select {
	case <-n.changer.complete:
		return true
	case <-ctx.Done():
		return false
	}
}

// checkErasures looks whether a user was erased. It fails if this node did not take part, and has rows that are wrong.
func (n *Node) checkErasures() error {
	_, err := n.Part.Look()
	if errors.Is(err, erase.ErrMissed) {
		return err
	}
	if err != nil {
		n.Logger.Error("the erasures in which this node took part cannot be noted", "error", err)
	}
	return nil
}

// takeMembers has the gateway ask the members that are alive now.
func (n *Node) updateOthers() {
	var others []gateway.Node
	for _, m := range n.cluster.Members() {
		if m.Name != n.Name {
			others = append(others, gateway.Node{Name: m.Name, Addr: m.Addr, Serves: m.Serves})
		}
	}
	n.others.Store(&others)
}

// servable returns the partitions for which others may ask this node: those that all stores hold, without those that it is about to drop.
func (n *Node) servablePartitions() events.Partitions {
	if !n.canAnswer() {
		return events.Partitions{}
	}
	serves := n.server.Serves()
	if wanted := n.changer.wanted.Load(); wanted != nil {
		serves.Intersect(wanted)
	}
	return serves
}

// canAnswer reports whether all stores work, and have once been at the head of the log together.
func (n *Node) canAnswer() bool {
	for _, s := range n.Stores {
		switch s.Status().State {
		case store.Failed, store.Stopped, store.Outdated:
			return false
		case store.Starting, store.CatchingUp:
			// A store that is recovered catches up again, and answers meanwhile.
			if !n.allStoresWereAtHead {
				return false
			}
		}
	}
	n.allStoresWereAtHead = true
	return true
}

// announce tells the others what this node serves, in which state it is, and how far its stores are.
func (n *Node) announce(serves events.Partitions) {
	least := n.Stores[0].Cursor()
	for _, s := range n.Stores[1:] {
		if c := s.Cursor(); c.Seq < least.Seq {
			least = c
		}
	}
	n.cluster.SetState(n.State().String(), n.changer.slowest().String())
	n.cluster.Publish(serves, n.Log.Position(least.Seq).String())
}

// sources returns the other nodes, which have rows.
func (n *Node) sources() (sources []rebuild.Source) {
	epoch := n.Part.Epoch()
	for _, other := range n.Others() {
		sources = append(sources, rebuild.Source{
			Name: other.Name, Has: other.Serves,
			Rows: func(ctx context.Context, projection, fold string, of events.Partitions, do func(key, value []byte) error) error {
				return n.server.RowsOf(ctx, other, projection, fold, epoch, of, do)
			},
		})
	}
	return sources
}
