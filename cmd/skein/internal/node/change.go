package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
)

// ChangeState is how far a store is with a change of its partitions. Its name is the same in the bucket of the cluster, the API, the
// metrics, the console and `skein node list`.
type ChangeState uint8

const (
	// Unchanged is the state of a store whose partitions have not changed since the start, or whose change has failed.
	Unchanged ChangeState = iota
	// Copying makes the next generation of the store: rows that it has, rows of other nodes, and rows that are built from the log. The
	// previous set of partitions serves.
	Copying
	// CatchingUp folds into the next generation what the log has had meanwhile, and cuts over when it shows as much as the generation that
	// serves. The previous set of partitions serves until then.
	CatchingUp
	// CutOver is the state in which the next generation serves, and the files of the one before are still there.
	CutOver
	// Dropped ends the change: the generation from before, with the rows that the store gave up, is deleted.
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
	// stepDone and stepFailed happen when the action of the state has ended. It also fails when the process stops.
	stepDone
	stepFailed
)

// changeAction is what is done in a state.
type changeAction uint8

const (
	// endChange ends the change, with the error of the step that failed, if one did.
	endChange changeAction = iota
	// copyRows makes the next generation. If it fails, nothing of that generation is left.
	copyRows
	// catchUpAndCutOver makes the next generation serve. If it fails, nothing of that generation is left, and the one before serves.
	catchUpAndCutOver
	// deletePrevious deletes the generation from before: to roll back to it would bring back partitions that other nodes hold now.
	deletePrevious
)

// changeTransition is one row of the table.
type changeTransition struct {
	state  ChangeState
	event  changeEvent
	next   ChangeState
	action changeAction
}

// changeTransitions has every pair of state and event that can happen. The package doc draws it.
var changeTransitions = []changeTransition{
	{Unchanged, changeBegun, Copying, copyRows},
	{CutOver, changeBegun, Copying, copyRows}, // this change deletes what the last one could not
	{Dropped, changeBegun, Copying, copyRows},

	{Copying, stepDone, CatchingUp, catchUpAndCutOver},
	{Copying, stepFailed, Unchanged, endChange},

	{CatchingUp, stepDone, CutOver, deletePrevious},
	{CatchingUp, stepFailed, Unchanged, endChange},

	{CutOver, stepDone, Dropped, endChange},
	{CutOver, stepFailed, CutOver, endChange}, // the next generation serves already: there is no way back
}

// next returns the state that follows an event, and what is done in it. It fails for an event that cannot happen in the state.
func (s ChangeState) next(e changeEvent) (ChangeState, changeAction, error) {
	for _, t := range changeTransitions {
		if t.state == s && t.event == e {
			return t.next, t.action, nil
		}
	}
	return s, endChange, fmt.Errorf("node: event %d cannot happen to a change that is %s", e, s)
}

// isUnderWay reports whether the state is one of a change that has begun and not ended.
func (s ChangeState) isUnderWay() bool { return s == Copying || s == CatchingUp || s == CutOver }

// slowest returns the state of the change of a node, whose stores change at the same time: that of the store that is least far, among
// those that are under way.
func slowest(states []ChangeState) ChangeState {
	least := Unchanged
	for _, s := range states {
		switch {
		case s.isUnderWay() && (!least.isUnderWay() || s < least):
			least = s
		case !least.isUnderWay():
			least = max(least, s) // Dropped rather than Unchanged
		}
	}
	return least
}

// dropAfter is how long a node still holds partitions after it has announced that it does not serve them: calls that are under way, and
// nodes that have not heard of it, ask for them meanwhile.
const dropAfter = 10 * time.Second

// situation is what a node goes by when it decides how to change its partitions.
type situation struct {
	// erased says that the stores are to be built anew, because a user was erased.
	erased bool
	// held are the partitions that each store holds, and served those that all stores hold: the node answers for these.
	held   []events.Partitions
	served events.Partitions
	// wanted are those that the node is to serve, see wantedPartitions.
	wanted events.Partitions
	// withdrawn is for how long the node has announced that it does not serve those that it holds and does not want.
	withdrawn time.Duration
}

// decision is what a node does about its partitions.
type decision uint8

const (
	// settled waits until the table or the members change.
	settled decision = iota
	// buildErased builds all stores anew.
	buildErased
	// change makes all stores hold another set.
	change
	// keepWithdrawn waits until partitions have been withdrawn for dropAfter.
	keepWithdrawn
)

// decide returns what to do, and the partitions that the stores hold after a change. The first line that applies counts.
func (s *situation) decide() (decision, events.Partitions) {
	// Nothing is dropped together with what is added: what is wanted is served as early as it can be, and nodes that have not heard of it
	// may ask for what is withdrawn.
	added := s.served
	added.AddSet(&s.wanted)
	unwanted := s.served.Without(&s.wanted)

	switch {
	case s.erased:
		return buildErased, events.Partitions{}
	case slices.ContainsFunc(s.held, func(held events.Partitions) bool { return held != added }):
		return change, added
	case unwanted.Len() > 0 && s.withdrawn >= dropAfter:
		return change, s.wanted
	case unwanted.Len() > 0:
		return keepWithdrawn, events.Partitions{}
	}
	return settled, events.Partitions{}
}

// wantedPartitions returns the partitions that a node is to serve: those that the table gives it, and those that it serves until every node
// to which the table gives them serves them. A partition that the table gives to nobody stays where it is (I13).
func wantedPartitions(self string, served events.Partitions, table *placement.Table, members []placement.Member) (wanted events.Partitions) {
	isServedBy := func(name string, partition uint8) bool {
		i := slices.IndexFunc(members, func(m placement.Member) bool { return m.Name == name })
		return i >= 0 && members[i].Serves.Has(partition)
	}
	for p := range events.NumPartitions {
		partition, given := uint8(p), table.Nodes[p]
		isMine := slices.Contains(given, self)
		if !isMine && served.Has(partition) {
			isMine = len(given) == 0 || slices.ContainsFunc(given, func(name string) bool { return !isServedBy(name, partition) })
		}
		if isMine {
			wanted.Add(partition)
		}
	}
	return wanted
}
