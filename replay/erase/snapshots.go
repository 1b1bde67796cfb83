package erase

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// errDue means that no snapshot is taken now, and the keeper tries again.
var errDue = fmt.Errorf("%w: a user was erased, and the stores are built anew before a snapshot of them is taken", snapshot.ErrBusy)

// Erased returns what a snapshot says that is taken now. It fails while the stores are to be built anew, and if the log does not answer:
// a process that is cut off does not learn of an erasure.
func (p *Part) Erased(ctx context.Context) (*snapshot.Erased, error) {
	if _, err := p.Log.Head(ctx); err != nil { // it says which epoch it is
		return nil, err
	}
	due, err := p.Look()
	if err == nil && due {
		err = errDue
	}
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return new(p.mark.Erased), nil
}

// Restored notes in a data directory that a store of a snapshot is about to appear in a folder of it. What the directory says then holds
// for this store and for those that it has.
func Restored(dir, folder string, of *snapshot.Erased) error {
	path := filepath.Join(dir, markName)
	m, found, err := readMark(path)
	if err != nil {
		return err
	}
	var none snapshot.Erased
	switch {
	case !found && of == nil:
		return nil
	case of == nil:
		m.Erased = none
	case found:
		m.Epoch, m.Flushed = min(m.Epoch, of.Epoch), min(m.Flushed, of.Flushed)
	default:
		stores, err := filepath.Glob(filepath.Join(dir, folder, "*", "[0-9]*"))
		if err != nil || len(stores) > 0 { // nothing is known of these
			return err
		}
		m.Erased = *of
	}
	m.Version = markVersion
	return writeMark(path, m)
}

// takenBefore returns whether a snapshot may have what was scrubbed from the epochs before one: it was taken from stores that may have it.
func takenBefore(epoch uint32) func(snapshot.Listed) bool {
	return func(l snapshot.Listed) bool {
		return l.Manifest == nil || l.Manifest.Erased == nil || l.Manifest.Erased.Epoch < epoch
	}
}

// removeSnapshots removes the scheduled snapshots that may have the user, and files that an interrupted one has left. A snapshot that was
// taken by hand stays until an operator removes it by name. It returns the names of the removed ones, after the name of the bucket, and the
// names of those that stay although they may have the user.
func removeSnapshots(
	ctx context.Context, b bucket.Bucket, of string, mayHaveUser func(snapshot.Listed) bool,
) (removed, staying []string, err error) {
	done, err := snapshot.RemoveIf(ctx, b, func(l snapshot.Listed) bool {
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
		removed = append(removed, of+name)
	}
	slices.Sort(removed)
	slices.Sort(staying) // one that has several projections is there several times
	return slices.Compact(removed), slices.Compact(staying), nil
}

// stayingLine says what an operator has to do about snapshots that stay.
func stayingLine(b bucket.Bucket, names []string) string {
	return fmt.Sprintf("snapshots that were taken by hand stay, and may have the user: %s; skein snapshot prune --target %s NAME removes one",
		strings.Join(names, ", "), b)
}

func removedLine(names []string) string { return "snapshots removed: " + strings.Join(names, ", ") }

// cleanSnapshots takes a new snapshot first, so that there is always one, then removes all other scheduled ones of this process.
func (o *Options) cleanSnapshots(ctx context.Context, r *Report, p *replay.Progress) (err error) {
	if o.Bucket == nil {
		return nil
	}
	var after string
	if o.Keeper != nil {
		taken, err := o.Keeper.TakeNow(ctx, p)
		if err != nil {
			return fmt.Errorf("take a snapshot: %w", err)
		}
		after = taken.Name
	}
	var staying []string
	r.Snapshots, staying, err = removeSnapshots(ctx, o.Bucket, "", func(l snapshot.Listed) bool { return l.Snapshot != after })
	if len(staying) > 0 {
		r.Left = append(r.Left, stayingLine(o.Bucket, staying))
	}
	return err
}

// cleanShared removes snapshots that nodes have taken before the erasure, also of nodes that are gone, and those of processes that hold all
// partitions.
func (o *Options) cleanShared(ctx context.Context, r *Report, began time.Time) error {
	if o.Shared == nil {
		if o.Part != nil {
			r.Left = append(r.Left, "snapshots of nodes that are gone, if there are any: this node has no --snapshots")
		}
		return nil
	}
	nodes, err := snapshot.Nodes(ctx, o.Shared)
	if err != nil {
		return err
	}
	clean := func(b bucket.Bucket, of string) error {
		removed, staying, err := removeSnapshots(ctx, b, of, takenBefore(r.Epoch))
		r.Snapshots = append(r.Snapshots, removed...)
		if own := o.Bucket; len(staying) > 0 && (own == nil || b.String() != own.String()) { // cleanSnapshots has named those
			r.Left = append(r.Left, stayingLine(b, staying))
		}
		return errors.Join(err, cleanBucket(b, began))
	}
	if err := clean(o.Shared, ""); err != nil {
		return err
	}
	for _, name := range nodes {
		b, err := snapshot.OfNode(o.Shared, name)
		if err == nil {
			err = clean(b, "nodes/"+name+"/")
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}
