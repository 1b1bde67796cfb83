package node

import (
	"fmt"
	"testing"
)

var (
	nodeStates = []State{Joining, Serving, Leaving}
	nodeEvents = []nodeEvent{announcementDue, storesCaughtUp, announcementSeen, stopRequested}
)

// TestNodeTableIsComplete: every event has one row in every state, and there are no other rows.
func TestNodeTableIsComplete(t *testing.T) {
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

// TestNodeTransitions walks the table by every sequence of events up to a length, and checks what holds in all of them.
func TestNodeTransitions(t *testing.T) {
	var walk func(path string, s State, ready, stopped bool, left int)
	walk = func(path string, s State, ready, stopped bool, left int) {
		if left == 0 {
			return
		}
		for _, e := range nodeEvents {
			next, action := s.next(e)
			at := fmt.Sprintf("%s, event %d in %s", path, e, s)
			stopped := stopped || e == stopRequested

			if stopped != (next == Leaving) {
				t.Errorf("%s: expected to leave when stopped, and only then; got %s", at, next)
			}
			if stopped && (action == announce || action == reportReady) {
				t.Errorf("%s: a node that stops is announced as serving", at)
			}
			if e == stopRequested && s != Leaving && action != withdraw {
				t.Errorf("%s: a node that stops is still asked", at)
			}
			if (action == reportReady) != (s == Joining && next == Serving) {
				t.Errorf("%s: expected to be ready when it begins to serve, and only then; got %s, action %d", at, next, action)
			}
			if action == reportReady && ready {
				t.Errorf("%s: ready twice", at)
			}
			if next == Serving && !ready && action != reportReady {
				t.Errorf("%s: it serves before it is ready", at)
			}
			if e == announcementDue && action == stay {
				t.Errorf("%s: its position is not announced", at)
			}
			walk(at, next, ready || action == reportReady, stopped, left-1)
		}
	}
	walk("start", Joining, false, false, 5)
}

// TestNodeStateNames: these names are in the API, the metrics, the console and the bucket.
func TestNodeStateNames(t *testing.T) {
	for s, want := range map[State]string{Joining: "joining", Serving: "serving", Leaving: "leaving"} {
		if s.String() != want {
			t.Errorf("expected %s, got %s", want, s)
		}
	}
}
