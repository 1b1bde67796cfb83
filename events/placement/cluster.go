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

// All processes of a cluster share one bucket of the NATS key-value store. It has four kinds of
// keys; the package documentation shows them in a drawing.
//
//   - Each node writes its own node key every few seconds. The value describes the node, such as
//     its address and the partitions that it serves ([Member]).
//   - One node holds the lease and is the controller. The controller renews the lease after each
//     renewal of its node key. If the lease is not renewed for ExpireAfter, another node takes it.
//     A former controller that does not know this yet does no harm, because each of its writes
//     fails if another process has written the key first.
//   - The controller writes the table, which says which nodes should hold each partition.
//   - A drain key marks a node that should hold no partitions. An operator sets it by SetDraining.

var (
	// ErrNameTakenOver is returned by Run if another process runs a node of the same name. This
	// process has written the node key, and the other process has overwritten it after that.
	ErrNameTakenOver = errors.New("placement: a newer process has taken over the name of the node")
	// ErrUnknownNode is returned by SetDraining if this process has read no node key of that name,
	// or only one whose value it cannot decode. The bucket may have a newer node key that this
	// process has not read yet.
	ErrUnknownNode = errors.New("placement: this process has read no node of this name")
)

// The defaults of [Options].
const (
	DefaultCopies       = 2
	DefaultRenewEvery   = 2 * time.Second
	DefaultExpireAfter  = 20 * time.Second
	DefaultReplaceAfter = time.Minute
)

// requestTimeout is how long a process waits for the NATS server to answer one request that writes
// or deletes a key. It also limits how long opening the bucket and reading all its keys may take
// together.
const requestTimeout = 5 * time.Second

// openTimeout is how long Open keeps trying to read the bucket. NATS servers that have just started
// elect leaders first, and cannot answer before that. A process that starts at the same time as the
// servers should not fail because of this.
const openTimeout = time.Minute

// Options are the arguments of [Open].
type Options struct {
	// JS accesses the NATS servers that store the bucket. It must not be nil. This package does not
	// close the connection of JS; the caller does.
	JS jetstream.JetStream
	// LogID is the id of the event log that all nodes of the cluster read: 1 to 64 ASCII letters,
	// digits, - and _. The name of the bucket is skein-cluster-LOGID.
	LogID string
	// Self describes the node that this process runs. Name and Addr are required, a Weight of 0
	// means 1, and Draining and LastSeen are ignored. The node announces the Announcement of Self
	// until the first call of Announce.
	//
	// If Self is nil, the process runs no node. Such a process has no node key and never becomes
	// the controller. It reads the bucket, creates the bucket if it is missing, and may call
	// SetDraining.
	Self *Member
	// Copies is the number of nodes that should hold each partition; 0 means DefaultCopies. Only
	// the controller uses its Copies. So if the nodes have different Copies, the table may change
	// when another node becomes the controller.
	Copies int
	// RenewEvery is the time between two renewals of a node key, and of the lease; 0 means
	// DefaultRenewEvery. After a renewal that failed, and after an Announce with other partitions,
	// the next renewal is sooner. All processes of a cluster must use the same RenewEvery and the
	// same ExpireAfter: each process uses its own ExpireAfter to decide which nodes are alive, and
	// its own RenewEvery to decide how much of a time without writes counts ([Cluster.Members]).
	RenewEvery time.Duration
	// ExpireAfter is the time after the last renewal of a node key at which Members stops returning
	// the node; 0 means DefaultExpireAfter. [Cluster.Members] says how this time is measured. The
	// node still keeps its partitions in the table, until ReplaceAfter. If the lease is not renewed
	// for ExpireAfter, another node may take it. ExpireAfter must be at least 3*RenewEvery, so that
	// no node expires because one renewal is late or fails.
	ExpireAfter time.Duration
	// ReplaceAfter is the time after the last renewal of a node key at which the controller deletes
	// the node key; 0 means DefaultReplaceAfter. The time is measured as for ExpireAfter. When the
	// nodes have not changed for 2*RenewEvery after the deletion, the controller assigns the node's
	// partitions to other nodes. ReplaceAfter must be at least ExpireAfter. Only the controller
	// uses ReplaceAfter.
	ReplaceAfter time.Duration
	// BucketReplicas is the number of NATS servers that store the bucket; 0 means 1. Only the
	// process that creates the bucket uses it; an existing bucket is not changed.
	BucketReplicas int
	// Logger receives outages of the bucket, the keys whose values cannot be decoded, and what this
	// node does to the cluster: it joins, becomes the controller, replaces a silent node, or writes
	// a table. A nil Logger discards these messages.
	Logger *slog.Logger
}

// checkAndSetDefaults replaces options that are 0 by their defaults, and returns an error if an
// option is invalid. It does not check JS. It replaces Self by a copy before it changes Weight and
// Draining, so that the caller's Member stays as it is.
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

// Cluster gives one process access to the bucket of its cluster. A Cluster has a copy in memory of
// what the process has read of the bucket, and Run keeps this copy up to date. If the process runs
// a node, Run also renews the node key. All methods may be called concurrently, but Run only once.
type Cluster struct {
	opts Options
	// instance is a random id of this Cluster, which the node key and the lease contain. It
	// distinguishes two processes that run a node of the same name, such as the processes before
	// and after a restart.
	instance string
	// announceNow wakes up renewAndControl before the next renewal is due. Announce sends to it
	// when the announced partitions have changed.
	announceNow chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	// kv is the open bucket. openBucket sets it in Open, and again each time the watch is
	// restarted.
	kv jetstream.KeyValue
	// bucketCreated is when the server created the bucket that kv accesses. openBucket compares it
	// with the time that the server reports. If the two differ, the bucket was deleted and created
	// again, and the revisions of its keys begin at 1 again.
	bucketCreated time.Time
	// bucketState is what this process has read of the bucket.
	bucketState *bucketState
	// ackedRevisions has, for the keys that Run writes, the revision of the last write of this
	// process that the server has acknowledged. The watch delivers that write to bucketState only
	// after some time. Until then, this process needs the acknowledged revision for three purposes:
	// to write the key again, to tell an older value of another process from a takeover of the
	// node's name, and to write no second table from the old table in bucketState.
	ackedRevisions map[string]uint64
	// self is what Run writes to the node key next: opts.Self with the Announcement of the last
	// call of Announce. Its Name is empty in a process without a node.
	self Member
	// wroteNodeKey is true after this instance has written its node key for the first time. Before
	// that, a node key with the id of another instance is from an older process, and Run overwrites
	// it. After that, a newer node key with the id of another instance means that another process
	// has taken over the name, and Run returns ErrNameTakenOver.
	wroteNodeKey bool
	// changed is the channel that Changed returns. At each change of Members or Table, applyEntry
	// closes this channel and replaces it.
	changed chan struct{}
	// failingAccess has the kinds of access to the bucket whose last attempt failed. logOutage uses
	// it, to log an outage only when it begins and ends.
	failingAccess map[bucketAccess]bool
}

// Open creates the bucket if it is missing, and reads all its keys. It ignores values that it
// cannot decode; see [Cluster.UnreadableKeys]. If the bucket cannot be created or read, Open tries
// again for up to a minute, or until ctx ends. Open does not write the node key; Run does.
//
// The clocks of machines differ, so node keys contain no time. Each process measures by its own
// clock how long a node has been silent. A node key that Open reads counts as a renewal at that
// moment. So at first, Members contains every node that has a node key, even one that stopped long
// ago.
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
			return nil, err // says more than the error of openCtx, unless openCtx ended the attempt
		}
	}
}

// Run watches the bucket, so that Members, Table and the other methods return its current content
// rather than what Open has read. If the process runs a node, Run also writes the node key at once
// and then every RenewEvery, takes the lease when no other node renews it, and does the
// controller's work while this node has the lease. While the bucket is out of reach, Run keeps
// trying. If the bucket is deleted, Run creates it again.
//
// Run returns [ErrNameTakenOver] when another process has taken over the name of Self. Otherwise it
// runs until ctx ends, and then returns nil. It deletes neither the node key nor the lease: most
// nodes that stop are soon started again, and keep their partitions if their node keys are still
// there. If this node was the controller, the cluster has no controller until another process,
// which may be this node after a restart, has seen no renewal of the lease for ExpireAfter.
func (c *Cluster) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.watchBucket(ctx) })
	if c.opts.Self != nil {
		group.Go(func() error { return c.renewAndControl(ctx) })
	}
	return group.Wait()
}

// Announce sets the Announcement that the next renewal writes into the node key. If Serves differs
// from that of the Announcement before, Run renews the node key at once. Announce does not wait for
// that; see IsAnnounced. In a process without a node, Announce has no effect on the bucket.
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

// IsAnnounced reports whether the copy in memory of this process's own node key has the Serves of
// the last call of Announce. This process has then read the node key from the bucket, so other
// processes can read it, too. IsAnnounced does not compare the other fields of the Announcement. It
// returns false in a process without a node.
func (c *Cluster) IsAnnounced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.bucketState.nodes[c.self.Name]
	return n != nil && n.instance == c.instance && n.Serves == c.self.Serves
}

// Members returns the nodes that are alive, sorted by name. A node is alive if this process has
// read a renewal of its node key, or the node key itself in Open, within ExpireAfter.
//
// ExpireAfter is not measured by the clock alone: the time between two writes that this process
// reads from the bucket, of any key, counts as 2*RenewEvery at most, and only when the second write
// arrives. If no writes arrive, the process cannot know whether the nodes have stopped or the
// bucket is out of reach. So no node expires as long as no writes arrive: neither during an outage
// of the bucket, nor after all nodes have stopped.
func (c *Cluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bucketState.alive)
}

// SilentNodes returns the nodes that have a node key but are not alive in the sense of Members,
// sorted by name. Each of them is described by the last renewal of its node key, except for
// Draining, which is current. The controller deletes their node keys after ReplaceAfter.
func (c *Cluster) SilentNodes() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.bucketState.membersWithKey(), func(m Member) bool { return c.bucketState.isAlive(m.Name) })
}

// UnreadableKeys returns the keys whose values this process cannot decode, in ascending order.
// Either the value is malformed, or another version of skein wrote it. Such a value is ignored, and
// does not count as a renewal. If this process has read another value of the key before, that value
// remains in effect. A key is no longer returned when it is deleted or has a value that can be
// decoded.
func (c *Cluster) UnreadableKeys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.bucketState.unreadable))
}

// Table returns the last table that this process has read and could decode, or the zero Table if
// there was none yet. The table stays the same if its key is deleted from the bucket. The caller
// must not change the lists in Nodes, because the copy in memory uses the same lists.
func (c *Cluster) Table() Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bucketState.table
}

// Changed returns a channel that is closed at the next change of Members or Table. A change of
// LastSeen, or of Position, State or PartitionChange of an [Announcement], does not close the
// channel, because these fields change often. After each change, call Changed again for a new
// channel, and only then Members and Table, so that no change is missed.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// SetDraining writes the drain key of a node if draining is true, and deletes it otherwise. While
// the drain key exists, the controller assigns no partitions to the node, and assigns the node's
// partitions to other nodes. But if all nodes are draining, the controller writes no new table. The
// drain key stays when the node is restarted, and when the controller deletes the node key. So a
// node that is gone still drains when it comes back.
//
// SetDraining returns [ErrUnknownNode] if this process has not read a node key of that name. But if
// draining is false, it suffices that this process has read the drain key, so the drain key of a
// node that is gone can be deleted. SetDraining makes one attempt, and does not wait until the
// controller has written another table.
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

	isKnown := hasNodeKey || hasDrainKey && !draining
	if !isKnown {
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
