package placement

import (
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

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// Errors of [Cluster.Run] and [Cluster.Drain].
var (
	// ErrNameTaken means that a process that started later runs a node of the same name and has taken over its key. The process that
	// started first gets this error.
	ErrNameTaken = errors.New("placement: the name of the node is taken")
	// ErrUnknownNode means that this process knows no node of this name: it has read no key of the node from the bucket.
	ErrUnknownNode = errors.New("placement: there is no such node")
)

// The defaults of [Options]. They do not depend on each other. If RenewEvery is set to more than a third of DefaultExpireAfter, the
// other durations must be set, too, because Open compares them.
const (
	DefaultPartitionReplicas = 2
	DefaultRenewEvery        = 2 * time.Second
	DefaultExpireAfter       = 20 * time.Second
	DefaultReplaceAfter      = time.Minute
)

// requestTimeout bounds one request to the server.
const requestTimeout = 5 * time.Second

// openTimeout is how long Open keeps trying to read the bucket. Servers that have just started must elect leaders before they can answer.
const openTimeout = time.Minute

// Options select the cluster and say what this process does in it.
type Options struct {
	// JS is the connection to NATS JetStream. The package does not close it.
	JS jetstream.JetStream
	// LogID is the id of the log that all nodes of the cluster read. The bucket is named skein-cluster-LOGID.
	LogID string
	// Self describes the node that this process runs. If Self is nil, the process runs none: it reads the bucket, and may drain nodes.
	Self *Member
	// PartitionReplicas is the number of nodes that should hold each partition; 0 means DefaultPartitionReplicas. If processes differ in
	// it, the value of the controller counts, which is the process that writes the table.
	PartitionReplicas int
	// RenewEvery is the time between two renewals of a node's key; 0 means DefaultRenewEvery. All processes of a cluster must use the
	// same RenewEvery and the same ExpireAfter. Otherwise some of them take nodes for dead that others take for alive.
	RenewEvery time.Duration
	// ExpireAfter is how long a member must be silent before it no longer counts as alive, and before another node may take the lease of a
	// silent controller; 0 means DefaultExpireAfter. It must be at least 3*RenewEvery.
	ExpireAfter time.Duration
	// ReplaceAfter is how long a member must be silent before the controller deletes its key and assigns its partitions to other nodes; 0
	// means DefaultReplaceAfter. It must be at least ExpireAfter.
	ReplaceAfter time.Duration
	// BucketReplicas is the number of NATS servers that store the bucket; 0 means 1. It has no effect if the bucket exists. Do not confuse
	// it with PartitionReplicas, which counts nodes of skein.
	BucketReplicas int
	// Logger receives outages of the bucket and changes of the cluster; nil discards them.
	Logger *slog.Logger
}

// checkAndSetDefaults sets the defaults and returns an error for the first invalid option. It replaces Self by a copy, so that the caller's
// Member is not changed.
func (o *Options) checkAndSetDefaults() error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.PartitionReplicas = orDefault(o.PartitionReplicas, DefaultPartitionReplicas)
	o.RenewEvery = orDefault(o.RenewEvery, DefaultRenewEvery)
	o.ExpireAfter = orDefault(o.ExpireAfter, DefaultExpireAfter)
	o.ReplaceAfter = orDefault(o.ReplaceAfter, DefaultReplaceAfter)

	// A negative ExpireAfter fails the comparison with 3*RenewEvery, and a negative ReplaceAfter the one with ExpireAfter.
	switch {
	case checkName(o.LogID) != nil:
		return fmt.Errorf("placement: the id of a log is letters, digits, - and _, not %q", o.LogID)
	case o.PartitionReplicas < 0 || o.RenewEvery < 0:
		return errors.New("placement: replicas and periods must not be negative")
	case o.ExpireAfter < 3*o.RenewEvery:
		return fmt.Errorf("placement: a member would expire after %v, must be at least three periods of %v", o.ExpireAfter, o.RenewEvery)
	case o.ReplaceAfter < o.ExpireAfter:
		return fmt.Errorf("placement: a member would be replaced after %v, before it expires after %v", o.ReplaceAfter, o.ExpireAfter)
	case o.Self == nil:
		return nil
	}

	self := *o.Self
	self.Weight = orDefault(self.Weight, 1)
	self.Draining = false // whether a node is drained is decided by the drain key in the bucket alone
	o.Self = &self
	return self.check()
}

// orDefault returns value, or fallback if value is the zero value.
func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// Cluster is what a process knows of a cluster. If the process runs a node, the Cluster also makes that node a member. Its methods may be
// called concurrently.
type Cluster struct {
	opts     Options
	instance string // a random id of this Cluster, by which two processes with the same node name are distinguished

	// publishNow wakes up renewAndControl before the next renewal is due, because the set of served partitions has changed.
	publishNow chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	kv jetstream.KeyValue
	// bucketCreated is when the server created the bucket. A bucket that was deleted and created again has another time, and its
	// revisions start anew.
	bucketCreated time.Time
	// state holds what this process has read from the bucket.
	state *state
	// ackedRevisions maps each key to the revision of this process's last acknowledged write. The watch may not have delivered that
	// revision yet.
	ackedRevisions map[string]uint64
	// self is opts.Self with the values that Publish and SetState set last.
	self Member
	// ownsNodeKey is set once this instance has written the key of its node. If the key has the id of another instance after that, a
	// process that started later has taken the name.
	ownsNodeKey bool
	// hasLeft is set by Leave: this process must not write its key or take the lease again.
	hasLeft bool
	// changed is closed, and replaced, when members or table change.
	changed chan struct{}
	// failedAccess has the kinds of access to the bucket that fail at present.
	failedAccess map[bucketAccess]bool
}

// Open creates the bucket if it is missing and reads it once. When Open returns, Table is the one in the bucket, and Members are all nodes that
// have a key, because the silence of a node is measured from now on. Only Run keeps them up to date. Open retries for up to a minute if the
// bucket cannot be read or created, whatever the reason. It ignores values that it cannot read; see [Cluster.UnreadableKeys].
func Open(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.checkAndSetDefaults(); err != nil {
		return nil, err
	}
	c := &Cluster{
		opts:           o,
		instance:       rand.Text(),
		publishNow:     make(chan struct{}, 1),
		state:          newState(o.RenewEvery, o.ExpireAfter),
		ackedRevisions: map[string]uint64{},
		changed:        make(chan struct{}),
		failedAccess:   map[bucketAccess]bool{},
	}
	if o.Self != nil {
		c.self = *o.Self
	}

	openCtx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for failures := 0; ; failures++ {
		_, err := c.applyBucketEntries(openCtx, requestTimeout, true)
		if err == nil {
			return c, nil
		}
		if wait.For(openCtx, c.retryDelay(failures)) != nil {
			return nil, err
		}
	}
}

// Run keeps Members and Table up to date. If the process has a Self, Run also renews the node's key, and does the controller's work while
// this node has the lease. It retries while the bucket is out of reach. When ctx ends, Run returns nil and leaves the node's key and the
// lease in the bucket; see [Cluster.Leave]. It returns [ErrNameTaken] when a process that started later has taken the name of Self. Call Run
// once.
func (c *Cluster) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.watchBucket(ctx) })
	if c.opts.Self != nil {
		group.Go(func() error { return c.renewAndControl(ctx) })
	}
	return group.Wait()
}

// Publish sets the partitions and the position that this node publishes in its key. If the partitions differ from those of the last call, Run
// writes the key at once. Otherwise the position is written with the next renewal.
func (c *Cluster) Publish(serves events.Partitions, position string) {
	c.mu.Lock()
	servesChanged := c.self.Serves != serves
	c.self.Serves = serves
	c.self.Position = position
	c.mu.Unlock()

	if servesChanged {
		select {
		case c.publishNow <- struct{}{}:
		default: // a wake-up is pending already
		}
	}
}

// SetState sets two texts that this node publishes in its key: the name of the state in which it is, such as "serving", and how far its change
// of partitions is, such as "copying". Run writes them with the next renewal.
func (c *Cluster) SetState(state, change string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.self.State = state
	c.self.Change = change
}

// IsPublished reports whether this process has read its own key back from the bucket, with the partitions that Publish set last. Before that,
// no other process can know of them.
func (c *Cluster) IsPublished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.state.nodes[c.self.Name]
	return n != nil && n.instance == c.instance && n.Serves == c.self.Serves
}

// Members returns the members that are alive, sorted by name: those whose key this process has seen renewed within ExpireAfter. While the
// bucket is out of reach, Members returns those that were alive before the outage.
func (c *Cluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.state.alive)
}

// SilentNodes returns the members that have a key but are not alive, sorted by name, with the values of their last renewal.
func (c *Cluster) SilentNodes() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.state.membersWithKey(), func(m Member) bool {
		return slices.ContainsFunc(c.state.alive, func(alive Member) bool { return alive.Name == m.Name })
	})
}

// UnreadableKeys returns the sorted keys of the bucket whose values this program cannot read. Such a value is ignored: what was read before
// under the same key still holds.
func (c *Cluster) UnreadableKeys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.state.unreadable))
}

// Table returns the table that this process read last. The caller must not change the lists in it.
func (c *Cluster) Table() Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.table
}

// Changed returns a channel that is closed when a member comes, goes or serves other partitions, or when the table changes. A new Position,
// State or Change of a member does not close it. Call Changed before Members and Table, so that no change is missed.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Drain has the controller assign no partitions to a node if drain is true. Those that the node holds move to other nodes. If drain is false,
// the node gets partitions again. The setting is kept in the bucket and survives restarts of the node. Drain fails with
// [ErrUnknownNode] if the node has no key, unless it is known to be drained and is to get partitions again.
func (c *Cluster) Drain(ctx context.Context, name string, drain bool) error {
	if err := checkName(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	c.mu.Lock()
	kv := c.kv
	hasKey := c.state.nodes[name] != nil
	isDrained := c.state.drained[name]
	c.mu.Unlock()

	if !hasKey && (drain || !isDrained) {
		return fmt.Errorf("%w: %s", ErrUnknownNode, name)
	}

	if !drain {
		if err := kv.Delete(ctx, drainPrefix+name); err != nil {
			return fmt.Errorf("placement: give %s partitions again: %w", name, err)
		}
		return nil
	}

	value, err := encode(drainValue{V: version})
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, drainPrefix+name, value); err != nil {
		return fmt.Errorf("placement: drain %s: %w", name, err)
	}
	return nil
}

// Leave removes this node from the cluster for good: it deletes the node's key, so that other nodes get its partitions without waiting for
// ReplaceAfter, and the controller's lease if this instance has it. Leave does not touch a key that a newer process has taken. If Leave
// fails, the key, the lease or both may still be in the bucket. They then end like those of a node that has stopped: another node may take
// the lease after ExpireAfter, and the controller deletes the node's key after ReplaceAfter. This Cluster writes neither again, even after a
// failed Leave. The context should have a deadline.
func (c *Cluster) Leave(ctx context.Context) error {
	c.mu.Lock()
	c.hasLeft = true
	c.mu.Unlock()
	if c.opts.Self == nil {
		return nil
	}

	// A write of Run may have succeeded although its answer was lost. Then this instance owns a key without knowing it.
	if err := c.rereadBucket(ctx); err != nil {
		return err
	}

	ownsLease := func() bool { return c.state.lease.holder == c.instance }
	ownsNode := func() bool {
		n := c.state.nodes[c.self.Name]
		return n != nil && n.instance == c.instance
	}
	return errors.Join(
		c.deleteOwnKey(ctx, leaseKey, ownsLease),
		c.deleteOwnKey(ctx, nodePrefix+c.self.Name, ownsNode),
	)
}

// deleteOwnKey deletes a key if this instance wrote its value. It returns nil once the key is deleted or belongs to another instance.
// isOwn reports whether the value that was last read is this instance's; it is called with mu held.
func (c *Cluster) deleteOwnKey(ctx context.Context, key string, isOwn func() bool) error {
	for {
		c.mu.Lock()
		snapshot := c.snapshotKey(key)
		// A write that was acknowledged, but not delivered by the watch yet, also makes the key this instance's.
		own := isOwn() || c.ackedRevisions[key] > c.state.revisions[key]
		c.mu.Unlock()
		if !own {
			return nil
		}

		err := c.deleteKey(ctx, snapshot)
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return err
		}

		// Either a renewal that was under way has reached the bucket, or another process has taken the key. Read again to find out.
		if err := c.rereadBucket(ctx); err != nil {
			return err
		}
		// The NATS server that answered may lag behind the others, so do not retry in a tight loop.
		if err := wait.For(ctx, c.retryDelay(0)); err != nil {
			return err
		}
	}
}
