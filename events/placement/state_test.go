package placement

import (
	"slices"
	"testing"
	"time"
)

// book is a state and the entries that it gets.
type stateFixture struct {
	*state

	t        *testing.T
	now      time.Time
	revision uint64
}

func newStateFixture(t *testing.T) *stateFixture {
	return &stateFixture{state: newState(2*time.Second, 20*time.Second), t: t, now: time.Unix(1e9, 0)}
}

// renew is the renewal of a node so long after the last entry. It reports what [state.apply] does.
func (b *stateFixture) renew(after time.Duration, name string) bool {
	b.t.Helper()
	value, err := encode(memberValue{V: 1, Member: Member{Name: name, Addr: "a:1", Weight: 1, Position: b.now.String()}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.now = b.now.Add(after)
	b.revision++
	changed, err := b.apply(entry{key: nodePrefix + name, value: value, revision: b.revision}, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	return changed
}

func (b *stateFixture) aliveNames() (names []string) {
	for _, m := range b.alive {
		names = append(names, m.Name)
	}
	return names
}

// TestMemberExpiresWhenOthersRenew: a member expires when others have been renewed for so long.
func TestMemberExpiresWhenOthersRenew(t *testing.T) {
	b := newStateFixture(t)
	if !b.renew(0, "a") || !b.renew(0, "b") {
		t.Error("a new member is no change")
	}
	for range 9 {
		if b.renew(2*time.Second, "b") {
			t.Errorf("a change: %v", b.aliveNames())
		}
	}
	if !b.renew(2*time.Second, "b") || !slices.Equal(b.aliveNames(), []string{"b"}) || len(b.silentNodes(21*time.Second)) != 0 {
		t.Errorf("after 20 s: %v", b.aliveNames())
	}
	b.renew(time.Second, "b")
	if got := b.silentNodes(21 * time.Second); !slices.Equal(got, []string{"a"}) {
		t.Errorf("lost: %v", got)
	}
	if !b.renew(0, "a") || len(b.silentNodes(time.Second)) != 0 {
		t.Error("it is back, and that is no change")
	}
}

// TestSilenceOfAllNodesExpiresNone: a time without any write counts as two periods, however long it was, and clocks may run back.
func TestSilenceOfAllNodesExpiresNone(t *testing.T) {
	b := newStateFixture(t)
	b.renew(0, "a")
	b.renew(0, "b")
	for range 4 {
		if b.renew(time.Hour, "b") {
			t.Errorf("a change: %v", b.aliveNames())
		}
	}
	b.renew(-time.Hour, "b")
	if !slices.Equal(b.aliveNames(), []string{"a", "b"}) {
		t.Errorf("%v", b.aliveNames())
	}
	if !b.renew(time.Hour, "b") {
		t.Error("20 s were counted, and nothing expired")
	}
}

// TestOldEntriesAreIgnored: a watch that begins again delivers what was seen before, or what a lagging replica has.
func TestOldEntriesAreIgnored(t *testing.T) {
	b := newStateFixture(t)
	b.renew(0, "a")
	b.renew(0, "b")
	b.renew(0, "a")
	for range 20 {
		b.now = b.now.Add(2 * time.Second)
		for _, old := range []entry{
			{key: "node.a", revision: 1, value: []byte("{}")}, {key: "node.a", revision: 3}, {key: "node.b", revision: 2, deleted: true},
		} {
			if changed, err := b.apply(old, b.now); changed || err != nil {
				t.Errorf("%+v: %v, %v", old, changed, err)
			}
		}
	}
	if b.writeClock != 0 || !slices.Equal(b.aliveNames(), []string{"a", "b"}) {
		t.Errorf("%v, %v", b.writeClock, b.aliveNames())
	}
	// Keys of a later version are none of this one's business.
	if changed, err := b.apply(entry{key: "other.a", revision: 9, value: []byte("?")}, b.now); changed || err != nil || len(b.unreadable) != 0 {
		t.Errorf("%v, %v", changed, err)
	}
}

// TestTableWaitsUntilNodesSettle: a table is due when the nodes have been the same for two periods.
func TestTableWaitsUntilNodesSettle(t *testing.T) {
	b := newStateFixture(t)
	due := func() bool { _, due := b.nextTable(2); return due }
	b.renew(0, "a")
	for _, step := range []struct {
		seconds int
		name    string
		due     bool
	}{{2, "a", false}, {1, "b", false}, {1, "a", false}, {2, "b", false}, {1, "a", true}, {1, "c", false}} {
		b.renew(time.Duration(step.seconds)*time.Second, step.name)
		if due() != step.due {
			t.Errorf("%d s later, after a renewal of %s: due is %v", step.seconds, step.name, !step.due)
		}
	}
}
