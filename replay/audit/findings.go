package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/skein-feed/skein/replay"
)

// handleFindings checks the entities of findings again at another position, which rules out a
// mistake in the comparison itself. If findings remain, it repairs the stores.
func (a *Auditor) handleFindings(ctx context.Context, found []Finding) error {
	found, err := a.checkAgain(ctx, a.dropKnown(found))
	if err != nil || len(found) == 0 {
		return err
	}

	for _, f := range found {
		a.cfg.Logger.Warn("the stores disagree", "finding", f.String())
		a.updateStatus(func(s *Status) {
			for _, name := range f.Stores {
				s.Findings[name]++
			}
			s.LastFinding = f.String()
		})
	}
	return a.repairStores(ctx, found)
}

// repairStores has the stores of findings repaired, and checks once more. It logs the findings that
// remain, because then a fold is wrong. If there is too little free disk for the repair, the
// findings wait for it.
func (a *Auditor) repairStores(ctx context.Context, found []Finding) error {
	var stores []string
	for _, f := range found {
		stores = append(stores, f.Stores...)
	}
	slices.Sort(stores)

	// The goroutine of the shadows performs the repair, because two verifications at a time would
	// take twice the memory and the disk.
	request := repairRequest{slices.Compact(stores), make(chan error, 1)}
	select {
	case a.repairs <- request:
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	select {
	case err = <-request.done:
	case <-ctx.Done():
		return ctx.Err()
	}

	if errors.Is(err, replay.ErrDisk) {
		a.waitForDisk(found, err)
		return nil
	}
	if err != nil {
		return err
	}

	remaining, err := a.checkAgain(ctx, found)
	if err != nil {
		return err
	}
	for _, f := range remaining {
		a.cfg.Logger.Error("the stores equal the log and still disagree: a fold is wrong", "finding", f.String())
		a.mu.Lock()
		a.status.Unexplained++
		a.unexplained[f.Entity] = struct{}{}
		a.mu.Unlock()
		a.notifyObserver()
	}
	return nil
}

// waitForDisk keeps findings until their repair is tried again.
func (a *Auditor) waitForDisk(found []Finding, why error) {
	a.cfg.Logger.Warn("findings wait for disk", "findings", len(found), "first", found[0].String(), "again_in", a.cfg.DiskRetry,
		"error", why)
	a.mu.Lock()
	a.waitingForDisk = append(a.waitingForDisk, found...)
	a.nextRetry = time.Now().Add(a.cfg.DiskRetry)
	a.mu.Unlock()
	a.notifyObserver()
}

// retryWaiting tries the repair of the findings that wait for disk again, if it is time. A finding
// that has disappeared needs no repair.
func (a *Auditor) retryWaiting(ctx context.Context) error {
	a.mu.Lock()
	due := len(a.waitingForDisk) > 0 && !time.Now().Before(a.nextRetry)
	var found []Finding
	if due {
		found = a.waitingForDisk
		a.waitingForDisk = nil // so that dropKnown does not drop these findings
	}
	a.mu.Unlock()
	if !due {
		return nil
	}

	remaining, err := a.checkAgain(ctx, found)
	if err == nil && len(remaining) > 0 {
		err = a.repairStores(ctx, remaining)
	}
	if err != nil {
		// Keep the findings for the next call: nothing is known of them yet.
		a.mu.Lock()
		a.waitingForDisk = append(a.waitingForDisk, found...)
		a.mu.Unlock()
	}
	a.notifyObserver()
	return err
}

// dropKnown drops findings about entities whose findings wait for disk, or were logged as
// unexplained in this round.
func (a *Auditor) dropKnown(found []Finding) []Finding {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(found, func(f Finding) bool {
		_, known := a.unexplained[f.Entity]
		return known || slices.ContainsFunc(a.waitingForDisk, func(w Finding) bool { return w.Entity == f.Entity })
	})
}

// checkAgain checks the entities of findings at another position. It uses the limits of rounds,
// because those of recently written entities could exclude what a round has found.
func (a *Auditor) checkAgain(ctx context.Context, found []Finding) ([]Finding, error) {
	var entities []Entity
	for _, f := range found {
		if !slices.Contains(entities, f.Entity) {
			entities = append(entities, f.Entity)
		}
	}
	if len(entities) == 0 {
		return nil, nil
	}
	return a.checkEntities(ctx, entities, a.roundLimits())
}
