package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/rebuild"
)

// waitLimit bounds how long a test waits for something that must happen.
const waitLimit = 2 * time.Minute

// hubBuilder builds stores from a log that a hub reads.
type hubBuilder struct {
	log *eventlog.Log
	hub *eventlog.Hub
}

// hubSubscription is a subscription as a store reads it.
type hubSubscription struct {
	*eventlog.Subscription

	hub *eventlog.Hub
}

func (s hubSubscription) Head() uint64 { return s.hub.Head() }

func (b hubBuilder) Subscribe(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		from = b.log.Start()
	}
	sub, err := b.hub.SubscribeKinds(from, kinds)
	if err != nil {
		return nil, err
	}
	return hubSubscription{sub, b.hub}, nil
}

func (hubBuilder) ResizeOptions(context.Context) rebuild.Options { return rebuild.Options{} }

func (hubBuilder) RebuildAfterErasure(context.Context) error {
	return errors.New("nobody was erased")
}

// renewEvery is short because a change of the table waits for two renewals. A node is silent only
// after placement.DefaultExpireAfter, also on a busy machine.
const renewEvery = 50 * time.Millisecond

// openTestNode opens the node node-1 with one store and an empty log. Its changer does not run, but
// the node takes part in the cluster until the test ends.
func openTestNode(t *testing.T) *Node {
	t.Helper()
	log, err := eventlog.Open(t.Context(), eventlog.Config{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	graphStore, err := live.Open(live.Options{
		New:     func() projections.Projection { return graph.New() },
		Options: store.Options{FS: vfs.NewMem(), Dir: "data", Partitioned: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		hub.Close()
		if err := errors.Join(graphStore.Close(), log.Close(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})

	stores := []*live.Live{graphStore}
	part := &erase.Part{Log: log, Stores: stores}
	if err := part.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	n, err := Open(t.Context(), Options{
		Config: Config{Name: "node-1", Addr: "127.0.0.1:1", Copies: 1},
		Log:    log, Hub: hub, Stores: stores, Erasure: part, Builder: hubBuilder{log, hub}, Logger: slog.New(slog.DiscardHandler),
		RenewEvery: renewEvery,
	})
	if err != nil {
		t.Fatal(err)
	}
	runCluster(t, n.cluster)

	// Nobody reads what the changer wants to be announced.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	go func() {
		for {
			select {
			case <-n.changer.announcementDue:
			case <-ctx.Done():
				return
			}
		}
	}()
	return n
}

// runCluster runs the part of a node in its cluster until the test ends.
func runCluster(t *testing.T, c *placement.Cluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// waitForCluster waits until a condition holds for what a process has read of the cluster.
func waitForCluster(ctx context.Context, t *testing.T, c *placement.Cluster, what string, holds func() bool) {
	t.Helper()
	for {
		changed := c.Changed()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, ctx.Err())
		}
	}
}

// partitionsOf returns the partitions that the table of a cluster gives to a node.
func partitionsOf(c *placement.Cluster, name string) (given events.Partitions) {
	table := c.Table()
	for p := range events.NumPartitions {
		for _, owner := range table.Nodes[p] {
			if owner == name {
				given.Add(uint8(p))
			}
		}
	}
	return given
}

// servedBy returns the partitions that a node of a cluster announces.
func servedBy(c *placement.Cluster, name string) (serves events.Partitions) {
	for _, m := range c.Members() {
		if m.Name == name {
			serves = m.Serves
		}
	}
	return serves
}

// TestChangeIsDecidedAgainAfterWaiting: a node decides to drop partitions that another node serves.
// It must wait, because something else builds generations of its stores. Meanwhile the other node
// withdraws these partitions. Then the first node must not drop them.
func TestChangeIsDecidedAgainAfterWaiting(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	n := openTestNode(t)
	all := events.AllPartitions()
	waitForCluster(ctx, t, n.cluster, "the table of one node", func() bool { return partitionsOf(n.cluster, "node-1") == all })
	if err := n.changer.carryOut(ctx, n.changer.readSituation(), nil, func() {}); err != nil {
		t.Fatal(err)
	}
	if held := n.Stores[0].Holds(); held != all {
		t.Fatalf("the only node holds the partitions %s, expected all", &held)
	}

	// Another node serves what the new table gives to it.
	other, err := placement.Open(ctx, placement.Options{
		JS: n.Log.JetStream(), LogID: fmt.Sprintf("%x", n.Log.ID()), Copies: 1, RenewEvery: renewEvery,
		Self: &placement.Member{Name: "node-2", Addr: "127.0.0.1:2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	runCluster(t, other)
	waitForCluster(ctx, t, other, "the table of two nodes", func() bool {
		given := partitionsOf(other, "node-2")
		return given.Len() > 0
	})
	given := partitionsOf(other, "node-2")

	for _, withdrawalWakes := range []bool{false, true} {
		other.Announce(placement.Announcement{Serves: given})
		waitForCluster(ctx, t, n.cluster, "the announcement of node-2", func() bool { return servedBy(n.cluster, "node-2") == given })
		changed := n.cluster.Changed()
		if !withdrawalWakes {
			changed = nil
		}
		s := n.changer.readSituation()
		s.withdrawnFor = dropAfter
		if decided, to := s.decide(); decided != change || to != all.Without(&given) {
			t.Fatalf("got the decision %d with the partitions %s, expected to drop %s", decided, &to, &given)
		}

		// Carry out the decision while something else holds the lock, and withdraw the partitions.
		release, err := n.Erasure.LockBuilds(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- n.changer.carryOut(ctx, s, changed, func() {}) }()
		other.Announce(placement.Announcement{})
		waitForCluster(ctx, t, n.cluster, "the withdrawal of node-2", func() bool { return servedBy(n.cluster, "node-2") != given })

		// A node that hears of the withdrawal does not wait for the lock, so that it can announce
		// the partitions again.
		if !withdrawalWakes {
			release()
		}
		if err := <-ended; err != nil {
			t.Errorf("carry out: %v", err)
		}
		if withdrawalWakes {
			release()
		}
		if held := n.Stores[0].Holds(); held != all {
			t.Errorf("the node holds the partitions %s, expected all: no other node serves %s", &held, &given)
		}
	}
}
