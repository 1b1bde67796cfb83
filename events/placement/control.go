package placement

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// actAsController takes or renews the lease. If this node has the lease then, it deletes the node
// keys that have been silent for ReplaceAfter, and writes a new table if the nodes require one.
// Each write depends on the revision of its key, so a controller that has lost the lease without
// having read that changes nothing.
func (c *Cluster) actAsController(ctx context.Context) error {
	hasLease, err := c.renewLease(ctx)
	if err != nil || !hasLease {
		return err
	}

	// The snapshots are taken under the same lock as the list of silent nodes. If a node renews its
	// key after that, the deletion fails.
	c.mu.Lock()
	silent := c.bucketState.silentNodes(c.opts.ReplaceAfter)
	snapshots := make([]keySnapshot, len(silent))
	for i, name := range silent {
		snapshots[i] = c.snapshotKey(nodePrefix + name)
	}
	c.mu.Unlock()

	for i, name := range silent {
		err := c.deleteKey(ctx, snapshots[i])
		if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			continue // the node has renewed its key
		}
		if err != nil {
			return err
		}
		c.opts.Logger.Warn("cluster: a silent node is replaced", "name", name, "after", c.opts.ReplaceAfter)
	}

	return c.writeTable(ctx)
}

// renewLease takes or renews the lease, and reports whether this node has it now. It returns false
// without an error when another node has the lease, or took it first.
func (c *Cluster) renewLease(ctx context.Context) (hasLease bool, err error) {
	c.mu.Lock()
	snapshot := c.snapshotKey(leaseKey)
	canTake := c.bucketState.canTakeLease(c.instance)
	isNewController := c.bucketState.lease.holder != c.instance
	value, err := encodeValue(leaseValue{V: formatVersion, Holder: c.instance, Name: c.self.Name, Counter: c.bucketState.lease.counter + 1})
	c.mu.Unlock()
	if err != nil || !canTake {
		return false, err
	}

	err = c.writeKey(ctx, snapshot, value)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return false, nil
	}
	if err != nil {
		return false, err
	}

	if isNewController {
		c.opts.Logger.Info("cluster: this node is the controller", "name", c.self.Name)
	}
	return true, nil
}

// writeTable writes the next table if [bucketState.nextTable] says that one is due.
func (c *Cluster) writeTable(ctx context.Context) error {
	c.mu.Lock()
	// Until the watch has delivered the table that this process wrote last, bucketState has the
	// previous table, and nextTable would return the same new table again.
	if c.bucketState.revisions[tableKey] < c.ackedRevisions[tableKey] {
		c.mu.Unlock()
		return nil
	}
	snapshot := c.snapshotKey(tableKey)
	table, isDue := c.bucketState.nextTable(c.opts.Copies)
	c.mu.Unlock()
	if !isDue {
		return nil
	}

	value, err := encodeTable(&table)
	if err != nil {
		return err
	}
	err = c.writeKey(ctx, snapshot, value)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return nil // another controller wrote the table first
	}
	if err != nil {
		return err
	}

	c.opts.Logger.Info("cluster: new table", "revision", table.Revision, "copies", table.Copies)
	return nil
}
