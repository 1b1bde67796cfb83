// Package conformance is the suite of tests that every projection must pass to be a pure fold of
// the log. It runs for the list of all projections, so a projection that is added to the list has
// these tests at once.
//
//	cuts           however the log is divided into batches, and with any bounds, the rows are the same (I3, I4)
//	redelivery     envelopes that are delivered again, and stops and starts in between, change nothing (I3)
//	crashes        a crash before any write leaves the rows of the first envelopes, including all that were flushed (I3)
//	reads          a read that fails while rows are folded, built or copied causes an error, or changes no row (I11)
//	rebuild        a second generation, folded in one call, has the same rows as the first (I4)
//	build          a build makes the same rows as a fold, also for some partitions only (I13)
//	partitions     a fold for some partitions makes the rows that these have in a fold for all (I13)
//	routes         an event only changes rows of partitions to which it is delivered (I13)
//	keys           every key has a tag of the projection, and the shard of the id that it is about
//	golden         the rows of a fixed history are those that earlier versions wrote
//
// A test that fails prints rows in hexadecimal digits.
package conformance

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// History is a log from its first envelope on.
type History struct {
	Name      string
	Envelopes []*events.Envelope
}

// Case is a projection under test.
type Case struct {
	// New returns a new instance of the projection, which shares no memory with earlier ones.
	New func() projections.Projection
	// Tags are the tags of its keys.
	Tags TagRange
	// Histories are the logs that the tests fold, each for itself.
	Histories []History
	// Golden is the file with the rows of the history Pinned. If it is empty, these rows are not
	// compared.
	Golden string
	// Pinned is the index of a history in Histories.
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
	// A single history may make no rows of the projection. All histories together must.
	t.Run("keys", func(t *testing.T) { CheckKeys(t, c, rows) })
	if c.Golden != "" {
		t.Run("golden", func(t *testing.T) {
			CheckGolden(t, c.Golden, Straight(t, c.New(), c.Histories[c.Pinned].Envelopes))
		})
	}
}

// Bounds that several tests use.
var (
	// commitEveryStep makes the fold commit after every step and every event.
	commitEveryStep = store.Bounds{BatchBytes: 1}
	// flushOften makes memtables so small that Pebble flushes often, also in the middle of an
	// event.
	flushOften = store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10}
	// keepFewRows makes the fold keep only a few rows in memory.
	keepFewRows = store.Bounds{BatchBytes: 1 << 10, KeepBytes: 2 << 10}
)

// allBounds has bounds with which a store divides the same log into very different commits.
var allBounds = map[string]store.Bounds{
	"default": {},
	"steps":   commitEveryStep,
	"flushes": flushOften,
	"forgets": keepFewRows,
	// Most batches are larger than a memtable.
	"large": {BatchBytes: 64 << 10, FlushBytes: 8 << 10},
}

// dataDir is the directory of a store under test. Each store has a file system of its own.
const dataDir = "data"

// Open opens a store of a projection in the directory "data" of the file system. The test fails if
// there is an error.
func Open(t testing.TB, fs store.FS, p projections.Projection, bounds store.Bounds) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{FS: fs, Dir: dataDir, Projection: p, Bounds: bounds})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Straight folds all envelopes in one call, in memory, and returns the rows.
func Straight(t testing.TB, p projections.Projection, envs []*events.Envelope) Rows {
	t.Helper()
	s := Open(t, vfs.NewMem(), p, store.Bounds{})
	Fold(t, s, envs)
	rows := RowsOf(t, s)
	Close(t, s)
	return rows
}

// StraightOf is [Straight] for a set of partitions. nil means all.
func StraightOf(t testing.TB, p projections.Projection, held *events.Partitions, envs []*events.Envelope) Rows {
	t.Helper()
	return foldPartitions(t, p, envs, store.Bounds{}, held)
}

// Fold folds envelopes. The test fails if there is an error.
func Fold(t testing.TB, s *store.Store, envs []*events.Envelope) {
	t.Helper()
	if err := s.Fold(envs); err != nil {
		t.Fatal(err)
	}
}

// Close closes a store. The test fails if there is an error.
func Close(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// testCuts folds a history in calls of random length, with all bounds.
func testCuts(t *testing.T, c Case, h History, straight Rows) {
	r := rand.New(rand.NewPCG(1, 2))
	maxLengths := []int{1, 2, 7, len(h.Envelopes)}
	if testing.Short() {
		maxLengths = []int{1, 7, len(h.Envelopes)}
	}
	for name, bounds := range allBounds {
		for _, maxLength := range maxLengths {
			s := Open(t, vfs.NewMem(), c.New(), bounds)
			for rest := h.Envelopes; len(rest) > 0; {
				n := min(1+r.IntN(maxLength), len(rest))
				Fold(t, s, rest[:n])
				rest = rest[n:]
			}
			RowsOf(t, s).MustEqual(t, straight, "bounds %s, up to %d envelopes at a time", name, maxLength)
			Close(t, s)
		}
	}
}

// testRedelivery folds a history, and at random delivers envelopes again, closes and opens the
// store, or lets it crash.
func testRedelivery(t *testing.T, c Case, h History, straight Rows) {
	r := rand.New(rand.NewPCG(3, 4))

	// Most of the time of the suite is that of opening stores here.
	maxLength := 5
	if testing.Short() {
		maxLength = 15
	}
	for name, bounds := range allBounds {
		fs := vfs.NewCrashableMem()
		s := Open(t, fs, c.New(), bounds)
		for next := 0; next < len(h.Envelopes); {
			n := min(1+r.IntN(maxLength), len(h.Envelopes)-next)
			Fold(t, s, h.Envelopes[next:next+n])
			next += n

			switch r.IntN(6) {
			case 0: // deliver some again
				next = max(0, next-r.IntN(8))
			case 1:
				Close(t, s)
				s = Open(t, fs, c.New(), bounds)
			case 2: // crash, and continue from the position of the store
				crashed := fs.CrashClone(vfs.CrashCloneCfg{})
				Close(t, s)
				fs = crashed
				s = Open(t, fs, c.New(), bounds)
				next = IndexAfter(h.Envelopes, s.Cursor())
			}
		}
		RowsOf(t, s).MustEqual(t, straight, "bounds %s", name)
		Close(t, s)
	}
}

// IndexAfter returns the index of the first envelope after the cursor, or len(envs) if there is
// none.
func IndexAfter(envs []*events.Envelope, c events.Cursor) int {
	for i, env := range envs {
		if env.Seq() > c.Seq {
			return i
		}
	}
	return len(envs)
}

// testRebuild folds a history into two generations: envelope by envelope, and in one call.
func testRebuild(t *testing.T, c Case, h History, straight Rows) {
	fs := vfs.NewMem()
	foldGeneration := func(generation uint32, each int) Rows {
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
	foldGeneration(1, 1).MustEqual(t, straight, "the live generation")
	foldGeneration(2, len(h.Envelopes)).MustEqual(t, straight, "the rebuilt generation")
}
