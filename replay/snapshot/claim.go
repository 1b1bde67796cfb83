package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/wait"
)

const (
	// claimLifetime is the age at which a claim that was not renewed expires. If a process crashes,
	// the others wait for so long.
	claimLifetime = 3 * time.Minute
	// claimRenewal is how often a claim is renewed. Several renewals may fail before the claim
	// expires.
	claimRenewal = 30 * time.Second
	// maxAcquireTime is how long the bucket may take to write a new claim and to list the others.
	// After that, too little is left of the lifetime for several renewals.
	maxAcquireTime = 2 * claimRenewal
)

// claim is the right of a process to add and remove files in a bucket: an object, while there is no
// other claim that has not expired. Each process writes its own claim before it looks for others.
// So if two processes try at the same time, both may be rejected, but never are both accepted.
//
// The age of a claim is the difference between two times that the bucket has set, so the clocks of
// the processes do not matter.
type claim struct {
	bucket bucket.Bucket
	object string
	// purpose is the content of the object, for people.
	purpose string
	// lastRenewal is when the last successful write of the object was sent. The bucket sets the
	// time of the object later than this, so counting the lifetime from here errs on the safe side.
	lastRenewal time.Time

	// cancel ends the work when the claim is lost. ended is closed when renew has returned.
	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// claimRetryDelay is the pause between two attempts of [RetryWhileBusy].
const claimRetryDelay = time.Second

// RetryWhileBusy calls work, and repeats the call as long as it returns [ErrBusy] because another
// snapshot is taken or removed, in any process. If a process has crashed and left its claim, that
// takes until the claim expires.
func RetryWhileBusy(ctx context.Context, work func() error) error {
	for {
		err := work()
		if !errors.Is(err, ErrBusy) {
			return err
		}
		if wait.For(ctx, claimRetryDelay) != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// errClaimLost is the cause with which the context of the work ends if its claim could not be
// renewed.
var errClaimLost = errors.New("snapshot: the claim could not be renewed in time")

// withClaim calls f while it holds a claim. It returns [ErrBusy] if another process holds one. If
// the claim cannot be renewed in time, the context of f ends before another process may take the
// claim as expired.
func withClaim(ctx context.Context, b bucket.Bucket, purpose string, f func(context.Context) error) (err error) {
	c := &claim{bucket: b, object: claimPrefix + strings.ToLower(rand.Text()), purpose: purpose, ended: make(chan struct{})}
	if err := c.acquire(ctx); err != nil {
		return err
	}

	claimCtx, cancel := context.WithCancelCause(ctx)
	c.cancel = cancel
	go c.renew(claimCtx)
	defer func() {
		cancel(nil)
		<-c.ended
		err = errors.Join(err, c.deleteObject(ctx))
	}()

	err = f(claimCtx)
	if err != nil && ctx.Err() == nil && claimCtx.Err() != nil {
		return errors.Join(context.Cause(claimCtx), err) // say why the context of f has ended
	}
	return err
}

// writeObject writes the object of the claim, or renews it.
func (c *claim) writeObject(ctx context.Context) error {
	return c.bucket.Put(ctx, c.object, strings.NewReader(c.purpose), int64(len(c.purpose)))
}

// deleteObject deletes the object of the claim.
func (c *claim) deleteObject(ctx context.Context) error {
	// Delete it even if ctx has ended: as long as the object is there, it keeps other processes
	// from working.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimRenewal)
	defer cancel()
	return c.bucket.Delete(ctx, c.object)
}

// acquire writes the object, and deletes it again if another process holds a claim or if the bucket
// answers so late that the claim would expire soon.
func (c *claim) acquire(ctx context.Context) error {
	c.lastRenewal = time.Now()
	err := c.writeObject(ctx)
	if err == nil {
		err = c.checkNoOther(ctx)
	}
	if took := time.Since(c.lastRenewal); err == nil && took > maxAcquireTime {
		err = fmt.Errorf("snapshot: %s took %v to write a claim and to list the others, must be at most %v", c.bucket, took, maxAcquireTime)
	}
	if err != nil {
		return errors.Join(err, c.deleteObject(ctx))
	}
	return nil
}

// checkNoOther returns [ErrBusy] if another process holds a claim. It deletes claims that have
// expired.
func (c *claim) checkNoOther(ctx context.Context) error {
	all, err := c.bucket.List(ctx, claimPrefix)
	if err != nil {
		return err
	}

	// The time of our own object is the present time by the clock of the bucket.
	var now time.Time
	for _, o := range all {
		if o.Name == c.object {
			now = o.Time
		}
	}
	if now.IsZero() {
		return fmt.Errorf("snapshot: %s does not list what was written to it a moment ago", c.bucket)
	}

	for _, o := range all {
		if o.Name == c.object {
			continue
		}
		if now.Sub(o.Time) < claimLifetime {
			return fmt.Errorf("%w in %s since %s (%s expires %s after that)", ErrBusy, c.bucket,
				o.Time.UTC().Format(time.RFC3339), o.Name, claimLifetime)
		}
		if err := c.bucket.Delete(ctx, o.Name); err != nil {
			return err
		}
	}
	return nil
}

// renew renews the claim until ctx ends. If it could not be renewed for too long, renew cancels the
// work at a time when the claim still holds for at least one more renewal.
func (c *claim) renew(ctx context.Context) {
	defer close(c.ended)
	ticker := time.NewTicker(claimRenewal)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}

		startTime := time.Now()
		writeCtx, cancel := context.WithTimeout(ctx, claimRenewal)
		err := c.writeObject(writeCtx)
		cancel()

		switch {
		case ctx.Err() != nil:
			return
		case err == nil && startTime.Sub(c.lastRenewal) < claimLifetime:
			c.lastRenewal = startTime
		case err == nil || time.Since(c.lastRenewal) > claimLifetime-2*claimRenewal:
			// If the write succeeded, this process was suspended so long that the claim had
			// expired, and another process may have worked.
			c.cancel(errors.Join(errClaimLost, err))
			return
		}
	}
}
