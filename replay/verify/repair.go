package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/replay"
)

const (
	// maxRepairRows and maxRepairBytes bound what is repaired while the fold is held once.
	maxRepairRows  = 2048
	maxRepairBytes = 2 << 20
	// holdMost is how long the fold is held for the shadow to come to its position.
	holdMost = 10 * time.Second
)

// repairRows makes rows of the live store what they are in the shadow, those that differ still, and returns how many it changed.
// They are on disk when it returns.
func repairRows(ctx context.Context, live Store, shadow *Shadow, keys [][]byte) (n uint64, err error) {
	for len(keys) > 0 {
		// Held for as short as can be: the shadow is near when the fold is stopped.
		if err := approach(ctx, live, shadow, &shadow.opts); err != nil {
			return n, err
		}
		began := time.Now()
		var done, changed int
		err := live.Repair(ctx, func(at events.Cursor, rows projections.Reader, m *projections.Repair) (err error) {
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

// heal sets and deletes what differs of some rows, up to the bounds, and returns how many it has looked at.
func heal(rows, want projections.Reader, m *projections.Repair, keys [][]byte) (done int, err error) {
	size := 0
	for _, key := range keys {
		if done == maxRepairRows || size > maxRepairBytes {
			break
		}
		done++
		if !projections.Repairable(key) {
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
