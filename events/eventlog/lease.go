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

// leaseBucket is the JetStream KV bucket of the leases. All its keys expire after the bucket's TTL. A TTL for a single key would be
// lost when the key is updated, that is, with the first renewal.
const leaseBucket = "SKEIN_LEASE"

// MinLease is the shortest time of a lease.
const MinLease = time.Second

// WhileLeased runs a function in at most one of the processes that have the log open. It waits for the lease of a name, renews it
// while the function runs, and gives it back. The function's context ends when the lease could not be renewed in time, a third of
// the ttl before another may take it; WhileLeased then returns [events.ErrLeaseLost], after the function has returned. Another
// process takes over one ttl after the holder died; the first process sets the ttl for all. An embedded log belongs to one process,
// so the function runs at once.
//
//	│◀──────────── ttl ────────────▶│
//	renewed … renewed … believed until 2/3   others may take it
func (l *Log) WhileLeased(ctx context.Context, name string, ttl time.Duration, run func(context.Context) error) error {
	if ttl < MinLease {
		return fmt.Errorf("eventlog: a lease of %v is too short, at least %v", ttl, MinLease)
	}
	if l.server != nil {
		return run(ctx)
	}
	return l.whileLeased(ctx, name, ttl, run)
}

// whileLeased is WhileLeased for a log that others may have open.
func (l *Log) whileLeased(ctx context.Context, name string, ttl time.Duration, run func(context.Context) error) error {
	le := &lease{log: l, name: name, ttl: ttl, holder: []byte(rand.Text())}
	if err := le.acquire(ctx); err != nil {
		return err
	}
	return le.runWhileHeld(ctx, run)
}

// lease is a key of the bucket that says who holds it.
type lease struct {
	log    *Log
	kv     jetstream.KeyValue
	name   string
	ttl    time.Duration
	holder []byte

	revision    uint64
	lastRenewal time.Time // when the last renewal that succeeded was sent
}

// open finds the bucket or makes it, and takes its ttl.
func (le *lease) open(ctx context.Context) error {
	js := le.log.link.js
	kv, err := js.KeyValue(ctx, leaseBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		info, infoErr := le.log.streamInfo(ctx)
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
		if errors.Is(err, jetstream.ErrBucketExists) { // another process was faster, with another ttl
			kv, err = js.KeyValue(ctx, leaseBucket)
		}
	}
	if err != nil {
		return unavailable(err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return unavailable(err)
	}
	if status.TTL() < MinLease {
		return fmt.Errorf("%w: the bucket %s keeps keys for %v, must be at least %v", events.ErrStreamMismatch, leaseBucket,
			status.TTL(), MinLease)
	}
	le.kv, le.ttl = kv, status.TTL()
	return nil
}

// acquire waits until this process has the lease. Errors of the connection are retried.
func (le *lease) acquire(ctx context.Context) error {
	for {
		err := le.ask(ctx, func(ctx context.Context) (err error) {
			if le.kv == nil {
				if err := le.open(ctx); err != nil {
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
			// Another process has it. Or it is ours and the answer was lost: we cannot know that without the revision, so we let it
			// expire.
		default:
			le.log.logger.Warn("log: the lease cannot be asked for", "lease", le.name, "error", err)
		}
		if err := wait.For(ctx, le.ttl/6); err != nil {
			return err
		}
	}
}

// runWhileHeld runs the function while the lease is renewed.
func (le *lease) runWhileHeld(ctx context.Context, run func(context.Context) error) error {
	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	renewing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := le.renew(renewing); err != nil {
			lose(err)
		}
	}()
	err := run(held)
	stop()
	<-ended
	if cause := context.Cause(held); errors.Is(cause, events.ErrLeaseLost) {
		return fmt.Errorf("%w: %s", cause, le.name)
	}
	le.release(context.WithoutCancel(ctx))
	return err
}

// renew renews the lease until the context ends, which is no error, or until it is no longer safe to believe in it.
func (le *lease) renew(ctx context.Context) error {
	for {
		if err := wait.For(ctx, le.ttl/6); err != nil {
			return nil //nolint:nilerr // the work is done
		}
		left := time.Until(le.lastRenewal.Add(2 * le.ttl / 3))
		if left <= 0 {
			return fmt.Errorf("%w: not renewed for %v", events.ErrLeaseLost, time.Since(le.lastRenewal).Round(time.Millisecond))
		}
		bounded, cancel := context.WithTimeout(ctx, left)
		err := le.update(bounded)
		cancel()
		switch {
		case errors.Is(err, events.ErrLeaseLost):
			return err
		case err != nil && ctx.Err() == nil:
			le.log.logger.Warn("log: the lease was not renewed", "lease", le.name, "error", err)
		}
	}
}

// update renews once. When the revision is not the one expected, the answer to an earlier update was lost, or another
// process has the lease.
func (le *lease) update(ctx context.Context) error {
	return le.ask(ctx, func(ctx context.Context) error {
		sent := time.Now()
		revision, err := le.kv.Update(ctx, le.name, le.holder, le.revision)
		if err == nil {
			le.revision, le.lastRenewal = revision, sent
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return unavailable(err)
		}
		entry, err := le.kv.Get(ctx, le.name)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound), err == nil && !bytes.Equal(entry.Value(), le.holder):
			return fmt.Errorf("%w: another process has taken it", events.ErrLeaseLost)
		case err != nil:
			return unavailable(err)
		}
		le.revision = entry.Revision()
		// The revision is known now, so the next renewal succeeds.
		return fmt.Errorf("%w: the answer to a renewal was lost", events.ErrLogUnavailable)
	})
}

// release gives the lease back. If that fails it expires. A renewal that was canceled may have reached the server: then the revision
// is a later one than this process knows, and is read again for as long as the lease is still its own. A replica may lag behind.
func (le *lease) release(ctx context.Context) {
	err := le.ask(ctx, func(ctx context.Context) error {
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

// releaseRetryPause is the pause before a lagging replica, which does not know of the last renewal, is asked again.
const releaseRetryPause = 10 * time.Millisecond

// ask bounds one request to a sixth of the ttl, so that several attempts fit into the two thirds in which the lease is trusted.
func (le *lease) ask(ctx context.Context, question func(context.Context) error) error {
	return le.log.link.during(ctx, le.log.link.state(), min(le.ttl/6, requestTimeout), question,
		askAccount, askBucketInfo, askBucketCreate, askBucketGet, askBucketPut)
}
