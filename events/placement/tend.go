package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// renewAndControl renews this node's key every period and then does the controller's work, if this node has or can take the lease. It
// returns nil when ctx ends, and [ErrNameTaken] when a newer process has taken the node's name.
func (c *Cluster) renewAndControl(ctx context.Context) error {
	failures := 0
	for {
		err := c.renewNodeKey(ctx)
		if err == nil {
			err = c.actAsController(ctx)
		}

		overtaken := errors.Is(err, jetstream.ErrKeyRevisionMismatch)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx interrupted the request
		case errors.Is(err, ErrNameTaken):
			return err
		case !overtaken:
			c.logOutage(writeAccess, err)
		default:
			// The bucket answered, so this is no outage: another process wrote the key first. The watch delivers what it wrote.
		}

		delay := c.opts.RenewEvery
		if err != nil {
			delay = c.retryDelay(failures)
			failures++
		} else {
			failures = 0
		}

		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-c.publishNow:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// renewNodeKey writes self to this node's key. The first write takes the key over from an earlier process of the same name. After that,
// renewNodeKey returns [ErrNameTaken] if a newer process has taken the key over from this one. It does nothing after Leave.
func (c *Cluster) renewNodeKey(ctx context.Context) error {
	c.mu.Lock()
	key := nodePrefix + c.self.Name
	// The snapshot is taken under the same lock as the check, so that the write fails if another process writes the key after the check.
	snapshot := c.snapshotKey(key)
	takenErr := c.checkNameTaken(key)
	hasLeft := c.hasLeft
	isFirstWrite := !c.ownsNodeKey
	value, encodeErr := encode(memberValue{V: version, Instance: c.instance, Member: c.self})
	c.mu.Unlock()

	if err := errors.Join(takenErr, encodeErr); err != nil || hasLeft {
		return err
	}

	if err := c.writeKey(ctx, snapshot, value); err != nil {
		return err
	}
	c.mu.Lock()
	c.ownsNodeKey = true
	c.mu.Unlock()

	if isFirstWrite {
		c.opts.Logger.Info("cluster: this node is in", "bucket", c.bucketName(), "name", c.self.Name, "instance", c.instance)
	}
	return nil
}

// checkNameTaken returns [ErrNameTaken] if another process has taken over the key of this node. The caller holds mu.
func (c *Cluster) checkNameTaken(key string) error {
	if c.state.revisions[key] <= c.ackedRevisions[key] {
		return nil // the watch has delivered nothing that is newer than this instance's last write
	}
	if _, bad := c.state.unreadable[key]; bad {
		return nil // no node writes such a value, so renewNodeKey overwrites it
	}

	n := c.state.nodes[c.self.Name]
	switch {
	case n == nil:
		// The key was deleted: renewNodeKey writes it again.
	case n.instance == c.instance:
		// This instance's write succeeded although its answer was lost.
		c.ownsNodeKey = true
	case c.ownsNodeKey:
		return fmt.Errorf("%w: another process, at %s, runs as %s: each node must have a name of its own", ErrNameTaken, n.Addr, n.Name)
	default:
		// An earlier process wrote the key, and this one has not written it yet: this one is newer and takes it over.
	}
	return nil
}

func encode(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return data, nil
}

// keySnapshot is the condition of a compare-and-set: the bucket and the revision of a key when the process decided to write or delete the
// key. Take it under the same lock as the state that the decision depends on. A write by another process after that makes this process's
// write fail, even if the watch has delivered the other write by then.
type keySnapshot struct {
	key           string
	kv            jetstream.KeyValue
	bucketCreated time.Time
	revision      uint64
}

// snapshotKey returns the newest revision of the key that the watch has delivered or this process has written. The caller holds mu.
func (c *Cluster) snapshotKey(key string) keySnapshot {
	return keySnapshot{
		key:           key,
		kv:            c.kv,
		bucketCreated: c.bucketCreated,
		revision:      max(c.state.revisions[key], c.ackedRevisions[key]),
	}
}

// writeKey writes the key if it still has the revision of the snapshot, and otherwise fails with [jetstream.ErrKeyRevisionMismatch]. It
// also fails so after a write that succeeded but whose answer was lost, until the watch has delivered the revision of that write.
func (c *Cluster) writeKey(ctx context.Context, snapshot keySnapshot, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	revision, err := snapshot.kv.Update(ctx, snapshot.key, value, snapshot.revision)
	if err != nil {
		return fmt.Errorf("placement: write %s: %w", snapshot.key, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	// If the bucket was recreated meanwhile, the revision says nothing about the key in the new bucket.
	if snapshot.bucketCreated.Equal(c.bucketCreated) {
		c.ackedRevisions[snapshot.key] = revision
	}
	return nil
}

// deleteKey deletes the key if it still has the revision of the snapshot, and otherwise fails with [jetstream.ErrKeyRevisionMismatch].
func (*Cluster) deleteKey(ctx context.Context, snapshot keySnapshot) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := snapshot.kv.Delete(ctx, snapshot.key, jetstream.LastRevision(snapshot.revision))
	if err != nil {
		return fmt.Errorf("placement: delete %s: %w", snapshot.key, err)
	}
	return nil
}
