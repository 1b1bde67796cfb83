package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// The tests in this file cut no power: the store under test folds on undisturbed. Before each write of the store to its
// in-memory file system, a crashChecker copies the file system as a power cut at that moment would leave it, opens a
// second store on the copy, and checks that store.

// The suite checks the crashes during the first crashTestEnvelopes envelopes of a history, or crashTestEnvelopesShort
// in short mode. Each envelope causes several writes, and each write two recoveries.
const (
	crashTestEnvelopes      = 60
	crashTestEnvelopesShort = 15
)

// envelopesPerFlush is the number of envelopes between two explicit flushes. It is less than crashTestEnvelopesShort,
// so that also in short mode there are crashes after a flush.
const envelopesPerFlush = 12

// firstCrashStep makes [CheckCrashesDuringRecovery] continue from every seventh crash, because continuing from all takes
// too long. The step must be odd: crashes come in pairs, one for each of survivingPercents, and an even step would
// always take the same one of the pair.
const firstCrashStep = 7

// survivingPercents are the chances, in percent, that a block or a directory entry that was not synced survives a
// crash. 0 loses everything that was not synced; 50 also tears files and directories.
var survivingPercents = [...]int{0, 50}

func testCrashes(t *testing.T, c Case, h History) {
	n := crashTestEnvelopes
	if testing.Short() {
		n = crashTestEnvelopesShort
	}
	envs := h.Envelopes[:min(n, len(h.Envelopes))]

	// How many crashes fall inside an envelope is only logged: it depends on the projection, and on how many memtables
	// Pebble's goroutine flushes at once.
	counts := CheckCrashes(t, c.New, envs, flushOften)
	t.Logf("%+v", counts)
}

// CrashCounts counts the writes and the recovered stores of [CheckCrashes].
type CrashCounts struct {
	// Writes is the number of operations that change the file system, syncs and closes of files included.
	Writes int
	// EmptyStores is the number of crashes after which the store had no whole envelope.
	EmptyStores int
	// PartialEnvelopes is the number of crashes after which the store had folded a part of an envelope.
	PartialEnvelopes int
}

// CheckCrashes folds the envelopes into a new store and checks what a crash before any of its writes would leave. The
// recovered store must have every envelope that was flushed, and exactly the rows of a fold of the envelopes up to its
// cursor. After it has folded the remaining envelopes, it must have the rows of all envelopes.
func CheckCrashes(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds,
) CrashCounts {
	t.Helper()
	checker := newCrashChecker(t, newProjection, envs, bounds, 5)
	checker.handleCrash = checker.checkRecovery
	checker.foldRemaining(crash{disk: vfs.NewCrashableMem()})

	// The first write creates the directory of the store, so a crash before it leaves nothing.
	if checker.counts.EmptyStores == 0 {
		t.Errorf("expected a crash that leaves an empty store, got %+v", checker.counts)
	}
	return checker.counts
}

// CheckCrashesDuringRecovery checks crashes during the recovery from a crash. It first folds the envelopes and collects the
// crashes without checking them. Then it continues the fold from every firstCrashStep-th of them, and checks each write
// of these folds as [CheckCrashes] does.
func CheckCrashesDuringRecovery(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds,
) {
	t.Helper()
	checker := newCrashChecker(t, newProjection, envs, bounds, 7)

	var firstCrashes []crash
	checker.handleCrash = func(c crash) error {
		firstCrashes = append(firstCrashes, c)
		return nil
	}
	checker.foldRemaining(crash{disk: vfs.NewCrashableMem()})

	checker.handleCrash = checker.checkRecovery
	for i := 0; i < len(firstCrashes); i += firstCrashStep {
		checker.foldRemaining(firstCrashes[i])
	}
}

// crash is what a power cut leaves.
type crash struct {
	disk *vfs.MemFS
	// flushedSeq is the sequence of the last envelope that was flushed before the crash; 0 means none.
	flushedSeq uint64
}

// crashChecker is an [errorfs.Injector] that injects no error. It uses the call before each operation to copy the disk.
type crashChecker struct {
	t             *testing.T
	newProjection func() projections.Projection
	envs          []*events.Envelope
	bounds        store.Bounds
	// rowsAfter has at index n the rows of a fold of the first n envelopes.
	rowsAfter []Rows
	// handleCrash is called with each crash while mu is held. It runs on Pebble's goroutines too, so it must return an
	// error instead of ending the test.
	handleCrash func(crash) error

	// mu guards the following fields, because Pebble also writes from goroutines of its own.
	mu sync.Mutex
	// current is the disk of the running fold, and what was flushed to it.
	current crash
	random  *rand.Rand
	counts  CrashCounts
	// failed is true after a crash could not be handled. The checker then ignores the other writes of the fold, which
	// would fail in the same way.
	failed bool
}

// newCrashChecker returns a checker without handleCrash. The seed decides what survives the crashes.
func newCrashChecker(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds, seed uint64,
) *crashChecker {
	t.Helper()
	return &crashChecker{
		t: t, newProjection: newProjection, envs: envs, bounds: bounds,
		rowsAfter: rowsAfterEach(t, newProjection(), envs),
		random:    rand.New(rand.NewPCG(seed, seed+1)),
	}
}

// rowsAfterEach returns the rows before the first envelope, followed by the rows after each envelope.
func rowsAfterEach(t *testing.T, p projections.Projection, envs []*events.Envelope) []Rows {
	t.Helper()
	s := Open(t, vfs.NewMem(), p, store.Bounds{})
	rows := []Rows{RowsOf(t, s)}
	for i := range envs {
		Fold(t, s, envs[i:i+1])
		rows = append(rows, RowsOf(t, s))
	}
	Close(t, s)
	return rows
}

// foldRemaining opens a store on the disk, folds the envelopes that the store does not have, and closes it. It ends the
// test if a crash on the way could not be handled.
func (c *crashChecker) foldRemaining(start crash) {
	c.t.Helper()
	c.current = start
	writesBefore := c.counts.Writes

	s := Open(c.t, errorfs.Wrap(start.disk, c), c.newProjection(), c.bounds)
	remaining := c.envs[IndexAfter(c.envs, s.Cursor()):]
	for i := range remaining {
		Fold(c.t, s, remaining[i:i+1])

		if (i+1)%envelopesPerFlush == 0 {
			if err := s.Flush(); err != nil {
				c.t.Fatal(err)
			}
			c.setFlushed(remaining[i].Seq())
		}
	}
	Close(c.t, s)

	// No goroutine of Pebble is left that could need the lock, so it is held to the end.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed {
		c.t.FailNow()
	}
	if c.counts.Writes == writesBefore {
		c.t.Fatal("the store wrote nothing, so no crash was checked")
	}
}

// setFlushed records that every crash from now on must keep the envelopes up to seq.
func (c *crashChecker) setFlushed(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current.flushedSeq = seq
}

// String names the injector in messages of errorfs.
func (c *crashChecker) String() string { return "crash checker" }

// MaybeError is called before each operation of the file system. It handles the crashes before a write and returns nil.
func (c *crashChecker) MaybeError(op errorfs.Op) error {
	// A read changes nothing, so a crash before it leaves the same as one before the next write.
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed {
		return nil
	}
	c.counts.Writes++

	for _, percent := range survivingPercents {
		disk := c.current.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: c.random})
		if err := c.handleCrash(crash{disk: disk, flushedSeq: c.current.flushedSeq}); err != nil {
			c.failed = true
			c.t.Errorf("crash before write %d (%s), %d %% of the unsynced data survives: %v",
				c.counts.Writes, op.Path, percent, err)
			return nil
		}
	}
	return nil
}

// checkRecovery checks the store on the disk of a crash, as described at [CheckCrashes].
func (c *crashChecker) checkRecovery(crashed crash) (err error) {
	s, err := store.Open(store.Options{
		FS: crashed.disk, Dir: dataDir, Projection: c.newProjection(), Bounds: c.bounds,
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	// A flush promises that its envelopes survive.
	cursor := s.Cursor()
	if cursor.Seq < crashed.flushedSeq {
		return fmt.Errorf("the store lost flushed envelopes: expected sequence %d or later, got %d",
			crashed.flushedSeq, cursor.Seq)
	}
	folded := IndexAfter(c.envs, cursor)
	if folded == 0 {
		c.counts.EmptyStores++
	}

	// A store that has a part of the next envelope shows no rows until the rest of that envelope is folded.
	rows, err := readRows(s)
	if errors.Is(err, projections.ErrNotReady) {
		c.counts.PartialEnvelopes++
		if folded == len(c.envs) {
			return fmt.Errorf("the store has all %d envelopes, but is in the middle of another one: %w", folded, err)
		}
		if err := s.Fold(c.envs[folded : folded+1]); err != nil {
			return fmt.Errorf("finish envelope %d: %w", c.envs[folded].Seq(), err)
		}
		folded++
		rows, err = FlushedRows(s)
	}
	if err != nil {
		return fmt.Errorf("rows after the recovery: %w", err)
	}
	if diff := rows.Diff(c.rowsAfter[folded]); diff != "" {
		return fmt.Errorf("the rows are not those of the first %d envelopes:\n%s", folded, diff)
	}

	// The fold continues where the crash interrupted it.
	if err := s.Fold(c.envs[folded:]); err != nil {
		return fmt.Errorf("fold the envelopes from index %d: %w", folded, err)
	}
	rows, err = FlushedRows(s)
	if err != nil {
		return fmt.Errorf("rows after the fold of the other envelopes: %w", err)
	}
	if diff := rows.Diff(c.rowsAfter[len(c.envs)]); diff != "" {
		return fmt.Errorf("the rows are not those of all envelopes after a fold from index %d:\n%s", folded, diff)
	}
	return nil
}
