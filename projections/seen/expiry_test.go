package seen_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// TestMonthIsKeptUntilNoWindowReachesIt checks that a month is kept whole as long as the longest
// window reaches it. In the week after that it must be dropped, one partition after the other, and
// other months must stay.
func TestMonthIsKeptUntilNoWindowReachesIt(t *testing.T) {
	const users = 2000
	j := newTestLog(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	for m := range 7 {
		j.advanceTo(monthStart(2026, 5+m)).add(newPlaysOfUsers(users, strconv.Itoa(m))...)
		if m == 2 {
			j.advanceTo(monthStart(2026, 7) + 20*day).add(newBackfills(monthStart(2026, 5), "user7", "99")...)
		}
		if m == 5 {
			// The last moment in which a window reaches May.
			j.maintainAt(monthStart(2026, 11) - 100)
			if n := j.countRows(may2026, sealedRow); n != users {
				t.Fatalf("got %d rows of a month that a window reaches, want all %d", n, users)
			}
			if unseen := j.findUnseen("user7", 6, "0", "99", "100"); len(unseen) != 1 || unseen[0] != 2 {
				t.Fatalf("at the last moment of the window: got the indexes %v of unseen items, want [2]", unseen)
			}
		}
	}

	// In the first week of November, May is dropped.
	before := users
	for d := events.Micros(1); d <= 8; d++ {
		j.maintainAt(monthStart(2026, 11) + d*day)
		left := j.countRowsByPartition(may2026)
		all := j.countRowsByPartition(may2026 + 1)
		n := 0
		for partition, rows := range left {
			if rows != all[partition] && partition != events.ShardOf("user7").Partition() {
				t.Fatalf("day %d: got %d of %d rows of partition %d, want all or none", d, rows, all[partition], partition)
			}
			n += rows
		}
		switch {
		case d <= 6 && (before-n < users/14 || before-n > users/4):
			t.Errorf("day %d: %d rows were dropped, want %d to %d", d, before-n, users/14, users/4)
		case d == 8 && n != 0:
			t.Errorf("got %d rows after a week, want none", n)
		}
		before = n
	}

	// The other months stay.
	for m := may2026 + 1; m <= may2026+6; m++ {
		if n := j.countRows(m, openRow) + j.countRows(m, sealedRow); n != users {
			t.Errorf("got %d rows of month %d, want all %d", n, m, users)
		}
	}
	if unseen := j.findUnseen("user7", 6, itemNumbers(0, 7)...); len(unseen) != 1 || unseen[0] != 0 {
		t.Errorf("got the indexes %v of unseen items, want only 0, the item of May", unseen)
	}
	j.checkRebuild(t)
}

// countRowsByPartition returns the number of rows of a month in each partition.
func (j *testLog) countRowsByPartition(month int) map[uint8]int {
	j.t.Helper()
	rows := map[uint8]int{}
	j.eachRow(func(key, _ []byte) {
		if int(key[0])<<8|int(key[1]) == month && (projections.Tag(key[2]) == openRow || projections.Tag(key[2]) == sealedRow) {
			rows[events.Shard(uint16(key[3])<<8|uint16(key[4])).Partition()]++
		}
	})
	return rows
}

// TestPlayOlderThanWindowLeavesNothing checks that a play that no window reaches when it arrives
// leaves no row.
func TestPlayOlderThanWindowLeavesNothing(t *testing.T) {
	for _, retention := range []int{1, 2, 6} {
		s := seen.DefaultSettings()
		s.Retention = retention
		s.Window = min(retention, 4)
		j := newTestLog(t, s, store.Options{})
		j.maintainAt(monthStart(2026, 10) + day)
		count := func() (n int) {
			j.eachRow(func(_, _ []byte) { n++ })
			return n
		}
		before := count()

		// The oldest month begins at oldest. Earlier plays leave nothing.
		oldest := monthStart(2026, 11-retention)
		j.add(newBackfills(0, "ann", itemNumbers(0, 100)...)...)
		j.add(newBackfills(oldest-200, "ann", itemNumbers(0, 100)...)...)
		if n := count() - before; n != 0 {
			t.Errorf("retention %d: got %d rows for plays that no window reaches, want none", retention, n)
		}

		j.add(newBackfills(oldest, "ann", "7")...)
		if n := count() - before; n != 2 {
			t.Errorf("retention %d: got %d rows for a play of the oldest month, want 2: the play and the plan", retention, n)
		}
		if unseen := j.findUnseen("ann", retention, "7"); len(unseen) != 0 {
			t.Errorf("retention %d: got the indexes %v of unseen items of the oldest month, want none", retention, unseen)
		}
		j.close()
	}
}

// TestDroppedMonthFreesDiskSpace checks that a large month takes almost no space on disk once it
// was dropped.
func TestDroppedMonthFreesDiskSpace(t *testing.T) {
	dir := t.TempDir()
	compacted := make(chan struct{}, 1)
	opts := store.Options{Dir: dir, Listener: store.Listener{Compacted: func(store.FlushInfo) {
		select {
		case compacted <- struct{}{}:
		default:
		}
	}}}

	s := seen.DefaultSettings()
	j := newTestLog(t, s, opts)
	r := rand.New(rand.NewPCG(1, 1))

	// Fold 300,000 plays, and seal them.
	j.advanceTo(monthStart(2026, 5))
	for range 20 {
		var evs []events.Event
		for range 15_000 {
			evs = append(evs, newPlays(fmt.Sprint("user", r.IntN(3000)), strconv.FormatUint(r.Uint64N(1<<40), 10))...)
		}
		j.add(evs...)
	}

	j.maintainAt(monthStart(2026, 6) + 2*week)
	j.close()
	before := diskSize(t, dir)

	// Half a year later, the month is dropped.
	again := newTestLog(t, s, opts)
	again.seq = j.seq
	again.now = j.now
	defer again.close()
	for d := range events.Micros(9) {
		again.maintainAt(monthStart(2026, 11) + d*day)
		if err := again.store.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if n := again.countRows(may2026, sealedRow); n != 0 {
		t.Fatalf("got %d rows of the dropped month, want none", n)
	}

	// Wait until its files are removed, some time after the compaction. Pebble searches for tables
	// that it can drop when it flushes, and the store of a running service flushes again and again.
	deadline := time.NewTimer(5 * time.Minute)
	poll := time.NewTicker(20 * time.Millisecond)
	defer deadline.Stop()
	defer poll.Stop()
	for diskSize(t, dir) > before/10 {
		select {
		case <-compacted:
		case <-poll.C:
			again.maintainAt(again.now + day/1440) // a minute later
			if err := again.store.Flush(); err != nil {
				t.Fatal(err)
			}
		case <-deadline.C:
			t.Fatalf("got %d bytes after the month was dropped, want at most a tenth of %d", diskSize(t, dir), before)
		}
	}
	t.Logf("%d bytes, %d after the month was dropped", before, diskSize(t, dir))
}

// diskSize returns the size of the tables in a directory. Files may be removed while it runs.
func diskSize(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(d.Name()) != ".sst" {
			return nil //nolint:nilerr // the file was removed
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return size
}
