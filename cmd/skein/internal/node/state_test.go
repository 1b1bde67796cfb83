package node

import (
	"fmt"
	"testing"
)

var (
	nodeStates = []State{Joining, Serving, Leaving}
	nodeEvents = []nodeEvent{announcementDue, storesCaughtUp, announcementSeen, stopRequested}
)

// TestNodeTableHasEveryPair: nodeTransitions has one row for each pair of state and event, and no
// other rows.
func TestNodeTableHasEveryPair(t *testing.T) {
	for _, s := range nodeStates {
		for _, e := range nodeEvents {
			rows := 0
			for _, row := range nodeTransitions {
				if row.state == s && row.event == e {
					rows++
				}
			}
			if rows != 1 {
				t.Errorf("%s, event %d: expected 1 row, got %d", s, e, rows)
			}
		}
	}
	if want := len(nodeStates) * len(nodeEvents); len(nodeTransitions) != want {
		t.Errorf("expected %d rows, got %d", want, len(nodeTransitions))
	}
}

// TestNodeTransitionsKeepTheirPromises goes through every sequence of up to five events, and checks
// what must hold at each step: a node that was told to stop leaves and is never announced again,
// and a node is ready once, when it begins to serve.
func TestNodeTransitionsKeepTheirPromises(t *testing.T) {
	var walk func(path string, s State, ready, stopped bool, remaining int)
	walk = func(path string, s State, ready, stopped bool, remaining int) {
		if remaining == 0 {
			return
		}
		for _, e := range nodeEvents {
			next, action := s.next(e)
			at := fmt.Sprintf("%s, event %d in %s", path, e, s)
			stopped := stopped || e == stopRequested

			if stopped != (next == Leaving) {
				t.Errorf("%s: expected %s exactly when told to stop, got %s", at, Leaving, next)
			}
			if stopped && (action == announce || action == reportReady) {
				t.Errorf("%s: the partitions of a node that leaves are announced", at)
			}
			if e == stopRequested && s != Leaving && action != withdraw {
				t.Errorf("%s: the partitions of a node that leaves are not withdrawn", at)
			}
			if (action == reportReady) != (s == Joining && next == Serving) {
				t.Errorf("%s: expected reportReady exactly on the way from joining to serving, got action %d and state %s", at, action, next)
			}
			if action == reportReady && ready {
				t.Errorf("%s: the node reports twice that it is ready", at)
			}
			if next == Serving && !ready && action != reportReady {
				t.Errorf("%s: the node serves before it has reported that it is ready", at)
			}
			if (action == reportWithdrawn) != (s == Leaving && e == announcementSeen) {
				t.Errorf("%s: expected reportWithdrawn exactly when the bucket has the withdrawal, got action %d", at, action)
			}
			if e == announcementDue && action == noAction {
				t.Errorf("%s: the node does not announce its position", at)
			}
			walk(at, next, ready || action == reportReady, stopped, remaining-1)
		}
	}
	walk("start", Joining, false, false, 5)
}

// TestNodeStatesKeepTheirNames: other nodes, the API, the metrics and the console know these names.
func TestNodeStatesKeepTheirNames(t *testing.T) {
	for s, want := range map[State]string{Joining: "joining", Serving: "serving", Leaving: "leaving"} {
		if s.String() != want {
			t.Errorf("expected %s, got %s", want, s)
		}
	}
}
