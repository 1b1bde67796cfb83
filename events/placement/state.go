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

// bucketState is what this process has read of the bucket. It does no I/O and reads no clock, so
// that tests can drive it. It has no lock: Cluster.mu guards it.
type bucketState struct {
	renewEvery, expireAfter time.Duration // as in Options

	nodes    map[string]*node // by name, alive or not
	draining map[string]bool  // by name; true if the bucket has a drain key for the node
	lease    lease
	table    Table
	// tableStored is true if the bucket has this table. It is false if the key was deleted or
	// overwritten with an unreadable value, or if a new bucket does not have it yet.
	tableStored bool

	revisions map[string]uint64 // per key, the last revision that was applied
	// unreadable has the keys whose values cannot be read. Neither the lease nor the table depends
	// on it. Otherwise an attacker who can write one key of the bucket could keep the cluster from
	// having a controller. Only checkNameTakenOver uses it for a decision.
	unreadable map[string]struct{}

	// writeClock measures how long nodes have been silent. It advances only when a write to the
	// bucket arrives, by at most 2*renewEvery, so no node expires during an outage.
	writeClock time.Duration
	// lastWrite is the time, by the clock of this process, when the last write arrived.
	lastWrite time.Time
	// lastPlacementChange is what writeClock was when something on which the table depends last
	// changed.
	lastPlacementChange time.Duration
	// alive are the nodes that have not expired, sorted by name. updateAlive sets it.
	alive []Member
}

// node is a node as its node key describes it.
type node struct {
	Member

	instance    string        // see Cluster.instance
	lastRenewal time.Duration // by writeClock
}

// lease is the lease of the controller. No node has it if holder is empty.
type lease struct {
	holder      string // the instance of the controller
	counter     uint64
	lastRenewal time.Duration // by writeClock
}

func newBucketState(renewEvery, expireAfter time.Duration) *bucketState {
	s := &bucketState{renewEvery: renewEvery, expireAfter: expireAfter, nodes: map[string]*node{}}
	s.resetForNewBucket()
	return s
}

// resetForNewBucket removes what belongs to the old bucket after the bucket was deleted and created
// again, because the revisions of the new bucket begin at 1 again. Nodes stay, and expire unless
// they write their keys to the new bucket. The table stays until the new bucket has one, which the
// controller does not write before the nodes have had 2*renewEvery to write their keys.
func (s *bucketState) resetForNewBucket() {
	s.revisions = map[string]uint64{}
	s.unreadable = map[string]struct{}{}
	s.draining = map[string]bool{}
	s.lease = lease{}
	s.tableStored = false
	s.lastPlacementChange = s.writeClock
}

// apply applies an entry that arrived at the time now. It reports whether the table or the nodes
// that are alive have changed, apart from what updateAlive does not count. It ignores an entry
// whose revision is not newer than the last one of the key. A restarted watch delivers such
// entries, because it begins with all keys, and the NATS server that answers it may lag behind. An
// error means that the value cannot be read; then the value that the key had before stays in
// effect.
func (s *bucketState) apply(e entry, now time.Time) (changed bool, err error) {
	if e.revision <= s.revisions[e.key] {
		return false, nil
	}
	s.revisions[e.key] = e.revision
	s.advanceClock(now)
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

// advanceClock advances writeClock by the time since the last write, but by at most 2*renewEvery.
// If there was no write for longer, the bucket may have been out of reach while nodes ran and could
// not renew their keys.
func (s *bucketState) advanceClock(now time.Time) {
	if !s.lastWrite.IsZero() {
		s.writeClock += max(0, min(now.Sub(s.lastWrite), 2*s.renewEvery))
	}
	s.lastWrite = now
}

// applyToKey applies an entry as the kind of its key demands, and reports whether the table was
// replaced.
func (s *bucketState) applyToKey(e entry, now time.Time) (tableChanged bool, err error) {
	prefix, name, _ := strings.Cut(e.key, ".")
	switch {
	case prefix+"." == nodePrefix:
		return false, s.applyToNodeKey(e, name, now)
	case prefix+"." == drainPrefix:
		if !e.deleted {
			if _, err := decodeValue[drainValue](e.key, e.value); err != nil {
				return false, err
			}
		}
		if s.draining[name] == e.deleted { // the entry changes whether the node drains
			s.lastPlacementChange = s.writeClock
		}
		if e.deleted {
			delete(s.draining, name)
		} else {
			s.draining[name] = true
		}
	case e.key == leaseKey:
		if e.deleted {
			s.lease = lease{}
			return false, nil
		}
		v, err := decodeValue[leaseValue](e.key, e.value)
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

// applyToNodeKey applies an entry of the node key of the node with this name.
func (s *bucketState) applyToNodeKey(e entry, name string, now time.Time) error {
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

// isAlive reports whether the node with this name, which must be in nodes, has renewed its key
// within expireAfter.
func (s *bucketState) isAlive(name string) bool {
	return s.writeClock-s.nodes[name].lastRenewal < s.expireAfter
}

// updateAlive recomputes alive, and reports whether it has changed. It does not count a change of
// LastSeen, or of the fields of an announcement other than Serves.
func (s *bucketState) updateAlive() bool {
	var alive []Member
	for _, m := range s.membersWithKey() {
		if s.isAlive(m.Name) {
			alive = append(alive, m)
		}
	}

	same := slices.EqualFunc(s.alive, alive, func(a, b Member) bool {
		a.LastSeen = b.LastSeen
		a.Announcement = Announcement{Serves: a.Serves}
		b.Announcement = Announcement{Serves: b.Serves}
		return a == b
	})
	s.alive = alive
	return !same
}

// membersWithKey returns a new slice with all nodes that have a key, alive or not, sorted by name.
func (s *bucketState) membersWithKey() []Member {
	all := make([]Member, 0, len(s.nodes))
	for name, n := range s.nodes {
		m := n.Member
		m.Draining = s.draining[name]
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// silentNodes returns the sorted names of the nodes that have not renewed their keys for at least
// the given time by writeClock.
func (s *bucketState) silentNodes(minSilence time.Duration) (names []string) {
	for name, n := range s.nodes {
		if s.writeClock-n.lastRenewal >= minSilence {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// canTakeLease reports whether an instance may try to take or renew the lease.
func (s *bucketState) canTakeLease(instance string) bool {
	return s.lease.holder == "" || s.lease.holder == instance || s.writeClock-s.lease.lastRenewal >= s.expireAfter
}

// nextTable returns the table that the bucket should have, and whether the controller should write
// it. It returns false if something on which the table depends has changed in the last
// 2*renewEvery, if all nodes are draining, or if the bucket already has this table.
func (s *bucketState) nextTable(copies int) (Table, bool) {
	// Nodes that start one after the other should not cause a table each.
	if s.writeClock-s.lastPlacementChange < 2*s.renewEvery {
		return Table{}, false
	}

	t := Place(s.membersWithKey(), copies)
	if len(t.Nodes[0]) == 0 {
		return Table{}, false
	}

	t.Revision = s.table.Revision + 1
	isNew := t.Copies != s.table.Copies || !slices.EqualFunc(t.Nodes[:], s.table.Nodes[:], slices.Equal)
	return t, isNew || !s.tableStored
}
