package seen_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// usersOfOneShard returns n users of one shard.
func usersOfOneShard(n int) (users []string) {
	for i := 0; len(users) < n; i++ {
		user := "user" + strconv.Itoa(i)
		if events.ShardOf(user) == 77 {
			users = append(users, user)
		}
	}
	return users
}

// TestSealingSurvivesCrashAtEachStep seals users in one event that takes several steps, and crashes
// after each step. What is on disk then must be sealed, and the rest open. Once the event is folded
// again, the rows must be those of a store that did not crash (I3).
func TestSealingSurvivesCrashAtEachStep(t *testing.T) {
	s := seen.DefaultSettings()

	// Each visit of a partition is a step. Its rows have some kilobytes, so that there is a flush
	// after every few steps.
	const users = 4000
	disk := vfs.NewCrashableMem()
	var crashes crashes
	opts := store.Options{
		FS: disk, Dir: "data", Bounds: store.Bounds{BatchBytes: 1, FlushBytes: 48 << 10},
	}
	j := newTestLog(t, s, opts)
	j.advanceTo(monthStart(2026, 5))

	// Each user has one to three plays in May.
	var evs []events.Event
	for i := range users {
		evs = append(evs, newPlays(fmt.Sprintf("%0*d-user", events.MaxIDBytes-5, i), itemNumbers(i, 1+i%3)...)...)
	}
	j.add(evs...)
	j.maintainAt(monthStart(2026, 6) - 1000)
	j.close()

	// Seal the users, and take the disk at each flush.
	opts.Listener.Flushed = func(store.FlushInfo) { crashes.take(disk) }
	again := newTestLog(t, s, opts)
	again.envs = j.envs
	again.seq = j.seq
	again.now = j.now
	again.maintainAt(monthStart(2026, 6) + week + day)
	if err := again.store.Flush(); err != nil {
		t.Fatal(err)
	}

	want := conformance.RowsOf(t, again.store)
	if open, sealed := again.countRows(may2026, openRow), again.countRows(may2026, sealedRow); open != 0 || sealed != users {
		t.Fatalf("got %d open and %d sealed rows, want 0 and %d", open, sealed, users)
	}
	again.checkRebuild(t)
	again.close()

	// Open each disk, and continue.
	opts.Listener.Flushed = nil
	inside := 0
	for i, fs := range crashes.disks {
		opts.FS = fs
		opts.Projection = seen.New(s)
		store, err := store.Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		v, err := store.View()
		switch {
		case errors.Is(err, projections.ErrNotReady):
			inside++
		case err != nil:
			t.Fatal(err)
		default:
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
		}

		conformance.Fold(t, store, again.envs[conformance.IndexAfter(again.envs, store.Cursor()):])
		conformance.RowsOf(t, store).MustEqual(t, want, "crash %d of %d", i, len(crashes.disks))
		conformance.Close(t, store)
	}
	t.Logf("%d of %d crashes inside the event", inside, len(crashes.disks))
	if inside < 2 {
		t.Errorf("got %d of %d crashes inside the event, want at least 2", inside, len(crashes.disks))
	}
}

// crashes has disks as they would be after a crash.
type crashes struct {
	mu    sync.Mutex
	disks []*vfs.MemFS
}

// take records what a crash at this moment would leave on the disk.
func (c *crashes) take(disk *vfs.MemFS) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disks = append(c.disks, disk.CrashClone(vfs.CrashCloneCfg{}))
}

// TestMaintenanceSurvivesPowerCuts folds some months of a few users, with seals, drops, late plays and
// deletions, and cuts the power at every write.
func TestMaintenanceSurvivesPowerCuts(t *testing.T) {
	s := exactSettings()
	s.Retention = 2
	s.Window = 2
	j := newTestLog(t, s, store.Options{})
	users := append(usersOfOneShard(4), "ann", "bob")
	months := 5
	if testing.Short() {
		months = 3
	}
	for m := range months {
		start := monthStart(2026, 5+m)
		for i, user := range users {
			j.advanceTo(start).add(newPlays(user, itemNumbers(10*m, 3)...)...)
			if m > 0 {
				j.add(newBackfills(start-day, user, fmt.Sprint("late", i))...)
			}
		}
		j.maintainAt(start + 2*day)
		j.maintainAt(start + 5*day)
		j.add(events.Event{Kind: events.Served, User: users[m], Items: itemNumbers(0, 9)})
		j.add(events.Event{Kind: events.UserDeleted, User: users[m]})
		j.maintainAt(start + 20*day)
	}

	defer j.close()
	counts := conformance.CheckCrashes(t, func() projections.Projection { return seen.New(s) }, j.envs,
		store.Bounds{BatchBytes: 1 << 10, FlushBytes: 2 << 10})
	t.Logf("%+v", counts)
}
