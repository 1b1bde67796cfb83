package placement

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events/wait"
)

// All nodes of a cluster share one bucket of the NATS key-value store, with four kinds of keys.
// Each node writes its node key every few seconds: its address, the partitions that it serves, and
// what else a [Member] has. One node at a time holds the lease and is the controller. It renews the
// lease as often as its node key. If it does not renew the lease, another node takes it. The
// controller writes the table, which says which nodes should hold each partition. A drain key
// exists for each node that should hold no partitions. The package documentation has a drawing.

var (
	// ErrNameTakenOver is returned by Run if another process runs a node of the same name and has
	// overwritten the node key after this process wrote it.
	ErrNameTakenOver = errors.New("placement: a newer process has taken over the name of the node")
	// ErrUnknownNode means that the bucket has no node key with this name, as far as this process
	// has read the bucket.
	ErrUnknownNode = errors.New("placement: the bucket has no node of this name")
)

// The defaults of [Options].
const (
	DefaultCopies       = 2
	DefaultRenewEvery   = 2 * time.Second
	DefaultExpireAfter  = 20 * time.Second
	DefaultReplaceAfter = time.Minute
)

// requestTimeout bounds one request to the server.
const requestTimeout = 5 * time.Second

// openTimeout is how long Open keeps trying to read the bucket. Servers that have just started
// elect leaders first, and cannot answer before they have done so.
const openTimeout = time.Minute

// Options say which cluster a process takes part in, and how.
type Options struct {
	// JS is the JetStream of the servers that store the bucket. It must not be nil. The caller
	// closes its connection.
	JS jetstream.JetStream
	// LogID is the id of the event log that all nodes of the cluster read: 1 to 64 letters, digits,
	// - and _. The bucket is named skein-cluster-LOGID.
	LogID string
	// Self describes the node that this process runs. Name and Addr are required, a Weight of 0
	// means 1, and Draining is ignored. If Self is nil, the process runs no node: it only reads
	// the bucket, which Open creates if it is missing, and may write drain keys.
	Self *Member
	// Copies is the number of nodes that should hold each partition; 0 means DefaultCopies. It is
	// used while this node is the controller.
	Copies int
	// RenewEvery is the time between two renewals of a node key, and of the lease; 0 means
	// DefaultRenewEvery. All processes of a cluster must use the same RenewEvery and the same
	// ExpireAfter, because each process judges the renewals of all nodes by its own settings.
	RenewEvery time.Duration
	// ExpireAfter is how long a node is taken for alive without a renewal of its node key
	// ([Cluster.Members]); 0 means DefaultExpireAfter. After that, the node still keeps its
	// partitions in the table until ReplaceAfter has passed. If the lease is not renewed for
	// ExpireAfter, another node may take it. ExpireAfter must be at least 3*RenewEvery.
	ExpireAfter time.Duration
	// ReplaceAfter is how long the controller waits for a renewal of a node key. Then it deletes
	// the key and assigns the node's partitions to other nodes. 0 means DefaultReplaceAfter. It
	// must be at least ExpireAfter.
	ReplaceAfter time.Duration
	// BucketReplicas is the number of NATS servers that store the bucket; 0 means 1. It is used
	// only by the process that creates the bucket.
	BucketReplicas int
	// Logger receives outages of the bucket and changes of the cluster; nil discards them.
	Logger *slog.Logger
}

// checkAndSetDefaults sets the defaults and returns an error if an option is invalid. It replaces
// Self by a copy, so that the caller's Member is not changed.
func (o *Options) checkAndSetDefaults() error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Copies = cmp.Or(o.Copies, DefaultCopies)
	o.RenewEvery = cmp.Or(o.RenewEvery, DefaultRenewEvery)
	o.ExpireAfter = cmp.Or(o.ExpireAfter, DefaultExpireAfter)
	o.ReplaceAfter = cmp.Or(o.ReplaceAfter, DefaultReplaceAfter)
	o.BucketReplicas = cmp.Or(o.BucketReplicas, 1)

	if err := checkName("id of the event log", o.LogID); err != nil {
		return err
	}
	switch {
	case o.Copies < 0:
		return fmt.Errorf("placement: Copies must not be negative, is %d", o.Copies)
	case o.BucketReplicas < 0:
		return fmt.Errorf("placement: BucketReplicas must not be negative, is %d", o.BucketReplicas)
	case o.RenewEvery < 0:
		return fmt.Errorf("placement: RenewEvery must not be negative, is %v", o.RenewEvery)
	case o.ExpireAfter < 3*o.RenewEvery:
		return fmt.Errorf("placement: ExpireAfter must be at least 3*RenewEvery, %v, but is %v", 3*o.RenewEvery, o.ExpireAfter)
	case o.ReplaceAfter < o.ExpireAfter:
		return fmt.Errorf("placement: ReplaceAfter must be at least ExpireAfter, %v, but is %v", o.ExpireAfter, o.ReplaceAfter)
	}
	if o.Self == nil {
		return nil
	}

	self := *o.Self
	self.Weight = cmp.Or(self.Weight, 1)
	self.Draining = false // only the drain key in the bucket makes a node drain
	o.Self = &self
	return self.check()
}

// Cluster is the access of one process to the bucket of its cluster, with a copy in memory of what
// the bucket contains. If the process runs a node, Run also keeps that node a member of the
// cluster. The methods may be called concurrently, Run only once.
type Cluster struct {
	opts Options
	// instance is a random id of this Cluster. It distinguishes two processes that run a node of
	// the same name.
	instance string
	// announceNow wakes up renewAndControl before the next renewal is due, because the announced
	// partitions have changed.
	announceNow chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	// kv is the open bucket. Open sets it. It is replaced after the bucket was deleted and created
	// again.
	kv jetstream.KeyValue
	// bucketCreated is when the server created the bucket. If this time changes, the bucket was
	// deleted and created again, and its revisions begin at 1 again.
	bucketCreated time.Time
	// bucketState is the copy of the bucket.
	bucketState *bucketState
	// ackedRevisions has, for the keys that Run writes, the revision of the last write that the
	// server has acknowledged. The watch of the bucket may deliver older revisions after that,
	// which must not replace what was written.
	ackedRevisions map[string]uint64
	// self is what Run writes to the node key next: opts.Self with the last Announcement.
	self Member
	// wroteNodeKey is set when this instance has written its node key. If the node key has the
	// value of another instance before that, an earlier process has left the value. If it has one
	// after that, another process has taken over the name, and this one stops.
	wroteNodeKey bool
	// changed is the channel that Changed returns. It is closed and replaced at each change.
	changed chan struct{}
	// failingAccess has the kinds of access to the bucket whose last attempt failed.
	failingAccess map[bucketAccess]bool
}

// Open creates the bucket if it is missing, and reads all its keys. It ignores values that it
// cannot decode; see [Cluster.UnreadableKeys]. If the bucket cannot be read, Open tries again for
// up to a minute.
//
// Clocks of machines differ, so a process measures how long a node is silent by its own clock, from
// Open on. So at first, Members contains every node that has a key, even one that stopped long ago.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.checkAndSetDefaults(); err != nil {
		return nil, err
	}
	c := &Cluster{
		opts:           o,
		instance:       rand.Text(),
		announceNow:    make(chan struct{}, 1),
		bucketState:    newBucketState(o.RenewEvery, o.ExpireAfter),
		ackedRevisions: map[string]uint64{},
		changed:        make(chan struct{}),
		failingAccess:  map[bucketAccess]bool{},
	}
	if o.Self != nil {
		c.self = *o.Self
	}

	openCtx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for failures := 0; ; failures++ {
		err := c.readBucket(openCtx)
		if err == nil {
			return c, nil
		}
		if wait.For(openCtx, c.retryDelay(failures)) != nil {
			return nil, err // the error of the last attempt says more than that of openCtx
		}
	}
}

// Run keeps the copy of the bucket up to date, which the methods that return something read. If the
// process runs a node, Run also renews the node key, and does the controller's work while this node
// has the lease. Run retries while the bucket is out of reach. It returns [ErrNameTakenOver] when a
// later process has taken over the name of Self.
//
// When ctx ends, Run returns nil. It deletes neither the node key nor the lease: most nodes that
// stop are soon started again, and then keep their partitions. If the node was the controller, the
// cluster has no controller until another process has seen no renewal of the lease for ExpireAfter.
func (c *Cluster) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.watchBucket(ctx) })
	if c.opts.Self != nil {
		group.Go(func() error { return c.renewAndControl(ctx) })
	}
	return group.Wait()
}

// Announce sets what the next renewal of the node key will say. If the partitions that the node
// serves have changed, Run renews the key at once. In a process without a node, nobody sees what is
// announced.
func (c *Cluster) Announce(a Announcement) {
	c.mu.Lock()
	partitionsChanged := c.self.Serves != a.Serves
	c.self.Announcement = a
	c.mu.Unlock()

	if partitionsChanged {
		select {
		case c.announceNow <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

// IsAnnounced reports whether this process has read its own node key with the partitions of the
// last Announce, so that other processes can read them, too. It is false in a process without a
// node.
func (c *Cluster) IsAnnounced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.bucketState.nodes[c.self.Name]
	return n != nil && n.instance == c.instance && n.Serves == c.self.Serves
}

// Members returns the nodes that are alive, sorted by name. A node is alive if this process has
// read a renewal of its node key, or the key itself in Open, within ExpireAfter. If this process
// reads no write of any node for some time, that time does not count, because the process cannot
// know whether the nodes have stopped or the bucket is out of reach. So the result stays as it is
// during an outage of the bucket, and also when all nodes have stopped.
func (c *Cluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bucketState.alive)
}

// SilentNodes returns the nodes that have a node key but are not alive, as their last renewals
// describe them, sorted by name.
func (c *Cluster) SilentNodes() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.bucketState.membersWithKey(), func(m Member) bool { return c.bucketState.isAlive(m.Name) })
}

// UnreadableKeys returns the keys whose values this version of skein cannot decode, in ascending
// order. Such a value is ignored, and does not count as a renewal. If the key had another value
// before, that value remains in effect.
func (c *Cluster) UnreadableKeys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.bucketState.unreadable))
}

// Table returns the table that this process has read last, or the zero Table if no controller has
// written one yet. The caller must not change its lists, which are those of the copy in memory.
func (c *Cluster) Table() Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bucketState.table
}

// Changed returns a channel that is closed at the next change of Members or Table. LastSeen and the
// Position, State and PartitionChange of an [Announcement] change often and do not close it. Call
// Changed before Members and Table, so that no change is missed.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// SetDraining writes or deletes the drain key of a node. While the drain key exists, the controller
// assigns no partitions to the node and moves its partitions to other nodes. The drain key outlives
// the node: it stays when the node is restarted, and when the controller deletes the node key.
//
// SetDraining returns [ErrUnknownNode] if the bucket has no node key of that name. A call with
// draining false also accepts a node that is gone and has left a drain key.
func (c *Cluster) SetDraining(ctx context.Context, name string, draining bool) error {
	if err := checkName("name of a node", name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	c.mu.Lock()
	kv := c.kv
	hasNodeKey := c.bucketState.nodes[name] != nil
	hasDrainKey := c.bucketState.draining[name]
	c.mu.Unlock()

	canDeleteDrainKey := hasDrainKey && !draining
	if !hasNodeKey && !canDeleteDrainKey {
		return fmt.Errorf("%w: %s", ErrUnknownNode, name)
	}

	if !draining {
		if err := kv.Delete(ctx, drainPrefix+name); err != nil {
			return fmt.Errorf("placement: delete the drain key of %s: %w", name, err)
		}
		return nil
	}

	value, err := encodeValue(drainValue{V: formatVersion})
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, drainPrefix+name, value); err != nil {
		return fmt.Errorf("placement: write the drain key of %s: %w", name, err)
	}
	return nil
}
