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
	errNoEntries = errors.New("placement: the bucket delivers nothing")
	// errWatchEnded means that the NATS client closed the watch.
	errWatchEnded = errors.New("placement: the watch of the bucket has ended")
)

// watchBucket keeps bucketState up to date until ctx ends, and then returns nil. Nodes renew their
// keys every RenewEvery, so a watch that delivers nothing for 3*RenewEvery may be lost, and
// watchBucket starts a new one.
func (c *Cluster) watchBucket(ctx context.Context) error {
	failures := 0
	for {
		complete, err := c.applyBucketEntries(ctx, 3*c.opts.RenewEvery, false)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of ctx interrupted the watch
		}

		if complete {
			failures = 0
			// If no entries arrive after the whole bucket was read, that need not be an outage:
			// perhaps no node is running. Start a new watch without a delay.
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

// readBucket reads the whole bucket once into bucketState. It creates the bucket if it is missing,
// and ignores values that it cannot read.
func (c *Cluster) readBucket(ctx context.Context) error {
	_, err := c.applyBucketEntries(ctx, requestTimeout, true)
	return err
}

// applyBucketEntries opens the bucket, or creates it if it is missing. It applies all entries of
// the bucket to bucketState, and then the entries that arrive, until the watch fails or ctx ends.
// If once is set, it returns nil as soon as the bucket has been read. complete reports whether the
// bucket has been read.
//
// The error is [errNoEntries] if reading the bucket takes longer than requestTimeout, or if no
// entry arrives for maxSilence after that.
func (c *Cluster) applyBucketEntries(ctx context.Context, maxSilence time.Duration, once bool) (complete bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(requestTimeout, func() { cancel(errNoEntries) })
	defer timer.Stop()

	// watchError adds the name of the bucket to an error. If ctx has ended, it returns the cause of
	// that instead, which says more than the error of the interrupted request.
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
	// Deferred calls run in reverse order: cancel ends the watch, and then drainWatcher receives
	// what the watch still delivers.
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
			// In the next two cases, entry is nil. The client sends nil once, after the last entry
			// that the bucket had when the watch began.
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

// drainWatcher receives what a canceled watch still delivers, so that the client's callback does
// not block forever on a full channel.
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
			// The watch was canceled before the client could arrange to close the channel. Then
			// nothing blocks on it either.
			return
		}
	}
}

// applyEntry applies one entry to bucketState. If Members or Table have changed, it closes changed
// and replaces it by a new channel.
// It logs the first unreadable value of a key, and no further ones until the key is deleted or has
// a readable value.
func (c *Cluster) applyEntry(e jetstream.KeyValueEntry) {
	c.mu.Lock()
	_, isLogged := c.bucketState.unreadable[e.Key()]
	changed, err := c.bucketState.apply(entry{
		key: e.Key(), value: e.Value(), revision: e.Revision(), deleted: e.Operation() != jetstream.KeyValuePut,
	}, time.Now())
	if changed {
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.mu.Unlock()

	if err != nil && !isLogged {
		c.opts.Logger.Error("cluster: a value in the bucket cannot be read and is ignored", "key", e.Key(),
			"bucket", c.bucketName(), "error", err)
	}
}

// BucketName returns the name of the bucket of the cluster whose nodes read the event log with this
// id.
func BucketName(logID string) string { return "skein-cluster-" + logID }

func (c *Cluster) bucketName() string { return BucketName(c.opts.LogID) }

// openBucket opens the bucket, or creates it if it is missing, and sets kv. If the bucket was
// deleted and created again since the last call, openBucket resets what belongs to the old bucket.
func (c *Cluster) openBucket(ctx context.Context) (jetstream.KeyValue, error) {
	js, name := c.opts.JS, c.bucketName()
	kv, err := js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      name,
			Description: "The nodes of a cluster of skein, and their partitions. Written by skein; do not edit.",
			History:     1,
			Storage:     jetstream.FileStorage,
			Replicas:    c.opts.BucketReplicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another process has just created the bucket
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
		c.bucketState.resetForNewBucket()
		clear(c.ackedRevisions)
	}
	c.kv = kv
	c.bucketCreated = created
	return kv, nil
}

// bucketAccess is a kind of access to the bucket. Its value is part of the message that logOutage
// writes.
type bucketAccess string

const (
	readAccess  bucketAccess = "read"
	writeAccess bucketAccess = "written"
)

// logOutage records whether an access to the bucket failed. A nil err means that it succeeded.
// logOutage logs once when the first kind of access begins to fail, and once when no kind fails any
// more.
func (c *Cluster) logOutage(access bucketAccess, err error) {
	c.mu.Lock()
	failingBefore := len(c.failingAccess)
	if err != nil {
		c.failingAccess[access] = true
	} else {
		delete(c.failingAccess, access)
	}
	failingNow := len(c.failingAccess)
	c.mu.Unlock()

	switch {
	case failingBefore == 0 && failingNow > 0:
		c.opts.Logger.Warn("cluster: the bucket cannot be "+string(access)+"; the known nodes and the table stay as they are",
			"bucket", c.bucketName(), "error", err)
	case failingBefore > 0 && failingNow == 0:
		c.opts.Logger.Info("cluster: the bucket is in reach again", "bucket", c.bucketName())
	}
}

// retryDelay returns how long to wait before the next attempt, after so many earlier failures:
// RenewEvery/8 for 0, doubled with each failure up to RenewEvery.
func (c *Cluster) retryDelay(failures int) time.Duration {
	return c.opts.RenewEvery / 8 << min(failures, 3)
}
