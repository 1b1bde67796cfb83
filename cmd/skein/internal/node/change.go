package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
)

// ChangeState is the state of the change of a store's partitions. The names of the states are the
// same in the bucket of the cluster, the API, the metrics, the console and `skein node list`.
type ChangeState uint8

const (
	// Unchanged is the state of a store whose partitions have not changed since the process
	// started, or whose change has failed.
	Unchanged ChangeState = iota
	// Copying is the state in which the next generation is built: from rows that the store has,
	// rows of other nodes, and rows that are built from the log. The old set of partitions serves.
	Copying
	// CatchingUp is the state in which the next generation folds the events that were published
	// since, until it cuts over. The old set of partitions serves.
	CatchingUp
	// CutOver is the state in which the next generation serves, and the previous one is being
	// deleted.
	CutOver
	// Dropped is the state after the change: the previous generation is deleted, with the rows of
	// partitions that the store no longer holds.
	Dropped
)

// changeStateNames are the names of the states.
var changeStateNames = [...]string{"unchanged", "copying", "catching_up", "cut_over", "dropped"}

// String returns the name of the state.
func (s ChangeState) String() string {
	if int(s) < len(changeStateNames) {
		return changeStateNames[s]
	}
	return fmt.Sprintf("state_%d", uint8(s))
}

// changeEvent is something that happens to a change.
type changeEvent uint8

const (
	// changeBegun happens when the store is to hold other partitions.
	changeBegun changeEvent = iota
	// stepDone and stepFailed happen when the action of the state has ended. When the process
	// stops, the action fails.
	stepDone
	stepFailed
)

// changeAction is what is done in a state.
type changeAction uint8

const (
	// endChange ends the change, with the error of the step that failed, if one did.
	endChange changeAction = iota
	// copyRows builds the next generation. If it fails, nothing of that generation is left.
	copyRows
	// catchUpAndCutOver makes the next generation serve. If it fails, nothing of that generation is
	// left, and the old one serves.
	catchUpAndCutOver
	// deletePrevious deletes the previous generation. A rebuild keeps the previous generation for a
	// rollback. After a change of partitions, a rollback would bring back partitions that other
	// nodes hold now.
	deletePrevious
)

// changeTransition is a row of changeTransitions: in this state, this event leads to the next
// state, in which the action is performed.
type changeTransition struct {
	state  ChangeState
	event  changeEvent
	next   ChangeState
	action changeAction
}

// changeTransitions has a row for every pair of state and event that can happen. The package doc
// has a drawing of this table.
var changeTransitions = []changeTransition{
	{Unchanged, changeBegun, Copying, copyRows},
	// The last change could not delete the previous generation, so the new change deletes it.
	{CutOver, changeBegun, Copying, copyRows},
	{Dropped, changeBegun, Copying, copyRows},

	{Copying, stepDone, CatchingUp, catchUpAndCutOver},
	{Copying, stepFailed, Unchanged, endChange},

	{CatchingUp, stepDone, CutOver, deletePrevious},
	{CatchingUp, stepFailed, Unchanged, endChange},

	{CutOver, stepDone, Dropped, endChange},
	// The new generation serves already, so the change is not undone.
	{CutOver, stepFailed, CutOver, endChange},
}

// next returns the state that an event leads to, and the action. It fails if the event cannot
// happen in the state.
func (s ChangeState) next(e changeEvent) (ChangeState, changeAction, error) {
	for _, t := range changeTransitions {
		if t.state == s && t.event == e {
			return t.next, t.action, nil
		}
	}
	return s, endChange, fmt.Errorf("node: event %d cannot happen to a change that is %s", e, s)
}

// isUnderWay reports whether a change in this state has begun and not ended.
func (s ChangeState) isUnderWay() bool { return s == Copying || s == CatchingUp || s == CutOver }

// slowest returns the state that a node announces for the changes of all of its stores: the
// earliest state among the changes that are under way. If none is under way, it is Dropped if any
// store has changed, and Unchanged otherwise.
func slowest(states []ChangeState) ChangeState {
	result := Unchanged
	for _, s := range states {
		switch {
		case s.isUnderWay() && (!result.isUnderWay() || s < result):
			result = s
		case !result.isUnderWay():
			result = max(result, s)
		}
	}
	return result
}

// dropAfter is how long a node holds partitions after it has stopped announcing them. In this time,
// calls that are under way, and nodes that have not read the announcement yet, still ask for them.
const dropAfter = 10 * time.Second

// situation is what a node knows when it decides whether and how to change its partitions.
type situation struct {
	// erased says that the stores must be rebuilt, because a user was erased.
	erased bool
	// held are the partitions that each store holds. served are the partitions that all stores
	// hold; the node answers calls about these.
	held   []events.Partitions
	served events.Partitions
	// wanted are the partitions that the node should serve, as wantedPartitions returns them.
	wanted events.Partitions
	// withdrawnFor is for how long the node has not announced the partitions that it serves and does
	// not want.
	withdrawnFor time.Duration
}

// decision is whether and how a node changes its partitions.
type decision uint8

const (
	// settled waits until the table or the members change.
	settled decision = iota
	// rebuildErased rebuilds all stores without the erased user.
	rebuildErased
	// change makes all stores hold another set of partitions.
	change
	// waitBeforeDrop waits until the unwanted partitions have not been announced for dropAfter.
	waitBeforeDrop
)

// decide returns what to do, and for a change the partitions that all stores should hold. The
// package doc lists the cases in the same order.
func (s *situation) decide() (decision, events.Partitions) {
	// A change that adds partitions keeps the unwanted ones. So it need not wait until those may be
	// dropped, and they can still be asked for.
	servedAndWanted := s.served
	servedAndWanted.AddSet(&s.wanted)
	unwanted := s.served.Without(&s.wanted)

	switch {
	case s.erased:
		return rebuildErased, events.Partitions{}
	case slices.ContainsFunc(s.held, func(held events.Partitions) bool { return held != servedAndWanted }):
		return change, servedAndWanted
	case unwanted.Len() > 0 && s.withdrawnFor >= dropAfter:
		return change, s.wanted
	case unwanted.Len() > 0:
		return waitBeforeDrop, events.Partitions{}
	}
	return settled, events.Partitions{}
}

// wantedPartitions returns the partitions that the node self should serve. These are the partitions
// that the table gives to self. They are also those that self serves and that the table gives to
// other nodes, until all of these nodes serve them. A partition that the table gives to nobody
// stays where it is (I13).
func wantedPartitions(
	self string, served events.Partitions, table *placement.Table, members []placement.Member,
) (wanted events.Partitions) {
	isServedBy := func(name string, partition uint8) bool {
		i := slices.IndexFunc(members, func(m placement.Member) bool { return m.Name == name })
		return i >= 0 && members[i].Serves.Has(partition)
	}

	for p := range events.NumPartitions {
		partition := uint8(p)
		owners := table.Nodes[p]
		isWanted := slices.Contains(owners, self)
		if !isWanted && served.Has(partition) {
			isWanted = len(owners) == 0 || slices.ContainsFunc(owners, func(name string) bool { return !isServedBy(name, partition) })
		}
		if isWanted {
			wanted.Add(partition)
		}
	}
	return wanted
}
