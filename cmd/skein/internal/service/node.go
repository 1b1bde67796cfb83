package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/rebuild"
)

// NodeOptions make the process a node of a cluster: its stores hold the partitions that the table of the cluster gives it.
type NodeOptions struct {
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

const (
	// nodeRetry is the pause after an attempt to hold other partitions has failed.
	nodeRetry = 5 * time.Second
	// positionEvery is how often a node says how far it is.
	positionEvery = 2 * time.Second
	// dropAfter is how long a node still holds partitions after it has said that it does not serve them: calls that are under way, and
	// nodes that have not heard of it, ask it meanwhile.
	dropAfter = 10 * time.Second
)

// node keeps the process what the table says.
type node struct {
	NodeOptions
	a       *Service
	cluster *placement.Cluster
	// others are the other nodes that are alive, as the gateway asks them.
	others atomic.Pointer[[]gateway.Node]
	// stopped is set when the process takes no more calls.
	stopped atomic.Bool
	// wasReady is set once ready was true. It belongs to the goroutine of run.
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

// openNode joins the cluster, if the process is a node.
func (a *Service) openNode(ctx context.Context, o *NodeOptions, registry prometheus.Registerer) (err error) {
	if o == nil {
		return nil
	}
	a.part = &erase.Part{Log: a.log, Archive: a.archive, Stores: a.Stores, Snapshots: a.copies}
	if err := a.part.Open(a.dir); err != nil {
		return err
	}
	n := &node{NodeOptions: *o, a: a, changes: make(chan struct{}), joined: make(chan struct{}), complete: make(chan struct{})}
	n.others.Store(&[]gateway.Node{})
	replicas, err := a.log.Replicas(ctx)
	if err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	var self *placement.Member
	if o.Name != "" {
		self = &placement.Member{Name: o.Name, Addr: o.Addr, Zone: o.Zone, Weight: o.Weight}
	}
	n.cluster, err = placement.Open(ctx, placement.Options{
		JS: a.log.JetStream(), LogID: fmt.Sprintf("%x", a.log.ID()), Replicas: o.Copies, ReplaceAfter: o.ReplaceAfter,
		BucketReplicas: replicas, Logger: a.logger, Self: self,
	})
	if err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	a.node = n
	return registry.Register(newClusterCollector(n))
}

// nodes returns what the gateway asks; nil outside of a cluster.
func (a *Service) nodes() func() []gateway.Node {
	if a.node == nil {
		return nil
	}
	return func() []gateway.Node { return *a.node.others.Load() }
}

// joined returns what reports whether other nodes can know what this one serves; nil outside of a cluster.
func (a *Service) joined() func() bool {
	if a.node == nil {
		return nil
	}
	return a.node.hasJoined
}

// run is a node until ctx ends. From when stopping ends it tells the others not to ask it.
func (n *node) run(ctx, stopping context.Context, caughtUp <-chan struct{}) error {
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

// hasJoined reports whether the others can know what this node serves.
func (n *node) hasJoined() bool {
	select {
	case <-n.joined:
		return true
	default:
		return false
	}
}

// lookErased looks whether a user was erased. It fails if this node did not take part, and has rows that are wrong.
func (n *node) lookErased() error {
	_, err := n.a.part.Look()
	if errors.Is(err, erase.ErrMissed) {
		return err
	}
	if err != nil {
		n.a.logger.Error("the erasures in which this node took part cannot be noted", "error", err)
	}
	return nil
}

// look takes the members as the gateway asks them.
func (n *node) look() {
	var others []gateway.Node
	for _, m := range n.cluster.Members() {
		if m.Name != n.Name {
			others = append(others, gateway.Node{Name: m.Name, Addr: m.Addr, Serves: m.Serves})
		}
	}
	n.others.Store(&others)
}

// say tells the others what this node serves, and how far its stores are.
func (n *node) say() {
	serves := n.a.server.Serves()
	if keeps := n.keeps.Load(); keeps != nil {
		serves.Intersect(keeps)
	}
	if n.stopped.Load() || !n.ready() {
		serves = events.Partitions{}
	}
	least := n.a.Stores[0].Cursor()
	for _, s := range n.a.Stores[1:] {
		if c := s.Cursor(); c.Seq < least.Seq {
			least = c
		}
	}
	n.cluster.Say(serves, n.a.log.Position(least.Seq).String())
}

// ready reports whether the others may ask this node: its stores work, and have once been at the head of the log.
func (n *node) ready() bool {
	for _, s := range n.a.Stores {
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
func (n *node) follow(ctx context.Context) {
	completed := sync.OnceFunc(func() { close(n.complete) })
	var leaves events.Partitions // what is to be dropped, and since when
	var since time.Time
	for ctx.Err() == nil {
		changed := n.cluster.Changed()
		due, err := n.a.part.Look()
		to, held := n.target(), n.a.server.Serves()
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
			err = n.a.buildErased(ctx)
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
			n.a.logger.Error("the stores of this node could not be built", "retry", nodeRetry, "error", err)
			_ = wait.For(ctx, nodeRetry) // the loop ends with the context
		}
	}
}

// await waits until the cluster changes or, if some partitions are to be dropped, so long at most.
func (n *node) await(ctx context.Context, changed <-chan struct{}, drops bool, most time.Duration) {
	var over <-chan time.Time
	if drops {
		timer := time.NewTimer(most)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-changed:
	case <-n.a.part.Wanted():
	case <-over:
	case <-ctx.Done():
	}
}

// tell has the others told what the node serves.
func (n *node) tell(ctx context.Context) {
	select {
	case n.changes <- struct{}{}:
	case <-ctx.Done():
	}
}

// built waits until the stores hold what the table says, which is something. It returns false if the context ends before.
func (n *node) built(ctx context.Context) bool {
	select {
	case <-n.complete:
		return true
	case <-ctx.Done():
		return false
	}
}

// target is what this node should hold.
func (n *node) target() events.Partitions {
	table, members := n.cluster.Table(), n.cluster.Members()
	serves := func(name string, partition uint8) bool {
		i := slices.IndexFunc(members, func(m placement.Member) bool { return m.Name == name })
		return i >= 0 && members[i].Serves.Has(partition)
	}
	held := n.a.server.Serves()
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
func (n *node) holds(set events.Partitions) bool {
	return !slices.ContainsFunc(n.a.Stores, func(s *live.Live) bool { return s.Holds() != set })
}

// resize makes all stores hold a set. Calls meanwhile go by what all of them have.
func (n *node) resize(ctx context.Context, to events.Partitions) error {
	release, err := n.a.part.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	began := time.Now()
	o := n.a.rebuildOptions(ctx, 0, nil)
	o.Sources, o.Turn = n.sources, &sync.Mutex{}
	all, within := errgroup.WithContext(ctx)
	for _, s := range n.a.Stores {
		if s.Holds() != to {
			all.Go(func() error { return n.resizeOne(within, s, to, o) })
		}
	}
	if err := all.Wait(); err != nil {
		return err
	}
	n.tell(ctx)
	n.a.logger.Info("this node holds other partitions", "partitions", to.Len(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func (n *node) resizeOne(ctx context.Context, s *live.Live, to events.Partitions, o rebuild.Options) error {
	report, err := rebuild.Resize(ctx, s, to, n.a.sourceOf, o)
	if err != nil {
		return err
	}
	n.a.logger.Debug("a store holds other partitions", "projection", s.Name(), "report", report)
	// A rollback would bring back partitions that others hold now, and the files of those take disk.
	return s.DeletePrevious(ctx)
}

// sources returns the other nodes, which have rows.
func (n *node) sources() (sources []rebuild.Source) {
	epoch := n.a.part.Epoch()
	for _, other := range *n.others.Load() {
		sources = append(sources, rebuild.Source{
			Name: other.Name, Has: other.Serves,
			Rows: func(ctx context.Context, projection, fold string, of events.Partitions, do func(key, value []byte) error) error {
				return n.a.server.RowsOf(ctx, other, projection, fold, epoch, of, do)
			},
		})
	}
	return sources
}
