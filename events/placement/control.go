package placement

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// control takes or renews the controller's lease. With it, it deletes the keys of the nodes that are to be replaced, and writes the table
// that the other nodes make. A controller that was overtaken does nothing.
func (c *Cluster) control(ctx context.Context) error {
	if leads, err := c.lead(ctx); err != nil || !leads {
		return err
	}
	c.mu.Lock()
	lost := c.state.lost(c.opts.ReplaceAfter)
	keys := make([]expected, len(lost))
	for i, name := range lost {
		keys[i] = c.expect(nodePrefix + name)
	}
	c.mu.Unlock()
	for i, name := range lost {
		err := c.remove(ctx, keys[i])
		if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			continue // it is back
		}
		if err != nil {
			return err
		}
		c.opts.Logger.Warn("cluster: a node is silent, and is replaced", "name", name, "after", c.opts.ReplaceAfter)
	}
	return c.writeTable(ctx)
}

// lead reports whether this node has the lease, after it has renewed it.
func (c *Cluster) lead(ctx context.Context) (bool, error) {
	c.mu.Lock()
	at, may := c.expect(leaseKey), c.state.mayControl(c.instance) && !c.left
	other := c.state.lease.holder != c.instance
	value, err := encode(leaseValue{V: version, Holder: c.instance, Name: c.self.Name, Counter: c.state.lease.counter + 1})
	c.mu.Unlock()
	if err != nil || !may {
		return false, err
	}
	err = c.write(ctx, at, value)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return false, nil // another was faster
	}
	if err == nil && other {
		c.opts.Logger.Info("cluster: this node is the controller", "name", c.self.Name)
	}
	return err == nil, err
}

// writeTable writes the table if it should be another one.
func (c *Cluster) writeTable(ctx context.Context) error {
	c.mu.Lock()
	if c.state.revisions[tableKey] < c.acked[tableKey] { // the watch has not brought the last one yet
		c.mu.Unlock()
		return nil
	}
	at := c.expect(tableKey)
	t, due := c.state.next(c.opts.Replicas)
	c.mu.Unlock()
	if !due {
		return nil
	}
	value, err := encodeTable(&t)
	if err != nil {
		return err
	}
	err = c.write(ctx, at, value)
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return nil // another controller was faster
	}
	if err == nil {
		c.opts.Logger.Info("cluster: new table", "revision", t.Revision, "replicas", t.Replicas)
	}
	return err
}
