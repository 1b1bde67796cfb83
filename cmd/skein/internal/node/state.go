package node

import "fmt"

// State is the state of a node, from the start of its process to its end. The names of the states
// are the same in the bucket of the cluster, the API, the metrics, the console and `skein node
// list`.
type State uint8

const (
	// Joining is the state until the other nodes can know what this one serves. /readyz reports
	// that the process is not ready for calls.
	Joining State = iota
	// Serving is the state in which the node takes calls of clients and of other nodes. It may be
	// changing its partitions.
	Serving
	// Leaving is the state from the request to stop until the process ends. The other nodes no
	// longer ask this one.
	Leaving
)

// String returns the name of the state.
func (s State) String() string {
	switch s {
	case Joining:
		return "joining"
	case Serving:
		return "serving"
	case Leaving:
		return "leaving"
	}
	return fmt.Sprintf("state_%d", uint8(s))
}

// nodeEvent is something that happens to a node.
type nodeEvent uint8

const (
	// announcementDue happens every two seconds, and when the node serves or wants other partitions
	// than before.
	announcementDue nodeEvent = iota
	// storesCaughtUp happens once, when every store has been at the head of the log or has failed.
	storesCaughtUp
	// announcementSeen happens when the bucket has what the node announced after storesCaughtUp, or
	// after stopRequested: from then on, the other nodes can read it.
	announcementSeen
	// stopRequested happens once, when the process is to stop taking calls.
	stopRequested
)

// nodeAction is what the node does when an event happens.
type nodeAction uint8

const (
	noAction nodeAction = iota
	// announce tells the other nodes which partitions they may ask this node for.
	announce
	// reportReady lets the process report that it is ready for calls, and announces the new state.
	reportReady
	// withdraw tells the other nodes that they may not ask this one for any partition.
	withdraw
	// reportWithdrawn lets the process end.
	reportWithdrawn
)

// nodeTransition is a row of nodeTransitions: in this state, this event leads to the next state,
// and the node performs the action.
type nodeTransition struct {
	state  State
	event  nodeEvent
	next   State
	action nodeAction
}

// nodeTransitions has a row for every pair of state and event. The package doc has a drawing of
// this table.
var nodeTransitions = []nodeTransition{
	{Joining, announcementDue, Joining, announce},
	{Joining, storesCaughtUp, Joining, announce},
	{Joining, announcementSeen, Serving, reportReady},
	{Joining, stopRequested, Leaving, withdraw},

	{Serving, announcementDue, Serving, announce},
	{Serving, storesCaughtUp, Serving, announce},
	{Serving, announcementSeen, Serving, noAction},
	{Serving, stopRequested, Leaving, withdraw},

	// A node that leaves never serves again, so no later event may make the other nodes ask it.
	{Leaving, announcementDue, Leaving, withdraw},
	{Leaving, storesCaughtUp, Leaving, withdraw},
	{Leaving, announcementSeen, Leaving, reportWithdrawn},
	{Leaving, stopRequested, Leaving, noAction},
}

// next returns the state that an event leads to, and the action.
func (s State) next(e nodeEvent) (State, nodeAction) {
	for _, t := range nodeTransitions {
		if t.state == s && t.event == e {
			return t.next, t.action
		}
	}
	return s, noAction // not reached: a test checks that every pair has a row
}
