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

// TestMonthIsKeptUntilNoWindowReachesIt: a month is kept whole as long as the longest window
// reaches it. In the week after that it is dropped, partition by partition, and the others are left
// alone.
func TestMonthIsKeptUntilNoWindowReachesIt(t *testing.T) {
	const users = 2000
	j := journalOf(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	for m := range 7 {
		j.at(monthStart(2026, 5+m)).add(crowd(users, strconv.Itoa(m))...)
		if m == 2 {
			j.at(monthStart(2026, 7) + 20*day).add(backfills(monthStart(2026, 5), "user7", "99")...)
		}
		if m == 5 {
			// The last moment in which a window reaches May.
			j.tick(monthStart(2026, 11) - 100)
			if n := j.count(may2026, sealedRow); n != users {
				t.Fatalf("%d of %d users are left of a month that a window reaches", n, users)
			}
			if unseen := j.ask("user7", 6, "0", "99", "100"); len(unseen) != 1 || unseen[0] != 2 {
				t.Fatalf("%v are unseen at the last moment of the window", unseen)
			}
		}
	}
	before := users
	for d := events.Micros(1); d <= 8; d++ {
		j.tick(monthStart(2026, 11) + d*day)
		left, all := j.partitions(may2026), j.partitions(may2026+1)
		n := 0
		for partition, rows := range left {
			if rows != all[partition] && partition != events.ShardOf("user7").Partition() {
				t.Fatalf("day %d: partition %d is dropped in part", d, partition)
			}
			n += rows
		}
		switch {
		case d <= 6 && (before-n < users/14 || before-n > users/4):
			t.Errorf("day %d: %d rows are dropped of %d", d, before-n, users)
		case d == 8 && n != 0:
			t.Errorf("%d rows are left after a week", n)
		}
		before = n
	}
	for m := may2026 + 1; m <= may2026+6; m++ {
		if n := j.count(m, openRow) + j.count(m, sealedRow); n != users {
			t.Errorf("%d of %d rows are left of month %d", n, users, m)
		}
	}
	if unseen := j.ask("user7", 6, numbers(0, 7)...); len(unseen) != 1 || unseen[0] != 0 {
		t.Errorf("%v are unseen", unseen)
	}
	j.rebuilt(t)
}

// partitions counts the rows of a month by partition.
func (j *journal) partitions(month int) map[uint8]int {
	j.t.Helper()
	rows := map[uint8]int{}
	j.rows(func(key, _ []byte) {
		if int(key[0])<<8|int(key[1]) == month && (projections.Tag(key[2]) == openRow || projections.Tag(key[2]) == sealedRow) {
			rows[events.Shard(uint16(key[3])<<8|uint16(key[4])).Partition()]++
		}
	})
	return rows
}

// TestPlayOlderThanWindowLeavesNothing: a play that no window reaches any more when it comes leaves
// nothing.
func TestPlayOlderThanWindowLeavesNothing(t *testing.T) {
	for _, retention := range []int{1, 2, 6} {
		s := seen.DefaultSettings()
		s.Retention, s.Window = retention, min(retention, 4)
		j := journalOf(t, s, store.Options{})
		j.tick(monthStart(2026, 10) + day)
		count := func() (n int) {
			j.rows(func(_, _ []byte) { n++ })
			return n
		}
		before := count()
		oldest := monthStart(2026, 11-retention)
		j.add(backfills(0, "ann", numbers(0, 100)...)...)
		j.add(backfills(oldest-200, "ann", numbers(0, 100)...)...)
		if n := count() - before; n != 0 {
			t.Errorf("retention %d: %d rows for plays that no window reaches", retention, n)
		}
		j.add(backfills(oldest, "ann", "7")...)
		if n := count() - before; n != 2 {
			t.Errorf("retention %d: %d rows for a play that the longest window reaches, and for the plan", retention, n)
		}
		if unseen := j.ask("ann", retention, "7"); len(unseen) != 0 {
			t.Errorf("retention %d: a play of the oldest month is unseen", retention)
		}
		j.close()
	}
}

// TestDroppedMonthFreesDiskSpace: a large month takes next to no space on disk once it was dropped.
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
	j := journalOf(t, s, opts)
	r := rand.New(rand.NewPCG(1, 1))
	j.at(monthStart(2026, 5))
	for range 20 {
		var evs []events.Event
		for range 15_000 {
			evs = append(evs, plays(fmt.Sprint("user", r.IntN(3000)), strconv.FormatUint(r.Uint64N(1<<40), 10))...)
		}
		j.add(evs...)
	}
	j.tick(monthStart(2026, 6) + 2*week)
	j.close()
	before := diskSize(t, dir)
	again := journalOf(t, s, opts)
	again.seq, again.now = j.seq, j.now
	defer again.close()
	for d := range events.Micros(9) {
		again.tick(monthStart(2026, 11) + d*day)
		if err := again.store.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if n := again.count(may2026, sealedRow); n != 0 {
		t.Fatalf("%d rows are left", n)
	}
	deadline, look := time.NewTimer(5*time.Minute), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer look.Stop()
	for diskSize(t, dir) > before/10 {
		select {
		case <-compacted:
		case <-look.C:
			// Files are removed some time after the compaction. Pebble looks for tables that it can
			// drop when it flushes, and the store of a running service always does so again.
			again.tick(again.now + day/1440) // a minute later
			if err := again.store.Flush(); err != nil {
				t.Fatal(err)
			}
		case <-deadline.C:
			t.Fatalf("%d bytes are left of %d", diskSize(t, dir), before)
		}
	}
	t.Logf("%d bytes, %d after the month was dropped", before, diskSize(t, dir))
}

// diskSize is the size of the tables in a directory. Files may vanish while it looks.
func diskSize(t *testing.T, dir string) (size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(d.Name()) != ".sst" {
			return nil //nolint:nilerr // it has vanished
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
