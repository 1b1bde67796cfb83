package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/replay"
)

// verifyAll verifies one projection after the other, without end. A repair that was requested
// interrupts it.
func (a *Auditor) verifyAll(ctx context.Context) error {
	names := make([]string, 0, len(a.cfg.All))
	for name := range a.cfg.All {
		names = append(names, name)
	}
	slices.Sort(names)

	for current := 0; ; {
		request, verified, err := a.verifyUntilRequest(ctx, names[current])
		if err != nil {
			return err
		}
		// An interrupted verification is begun again.
		if verified || request == nil {
			current = (current + 1) % len(names)
		}
		if request == nil {
			continue
		}

		// The auditing goroutine waits for the repair and does nothing, so the repair may use the
		// share of both.
		var failed error
		for _, name := range request.projections {
			failed = errors.Join(failed, a.verifyAndRepair(ctx, name, 2*a.pace.Share))
		}
		request.done <- failed
	}
}

// verifyUntilRequest verifies a projection at the pace, and then rests. If a repair is requested in
// the meantime, it stops early and returns the request. verified reports whether the verification
// was complete by then, so that only the rest was interrupted.
func (a *Auditor) verifyUntilRequest(ctx context.Context, name string) (request *repairRequest, verified bool, err error) {
	workCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	resting := make(chan struct{}) // closed when the verification is complete and the rest begins
	ended := make(chan error, 1)
	go func() {
		err := a.verifyAndRepair(workCtx, name, a.pace.Share)
		switch {
		case workCtx.Err() != nil:
			ended <- err
			return
		case err == nil:
		case errors.Is(err, errVerificationEnded):
			// The projection is verified again when its turn comes.
		case errors.Is(err, replay.ErrDisk):
			// updateNoDisk has logged it. Other projections may be smaller, so continue with them.
		case isStoreUnavailable(err):
			a.cfg.Logger.Warn("a store cannot be verified", "projection", name, "error", err)
		default:
			ended <- err
			return
		}
		close(resting)
		ended <- a.pace.Rest(workCtx, time.Second)
	}()

	select {
	case r := <-a.repairs:
		request = &r
		cancel()
		<-ended //nolint:errcheck // it was interrupted
	case err = <-ended:
	}

	select {
	case <-resting:
		verified = true
	default:
	}
	return request, verified, err
}

// verifyAndRepair verifies a projection and repairs the rows that differ from the log, at a share
// of one core.
func (a *Auditor) verifyAndRepair(ctx context.Context, name string, share float64) error {
	store := a.cfg.All[name]
	o := a.cfg.Shadow(name)
	o.Pace.Share = share
	o.Logger = a.cfg.Logger

	ctx, end := a.beginVerification(ctx, name)
	r, err := a.repairStore(ctx, store, o)
	end()
	if err != nil && errors.Is(context.Cause(ctx), errVerificationEnded) {
		err = fmt.Errorf("%w: %w", errVerificationEnded, err)
	}
	a.updateNoDisk(name, err)
	if r == nil {
		return err
	}

	if r.Differences > 0 {
		a.cfg.Logger.Warn("a store differed from the log", "report", r.String())
	}
	// An interrupted repair has a report, too: count what it has done.
	a.updateStatus(func(s *Status) {
		s.Differences[name] += r.Differences
		s.Repaired[name] += r.Repaired
		if err == nil && r.Equal {
			s.Verified[name] = time.Now()
			s.VerifiedAt[name] = r.At
		}
	})
	a.notifyObserver()
	return err
}

// errVerificationEnded means that EndVerification has ended a verification.
var errVerificationEnded = errors.New("audit: the verification was ended, because the log was scrubbed")

// verification is a verification or repair that is under way.
type verification struct {
	projection string
	cancel     context.CancelCauseFunc
	// ended is closed when the shadow is closed.
	ended chan struct{}
}

// beginVerification makes the verification of a projection one that EndVerification can end. The
// caller must call end when it has closed the shadow.
func (a *Auditor) beginVerification(ctx context.Context, projection string) (_ context.Context, end func()) {
	v := &verification{projection: projection, ended: make(chan struct{})}
	ctx, v.cancel = context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.verification = v
	return ctx, func() {
		a.mu.Lock()
		a.verification = nil
		a.mu.Unlock()
		close(v.ended)
		v.cancel(nil)
	}
}

// EndVerification ends the verification that is under way, and removes all shadows that the auditor
// has made so far. After an erasure these may still have the user. The auditor continues with
// shadows that it makes from the log as it is now.
func (a *Auditor) EndVerification(ctx context.Context) error {
	a.mu.Lock()
	v := a.verification
	a.mu.Unlock()
	if v != nil {
		v.cancel(errVerificationEnded)
		select {
		case <-v.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	// Remove also what a verification could not remove at its end. While mu is held, no other one
	// begins; the one that has begun since is of the present log.
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for name := range a.cfg.All {
		if a.verification != nil && a.verification.projection == name {
			continue
		}
		o := a.cfg.Shadow(name)
		fs := o.FS
		if fs == nil {
			fs = vfs.Default
		}
		errs = append(errs, fs.RemoveAll(o.Dir), fs.RemoveAll(o.Dir+".parts"))
	}
	return errors.Join(errs...)
}

// updateNoDisk records whether there was enough free disk for a shadow. err is the error of the
// verification. Only changes are logged.
func (a *Auditor) updateNoDisk(name string, err error) {
	if err != nil && !errors.Is(err, replay.ErrDisk) {
		return
	}
	a.mu.Lock()
	_, before := a.status.NoDisk[name]
	if err == nil {
		delete(a.status.NoDisk, name)
	} else {
		a.status.NoDisk[name] = err.Error()
	}
	a.mu.Unlock()

	switch {
	case err != nil && !before:
		a.cfg.Logger.Warn("a projection is not verified until there is disk for it", "projection", name, "error", err)
		a.notifyObserver()
	case err == nil && before:
		a.cfg.Logger.Warn("there is disk again to verify a projection", "projection", name)
	}
}
