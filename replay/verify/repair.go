package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
)

const (
	// maxRepairRows and maxRepairBytes bound a single repair, during which the fold is held.
	maxRepairRows  = 2048
	maxRepairBytes = 2 << 20
	// holdMost is how long the fold is held while the shadow folds to its position.
	holdMost = 10 * time.Second
)

// repairRows gives the rows of the live store that still differ the values of the shadow, and returns how many it has changed. They are on
// disk when it returns.
//
// It works in rounds. In each, the fold is held while the shadow folds to the same position, because only then a comparison of two rows
// means anything. So that the hold is short, the shadow first approaches the live store, and a round repairs a bounded number of rows.
func repairRows(ctx context.Context, live Store, shadow *Shadow, keys [][]byte) (n uint64, err error) {
	for len(keys) > 0 {
		// The shadow must be near before the fold is held.
		if err := approach(ctx, live, shadow, &shadow.opts); err != nil {
			return n, err
		}
		began := time.Now()
		var done, changed int
		err := live.Repair(ctx, func(at events.Cursor, rows projections.Reader, m *store.Repair) (err error) {
			if m.Partitions() != *shadow.opts.held {
				return errResized
			}
			within, cancel := context.WithTimeout(ctx, holdMost)
			defer cancel()
			if err := shadow.FoldTo(within, at.Seq, replay.Pace{}); err != nil {
				return fmt.Errorf("fold the shadow to %d while the fold is held: %w", at.Seq, err)
			}
			v, err := shadow.View()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, v.Close()) }()
			done, err = heal(rows, v, m, keys)
			changed = m.Len()
			return err
		})
		if err != nil {
			return n, err
		}
		n += uint64(changed)
		keys = keys[done:]
		if err := shadow.opts.Pace.Rest(ctx, min(time.Since(began), longestWork)); err != nil {
			return n, err
		}
	}
	return n, live.Flush()
}

// heal sets and deletes the rows that differ, up to the bounds, and returns the number of keys that it has handled.
func heal(rows, want projections.Reader, m *store.Repair, keys [][]byte) (done int, err error) {
	size := 0
	for _, key := range keys {
		if done == maxRepairRows || size > maxRepairBytes {
			break
		}
		done++
		if !store.Repairable(key) {
			continue
		}
		should, ok, err := want.Get(key)
		if err != nil {
			return 0, err
		}
		is, there, err := rows.Get(key)
		switch {
		case err != nil && !errors.Is(err, projections.ErrCorrupt):
			return 0, err
		case err == nil && there == ok && bytes.Equal(is, should):
			continue
		case ok:
			m.Set(key, should)
		default:
			m.Delete(key)
		}
		size += len(key) + len(should)
	}
	return done, nil
}
