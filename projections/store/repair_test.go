package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// changeFiles changes the files of a closed store of a tally, and runs no compactions.
func changeFiles(t testing.TB, fs vfs.FS, change func(db *pebble.DB) error) {
	t.Helper()
	db, err := pebble.Open("data/tally/000001", &pebble.Options{
		FS: fs, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: silentLogger{}, DisableAutomaticCompactions: true,
		L0StopWritesThreshold: 1 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(change(db), db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// silentLogger is a logger of Pebble that logs nothing.
type silentLogger struct{}

func (silentLogger) Infof(string, ...any)              {}
func (silentLogger) Errorf(string, ...any)             {}
func (silentLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// repairAll repairs all rows that differ from want, and returns how many there were.
func repairAll(t testing.TB, s *store.Store, want conformance.Rows) (n int, err error) {
	err = s.Repair(t.Context(), func(_ events.Cursor, rows projections.Reader, m *store.Repair) error {
		wanted := map[string][]byte{}
		for _, r := range want {
			wanted[string(r.Key)] = r.Value
		}

		it := rows.Iter(nil, nil)
		for it.Next() {
			value, ok := wanted[string(it.Key())]
			delete(wanted, string(it.Key()))
			switch {
			case !store.Repairable(it.Key()) || ok && bytes.Equal(value, it.Value()):
			case ok:
				m.Set(it.Key(), value)
			default:
				m.Delete(it.Key())
			}
		}

		// Rows that are missing.
		for key, value := range wanted {
			m.Set([]byte(key), value)
		}
		n = m.Len()
		return it.Close()
	})
	return n, err
}

// damageRows damages six rows of a closed store.
func damageRows(t testing.TB, fs vfs.FS) {
	t.Helper()
	changeFiles(t, fs, func(db *pebble.DB) error {
		return errors.Join(
			db.Delete(tally.CountKey("ann"), nil),
			db.Set(tally.CountKey("bob"), make([]byte, 8), nil),
			db.Set(tally.CountKey("nobody"), []byte("?"), nil),
			db.Set([]byte{7}, []byte("no key"), nil),
			// The highest offset of a source.
			db.Delete([]byte("\xff\xff\x03"+string([]byte{byte(events.UserFollowed)})+"old"), nil),
			db.Set([]byte("\xff\xff\x05"), make([]byte, 8), nil),
		)
	})
}

// TestRepair checks that damaged rows are repaired in a store that continues to fold, and that the
// store forgets its copies of them in memory.
func TestRepair(t *testing.T) {
	envs := tally.History(13, 400)
	fs := vfs.NewMem()
	s := storetest.OpenTally(t, store.Options{FS: fs})
	conformance.Fold(t, s, envs[:200])
	conformance.Close(t, s)
	damageRows(t, fs)

	// Repair the store while an earlier view is open.
	s = storetest.OpenTally(t, store.Options{FS: fs})
	want := foldStraight(t, envs[:200])
	openBefore, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	before := s.Cursor()
	n, err := repairAll(t, s, want)
	if err != nil || n != 6 {
		t.Errorf("got %d repaired rows, error %v, want 6 and no error", n, err)
	}
	if now := s.Cursor(); now != before {
		t.Errorf("position after the repair: got %d, want %d as before", now.Seq, before.Seq)
	}
	if _, ok, _ := openBefore.Get(tally.CountKey("ann")); ok {
		t.Error("a view that was opened before the repair has the repaired row, want no row")
	}
	if err := openBefore.Close(); err != nil {
		t.Error(err)
	}

	conformance.RowsOf(t, s).MustEqual(t, want, "after the repair")

	// The repaired store continues to fold.
	conformance.Fold(t, s, envs[200:])
	conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "after another fold")
	if n, err = repairAll(t, s, foldStraight(t, envs)); n != 0 || err != nil {
		t.Errorf("second repair: got %d repaired rows, error %v, want none", n, err)
	}
}

// TestRepairReplacesRowsInMemory checks that the fold reads a repaired row again although it has a
// copy in memory, whether the copy or the row on disk was the wrong one.
func TestRepairReplacesRowsInMemory(t *testing.T) {
	envs := storetest.Envelopes(
		storetest.One(storetest.Follow("ann", "bob")),
		storetest.One(storetest.Follow("ann", "cid")),
		storetest.One(storetest.Follow("ann", "dan")),
		storetest.One(events.Event{Kind: events.Played, User: "ann", Item: "x", Backfill: true, Source: "old", Offset: 5}),
		storetest.One(events.Event{Kind: events.Played, User: "ann", Item: "x", Backfill: true, Source: "old", Offset: 6}),
		storetest.One(storetest.Follow("ann", "eve")),
		storetest.One(storetest.Follow("zoe", "eve")),
	)
	s := storetest.OpenTally(t, store.Options{})
	conformance.Fold(t, s, envs[:3])

	// The repairs set wrong counts and a wrong offset on purpose. What is folded next shows whether
	// the fold has read them.
	repair := func(heal func(m *store.Repair)) error {
		return s.Repair(t.Context(), func(_ events.Cursor, _ projections.Reader, m *store.Repair) error {
			heal(m)
			return nil
		})
	}
	if err := repair(func(m *store.Repair) {
		m.Set(tally.CountKey("ann"), []byte{0, 0, 0, 0, 0, 0, 0, 40})
		m.Set(tally.CountKey("zoe"), []byte{0, 0, 0, 0, 0, 0, 0, 40})
	}); err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, s, envs[3:4])
	if err := repair(func(m *store.Repair) {
		m.Set([]byte("\xff\xff\x03"+string([]byte{byte(events.Played)})+"old"), []byte{0, 0, 0, 0, 0, 0, 0, 9})
		m.Set([]byte("\xff\xff\x05"), []byte{0, 0, 0, 0, 0, 0, 0, 3})
	}); err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); st.Rejects != 3 {
		t.Errorf("got status with %d rejects, want 3", st.Rejects)
	}

	conformance.Fold(t, s, envs[4:])
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, user := range []string{"ann", "zoe"} {
		if count, _, err := v.Get(tally.CountKey(user)); err != nil || count[7] != 41 {
			t.Errorf("got count %v of %s, error %v, want 41 in the last byte", count, user, err)
		}
	}
	plays, _, err := v.Get([]byte("\xff\xff\x05"))
	if err != nil || plays[7] != 3 {
		t.Errorf("got row %v of rejects, error %v, want 3 in the last byte", plays, err)
	}
	for _, row := range rowsOfTag(t, v, 0xf2) {
		if row.Value[7] != 1 {
			t.Errorf("got the row %x, want 1 in the last byte, because a backfill below the highest offset is not counted", row.Value)
		}
	}
}

// rowsOfTag returns the rows with a tag, of which there must be some.
func rowsOfTag(t testing.TB, r projections.Reader, tag byte) (rows conformance.Rows) {
	t.Helper()
	it := r.Iter(nil, nil)
	for it.Next() {
		if it.Key()[2] == tag {
			rows = append(rows, conformance.Row{Key: append([]byte{}, it.Key()...), Value: append([]byte{}, it.Value()...)})
		}
	}
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	if len(rows) == 0 {
		t.Errorf("got no row with tag %#x, want at least one", tag)
	}
	return rows
}

// TestRepairThatFailsChangesNothing checks that a repair changes nothing if it writes a row that
// only the store may write, or returns an error.
func TestRepairThatFailsChangesNothing(t *testing.T) {
	fs := vfs.NewMem()
	s := storetest.OpenTally(t, store.Options{FS: fs})
	conformance.Fold(t, s, storetest.Follows(3))
	before := conformance.RowsOf(t, s)

	// Only the store may write these rows.
	for _, key := range []string{"\xff\xff\x00", "\xff\xff\x01", "\xff\xff\x02"} {
		err := s.Repair(t.Context(), func(_ events.Cursor, _ projections.Reader, m *store.Repair) error {
			m.Set(tally.CountKey("ann"), []byte{1})
			m.Set([]byte(key), []byte{1})
			return nil
		})
		if err == nil {
			t.Errorf("repair of row %x: got no error, want one", key)
		}
	}

	// The function of the repair fails.
	failed := errors.New("no")
	err := s.Repair(t.Context(), func(_ events.Cursor, _ projections.Reader, m *store.Repair) error {
		m.Set(tally.CountKey("ann"), []byte{1})
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("repair whose function fails: got error %v, want %v", err, failed)
	}

	conformance.RowsOf(t, s).MustEqual(t, before, "nothing may have changed")

	// A closed store and one that is only read cannot be repaired.
	conformance.Close(t, s)
	if err := s.Repair(t.Context(), nil); !errors.Is(err, projections.ErrClosed) {
		t.Errorf("repair of a closed store: got error %v, want %v", err, projections.ErrClosed)
	}
	s = storetest.OpenTally(t, store.Options{FS: fs, ReadOnly: true})
	if err := s.Repair(t.Context(), nil); !errors.Is(err, projections.ErrStopped) {
		t.Errorf("repair of a read-only store: got error %v, want %v", err, projections.ErrStopped)
	}
}

// TestCrashLeavesAllOrNothingOfRepair cuts the power at every write while a damaged store is
// repaired and then continues to fold. The crash must leave all changes of the repair, or none at
// the position before it.
func TestCrashLeavesAllOrNothingOfRepair(t *testing.T) {
	envs := tally.History(14, 60)
	disk := vfs.NewCrashableMem()
	s := storetest.OpenTally(t, store.Options{FS: disk})
	conformance.Fold(t, s, envs[:30])
	conformance.Close(t, s)
	damageRows(t, disk)
	s = storetest.OpenTally(t, store.Options{FS: disk})
	damaged := conformance.RowsOf(t, s)
	conformance.Close(t, s)

	// The rows after the first n envelopes.
	rowsAfter := map[int]conformance.Rows{}
	for n := 30; n <= 40; n++ {
		rowsAfter[n] = foldStraight(t, envs[:n])
	}

	cutCounts := map[string]int{}
	cuts := &powerCutInjector{t: t, disk: disk, random: rand.New(rand.NewPCG(1, 2)), check: func(crashed *vfs.MemFS) error {
		s, err := store.Open(store.Options{FS: crashed, Dir: "data", Projection: tally.New()})
		if err != nil {
			return err
		}
		defer s.Close()

		next := conformance.IndexAfter(envs, s.Cursor())
		rows, err := conformance.FlushedRows(s)
		if errors.Is(err, projections.ErrNotReady) { // the power was cut in the middle of an envelope
			if err := s.Fold(envs[next : next+1]); err != nil {
				return err
			}
			next++
			rows, err = conformance.FlushedRows(s)
		}

		switch {
		case err != nil:
			return err
		case next == 30 && rows.Diff(damaged) == "":
			cutCounts["before"]++
		case rows.Diff(rowsAfter[next]) == "":
			cutCounts["after"]++
		default:
			return errors.New("the rows are neither those before the repair nor those after it; compared with those before: " +
				rows.Diff(damaged))
		}
		return nil
	}}

	s = storetest.OpenTally(t, store.Options{FS: errorfs.Wrap(disk, cuts), Bounds: store.Bounds{FlushBytes: 8 << 10}})
	n, err := repairAll(t, s, rowsAfter[30])
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Fatal("got no repaired rows, want some")
	}
	conformance.Fold(t, s, envs[30:40])
	conformance.RowsOf(t, s)
	conformance.Close(t, s)

	t.Logf("power cuts before and after the repair: %v", cutCounts)
	if cutCounts["before"] == 0 || cutCounts["after"] == 0 {
		t.Errorf("got cuts %v, want some before and some after the repair", cutCounts)
	}
}

// powerCutInjector injects no errors. Before each write, it calls check with the disk as a power
// cut at that moment would leave it.
type powerCutInjector struct {
	t     testing.TB
	disk  *vfs.MemFS
	check func(*vfs.MemFS) error

	mu     sync.Mutex
	random *rand.Rand
	writes int
	failed bool
}

func (c *powerCutInjector) String() string { return "power cuts" }

func (c *powerCutInjector) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	for _, unsynced := range []int{0, 50} {
		crashed := c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: c.random})
		if err := c.check(crashed); err != nil && !c.failed {
			c.failed = true
			c.t.Errorf("power cut at write %d (%s): %v", c.writes, op.Path, err)
		}
	}
	return nil
}
