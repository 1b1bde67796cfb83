package placement

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// entry is a key of the bucket as the watch delivers it.
type entry struct {
	key      string
	value    []byte
	revision uint64
	deleted  bool
}

// state is what this process has read of the bucket. It does no I/O and reads no clock, so that tests can drive it.
type state struct {
	every, expire time.Duration // as in Options

	nodes       map[string]*node // by name, including those that have expired
	drained     map[string]bool  // by name; true if an operator drains the node
	lease       lease
	table       Table
	tableStored bool // the bucket has the table; false if its key was deleted or is not in a new bucket

	revisions map[string]uint64 // per key, the last revision that was applied
	// unreadable has the keys with values that this program cannot read. The values are ignored, and no decision depends on these keys:
	// otherwise everybody who can write one key of the bucket could keep the cluster from having a controller.
	unreadable map[string]struct{}

	// writeClock measures silence. It only advances while writes to the bucket arrive, so nobody expires during an outage.
	writeClock time.Duration
	// lastWrite is the process's own time when the last write arrived.
	lastWrite time.Time
	// lastPlacementChange is the writeClock when something that the table depends on last changed.
	lastPlacementChange time.Duration
	// alive are the members that have not expired, sorted by name.
	alive []Member
}

// node is a member as its key describes it.
type node struct {
	Member

	instance    string        // the run of the process that wrote the key
	lastRenewal time.Duration // by writeClock
}

// lease is the controller's lease. It is free if holder is empty.
type lease struct {
	holder      string // an instance
	counter     uint64
	lastRenewal time.Duration // by writeClock
}

func newState(every, expire time.Duration) *state {
	s := &state{every: every, expire: expire, nodes: map[string]*node{}}
	s.resetForNewBucket()
	return s
}

// resetForNewBucket removes what belongs to the old bucket after another one of the same name was created, because the revisions of the new
// bucket start anew. Members stay, and expire unless the new bucket has them too. The table stays until the new bucket has one.
func (s *state) resetForNewBucket() {
	s.revisions = map[string]uint64{}
	s.unreadable = map[string]struct{}{}
	s.drained = map[string]bool{}
	s.lease = lease{}
	s.tableStored = false
	s.lastPlacementChange = s.writeClock
}

// apply applies an entry that arrived at the time now. It reports whether the members, apart from their positions and states, or the
// table have changed. It ignores an entry whose revision is not newer than the last one of the key: a restarted watch delivers such entries, because
// it begins with all keys and a replica that lags may answer it. An error says that the value cannot be read; the state then keeps the
// value that the key had before.
func (s *state) apply(e entry, now time.Time) (changed bool, err error) {
	if e.revision <= s.revisions[e.key] {
		return false, nil
	}
	s.revisions[e.key] = e.revision
	s.advance(now)
	delete(s.unreadable, e.key)
	changed, err = s.applyToKey(e, now)
	if err != nil {
		s.unreadable[e.key] = struct{}{}
		if e.key == tableKey {
			s.tableStored = false // the controller writes the table again
		}
	}
	return s.updateAlive() || changed, err
}

// advance advances writeClock by the time since the last write, but by at most two periods. After a longer time without any write, the
// bucket was out of reach, and that members were silent says nothing about them.
func (s *state) advance(now time.Time) {
	if !s.lastWrite.IsZero() {
		s.writeClock += max(0, min(now.Sub(s.lastWrite), 2*s.every))
	}
	s.lastWrite = now
}

// applyToKey applies an entry according to its kind of key, and reports whether the table was replaced.
func (s *state) applyToKey(e entry, now time.Time) (tableChanged bool, err error) {
	prefix, name, _ := strings.Cut(e.key, ".")
	switch {
	case prefix+"." == nodePrefix:
		return false, s.applyToNodeKey(e, name, now)
	case prefix+"." == drainPrefix:
		if !e.deleted {
			if _, err := decode[drainValue](e.key, e.value); err != nil {
				return false, err
			}
		}
		if s.drained[name] == e.deleted {
			s.lastPlacementChange = s.writeClock
		}
		if e.deleted {
			delete(s.drained, name)
		} else {
			s.drained[name] = true
		}
	case e.key == leaseKey:
		if e.deleted {
			s.lease = lease{}
			return false, nil
		}
		v, err := decode[leaseValue](e.key, e.value)
		if err != nil {
			return false, err
		}
		s.lease = lease{holder: v.Holder, counter: v.Counter, lastRenewal: s.writeClock}
	case e.key == tableKey:
		if e.deleted {
			s.tableStored = false // the controller writes it again
			return false, nil
		}
		t, err := decodeTable(e.value)
		if err != nil {
			return false, err
		}
		s.table, s.tableStored = t, true
		return true, nil
	}
	return false, nil // ignore other keys: a later version of skein may have added them
}

func (s *state) applyToNodeKey(e entry, name string, now time.Time) error {
	before := s.nodes[name]
	if e.deleted {
		if before != nil {
			s.lastPlacementChange = s.writeClock
		}
		delete(s.nodes, name)
		return nil
	}
	v, err := decodeMember(e.key, e.value)
	if err != nil {
		return err
	}
	v.LastSeen = now
	if before == nil || before.Zone != v.Zone || before.Weight != v.Weight {
		s.lastPlacementChange = s.writeClock
	}
	s.nodes[name] = &node{Member: v.Member, instance: v.Instance, lastRenewal: s.writeClock}
	return nil
}

// silenceSince returns how long ago, by writeClock, a renewal arrived.
func (s *state) silenceSince(renewal time.Duration) time.Duration { return s.writeClock - renewal }

// updateAlive recomputes alive, and reports whether it has changed apart from positions and states.
func (s *state) updateAlive() bool {
	var alive []Member
	for _, m := range s.membersWithKey() {
		if s.silenceSince(s.nodes[m.Name].lastRenewal) < s.expire {
			alive = append(alive, m)
		}
	}

	same := slices.EqualFunc(s.alive, alive, func(a, b Member) bool {
		a.Position, a.LastSeen, a.State, a.Change = b.Position, b.LastSeen, b.State, b.Change
		return a == b
	})
	s.alive = alive
	return !same
}

// membersWithKey returns all members that have a key, alive or not, sorted by name.
func (s *state) membersWithKey() []Member {
	all := make([]Member, 0, len(s.nodes))
	for name, n := range s.nodes {
		m := n.Member
		m.Draining = s.drained[name]
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// silentNodes returns the sorted names of the nodes that have been silent for at least the given time.
func (s *state) silentNodes(minSilence time.Duration) (names []string) {
	for name, n := range s.nodes {
		if s.silenceSince(n.lastRenewal) >= minSilence {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// canTakeLease reports whether an instance may try to take or renew the lease.
func (s *state) canTakeLease(instance string) bool {
	return s.lease.holder == "" || s.lease.holder == instance || s.silenceSince(s.lease.lastRenewal) >= s.expire
}

// nextTable returns the table that the bucket should have, and whether the controller should write it. It returns false if the nodes have
// changed in the last two periods, if no node can hold partitions, or if the bucket has this table already.
func (s *state) nextTable(replicas int) (Table, bool) {
	// Nodes that start one after the other should not cause a table each.
	if s.silenceSince(s.lastPlacementChange) < 2*s.every {
		return Table{}, false
	}

	t := Place(s.membersWithKey(), replicas)
	if len(t.Nodes[0]) == 0 {
		return Table{}, false
	}

	t.Revision = s.table.Revision + 1
	return t, !s.tableStored || t.Replicas != s.table.Replicas || !slices.EqualFunc(t.Nodes[:], s.table.Nodes[:], slices.Equal)
}
