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

// state is what a process knows of the bucket. It does no I/O and reads no clock.
type state struct {
	every, expire time.Duration

	nodes  map[string]*node // by name, those that are silent too
	drains map[string]bool  // by name
	lease  lease
	table  Table
	stored bool // the table stands in the bucket

	revisions map[string]uint64 // of each key, the last that was seen
	// unreadable has the keys with values that this program cannot read. They are ignored. Nothing else depends on them, because
	// everybody who can write one key of the bucket could otherwise keep the cluster from having a controller.
	unreadable map[string]struct{}

	// heard is the clock by which silence is measured: it goes while writes arrive. last is when the last one did.
	heard time.Duration
	last  time.Time
	// altered is when, by that clock, something that the table depends on last changed.
	altered time.Duration
	// shown are the members that are alive, by name.
	shown []Member
}

// node is a member, and when it was last renewed.
type node struct {
	Member

	instance string
	heard    time.Duration
}

// lease is the controller's, and when it was last renewed. Without a holder it is free.
type lease struct {
	holder  string
	counter uint64
	heard   time.Duration
}

func newState(every, expire time.Duration) *state {
	s := &state{every: every, expire: expire, nodes: map[string]*node{}}
	s.forget()
	return s
}

// forget prepares for another bucket: its revisions have nothing to do with those of the one before. Members stay, and expire unless
// they are in the new bucket too; the table stays until there is another.
func (s *state) forget() {
	s.revisions, s.unreadable, s.drains = map[string]uint64{}, map[string]struct{}{}, map[string]bool{}
	s.lease, s.stored, s.altered = lease{}, false, s.heard
}

// apply takes an entry that arrived now, and reports whether members or table have changed, but for positions and states. An entry that was seen
// before, or is older, changes nothing: a watch that begins again delivers such, from a replica that may lag. The error is that of a
// value that cannot be read; what was known of the key then stays.
func (s *state) apply(e entry, now time.Time) (changed bool, err error) {
	if e.revision <= s.revisions[e.key] {
		return false, nil
	}
	s.revisions[e.key] = e.revision
	s.advance(now)
	delete(s.unreadable, e.key)
	changed, err = s.take(e, now)
	if err != nil {
		s.unreadable[e.key] = struct{}{}
		if e.key == tableKey {
			s.stored = false // the controller writes the table again
		}
	}
	return s.show() || changed, err
}

// advance moves the clock. A longer time than two periods without any write counts as two: the bucket was out of reach, and members
// could not be heard.
func (s *state) advance(now time.Time) {
	if !s.last.IsZero() {
		s.heard += max(0, min(now.Sub(s.last), 2*s.every))
	}
	s.last = now
}

// take changes what the entry is about, and reports whether that is the table.
func (s *state) take(e entry, now time.Time) (table bool, err error) {
	prefix, name, _ := strings.Cut(e.key, ".")
	switch {
	case prefix+"." == nodePrefix:
		return false, s.takeNode(e, name, now)
	case prefix+"." == drainPrefix:
		if !e.deleted {
			if _, err := decode[drainValue](e.key, e.value); err != nil {
				return false, err
			}
		}
		if s.drains[name] == e.deleted {
			s.altered = s.heard
		}
		if e.deleted {
			delete(s.drains, name)
		} else {
			s.drains[name] = true
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
		s.lease = lease{holder: v.Holder, counter: v.Counter, heard: s.heard}
	case e.key == tableKey:
		if e.deleted {
			s.stored = false // the controller writes it again
			return false, nil
		}
		t, err := decodeTable(e.value)
		if err != nil {
			return false, err
		}
		s.table, s.stored = t, true
		return true, nil
	}
	return false, nil // a later version may have other keys, too
}

func (s *state) takeNode(e entry, name string, now time.Time) error {
	before := s.nodes[name]
	if e.deleted {
		if before != nil {
			s.altered = s.heard
		}
		delete(s.nodes, name)
		return nil
	}
	v, err := decodeMember(e.key, e.value)
	if err != nil {
		return err
	}
	v.Seen = now
	if before == nil || before.Zone != v.Zone || before.Weight != v.Weight {
		s.altered = s.heard
	}
	s.nodes[name] = &node{Member: v.Member, instance: v.Instance, heard: s.heard}
	return nil
}

// silent is for how long a renewal of that time is the last.
func (s *state) silent(heard time.Duration) time.Duration { return s.heard - heard }

// show computes the members that are alive, and reports whether they have changed, but for their positions and states.
func (s *state) show() bool {
	var shown []Member
	for _, m := range s.known() {
		if s.silent(s.nodes[m.Name].heard) < s.expire {
			shown = append(shown, m)
		}
	}
	same := slices.EqualFunc(s.shown, shown, func(a, b Member) bool {
		a.Position, a.Seen, a.State, a.Change = b.Position, b.Seen, b.State, b.Change
		return a == b
	})
	s.shown = shown
	return !same
}

// known returns all members that have a key, by name.
func (s *state) known() []Member {
	all := make([]Member, 0, len(s.nodes))
	for name, n := range s.nodes {
		m := n.Member
		m.Draining = s.drains[name]
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// lost returns the names of the members that have been silent for so long.
func (s *state) lost(after time.Duration) (names []string) {
	for name, n := range s.nodes {
		if s.silent(n.heard) >= after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// mayControl reports whether an instance may try to take or renew the lease.
func (s *state) mayControl(instance string) bool {
	return s.lease.holder == "" || s.lease.holder == instance || s.silent(s.lease.heard) >= s.expire
}

// next returns the table that the controller should write. It returns false while the nodes have changed in the last two periods, when
// no node is usable, and when the table is as it should be.
func (s *state) next(replicas int) (Table, bool) {
	if s.silent(s.altered) < 2*s.every {
		return Table{}, false
	}
	t := Place(s.known(), replicas)
	if len(t.Nodes[0]) == 0 {
		return Table{}, false
	}
	t.Revision = s.table.Revision + 1
	return t, !s.stored || t.Replicas != s.table.Replicas || !slices.EqualFunc(t.Nodes[:], s.table.Nodes[:], slices.Equal)
}
