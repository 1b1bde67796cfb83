package placement

import (
	"slices"
	"testing"
	"time"
)

// stateFixture is a state that gets entries at times and revisions that it counts.
type stateFixture struct {
	*bucketState

	t        *testing.T
	now      time.Time
	revision uint64
}

// newStateFixture returns a state with a period of 2 s in which members expire after 20 s.
func newStateFixture(t *testing.T) *stateFixture {
	return &stateFixture{bucketState: newBucketState(2*time.Second, 20*time.Second), t: t, now: time.Unix(1e9, 0)}
}

// renew applies the renewal of a node, so long after the last entry, and returns what
// [bucketState.apply] returns.
func (b *stateFixture) renew(after time.Duration, name string) bool {
	b.t.Helper()
	value, err := encodeValue(memberValue{V: 1, Member: Member{Name: name, Addr: "a:1", Weight: 1, Announcement: Announcement{Position: b.now.String()}}})
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

// aliveNames returns the names of the members.
func (b *stateFixture) aliveNames() (names []string) {
	for _, m := range b.alive {
		names = append(names, m.Name)
	}
	return names
}

// TestMemberExpiresWhenOthersRenew checks that a member expires when other members have renewed for
// the time to expire without it.
func TestMemberExpiresWhenOthersRenew(t *testing.T) {
	b := newStateFixture(t)
	if !b.renew(0, "a") || !b.renew(0, "b") {
		t.Error("new members: got no change, want one each")
	}
	for range 9 {
		if b.renew(2*time.Second, "b") {
			t.Errorf("renewal before a expires: got a change to %v, want none", b.aliveNames())
		}
	}

	if !b.renew(2*time.Second, "b") || !slices.Equal(b.aliveNames(), []string{"b"}) || len(b.silentNodes(21*time.Second)) != 0 {
		t.Errorf("members after 20 s: got %v, want b", b.aliveNames())
	}
	b.renew(time.Second, "b")
	if got := b.silentNodes(21 * time.Second); !slices.Equal(got, []string{"a"}) {
		t.Errorf("silent nodes after 21 s: got %v, want a", got)
	}
	if !b.renew(0, "a") || len(b.silentNodes(time.Second)) != 0 {
		t.Error("renewal of the expired node: got no change or still a silent node, want it back")
	}
}

// TestSilenceOfAllNodesExpiresNone checks that a time without any write counts as at most two
// periods, however long it was, and that the clock may run back.
func TestSilenceOfAllNodesExpiresNone(t *testing.T) {
	b := newStateFixture(t)
	b.renew(0, "a")
	b.renew(0, "b")
	for range 4 {
		if b.renew(time.Hour, "b") {
			t.Errorf("renewal after an hour of silence: got a change to %v, want none", b.aliveNames())
		}
	}

	b.renew(-time.Hour, "b")
	if !slices.Equal(b.aliveNames(), []string{"a", "b"}) {
		t.Errorf("members after the clock ran back: got %v, want a and b", b.aliveNames())
	}
	if !b.renew(time.Hour, "b") {
		t.Error("renewal after five times two periods: got no change, want a expired")
	}
}

// TestOldEntriesAreIgnored applies entries that were seen before. A watch that begins again
// delivers them, or a replica that lags.
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
				t.Errorf("old entry %+v: got change %v and error %v, want none", old, changed, err)
			}
		}
	}

	if b.writeClock != 0 || !slices.Equal(b.aliveNames(), []string{"a", "b"}) {
		t.Errorf("after old entries: got write clock %v and members %v, want 0 and a and b", b.writeClock, b.aliveNames())
	}

	// Keys that only a later version knows are ignored.
	if changed, err := b.apply(entry{key: "other.a", revision: 9, value: []byte("?")}, b.now); changed || err != nil || len(b.unreadable) != 0 {
		t.Errorf("unknown key: got change %v, error %v and unreadable keys %v, want none", changed, err, b.unreadable)
	}
}

// TestTableWaitsUntilNodesSettle checks that a table is due when the members have been the same for
// two periods.
func TestTableWaitsUntilNodesSettle(t *testing.T) {
	b := newStateFixture(t)
	isDue := func() bool {
		_, due := b.nextTable(2)
		return due
	}
	b.renew(0, "a")
	for _, step := range []struct {
		seconds int
		name    string
		due     bool
	}{{2, "a", false}, {1, "b", false}, {1, "a", false}, {2, "b", false}, {1, "a", true}, {1, "c", false}} {
		b.renew(time.Duration(step.seconds)*time.Second, step.name)
		if isDue() != step.due {
			t.Errorf("table %d s later, after a renewal of %s: got due %v, want %v", step.seconds, step.name, !step.due, step.due)
		}
	}
}
