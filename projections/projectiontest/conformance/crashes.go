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

// A crash test folds envelopes into a store on an in-memory file system and never interrupts it.
// Before each write of the store, and after the last one, a crashChecker copies the file system as
// a power cut at that moment could leave it. Such a copy is a crash image. The checker opens
// another store on each image and checks the rows of that store.

// The suite uses only the first crashTestEnvelopes envelopes of a history, or
// crashTestEnvelopesShort in short mode, because the tests are slow: an envelope causes several
// writes, and the checker opens two stores for each write.
const (
	crashTestEnvelopes      = 60
	crashTestEnvelopesShort = 15
)

// envelopesPerFlush is how many envelopes a crash test folds before it calls Flush of the store. It
// is less than crashTestEnvelopesShort. With small bounds, the store also starts flushes itself.
const envelopesPerFlush = 12

// survivalChances has a chance, in percent, for each of the two images of a power cut. Each block
// and each directory entry that was not synced survives with this chance. With 0, only synced data
// survives.
var survivalChances = [...]int{0, 50}

// continuedImageStep makes [CheckCrashesDuringRecovery] continue the fold from one in so many
// images, because continuing from all takes too long. It is odd, because an even step would find
// the same survival chance in all of these images.
const continuedImageStep = 7

// testCrashes runs [CheckCrashes] with a history and small bounds.
func testCrashes(t *testing.T, c Case, h History) {
	n := crashTestEnvelopes
	if testing.Short() {
		n = crashTestEnvelopesShort
	}
	envs := h.Envelopes[:min(n, len(h.Envelopes))]

	// ImagesInsideEnvelope may be 0 here: it depends on the projection and on the timing of
	// Pebble's goroutines.
	counts := CheckCrashes(t, c.New, envs, flushOften)
	t.Logf("%+v", counts)
}

// CrashCounts says what a crash test has checked.
type CrashCounts struct {
	// Writes is the number of operations of the file system other than reads, such as writes, syncs
	// and renames.
	Writes int
	// ImagesInsideEnvelope is the number of images whose store had folded a part of an envelope and
	// not yet the rest.
	ImagesInsideEnvelope int
}

// CheckCrashes folds the envelopes into a new store with these bounds and checks all crash images.
// The store on an image must have all envelopes that were folded before the last call of Flush, and
// exactly the rows of the first n envelopes, for some n; if it has a part of an envelope, it must
// have these rows once it has folded the rest of that envelope. When it has folded all remaining
// envelopes, it must have the rows of all envelopes.
func CheckCrashes(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds,
) CrashCounts {
	t.Helper()
	checker := newCrashChecker(t, newProjection, envs, bounds)
	checker.handleImage = checker.checkImage
	checker.foldFrom(crashImage{disk: vfs.NewCrashableMem()})
	return checker.counts
}

// CheckCrashesDuringRecovery checks crashes of stores that have crashed before. It first folds the
// envelopes into a new store and collects the crash images without checking them. Then it continues
// the fold on some of these images, as a service does after a crash, and checks the crash images of
// these folds as [CheckCrashes] does.
func CheckCrashesDuringRecovery(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds,
) {
	t.Helper()
	checker := newCrashChecker(t, newProjection, envs, bounds)

	var images []crashImage
	checker.handleImage = func(image crashImage) error {
		images = append(images, image)
		return nil
	}
	checker.foldFrom(crashImage{disk: vfs.NewCrashableMem()})
	if len(images) < continuedImageStep {
		t.Fatalf("expected at least %d images, got %d", continuedImageStep, len(images))
	}

	checker.handleImage = checker.checkImage
	for i := continuedImageStep - 1; i < len(images); i += continuedImageStep {
		t.Logf("continue from image %d of %d", i, len(images))
		checker.foldFrom(images[i])
	}
}

// crashImage is a disk as a power cut may leave it.
type crashImage struct {
	disk *vfs.MemFS
	// flushedSeq is the sequence number of the last envelope before the last call of Flush; 0 if
	// Flush was not called. The store on the disk must have all envelopes up to this number.
	flushedSeq uint64
}

// crashChecker is an [errorfs.Injector] that injects no errors: it copies the disk when errorfs
// asks it whether a write should fail.
type crashChecker struct {
	t             *testing.T
	newProjection func() projections.Projection
	envs          []*events.Envelope
	bounds        store.Bounds
	// rowsAfter[n] has the rows after the first n envelopes.
	rowsAfter []Rows
	// handleImage gets each crash image. It must not end the test, because goroutines of Pebble
	// call it. It is called while mu is held.
	handleImage func(crashImage) error

	// mu guards the following fields while a store is open, because Pebble also writes from its own
	// goroutines.
	mu sync.Mutex
	// isChecking is true during a fold, until handleImage returns an error. Later images would only
	// repeat the error.
	isChecking bool
	// disk is the disk of the store that folds. flushedSeq is that of its next image.
	disk       *vfs.MemFS
	flushedSeq uint64
	// random decides what survives. Two runs can differ, because the goroutines of Pebble take its
	// numbers in any order.
	random *rand.Rand
	counts CrashCounts
}

// newCrashChecker returns a checker. The caller must set handleImage before the first fold.
func newCrashChecker(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds,
) *crashChecker {
	t.Helper()
	return &crashChecker{
		t:             t,
		newProjection: newProjection,
		envs:          envs,
		bounds:        bounds,
		rowsAfter:     rowsOfPrefixes(t, newProjection(), envs),
		random:        rand.New(rand.NewPCG(1, 2)),
	}
}

// rowsOfPrefixes folds the envelopes one by one. Element n of the result has the rows after the
// first n envelopes.
func rowsOfPrefixes(t *testing.T, p projections.Projection, envs []*events.Envelope) []Rows {
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

// foldFrom opens a store on the disk of the image and folds all envelopes that this store does not
// have. It calls Flush after each envelopesPerFlush envelopes, and closes the store at the end. It
// ends the test after an error.
func (c *crashChecker) foldFrom(image crashImage) {
	c.t.Helper()
	c.disk = image.disk
	c.flushedSeq = image.flushedSeq
	c.isChecking = true
	// Goroutines of Pebble may still write after Fatal has ended the test. Then they must not call
	// handleImage.
	defer c.stopChecking()
	writesBefore := c.counts.Writes

	s := Open(c.t, errorfs.Wrap(image.disk, c), c.newProjection(), c.bounds)
	remaining := c.envs[IndexAfter(c.envs, s.Cursor()):]
	for i := range remaining {
		Fold(c.t, s, remaining[i:i+1])

		if (i+1)%envelopesPerFlush == 0 {
			if err := s.Flush(); err != nil {
				c.t.Fatal(err)
			}
			c.setFlushedSeq(remaining[i].Seq())
		}
	}
	Close(c.t, s)

	if c.counts.Writes == writesBefore {
		c.t.Fatal("the store wrote nothing, so no crash was checked")
	}
	c.handleImages("after the last write")
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func (c *crashChecker) stopChecking() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isChecking = false
}

func (c *crashChecker) setFlushedSeq(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushedSeq = seq
}

// String returns the name of the injector. The interface demands this method.
func (c *crashChecker) String() string { return "crash checker" }

// MaybeError handles the crash images before a write. errorfs calls it before each operation of the
// file system. It always returns nil, so that the operation succeeds.
func (c *crashChecker) MaybeError(op errorfs.Op) error {
	// A read changes nothing: an image before it would equal the image before the next write.
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Writes++
	c.handleImages(fmt.Sprintf("before write %d, to %s", c.counts.Writes, op.Path))
	return nil
}

// handleImages makes one image of the disk for each of survivalChances and passes it to
// handleImage. moment is the time of the power cut, for errors. The caller must hold mu if a store
// is open.
func (c *crashChecker) handleImages(moment string) {
	for _, chance := range survivalChances {
		if !c.isChecking {
			return
		}

		disk := c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: chance, RNG: c.random})
		if err := c.handleImage(crashImage{disk: disk, flushedSeq: c.flushedSeq}); err != nil {
			c.t.Errorf("power cut %s, survival chance %d %%: %v", moment, chance, err)
			c.isChecking = false
		}
	}
}

// checkImage checks the store on an image as described at [CheckCrashes].
func (c *crashChecker) checkImage(image crashImage) (err error) {
	s, err := store.Open(store.Options{
		FS: image.disk, Dir: dataDir, Projection: c.newProjection(), Bounds: c.bounds,
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	cursor := s.Cursor()
	if cursor.Seq < image.flushedSeq {
		return fmt.Errorf("the store lost flushed envelopes: expected sequence number %d or higher, got %d",
			image.flushedSeq, cursor.Seq)
	}

	// A store that has a part of an envelope returns ErrNotReady until it has folded the rest. Fold
	// skips the part that the store has.
	foldedEnvelopes := IndexAfter(c.envs, cursor)
	rows, err := readRows(s)
	if errors.Is(err, projections.ErrNotReady) {
		c.counts.ImagesInsideEnvelope++
		if foldedEnvelopes == len(c.envs) {
			return fmt.Errorf("the store has all %d envelopes, and cannot be read: %w", foldedEnvelopes, err)
		}
		if err := s.Fold(c.envs[foldedEnvelopes : foldedEnvelopes+1]); err != nil {
			return fmt.Errorf("fold the rest of the envelope with index %d: %w", foldedEnvelopes, err)
		}
		foldedEnvelopes++
		rows, err = FlushedRows(s)
	}
	if err != nil {
		return fmt.Errorf("read the recovered rows: %w", err)
	}
	if diff := rows.Diff(c.rowsAfter[foldedEnvelopes]); diff != "" {
		return fmt.Errorf("the rows are not those of the first %d envelopes:\n%s", foldedEnvelopes, diff)
	}

	// The store must be able to continue.
	if err := s.Fold(c.envs[foldedEnvelopes:]); err != nil {
		return fmt.Errorf("fold the envelopes from index %d: %w", foldedEnvelopes, err)
	}
	rows, err = FlushedRows(s)
	if err != nil {
		return fmt.Errorf("read the rows of all envelopes: %w", err)
	}
	if diff := rows.Diff(c.rowsAfter[len(c.envs)]); diff != "" {
		return fmt.Errorf("the rows are not those of all envelopes after a fold from index %d:\n%s", foldedEnvelopes, diff)
	}
	return nil
}
