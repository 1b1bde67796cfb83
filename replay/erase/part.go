package erase

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/atomicfile"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/replay/rebuild"
	"github.com/skein-feed/skein/replay/snapshot"
)

// markerName is the name of the file in the data directory that stores the [marker].
const markerName = "erased.json"

// flushTimeout limits how long one call of [Part.Flush] waits for the lock of builds and for the
// folds of the stores. A node that needs longer answers that it is not done, and the erasing
// process asks again. The time is short, so that the erasing process soon notices a node that does
// not answer at all (nodeCallTimeout).
const flushTimeout = 5 * time.Second

// holdTime is for how long a call of [Part.Flush] keeps this process from building generations of
// the stores, unless the new epoch begins earlier. The erasing process repeats the call every
// renewInterval, a quarter of holdTime, so a few calls may fail. If the erasing process is lost, no
// call follows, and this process can build generations again after holdTime, for example to take
// over the partitions of the lost one.
const holdTime = time.Minute

// ErrMissed means that a user was erased while this process did not take part. The stores of this
// process may have folded the scrubbed log from a position before the user's deletion, and then
// they still have the user's rows. The process must end, and the stores must be removed before it
// opens them again ([HasMissedErasure], [RemoveStores]).
var ErrMissed = errors.New("erase: a user was erased from the log while this node did not take part: start it again, " +
	"and it builds its stores anew")

// ErrBeforeErasure means that a generation has not folded the deletion of a user who was erased
// since. In the scrubbed log, that deletion names only the user's pseudonym, so a generation that
// continued with the scrubbed log would keep the rows under the user's id.
var ErrBeforeErasure = errors.New("erase: the generation is from before the deletion of a user who was erased since, " +
	"and would show the user again: rebuild the projection if the present generation is wrong")

// These errors say why a node cannot take part in an erasure. The report of the erasure puts the
// name of the node before them.
var (
	errNoArchive    = errors.New("it has no --archive, and could not build its stores from the log that an erasure leaves")
	errOtherArchive = errors.New("its --archive is not the one in which the log is archived")
)

// Part is the part that a process with stores takes in erasures. A node of a cluster uses it for
// erasures that another process performs: that process calls Flush before it scrubs the log, and
// Clean afterwards. The process that performs an erasure has a Part, too, for its own stores. A
// Part can be used once Open or OpenAlone has returned. Its other methods may then be called
// concurrently.
type Part struct {
	// Log, Archive and Stores are those of this process. Archive may be nil. The process then
	// cannot take part in the erasures of another process: Flush and RebuildIfErased fail.
	Log     *eventlog.Log
	Archive *archive.Archive
	Stores  []*live.Live
	// Snapshots contains the snapshots of the stores; nil means that there are none. In a node,
	// their scheduler calls [Part.ErasureState], so the manifest of each snapshot says which
	// erasures the stores have gone through.
	Snapshots bucket.Bucket
	// RemoveTemporaryStores removes the temporary stores that may have rows from before the log was
	// scrubbed: those of verifications, of snapshots and of interrupted restores. It first ends, or
	// waits for, whatever uses them. nil means that there are no such stores.
	RemoveTemporaryStores func(ctx context.Context) error

	// path is the path of the file that stores the marker.
	path string
	// builds is the lock of everything that builds generations of the stores or goes back to an
	// earlier one. Its weight is maxBuilds. ShareBuilds takes 1 of it, and LockBuilds takes all.
	builds *semaphore.Weighted
	// buildWanted receives an element when CheckErasures finds that the stores must be rebuilt. Its
	// buffer of one keeps the element until somebody receives it, so that CheckErasures never
	// waits.
	buildWanted chan struct{}

	// mu guards the fields below it.
	mu     sync.Mutex
	marker marker
	// hold is the lock of builds that the last successful call of holdBuilds took or renewed. It
	// may have ended since.
	hold buildsHold
	// lastBuildError is the error of the last rebuild by RebuildIfErased. It is nil if that rebuild
	// succeeded, or if there was none. Rebuilds that were interrupted do not count.
	lastBuildError error
}

// marker says which erasures the stores in a data directory have gone through, see
// [snapshot.ErasureState]: no file of the stores contains anything that was scrubbed from the
// epochs before Epoch, and the stores have folded all deletions up to Flushed from the log as it
// was before the scrub. The zero value claims nothing. It is what applies if there is no file.
type marker struct {
	Version int `json:"version"`
	snapshot.ErasureState
}

// markerVersion is the version of the format of the file that stores the marker.
const markerVersion = 1

// Open prepares the Part of a node. It reads the marker from the data directory dir and checks for
// missed erasures. It returns [ErrMissed] if the stores must be removed first. p.Stores must be
// open, but Run of them must not be called yet: Open takes a store that has folded something for
// one that may be older than erasures, if there is no marker.
func (p *Part) Open(dir string) error {
	if err := p.OpenAlone(dir); err != nil {
		return err
	}
	_, err := p.CheckErasures()
	return err
}

// OpenAlone does what Open does, but does not check for missed erasures. It is for a process that
// is no node of a cluster. Such a process is the only one that has stores, so it performs all
// erasures itself and misses none.
func (p *Part) OpenAlone(dir string) error {
	p.path = filepath.Join(dir, markerName)
	p.builds = semaphore.NewWeighted(maxBuilds)
	p.buildWanted = make(chan struct{}, 1)

	m, found, err := readMarker(p.path)
	if err != nil {
		return err
	}
	p.marker = m

	// Stores that have folded nothing contain nothing that was scrubbed, so their marker gets the
	// present epoch. Stores without a marker that have folded something may be older than erasures,
	// so the marker stays at epoch 0.
	isEmpty := !slices.ContainsFunc(p.Stores, func(s *live.Live) bool { return s.Cursor().Seq > 0 })
	if !found && isEmpty {
		return p.recordRebuilt(p.Log.Epoch())
	}
	return nil
}

// readMarker reads the marker from a file. found is false, without an error, if there is no file.
func readMarker(path string) (m marker, found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.Version != markerVersion {
		err = fmt.Errorf("version %d, this program reads %d", m.Version, markerVersion)
	}
	if err != nil {
		return m, true, fmt.Errorf("erase: %s: %w", path, err)
	}
	return m, true, nil
}

// mustRebuild reports whether files of the stores may contain a user who was erased from the log.
// The last erasure ended LastErasure().Epoch and scrubbed that epoch and the earlier ones, so only
// a marker of a later epoch excludes that.
func (m marker) mustRebuild(log *eventlog.Log) bool {
	erased := log.LastErasure()
	return erased.Epoch > 0 && m.Epoch <= erased.Epoch
}

// hasMissed reports whether the stores must be rebuilt and may not have folded the last erased
// user's deletion from the log as it was before the scrub. Their rows may be wrong then, and not
// only their files.
func (m marker) hasMissed(log *eventlog.Log) bool {
	return m.mustRebuild(log) && m.Flushed < log.LastErasure().Seq
}

// HasMissedErasure reports whether [RemoveStores] must be called, before the stores in a folder of
// the data directory dir are opened. That is so if a user was erased whose deletion the stores may
// not have folded from the log as it was before the scrub: if they continued with the scrubbed log,
// they would keep the user's rows. Without such an erasure, HasMissedErasure returns false.
//
// If the folder does not exist, HasMissedErasure returns true only if there is a marker. The marker
// must be removed then: new stores would pass for the old ones.
func HasMissedErasure(dir, folder string, log *eventlog.Log) (bool, error) {
	m, found, err := readMarker(filepath.Join(dir, markerName))
	if err != nil || !m.hasMissed(log) {
		return false, err
	}
	_, err = os.Stat(filepath.Join(dir, folder))
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	return err == nil, err
}

// RemoveStores removes the stores in a folder of the data directory dir, and the marker. No process
// may have the stores open.
func RemoveStores(dir, folder string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, folder)), os.RemoveAll(filepath.Join(dir, markerName)))
}

// CheckErasures reports whether files of the stores may contain what was scrubbed from the log. If
// so, it also sends to [Part.RebuildWanted], and [Part.RebuildIfErased] must rebuild the stores.
// But if rows of the stores may be wrong, too, it sends nothing and returns true and [ErrMissed].
// If no erasure concerns the stores, it writes the present epoch into the marker.
//
// CheckErasures must be called from time to time, because nobody tells this process of erasures
// that it has missed. It does not ask the log: it uses the metadata that this process has last
// read.
func (p *Part) CheckErasures() (due bool, err error) {
	// Read the epoch before the last erasure. In the opposite order, an erasure could begin a new
	// epoch in between. The marker would then get the new epoch, although the erasure concerns the
	// stores.
	epoch := p.Log.Epoch()

	p.mu.Lock()
	defer p.mu.Unlock()
	// A new epoch means that the erasure for which Flush holds the lock of builds has ended.
	// Release the lock, so that the stores can be rebuilt.
	if p.hold.epoch < epoch && p.hold.stop() {
		p.hold.release()
	}
	if err := p.checkMissedLocked(); err != nil {
		return true, err
	}
	if p.marker.mustRebuild(p.Log) {
		select {
		case p.buildWanted <- struct{}{}:
		default: // a rebuild is wanted already
		}
		return true, nil
	}

	// No erasure concerns these stores, so they contain nothing that was scrubbed from the epochs
	// before the present one. The marker is behind because the log was restored or moved, or
	// because there was no marker.
	if p.marker.Epoch < epoch {
		return false, p.setMarkerLocked(snapshot.ErasureState{Epoch: epoch, Flushed: p.marker.Flushed})
	}
	return false, nil
}

// Epoch returns the epoch of the marker, after CheckErasures has updated it. No file of the stores
// contains anything that was scrubbed from earlier epochs.
func (p *Part) Epoch() uint32 {
	// The log may have begun a new epoch without an erasure, which CheckErasures writes into the
	// marker. Its results do not matter here: if the marker stays at an earlier epoch, that epoch
	// is right, too.
	_, _ = p.CheckErasures()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.marker.Epoch
}

// CheckMayCopy returns an error if another node must not copy rows of the stores of this process.
// epoch is the epoch of the other node's marker. The stores of that node contain nothing that was
// scrubbed from earlier epochs. They would contain it again if they got rows of stores whose marker
// is of an earlier epoch.
func (p *Part) CheckMayCopy(epoch uint32) error {
	if at := p.Epoch(); at < epoch {
		return fmt.Errorf("its stores may have what was scrubbed from the log before epoch %d: they are of epoch %d", epoch, at)
	}
	return nil
}

// CheckMayContinue returns [ErrBeforeErasure] if the generation at the cursor from must not fold
// the rest of the log, because the log was scrubbed of a user whose deletion comes after from. It
// returns another error if the log does not answer. The caller must hold the lock of
// [Part.ShareBuilds], so that no erasure scrubs the log before the generation serves.
func (p *Part) CheckMayContinue(ctx context.Context, from events.Cursor) error {
	// Head updates the epoch and the last erasure that this process knows of. Without this call, an
	// erasure by another process could remain unnoticed.
	if _, err := p.Log.Head(ctx); err != nil {
		return err
	}
	erased := p.Log.LastErasure()
	if from.Epoch <= erased.Epoch && from.Seq < erased.Seq {
		return ErrBeforeErasure
	}
	return nil
}

// RebuildWanted returns a channel that receives an element when CheckErasures finds that the stores
// must be rebuilt. Several findings may give only one element. There is none if CheckErasures
// returns [ErrMissed].
func (p *Part) RebuildWanted() <-chan struct{} { return p.buildWanted }

// checkMissedLocked returns [ErrMissed] if the stores may have wrong rows of a user who was erased.
// Stores that hold no partition have no such rows. The caller holds p.mu.
func (p *Part) checkMissedLocked() error {
	holdsPartitions := func(s *live.Live) bool {
		held := s.Holds()
		return held.Len() > 0
	}
	if p.marker.hasMissed(p.Log) && slices.ContainsFunc(p.Stores, holdsPartitions) {
		return ErrMissed
	}
	return nil
}

// setMarkerLocked writes the marker to its file, and sets p.marker only if that succeeds: other
// nodes act on what p.marker says, so the marker must survive a crash. The caller holds p.mu.
func (p *Part) setMarkerLocked(e snapshot.ErasureState) error {
	m := marker{markerVersion, e}
	err := writeMarker(p.path, m)
	if err == nil {
		p.marker = m
	}
	return err
}

// writeMarker replaces the file with the marker atomically.
func writeMarker(path string, m marker) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'))
}

// maxBuilds is the weight of the lock of builds. It is more than the number of calls of ShareBuilds
// that can hold the lock at the same time.
const maxBuilds = 1 << 20

// LockBuilds waits until nobody builds generations of the stores or goes back to an earlier one,
// and keeps others from doing so until release is called. Changes of partitions and erasures take
// this lock, because they build generations of all stores. On a node, Flush takes it while another
// process scrubs the log.
func (p *Part) LockBuilds(ctx context.Context) (release func(), err error) {
	return p.acquireBuilds(ctx, maxBuilds)
}

// ShareBuilds takes a share of the same lock, for a rebuild or a rollback of one projection.
// Several callers may hold shares at the same time, for different projections: the rebuild of one
// damaged store need not wait for that of another. The lock does not check that the projections
// differ. While a call of LockBuilds waits, later calls of ShareBuilds wait behind it. Otherwise
// one rebuild after the other could keep an erasure waiting.
func (p *Part) ShareBuilds(ctx context.Context) (release func(), err error) {
	return p.acquireBuilds(ctx, 1)
}

// acquireBuilds takes n of the weight of the lock of builds, and returns a function that gives it
// back.
func (p *Part) acquireBuilds(ctx context.Context, n int64) (release func(), err error) {
	if err := p.builds.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { p.builds.Release(n) }, nil
}

// buildsHold is the whole lock of builds, held for an erasure that another process performs. The
// zero value holds nothing.
type buildsHold struct {
	// epoch is the epoch of the log that the erasure is going to end.
	epoch uint32
	// timer calls release after holdTime, so that the lock ends even if no further call comes.
	// Others may call release only after stop has returned true; otherwise the lock would be
	// released twice.
	timer   *time.Timer
	release func()
}

// stop stops the timer, and reports whether the lock is still held. If it returns true, the caller
// must either restart the timer or call release.
func (h buildsHold) stop() bool { return h.timer != nil && h.timer.Stop() }

// holdBuilds takes the whole lock of builds, or renews it if an earlier call still holds it. The
// lock ends when CheckErasures sees an epoch after the given one, or holdTime after the last call:
// the erasure may fail, or the process that performs it may be lost.
func (p *Part) holdBuilds(ctx context.Context, epoch uint32) error {
	p.mu.Lock()
	isHeld := p.hold.stop()
	if isHeld {
		p.hold.epoch = epoch
		p.hold.timer.Reset(holdTime)
	}
	p.mu.Unlock()
	if isHeld {
		return nil
	}

	// Do not hold mu while waiting: another build may have the lock for long.
	release, err := p.LockBuilds(ctx)
	if err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = buildsHold{epoch, time.AfterFunc(holdTime, release), release}
	return nil
}

// Flush waits until the stores have folded the log up to the sequence seq, and flushes them. seq is
// the position of the erased users' last deletion, which is in the given epoch. done reports that
// the stores have flushed it. If they take longer than flushTimeout, or if the log that this
// process knows is in another epoch, Flush returns false without an error, and must be called
// again. An error says why this process cannot take part. If seq is 0, Flush flushes nothing, and
// only reports whether this process can take part.
//
// Flush also keeps this process from building generations of the stores, until the new epoch has
// begun or holdTime has passed. A generation that is built meanwhile could be from before the
// deletion, or could read some events before they are scrubbed and the deletion afterwards. The
// erasing process calls Flush again and again until the new epoch begins, so that holdTime does not
// pass.
func (p *Part) Flush(ctx context.Context, epoch uint32, seq uint64) (done bool, err error) {
	if p.Archive == nil {
		return false, errNoArchive
	}
	if p.Log.Epoch() != epoch {
		// Head updates the epoch that this process knows. If the epochs are the same then, the next
		// call succeeds. Head fails if this process cannot continue in the epoch that the log has
		// now.
		_, err := p.Log.Head(ctx)
		return false, err
	}

	p.mu.Lock()
	err = p.checkMissedLocked()
	p.mu.Unlock()
	if err != nil {
		return false, err
	}
	if seq == 0 {
		return true, nil
	}

	// After the scrub, the stores will be rebuilt from this archive, so it must contain the
	// deletion.
	if err := p.Archive.Reload(ctx); err != nil {
		return false, err
	}
	if p.Archive.End().Seq < seq {
		return false, errOtherArchive
	}

	// A generation that is being built may have read less of the log than the stores. holdBuilds
	// waits until it is built, so that flushStores flushes the generation that serves then.
	flushCtx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := p.holdBuilds(flushCtx, epoch); err != nil {
		return false, ctx.Err() // nil if only flushCtx has ended
	}
	if err := flushStores(flushCtx, p.Stores, seq); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = ctx.Err() // the caller will call again
		}
		return false, err
	}
	return true, p.recordFlushed(seq)
}

// flushStores waits until every store has folded the log up to the sequence seq, and flushes the
// stores to disk.
func flushStores(ctx context.Context, stores []*live.Live, seq uint64) error {
	for _, s := range stores {
		err := s.WaitFor(ctx, seq)
		if err == nil {
			err = s.Flush()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name(), err)
		}
	}
	return nil
}

// recordFlushed records in the marker that the stores have folded and flushed all deletions up to
// the sequence seq before the scrub.
func (p *Part) recordFlushed(seq uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setMarkerLocked(snapshot.ErasureState{Epoch: p.marker.Epoch, Flushed: max(seq, p.marker.Flushed)})
}

// recordRebuilt records in the marker that no file of the stores contains anything that was
// scrubbed from the epochs before epoch, because the stores were rebuilt or have folded nothing
// yet.
func (p *Part) recordRebuilt(epoch uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastBuildError = nil
	return p.setMarkerLocked(snapshot.ErasureState{Epoch: max(epoch, p.marker.Epoch), Flushed: p.marker.Flushed})
}

// Clean reports whether no file of the stores contains anything that was scrubbed from the epochs
// before epoch. The erasing process asks this until every node is done.
//
// If the answer is no, and the last rebuild has failed, Clean returns the error of that rebuild.
// The node itself tries the rebuild again. Otherwise Clean calls CheckErasures, which requests a
// rebuild if one is due, and returns its error.
func (p *Part) Clean(ctx context.Context, epoch uint32) (done bool, err error) {
	if p.Log.Epoch() < epoch {
		// Head updates the epoch. If the log does not answer, Clean returns false, and is called
		// again.
		_, _ = p.Log.Head(ctx)
	}
	p.mu.Lock()
	done = p.marker.Epoch >= epoch
	err = p.lastBuildError
	p.mu.Unlock()
	if done {
		return true, nil
	}

	if err == nil {
		_, err = p.CheckErasures()
	}
	return false, err
}

// RebuildIfErased rebuilds the stores if their files may contain what was scrubbed from the log.
// Otherwise it does nothing and returns no report. The caller must hold the lock of
// [Part.LockBuilds].
//
// RebuildIfErased also deletes what else may contain the erased user: the previous and the prepared
// generations of the stores, the stores of projections that this process does not have, the
// temporary stores, and the scheduled snapshots of older stores. Snapshots that were taken by hand
// stay.
//
// The report has one line for each store that was rebuilt or removed, one that names the removed
// snapshots, and one that names those that stay. After an error it may lack lines of what was done.
func (p *Part) RebuildIfErased(ctx context.Context, subscribe rebuild.SubscribeFunc, o rebuild.Options) (report []string, err error) {
	p.mu.Lock()
	due := p.marker.mustRebuild(p.Log)
	epoch := p.Log.Epoch()
	p.mu.Unlock()
	if !due {
		return nil, nil
	}

	// Keep the error for Clean, which returns it to the erasing process. Do not keep the error of a
	// rebuild that was interrupted, because it says nothing about the stores.
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if ctx.Err() == nil {
			p.lastBuildError = err
		}
	}()

	if p.Archive == nil {
		return nil, errNoArchive
	}
	if err := p.Archive.Reload(ctx); err != nil {
		return nil, err
	}
	report, err = rebuildStores(ctx, p.Stores, p.partitionsToBuild(), subscribe, o)
	if err != nil {
		return report, err
	}
	if err := p.removeTemporaryStores(ctx); err != nil {
		return report, err
	}

	// Remove the snapshots before the rebuild is recorded. If the process crashes in between, the
	// next call repeats the rebuild and the removal; in the opposite order, the snapshots would
	// stay.
	if p.Snapshots != nil {
		removed, staying, err := removeSnapshots(ctx, p.Snapshots, "", mayHaveErasedBefore(epoch))
		if err != nil {
			return report, err
		}
		if len(removed) > 0 {
			report = append(report, removedSnapshotsLine(removed))
		}
		if len(staying) > 0 {
			report = append(report, "left: "+remainingSnapshotsLine(p.Snapshots, staying))
		}
	}
	return report, p.recordRebuilt(epoch)
}

// removeTemporaryStores calls RemoveTemporaryStores if it is set.
func (p *Part) removeTemporaryStores(ctx context.Context) error {
	if p.RemoveTemporaryStores == nil {
		return nil
	}
	if err := p.RemoveTemporaryStores(ctx); err != nil {
		return fmt.Errorf("remove temporary stores: %w", err)
	}
	return nil
}

// partitionsToBuild returns, by projection, the partitions that a rebuild after the last erasure
// must build from the log. Rows of the other partitions can be copied from the present generations.
//
// It returns nil, which means all partitions, in three cases. First, the marker may be of an epoch
// before the one that the last erasure ended, so that the stores may still contain users of earlier
// erasures. Second, the stores may not have folded the deletion before the scrub, so that rows of
// any partition may be wrong. Third, the log may not know the partitions of the last erasure.
func (p *Part) partitionsToBuild() map[string]events.Partitions {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.marker.Epoch != p.Log.LastErasure().Epoch || p.marker.hasMissed(p.Log) {
		return nil
	}
	return p.Log.ErasedPartitions()
}

// rebuildStores makes new generations of the stores, which share no file with the present ones, and
// deletes all other generations: their tables and manifests still contain the keys of deleted rows.
// It builds the given partitions of each projection from the log, and copies the rows of the
// others. If partitions has no entry for a projection, all partitions of the projection are built
// from the log. Afterwards rebuildStores removes the stores of projections that are not among the
// given ones. It returns one line for each store that was rebuilt or removed. After an error it
// returns the lines of the stores that were rebuilt until then.
func rebuildStores(
	ctx context.Context, stores []*live.Live, partitions map[string]events.Partitions, subscribe rebuild.SubscribeFunc, o rebuild.Options,
) (lines []string, err error) {
	for _, s := range stores {
		fromLog, ok := partitions[s.Name()]
		if !ok {
			fromLog = events.AllPartitions()
		}
		report, err := rebuild.Renew(ctx, s, fromLog, subscribe, o)
		if err == nil {
			err = s.DeletePrevious(ctx)
		}
		if err != nil {
			return lines, fmt.Errorf("build %s anew: %w", s.Name(), err)
		}
		lines = append(lines, s.Name()+": "+report)
	}

	removed, err := live.RemoveUnserved(stores)
	if err != nil {
		return lines, fmt.Errorf("remove the stores of projections that this process does not have: %w", err)
	}
	for _, name := range removed {
		lines = append(lines, name+": its store was removed, since this process does not have the projection")
	}
	return lines, nil
}
