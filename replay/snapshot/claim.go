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
	// claimLife is the age at which a claim that was not renewed is void.
	claimLife = 3 * time.Minute
	// claimRenewal is the time between two renewals.
	claimRenewal = 30 * time.Second
)

// claim is the right to add and remove files of a bucket: an object beside which no other claim is alive. Each process writes its own
// claim before it looks for others. So of two processes at the same time both may be refused, but never both admitted.
//
// Ages are differences between times of the bucket, so the clocks of the processes do not matter.
type claim struct {
	bucket bucket.Bucket
	object string
	what   string

	cancel context.CancelCauseFunc
	ended  chan struct{}
}

// claimPause is the pause of [WhenFree] between two attempts.
const claimPause = time.Second

// WhenFree calls work until it does not return [ErrBusy], that is, until no other snapshot is taken or removed, in any process. A
// process that has crashed may have left its claim, which is void after some minutes.
func WhenFree(ctx context.Context, work func() error) error {
	for {
		err := work()
		if !errors.Is(err, ErrBusy) {
			return err
		}
		if wait.For(ctx, claimPause) != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

var errClaimLost = errors.New("snapshot: the claim could not be renewed in time")

// claimed runs f with a claim. The context of f ends when the claim was not renewed in time, before another process may take it for
// void.
func claimed(ctx context.Context, b bucket.Bucket, what string, f func(context.Context) error) (err error) {
	c := &claim{bucket: b, object: claimPrefix + strings.ToLower(rand.Text()), what: what, ended: make(chan struct{})}
	if err := c.take(ctx); err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(ctx)
	c.cancel = cancel
	go c.renew(within)
	defer func() {
		cancel(nil)
		<-c.ended
		err = errors.Join(err, c.drop(ctx))
	}()
	if err = f(within); err != nil && ctx.Err() == nil && within.Err() != nil {
		return errors.Join(context.Cause(within), err)
	}
	return err
}

func (c *claim) put(ctx context.Context) error {
	return c.bucket.Put(ctx, c.object, strings.NewReader(c.what), int64(len(c.what)))
}

func (c *claim) drop(ctx context.Context) error {
	// Even after the context has ended: a claim that is left behind keeps others out until it is void.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimRenewal)
	defer cancel()
	return c.bucket.Delete(ctx, c.object)
}

func (c *claim) take(ctx context.Context) error {
	if err := c.put(ctx); err != nil {
		return errors.Join(err, c.drop(ctx))
	}
	err := c.alone(ctx)
	if err != nil {
		return errors.Join(err, c.drop(ctx))
	}
	return nil
}

// alone returns [ErrBusy] if another claim is alive, and removes claims that are void.
func (c *claim) alone(ctx context.Context) error {
	all, err := c.bucket.List(ctx, claimPrefix)
	if err != nil {
		return err
	}
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
		if now.Sub(o.Time) < claimLife {
			return fmt.Errorf("%w in %s since %s (%s is void %s after that)", ErrBusy, c.bucket,
				o.Time.UTC().Format(time.RFC3339), o.Name, claimLife)
		}
		if err := c.bucket.Delete(ctx, o.Name); err != nil {
			return err
		}
	}
	return nil
}

// renew renews the claim until the context ends. If that fails for too long, it cancels the work, while the claim still holds for at
// least a renewal.
func (c *claim) renew(ctx context.Context) {
	defer close(c.ended)
	ticker := time.NewTicker(claimRenewal)
	defer ticker.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		within, cancel := context.WithTimeout(ctx, claimRenewal)
		err := c.put(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && began.Sub(renewed) < claimLife:
			renewed = began
		case err == nil || time.Since(renewed) > claimLife-2*claimRenewal: // a process that stood still may renew what was void
			c.cancel(errors.Join(errClaimLost, err))
			return
		}
	}
}
