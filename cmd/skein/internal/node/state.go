package node

import "fmt"

// State is where a node is between its start and its end. Its name is the same in the bucket of the cluster, the API, the metrics, the
// console and `skein node list`.
type State uint8

const (
	// Joining is the state from the start until the other nodes can know what this one serves. The node reports that it is not ready
	// for calls.
	Joining State = iota
	// Serving is the state in which the node takes calls of clients and of other nodes. It holds what the table gives it, or changes
	// its partitions towards that.
	Serving
	// Leaving is the state from the order to stop until the process ends. The other nodes no longer ask this one.
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
	// announcementDue happens every two seconds, and when the partitions that the node serves or wants have changed.
	announcementDue nodeEvent = iota
	// storesCaughtUp happens once, when every store has been at the head of the log, or has failed.
	storesCaughtUp
	// announcementSeen happens when the node reads back from the bucket what it announced after storesCaughtUp.
	announcementSeen
	// stopRequested happens once, when the process is to stop taking calls.
	stopRequested
)

// nodeAction is what the node does when it passes from one state to another, or stays in one.
type nodeAction uint8

const (
	stay nodeAction = iota
	// announce tells the other nodes which partitions they may ask this node for.
	announce
	// reportReady lets the process report that it is ready for calls, and announces the new state.
	reportReady
	// withdraw tells the other nodes not to ask this one for anything.
	withdraw
)

// nodeTransition is one row of the table.
type nodeTransition struct {
	state  State
	event  nodeEvent
	next   State
	action nodeAction
}

// nodeTransitions has every state and event. The package doc draws it.
var nodeTransitions = []nodeTransition{
	{Joining, announcementDue, Joining, announce},
	{Joining, storesCaughtUp, Joining, announce},
	{Joining, announcementSeen, Serving, reportReady},
	{Joining, stopRequested, Leaving, withdraw},

	{Serving, announcementDue, Serving, announce},
	{Serving, storesCaughtUp, Serving, announce},
	{Serving, announcementSeen, Serving, stay},
	{Serving, stopRequested, Leaving, withdraw},

	// A node that stops does not come back: nothing that happens later may make the others ask it again.
	{Leaving, announcementDue, Leaving, withdraw},
	{Leaving, storesCaughtUp, Leaving, withdraw},
	{Leaving, announcementSeen, Leaving, stay},
	{Leaving, stopRequested, Leaving, stay},
}

// next returns the state that follows an event, and what the node does then.
func (s State) next(e nodeEvent) (State, nodeAction) {
	for _, t := range nodeTransitions {
		if t.state == s && t.event == e {
			return t.next, t.action
		}
	}
	return s, stay // the test of the table proves that every pair has a row
}
