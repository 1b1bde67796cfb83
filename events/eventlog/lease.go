package eventlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// leaseBucket is the JetStream KV bucket that has one key per lease. All keys expire after the TTL
// of the bucket. Keys have no TTL of their own, because an update removes it, so that the first
// renewal would lose it.
const leaseBucket = "SKEIN_LEASE"

// MinLease is the shortest ttl of a lease.
const MinLease = time.Second

// RunWithLease runs a function in at most one of the processes that have the log open. It waits
// until this process gets the lease with the given name, renews the lease while the function runs,
// and then releases it.
//
// If the lease has not been renewed for two thirds of the ttl, the context of the function ends. So
// the function has a third of the ttl to stop before another process may take the lease.
// RunWithLease waits for the function and returns [events.ErrLeaseLost]. When the holder dies,
// another process takes over after about one ttl. The process that creates the first lease sets the
// ttl of all leases. The process of an embedded log runs the function at once, without a lease.
//
//	│◀──────────── ttl ────────────▶│
//	renewed … trusted until 2/3      others may take it
func (l *Log) RunWithLease(ctx context.Context, name string, ttl time.Duration, run func(context.Context) error) error {
	if ttl < MinLease {
		return fmt.Errorf("eventlog: a lease of %v is too short, at least %v", ttl, MinLease)
	}
	if l.server != nil {
		return run(ctx)
	}
	return l.whileLeased(ctx, name, ttl, run)
}

// whileLeased is RunWithLease for a log that other processes may have open.
func (l *Log) whileLeased(ctx context.Context, name string, ttl time.Duration, run func(context.Context) error) error {
	le := &lease{log: l, name: name, ttl: ttl, holder: []byte(rand.Text())}
	if err := le.acquire(ctx); err != nil {
		return err
	}
	return le.runWhileHeld(ctx, run)
}

// lease is a key of the bucket. Its value names the holder.
type lease struct {
	log  *Log
	kv   jetstream.KeyValue
	name string
	ttl  time.Duration
	// holder is a random name of this process, different for each lease.
	holder []byte

	// revision is the revision of the key after the last renewal of this process.
	revision uint64
	// lastRenewal is when the last request that got or renewed the lease was sent. The server
	// counts the ttl from a later time, so lastRenewal errs on the safe side.
	lastRenewal time.Time
}

// openBucket opens the bucket, or creates it, and adopts its ttl for this lease.
func (le *lease) openBucket(ctx context.Context) error {
	js := le.log.conn.js
	kv, err := js.KeyValue(ctx, leaseBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		info, infoErr := le.log.fetchStreamInfo(ctx)
		if infoErr != nil {
			return infoErr
		}
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      leaseBucket,
			Description: "Who archives the log of skein. Written by skein; do not edit.",
			History:     1,
			TTL:         le.ttl,
			Storage:     jetstream.FileStorage,
			Replicas:    info.Config.Replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
			kv, err = js.KeyValue(ctx, leaseBucket)
		}
	}
	if err != nil {
		return wrapUnavailable(err)
	}

	// An operator may have created the bucket with another ttl, or another process with its own.
	status, err := kv.Status(ctx)
	if err != nil {
		return wrapUnavailable(err)
	}
	if status.TTL() < MinLease {
		return fmt.Errorf("%w: the bucket %s keeps keys for %v, must be at least %v", events.ErrStreamMismatch, leaseBucket,
			status.TTL(), MinLease)
	}

	le.kv = kv
	le.ttl = status.TTL()
	return nil
}

// acquire waits until this process has the lease. It retries after errors of the connection.
func (le *lease) acquire(ctx context.Context) error {
	for {
		err := le.request(ctx, func(ctx context.Context) (err error) {
			if le.kv == nil {
				if err := le.openBucket(ctx); err != nil {
					return err
				}
			}
			sent := time.Now()
			le.revision, err = le.kv.Create(ctx, le.name, le.holder)
			le.lastRenewal = sent
			return err
		})

		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case isTerminal(err), errors.Is(err, events.ErrStreamMismatch):
			return err
		case errors.Is(err, jetstream.ErrKeyExists):
			// Another process has the lease. Or this process has it and the answer was lost:
			// without the revision it cannot renew the lease, so it waits until the lease expires.
		default:
			le.log.logger.Warn("log: the lease cannot be asked for", "lease", le.name, "error", err)
		}
		if err := wait.For(ctx, le.ttl/6); err != nil {
			return err
		}
	}
}

// runWhileHeld runs the function and renews the lease until the function returns. If the lease is
// lost, it cancels the context of the function and returns [events.ErrLeaseLost].
func (le *lease) runWhileHeld(ctx context.Context, run func(context.Context) error) error {
	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)

	// The end of ctx asks the function to stop, and the function may need some time for that. The
	// lease is renewed meanwhile: if it expired, another process could begin before the function
	// has ended.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := le.keepRenewing(renewing); err != nil {
			lose(err)
		}
	}()

	err := run(held)
	stop()
	<-ended // a renewal that is in progress would conflict with the release

	if cause := context.Cause(held); errors.Is(cause, events.ErrLeaseLost) {
		return fmt.Errorf("%w: %s", cause, le.name)
	}

	le.release(context.WithoutCancel(ctx))
	return err
}

// keepRenewing renews the lease until ctx ends, and then returns nil. It returns
// [events.ErrLeaseLost] when another process has the lease or may soon take it.
func (le *lease) keepRenewing(ctx context.Context) error {
	for {
		// The lease is trusted for two thirds of the ttl. The rest is for the function to stop
		// before another process starts.
		trustedUntil := le.lastRenewal.Add(2 * le.ttl / 3)
		if err := wait.For(ctx, min(le.ttl/6, time.Until(trustedUntil))); err != nil {
			return nil //nolint:nilerr // the work is done
		}
		left := time.Until(trustedUntil)
		if left <= 0 {
			return fmt.Errorf("%w: not renewed for %v", events.ErrLeaseLost, time.Since(le.lastRenewal).Round(time.Millisecond))
		}

		bounded, cancel := context.WithTimeout(ctx, left)
		err := le.renewOnce(bounded)
		cancel()
		switch {
		case errors.Is(err, events.ErrLeaseLost):
			return err
		case err != nil && ctx.Err() == nil:
			le.log.logger.Warn("log: the lease was not renewed", "lease", le.name, "error", err)
		}
	}
}

// renewOnce renews the lease once. If the revision is not the expected one, either the answer to an
// earlier update was lost, or another process has the lease. The value of the key says which.
func (le *lease) renewOnce(ctx context.Context) error {
	return le.request(ctx, func(ctx context.Context) error {
		sent := time.Now()
		revision, err := le.kv.Update(ctx, le.name, le.holder, le.revision)
		if err == nil {
			le.revision = revision
			le.lastRenewal = sent
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return wrapUnavailable(err)
		}

		entry, err := le.kv.Get(ctx, le.name)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound), err == nil && !bytes.Equal(entry.Value(), le.holder):
			return fmt.Errorf("%w: another process has taken it", events.ErrLeaseLost)
		case err != nil:
			return wrapUnavailable(err)
		}
		le.revision = entry.Revision()
		// The revision is known now, so the next renewal succeeds.
		return fmt.Errorf("%w: the answer to a renewal was lost", events.ErrLogUnavailable)
	})
}

// release deletes the key, so that another process can take the lease at once. If that fails, the
// lease expires.
//
// A canceled renewal may have reached the server. Then the key has a later revision than this
// process knows. release reads the revision and tries again as long as the key names this process.
func (le *lease) release(ctx context.Context) {
	err := le.request(ctx, func(ctx context.Context) error {
		for {
			err := le.kv.Delete(ctx, le.name, jetstream.LastRevision(le.revision))
			if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
				return err
			}
			entry, getErr := le.kv.Get(ctx, le.name)
			if getErr != nil {
				return getErr
			}
			if !bytes.Equal(entry.Value(), le.holder) {
				return err
			}
			if entry.Revision() == le.revision {
				// The answer came from a replica that does not know of the last renewal yet, so ask
				// again.
				if err := wait.For(ctx, releaseRetryPause); err != nil {
					return err
				}
			}
			le.revision = entry.Revision()
		}
	})
	if err != nil {
		le.log.logger.Debug("log: the lease was not given back", "lease", le.name, "error", err)
	}
}

// releaseRetryPause is the pause before release asks a lagging replica again.
const releaseRetryPause = 10 * time.Millisecond

// request sends one request, with a timeout of at most a sixth of the ttl, so that several attempts
// fit into the two thirds of the ttl in which the lease is trusted.
func (le *lease) request(ctx context.Context, send func(context.Context) error) error {
	return le.log.conn.request(ctx, le.log.conn.state(), min(le.ttl/6, requestTimeout), send,
		accountInfoSubject, bucketInfoSubject, bucketCreateSubject, bucketGetPrefix, bucketPutPrefix)
}
