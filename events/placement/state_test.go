package placement

import (
	"slices"
	"testing"
	"time"
)

// stateFixture is a state to which a test applies entries, with a clock and a revision that the
// fixture advances.
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

// renew advances the clock, applies the renewal of a node and returns what [bucketState.apply]
// returns.
func (b *stateFixture) renew(after time.Duration, name string) bool {
	b.t.Helper()
	value, err := encodeValue(memberValue{V: 1, Member: Member{
		Name: name, Addr: "a:1", Weight: 1, Announcement: Announcement{Position: b.now.String()},
	}})
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

// TestMemberExpiresWhenOthersRenew checks that a member expires when the other members have renewed
// without it for the time to expire.
func TestMemberExpiresWhenOthersRenew(t *testing.T) {
	b := newStateFixture(t)
	for _, name := range []string{"a", "b"} {
		if !b.renew(0, name) {
			t.Errorf("new member %s: got no change, want one", name)
		}
	}
	for range 9 {
		if b.renew(2*time.Second, "b") {
			t.Errorf("renewal before a expires: got a change to %v, want none", b.aliveNames())
		}
	}

	if !b.renew(2*time.Second, "b") {
		t.Error("renewal after 20 s: got no change, want a expired")
	}
	if got := b.aliveNames(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("members after 20 s: got %v, want b", got)
	}
	if got := b.silentNodes(21 * time.Second); len(got) != 0 {
		t.Errorf("nodes that are silent for 21 s after 20 s: got %v, want none", got)
	}
	b.renew(time.Second, "b")
	if got := b.silentNodes(21 * time.Second); !slices.Equal(got, []string{"a"}) {
		t.Errorf("nodes that are silent for 21 s after 21 s: got %v, want a", got)
	}

	if !b.renew(0, "a") {
		t.Error("renewal of the expired node: got no change, want one")
	}
	if got := b.silentNodes(time.Second); len(got) != 0 {
		t.Errorf("silent nodes after the renewal: got %v, want none", got)
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

// TestOldEntriesAreIgnored applies entries that were seen before, which a watch that begins again or
// a replica that lags delivers.
func TestOldEntriesAreIgnored(t *testing.T) {
	b := newStateFixture(t)
	b.renew(0, "a")
	b.renew(0, "b")
	b.renew(0, "a")
	for range 20 {
		b.now = b.now.Add(2 * time.Second)
		for _, old := range []entry{
			{key: "node.a", revision: 1, value: []byte("{}")},
			{key: "node.a", revision: 3},
			{key: "node.b", revision: 2, deleted: true},
		} {
			if changed, err := b.apply(old, b.now); changed || err != nil {
				t.Errorf("old entry %+v: got change %v and error %v, want none", old, changed, err)
			}
		}
	}

	if b.writeClock != 0 {
		t.Errorf("write clock after old entries: got %v, want 0", b.writeClock)
	}
	if got := b.aliveNames(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("members after old entries: got %v, want a and b", got)
	}

	// Keys that only a later version knows are ignored.
	changed, err := b.apply(entry{key: "other.a", revision: 9, value: []byte("?")}, b.now)
	if changed || err != nil {
		t.Errorf("unknown key: got change %v and error %v, want none", changed, err)
	}
	if len(b.unreadable) != 0 {
		t.Errorf("unreadable keys after an unknown key: got %v, want none", b.unreadable)
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
		wantDue bool
	}{{2, "a", false}, {1, "b", false}, {1, "a", false}, {2, "b", false}, {1, "a", true}, {1, "c", false}} {
		b.renew(time.Duration(step.seconds)*time.Second, step.name)
		if got := isDue(); got != step.wantDue {
			t.Errorf("table %d s later, after a renewal of %s: got due %v, want %v", step.seconds, step.name, got, step.wantDue)
		}
	}
}
