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
	// maxRepairRows and maxRepairBytes limit the rows that are examined, and their bytes, during
	// one stop of the live fold. Writes of users are not visible until the stop ends.
	maxRepairRows  = 2048
	maxRepairBytes = 2 << 20
	// maxHold limits the time for which the live fold waits for the shadow to reach its position.
	// The shadow is at most maxLag envelopes behind then, so only a log that does not answer takes
	// this long.
	maxHold = 10 * time.Second
)

// repairRows examines the rows with these keys, sets those that still differ to their values in the
// shadow, and returns how many it has changed. The changes are safely on disk when it returns.
//
// Two rows can only be compared at the same position, so the live fold must be stopped while the
// shadow folds to its position. To keep the stops short, the shadow catches up before each stop,
// and each stop handles a limited number of rows.
func repairRows(ctx context.Context, live Store, shadow *Shadow, keys [][]byte) (repaired uint64, err error) {
	for len(keys) > 0 {
		if err := catchUpShadow(ctx, live, shadow, &shadow.opts); err != nil {
			return repaired, err
		}

		startTime := time.Now()
		var examined, changed int
		err := live.Repair(ctx, func(at events.Cursor, liveRows projections.Reader, repair *store.Repair) (err error) {
			// The live fold is stopped at the position at.
			if repair.Partitions() != *shadow.opts.livePartitions {
				return errResized
			}
			holdCtx, cancel := context.WithTimeout(ctx, maxHold)
			defer cancel()
			if err := shadow.FoldTo(holdCtx, at.Seq, replay.Pace{}); err != nil {
				return fmt.Errorf("fold the shadow to %d while the fold is held: %w", at.Seq, err)
			}

			shadowView, err := shadow.View()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, shadowView.Close()) }()
			examined, err = repairSomeRows(liveRows, shadowView, repair, keys)
			changed = repair.Len()
			return err
		})
		if err != nil {
			return repaired, err
		}
		repaired += uint64(changed)
		keys = keys[examined:]

		if err := shadow.opts.Pace.Rest(ctx, min(time.Since(startTime), maxWork)); err != nil {
			return repaired, err
		}
	}
	return repaired, live.Flush()
}

// repairSomeRows compares the rows with the first of the keys and sets or deletes those that differ
// in live. It stops at the limits of one repair, and returns the number of keys that it has
// examined.
func repairSomeRows(live, shadow projections.Reader, repair *store.Repair, keys [][]byte) (examined int, err error) {
	size := 0
	for _, key := range keys {
		if examined == maxRepairRows || size > maxRepairBytes {
			break
		}
		examined++
		if !store.Repairable(key) {
			continue // only the store itself writes its position, fingerprint and format
		}

		expected, isExpected, err := shadow.Get(key)
		if err != nil {
			return 0, err
		}
		// A row that cannot be read is overwritten like one that differs.
		found, isFound, err := live.Get(key)
		isCorrupt := errors.Is(err, projections.ErrCorrupt)
		if err != nil && !isCorrupt {
			return 0, err
		}
		switch {
		case !isCorrupt && isFound == isExpected && bytes.Equal(found, expected):
			continue // the rows have become equal since the comparison
		case isExpected:
			repair.Set(key, expected)
		default:
			repair.Delete(key)
		}
		size += len(key) + len(expected)
	}
	return examined, nil
}
