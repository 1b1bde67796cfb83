package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/placement"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

var changeStates = []ChangeState{Unchanged, Copying, CatchingUp, CutOver, Dropped}

// TestChangeTableHasEveryPossiblePair: changeTransitions has exactly one row for each pair of state
// and event that can happen, and next fails for every other pair. A change can begin while none is
// under way, and a step can end while one is under way.
func TestChangeTableHasEveryPossiblePair(t *testing.T) {
	for _, state := range changeStates {
		for _, c := range []struct {
			name  string
			event changeEvent
		}{
			{"change begun", changeBegun},
			{"step done", stepDone},
			{"step failed", stepFailed},
		} {
			t.Run(state.String()+", "+c.name, func(t *testing.T) {
				isPossible := state.isUnderWay()
				if c.event == changeBegun {
					// A change whose last step has failed ends in CutOver.
					isPossible = state == Unchanged || state == Dropped || state == CutOver
				}
				wantRows := 0
				if isPossible {
					wantRows = 1
				}

				rows := 0
				for _, row := range changeTransitions {
					if row.state == state && row.event == c.event {
						rows++
					}
				}
				if rows != wantRows {
					t.Errorf("rows of the table: got %d, want %d", rows, wantRows)
				}

				if _, _, err := state.next(c.event); (err == nil) != isPossible {
					t.Errorf("next: got error %v, want possible %t", err, isPossible)
				}
			})
		}
	}
}

// TestFailedStepEndsChange follows a change through its states: with no failure, and with a failure
// of each step. Whatever happens, another change can begin afterwards.
func TestFailedStepEndsChange(t *testing.T) {
	type step struct {
		State  ChangeState
		Action changeAction
	}
	for _, c := range []struct {
		name      string
		failingIn ChangeState // the state whose step fails; Unchanged means none
		want      []step
	}{
		{"all steps succeed", Unchanged, []step{
			{Copying, copyRows}, {CatchingUp, catchUpAndCutOver}, {CutOver, deletePrevious}, {Dropped, endChange},
		}},
		{"rows cannot be copied", Copying, []step{{Copying, copyRows}, {Unchanged, endChange}}},
		{"the cut-over fails", CatchingUp, []step{{Copying, copyRows}, {CatchingUp, catchUpAndCutOver}, {Unchanged, endChange}}},
		// The new set serves already, so the change is not undone.
		{"the previous generation cannot be deleted", CutOver, []step{
			{Copying, copyRows}, {CatchingUp, catchUpAndCutOver}, {CutOver, deletePrevious}, {CutOver, endChange},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []step
			state := Unchanged
			event := changeBegun
			for {
				next, action, err := state.next(event)
				if err != nil {
					t.Fatal(err)
				}
				state = next
				got = append(got, step{state, action})
				if action == endChange {
					break
				}

				event = stepDone
				if state == c.failingIn {
					event = stepFailed
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("states and actions (-want +got):\n%s", diff)
			}

			next, action, err := state.next(changeBegun)
			if next != Copying || action != copyRows || err != nil {
				t.Errorf("another change: got %s, action %d, %v, want %s, action %d", next, action, err, Copying, copyRows)
			}
		})
	}
}

// TestNodeAnnouncesItsSlowestChange: the state that a node announces is the earliest one among the
// changes of its stores that are under way.
func TestNodeAnnouncesItsSlowestChange(t *testing.T) {
	for _, c := range []struct {
		name   string
		states []ChangeState
		want   ChangeState
	}{
		{"no store", nil, Unchanged},
		{"no change", []ChangeState{Unchanged, Unchanged}, Unchanged},
		{"all states together", []ChangeState{Dropped, CutOver, CatchingUp, Copying}, Copying},
		{"one store holds the set already", []ChangeState{Unchanged, CatchingUp}, CatchingUp},
		{"all have ended", []ChangeState{Dropped, Dropped}, Dropped},
		{"one store deletes its previous generation", []ChangeState{Dropped, CutOver}, CutOver},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := slowest(c.states); got != c.want {
				t.Errorf("slowest: got %s, want %s", got, c.want)
			}
		})
	}
}

// newPartitions returns a set of partitions.
func newPartitions(partitions ...uint8) (s events.Partitions) {
	for _, p := range partitions {
		s.Add(p)
	}
	return s
}

// newMember returns a member that serves partitions.
func newMember(name string, serves events.Partitions) placement.Member {
	return placement.Member{Name: name, Announcement: placement.Announcement{Serves: serves}}
}

// TestDecideAddsAtOnceAndDropsLater: wanted partitions are added at once. Unwanted ones are dropped
// when they have not been announced for ten seconds, and in a change of their own.
func TestDecideAddsAtOnceAndDropsLater(t *testing.T) {
	type decided struct {
		What decision
		To   events.Partitions
	}
	// inBothStores returns what two stores hold that have the same partitions.
	inBothStores := func(set events.Partitions) []events.Partitions { return []events.Partitions{set, set} }
	for _, c := range []struct {
		name      string
		situation situation
		want      decided
	}{
		{
			"a new node without a table",
			situation{held: inBothStores(newPartitions())},
			decided{What: settled},
		},
		{
			"a new node is given partitions",
			situation{held: inBothStores(newPartitions()), wanted: newPartitions(1, 2)},
			decided{change, newPartitions(1, 2)},
		},
		{
			"partitions are added while others are withdrawn",
			situation{held: inBothStores(newPartitions(1)), served: newPartitions(1), wanted: newPartitions(2), withdrawnFor: dropAfter},
			decided{change, newPartitions(1, 2)},
		},
		{
			"partitions have just been withdrawn",
			situation{held: inBothStores(newPartitions(1, 2)), served: newPartitions(1, 2), wanted: newPartitions(2), withdrawnFor: dropAfter - 1},
			decided{What: waitBeforeDrop},
		},
		{
			"partitions were withdrawn ten seconds ago",
			situation{held: inBothStores(newPartitions(1, 2)), served: newPartitions(1, 2), wanted: newPartitions(2), withdrawnFor: 10 * time.Second},
			decided{change, newPartitions(2)},
		},
		{
			"the last partition is dropped",
			situation{held: inBothStores(newPartitions(1)), served: newPartitions(1), withdrawnFor: time.Hour},
			decided{change, newPartitions()},
		},
		{
			"a crash has left a store with partitions that another lacks",
			situation{held: []events.Partitions{newPartitions(1, 2), newPartitions(1)}, served: newPartitions(1), wanted: newPartitions(1, 2)},
			decided{change, newPartitions(1, 2)},
		},
		{
			"a crash has left a store with partitions that nobody wants any more",
			situation{held: []events.Partitions{newPartitions(1, 2), newPartitions(1)}, served: newPartitions(1), wanted: newPartitions(1)},
			decided{change, newPartitions(1)},
		},
		{
			"a crash has left a store without partitions that were to be dropped",
			situation{held: []events.Partitions{newPartitions(1, 2), newPartitions(2)}, served: newPartitions(2), wanted: newPartitions(2)},
			decided{change, newPartitions(2)},
		},
		{
			"the stores hold what is wanted",
			situation{held: inBothStores(newPartitions(1)), served: newPartitions(1), wanted: newPartitions(1), withdrawnFor: time.Hour},
			decided{What: settled},
		},
		{
			"a user was erased while partitions are to be added",
			situation{erased: true, held: inBothStores(newPartitions(1)), served: newPartitions(1), wanted: newPartitions(2)},
			decided{What: rebuildErased},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got decided
			got.What, got.To = c.situation.decide()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNodeServesUntilOthersHaveTakenOver: a node keeps serving a partition that the table gives to
// other nodes until all of those serve it.
func TestNodeServesUntilOthersHaveTakenOver(t *testing.T) {
	// The node with the name self serves partitions that the table gives to the nodes a and b.
	var table placement.Table
	table.Nodes[1] = []string{"self", "a"}
	table.Nodes[2] = []string{"a", "b"}
	table.Nodes[3] = []string{"a", "b"}
	table.Nodes[4] = []string{"a", "gone"}
	members := []placement.Member{
		newMember("a", newPartitions(2, 3, 4)), newMember("b", newPartitions(3)), newMember("self", newPartitions(2, 3, 4, 5)),
	}
	for _, c := range []struct {
		name         string
		served, want events.Partitions
	}{
		{"the node holds nothing", newPartitions(), newPartitions(1)},
		{"one of two nodes has not taken over yet", newPartitions(2), newPartitions(1, 2)},
		{"both nodes have taken over", newPartitions(3), newPartitions(1)},
		{"one of the nodes that take over is gone", newPartitions(4), newPartitions(1, 4)},
		{"the table gives the partition to nobody", newPartitions(5), newPartitions(1, 5)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := wantedPartitions("self", c.served, &table, members); got != c.want {
				t.Errorf("wantedPartitions: got %s, want %s", &got, &c.want)
			}
		})
	}
}

// TestAPIHasEveryState: the enums of the API have a value for every state of a node and of a
// change.
func TestAPIHasEveryState(t *testing.T) {
	for _, s := range changeStates {
		if _, ok := skeinv1.PartitionChangeState_value[enumName("PARTITION_CHANGE_STATE_", s.String())]; !ok {
			t.Errorf("got no value of the API for the state %s, want one", s)
		}
	}
	for _, s := range nodeStates {
		if _, ok := skeinv1.NodeState_value[enumName("NODE_STATE_", s.String())]; !ok {
			t.Errorf("got no value of the API for the state %s, want one", s)
		}
	}
}
