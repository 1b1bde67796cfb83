package audit_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/replay/audit"
	"github.com/skein-feed/skein/replay/internal/memlog"
)

// Stores of some partitions agree in what they have, even if each has other partitions.
func TestStoresOfSomePartitionsAgree(t *testing.T) {
	t.Parallel()
	// withoutEvery returns all partitions except every n-th.
	withoutEvery := func(n int) (s events.Partitions) {
		for p := range events.NumPartitions {
			if p%n != 1 {
				s.Add(uint8(p))
			}
		}
		return s
	}
	none := events.Partitions{}
	without2nd := withoutEvery(2)
	without3rd := withoutEvery(3)
	without7th := withoutEvery(7)

	for name, envs := range map[string][]*events.Envelope{
		"world": memlog.NewWorld(1, 150).Envelopes(1200),
		"feeds": histories.Envelopes(histories.FixedFeeds(1, 300)),
		"graph": histories.Envelopes(histories.Fixed(2, 300)),
	} {
		for _, held := range [][4]*events.Partitions{
			{&without2nd, &without2nd, &without2nd, &without2nd},
			{&without7th, &without7th, &without7th, &without7th},
			{nil, &without2nd, &without3rd, &without7th},
			{&without7th, nil, nil, nil},
			{&none, nil, nil, nil},
		} {
			f := newPartitionedTestStores(t, envs, held)
			for _, limits := range []audit.Limits{{}, {List: 2, Feed: 3}} {
				for _, finding := range f.mustAudit(limits) {
					t.Errorf("log %s, partitions %v, limits %+v: got the finding %v, expected none", name, held, limits, finding)
				}
			}
		}
	}
}

// Users who are not held are not audited, and rows that only their ends have are not reported as
// missing.
func TestUsersOfOtherPartitionsAreNotAudited(t *testing.T) {
	w := memlog.NewWorld(1, 5)
	envs := []*events.Envelope{w.Envelope(
		events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
		events.Event{Kind: events.UserFollowed, User: "cid", Peer: "bob"},
		events.Event{Kind: events.UserBlocked, User: "ann", Peer: "dan"},
		events.Event{Kind: events.BoardFollowed, User: "ann", Peer: "dee", Board: "art"},
	)}
	var held events.Partitions
	held.AddHome("ann")
	f := newPartitionedTestStores(t, envs, [4]*events.Partitions{&held, &held, &held, &held})

	if found := f.mustAudit(audit.Limits{}); len(found) > 0 {
		t.Errorf("got the findings %v, expected none", found)
	}

	// Of these two users, only ann is held.
	a, err := audit.Open(t.Context(), f.stores[graphStore], f.stores[inboxStore], f.stores[countersStore], audit.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"bob", "ann"} {
		err = errors.Join(err, a.Check(t.Context(), audit.Entity{User: user}))
	}
	if err := errors.Join(err, a.Close()); err != nil {
		t.Errorf("check of users: got %v, expected no error", err)
	}
	if a.Checks != 1 {
		t.Errorf("got %d checked users, expected 1, ann", a.Checks)
	}

	// A wrong row of ann is found.
	f.damage(graphStore, func(db *pebble.DB) error { return changeRow(t, db, "graph", "following A=ann", "drop") })
	found := f.mustAudit(audit.Limits{})
	if !slices.ContainsFunc(found, func(f audit.Finding) bool { return f.Check == "counts" && f.Entity.User == "ann" }) {
		t.Errorf("got the findings %v, expected one of the check counts about user ann", found)
	}
}
