package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/skein-feed/skein/replay"
)

// shadows verifies one projection after the other, without end. An order for a repair interrupts it.
func (a *Auditor) shadows(ctx context.Context) error {
	names := make([]string, 0, len(a.cfg.All))
	for name := range a.cfg.All {
		names = append(names, name)
	}
	slices.Sort(names)
	for at := 0; ; at = (at + 1) % len(names) {
		order, verified, err := a.interruptible(ctx, names[at])
		if err != nil {
			return err
		}
		if order == nil {
			continue
		}
		if !verified { // the loop comes back to the interrupted projection
			at += len(names) - 1
		}
		// The audit waits for the repair, so the repair may use the shares of both.
		var failed error
		for _, name := range order.projections {
			failed = errors.Join(failed, a.repair(ctx, name, 2*a.pace.Share))
		}
		order.done <- failed
	}
}

// interruptible verifies a projection at the pace, then rests. An order for a repair ends it early; verified reports whether the
// verification was over by then, so that only the rest was interrupted.
func (a *Auditor) interruptible(ctx context.Context, name string) (order *repairOrder, verified bool, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	resting, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		err := a.repair(within, name, a.pace.Share)
		switch {
		case within.Err() != nil:
			ended <- err
			return
		case err == nil:
		case errors.Is(err, replay.ErrDisk): // noteDisk has logged it, and other projections may be smaller
		case stopped(err):
			a.cfg.Logger.Warn("a store cannot be verified", "projection", name, "error", err)
		default:
			ended <- err
			return
		}
		close(resting)
		ended <- a.pace.Rest(within, time.Second)
	}()
	select {
	case o := <-a.repairs:
		order = &o
		cancel()
		<-ended //nolint:errcheck // it was interrupted
	case err = <-ended:
	}
	select {
	case <-resting:
		verified = true
	default:
	}
	return order, verified, err
}

// repair verifies a projection and repairs what differs from the log, at a share of one core.
func (a *Auditor) repair(ctx context.Context, name string, share float64) error {
	store, o := a.cfg.All[name], a.cfg.Shadow(name)
	o.Pace.Share = share
	o.Logger = a.cfg.Logger
	r, err := a.repairStore(ctx, store, o)
	a.noteDisk(name, err)
	if r == nil {
		return err
	}
	if r.Differences > 0 {
		a.cfg.Logger.Warn("a store differed from the log", "report", r.String())
	}
	a.note(func(s *Status) { // an interrupted repair counts too
		s.Differences[name] += r.Differences
		s.Repaired[name] += r.Repaired
		if err == nil && r.Equal {
			s.Verified[name], s.VerifiedAt[name] = time.Now(), r.At
		}
	})
	a.observe()
	return err
}

// noteDisk notes whether a shadow had enough disk. It logs only the changes.
func (a *Auditor) noteDisk(name string, err error) {
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
		a.observe()
	case err == nil && before:
		a.cfg.Logger.Warn("there is disk again to verify a projection", "projection", name)
	}
}
