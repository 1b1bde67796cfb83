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

// The data of a cluster is in one bucket of the NATS key-value store. Each node renews its node key
// there. One node at a time has the lease and is the controller: it writes the table, which says
// which nodes should hold each partition. A drain key says that a node should hold none. The
// package doc has a drawing.

var (
	// ErrNameTakenOver is what Run returns in the older of two processes that run a node of the
	// same name. The newer process has overwritten the node key, and keeps it.
	ErrNameTakenOver = errors.New("placement: a newer process has taken over the name of the node")
	// ErrUnknownNode means that the bucket has no node key of this name, as far as this process has
	// read the bucket.
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

// openTimeout is how long Open keeps trying to read the bucket. Servers that have just started must
// elect leaders before they can answer.
const openTimeout = time.Minute

// Options say which cluster a process takes part in, and how.
type Options struct {
	// JS is the connection to NATS JetStream. It must not be nil. The package does not close it.
	JS jetstream.JetStream
	// LogID is the id of the event log that all nodes of the cluster read: 1 to 64 letters, digits,
	// - and _. The bucket is named skein-cluster-LOGID.
	LogID string
	// Self describes the node that this process runs. Name and Addr are required; Draining is
	// ignored. If Self is nil, the process runs no node and only reads the bucket and writes drain
	// keys.
	Self *Member
	// Copies is the number of nodes that should hold each partition; 0 means DefaultCopies. Only
	// the value of the controller has an effect.
	Copies int
	// RenewEvery is the time between two renewals of a node key; 0 means DefaultRenewEvery. All
	// processes of a cluster must use the same RenewEvery and the same ExpireAfter, because each
	// process judges the renewals of all nodes by its own values.
	RenewEvery time.Duration
	// ExpireAfter is the time without a renewal after which a node no longer counts as alive, and
	// after which another node may take the lease; 0 means DefaultExpireAfter. It must be at least
	// 3*RenewEvery. A node that has expired keeps its partitions in the table.
	ExpireAfter time.Duration
	// ReplaceAfter is the time without a renewal after which the controller deletes a node key and
	// assigns the node's partitions to other nodes; 0 means DefaultReplaceAfter. It must be at
	// least ExpireAfter.
	ReplaceAfter time.Duration
	// BucketReplicas is the number of NATS servers that store the bucket; 0 means 1. It has no
	// effect if the bucket exists.
	BucketReplicas int
	// Logger receives outages of the bucket and changes of the cluster; nil discards them.
	Logger *slog.Logger
}

// checkAndSetDefaults sets the defaults and returns an error for the first invalid option. It
// replaces Self by a copy, so that the caller's Member is not changed.
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

// Cluster is what a process knows of a cluster. If the process runs a node, the Cluster also makes
// that node a member. Its methods may be called concurrently.
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
	// kv is the open bucket. It is set when Open returns, and replaced after the bucket was deleted
	// and created again.
	kv jetstream.KeyValue
	// bucketCreated is when the server created the bucket. A bucket that was deleted and created
	// again has another time, and its revisions begin at 1 again.
	bucketCreated time.Time
	// bucketState holds what this process has read from the bucket.
	bucketState *bucketState
	// ackedRevisions maps each key to the revision of this process's last acknowledged write. The
	// watch may not have delivered that revision yet.
	ackedRevisions map[string]uint64
	// self is what this process writes to its node key next: opts.Self with the last Announcement.
	// It is empty if opts.Self is nil.
	self Member
	// wroteNodeKey says that this instance has written its node key. If another instance's value is
	// in the key after that, a newer process has taken over the name, because a process does not
	// write the key again once it has read the value of a newer one.
	wroteNodeKey bool
	// changed is the channel that Changed returns. It is closed and replaced at each change.
	changed chan struct{}
	// failingAccess has the kinds of access to the bucket whose last attempt failed. A kind that
	// succeeds is deleted from the map.
	failingAccess map[bucketAccess]bool
}

// Open creates the bucket if it is missing, and reads all its keys. Values that it cannot read are
// ignored; see [Cluster.UnreadableKeys]. If it fails for any reason, Open tries again for up to a
// minute.
//
// Open cannot know how long a node was silent before. So at first, Members contains every node that
// has a key, even one that stopped long ago. If such a node renews nothing, it expires ExpireAfter
// later, while Run is running.
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
			return nil, err // says more than the end of openCtx
		}
	}
}

// Run keeps Members and Table up to date. If the process runs a node, Run also renews the node key,
// and does the controller's work while this node has the lease. Run retries while the bucket is out
// of reach. It returns [ErrNameTakenOver] when a newer process has taken over the name of Self.
//
// When ctx ends, Run returns nil. It does not delete the node key or the lease, because most nodes
// that stop are soon started again. Call Run at most once.
func (c *Cluster) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.watchBucket(ctx) })
	if c.opts.Self != nil {
		group.Go(func() error { return c.renewAndControl(ctx) })
	}
	return group.Wait()
}

// Announce sets what the node key says about this node from the next renewal on. If the partitions
// differ from the last announcement, Run renews the key at once. Without a Self, Announce has no
// effect.
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

// IsAnnounced reports whether this process has read its own node key back from the bucket, with the
// partitions of the last Announcement. Then other processes can read them too. It is false without
// a Self.
func (c *Cluster) IsAnnounced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.bucketState.nodes[c.self.Name]
	return n != nil && n.instance == c.instance && n.Serves == c.self.Serves
}

// Members returns the nodes that are alive, sorted by name. A node is alive if its key was renewed,
// or read by Open, within ExpireAfter. Time without any write to the bucket does not count, so
// during an outage the result stays as it was before.
func (c *Cluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.bucketState.alive)
}

// SilentNodes returns the nodes that have a key but are not alive, sorted by name, with the values
// of their last renewal.
func (c *Cluster) SilentNodes() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.bucketState.membersWithKey(), func(m Member) bool { return c.bucketState.isAlive(m.Name) })
}

// UnreadableKeys returns, sorted, the keys of the bucket with a value that this version of skein
// cannot read. Such a value is ignored: the value that was read before under the same key remains
// in effect.
func (c *Cluster) UnreadableKeys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.bucketState.unreadable))
}

// Table returns the table that this process read last. The caller must not change the lists in it.
func (c *Cluster) Table() Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bucketState.table
}

// Changed returns a channel that is closed at the next change of Members or Table. A change of only
// LastSeen, or of only the Position, State or PartitionChange of an Announcement, does not close
// it. Call Changed before Members and Table, so that no change is missed.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// SetDraining writes or deletes the drain key of a node. While the key exists, the controller
// assigns no partitions to the node, and the partitions that it holds move to other nodes. The key
// outlives restarts of the node.
//
// SetDraining returns [ErrUnknownNode] if this process has read no node key of that name. It still
// deletes a drain key that it has read, for a node that is gone.
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

	if !hasNodeKey && (draining || !hasDrainKey) {
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
