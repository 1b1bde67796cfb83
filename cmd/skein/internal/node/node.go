package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/events/wait"
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

const (
	// nodeRetry is the pause after an attempt to hold other partitions has failed.
	nodeRetry = 5 * time.Second
	// positionEvery is how often a node says how far it is.
	positionEvery = 2 * time.Second
	// dropAfter is how long a node still holds partitions after it has said that it does not serve them: calls that are under way, and
	// nodes that have not heard of it, ask it meanwhile.
	dropAfter = 10 * time.Second
)

// Node keeps the stores of the process what the table of the cluster says.
type Node struct {
	Options
	cluster *placement.Cluster
	// server asks the other nodes, and answers them. Attach sets it before Run.
	server *gateway.Server
	// others are the other nodes that are alive, as the gateway asks them.
	others atomic.Pointer[[]gateway.Node]
	// stopped is set when the process takes no more calls.
	stopped atomic.Bool
	// wasReady is set once ready was true. It belongs to the goroutine of Run.
	wasReady bool
	// keeps are the partitions that the node is to serve: it says nothing of others, which it will drop. nil means all that it holds.
	keeps atomic.Pointer[events.Partitions]
	// changes says that the node serves other partitions.
	changes chan struct{}
	// joined is closed when the others can know what this node serves, once its stores had caught up.
	joined chan struct{}
	// complete is closed when the stores hold what the table says for the first time.
	complete chan struct{}
}

// Open joins the cluster. The node neither says anything nor follows the cluster before Run.
func Open(ctx context.Context, o Options) (*Node, error) {
	n := &Node{Options: o, changes: make(chan struct{}), joined: make(chan struct{}), complete: make(chan struct{})}
	n.others.Store(&[]gateway.Node{})
	replicas, err := o.Log.Replicas(ctx)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	var self *placement.Member
	if o.Name != "" {
		self = &placement.Member{Name: o.Name, Addr: o.Addr, Zone: o.Zone, Weight: o.Weight}
	}
	n.cluster, err = placement.Open(ctx, placement.Options{
		JS: o.Log.JetStream(), LogID: fmt.Sprintf("%x", o.Log.ID()), Replicas: o.Copies, ReplaceAfter: o.ReplaceAfter,
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

// Run is a node until ctx ends. From when stopping ends it tells the others not to ask it.
func (n *Node) Run(ctx, stopping context.Context, caughtUp <-chan struct{}) error {
	n.look()
	joined := sync.OnceFunc(func() { close(n.joined) })
	said := false // since the stores have caught up
	ended := make(chan error, 2)
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- n.cluster.Run(within) }()
	go func() { n.follow(within); ended <- nil }()
	stops := stopping.Done()
	tick := time.NewTicker(positionEvery)
	defer tick.Stop()
	for {
		changed := n.cluster.Changed()
		n.look()
		if said && (n.Name == "" || n.cluster.Known()) {
			joined()
		}
		select {
		case <-changed:
		case <-caughtUp:
			n.say()
			said, caughtUp = true, nil
		case <-stops:
			n.stopped.Store(true)
			n.say()
			stops = nil
		case <-tick.C:
			if err := n.lookErased(); err != nil {
				cancel()
				return errors.Join(err, <-ended, <-ended)
			}
			n.say()
		case <-n.changes:
			n.say()
		case err := <-ended:
			cancel()
			return errors.Join(err, <-ended)
		}
	}
}

// Joined is closed when the others can know what this node serves, once its stores had caught up.
func (n *Node) Joined() <-chan struct{} { return n.joined }

// HasJoined reports whether the others can know what this node serves.
func (n *Node) HasJoined() bool {
	select {
	case <-n.joined:
		return true
	default:
		return false
	}
}

// lookErased looks whether a user was erased. It fails if this node did not take part, and has rows that are wrong.
func (n *Node) lookErased() error {
	_, err := n.Part.Look()
	if errors.Is(err, erase.ErrMissed) {
		return err
	}
	if err != nil {
		n.Logger.Error("the erasures in which this node took part cannot be noted", "error", err)
	}
	return nil
}

// look takes the members as the gateway asks them.
func (n *Node) look() {
	var others []gateway.Node
	for _, m := range n.cluster.Members() {
		if m.Name != n.Name {
			others = append(others, gateway.Node{Name: m.Name, Addr: m.Addr, Serves: m.Serves})
		}
	}
	n.others.Store(&others)
}

// say tells the others what this node serves, and how far its stores are.
func (n *Node) say() {
	serves := n.server.Serves()
	if keeps := n.keeps.Load(); keeps != nil {
		serves.Intersect(keeps)
	}
	if n.stopped.Load() || !n.ready() {
		serves = events.Partitions{}
	}
	least := n.Stores[0].Cursor()
	for _, s := range n.Stores[1:] {
		if c := s.Cursor(); c.Seq < least.Seq {
			least = c
		}
	}
	n.cluster.Say(serves, n.Log.Position(least.Seq).String())
}

// ready reports whether the others may ask this node: its stores work, and have once been at the head of the log.
func (n *Node) ready() bool {
	for _, s := range n.Stores {
		switch s.Status().State {
		case store.Failed, store.Stopped, store.Outdated:
			return false
		case store.Starting, store.CatchingUp:
			if !n.wasReady {
				return false
			}
		}
	}
	n.wasReady = true
	return true
}

// follow makes the stores hold what the table gives to this node, whenever that changes. What it no longer gives to it is served until the
// nodes that it gives it to serve it, and dropped some time after. After an erasure, it has the stores built anew.
func (n *Node) follow(ctx context.Context) {
	completed := sync.OnceFunc(func() { close(n.complete) })
	var leaves events.Partitions // what is to be dropped, and since when
	var since time.Time
	for ctx.Err() == nil {
		changed := n.cluster.Changed()
		due, err := n.Part.Look()
		to, held := n.target(), n.server.Serves()
		if last := n.keeps.Swap(&to); last == nil || *last != to {
			n.tell(ctx)
		}
		if now := held.Without(&to); now != leaves {
			leaves, since = now, time.Now()
		}
		held.AddSet(&to) // nothing is dropped together with what is added
		left := time.Until(since.Add(dropAfter))
		switch {
		case err != nil:
		case due:
			err = n.Builder.BuildErased(ctx)
		case !n.holds(held):
			err = n.resize(ctx, held)
		case leaves.Len() > 0 && left <= 0:
			err = n.resize(ctx, to)
		default:
			if to.Len() > 0 {
				completed()
			}
			n.await(ctx, changed, leaves.Len() > 0, left)
		}
		if err != nil && ctx.Err() == nil {
			n.Logger.Error("the stores of this node could not be built", "retry", nodeRetry, "error", err)
			_ = wait.For(ctx, nodeRetry) // the loop ends with the context
		}
	}
}

// await waits until the cluster changes or, if some partitions are to be dropped, so long at most.
func (n *Node) await(ctx context.Context, changed <-chan struct{}, drops bool, most time.Duration) {
	var over <-chan time.Time
	if drops {
		timer := time.NewTimer(most)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-changed:
	case <-n.Part.Wanted():
	case <-over:
	case <-ctx.Done():
	}
}

// tell has the others told what the node serves.
func (n *Node) tell(ctx context.Context) {
	select {
	case n.changes <- struct{}{}:
	case <-ctx.Done():
	}
}

// AwaitComplete waits until the stores hold what the table says, which is something. It returns false if the context ends before.
func (n *Node) AwaitComplete(ctx context.Context) bool {
	select {
	case <-n.complete:
		return true
	case <-ctx.Done():
		return false
	}
}

// target is what this node should hold.
func (n *Node) target() events.Partitions {
	table, members := n.cluster.Table(), n.cluster.Members()
	serves := func(name string, partition uint8) bool {
		i := slices.IndexFunc(members, func(m placement.Member) bool { return m.Name == name })
		return i >= 0 && members[i].Serves.Has(partition)
	}
	held := n.server.Serves()
	var to events.Partitions
	for p := range events.NumPartitions {
		partition, given := uint8(p), table.Nodes[p]
		mine := slices.Contains(given, n.Name)
		if !mine && held.Has(partition) {
			mine = len(given) == 0 || slices.ContainsFunc(given, func(name string) bool { return !serves(name, partition) })
		}
		if mine {
			to.Add(partition)
		}
	}
	return to
}

// holds reports whether all stores hold a set.
func (n *Node) holds(set events.Partitions) bool {
	return !slices.ContainsFunc(n.Stores, func(s *live.Live) bool { return s.Holds() != set })
}

// resize makes all stores hold a set. Calls meanwhile go by what all of them have.
func (n *Node) resize(ctx context.Context, to events.Partitions) error {
	release, err := n.Part.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	began := time.Now()
	o := n.Builder.ResizeOptions(ctx)
	o.Sources, o.Turn = n.sources, &sync.Mutex{}
	all, within := errgroup.WithContext(ctx)
	for _, s := range n.Stores {
		if s.Holds() != to {
			all.Go(func() error { return n.resizeOne(within, s, to, o) })
		}
	}
	if err := all.Wait(); err != nil {
		return err
	}
	n.tell(ctx)
	n.Logger.Info("this node holds other partitions", "partitions", to.Len(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func (n *Node) resizeOne(ctx context.Context, s *live.Live, to events.Partitions, o rebuild.Options) error {
	report, err := rebuild.Resize(ctx, s, to, n.Builder.Subscribe, o)
	if err != nil {
		return err
	}
	n.Logger.Debug("a store holds other partitions", "projection", s.Name(), "report", report)
	// A rollback would bring back partitions that others hold now, and the files of those take disk.
	return s.DeletePrevious(ctx)
}

// sources returns the other nodes, which have rows.
func (n *Node) sources() (sources []rebuild.Source) {
	epoch := n.Part.Epoch()
	for _, other := range *n.others.Load() {
		sources = append(sources, rebuild.Source{
			Name: other.Name, Has: other.Serves,
			Rows: func(ctx context.Context, projection, fold string, of events.Partitions, do func(key, value []byte) error) error {
				return n.server.RowsOf(ctx, other, projection, fold, epoch, of, do)
			},
		})
	}
	return sources
}
