package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/skein-feed/skein/replay"
)

// handle checks findings again at another position, which excludes a comparison gone wrong. It then repairs the stores and checks once
// more.
func (a *Auditor) handle(ctx context.Context, found []Finding) error {
	found, err := a.again(ctx, a.news(found))
	if err != nil || len(found) == 0 {
		return err
	}
	for _, f := range found {
		a.cfg.Logger.Warn("the stores disagree", "finding", f.String())
		a.note(func(s *Status) {
			for _, name := range f.Stores {
				s.Findings[name]++
			}
			s.LastFinding = f.String()
		})
	}
	return a.heal(ctx, found)
}

// heal orders the repair of the stores of findings, and logs the findings that remain after it. If the free disk does not suffice, the
// findings wait.
func (a *Auditor) heal(ctx context.Context, found []Finding) error {
	var stores []string
	for _, f := range found {
		stores = append(stores, f.Stores...)
	}
	slices.Sort(stores)
	order := repairOrder{slices.Compact(stores), make(chan error, 1)}
	select {
	case a.repairs <- order:
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	select {
	case err = <-order.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if errors.Is(err, replay.ErrDisk) {
		a.wait(found, err)
		return nil
	}
	if err != nil {
		return err
	}
	left, err := a.again(ctx, found)
	if err != nil {
		return err
	}
	for _, f := range left {
		a.cfg.Logger.Error("the stores are equal to the log and disagree still: a fold is wrong", "finding", f.String())
		a.mu.Lock()
		a.status.Unexplained++
		a.unexplained[f.Entity] = struct{}{}
		a.mu.Unlock()
		a.observe()
	}
	return nil
}

// wait keeps findings until there is disk for their repair.
func (a *Auditor) wait(found []Finding, why error) {
	a.cfg.Logger.Warn("findings wait for disk", "findings", len(found), "first", found[0].String(), "again in", a.cfg.DiskRetry,
		"error", why)
	a.mu.Lock()
	a.waiting = append(a.waiting, found...)
	a.tryAt = time.Now().Add(a.cfg.DiskRetry)
	a.mu.Unlock()
	a.observe()
}

// retry repairs the findings that have waited for disk, when it is time. A finding that has disappeared needs no repair.
func (a *Auditor) retry(ctx context.Context) error {
	a.mu.Lock()
	due := len(a.waiting) > 0 && !time.Now().Before(a.tryAt)
	var found []Finding
	if due {
		found, a.waiting = a.waiting, nil
	}
	a.mu.Unlock()
	if !due {
		return nil
	}
	left, err := a.again(ctx, found)
	if err == nil && len(left) > 0 {
		err = a.heal(ctx, left)
	}
	if err != nil { // the auditor tries again, and needs them
		a.mu.Lock()
		a.waiting = append(a.waiting, found...)
		a.mu.Unlock()
	}
	a.observe()
	return err
}

// news drops findings about entities whose findings wait for disk, or were logged as unexplained in this round.
func (a *Auditor) news(found []Finding) []Finding {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(found, func(f Finding) bool {
		_, known := a.unexplained[f.Entity]
		return known || slices.ContainsFunc(a.waiting, func(w Finding) bool { return w.Entity == f.Entity })
	})
}

// again checks the entities of findings at another position. It uses the limits of the round: those for recently written entities could
// leave out what the round has found.
func (a *Auditor) again(ctx context.Context, found []Finding) ([]Finding, error) {
	var entities []Entity
	for _, f := range found {
		if !slices.Contains(entities, f.Entity) {
			entities = append(entities, f.Entity)
		}
	}
	if len(entities) == 0 {
		return nil, nil
	}
	return a.check(ctx, entities, a.whole())
}
