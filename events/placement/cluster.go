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

// Errors of a cluster.
var (
	// ErrNameTaken is returned by Run of the older of two processes that run nodes of the same name. The newer process has taken
	// over the node's key.
	ErrNameTaken = errors.New("placement: the name of the node is taken")
	// ErrUnknownNode is returned by Drain if the bucket has no key of a node with this name.
	ErrUnknownNode = errors.New("placement: there is no such node")
)

// The defaults of [Options]. They are fixed values: a process that sets a longer period must set the other durations too, because
// Open requires that ExpireAfter is at least three periods and that ReplaceAfter is at least ExpireAfter.
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
	// Self describes the node that this process runs. With a nil Self, the process only watches the bucket.
	Self *Member
	// PartitionReplicas is the number of nodes that should hold each partition; 0 means DefaultPartitionReplicas. If processes differ in it, the table
	// follows the value of the process that is the controller.
	PartitionReplicas int
	// RenewEvery is the time between two renewals of a node's key; 0 means DefaultRenewEvery. All processes of a cluster must use the same RenewEvery
	// and the same ExpireAfter.
	RenewEvery time.Duration
	// ExpireAfter is how long a member may be silent until it no longer counts as alive; 0 means DefaultExpireAfter. It must be at least 3*RenewEvery.
	ExpireAfter time.Duration
	// ReplaceAfter is how long a member may be silent until the controller assigns its partitions to other nodes; 0 means
	// DefaultReplaceAfter. It must be at least ExpireAfter.
	ReplaceAfter time.Duration
	// BucketReplicas is the number of NATS servers that store the bucket; 0 means 1. It has no effect if the bucket exists.
	// It is unrelated to PartitionReplicas, which counts nodes of skein.
	BucketReplicas int
	// Logger receives outages of the bucket and changes of the cluster; nil discards them.
	Logger *slog.Logger
}

// checkAndSetDefaults fills in the defaults and returns an error that names the first invalid option. It replaces Self by a copy, so that
// the caller's Member is not changed.
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
	self.Draining = false // only the drain key in the bucket says so
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

// Cluster is this process's view of the cluster and, if it has a Self, its membership. Its methods may be called concurrently.
type Cluster struct {
	opts     Options
	instance string // random id of this run of the process; it tells two processes with the same node name apart

	// publishNow wakes up renewAndControl before the next period, because Self serves other partitions now.
	publishNow chan struct{}

	// mu guards the fields below.
	mu sync.Mutex
	kv jetstream.KeyValue
	// bucketCreated is when the server created the bucket. It tells a recreated bucket of the same name, whose revisions start anew,
	// from the one before.
	bucketCreated time.Time
	// state is what the watch has read of the bucket.
	state *state
	// ackedRevisions has, per key, the revision of this process's last acknowledged write. The watch may not have delivered it yet.
	ackedRevisions map[string]uint64
	// self is Self with what Publish last set.
	self Member
	// ownsNodeKey is set once this instance has written the key of Self. From then on, a key with another instance means that a newer
	// process has the name.
	ownsNodeKey bool
	// hasLeft is set by Leave: this process must not write its key or take the lease again.
	hasLeft bool
	// changed is closed, and replaced, when members or table change.
	changed chan struct{}
	// failedAccess has the kinds of access to the bucket that fail at present.
	failedAccess map[bucketAccess]bool
}

// Open creates the bucket if it is missing and reads it once. When Open returns, Members and Table are as in the bucket; only Run keeps
// them up to date. Open retries for up to a minute if the bucket cannot be reached. It ignores values that it cannot read;
// see [Cluster.UnreadableKeys].
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
// lease in the bucket; see Leave. It returns [ErrNameTaken] when a newer process has taken the name of Self. Call Run once.
func (c *Cluster) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.watchBucket(ctx) })
	if c.opts.Self != nil {
		group.Go(func() error { return c.renewAndControl(ctx) })
	}
	return group.Wait()
}

// Publish sets the partitions and the position that this node publishes in its key. If the partitions differ from the last ones, Run writes the
// key at once; a new position waits for the next renewal.
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

// SetState sets the node's state and the state of the change of its partitions that this node publishes. Run writes them at the next
// renewal.
func (c *Cluster) SetState(state, change string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.self.State = state
	c.self.Change = change
}

// IsPublished reports whether this process has read its own node's key back from the bucket with the partitions that Publish last set. Until then,
// other processes may still see the partitions that were published before.
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

// Silent returns the members that have a key but are not alive, sorted by name, with the values of their last renewal.
func (c *Cluster) Silent() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.state.membersWithKey(), func(m Member) bool {
		return slices.ContainsFunc(c.state.alive, func(alive Member) bool { return alive.Name == m.Name })
	})
}

// UnreadableKeys returns the sorted keys of the bucket whose values this program cannot read. It ignores these values, and keeps the
// last values of the keys that it could read.
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

// Changed returns a channel that is closed when the members or the table change next. A change of only a member's Position, State
// or Change does not close it.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Drain stops assigning partitions to the node if drain is true, and resumes if it is false. The setting is kept in the bucket and
// survives restarts of the node. Drain fails with [ErrUnknownNode] if the node has no key, but a node that is drained can always be
// resumed.
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
// fails, either or both may still be in the bucket, and the cluster treats them like those of a node that has stopped: another node may take
// the lease after ExpireAfter, and the controller deletes the node's key after ReplaceAfter. Run writes neither again, even after a failed Leave.
func (c *Cluster) Leave(ctx context.Context) error {
	c.mu.Lock()
	c.hasLeft = true
	c.mu.Unlock()
	if c.opts.Self == nil {
		return nil
	}

	// A write whose answer Run did not get may have succeeded, so the state may be behind the bucket.
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
// isOwn reports what the state says about that; it is called with mu held.
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

		// Either Run renewed the key meanwhile or another process took it: read the bucket again to find out which.
		if err := c.rereadBucket(ctx); err != nil {
			return err
		}
		// A replica that lags may have answered, so do not retry in a tight loop.
		if err := wait.For(ctx, c.retryDelay(0)); err != nil {
			return err
		}
	}
}
