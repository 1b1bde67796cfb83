package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events/bucket"
)

// Pruned is the result of [Prune] and [Remove].
type Pruned struct {
	// Snapshots are the removed snapshots: <snapshot>/<projection>.
	Snapshots []string
	// Files is the number of removed files, which no manifest named, and Bytes their size.
	Files int
	Bytes int64
	// Unreadable are manifests that cannot be read. While there are any, no file is removed, since they may name it.
	Unreadable []string
}

// String returns the result for people.
func (p Pruned) String() string {
	text := fmt.Sprintf("removed %d snapshots and %d files, %d bytes", len(p.Snapshots), p.Files, p.Bytes)
	if len(p.Unreadable) > 0 {
		text += fmt.Sprintf("; no files, since these cannot be read and may name them: %v", p.Unreadable)
	}
	return text
}

// Prune removes the scheduled snapshots of each projection but the latest keep ones, and files that no snapshot names. A keep of 0 keeps
// all. Snapshots that were taken on request are only removed by name.
func Prune(ctx context.Context, b bucket.Bucket, keep int) (done Pruned, err error) {
	err = claimed(ctx, b, "prune", func(ctx context.Context) error {
		done, err = prune(ctx, b, keep)
		return err
	})
	return done, err
}

// Remove removes the snapshots of these names, damaged ones too, and the files that no other snapshot names. If one of the names does not
// exist, it returns [ErrNone] and removes nothing.
func Remove(ctx context.Context, b bucket.Bucket, names ...string) (done Pruned, err error) {
	err = claimed(ctx, b, "remove", func(ctx context.Context) error {
		objects, err := b.List(ctx, manifestPrefix)
		if err != nil {
			return err
		}
		var gone []string
		for _, name := range names {
			before := len(gone)
			for _, o := range objects {
				if snapshot, _, ok := parseManifestName(o.Name); ok && snapshot == name {
					gone = append(gone, o.Name)
				}
			}
			if len(gone) == before {
				return fmt.Errorf("%w: %q in %s", ErrNone, name, b)
			}
		}
		done, err = removeAll(ctx, b, gone)
		return err
	})
	return done, err
}

// RemoveIf removes the snapshots of which gone returns true, and the files that no other snapshot names. Those that were being taken when
// it was called are among them: it waits for them ([WhenFree]).
func RemoveIf(ctx context.Context, b bucket.Bucket, gone func(Listed) bool) (done Pruned, err error) {
	err = WhenFree(ctx, func() error {
		return claimed(ctx, b, "remove", func(ctx context.Context) error {
			list, err := List(ctx, b)
			if err != nil {
				return err
			}
			var manifests []string
			for _, l := range list {
				if gone(l) {
					manifests = append(manifests, manifestName(l.Snapshot, l.Projection))
				}
			}
			done, err = removeAll(ctx, b, manifests)
			return err
		})
	})
	return done, err
}

func prune(ctx context.Context, b bucket.Bucket, keep int) (Pruned, error) {
	list, err := List(ctx, b)
	if err != nil {
		return Pruned{}, err
	}
	return removeAll(ctx, b, beyond(list, keep))
}

// beyond returns the manifests beyond the kept ones, the oldest first.
func beyond(list []Listed, keep int) (gone []string) {
	counted := map[string]int{}
	for _, l := range slices.Backward(list) {
		if l.Err != nil || !l.Manifest.Scheduled {
			continue
		}
		if counted[l.Projection]++; keep > 0 && counted[l.Projection] > keep {
			gone = append(gone, manifestName(l.Snapshot, l.Projection))
		}
	}
	slices.Reverse(gone)
	return gone
}

// removeAll removes manifests, then the files that no manifest names any more. In the other order, a crash would leave manifests whose
// files are gone.
func removeAll(ctx context.Context, b bucket.Bucket, manifests []string) (done Pruned, err error) {
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

func sortByTime(list []Listed) {
	slices.SortStableFunc(list, func(a, b Listed) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Snapshot, b.Snapshot), cmp.Compare(a.Projection, b.Projection))
	})
}

// find returns the manifest of a projection's snapshot; an empty name means the latest.
func find(ctx context.Context, b bucket.Bucket, snapshot, projection string) (*Manifest, error) {
	if snapshot != "" {
		if !nameForm.MatchString(snapshot) {
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
