package placement

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// actAsController takes or renews the controller's lease. If this node has the lease, it deletes the keys of the nodes that have been silent
// for ReplaceAfter and writes the table if the nodes require another one. Each write is conditional, so a controller that has been replaced
// without knowing it changes nothing.
func (c *Cluster) actAsController(ctx context.Context) error {
	hasLease, err := c.renewLease(ctx)
	if err != nil || !hasLease {
		return err
	}

	// The snapshots are taken under the same lock as the list of silent nodes, so that a node that renews its key after that keeps it.
	c.mu.Lock()
	silent := c.state.silentNodes(c.opts.ReplaceAfter)
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
		c.opts.Logger.Warn("cluster: a node is silent, and is replaced", "name", name, "after", c.opts.ReplaceAfter)
	}

	return c.writeTable(ctx)
}

// renewLease takes or renews the controller's lease, and reports whether this node has it now. It returns false without an error when
// another node has the lease or was faster to take it.
func (c *Cluster) renewLease(ctx context.Context) (hasLease bool, err error) {
	c.mu.Lock()
	snapshot := c.snapshotKey(leaseKey)
	canTake := c.state.canTakeLease(c.instance) && !c.hasLeft
	isNewController := c.state.lease.holder != c.instance
	value, err := encode(leaseValue{V: version, Holder: c.instance, Name: c.self.Name, Counter: c.state.lease.counter + 1})
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

// writeTable writes the next table if [state.nextTable] says that one is due.
func (c *Cluster) writeTable(ctx context.Context) error {
	c.mu.Lock()
	// Until the watch has delivered the table that this process wrote last, the state still has the one before, and would ask for the same
	// change again.
	if c.state.revisions[tableKey] < c.ackedRevisions[tableKey] {
		c.mu.Unlock()
		return nil
	}
	snapshot := c.snapshotKey(tableKey)
	table, isDue := c.state.nextTable(c.opts.PartitionReplicas)
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

	c.opts.Logger.Info("cluster: new table", "revision", table.Revision, "replicas", table.Replicas)
	return nil
}
