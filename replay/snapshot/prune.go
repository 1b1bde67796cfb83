package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events/bucket"
)

// PruneReport says what [Prune], [Remove] or [RemoveIf] has removed.
type PruneReport struct {
	// Snapshots are the removed snapshots, as SNAPSHOT/PROJECTION.
	Snapshots []string
	// Files is the number of files that were removed because no manifest names them. Bytes is their
	// total size.
	Files int
	Bytes int64
	// Unreadable are manifests that cannot be read. If there are any, no file is removed, because
	// they may name it.
	Unreadable []string
}

// String describes the result to people.
func (p PruneReport) String() string {
	text := fmt.Sprintf("removed %d snapshots and %d files, %d bytes", len(p.Snapshots), p.Files, p.Bytes)
	if len(p.Unreadable) > 0 {
		text += fmt.Sprintf("; no files were removed, because these manifests cannot be read and may name them: %v", p.Unreadable)
	}
	return text
}

// Prune keeps the latest keep scheduled snapshots of each projection and removes the others, and
// files that no snapshot names. If keep is 0, it keeps all snapshots. Snapshots that were taken on
// request are removed only by their names.
func Prune(ctx context.Context, b bucket.Bucket, keep int) (done PruneReport, err error) {
	err = withClaim(ctx, b, "prune", func(ctx context.Context) error {
		done, err = pruneClaimed(ctx, b, keep)
		return err
	})
	return done, err
}

// Remove removes the snapshots with these names, even damaged ones, and the files that no other
// snapshot names. If there is no snapshot of one of the names, Remove returns [ErrNone] and removes
// nothing.
func Remove(ctx context.Context, b bucket.Bucket, names ...string) (done PruneReport, err error) {
	err = withClaim(ctx, b, "remove", func(ctx context.Context) error {
		objects, err := b.List(ctx, manifestPrefix)
		if err != nil {
			return err
		}

		var manifests []string
		for _, name := range names {
			before := len(manifests)
			for _, o := range objects {
				if snapshot, _, ok := parseManifestName(o.Name); ok && snapshot == name {
					manifests = append(manifests, o.Name)
				}
			}
			if len(manifests) == before {
				return fmt.Errorf("%w: %q in %s", ErrNone, name, b)
			}
		}
		done, err = removeWithFiles(ctx, b, manifests)
		return err
	})
	return done, err
}

// RemoveIf removes the snapshots for which isUnwanted returns true, and the files that no other
// snapshot names. It waits for snapshots that are being taken ([RetryWhileBusy]), and asks
// isUnwanted about them, too.
func RemoveIf(ctx context.Context, b bucket.Bucket, isUnwanted func(ListedSnapshot) bool) (done PruneReport, err error) {
	err = RetryWhileBusy(ctx, func() error {
		return withClaim(ctx, b, "remove", func(ctx context.Context) error {
			list, err := List(ctx, b)
			if err != nil {
				return err
			}
			var manifests []string
			for _, l := range list {
				if isUnwanted(l) {
					manifests = append(manifests, manifestName(l.Snapshot, l.Projection))
				}
			}
			done, err = removeWithFiles(ctx, b, manifests)
			return err
		})
	})
	return done, err
}

// pruneClaimed does the work of Prune. The caller holds the claim.
func pruneClaimed(ctx context.Context, b bucket.Bucket, keep int) (PruneReport, error) {
	list, err := List(ctx, b)
	if err != nil {
		return PruneReport{}, err
	}
	return removeWithFiles(ctx, b, surplusManifests(list, keep))
}

// surplusManifests returns the manifests of the scheduled snapshots that are not among the latest
// keep of their projection, oldest first.
func surplusManifests(list []ListedSnapshot, keep int) (surplus []string) {
	newer := map[string]int{} // the number of scheduled snapshots per projection, so far
	for _, l := range slices.Backward(list) {
		if l.Err != nil || !l.Manifest.Scheduled {
			continue
		}
		newer[l.Projection]++
		if keep > 0 && newer[l.Projection] > keep {
			surplus = append(surplus, manifestName(l.Snapshot, l.Projection))
		}
	}
	slices.Reverse(surplus)
	return surplus
}

// removeWithFiles removes manifests, and then the files that no other manifest names. In the
// opposite order, a crash would leave manifests whose files are missing.
func removeWithFiles(ctx context.Context, b bucket.Bucket, manifests []string) (done PruneReport, err error) {
	for _, object := range manifests {
		if err := b.Delete(ctx, object); err != nil {
			return done, err
		}
		snapshot, projection, _ := parseManifestName(object)
		done.Snapshots = append(done.Snapshots, snapshot+"/"+projection)
	}

	files, err := b.List(ctx, filePrefix)
	if err != nil {
		return done, err
	}
	list, err := List(ctx, b)
	if err != nil {
		return done, err
	}

	// Keep the files that the remaining manifests name.
	named := map[string]bool{}
	for _, l := range list {
		if l.Err != nil {
			done.Unreadable = append(done.Unreadable, l.Snapshot+"/"+l.Projection)
			continue
		}
		for _, f := range l.Manifest.Files {
			named[f.object()] = true
		}
	}
	if len(done.Unreadable) > 0 {
		return done, nil
	}

	for _, o := range files {
		if named[o.Name] {
			continue
		}
		if err := b.Delete(ctx, o.Name); err != nil {
			return done, err
		}
		done.Files++
		done.Bytes += o.Size
	}
	return done, nil
}

// sortByTime sorts snapshots from the oldest to the latest.
func sortByTime(list []ListedSnapshot) {
	slices.SortStableFunc(list, func(a, b ListedSnapshot) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Snapshot, b.Snapshot), cmp.Compare(a.Projection, b.Projection))
	})
}

// findManifest returns the manifest of a snapshot of a projection. An empty name means the latest
// snapshot.
func findManifest(ctx context.Context, b bucket.Bucket, snapshot, projection string) (*Manifest, error) {
	if snapshot != "" {
		if !namePattern.MatchString(snapshot) {
			return nil, fmt.Errorf("%w: %q", ErrName, snapshot)
		}
		return readManifest(ctx, b, manifestName(snapshot, projection))
	}

	list, err := List(ctx, b)
	if err != nil {
		return nil, err
	}
	for _, l := range slices.Backward(list) {
		if l.Projection != projection {
			continue
		}
		if l.Err != nil {
			return nil, errors.Join(l.Err, errors.New("this is the latest snapshot: choose another one by its name, or remove it"))
		}
		return l.Manifest, nil
	}
	return nil, fmt.Errorf("%w: none of %s in %s", ErrNone, projection, b)
}
