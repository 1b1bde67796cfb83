package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// tend renews what this node says of itself, and is the controller when it has the lease, until the context ends or another process has
// taken the name.
func (c *Cluster) tend(ctx context.Context) error {
	failures := 0
	for {
		err := c.renew(ctx)
		if err == nil {
			err = c.control(ctx)
		}
		overtaken := errors.Is(err, jetstream.ErrKeyRevisionMismatch)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the request was interrupted
		case errors.Is(err, ErrNameTaken):
			return err
		case !overtaken: // otherwise the bucket is in reach, and the watch brings what stands there
			c.note(writing, err)
		}
		pause := c.opts.Every
		if err != nil {
			pause = c.pause(failures)
			failures++
		} else {
			failures = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.said:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// renew writes what this node says of itself. The first time it takes the key over from an earlier run. Later it fails with
// [ErrNameTaken] if a newer one has done so.
func (c *Cluster) renew(ctx context.Context) error {
	c.mu.Lock()
	key := nodePrefix + c.self.Name
	at, err := c.expect(key), c.taken(key)
	left, first := c.left, !c.held
	value, encodeErr := encode(memberValue{V: version, Instance: c.instance, Member: c.self})
	c.mu.Unlock()
	if err = errors.Join(err, encodeErr); err != nil || left {
		return err
	}
	if err := c.write(ctx, at, value); err != nil {
		return err
	}
	c.mu.Lock()
	c.held = true
	c.mu.Unlock()
	if first {
		c.opts.Logger.Info("cluster: this node is in", "bucket", c.bucketName(), "name", c.self.Name, "instance", c.instance)
	}
	return nil
}

// taken returns [ErrNameTaken] if the key of this node has become that of another process. mu is held.
func (c *Cluster) taken(key string) error {
	if c.state.revisions[key] <= c.acked[key] {
		return nil // this instance wrote last, as far as is known
	}
	if _, bad := c.state.unreadable[key]; bad {
		return nil // no node wrote that, and it is overwritten
	}
	n := c.state.nodes[c.self.Name]
	switch {
	case n == nil: // deleted
	case n.instance == c.instance:
		c.held = true // the answer to the write was lost
	case c.held:
		return fmt.Errorf("%w: another process, at %s, runs as %s: each node must have a name of its own", ErrNameTaken, n.Addr, n.Name)
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

// expected is what a process knows of a key when it decides to write it: the bucket, when that was made, and the last revision that it has
// seen or written. It is read together with what the decision is about, so that news in between makes the write fail.
type expected struct {
	key      string
	kv       jetstream.KeyValue
	made     time.Time
	revision uint64
}

// expect is called with mu held.
func (c *Cluster) expect(key string) expected {
	return expected{key, c.kv, c.made, max(c.state.revisions[key], c.acked[key])}
}

// write writes a key if it is as expected: otherwise it fails with [jetstream.ErrKeyRevisionMismatch]. That is also so if the
// answer to the last write was lost; the watch brings its revision.
func (c *Cluster) write(ctx context.Context, at expected, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	revision, err := at.kv.Update(ctx, at.key, value, at.revision)
	if err != nil {
		return fmt.Errorf("placement: write %s: %w", at.key, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.made.Equal(c.made) {
		c.acked[at.key] = revision
	}
	return nil
}

// remove deletes a key under the same condition.
func (*Cluster) remove(ctx context.Context, at expected) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := at.kv.Delete(ctx, at.key, jetstream.LastRevision(at.revision)); err != nil {
		return fmt.Errorf("placement: delete %s: %w", at.key, err)
	}
	return nil
}
