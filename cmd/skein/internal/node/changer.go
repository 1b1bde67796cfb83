package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/replay/rebuild"
)

// changeRetry is the pause after a change that has failed.
const changeRetry = 5 * time.Second

// changer changes the partitions of the stores, one change at a time. It only carries out what decide and the table of changes say.
type changer struct {
	node *Node
	// states are the states of the changes of the stores, in the order of the stores.
	states []atomic.Uint32
	// wanted are the partitions that the node is to serve: it announces no others. nil means that it has not looked at the table yet,
	// and announces all that it holds.
	wanted atomic.Pointer[events.Partitions]
	// announcementDue gets an element when the node serves or wants other partitions.
	announcementDue chan struct{}
	// complete is closed when the stores first hold what the table gives, which is something.
	complete chan struct{}
}

func newChanger(n *Node) *changer {
	return &changer{
		node: n, states: make([]atomic.Uint32, len(n.Stores)), announcementDue: make(chan struct{}), complete: make(chan struct{}),
	}
}

// Run makes the stores hold what the table gives to this node, whenever that changes, until ctx ends. It then returns nil: what fails is
// logged and tried again.
func (c *changer) Run(ctx context.Context) error {
	// unwanted are the partitions that are served and not wanted, since when the others are told so.
	var unwanted events.Partitions
	var since time.Time
	reportComplete := sync.OnceFunc(func() { close(c.complete) })
	for ctx.Err() == nil {
		changed := c.node.cluster.Changed() // before the table is read, so that no change is missed
		erased, err := c.node.Part.Look()
		s := c.readSituation()
		s.erased = erased
		c.setWanted(ctx, s.wanted)
		if now := s.served.Without(&s.wanted); now != unwanted {
			unwanted, since = now, time.Now()
		}
		s.withdrawn = time.Since(since)

		if err == nil {
			err = c.carryOut(ctx, s, changed, reportComplete)
		}
		if err != nil && ctx.Err() == nil {
			c.node.Logger.Error("the stores of this node could not be built", "retry", changeRetry, "error", err)
			_ = wait.For(ctx, changeRetry) // the loop ends with the context
		}
	}
	return nil
}

// readSituation returns what the stores hold, and what the node is to serve.
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

// setWanted has the others told if the node is to serve other partitions.
func (c *changer) setWanted(ctx context.Context, wanted events.Partitions) {
	if last := c.wanted.Swap(&wanted); last == nil || *last != wanted {
		c.requestAnnouncement(ctx)
	}
}

// requestAnnouncement has the others told what the node serves.
func (c *changer) requestAnnouncement(ctx context.Context) {
	select {
	case c.announcementDue <- struct{}{}:
	case <-ctx.Done():
	}
}

// carryOut carries out a decision, and returns when it may be another one.
func (c *changer) carryOut(ctx context.Context, s *situation, changed <-chan struct{}, reportComplete func()) error {
	decided, to := s.decide()
	var over <-chan time.Time
	switch decided {
	case buildErased:
		return c.node.Builder.BuildErased(ctx)
	case change:
		return c.changeStores(ctx, to)
	case keepWithdrawn:
		timer := time.NewTimer(dropAfter - s.withdrawn)
		defer timer.Stop()
		over = timer.C
	}

	// The stores hold all that is wanted.
	if s.wanted.Len() > 0 {
		reportComplete()
	}
	select {
	case <-changed:
	case <-c.node.Part.Wanted():
	case <-over:
	case <-ctx.Done():
	}
	return nil
}

// changeStores makes all stores hold a set. Calls meanwhile go by what all of them have. After an error some stores may hold the set; the
// next decision goes by what each of them holds.
func (c *changer) changeStores(ctx context.Context, to events.Partitions) error {
	release, err := c.node.Part.Hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	began := time.Now()
	o := c.node.Builder.ResizeOptions(ctx)
	o.Sources, o.WaitTurn = c.node.sources, &sync.Mutex{}
	all, within := errgroup.WithContext(ctx)
	for i, store := range c.node.Stores {
		if store.Holds() != to {
			all.Go(func() error { return c.changeStore(within, i, to, o) })
		}
	}
	if err := all.Wait(); err != nil {
		return err
	}
	c.requestAnnouncement(ctx)
	c.node.Logger.Info("this node holds other partitions", "partitions", to.Len(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// changeStore carries out the table of changes for one store.
func (c *changer) changeStore(ctx context.Context, i int, to events.Partitions, o rebuild.Options) (failure error) {
	store := c.node.Stores[i]
	resizing := rebuild.NewResizing(store, to, c.node.Builder.Subscribe, o)
	event := changeBegun
	for {
		state, action, err := c.state(i).next(event)
		if err != nil {
			return err
		}
		c.states[i].Store(uint32(state))
		c.node.Logger.Debug("change of partitions", "projection", store.Name(), "state", state)
		switch action {
		case copyRows:
			err = resizing.Copy(ctx)
		case catchUpAndCutOver:
			var report string
			if report, err = resizing.CutOver(ctx); err == nil {
				c.node.Logger.Debug("a store holds other partitions", "projection", store.Name(), "report", report)
			}
		case deletePrevious:
			err = store.DeletePrevious(ctx)
		case endChange:
			return failure
		}
		event = stepDone
		if err != nil {
			event, failure = stepFailed, err
		}
	}
}

// state returns the state of the change of a store.
func (c *changer) state(i int) ChangeState { return ChangeState(c.states[i].Load()) }

// slowest returns the state of the change of all stores.
func (c *changer) slowest() ChangeState {
	states := make([]ChangeState, len(c.states))
	for i := range states {
		states[i] = c.state(i)
	}
	return slowest(states)
}
