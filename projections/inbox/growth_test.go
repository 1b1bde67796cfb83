package inbox_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
)

// TestBuildPullsGrownOwnersAsLiveFold checks owners whom an import moves above the threshold of a
// partition. They must be pulled from the same event on in a live fold and in a build, which does
// not get all that an event has (I4).
func TestBuildPullsGrownOwnersAsLiveFold(t *testing.T) {
	set := inbox.DefaultSettings()
	const owners = 6
	envs := grownOwners(owners, int(set.Threshold)+5)
	newInbox := func() projections.Projection { return inbox.New(set) }
	straight := conformance.Straight(t, newInbox(), envs)
	pulled := 0
	for _, row := range straight {
		text, err := projections.Text(inbox.DescribeRow(row.Key, row.Value))
		switch {
		case strings.Contains(text, " pull A="):
			pulled++
		case err != nil && projections.Tag(row.Key[2]) > projections.LastRuntimeTag:
			t.Fatal(err)
		}
	}
	if all := owners * (int(set.Threshold) + 5); pulled == 0 || pulled == all {
		t.Errorf("got %d pulled follows of %d, want some and not all, so that the history has both", pulled, all)
	}

	fs := vfs.NewMem()
	b, err := build.New(build.Options{FS: fs, Dir: "data/inbox/000001", New: newInbox})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(envs); err != nil {
		t.Fatal(err)
	}
	if err := b.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	s := conformance.Open(t, fs, newInbox(), store.Bounds{})
	rows := conformance.RowsOf(t, s)
	conformance.Close(t, s)
	rows.MustEqual(t, straight, "built")
}

// grownOwners returns backfills by which each owner gets a number of followers, all in one partition.
func grownOwners(owners, followers int) (envs []*events.Envelope) {
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	offset := uint64(0)
	for n, i := 0, 0; n < followers; i++ {
		user := "u" + strconv.Itoa(i)
		if events.ShardOf(user).Partition() != 7 {
			continue
		}
		n++
		c.Seq++
		c.LastTime += 1_000_000
		env := &events.Envelope{Kinds: events.Kinds(events.UserFollowed), Cursor: c}
		for owner := range owners {
			offset++
			env.Events = append(env.Events, events.Event{
				Kind: events.UserFollowed, User: user, Peer: "owner" + strconv.Itoa(owner), Time: 1_600_000_000_000_000,
				Seq: c.Seq, Slot: uint16(owner), Backfill: true, Source: "import", Offset: offset,
			})
		}
		envs = append(envs, env)
	}
	return envs
}
