package placement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events/wait"
)

var (
	errSilent  = errors.New("placement: nothing comes from the bucket")
	errStopped = errors.New("placement: the watch of the bucket has ended")
)

// watch keeps the state current until the context ends. A watch that is silent for three periods may have been lost, since nodes renew
// their keys: it is begun again.
func (c *Cluster) watch(ctx context.Context) error {
	failures := 0
	for {
		read, err := c.follow(ctx, 3*c.opts.Every, false)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the watch was interrupted
		case read && errors.Is(err, errSilent):
			failures = 0
			continue
		case read:
			failures = 0
		}
		c.note(reading, err)
		if err := wait.For(ctx, c.pause(failures)); err != nil {
			return nil //nolint:nilerr // the context has ended
		}
		failures++
	}
}

// refresh reads what is in the bucket.
func (c *Cluster) refresh(ctx context.Context) error {
	if read, err := c.follow(ctx, requestTimeout, true); !read {
		return err
	}
	return nil
}

// follow opens the bucket and applies its entries as they come. It returns [errSilent] when none came for a time; read is whether the
// bucket had been read by then. If it should end there, it does. Values that cannot be read are ignored.
func (c *Cluster) follow(ctx context.Context, quiet time.Duration, end bool) (read bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(requestTimeout, func() { cancel(errSilent) })
	defer timer.Stop()
	ask := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("placement: watch the bucket %s: %w", c.bucketName(), err)
	}
	kv, err := c.open(ctx)
	if err != nil {
		return false, ask(err)
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return false, ask(err)
	}
	defer drain(w)
	defer cancel(nil) // before drain: it ends the watch
	for {
		select {
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return read, ask(errStopped)
			case e != nil:
				c.apply(e)
			case end:
				return true, nil
			default:
				read = true
				c.note(reading, nil)
			}
			if read {
				timer.Reset(quiet)
			}
		case <-ctx.Done():
			return read, context.Cause(ctx)
		}
	}
}

// drain takes what a watch that was canceled still delivers, so that its callback does not block for ever.
func drain(w jetstream.KeyWatcher) {
	timer := time.NewTimer(requestTimeout)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-w.Updates():
			if !ok {
				return
			}
		case <-timer.C: // canceled before the client could have closed the channel: then nothing blocks
			return
		}
	}
}

// apply takes one entry, and notifies those who wait for a change. A value that cannot be read is logged once, until its key is deleted or
// gets a value that can be read.
func (c *Cluster) apply(e jetstream.KeyValueEntry) {
	c.mu.Lock()
	_, isLogged := c.state.unreadable[e.Key()]
	changed, err := c.state.apply(entry{
		key: e.Key(), value: e.Value(), revision: e.Revision(), deleted: e.Operation() != jetstream.KeyValuePut,
	}, time.Now())
	if changed {
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.mu.Unlock()
	if err != nil && !isLogged {
		c.opts.Logger.Error("cluster: the bucket has a value that cannot be read, which is ignored", "key", e.Key(), "bucket", c.bucketName(),
			"error", err)
	}
}

// BucketName returns the name of the bucket of the cluster that reads a log.
func BucketName(logID string) string { return "skein-cluster-" + logID }

func (c *Cluster) bucketName() string { return BucketName(c.opts.LogID) }

// open finds the bucket or makes it.
func (c *Cluster) open(ctx context.Context) (jetstream.KeyValue, error) {
	js, name := c.opts.JS, c.bucketName()
	kv, err := js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      name,
			Description: "The nodes of a cluster of skein, and their partitions. Written by skein; do not edit.",
			History:     1,
			Storage:     jetstream.FileStorage,
			Replicas:    max(c.opts.BucketReplicas, 1),
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
			kv, err = js.KeyValue(ctx, name)
		}
	}
	if err != nil {
		return nil, err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, err
	}
	var made time.Time
	if bucket, ok := status.(*jetstream.KeyValueBucketStatus); ok {
		made = bucket.StreamInfo().Created
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !made.Equal(c.made) {
		c.state.forget()
		clear(c.acked)
	}
	c.kv, c.made = kv, made
	return kv, nil
}

// work is what this process does with the bucket.
type work string

const (
	reading work = "read"
	writing work = "written"
)

// note logs the beginning and the end of an outage of the bucket, each once.
func (c *Cluster) note(what work, err error) {
	c.mu.Lock()
	before := len(c.failing)
	if delete(c.failing, what); err != nil {
		c.failing[what] = true
	}
	after := len(c.failing)
	c.mu.Unlock()
	switch {
	case before == 0 && after > 0:
		c.opts.Logger.Warn("cluster: the bucket cannot be "+string(what)+"; members and table stay as they are", "bucket", c.bucketName(),
			"error", err)
	case before > 0 && after == 0:
		c.opts.Logger.Info("cluster: the bucket is in reach again", "bucket", c.bucketName())
	}
}

// pause is how long to wait after so many failures: from an eighth of a period to a period.
func (c *Cluster) pause(failures int) time.Duration {
	return c.opts.Every / 8 << min(failures, 3)
}
