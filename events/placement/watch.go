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
	// errNoEntries ends a watch that has delivered nothing for too long.
	errNoEntries = errors.New("placement: nothing comes from the bucket")
	// errWatchEnded is returned when the client closes the watch by itself.
	errWatchEnded = errors.New("placement: the watch of the bucket has ended")
)

// watchBucket keeps the state up to date until ctx ends, and then returns nil. Because nodes renew their keys every period, a watch that
// delivers nothing for three periods may be lost: watchBucket starts it again.
func (c *Cluster) watchBucket(ctx context.Context) error {
	failures := 0
	for {
		complete, err := c.applyBucketEntries(ctx, 3*c.opts.RenewEvery, false)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of ctx interrupted the watch
		}

		if complete {
			failures = 0
			// Silence after a complete reading is not an outage: no other node may be running. Start the watch again without a delay.
			if errors.Is(err, errNoEntries) {
				continue
			}
		}

		c.logOutage(readAccess, err)
		if err := wait.For(ctx, c.retryDelay(failures)); err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		failures++
	}
}

// rereadBucket brings the state up to date by reading the whole bucket once. It ignores values that cannot be read.
func (c *Cluster) rereadBucket(ctx context.Context) error {
	complete, err := c.applyBucketEntries(ctx, requestTimeout, true)
	if !complete {
		return err
	}
	return nil
}

// applyBucketEntries opens the bucket, applies all its entries to the state, and then those that arrive, until the watch fails or ctx ends.
// complete reports whether all entries that were in the bucket have been applied.
//
// It fails with [errNoEntries] if it cannot read the bucket within requestTimeout, or if nothing arrives for maxSilence after that. With
// once set, it returns as soon as the bucket has been read. It logs and ignores values that cannot be read.
func (c *Cluster) applyBucketEntries(ctx context.Context, maxSilence time.Duration, once bool) (complete bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(requestTimeout, func() { cancel(errNoEntries) })
	defer timer.Stop()

	// When ctx has ended, the reason for that says more than the error of the request that it interrupted.
	watchError := func(err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("placement: watch the bucket %s: %w", c.bucketName(), err)
	}

	kv, err := c.openBucket(ctx)
	if err != nil {
		return false, watchError(err)
	}
	watcher, err := kv.WatchAll(ctx)
	if err != nil {
		return false, watchError(err)
	}
	// Deferred calls run in reverse order: cancel ends the watch, and then drainWatcher takes what the watch still delivers.
	defer drainWatcher(watcher)
	defer cancel(nil)

	for {
		select {
		case entry, ok := <-watcher.Updates():
			switch {
			case !ok:
				return complete, watchError(errWatchEnded)
			case entry != nil:
				c.applyEntry(entry)
			// The client sends nil after the last entry that was in the bucket.
			case once:
				return true, nil
			default:
				complete = true
				c.logOutage(readAccess, nil)
			}
			if complete {
				timer.Reset(maxSilence)
			}
		case <-ctx.Done():
			return complete, context.Cause(ctx)
		}
	}
}

// drainWatcher receives what a canceled watch still delivers, so that the client's callback does not block forever on a full channel.
func drainWatcher(watcher jetstream.KeyWatcher) {
	timer := time.NewTimer(requestTimeout)
	defer timer.Stop()
	for {
		select {
		case _, ok := <-watcher.Updates():
			if !ok {
				return
			}
		case <-timer.C:
			// The watch was canceled before the client could arrange to close the channel. Then nothing blocks on it either.
			return
		}
	}
}

// applyEntry applies one entry to the state and closes changed if members or table have changed. It logs a value that
// cannot be read once, until the key is deleted or gets a value that can be read.
func (c *Cluster) applyEntry(e jetstream.KeyValueEntry) {
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
		c.opts.Logger.Error("cluster: the bucket has a value that cannot be read, which is ignored", "key", e.Key(),
			"bucket", c.bucketName(), "error", err)
	}
}

// BucketName returns the name of the bucket that the nodes reading the log with this id share.
func BucketName(logID string) string { return "skein-cluster-" + logID }

func (c *Cluster) bucketName() string { return BucketName(c.opts.LogID) }

// openBucket opens the bucket, and creates it if it is missing. If it is not the bucket of the last call, because somebody deleted that one,
// openBucket resets the state and the revisions that belong to the old bucket.
func (c *Cluster) openBucket(ctx context.Context) (jetstream.KeyValue, error) {
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
		if errors.Is(err, jetstream.ErrBucketExists) { // another process created it meanwhile
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
	var created time.Time
	if bucket, ok := status.(*jetstream.KeyValueBucketStatus); ok {
		created = bucket.StreamInfo().Created
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if !created.Equal(c.bucketCreated) {
		c.state.resetForNewBucket()
		clear(c.ackedRevisions)
	}
	c.kv = kv
	c.bucketCreated = created
	return kv, nil
}

// bucketAccess is a kind of access to the bucket. Its value is part of the message that logOutage writes.
type bucketAccess string

const (
	readAccess  bucketAccess = "read"
	writeAccess bucketAccess = "written"
)

// logOutage records whether an access to the bucket failed; a nil err means that it succeeded. It logs once when the first kind of access
// begins to fail, and once when all kinds succeed again.
func (c *Cluster) logOutage(access bucketAccess, err error) {
	c.mu.Lock()
	failedBefore := len(c.failedAccess)
	if err != nil {
		c.failedAccess[access] = true
	} else {
		delete(c.failedAccess, access)
	}
	failedNow := len(c.failedAccess)
	c.mu.Unlock()

	switch {
	case failedBefore == 0 && failedNow > 0:
		c.opts.Logger.Warn("cluster: the bucket cannot be "+string(access)+"; members and table stay as they are",
			"bucket", c.bucketName(), "error", err)
	case failedBefore > 0 && failedNow == 0:
		c.opts.Logger.Info("cluster: the bucket is in reach again", "bucket", c.bucketName())
	}
}

// retryDelay returns how long to wait after the given number of earlier failures: an eighth of a period, doubled after each failure up to a
// whole period, which is the usual time between two writes.
func (c *Cluster) retryDelay(failures int) time.Duration {
	return c.opts.RenewEvery / 8 << min(failures, 3)
}
