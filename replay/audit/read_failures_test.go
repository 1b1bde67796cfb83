package audit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/audit"
)

// TestFailedReadIsNoFinding audits a user who has followers in several blocks of a table, while one
// read after the other fails. A row that cannot be read is an error, not a disagreement between
// stores.
func TestFailedReadIsNoFinding(t *testing.T) {
	faults := &conformance.FailingRead{}
	disk := vfs.NewMem()
	cache := store.NewCache(0)
	defer cache.Unref()

	var stores [4]*store.Store
	for i := range stores {
		s, err := store.Open(store.Options{
			FS: faults.FileSystem(disk), Dir: "data", Projection: newProjection(i), Cache: cache,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conformance.Close(t, s) })
		conformance.Fold(t, s, []*events.Envelope{makeFollowersOf("star", 400)})
		if err := s.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		stores[i] = s
	}

	check := func() ([]audit.Finding, error) {
		// It is the turn of no user, so the other side of each follow is not looked up.
		limits := audit.Limits{FeedTurns: 1 << 62}
		a, err := audit.Open(t.Context(), stores[graphStore], stores[inboxStore], stores[countersStore], limits)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		err = a.Check(t.Context(), audit.Entity{User: "star"})
		return a.Findings(), err
	}

	// Count the reads of an audit without failures.
	reads := faults.Count(func() {
		if found, err := check(); err != nil || len(found) > 0 {
			t.Fatalf("without failures: got the findings %v and error %v, expected neither", found, err)
		}
	})
	if reads == 0 {
		t.Fatal("without failures: got no reads, expected some")
	}

	for n := int64(1); n <= reads; n++ {
		faults.FailAt(n)
		found, err := check()
		if faults.HasFailed() && err == nil {
			t.Errorf("read %d of %d fails: got no error, expected one", n, reads)
		}
		if len(found) > 0 {
			t.Errorf("read %d of %d fails: got the findings %v, expected none", n, reads, found)
		}
	}
}

// makeFollowersOf returns an envelope in which n users with long ids follow one user.
func makeFollowersOf(user string, n int) *events.Envelope {
	env := &events.Envelope{Bytes: 10, Cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, Seq: 1, LastTime: 1_700_000_000_000_000}}
	for i := range n {
		env.Cursor.LastTime++
		env.Events = append(env.Events, events.Event{
			Kind: events.UserFollowed, User: fmt.Sprintf("%d-%s", i, strings.Repeat("x", 100)), Peer: user,
			Seq: 1, Slot: uint16(i), Time: env.Cursor.LastTime,
		})
	}
	env.Kinds = events.Kinds(events.UserFollowed)
	return env
}
