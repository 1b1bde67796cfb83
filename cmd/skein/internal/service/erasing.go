package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/cmd/skein/internal/node"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/placement"
	"github.com/skein-feed/skein/gateway/operator"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/erase"
	"github.com/skein-feed/skein/replay/operation"
	"github.com/skein-feed/skein/replay/snapshot"
)

// removeStoresOfMissedErasure removes the stores of this node if a user was erased while the node
// did not take part, for example because the node was not running. The node then builds its stores
// like a new node. The function must be called before the stores are opened.
//
// Outside of a cluster, where config is nil, the function does nothing: there, the process that has
// the stores performs all erasures itself, so it misses none. If another process erases a user
// nevertheless, an operator must rebuild the stores of this one (docs/replay.md).
func (s *Service) removeStoresOfMissedErasure(config *node.Config) error {
	if config == nil {
		return nil
	}
	missed, err := erase.HasMissedErasure(s.dir, StoresDir, s.log)
	if err != nil || !missed {
		return err
	}

	// Open each store, which fails if another process has the store open: the files must not be
	// removed while that process uses them. The lock of the data directory does not suffice,
	// because commands that only read stores do not take that lock.
	for _, newProjection := range all.Constructors(s.settings) {
		projection, err := live.Open(live.Options{New: newProjection, Options: store.Options{
			Dir: filepath.Join(s.dir, StoresDir), Partitioned: true, ReadOnly: true,
		}})
		if errors.Is(err, projections.ErrNoStore) {
			continue
		}
		if err == nil {
			err = projection.Close()
		}
		if err != nil {
			return err
		}
	}
	s.logger.Warn("a user was erased while this node was not running: its stores are removed and will be rebuilt", "dir", s.dir)
	return erase.RemoveStores(s.dir, StoresDir)
}

// removeLeftovers removes the copies of stores that a killed snapshot has left, and what was
// prepared, completely or not, from another log or another epoch than the present one. These files
// may have rows of a user who was erased since they were written. What was prepared from the
// present epoch stays. The function must be called before snapshots are taken.
//
// removeLeftovers only logs errors. The files that it could not remove stay until the next start or
// the next erasure. If the erasure cannot remove them either, the erasure fails.
func (s *Service) removeLeftovers() {
	err := errors.Join(
		os.RemoveAll(s.snapshotScratch()),
		live.RemoveOutdatedPreparations(vfs.Default, filepath.Join(s.dir, StoresDir), s.log.ID(), s.log.Epoch()),
	)
	if err != nil {
		s.logger.Warn("what killed preparations and snapshots have left cannot be removed", "error", err)
	}
}

// rebuildAfterErasure rebuilds the stores of this node after a user was erased from the log, and
// returns when the rebuild has ended. It returns an error if the rebuild has failed. The rebuild is
// an operation of the kind Erase, so operators see the rebuild, and no other operation runs
// meanwhile.
//
// If another operation is under way, no rebuild is started. That operation may be the erasure
// itself, if this process performs the erasure. rebuildAfterErasure then waits for the end of that
// operation and returns nil, even if that operation has failed. The caller then checks again
// whether a rebuild is needed.
//
// In both cases the function returns an error if ctx ends before the operation does.
func (s *Service) rebuildAfterErasure(ctx context.Context) error {
	startTime := time.Now()
	started, err := s.Operations.Start(operation.Erase, "", requestArgs{}, s.rebuildErasedStores)
	if conflict, ok := errors.AsType[*operation.ConflictError](err); ok {
		_, err := s.awaitOperation(ctx, conflict.With.ID)
		return err
	}
	if err != nil {
		return err
	}

	ended, err := s.awaitOperation(ctx, started.ID)
	if err != nil {
		return err
	}
	if ended.State != operation.Succeeded {
		return errors.New(ended.Error)
	}
	s.logger.Info("the stores were rebuilt after the erasure of a user", "took", time.Since(startTime).Round(time.Millisecond))
	return nil
}

// rebuildErasedStores performs the operation that rebuildAfterErasure starts. The report has the
// lines of [erase.Part.RebuildIfErased], and another line if no new snapshot could be taken. The
// report is empty if the stores did not have to be rebuilt.
func (s *Service) rebuildErasedStores(ctx context.Context, p *replay.Progress) (report string, err error) {
	release, err := s.erasure.LockBuilds(ctx)
	if err != nil {
		return "", err
	}
	// A share of 0 does not limit the rebuild.
	lines, err := s.erasure.RebuildIfErased(ctx, s.subscribeKinds, s.rebuildOptions(ctx, 0, p))
	release()
	if err != nil {
		return strings.Join(lines, "\n"), err
	}

	// RebuildIfErased has removed the scheduled snapshots of the old stores, because they may have
	// the user. Take a new snapshot, so that the node has one. If that fails, the operation
	// succeeds nevertheless, because the stores were rebuilt.
	if len(lines) > 0 && s.snapshots != nil {
		if _, err := s.snapshots.TakeNow(ctx, p); err != nil {
			// An error may name users, and RemoveTexts keeps the reports of operations of this
			// kind. So the error must not be part of the report.
			s.logger.Error("no snapshot of the new stores was taken", "error", err)
			lines = append(lines, "no snapshot of the new stores was taken; the log of the service says why")
		}
	}
	// Reports and errors of earlier operations may name the user, so remove them.
	return strings.Join(lines, "\n"), s.Operations.RemoveTexts()
}

// removeTemporaryStores removes the temporary stores that may have rows from before the log was
// scrubbed: shadows of verifications, copies of stores for snapshots, and stores that killed
// restores of snapshots have left. It ends the verification of the auditor that is under way, and
// waits while a snapshot is taken.
//
// [erase.Erase] and [erase.Part.RebuildIfErased] call the function in an operation of the kind
// Erase. Such an operation excludes all others, so no operator's verification or repair uses the
// shadows that are removed.
func (s *Service) removeTemporaryStores(ctx context.Context) error {
	var errs []error
	if s.Auditor != nil {
		errs = append(errs, s.Auditor.EndVerification(ctx))
	}
	for _, projection := range s.Stores {
		home := filepath.Join(s.dir, StoresDir, projection.Name())
		for _, name := range []string{verifyDirName, verifyDirName + ".parts", snapshot.RestoringDir} {
			errs = append(errs, os.RemoveAll(filepath.Join(home, name)))
		}
	}
	if s.snapshots == nil {
		errs = append(errs, os.RemoveAll(s.snapshotScratch()))
	} else {
		errs = append(errs, s.snapshots.RemoveCopies(ctx))
	}
	return errors.Join(errs...)
}

// awaitOperation waits until an operation ends, and returns the operation as it is then. It returns
// an error if it cannot wait until then, for example because ctx ends, but not if the operation has
// failed: ended says so.
func (s *Service) awaitOperation(ctx context.Context, id string) (ended operation.Info, err error) {
	err = s.Operations.Watch(ctx, id, func(i operation.Info) error {
		ended = i
		return nil
	})
	return ended, err
}

// bucketOfAllSnapshots returns the bucket that contains the buckets with the snapshots of all nodes
// ([snapshot.OfNode]). It returns nil outside of a cluster, and if this process takes no snapshots.
func (s *Service) bucketOfAllSnapshots() bucket.Bucket {
	if s.node == nil {
		return nil
	}
	return s.options.Snapshots
}

// checkNoCluster returns [operator.ErrNotPossible] if the log belongs to a cluster, which is the
// case if the servers of the log have the bucket of the placement. It is called before an erasure
// by a process that is not a node. Such a process must not erase a user from the log of a cluster,
// because it does not know the nodes, and they would not take part.
func (s *Service) checkNoCluster(ctx context.Context) error {
	name := placement.BucketName(fmt.Sprintf("%x", s.log.ID()))
	exists, err := s.log.HasBucket(ctx, name)
	if err != nil || !exists {
		return err
	}
	return fmt.Errorf("%w: the log belongs to a cluster, and this process is not a node of it: erase at the node that archives the log; "+
		"if the cluster has no nodes any more, delete the bucket %s", operator.ErrNotPossible, name)
}
