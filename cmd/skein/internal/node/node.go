package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
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

// Config is how an operator configures a node.
type Config struct {
	// Name identifies the node, also after a restart. A router, which holds no partitions, has the
	// empty name.
	Name string
	// Addr is the host:port at which the other nodes reach this one. Listener accepts their
	// connections; it is nil for a router.
	Addr     string
	Listener net.Listener
	// Zone is a part of the data center that can fail as a whole. The copies of a partition are in
	// different zones if there are enough.
	Zone string
	// Weight is the share of partitions that the node gets, relative to the weights of the other
	// nodes.
	Weight int
	// Copies is how many nodes hold each partition.
	Copies int
	// ReplaceAfter is how long a node may be silent before other nodes take over its partitions.
	ReplaceAfter time.Duration
}

// Options are the configuration of a node and the parts of the process that it uses.
type Options struct {
	Config

	Log    *eventlog.Log
	Hub    *eventlog.Hub
	Stores []*live.Live
	// Erasure performs this node's part when a user is erased. It must be open.
	Erasure *erase.Part
	Builder Builder
	Logger  *slog.Logger
	// RenewEvery is the time between two renewals of the node key; 0 means
	// [placement.DefaultRenewEvery]. It must be the same for all nodes of a cluster.
	RenewEvery time.Duration
}

// Builder builds the stores of the process.
type Builder interface {
	// ResizeOptions returns the options for building a store with other partitions. The node adds
	// the nodes from which rows can be copied.
	ResizeOptions(ctx context.Context) rebuild.Options
	// Subscribe subscribes a fold that reads only events of these kinds.
	Subscribe(from events.Cursor, kinds events.KindSet) (store.Subscription, error)
	// RebuildAfterErasure rebuilds the stores after a user was erased.
	RebuildAfterErasure(ctx context.Context) error
}

// announceEvery is how often a node announces itself, with the position of its stores. Other nodes
// take it for lost when it is silent for too long.
const announceEvery = 2 * time.Second

// Node is a node of a cluster. The package doc describes its states.
type Node struct {
	Options

	cluster *placement.Cluster
	// server asks the other nodes and answers them. Attach sets it before Run.
	server *gateway.Server
	// others are the other nodes that are alive.
	others  atomic.Pointer[[]gateway.Node]
	changer *changer

	// state is a State. Only the goroutine of handleEvents changes it.
	state atomic.Uint32
	// ready is closed when the node goes from Joining to Serving.
	ready chan struct{}
	// withdrawn is closed when the bucket says that the node, which is Leaving, serves nothing, or
	// when Run has returned. closeWithdrawn closes it and may be called again.
	withdrawn      chan struct{}
	closeWithdrawn func()
	// allStoresWereAtHead says that all stores have once been at the head of the log at the same
	// time. canAnswer sets it. Only the goroutine of handleEvents uses it.
	allStoresWereAtHead bool
}

// Open joins the cluster. The node announces itself, and changes its partitions, only while Run is
// running.
func Open(ctx context.Context, o Options) (*Node, error) {
	n := &Node{Options: o, ready: make(chan struct{}), withdrawn: make(chan struct{})}
	n.closeWithdrawn = sync.OnceFunc(func() { close(n.withdrawn) })
	n.changer = newChanger(n)
	n.others.Store(&[]gateway.Node{})

	// The bucket must survive the loss of as many servers as the log does.
	replicas, _, err := o.Log.Replicas(ctx)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	var self *placement.Member // nil for a router, which is no member
	if o.Name != "" {
		self = &placement.Member{
			Name: o.Name, Addr: o.Addr, Zone: o.Zone, Weight: o.Weight, Announcement: placement.Announcement{State: Joining.String()},
		}
	}
	n.cluster, err = placement.Open(ctx, placement.Options{
		JS:             o.Log.JetStream(),
		LogID:          fmt.Sprintf("%x", o.Log.ID()),
		Copies:         o.Copies,
		RenewEvery:     o.RenewEvery,
		ReplaceAfter:   o.ReplaceAfter,
		BucketReplicas: replicas,
		Logger:         o.Logger,
		Self:           self,
	})
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	return n, nil
}

// Attach sets the server that asks the other nodes and answers them. It must be called once, before
// Run. Open cannot take the server, because the server needs the node.
func (n *Node) Attach(server *gateway.Server) { n.server = server }

// Others returns the other nodes that are alive.
func (n *Node) Others() []gateway.Node { return *n.others.Load() }

// Run runs the node until ctx ends. The context stopping must end before ctx; the node then tells
// the other nodes not to ask it any more, and the caller should wait for that by AwaitWithdrawn
// before it ends ctx. caughtUp must be closed when every store has been at the head of the log or
// has failed. Run fails if another process takes the name of the node, or if a user was erased
// while the node did not take part.
func (n *Node) Run(ctx, stopping context.Context, caughtUp <-chan struct{}) error {
	defer n.closeWithdrawn()
	n.updateOthers() // the changer needs the other nodes, to copy rows from them

	goroutines, ctx := errgroup.WithContext(ctx)
	goroutines.Go(func() error { return n.cluster.Run(ctx) })
	goroutines.Go(func() error { return n.changer.Run(ctx) })
	goroutines.Go(func() error { return n.handleEvents(ctx, stopping.Done(), caughtUp) })
	return goroutines.Wait()
}

// handleEvents handles the events of the node as they happen, until ctx ends.
func (n *Node) handleEvents(ctx context.Context, stopping, caughtUp <-chan struct{}) error {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		// Take the channel before the members are read, so that no later change is missed.
		changed := n.cluster.Changed()
		n.updateOthers()

		// caughtUp is nil after the stores have caught up. A node that leaves does not wait for
		// that. A router announces nothing, so it does not wait until the bucket has its
		// announcement.
		isDue := caughtUp == nil || n.State() == Leaving
		if isDue && (n.Name == "" || n.cluster.IsAnnounced()) {
			n.handle(announcementSeen)
		}

		// A channel that was closed is set to nil, because select would choose it again and again.
		select {
		case <-changed:
		case <-caughtUp:
			caughtUp = nil
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

// handle changes the state and performs the action that nodeTransitions has for an event.
func (n *Node) handle(e nodeEvent) {
	before := n.State()
	after, action := before.next(e)
	if after != before {
		n.state.Store(uint32(after))
		n.Logger.Info("the state of this node has changed", "name", n.Name, "from", before, "to", after)
	}

	switch action {
	case noAction:
	case announce:
		n.announce(n.servablePartitions())
	case reportReady:
		close(n.ready)
		n.announce(n.servablePartitions())
	case withdraw:
		n.announce(events.Partitions{})
	case reportWithdrawn:
		n.closeWithdrawn()
	}
}

// State returns the state of the node.
func (n *Node) State() State { return State(n.state.Load()) }

// Ready returns a channel that is closed when the other nodes can know, for the first time, what
// this one serves.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// IsReady reports whether the channel of Ready is closed.
func (n *Node) IsReady() bool {
	select {
	case <-n.ready:
		return true
	default:
		return false
	}
}

// withdrawTimeout is how long AwaitWithdrawn waits at most. It is long enough for another attempt
// after a request to the bucket that got no answer, and short enough for the end of a process while
// the bucket is out of reach.
const withdrawTimeout = 10 * time.Second

// AwaitWithdrawn waits until the other nodes can know that this one serves nothing any more.
// Otherwise they would ask it after its end, until they notice its silence. The context stopping
// must have been ended before. AwaitWithdrawn returns after some seconds at the latest, and when
// Run has returned.
func (n *Node) AwaitWithdrawn() {
	timer := time.NewTimer(withdrawTimeout)
	defer timer.Stop()
	select {
	case <-n.withdrawn:
	case <-timer.C:
		n.Logger.Warn("the other nodes may not know that this one leaves: the bucket of the cluster does not have it yet")
	}
}

// AwaitComplete waits until the table gives partitions to this node and the stores hold all of
// them. It returns false if ctx ends before that.
func (n *Node) AwaitComplete(ctx context.Context) bool {
	select {
	case <-n.changer.complete:
		return true
	case <-ctx.Done():
		return false
	}
}

// checkErasures fails if a user was erased and this node did not take part. Its stores then still
// have rows of the user, so the process must stop, and the next start removes the stores. Other
// errors are logged.
func (n *Node) checkErasures() error {
	_, err := n.Erasure.CheckErasures()
	if errors.Is(err, erase.ErrMissed) {
		return err
	}
	if err != nil {
		n.Logger.Error("the state of erasures on this node could not be checked or stored", "error", err)
	}
	return nil
}

// updateOthers makes the gateway ask the nodes that are alive now.
func (n *Node) updateOthers() {
	var others []gateway.Node
	for _, m := range n.cluster.Members() {
		if m.Name != n.Name {
			others = append(others, gateway.Node{Name: m.Name, Addr: m.Addr, Serves: m.Serves})
		}
	}
	n.others.Store(&others)
}

// servablePartitions returns the partitions for which others may ask this node: those that all
// stores hold, without those that are about to be dropped.
func (n *Node) servablePartitions() events.Partitions {
	if !n.canAnswer() {
		return events.Partitions{}
	}
	serves := n.server.Serves()
	wanted := n.changer.wanted.Load()
	if wanted != nil {
		serves.Intersect(wanted)
	}
	return serves
}

// canAnswer reports whether all stores work, and have once been at the head of the log at the same
// time. A store that is recovered later catches up again; meanwhile it answers from its position,
// and canAnswer still returns true.
func (n *Node) canAnswer() bool {
	for _, s := range n.Stores {
		switch s.Status().State {
		case store.Failed, store.Stopped, store.Outdated:
			return false
		case store.Starting, store.CatchingUp:
			if !n.allStoresWereAtHead {
				return false
			}
		}
	}
	n.allStoresWereAtHead = true
	return true
}

// announce tells the other nodes which partitions they may ask this one for, its state, and the
// position of its slowest store.
func (n *Node) announce(serves events.Partitions) {
	leastSeq := n.Stores[0].Cursor().Seq
	for _, s := range n.Stores[1:] {
		leastSeq = min(leastSeq, s.Cursor().Seq)
	}
	n.cluster.Announce(placement.Announcement{
		Serves:          serves,
		State:           n.State().String(),
		PartitionChange: n.changer.slowest().String(),
		Position:        n.Log.Position(leastSeq).String(),
	})
}

// sources returns the other nodes as sources of rows. They refuse to give rows if their stores may
// contain a user who was erased before the epoch of this node's stores.
func (n *Node) sources() (sources []rebuild.Source) {
	epoch := n.Erasure.Epoch()
	for _, other := range n.Others() {
		sources = append(sources, rebuild.Source{
			Name: other.Name,
			Has:  other.Serves,
			Rows: func(ctx context.Context, projection, fold string, of events.Partitions, do func(key, value []byte) error) error {
				return n.server.RowsOf(ctx, other, projection, fold, epoch, of, do)
			},
		})
	}
	return sources
}
