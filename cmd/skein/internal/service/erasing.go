package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

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
)

// removeMissed removes the stores of a node that was away while a user was erased. They are built anew, as those of a new node are.
func (a *Service) removeStoresOfMissedErasure(config *node.Config) error {
	if config == nil {
		return nil
	}
	stale, err := erase.Stale(a.dir, StoresDir, a.log)
	if err != nil || !stale {
		return err
	}
	for _, p := range all.Constructors(a.settings) { // another process that has them open keeps them
		store, err := live.Open(live.Options{New: p, Options: store.Options{
			Dir: filepath.Join(a.dir, StoresDir), Partitioned: true, ReadOnly: true,
		}})
		if errors.Is(err, projections.ErrNoStore) {
			continue
		}
		if err == nil {
			err = store.Close()
		}
		if err != nil {
			return err
		}
	}
	a.logger.Warn("a user was erased while this node was away: its stores are removed, and built anew", "dir", a.dir)
	return erase.Forget(a.dir, StoresDir)
}

// buildErased builds the stores anew after an erasure, as an operation, so that operators see it and nothing works on the stores beside
// it. If another operation is in the way, as the erasure of this process, it waits for the end of that one; the caller looks again.
func (a *Service) rebuildAfterErasure(ctx context.Context) error {
	began := time.Now()
	i, err := a.Operations.Start(operation.Erase, "", requestArgs{}, func(ctx context.Context, p *replay.Progress) (string, error) {
		release, err := a.erasure.Hold(ctx)
		if err != nil {
			return "", err
		}
		lines, err := a.erasure.Build(ctx, a.subscribeKinds, a.rebuildOptions(ctx, 0, p))
		release()
		if err == nil && len(lines) > 0 && a.snapshots != nil { // those that there were are removed
			if _, failed := a.snapshots.TakeNow(ctx, p); failed != nil {
				lines = append(lines, "no snapshot of them was taken: "+failed.Error())
			}
		}
		if err == nil {
			err = a.Operations.RemoveTexts()
		}
		return strings.Join(lines, "\n"), err
	})
	id, another := i.ID, false
	if conflict, ok := errors.AsType[*operation.ConflictError](err); ok {
		id, another, err = conflict.With.ID, true, nil
	}
	if err != nil {
		return err
	}
	var end operation.Info
	if err := a.Operations.Watch(ctx, id, func(i operation.Info) error { end = i; return nil }); err != nil || another {
		return err
	}
	if end.State != operation.Succeeded {
		return errors.New(end.Error)
	}
	a.logger.Info("a user was erased: the stores were built anew", "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// sharedSnapshots returns the bucket of the snapshots of all nodes; nil means that there is none, or that the process is no node.
func (a *Service) bucketOfAllSnapshots() bucket.Bucket {
	if a.node == nil {
		return nil
	}
	return a.options.Snapshots
}

// noCluster refuses to erase in a process that is no node if the log has a cluster, whose nodes would not take part.
func (a *Service) checkNoCluster(ctx context.Context) error {
	name := placement.BucketName(fmt.Sprintf("%x", a.log.ID()))
	if has, err := a.log.HasBucket(ctx, name); err != nil || !has {
		return err
	}
	return fmt.Errorf("%w: the log has a cluster, and this process is no node of it: erase at the node that archives; "+
		"if there are no nodes any more, delete the bucket %s", operator.ErrNotPossible, name)
}
