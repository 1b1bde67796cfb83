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

// markerName is the name of the file with the marker in the data directory.
const markerName = "erased.json"

// flushTimeout limits how long one call of [Part.Flush] waits for the stores. It is short, so that
// the process that erases notices soon when the node fails.
const flushTimeout = 5 * time.Second

// holdTime is for how long nothing may build generations of the stores after a call of
// [Part.Flush]. It is several times renewInterval, and short enough that a node can soon take over
// the partitions of a process that was lost while it erased.
const holdTime = time.Minute

// ErrMissed means that a user was erased while this process did not take part. Its stores may have
// folded the scrubbed log from a position before the deletion, and then they still have the user's
// rows. They must be removed and rebuilt.
var ErrMissed = errors.New("erase: a user was erased from the log while this node did not take part: start it again, " +
	"and it builds its stores anew")

// ErrBeforeErasure means that a generation has not folded the deletion of a user who was erased
// since. The scrubbed log has that deletion only under the pseudonym, so if the generation
// continued, it would keep the user's rows.
var ErrBeforeErasure = errors.New("erase: the generation is from before the deletion of a user who was erased since, " +
	"and would show the user again: rebuild the projection if the present generation is wrong")

// Objections of a node that cannot take part in an erasure.
var (
	errNoArchive    = errors.New("it has no --archive, and could not build its stores from the log that an erasure leaves")
	errOtherArchive = errors.New("its --archive is not the one in which the log is archived")
)

// Part is the part that a process with stores of its own, a node of a cluster, takes in erasures
// that another process performs. Its methods may be called concurrently.
type Part struct {
	// Log, Archive and Stores are the ones of this process. Archive may be nil.
	Log     *eventlog.Log
	Archive *archive.Archive
	Stores  []*live.Live
	// Snapshots contains the snapshots of the stores. Their scheduler calls [Part.ErasureState].
	// nil means that there are none.
	Snapshots bucket.Bucket
	// RemoveTemporaryStores removes the stores that verifications and snapshots have made of the
	// log as it was before it was scrubbed, and ends what still uses them. nil means that there are
	// none.
	RemoveTemporaryStores func(ctx context.Context) error

	// path is the path of the file with the marker.
	path string
	// builds is the lock of everything that builds generations of the stores, with up to maxBuilds
	// holders that share it, or one that takes all of it.
	builds *semaphore.Weighted
	// buildWanted contains an element when CheckErasures has found that the stores must be rebuilt.
	// Its buffer of one keeps the wish until somebody receives it, and CheckErasures never waits.
	buildWanted chan struct{}

	// mu guards the fields below.
	mu     sync.Mutex
	marker marker
	// hold is the lock of builds that Flush has taken last.
	hold buildsHold
	// lastBuildError is why the last Build failed; nil if it succeeded.
	lastBuildError error
}

// marker says which erasures the stores in a data directory have gone through. It is stored in a
// file of that directory.
type marker struct {
	Version int `json:"version"`
	snapshot.ErasureState
}

// markerVersion is the version of the format of the file.
const markerVersion = 1

// Open reads the marker from the data directory dir. The stores must not run yet. It returns
// [ErrMissed] if they must be removed first.
func (p *Part) Open(dir string) error {
	if err := p.OpenAlone(dir); err != nil {
		return err
	}
	_, err := p.CheckErasures()
	return err
}

// OpenAlone reads the marker like Open, but does not check for missed erasures. It is for the only
// process that has stores: it performs all erasures itself, and so misses none.
func (p *Part) OpenAlone(dir string) error {
	p.path = filepath.Join(dir, markerName)
	p.builds = semaphore.NewWeighted(maxBuilds)
	p.buildWanted = make(chan struct{}, 1)

	m, found, err := readMarker(p.path)
	if err != nil {
		return err
	}
	p.marker = m

	// Stores that are empty contain nothing of any epoch. Stores without a marker that are not
	// empty may be older than erasures, so the marker stays at epoch 0.
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

// mustRebuild reports whether a user was erased from the log after the stores were built, so that
// their files may contain the user.
func (m marker) mustRebuild(log *eventlog.Log) bool {
	erased := log.LastErasure()
	return erased.Epoch > 0 && m.Epoch <= erased.Epoch
}

// hasMissed reports whether the stores must be rebuilt and have not even folded the deletion of the
// user before it was scrubbed. Their rows are wrong then.
func (m marker) hasMissed(log *eventlog.Log) bool {
	return m.mustRebuild(log) && m.Flushed < log.LastErasure().Seq
}

// HasMissedErasure reports whether the stores in a folder of the data directory dir must be
// removed, by [RemoveStores], before they are opened. That is so if a user was erased whose
// deletion they have not folded from the log as it was: if they continued with the scrubbed log,
// they would keep the user's rows.
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

// CheckErasures reports whether files of the stores may contain what was scrubbed from the log, so
// that [Part.RebuildIfErased] must rebuild them. It returns [ErrMissed] if their rows are wrong,
// too. If no erasure concerns the stores, it takes the present epoch into the marker. It must be
// called from time to time, because nobody tells this process of erasures that it has missed.
func (p *Part) CheckErasures() (due bool, err error) {
	// Read the epoch before asking for erasures. In the opposite order, the epoch could be one that
	// an erasure has begun in the meantime.
	epoch := p.Log.Epoch()

	p.mu.Lock()
	defer p.mu.Unlock()
	// The erasure for which Flush has taken the lock of builds has begun the new epoch.
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
	// before the present one.
	if p.marker.Epoch < epoch {
		return false, p.setMarkerLocked(snapshot.ErasureState{Epoch: epoch, Flushed: p.marker.Flushed})
	}
	return false, nil
}

// Epoch returns the epoch of the marker: the stores contain nothing that was scrubbed from the
// epochs before it.
func (p *Part) Epoch() uint32 {
	// The log may have begun a new epoch, which CheckErasures takes into the marker. Other results
	// of CheckErasures do not matter here.
	_, _ = p.CheckErasures()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.marker.Epoch
}

// CheckMayCopy returns an error if the stores may contain what was scrubbed from the log before an
// epoch. Then a node whose stores are free of it must not copy rows from this one.
func (p *Part) CheckMayCopy(epoch uint32) error {
	if at := p.Epoch(); at < epoch {
		return fmt.Errorf("its stores may have what was scrubbed from the log before epoch %d: they are of epoch %d", epoch, at)
	}
	return nil
}

// CheckMayContinue returns [ErrBeforeErasure] if a generation must not continue from a cursor,
// because the log was scrubbed of a user whose deletion comes after the cursor. The caller has
// called [Part.ShareBuilds], so that no erasure scrubs the log before the generation serves.
func (p *Part) CheckMayContinue(ctx context.Context, from events.Cursor) error {
	// Head updates the epoch of the log. Without it, another process may have erased a user
	// unnoticed.
	if _, err := p.Log.Head(ctx); err != nil {
		return err
	}
	erased := p.Log.LastErasure()
	if from.Epoch <= erased.Epoch && from.Seq < erased.Seq {
		return ErrBeforeErasure
	}
	return nil
}

// RebuildWanted receives an element when CheckErasures has found that the stores must be rebuilt.
func (p *Part) RebuildWanted() <-chan struct{} { return p.buildWanted }

// checkMissedLocked returns [ErrMissed] if the stores hold wrong rows of a user who was erased.
// p.mu is held.
func (p *Part) checkMissedLocked() error {
	holds := func(s *live.Live) bool {
		held := s.Holds()
		return held.Len() > 0
	}
	if p.marker.hasMissed(p.Log) && slices.ContainsFunc(p.Stores, holds) {
		return ErrMissed
	}
	return nil
}

// setMarkerLocked writes the marker to the file, and sets it only if that succeeds: other nodes
// act on the marker, so it must survive a crash. p.mu is held.
func (p *Part) setMarkerLocked(e snapshot.ErasureState) error {
	m := marker{markerVersion, e}
	err := writeMarker(p.path, m)
	if err == nil {
		p.marker = m
	}
	return err
}

// writeMarker writes a marker to a file, atomically.
func writeMarker(path string, m marker) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'))
}

// maxBuilds is more than the number of builds that can run at the same time.
const maxBuilds = 1 << 20

// LockBuilds waits until nobody builds generations of the stores or goes back to an earlier one,
// and keeps others from doing so until release is called. Changes of partitions and erasures take
// this lock, because they build generations of all stores.
func (p *Part) LockBuilds(ctx context.Context) (release func(), err error) {
	return p.acquireBuilds(ctx, maxBuilds)
}

// ShareBuilds is LockBuilds for a rebuild or a rollback of one projection. Several of them may run
// at the same time, of different projections, so that a damaged store is not down until the rebuild
// of another one ends. But while a call of LockBuilds waits, later calls of ShareBuilds wait behind
// it: otherwise one rebuild after the other could keep an erasure waiting.
func (p *Part) ShareBuilds(ctx context.Context) (release func(), err error) {
	return p.acquireBuilds(ctx, 1)
}

func (p *Part) acquireBuilds(ctx context.Context, n int64) (release func(), err error) {
	if err := p.builds.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { p.builds.Release(n) }, nil
}

// buildsHold is the lock of builds, held for an erasure by another node. The zero value holds
// nothing.
type buildsHold struct {
	// epoch is the epoch that the erasure ends.
	epoch uint32
	// timer releases the lock. release does so, too; it must be called only if the timer was
	// stopped.
	timer   *time.Timer
	release func()
}

// stop keeps the timer from releasing the lock, and reports whether the lock is still held.
func (h buildsHold) stop() bool { return h.timer != nil && h.timer.Stop() }

// holdBuilds takes the lock of builds, until CheckErasures sees an epoch after this one, and for at
// most holdTime after the last call: the erasure may fail, or its process may.
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

	// Do not hold mu here: another build may have the lock for long.
	release, err := p.LockBuilds(ctx)
	if err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = buildsHold{epoch, time.AfterFunc(holdTime, release), release}
	return nil
}

// Flush makes the stores fold the log up to the sequence seq, a deletion in the present epoch, and
// flush. done reports that they have. If that takes longer than some seconds, Flush returns false
// and must be called again. If seq is 0, it only reports whether this process can take part.
//
// From then on, nothing builds generations of the stores until the new epoch has begun: a
// generation could be from before the deletion, or read some events before they are scrubbed and
// the deletion afterwards. The erasure calls Flush again and again until then, because the lock
// ends some time after the last call.
func (p *Part) Flush(ctx context.Context, epoch uint32, seq uint64) (done bool, err error) {
	if p.Archive == nil {
		return false, errNoArchive
	}
	if p.Log.Epoch() != epoch {
		// Head updates the epoch, and fails if the log has another one than this process thought.
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

	// The stores will be rebuilt from the archive, so it must be the one that contains the
	// deletion.
	if err := p.Archive.Reload(ctx); err != nil {
		return false, err
	}
	if p.Archive.End().Seq < seq {
		return false, errOtherArchive
	}

	// A generation that is being built may have read less of the log, so wait for it.
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

// flushStores waits until every store has folded the log up to the sequence seq, and flushes them.
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

// recordFlushed records that the stores have flushed the deletion at the sequence seq.
func (p *Part) recordFlushed(seq uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setMarkerLocked(snapshot.ErasureState{Epoch: p.marker.Epoch, Flushed: max(seq, p.marker.Flushed)})
}

// recordRebuilt records that the stores were built from the log of an epoch, or are empty.
func (p *Part) recordRebuilt(epoch uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastBuildError = nil
	return p.setMarkerLocked(snapshot.ErasureState{Epoch: max(epoch, p.marker.Epoch), Flushed: p.marker.Flushed})
}

// Clean reports whether all stores were built from the log of this epoch or of a later one. If not,
// it makes sure that they are rebuilt soon; err is the error of the last attempt.
func (p *Part) Clean(ctx context.Context, epoch uint32) (done bool, err error) {
	if p.Log.Epoch() < epoch {
		// Head updates the epoch, if the log can be reached.
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

// RebuildIfErased rebuilds the stores if their files may contain what was scrubbed from the log. It
// also deletes the previous generations of the stores and their scheduled snapshots. The caller has
// called [Part.LockBuilds]. The report has one line for each store.
func (p *Part) RebuildIfErased(ctx context.Context, subscribe rebuild.SubscribeFunc, o rebuild.Options) (report []string, err error) {
	p.mu.Lock()
	due := p.marker.mustRebuild(p.Log)
	epoch := p.Log.Epoch()
	p.mu.Unlock()
	if !due {
		return nil, nil
	}

	// Keep the error for Clean, which tells it to the process that erases. That the rebuild was
	// interrupted says nothing about the stores.
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

	// Remove the snapshots before the rebuild is recorded: a crash in between repeats both.
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

// removeTemporaryStores calls RemoveTemporaryStores.
func (p *Part) removeTemporaryStores(ctx context.Context) error {
	if p.RemoveTemporaryStores == nil {
		return nil
	}
	if err := p.RemoveTemporaryStores(ctx); err != nil {
		return fmt.Errorf("remove temporary stores: %w", err)
	}
	return nil
}

// partitionsToBuild returns, by projection, the partitions that must be built from the log after
// the last erasure. It returns nil, for all partitions, if that is not known, or if the stores have
// missed an erasure before.
func (p *Part) partitionsToBuild() map[string]events.Partitions {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.marker.Epoch != p.Log.LastErasure().Epoch || p.marker.hasMissed(p.Log) {
		return nil
	}
	return p.Log.ErasedPartitions()
}

// rebuildStores makes new generations of stores, which share no file with the present ones, and
// deletes the previous generations: tables and manifests of old generations still contain the keys
// of deleted rows. It builds the given partitions of each projection from the log; those of a
// projection that partitions lacks are all built. It also removes stores of other projections. It
// returns one line for each store.
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
