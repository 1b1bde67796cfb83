package erase

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// errRebuildPending is the error of [Part.ErasureState] between an erasure and the rebuild of the
// stores.
var errRebuildPending = fmt.Errorf("%w, because a user was erased", snapshot.ErrRebuildPending)

// ErasureState returns what the manifest of a snapshot that is taken now must say. It fails with
// [snapshot.ErrRebuildPending] while the stores must be rebuilt. It also fails if the log does not answer, because a process without a
// connection does not learn of erasures.
func (p *Part) ErasureState(ctx context.Context) (*snapshot.ErasureState, error) {
	// Head updates the epoch of the log.
	if _, err := p.Log.Head(ctx); err != nil {
		return nil, err
	}

	due, err := p.CheckErasures()
	if err == nil && due {
		err = errRebuildPending
	}
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return new(p.marker.ErasureState), nil
}

// RecordRestoredStore updates the marker of the data directory dir when a store from a snapshot is
// about to appear in a folder of the directory. restored is what the manifest of the snapshot says;
// nil means that it says nothing. Afterwards, the marker holds for this store as well as for those
// that were there.
func RecordRestoredStore(dir, folder string, restored *snapshot.ErasureState) error {
	path := filepath.Join(dir, markerName)
	m, found, err := readMarker(path)
	if err != nil {
		return err
	}

	switch {
	case !found && restored == nil:
		return nil // nothing is known of any store
	case restored == nil:
		// Nothing is known of the restored store.
		m.ErasureState = snapshot.ErasureState{}
	case found:
		// What holds for all stores is what holds for the one that has gone through the fewest
		// erasures.
		m.Epoch = min(m.Epoch, restored.Epoch)
		m.Flushed = min(m.Flushed, restored.Flushed)
	default:
		// The directory is not part of the pattern, because its path may have brackets.
		stores, err := fs.Glob(os.DirFS(filepath.Join(dir, folder)), "*/[0-9]*")
		if err != nil || len(stores) > 0 {
			// Nothing is known of the stores that are there, so nothing must be claimed.
			return err
		}
		m.ErasureState = *restored
	}
	m.Version = markerVersion
	return writeMarker(path, m)
}

// mayHaveErasedBefore returns a function that reports whether a snapshot may contain what was
// scrubbed from the epochs before epoch, because the stores of which it was taken may contain it.
func mayHaveErasedBefore(epoch uint32) func(snapshot.ListedSnapshot) bool {
	return func(l snapshot.ListedSnapshot) bool {
		return l.Manifest == nil || l.Manifest.Erased == nil || l.Manifest.Erased.Epoch < epoch
	}
}

// removeSnapshots removes the scheduled snapshots that may contain the user, and files that an
// interrupted snapshot has left. A snapshot that was taken by hand stays until an operator removes
// it by its name. removeSnapshots returns the names of the removed snapshots, each with prefix
// before it, and the names of those that stay although they may contain the user.
func removeSnapshots(
	ctx context.Context, b bucket.Bucket, prefix string, mayHaveUser func(snapshot.ListedSnapshot) bool,
) (removed, staying []string, err error) {
	done, err := snapshot.RemoveIf(ctx, b, func(l snapshot.ListedSnapshot) bool {
		if !mayHaveUser(l) {
			return false
		}
		if l.Manifest != nil && !l.Manifest.Scheduled {
			staying = append(staying, l.Snapshot)
			return false
		}
		return true
	})
	if err == nil && len(done.Unreadable) > 0 {
		err = fmt.Errorf("%v cannot be read", done.Unreadable)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("remove snapshots: %w", err)
	}

	for _, s := range done.Snapshots {
		name, _, _ := strings.Cut(s, "/")
		removed = append(removed, prefix+name)
	}
	slices.Sort(removed)
	slices.Sort(staying) // a snapshot of several projections is in the list several times
	return slices.Compact(removed), slices.Compact(staying), nil
}

// remainingSnapshotsLine says what an operator has to do about snapshots that stay.
func remainingSnapshotsLine(b bucket.Bucket, names []string) string {
	return fmt.Sprintf("snapshots that were taken by hand stay, and may contain the user: %s; skein snapshot prune --target %s NAME removes one",
		strings.Join(names, ", "), b)
}

// removedSnapshotsLine lists the snapshots that were removed.
func removedSnapshotsLine(names []string) string {
	return "snapshots removed: " + strings.Join(names, ", ")
}

// replaceOwnSnapshots takes a new snapshot, so that there is always one, and then removes all other
// scheduled ones of this process.
func (o *Options) replaceOwnSnapshots(ctx context.Context, r *Report, p *replay.Progress) (err error) {
	if o.Bucket == nil {
		return nil
	}
	var newName string
	if o.Scheduler != nil {
		taken, err := o.Scheduler.TakeNow(ctx, p)
		if err != nil {
			return fmt.Errorf("take a snapshot: %w", err)
		}
		newName = taken.Name
	}

	var staying []string
	r.Snapshots, staying, err = removeSnapshots(ctx, o.Bucket, "", func(l snapshot.ListedSnapshot) bool {
		return l.Snapshot != newName
	})
	if len(staying) > 0 {
		r.OperatorTasks = append(r.OperatorTasks, remainingSnapshotsLine(o.Bucket, staying))
	}
	return err
}

// removeSharedSnapshots removes the snapshots from before the erasure from the shared bucket: those
// of all nodes, even of nodes that no longer exist, and those of processes that hold all
// partitions.
func (o *Options) removeSharedSnapshots(ctx context.Context, r *Report, began time.Time) error {
	if o.Shared == nil {
		if o.Nodes != nil {
			r.OperatorTasks = append(r.OperatorTasks, "snapshots of nodes that are gone, if there are any: this node has no --snapshots")
		}
		return nil
	}
	nodes, err := snapshot.Nodes(ctx, o.Shared)
	if err != nil {
		return err
	}

	removeFrom := func(b bucket.Bucket, prefix string) error {
		removed, staying, err := removeSnapshots(ctx, b, prefix, mayHaveErasedBefore(r.Epoch))
		r.Snapshots = append(r.Snapshots, removed...)
		// replaceOwnSnapshots has reported those in the bucket of this process.
		isOwn := o.Bucket != nil && b.String() == o.Bucket.String()
		if len(staying) > 0 && !isOwn {
			r.OperatorTasks = append(r.OperatorTasks, remainingSnapshotsLine(b, staying))
		}
		return errors.Join(err, removeUnfinishedFilesOf(b, began))
	}

	if err := removeFrom(o.Shared, ""); err != nil {
		return err
	}
	for _, name := range nodes {
		b, err := snapshot.OfNode(o.Shared, name)
		if err == nil {
			err = removeFrom(b, "nodes/"+name+"/")
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}
