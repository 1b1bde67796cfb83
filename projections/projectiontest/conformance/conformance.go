// Package conformance is the suite of tests that every projection must pass to be a pure fold of the log. It runs over
// the list of all projections, so a projection that is added to the list has these tests at once.
//
//	cuts        any cut of the log into batches gives the same rows, whatever the bounds (I3, I4)
//	redelivery  what is delivered again, and any stop and start between, changes nothing (I3)
//	crashes     what a crash before any write leaves is a fold of the first envelopes, all flushed ones included (I3)
//	reads       a read that fails while rows are folded, built or copied is an error, or changes no row (I11)
//	rebuild     a second generation, built in one go, has the rows of the first (I4)
//	partitions  a fold for some partitions leaves their rows of the fold for all (I13)
//	routes      an event changes rows of those homes alone to which it is delivered (I13)
//	keys        every key stands in the projection's own range of tags, under the shard of what it is about
//	golden      the rows of a fixed history are those that earlier versions wrote
//
// A test that fails names rows, as hexadecimal digits.
package conformance

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// History is a log from its start.
type History struct {
	Name      string
	Envelopes []*events.Envelope
}

// Case is a projection under test.
type Case struct {
	// New returns a projection that shares nothing with those before.
	New func() projections.Projection
	// Tags are those of its keys.
	Tags TagRange
	// Histories are folded one by one.
	Histories []History
	// Golden is the file with the rows of the history Pinned; empty means none.
	Golden string
	// Pinned is an index into Histories.
	Pinned int
}

// Run runs the whole suite.
func Run(t *testing.T, c Case) {
	var rows Rows
	for _, h := range c.Histories {
		t.Run(h.Name, func(t *testing.T) {
			straight := Straight(t, c.New(), h.Envelopes)
			rows = append(rows, straight...)
			t.Run("cuts", func(t *testing.T) { testCuts(t, c, h, straight) })
			t.Run("redelivery", func(t *testing.T) { testRedelivery(t, c, h, straight) })
			t.Run("rebuild", func(t *testing.T) { testRebuild(t, c, h, straight) })
			t.Run("partitions", func(t *testing.T) { testPartitions(t, c, h, straight) })
			t.Run("routes", func(t *testing.T) { testRoutes(t, c, h) })
			t.Run("build", func(t *testing.T) { testBuild(t, c, h, straight) })
			t.Run("build of some", func(t *testing.T) { testBuildOfSome(t, c, h) })
			t.Run("crashes", func(t *testing.T) { testCrashes(t, c, h) })
		})
	}
	t.Run("reads", func(t *testing.T) { testReadFailures(t, c, c.Histories[c.Pinned]) })
	// One history may leave no rows of a projection, all of them leave some.
	t.Run("keys", func(t *testing.T) { CheckKeys(t, c, rows) })
	if c.Golden != "" {
		t.Run("golden", func(t *testing.T) {
			CheckGolden(t, c.Golden, Straight(t, c.New(), c.Histories[c.Pinned].Envelopes))
		})
	}
}

// Bounds that tests also use on their own.
var (
	// commitEveryStep makes every step and every event a commit.
	commitEveryStep = store.Bounds{BatchBytes: 1}
	// flushOften makes memtables so small that Pebble flushes them all the time, also in the middle of an event.
	flushOften = store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10}
	// keepFewRows keeps hardly any row in memory.
	keepFewRows = store.Bounds{BatchBytes: 1 << 10, KeepBytes: 2 << 10}
)

// allBounds are bounds under which a store commits the same log in very different pieces.
var allBounds = map[string]store.Bounds{
	"default": {},
	"steps":   commitEveryStep,
	"flushes": flushOften,
	"forgets": keepFewRows,
	// Most batches are larger than a memtable.
	"large": {BatchBytes: 64 << 10, FlushBytes: 8 << 10},
}

// dataDir is the directory of the stores under test in their file system. Each has a file system of its own.
const dataDir = "data"

// Open opens a store of a projection on the file system, in the directory "data". It ends the test on an error.
func Open(t testing.TB, fs store.FS, p projections.Projection, bounds store.Bounds) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{FS: fs, Dir: dataDir, Projection: p, Bounds: bounds})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Straight returns the rows of a fold in one call, in memory.
func Straight(t testing.TB, p projections.Projection, envs []*events.Envelope) Rows {
	t.Helper()
	s := Open(t, vfs.NewMem(), p, store.Bounds{})
	Fold(t, s, envs)
	rows := RowsOf(t, s)
	Close(t, s)
	return rows
}

// StraightOf is Straight for a set of partitions; nil means all.
func StraightOf(t testing.TB, p projections.Projection, held *events.Partitions, envs []*events.Envelope) Rows {
	t.Helper()
	return fold(t, p, envs, store.Bounds{}, held)
}

// Fold folds envelopes, which must go well.
func Fold(t testing.TB, s *store.Store, envs []*events.Envelope) {
	t.Helper()
	if err := s.Fold(envs); err != nil {
		t.Fatal(err)
	}
}

// Close closes a store, which must go well.
func Close(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func testCuts(t *testing.T, c Case, h History, straight Rows) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, bounds := range allBounds {
		for _, most := range []int{1, 2, 7, len(h.Envelopes)} {
			s := Open(t, vfs.NewMem(), c.New(), bounds)
			for rest := h.Envelopes; len(rest) > 0; {
				n := min(1+r.IntN(most), len(rest))
				Fold(t, s, rest[:n])
				rest = rest[n:]
			}
			RowsOf(t, s).MustEqual(t, straight, "bounds %s, up to %d envelopes at a time", name, most)
			Close(t, s)
		}
	}
}

// testRedelivery folds with repetitions, and stops and starts the store in between, at times by a crash.
func testRedelivery(t *testing.T, c Case, h History, straight Rows) {
	r := rand.New(rand.NewPCG(3, 4))
	for name, bounds := range allBounds {
		fs := vfs.NewCrashableMem()
		s := Open(t, fs, c.New(), bounds)
		for at := 0; at < len(h.Envelopes); {
			n := min(1+r.IntN(5), len(h.Envelopes)-at)
			Fold(t, s, h.Envelopes[at:at+n])
			at += n
			switch r.IntN(6) {
			case 0: // deliver some again
				at = max(0, at-r.IntN(8))
			case 1:
				Close(t, s)
				s = Open(t, fs, c.New(), bounds)
			case 2: // crash, and continue from the position of the store
				crashed := fs.CrashClone(vfs.CrashCloneCfg{})
				Close(t, s)
				fs = crashed
				s = Open(t, fs, c.New(), bounds)
				at = IndexAfter(h.Envelopes, s.Cursor())
			}
		}
		RowsOf(t, s).MustEqual(t, straight, "bounds %s", name)
		Close(t, s)
	}
}

// IndexAfter returns the index of the first envelope after the cursor, or len(envs) if there is none.
func IndexAfter(envs []*events.Envelope, c events.Cursor) int {
	for i, env := range envs {
		if env.Seq() > c.Seq {
			return i
		}
	}
	return len(envs)
}

func testRebuild(t *testing.T, c Case, h History, straight Rows) {
	fs := vfs.NewMem()
	build := func(generation uint32, each int) Rows {
		s, err := store.Open(store.Options{FS: fs, Dir: dataDir, Projection: c.New(), Generation: generation})
		if err != nil {
			t.Fatal(err)
		}
		defer Close(t, s)
		for rest := h.Envelopes; len(rest) > 0; rest = rest[min(each, len(rest)):] {
			Fold(t, s, rest[:min(each, len(rest))])
		}
		return RowsOf(t, s)
	}
	build(1, 1).MustEqual(t, straight, "the live generation")
	build(2, len(h.Envelopes)).MustEqual(t, straight, "the rebuilt generation")
}
