package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// foldAndResize folds envs for the partitions in from. It then resizes a copy of the store to the
// partitions in to, with partitions that are built from addedEnvs, and returns the rows of the copy.
func foldAndResize(
	t fataler, newProjection func() projections.Projection, envs, addedEnvs []*events.Envelope, from, to events.Partitions,
) (rows Rows, err error) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	name := newProjection().Name()
	ctx := context.Background()

	// Fold, and copy the store.
	opened, err := store.Open(store.Options{FS: fs, Dir: dataDir, Projection: newProjection(), Partitions: &from})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	dir := "copy/" + name + "/000001"
	if err = fs.MkdirAll("copy/"+name, 0o755); err == nil {
		err = opened.Fold(envs)
	}
	if err == nil {
		_, err = opened.Checkpoint(ctx, dir)
	}
	if err = errors.Join(err, opened.Close()); err != nil {
		t.Fatalf("copy: %v", err)
	}

	// Build the partitions that are missing, in one or two parts.
	var added []string
	for _, part := range splitPartitions(to.Without(&from)) {
		added = append(added, fmt.Sprint("added", len(added)))
		b, err := build.New(build.Options{FS: fs, Dir: added[len(added)-1], New: newProjection, Partitions: &part})
		if err == nil {
			err = errors.Join(b.Add(addedEnvs), b.Finish(ctx), b.Close())
		}
		if err != nil {
			t.Fatalf("build: %v", err)
		}
	}

	if err := store.ResizeCopy(ctx, fs, dir, newProjection(), to, added...); err != nil {
		return nil, err
	}
	if names, _ := fs.List("copy/" + name); len(names) != 1 {
		t.Fatalf("got the directories %v, want the copy only", names)
	}

	// A power cut after the call loses nothing of the copy.
	for _, dir := range []string{"/", "copy", "copy/" + name} {
		syncDir(t, fs, dir)
	}
	fs = fs.CrashClone(vfs.CrashCloneCfg{})

	opened, err = store.Open(store.Options{FS: fs, Dir: "copy", Projection: newProjection(), Partitions: &to})
	if err != nil {
		t.Fatalf("open the copy: %v", err)
	}
	rows, err = readRows(opened)
	return rows, errors.Join(err, opened.Close())
}

// syncDir syncs the names in a directory, which the owner of the copy does.
func syncDir(t fataler, fs vfs.FS, dir string) {
	t.Helper()
	d, err := fs.OpenDir(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		t.Fatalf("sync %s: %v", dir, err)
	}
}

// splitPartitions divides a set into at most two sets that are not empty.
func splitPartitions(s events.Partitions) (parts []events.Partitions) {
	var low events.Partitions
	for p := range events.NumPartitions / 2 {
		if s.Has(uint8(p)) {
			low.Add(uint8(p))
		}
	}
	for _, part := range []events.Partitions{low, s.Without(&low)} {
		if part.Len() > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// homesOf returns the partitions of all users and items of a history.
func homesOf(envs []*events.Envelope) (s events.Partitions) {
	for _, env := range envs {
		for _, ev := range env.Events {
			for _, id := range []string{ev.User, ev.Peer, ev.Item} {
				if id != "" {
					s.AddHome(id)
				}
			}
		}
	}
	return s
}

// removePartition removes a partition from a set.
func removePartition(s *events.Partitions, partition uint8) {
	var removed events.Partitions
	removed.Add(partition)
	*s = s.Without(&removed)
}

// TestResizedCopyEqualsFold checks for every history that a store that is resized from any set of
// partitions to any other has the same rows as a fold for that set.
func TestResizedCopyEqualsFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs, from, _ := drawPartitions(t)
		to := rapid.SampledFrom([]events.Partitions{
			{}, events.AllPartitions(), from, randomPartitions(rapid.Uint64().Draw(t, "to")),
		}).Draw(t, "of them")

		// Let both sets have some partitions that the history has rows in, or only one of them.
		// There are few such partitions.
		homes := homesOf(envs)
		_ = homes.Each(func(partition uint8) error {
			switch rapid.IntRange(0, 4).Draw(t, "home") {
			case 0:
				from.Add(partition)
				to.Add(partition)
			case 1:
				from.Add(partition)
				removePartition(&to, partition)
			case 2:
				removePartition(&from, partition)
				to.Add(partition)
			}
			return nil
		})

		for i, p := range all.All(smallSettings()) {
			newProjection := func() projections.Projection { return all.All(smallSettings())[i] }
			rows, err := foldAndResize(t, newProjection, envs, envs, from, to)
			if err != nil {
				t.Fatalf("%s: %v", p.Name(), err)
			}
			if diff := rows.Diff(foldPartitions(t, p, envs, store.Bounds{}, &to)); diff != "" {
				t.Fatalf("%s: rows of a copy resized from partitions %s to %s differ from those of a fold:\n%s", p.Name(), &from, &to, diff)
			}
		}
	})
}

// TestResizeRefusesForeignRows checks that rows of another part of the log, or of partitions that
// are not missing, are not added.
func TestResizeRefusesForeignRows(t *testing.T) {
	newGraph := all.Constructors(smallSettings())[0]
	envs := histories.Envelopes(histories.Fixed(1, 300))
	from := randomPartitions(1)
	to := randomPartitions(2)

	const laterError = "the added partitions do not go"
	_, err := foldAndResize(t, newGraph, envs[:200], envs, from, to)
	if err == nil || !strings.Contains(err.Error(), laterError) {
		t.Errorf("rows of a later position: got error %v, want one that contains %q", err, laterError)
	}

	const earlierError = "of the store"
	_, err = foldAndResize(t, newGraph, envs, envs[:1], from, to)
	if err == nil || !strings.Contains(err.Error(), earlierError) {
		t.Errorf("rows of an earlier position: got error %v, want one that contains %q", err, earlierError)
	}
}
