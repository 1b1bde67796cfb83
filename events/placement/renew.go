package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// renewAndControl renews the node key of this process every RenewEvery, or sooner after a failure
// or a wake-up by announceNow. After each renewal that succeeds, it does the controller's work if
// this node has or can take the lease. It returns nil when ctx ends, and [ErrNameTakenOver] when a
// newer process has taken over the name of the node.
func (c *Cluster) renewAndControl(ctx context.Context) error {
	failures := 0
	for {
		err := c.renewNodeKey(ctx)
		if err == nil {
			err = c.actAsController(ctx)
		}

		otherWroteFirst := errors.Is(err, jetstream.ErrKeyRevisionMismatch)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx interrupted the request
		case errors.Is(err, ErrNameTakenOver):
			return err
		case !otherWroteFirst:
			c.logOutage(writeAccess, err)
		default:
			// The bucket answered, so this is no outage. The next attempt succeeds when the watch
			// has delivered what the other process wrote.
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
		case <-c.announceNow:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// renewNodeKey writes self to the node key. The first write takes the key over from an older
// process that runs a node of the same name. After that, renewNodeKey returns [ErrNameTakenOver] if
// a newer process has taken over the key.
func (c *Cluster) renewNodeKey(ctx context.Context) error {
	c.mu.Lock()
	key := nodePrefix + c.self.Name
	// The snapshot is taken under the same lock as the check, so that the write fails if another
	// process writes the key after the check.
	snapshot := c.snapshotKey(key)
	takenErr := c.checkNameTakenOver(key)
	isFirstWrite := !c.wroteNodeKey
	value, encodeErr := encodeValue(memberValue{V: formatVersion, Instance: c.instance, Member: c.self})
	c.mu.Unlock()

	if err := errors.Join(takenErr, encodeErr); err != nil {
		return err
	}

	if err := c.writeKey(ctx, snapshot, value); err != nil {
		return err
	}
	c.mu.Lock()
	c.wroteNodeKey = true
	c.mu.Unlock()

	if isFirstWrite {
		c.opts.Logger.Info("cluster: this node has joined", "bucket", c.bucketName(), "name", c.self.Name, "instance", c.instance)
	}
	return nil
}

// checkNameTakenOver returns [ErrNameTakenOver] if a newer process has taken over the node key. It
// also sets wroteNodeKey if the watch has delivered a write of this instance whose answer was lost.
// key is the node key of this process. The caller holds mu.
func (c *Cluster) checkNameTakenOver(key string) error {
	if c.bucketState.revisions[key] <= c.ackedRevisions[key] {
		return nil // the watch has delivered nothing that is newer than this instance's last write
	}
	if _, isUnreadable := c.bucketState.unreadable[key]; isUnreadable {
		return nil // no node of this version wrote the value, so renewNodeKey overwrites it
	}

	n := c.bucketState.nodes[c.self.Name]
	switch {
	case n == nil:
		// The key was deleted: renewNodeKey writes it again.
	case n.instance == c.instance:
		// This instance's write succeeded although its answer was lost.
		c.wroteNodeKey = true
	case c.wroteNodeKey:
		return fmt.Errorf("%w: the process at %s also runs as %s; each node must have its own name", ErrNameTakenOver, n.Addr, n.Name)
	default:
		// This process has not written the key yet, so it is the newer one and takes the key over.
	}
	return nil
}

// encodeValue encodes the value of a key.
func encodeValue(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return data, nil
}

// keySnapshot is the condition of a compare-and-set: the bucket, and the revision that a key had
// when this process decided to write or delete the key. The snapshot must be taken under the same
// lock as the data that the decision is based on. If another process writes the key after that, the
// write of this process fails, even if the watch has delivered the other write by then.
type keySnapshot struct {
	key           string
	kv            jetstream.KeyValue
	bucketCreated time.Time
	revision      uint64
}

// snapshotKey returns a snapshot of a key with the newest revision that the watch has delivered or
// this process has written. The caller holds mu.
func (c *Cluster) snapshotKey(key string) keySnapshot {
	return keySnapshot{
		key:           key,
		kv:            c.kv,
		bucketCreated: c.bucketCreated,
		revision:      max(c.bucketState.revisions[key], c.ackedRevisions[key]),
	}
}

// writeKey writes the key if its revision is still that of the snapshot, and otherwise returns
// [jetstream.ErrKeyRevisionMismatch]. After a write that succeeded but whose answer was lost, it
// also returns this error until the watch has delivered that write.
func (c *Cluster) writeKey(ctx context.Context, snapshot keySnapshot, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	revision, err := snapshot.kv.Update(ctx, snapshot.key, value, snapshot.revision)
	if err != nil {
		return fmt.Errorf("placement: write %s: %w", snapshot.key, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	// If the bucket was recreated meanwhile, the revision says nothing about the key in the new
	// bucket.
	if snapshot.bucketCreated.Equal(c.bucketCreated) {
		c.ackedRevisions[snapshot.key] = revision
	}
	return nil
}

// deleteKey deletes the key if its revision is still that of the snapshot, and otherwise returns
// [jetstream.ErrKeyRevisionMismatch].
func (*Cluster) deleteKey(ctx context.Context, snapshot keySnapshot) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := snapshot.kv.Delete(ctx, snapshot.key, jetstream.LastRevision(snapshot.revision))
	if err != nil {
		return fmt.Errorf("placement: delete %s: %w", snapshot.key, err)
	}
	return nil
}
