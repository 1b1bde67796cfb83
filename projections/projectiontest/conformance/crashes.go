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

// A crash test does not crash anything. It folds envelopes into the main store, on an in-memory disk,
// without an interruption. Before each operation that may change the disk, and after the last one,
// a crashChecker copies the disk twice: once as a power cut at that moment leaves it if nothing that
// was not synced survives, and once with a random part of that. Such a copy is a crash image. On
// each image, the checker opens another store, the recovered store, and compares its rows with
// those that a fold without crashes has at the same position.

// The conformance suite uses only the first crashTestEnvelopes envelopes of a history, or
// crashTestEnvelopesShort in short mode. The time of a crash test grows with the square of this
// number: there are more images, and the store of each image also folds the envelopes that the image
// lacks.
const (
	crashTestEnvelopes      = 60
	crashTestEnvelopesShort = 10
)

// envelopesPerFlush is how many envelopes a crash test folds before it calls Flush of the main store.
// It is less than crashTestEnvelopesShort, so that a short test has a flush, too. A store with small
// memory bounds also flushes on its own.
const envelopesPerFlush = 8

// survivalChances are the probabilities, in percent, with which a block or a directory entry that
// was not synced survives a power cut. There is an image for each, or, in short mode, for one that
// is chosen at random. With 0, only synced data survives.
var survivalChances = [...]int{0, 50}

// continuedImageStep is the step from one image to the next one from which
// [CheckCrashesDuringRecovery] continues. Continuing from all images takes too long. The images of
// the two survivalChances alternate, so the step must be odd, or all chosen images would have the
// same chance.
const continuedImageStep = 7

// testCrashes runs [CheckCrashes] with a history and a store that flushes often.
func testCrashes(t *testing.T, c Case, h History) {
	n := crashTestEnvelopes
	if testing.Short() {
		n = crashTestEnvelopesShort
	}
	envs := h.Envelopes[:min(n, len(h.Envelopes))]

	// The counts are not checked. ImagesInsideEnvelope may be 0: it depends on the projection and
	// on the timing of Pebble's goroutines.
	counts := CheckCrashes(t, c.New, envs, flushOften)
	t.Logf("%+v", counts)
}

// CrashCounts says how much a crash test has covered.
type CrashCounts struct {
	// Writes is the number of operations that may have changed the disk, such as writes, syncs and
	// renames of files.
	Writes int
	// ImagesInsideEnvelope is the number of images whose store had folded a part of an envelope and
	// not yet the rest.
	ImagesInsideEnvelope int
}

// CheckCrashes folds the envelopes into a new store and checks all crash images:
//
//   - If a call of Flush had returned before the power cut, the cursor of the recovered store must
//     include all envelopes that were folded before that call.
//   - The rows of the recovered store must be those of the envelopes up to its cursor. There is an
//     exception: large envelopes are committed in parts, so the power cut may leave a part of an
//     envelope. The recovered store must then refuse queries until it has folded the rest of that
//     envelope, and have the right rows afterwards.
//   - After the recovered store has folded all remaining envelopes, it must have the rows of all
//     envelopes.
//
// It returns how much the test has covered.
func CheckCrashes(t *testing.T, newProjection func() projections.Projection, envs []*events.Envelope,
	bounds store.Bounds,
) CrashCounts {
	t.Helper()
	checker := newCrashChecker(t, newProjection, envs, bounds)
	checker.handleImage = checker.checkImage
	checker.foldFrom(crashImage{disk: vfs.NewCrashableMem()})
	return checker.counts
}

// CheckCrashesDuringRecovery checks that a store survives a second crash. It first folds the
// envelopes into a new store and collects the crash images without checking them. Then it opens a
// main store on some of these images, as a service does after a crash, folds the remaining
// envelopes, and checks the crash images of these folds as [CheckCrashes] does.
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

// crashImage is a disk as a power cut may leave it. A fold may also begin with an image that is an
// empty disk.
type crashImage struct {
	disk *vfs.MemFS
	// flushedSeq is the sequence of the last envelope that must not be lost, because a call of Flush
	// returned after it was folded. It is 0 if there is none.
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
	// handleImage checks or collects a crash image. It must not end the test with Fatal, because
	// goroutines of Pebble call it, and Fatal works only in the goroutine of the test. mu is held
	// while the main store is open.
	handleImage func(crashImage) error

	// mu guards the following fields while the main store is open, because Pebble also writes from
	// goroutines of its own.
	mu sync.Mutex
	// copying is true while foldFrom runs, until handleImage returns an error: most later images
	// would only repeat the error.
	copying bool
	// disk is the disk of the main store, without the injector.
	disk *vfs.MemFS
	// flushedSeq goes into the images that are made from now on.
	flushedSeq uint64
	// random decides what survives. In spite of its fixed seed, two runs can differ, because the
	// order in which goroutines of Pebble write differs.
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

// foldFrom opens the main store on the disk of an image, folds all envelopes that the store lacks and
// closes the store. Meanwhile, MaybeError makes images. foldFrom calls Flush after each
// [envelopesPerFlush] envelopes. It changes the disk of the image. If the test has failed, foldFrom
// ends it when the fold is complete.
func (c *crashChecker) foldFrom(image crashImage) {
	c.t.Helper()
	c.disk = image.disk
	c.flushedSeq = image.flushedSeq
	c.copying = true
	// If Fatal ends the test below, goroutines of Pebble go on writing. Their images must not be
	// checked any more, because reporting an error to a test that has ended panics.
	defer c.stopCopying()
	writesBefore := c.counts.Writes

	s := Open(c.t, errorfs.Wrap(image.disk, c), c.newProjection(), c.bounds)
	// An image has been synced as a whole, so the next crash must not lose what was recovered.
	c.setFlushedSeq(max(image.flushedSeq, s.Cursor().Seq))
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
		c.t.Fatal("the store wrote nothing, so there was no moment for a crash")
	}
	c.makeImages("after the last write")
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func (c *crashChecker) stopCopying() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copying = false
}

func (c *crashChecker) setFlushedSeq(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushedSeq = seq
}

// String returns the name of the injector. The interface demands this method.
func (c *crashChecker) String() string { return "crash checker" }

// MaybeError makes crash images before an operation that may change the disk. errorfs calls it
// before each operation. It always returns nil, so that the operation succeeds.
func (c *crashChecker) MaybeError(op errorfs.Op) error {
	// A read changes nothing, so the images before it would be like those before the next write.
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Writes++
	c.makeImages(fmt.Sprintf("before write %d, to %s", c.counts.Writes, op.Path))
	return nil
}

// makeImages makes images of the disk as survivalChances describes and passes them to handleImage.
// moment is a text for errors that says when the power was cut. The caller must hold mu while the
// main store is open.
func (c *crashChecker) makeImages(moment string) {
	chances := survivalChances[:]
	if testing.Short() {
		i := c.random.IntN(len(chances))
		chances = chances[i : i+1]
	}
	for _, chance := range chances {
		if !c.copying {
			return
		}

		disk := c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: chance, RNG: c.random})
		if err := c.handleImage(crashImage{disk: disk, flushedSeq: c.flushedSeq}); err != nil {
			c.t.Errorf("power cut %s, survival chance %d %%: %v", moment, chance, err)
			c.copying = false
		}
	}
}

// checkImage opens the recovered store on an image and checks it as [CheckCrashes] describes. It
// changes the disk of the image, because the store folds the envelopes that it lacks. The store must
// use the disk without the injector, which would wait for mu.
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

	// A store that has a part of an envelope refuses queries with ErrNotReady until it has folded
	// the rest. Its cursor does not include that envelope, but a row says how many events of the
	// envelope it has, and Fold skips these.
	foldedEnvelopes := IndexAfter(c.envs, cursor) // how many envelopes the store has completely
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
