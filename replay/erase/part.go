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

	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/atomicfile"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/replay/rebuild"
	"github.com/skein-feed/skein/replay/snapshot"
)

// markName is the name of the file of a [Part] in the data directory.
const markName = "erased.json"

// flushWait bounds how long one call of [Part.Flush] waits for the stores.
const flushWait = 5 * time.Second

// ErrMissed means that a user was erased while this process did not take part. Its stores may have folded the scrubbed log from before the
// deletion, and then still have the user's rows. They must be removed, and built anew.
var ErrMissed = errors.New("erase: a user was erased from the log while this node did not take part: start it again, " +
	"and it builds its stores anew")

var (
	errNoArchive    = errors.New("it has no --archive, and could not build its stores from the log that an erasure leaves")
	errOtherArchive = errors.New("its --archive is not the one in which the log is archived")
)

// Part is what a process with stores of its own, a node of a cluster, does when another one erases a user. Its methods are safe for
// concurrent use.
type Part struct {
	// Log, Archive and Stores are those of the process. Archive may be nil.
	Log     *eventlog.Log
	Archive *archive.Archive
	Stores  []*live.Live
	// Snapshots has the snapshots of the stores, whose keeper calls [Part.Erased]; nil means there are none.
	Snapshots bucket.Bucket

	path string
	// builds has one element while somebody builds generations of the stores.
	builds chan struct{}
	// wanted has one element when an erasure was noticed.
	wanted chan struct{}

	mu   sync.Mutex
	mark mark
	// failed is why the last Build failed.
	failed error
}

// mark is what the data directory says of its stores.
type mark struct {
	Version int `json:"version"`
	snapshot.Erased
}

const markVersion = 1

// Open reads what the data directory says of its stores, which must not run yet.
func (p *Part) Open(dir string) error {
	p.path, p.builds, p.wanted = filepath.Join(dir, markName), make(chan struct{}, 1), make(chan struct{}, 1)
	m, found, err := readMark(p.path)
	if err != nil {
		return err
	}
	if p.mark = m; !found && !slices.ContainsFunc(p.Stores, func(s *live.Live) bool { return s.Cursor().Seq > 0 }) {
		if err := p.cleaned(p.Log.Epoch()); err != nil {
			return err
		}
	}
	_, err = p.Look()
	return err
}

func readMark(path string) (m mark, found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.Version != markVersion {
		err = fmt.Errorf("version %d, this program reads %d", m.Version, markVersion)
	}
	if err != nil {
		return m, true, fmt.Errorf("erase: %s: %w", path, err)
	}
	return m, true, nil
}

func (m mark) due(log *eventlog.Log) bool {
	erased := log.Erased()
	return erased.Epoch > 0 && m.Epoch <= erased.Epoch
}

func (m mark) missed(log *eventlog.Log) bool { return m.due(log) && m.Flushed < log.Erased().Seq }

// Stale reports whether the stores in a folder of a data directory must be removed ([Forget]) before they are opened: a user was erased
// whose deletion they have not folded from the log as it was, and to continue in the scrubbed log would keep the user's rows.
func Stale(dir, folder string, log *eventlog.Log) (bool, error) {
	m, found, err := readMark(filepath.Join(dir, markName))
	if err != nil || !m.missed(log) {
		return false, err
	}
	_, err = os.Stat(filepath.Join(dir, folder))
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	return err == nil, err
}

// Forget removes the stores of a data directory in a folder of it, and what is known of them. No process may have them open.
func Forget(dir, folder string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, folder)), os.RemoveAll(filepath.Join(dir, markName)))
}

// Look reports whether files of the stores may have what was scrubbed from the log, so that they are to be built anew ([Part.Build]). It
// fails with [ErrMissed] if they have rows that are wrong, too. It must be called from time to time.
func (p *Part) Look() (due bool, err error) {
	epoch := p.Log.Epoch() // before asking for erasures: the epoch after this one may be that of an erasure
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.missedLocked(); err != nil {
		return true, err
	}
	if p.mark.due(p.Log) {
		select {
		case p.wanted <- struct{}{}:
		default:
		}
		return true, nil
	}
	if p.mark.Epoch < epoch {
		return false, p.writeLocked(snapshot.Erased{Epoch: epoch, Flushed: p.mark.Flushed})
	}
	return false, nil
}

// Epoch returns the first epoch from which on the stores may have what was scrubbed from the log.
func (p *Part) Epoch() uint32 {
	_, _ = p.Look() // the log may have a new epoch; what else it finds is not of interest here
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mark.Epoch
}

// Gives fails if another node, whose stores have nothing of what was scrubbed from the log before an epoch, must not copy rows of this
// one, which may have some.
func (p *Part) Gives(epoch uint32) error {
	if at := p.Epoch(); at < epoch {
		return fmt.Errorf("its stores may have what was scrubbed from the log before epoch %d: they are of epoch %d", epoch, at)
	}
	return nil
}

// Wanted is sent to when Look has found that the stores are to be built anew.
func (p *Part) Wanted() <-chan struct{} { return p.wanted }

func (p *Part) missedLocked() error {
	holds := func(s *live.Live) bool { held := s.Holds(); return held.Len() > 0 }
	if p.mark.missed(p.Log) && slices.ContainsFunc(p.Stores, holds) {
		return ErrMissed
	}
	return nil
}

func (p *Part) writeLocked(e snapshot.Erased) error {
	m := mark{markVersion, e}
	err := writeMark(p.path, m)
	if err == nil {
		p.mark = m
	}
	return err
}

func writeMark(path string, m mark) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'))
}

// Hold waits until nobody builds generations of the stores, and keeps others from it until release is called.
func (p *Part) Hold(ctx context.Context) (release func(), err error) {
	select {
	case p.builds <- struct{}{}:
		return func() { <-p.builds }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Flush has the stores fold the log up to a deletion in the present epoch, and flush. It is done when they have; after some seconds it
// returns that it is not, and is to be called again. With the sequence 0 it only says whether the process can take part.
func (p *Part) Flush(ctx context.Context, epoch uint32, seq uint64) (done bool, err error) {
	if p.Archive == nil {
		return false, errNoArchive
	}
	if p.Log.Epoch() != epoch {
		_, err := p.Log.Head(ctx) // it says which epoch it is
		return false, err
	}
	p.mu.Lock()
	err = p.missedLocked()
	p.mu.Unlock()
	if err != nil || seq == 0 {
		return err == nil, err
	}
	if err := p.Archive.Reload(ctx); err != nil {
		return false, err
	}
	if p.Archive.End().Seq < seq {
		return false, errOtherArchive
	}
	// A generation that is being built may have read less of the log.
	within, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	release, err := p.Hold(within)
	if err != nil {
		return false, ctx.Err()
	}
	defer release()
	if err := flush(within, p.Stores, seq); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = ctx.Err()
		}
		return false, err
	}
	return true, p.flushed(seq)
}

// flush waits until every store has folded the log up to a sequence, and flushes them.
func flush(ctx context.Context, stores []*live.Live, seq uint64) error {
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

// flushed notes that the stores have flushed a deletion.
func (p *Part) flushed(seq uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writeLocked(snapshot.Erased{Epoch: p.mark.Epoch, Flushed: max(seq, p.mark.Flushed)})
}

// cleaned notes that the stores were built from the log of an epoch.
func (p *Part) cleaned(epoch uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = nil
	return p.writeLocked(snapshot.Erased{Epoch: max(epoch, p.mark.Epoch), Flushed: p.mark.Flushed})
}

// Clean reports whether all stores were built from the log of an epoch or a later one. If they were not, they soon are to be, and the
// error is that of the last attempt.
func (p *Part) Clean(ctx context.Context, epoch uint32) (done bool, err error) {
	if p.Log.Epoch() < epoch {
		_, _ = p.Log.Head(ctx) // it says which epoch it is, if it can be reached
	}
	p.mu.Lock()
	done, err = p.mark.Epoch >= epoch, p.failed
	p.mu.Unlock()
	if done {
		return true, nil
	}
	if err == nil {
		_, err = p.Look()
	}
	return false, err
}

// Build builds the stores anew if files of them may have what was scrubbed from the log, and deletes their previous generations and the
// scheduled snapshots of them. The caller holds the builds. The report has a line for each store.
func (p *Part) Build(ctx context.Context, subscribe rebuild.SubscribeFunc, o rebuild.Options) (report []string, err error) {
	p.mu.Lock()
	due, epoch := p.mark.due(p.Log), p.Log.Epoch()
	p.mu.Unlock()
	if !due {
		return nil, nil
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if ctx.Err() == nil {
			p.failed = err
		}
	}()
	if p.Archive == nil {
		return nil, errNoArchive
	}
	if err := p.Archive.Reload(ctx); err != nil {
		return nil, err
	}
	if report, err = buildAnew(ctx, p.Stores, subscribe, o); err != nil {
		return report, err
	}
	if p.Snapshots != nil {
		removed, staying, err := removeSnapshots(ctx, p.Snapshots, "", takenBefore(epoch))
		if err != nil {
			return report, err
		}
		if len(removed) > 0 {
			report = append(report, removedLine(removed))
		}
		if len(staying) > 0 {
			report = append(report, "left: "+stayingLine(p.Snapshots, staying))
		}
	}
	return report, p.cleaned(epoch)
}

// buildAnew rebuilds stores: tables and manifests of the old generations still have the keys of deleted rows.
func buildAnew(
	ctx context.Context, stores []*live.Live, subscribe rebuild.SubscribeFunc, o rebuild.Options,
) (lines []string, err error) {
	for _, s := range stores {
		report, err := rebuild.Rebuild(ctx, s, subscribe, o)
		if err == nil {
			err = s.DeletePrevious(ctx)
		}
		if err != nil {
			return lines, fmt.Errorf("build %s anew: %w", s.Name(), err)
		}
		lines = append(lines, s.Name()+": "+report)
	}
	return lines, nil
}
