package node

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/replay/rebuild"
)

// changeRetry is the pause after a failed change.
const changeRetry = 5 * time.Second

// changer changes the partitions of the stores, one change at a time. situation.decide says what to
// change, and changeTransitions says how.
type changer struct {
	node *Node
	// states are the states (ChangeState) of the changes of the stores, in the order of
	// Node.Stores.
	states []atomic.Uint32
	// wanted are the partitions that the node should serve. The node announces no others. Until the
	// changer has read the table for the first time, wanted is nil and the node announces all
	// partitions that it holds.
	wanted atomic.Pointer[events.Partitions]
	// announcementDue receives an element when the node serves or wants other partitions than
	// before.
	announcementDue chan struct{}
	// complete is closed when the stores hold, for the first time, all partitions that the node
	// should serve, and there is at least one.
	complete chan struct{}
}

func newChanger(n *Node) *changer {
	return &changer{
		node:            n,
		states:          make([]atomic.Uint32, len(n.Stores)),
		announcementDue: make(chan struct{}),
		complete:        make(chan struct{}),
	}
}

// Run makes the stores hold the partitions that the table gives to this node, each time that the
// table changes, until ctx ends. Run logs what fails and tries again, so it always returns nil.
func (c *changer) Run(ctx context.Context) error {
	// unwanted are the partitions that the node serves and does not want. withdrawTime is when it
	// stopped announcing them.
	var unwanted events.Partitions
	var withdrawTime time.Time
	reportComplete := sync.OnceFunc(func() { close(c.complete) })
	for ctx.Err() == nil {
		// Take the channel before the table is read, so that no later change is missed.
		changed := c.node.cluster.Changed()
		erased, err := c.node.Erasure.CheckErasures()
		s := c.readSituation()
		s.erased = erased

		// From setWanted on, the node no longer announces the unwanted partitions.
		c.setWanted(ctx, s.wanted)
		nowUnwanted := s.served.Without(&s.wanted)
		if nowUnwanted != unwanted {
			unwanted = nowUnwanted
			withdrawTime = time.Now()
		}
		s.withdrawnFor = time.Since(withdrawTime)

		if err == nil {
			err = c.carryOut(ctx, s, changed, reportComplete)
		}
		if err != nil && ctx.Err() == nil {
			c.node.Logger.Error("the partitions of this node could not be changed", "retry", changeRetry, "error", err)
			_ = wait.For(ctx, changeRetry) // fails only when ctx ends, and then the loop ends
		}
	}
	return nil
}

// readSituation returns which partitions the stores hold and which the node should serve.
func (c *changer) readSituation() *situation {
	s := &situation{served: events.AllPartitions()}
	for _, store := range c.node.Stores {
		held := store.Holds()
		s.held = append(s.held, held)
		s.served.Intersect(&held)
	}

	table := c.node.cluster.Table()
	s.wanted = wantedPartitions(c.node.Name, s.served, &table, c.node.cluster.Members())
	return s
}

// setWanted sets the partitions that the node should serve, and requests an announcement if they
// have changed.
func (c *changer) setWanted(ctx context.Context, wanted events.Partitions) {
	last := c.wanted.Swap(&wanted)
	if last == nil || *last != wanted {
		c.requestAnnouncement(ctx)
	}
}

// requestAnnouncement makes the goroutine of Node.Run announce what the node serves now. It waits
// until that goroutine takes the request.
func (c *changer) requestAnnouncement(ctx context.Context) {
	select {
	case c.announcementDue <- struct{}{}:
	case <-ctx.Done():
	}
}

// carryOut decides what to do and does it. If there is nothing to do, carryOut waits until the
// decision could be different: the cluster has changed, a user was erased, or the unwanted
// partitions may be dropped.
func (c *changer) carryOut(ctx context.Context, s *situation, changed <-chan struct{}, reportComplete func()) error {
	decided, to := s.decide()
	var mayDrop <-chan time.Time
	switch decided {
	case rebuildErased:
		return c.node.Builder.RebuildAfterErasure(ctx)
	case change:
		return c.changeStores(ctx, s, to, changed)
	case waitBeforeDrop:
		timer := time.NewTimer(dropAfter - s.withdrawnFor)
		defer timer.Stop()
		mayDrop = timer.C
	}

	// There is nothing to do now, so the stores hold all wanted partitions.
	if s.wanted.Len() > 0 {
		reportComplete()
	}
	select {
	case <-changed:
	case <-c.node.Erasure.RebuildWanted():
	case <-mayDrop:
	case <-ctx.Done():
	}
	return nil
}

// changeStores makes all stores hold a set of partitions, as was decided in a situation. After an
// error, some stores may hold the new set and others the old one; the next decision makes them
// equal. If the situation changes before the change begins, changeStores does nothing, and the
// caller must decide again.
func (c *changer) changeStores(ctx context.Context, s *situation, to events.Partitions, changed <-chan struct{}) error {
	// A rebuild or an erasure builds generations of the stores, too. It must not do so at the same
	// time as this change.
	release, err := c.lockBuilds(ctx, changed)
	if release == nil {
		return err
	}
	defer release()

	// The lock may have been held for hours. Meanwhile the other nodes that served the partitions
	// to be dropped may have stopped, or a user may have been erased.
	isCurrent, err := c.isCurrent(s)
	if !isCurrent {
		return err
	}

	startTime := time.Now()
	o := c.node.Builder.ResizeOptions(ctx)
	o.Sources = c.node.sources
	// Each build from the log takes the memory of a rebuild, so only one store at a time is built
	// from the log.
	o.WaitTurn = &sync.Mutex{}
	changes, changesCtx := errgroup.WithContext(ctx)
	for i, store := range c.node.Stores {
		if store.Holds() != to {
			changes.Go(func() error { return c.changeStore(changesCtx, i, to, o) })
		}
	}
	if err := changes.Wait(); err != nil {
		return err
	}
	c.requestAnnouncement(ctx)
	c.node.Logger.Info("the partitions of this node have changed", "partitions", to.Len(), "took", time.Since(startTime).Round(time.Millisecond))
	return nil
}

// lockBuilds calls [erase.Part.LockBuilds]. It returns nil as release if it does not get the lock:
// ctx has ended, and err says so, or the cluster has changed. In the second case the node may have
// to announce partitions again that only it serves now, so it must not wait any longer.
func (c *changer) lockBuilds(ctx context.Context, changed <-chan struct{}) (release func(), err error) {
	lockCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-changed:
			cancel()
		case <-lockCtx.Done():
		}
	}()
	release, err = c.node.Erasure.LockBuilds(lockCtx)
	if err != nil {
		return nil, ctx.Err()
	}
	return release, nil
}

// isCurrent reports whether a decision that was made in a situation is still right.
func (c *changer) isCurrent(s *situation) (bool, error) {
	erased, err := c.node.Erasure.CheckErasures()
	now := c.readSituation()
	return err == nil && erased == s.erased && now.wanted == s.wanted && slices.Equal(now.held, s.held), err
}

// changeStore changes the partitions of one store, step by step as changeTransitions says. It
// returns the error of the step that failed.
func (c *changer) changeStore(ctx context.Context, i int, to events.Partitions, o rebuild.Options) (failure error) {
	store := c.node.Stores[i]
	resizing := rebuild.NewResizing(store, to, c.node.Builder.Subscribe, o)
	event := changeBegun
	for {
		state, action, err := c.state(i).next(event)
		if err != nil {
			return err
		}
		// Store the state before the action, so that it is visible while the action runs.
		c.states[i].Store(uint32(state))
		c.node.Logger.Debug("the change of partitions has a new state", "projection", store.Name(), "state", state)

		switch action {
		case copyRows:
			err = resizing.Copy(ctx)
		case catchUpAndCutOver:
			var report string
			report, err = resizing.CutOver(ctx)
			if err == nil {
				c.node.Logger.Debug("the partitions of a store have changed", "projection", store.Name(), "report", report)
			}
		case deletePrevious:
			err = store.DeletePrevious(ctx)
		case endChange:
			return failure
		}

		event = stepDone
		if err != nil {
			event = stepFailed
			failure = err
		}
	}
}

// state returns the state of the change of a store.
func (c *changer) state(i int) ChangeState { return ChangeState(c.states[i].Load()) }

// slowest returns the state that the node announces for the changes of all stores.
func (c *changer) slowest() ChangeState {
	states := make([]ChangeState, len(c.states))
	for i := range states {
		states[i] = c.state(i)
	}
	return slowest(states)
}
