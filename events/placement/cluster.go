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
	// ErrNameTaken: another process runs a node of this name.
	ErrNameTaken = errors.New("placement: the name of the node is taken")
	// ErrUnknownNode: no node of this name has a key.
	ErrUnknownNode = errors.New("placement: there is no such node")
)

// The defaults of [Options].
const (
	DefaultReplicas     = 2
	DefaultEvery        = 2 * time.Second
	DefaultExpire       = 20 * time.Second
	DefaultReplaceAfter = time.Minute
)

// requestTimeout bounds one request to the server.
const requestTimeout = 5 * time.Second

// openTimeout is how long a bucket is tried to be opened: servers that have just started elect leaders first.
const openTimeout = time.Minute

// Options say which cluster a process belongs to, and as what.
type Options struct {
	// JS is the connection. The package does not close it.
	JS jetstream.JetStream
	// LogID names the bucket, skein-cluster-LOGID. The nodes of a cluster read the same log.
	LogID string
	// Self is what this node says of itself; nil means that the process only watches.
	Self *Member
	// Replicas is how many nodes each partition should have; 0 means DefaultReplicas. The controller's value counts.
	Replicas int
	// Every is how often a node renews its key; 0 means DefaultEvery. It must be the same in all processes, like Expire.
	Every time.Duration
	// Expire is how long a member may be silent, at least three periods; 0 means DefaultExpire.
	Expire time.Duration
	// ReplaceAfter is how long a member may be silent before its partitions are given to others; 0 means DefaultReplaceAfter.
	ReplaceAfter time.Duration
	// BucketReplicas is how many servers keep the bucket if this process makes it; 0 means 1.
	BucketReplicas int
	// Logger gets what a person must see; nil means nothing.
	Logger *slog.Logger
}

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Replicas = orDefault(o.Replicas, DefaultReplicas)
	o.Every = orDefault(o.Every, DefaultEvery)
	o.Expire = orDefault(o.Expire, DefaultExpire)
	o.ReplaceAfter = orDefault(o.ReplaceAfter, DefaultReplaceAfter)
	switch {
	case checkName(o.LogID) != nil:
		return fmt.Errorf("placement: the id of a log is letters, digits, - and _, not %q", o.LogID)
	case o.Replicas < 0 || o.Every < 0:
		return errors.New("placement: replicas and periods must not be negative")
	case o.Expire < 3*o.Every:
		return fmt.Errorf("placement: a member would expire after %v, must be at least three periods of %v", o.Expire, o.Every)
	case o.ReplaceAfter < o.Expire:
		return fmt.Errorf("placement: a member would be replaced after %v, before it expires after %v", o.ReplaceAfter, o.Expire)
	case o.Self == nil:
		return nil
	}
	self := *o.Self
	self.Weight = orDefault(self.Weight, 1)
	self.Draining = false
	o.Self = &self
	return self.check()
}

func orDefault[T comparable](value, other T) T {
	var zero T
	if value == zero {
		return other
	}
	return value
}

// Cluster is what a process knows of the cluster, and its part in it. Its methods may be called at the same time.
type Cluster struct {
	opts     Options
	instance string        // the random id of this run
	said     chan struct{} // has one element when Self must be written at once

	mu    sync.Mutex
	kv    jetstream.KeyValue
	made  time.Time // when the bucket was made: another one of the same name has other revisions
	state *state
	acked map[string]uint64 // of each key, the revision of this process's last write
	self  Member
	held  bool // the key of Self was written by this instance
	left  bool
	// changed is closed when members or table change.
	changed chan struct{}
	// failing is what does not work during an outage of the bucket.
	failing map[work]bool
}

// Open makes the bucket if it is missing, and reads it. Members and Table are then current; only Run keeps them so. Values that
// cannot be read are ignored, see [Cluster.UnreadableKeys]. A bucket that cannot be reached is tried for a minute.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &Cluster{
		opts: o, instance: rand.Text(), said: make(chan struct{}, 1),
		state: newState(o.Every, o.Expire), acked: map[string]uint64{},
		changed: make(chan struct{}), failing: map[work]bool{},
	}
	if o.Self != nil {
		c.self = *o.Self
	}
	tries, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for failures := 0; ; failures++ {
		_, err := c.follow(tries, requestTimeout, true)
		if err == nil {
			return c, nil
		}
		if wait.For(tries, c.pause(failures)) != nil {
			return nil, err
		}
	}
}

// Run renews Self and watches the bucket, and is the controller when it holds the lease. It returns nil when the context ends, and
// removes nothing from the bucket then. While the bucket is out of reach it retries. It fails with [ErrNameTaken] when a newer process
// with the name of Self has taken its key. Call it once.
func (c *Cluster) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.watch(ctx) })
	if c.opts.Self != nil {
		group.Go(func() error { return c.tend(ctx) })
	}
	return group.Wait()
}

// Say changes what Self says of itself. If the partitions that it serves have changed, Run writes it at once.
func (c *Cluster) Say(serves events.Partitions, position string) {
	c.mu.Lock()
	news := c.self.Serves != serves
	c.self.Serves, c.self.Position = serves, position
	c.mu.Unlock()
	if news {
		select {
		case c.said <- struct{}{}:
		default:
		}
	}
}

// SetState changes which state Self says that it is in, and how far its change of partitions is. Run writes it when it renews Self.
func (c *Cluster) SetState(state, change string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.self.State, c.self.Change = state, change
}

// Known reports whether the bucket, as this process has read it, has what Self serves.
func (c *Cluster) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.state.nodes[c.self.Name]
	return n != nil && n.instance == c.instance && n.Serves == c.self.Serves
}

// Members returns the members that are alive, by name: those that this process has seen renewed within Expire. While the bucket is out
// of reach they are the ones last known.
func (c *Cluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.state.shown)
}

// Silent returns the members that are not alive and still have a key, by name, as they were last heard of.
func (c *Cluster) Silent() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.state.known(), func(m Member) bool {
		return slices.ContainsFunc(c.state.shown, func(alive Member) bool { return alive.Name == m.Name })
	})
}

// UnreadableKeys returns the keys of the bucket whose values this program cannot read, sorted. They are ignored: what was known of such a
// key before stays.
func (c *Cluster) UnreadableKeys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.state.unreadable))
}

// Table returns the last table known. Its lists must not be changed.
func (c *Cluster) Table() Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.table
}

// Changed returns a channel that is closed at the next change of members or table. A new position or state of a member is none.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Drain has a node get no partitions any more, or partitions again. This stays so, also after a restart of the node. It fails with
// [ErrUnknownNode] if the node has no key; one that is drained may get partitions again without.
func (c *Cluster) Drain(ctx context.Context, name string, on bool) error {
	if err := checkName(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c.mu.Lock()
	kv, known := c.kv, c.state.nodes[name] != nil || !on && c.state.drains[name]
	c.mu.Unlock()
	if !known {
		return fmt.Errorf("%w: %s", ErrUnknownNode, name)
	}
	if !on {
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

// Leave deletes the key of Self, so that others get its partitions without waiting for ReplaceAfter, and gives the lease back. It is for
// a node that leaves for good. A key that a newer process has taken stays.
func (c *Cluster) Leave(ctx context.Context) error {
	c.mu.Lock()
	c.left = true
	c.mu.Unlock()
	if c.opts.Self == nil {
		return nil
	}
	// A write of which Run did not get the answer may have succeeded.
	if err := c.refresh(ctx); err != nil {
		return err
	}
	holds := func() bool { return c.state.lease.holder == c.instance }
	has := func() bool { n := c.state.nodes[c.self.Name]; return n != nil && n.instance == c.instance }
	return errors.Join(c.giveBack(ctx, leaseKey, holds), c.giveBack(ctx, nodePrefix+c.self.Name, has))
}

// giveBack deletes a key while it is this instance's by what is known of it.
func (c *Cluster) giveBack(ctx context.Context, key string, mine func() bool) error {
	for {
		c.mu.Lock()
		at, stands := c.expect(key), mine() || c.acked[key] > c.state.revisions[key]
		c.mu.Unlock()
		if !stands {
			return nil
		}
		err := c.remove(ctx, at)
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return err
		}
		// The key was renewed, or is another's: read again which.
		if err := c.refresh(ctx); err != nil {
			return err
		}
		if err := wait.For(ctx, c.opts.Every/8); err != nil {
			return err
		}
	}
}
