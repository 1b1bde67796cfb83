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

// neighbors are n users of one shard.
func neighbors(n int) (users []string) {
	for i := 0; len(users) < n; i++ {
		if user := "user" + strconv.Itoa(i); events.ShardOf(user) == 77 {
			users = append(users, user)
		}
	}
	return users
}

// TestSealingSurvivesCrashAtEachStep seals users in one event that takes several steps, and crashes
// at each: whatever is on disk then is sealed, the rest is open, none is both or neither, and after
// the event is folded again all is as if nothing had happened (I3).
func TestSealingSurvivesCrashAtEachStep(t *testing.T) {
	s := seen.DefaultSettings()
	const users = 36_000 // whose keys are some megabytes
	disk := vfs.NewCrashableMem()
	var crashes crashes
	opts := store.Options{
		FS: disk, Dir: "data", Bounds: store.Bounds{BatchBytes: 1, FlushBytes: 256 << 10},
	}
	j := journalOf(t, s, opts)
	j.at(monthStart(2026, 5))
	var evs []events.Event
	for i := range users {
		evs = append(evs, plays(fmt.Sprintf("%0*d-user", events.MaxIDBytes-5, i), numbers(i, 1+i%3)...)...)
	}
	j.add(evs...)
	j.tick(monthStart(2026, 6) - 1000)
	j.close()

	opts.Listener.Flushed = func(store.FlushInfo) { crashes.take(disk) }
	again := journalOf(t, s, opts)
	again.envs, again.seq, again.now = j.envs, j.seq, j.now
	again.tick(monthStart(2026, 6) + week + day)
	if err := again.store.Flush(); err != nil {
		t.Fatal(err)
	}
	want := conformance.RowsOf(t, again.store)
	if open, sealed := again.count(may2026, openRow), again.count(may2026, sealedRow); open != 0 || sealed != users {
		t.Fatalf("%d users are open, %d sealed", open, sealed)
	}
	again.rebuilt(t)
	again.close()

	opts.Listener.Flushed = nil
	inside := 0
	for i, fs := range crashes.disks {
		opts.FS, opts.Projection = fs, seen.New(s)
		store, err := store.Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := store.View(); errors.Is(err, projections.ErrNotReady) {
			inside++
		} else if err != nil {
			t.Fatal(err)
		} else if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		conformance.Fold(t, store, again.envs[conformance.IndexAfter(again.envs, store.Cursor()):])
		conformance.RowsOf(t, store).MustEqual(t, want, "crash %d of %d", i, len(crashes.disks))
		conformance.Close(t, store)
	}
	if inside < 2 {
		t.Errorf("%d of %d crashes were inside the event, want 2 and more", inside, len(crashes.disks))
	}
}

// crashes are disks as they would be after a crash.
type crashes struct {
	mu    sync.Mutex
	disks []*vfs.MemFS
}

func (c *crashes) take(disk *vfs.MemFS) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disks = append(c.disks, disk.CrashClone(vfs.CrashCloneCfg{}))
}

// TestMaintenanceSurvivesPowerCuts folds months of a few users under power cuts at every write:
// seals, drops, late plays and deletions.
func TestMaintenanceSurvivesPowerCuts(t *testing.T) {
	s := exact()
	s.Retention, s.Window = 2, 2
	j := journalOf(t, s, store.Options{})
	users := append(neighbors(4), "ann", "bob")
	months := 5
	if testing.Short() {
		months = 3
	}
	for m := range months {
		start := monthStart(2026, 5+m)
		for i, user := range users {
			j.at(start).add(plays(user, numbers(10*m, 3)...)...)
			if m > 0 {
				j.add(backfills(start-day, user, fmt.Sprint("late", i))...)
			}
		}
		j.tick(start + 2*day)
		j.tick(start + 5*day)
		j.add(events.Event{Kind: events.Served, User: users[m], Items: numbers(0, 9)})
		j.add(events.Event{Kind: events.UserDeleted, User: users[m]})
		j.tick(start + 20*day)
	}
	defer j.close()
	counts := conformance.CheckCrashes(t, func() projections.Projection { return seen.New(s) }, j.envs,
		store.Bounds{BatchBytes: 1 << 10, FlushBytes: 2 << 10})
	t.Logf("%+v", counts)
}
