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
// was not running. The node then builds its stores like a new node. Outside of a cluster, where
// config is nil, the function does nothing.
func (s *Service) removeStoresOfMissedErasure(config *node.Config) error {
	if config == nil {
		return nil
	}
	stale, err := erase.HasMissedErasure(s.dir, StoresDir, s.log)
	if err != nil || !stale {
		return err
	}

	// Open each store to make sure that no other process uses it: its files must not be removed
	// under that process.
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

// removeLeftovers removes what killed preparations and snapshots have left, because it may have
// rows of a user who was erased since. It only logs errors: the next erasure removes what is left,
// or fails.
func (s *Service) removeLeftovers() {
	err := errors.Join(
		os.RemoveAll(s.snapshotScratch()),
		live.RemoveOutdatedPreparations(vfs.Default, filepath.Join(s.dir, StoresDir), s.log.ID(), s.log.Epoch()),
	)
	if err != nil {
		s.logger.Warn("what killed preparations and snapshots have left cannot be removed", "error", err)
	}
}

// rebuildAfterErasure rebuilds the stores of this node after a user was erased from the log. It
// does so as an operation, so that operators see the rebuild and no other operation changes the
// stores meanwhile. If another operation is under way, such as the erasure itself when this process
// performs it, rebuildAfterErasure waits for its end and returns nil; the caller then checks again
// whether a rebuild is needed.
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

// rebuildErasedStores performs the operation that rebuildAfterErasure starts. The report has one
// line for each store.
func (s *Service) rebuildErasedStores(ctx context.Context, p *replay.Progress) (report string, err error) {
	release, err := s.erasure.LockBuilds(ctx)
	if err != nil {
		return "", err
	}
	lines, err := s.erasure.RebuildIfErased(ctx, s.subscribeKinds, s.rebuildOptions(ctx, 0, p))
	release()
	if err != nil {
		return strings.Join(lines, "\n"), err
	}

	// RebuildIfErased has removed the scheduled snapshots, which still had the user. Take a new
	// snapshot, so that the node has one.
	if len(lines) > 0 && s.snapshots != nil {
		if _, err := s.snapshots.TakeNow(ctx, p); err != nil {
			// The report stays after later erasures, so it must not have an error, which may name
			// users.
			s.logger.Error("no snapshot of the new stores was taken", "error", err)
			lines = append(lines, "no snapshot of the new stores was taken; the log of the service says why")
		}
	}
	// Reports and errors of earlier operations may name the user.
	return strings.Join(lines, "\n"), s.Operations.RemoveTexts()
}

// removeTemporaryStores removes what verifications, snapshots and restores of snapshots have made
// of the log before it was scrubbed. It is called during an erasure, which excludes all other
// operations, so no requested verification runs.
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

// awaitOperation waits until an operation ends, and returns it.
func (s *Service) awaitOperation(ctx context.Context, id string) (ended operation.Info, err error) {
	err = s.Operations.Watch(ctx, id, func(i operation.Info) error {
		ended = i
		return nil
	})
	return ended, err
}

// bucketOfAllSnapshots returns the bucket that has the snapshots of all nodes; nil outside of a
// cluster, or if no snapshots are taken.
func (s *Service) bucketOfAllSnapshots() bucket.Bucket {
	if s.node == nil {
		return nil
	}
	return s.options.Snapshots
}

// checkNoCluster fails if the log belongs to a cluster. A process that is not a node of the cluster
// must not erase a user, because the nodes would not take part.
func (s *Service) checkNoCluster(ctx context.Context) error {
	name := placement.BucketName(fmt.Sprintf("%x", s.log.ID()))
	exists, err := s.log.HasBucket(ctx, name)
	if err != nil || !exists {
		return err
	}
	return fmt.Errorf("%w: the log belongs to a cluster, and this process is not a node of it: erase at the node that archives the log; "+
		"if the cluster has no nodes any more, delete the bucket %s", operator.ErrNotPossible, name)
}
