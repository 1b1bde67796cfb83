package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// flusher decides when the memtables of a store are written to disk. It bounds how much a crash
// loses, which the next start must fold again, and makes the fold wait when the disk does not keep
// up. Store.folding guards its fields, except the atomics and flushOrCompactionEnded.
type flusher struct {
	// dirty is true if rows, of which the position is one, were written since the last flush was
	// started.
	dirty bool
	// bytesSinceCheck is the number of bytes that were written since waitForDisk last looked at the
	// metrics of Pebble.
	bytesSinceCheck int
	// dirtySince is the time at which flushIfDue first saw something to flush. Zero means that it
	// has seen nothing that is still to be flushed.
	dirtySince time.Time

	// flushDone is closed when the flush that was started last has ended, and becomes nil when
	// recordFinishedFlush sees that. flushCursor is the position that this flush writes to disk.
	// flushed is the last position that is known to be on disk.
	flushDone   <-chan struct{}
	flushCursor events.Cursor
	flushed     atomic.Pointer[events.Cursor]

	// waitCount counts how often the fold started to wait for flushes and compactions.
	waitCount atomic.Uint64
	// flushOrCompactionEnded receives a value when a flush or a compaction ends. It holds one
	// value, so a waiter also learns of one that ended just before it began to wait.
	flushOrCompactionEnded chan struct{}
}

// init makes the flusher ready for use.
func (fl *flusher) init() { fl.flushOrCompactionEnded = make(chan struct{}, 1) }

// recordWrite records that a commit has written so many bytes.
func (fl *flusher) recordWrite(bytes int) {
	fl.dirty = true
	fl.bytesSinceCheck += bytes
}

// signalEnd wakes the goroutine that waits for the end of a flush or compaction, or the next one
// that begins to wait. It never blocks, because Pebble calls it with locks held.
func (fl *flusher) signalEnd() {
	select {
	case fl.flushOrCompactionEnded <- struct{}{}:
	default:
	}
}

// startFlush starts to flush everything, including the position, and does not wait until it is on
// disk. If nothing was written since the last flush was started, it starts none.
func (fl *flusher) startFlush(s *Store) error {
	if s.fold.envelopesSinceCheckpoint > 0 {
		if err := s.fold.commitBatch(s.fold.progress); err != nil {
			return err
		}
		s.fold.publishIfWhole()
	}
	if !fl.dirty {
		return nil
	}

	// An idle iterator would keep flushed memtables in memory until it is used again.
	s.fold.batch.Rows().BeforeFlush()
	if p := s.current.Load(); p != nil {
		p.Rows.DropIterator()
	}

	done, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}

	s.fold.batch.Rows().FlushStarted()

	// If an earlier flush has not ended, this one replaces its channel and its cursor. Pebble
	// flushes in order, so the earlier flush has ended when this one has.
	fl.flushDone = done
	fl.flushCursor = s.fold.cursor
	fl.dirty = false
	return nil
}

// recordFinishedFlush records the position of a flush that has ended since the last call. It does
// not block.
func (fl *flusher) recordFinishedFlush(s *Store) {
	select {
	case <-fl.flushDone:
		cursor := fl.flushCursor
		fl.flushed.Store(&cursor)
		fl.flushDone = nil
		s.fold.batch.Rows().FlushEnded()
	default:
	}
}

// flushAndWait flushes everything and waits until it is on disk.
func (fl *flusher) flushAndWait(s *Store) error {
	if err := fl.startFlush(s); err != nil || fl.flushDone == nil {
		return err
	}
	for {
		select {
		case <-fl.flushDone:
			fl.recordFinishedFlush(s)
			return nil
		case <-fl.flushOrCompactionEnded:
			// Pebble retries a failed flush forever, so flushDone would never be closed.
			if err := s.state.Failure(); err != nil {
				return err
			}
		}
	}
}

// waitForDisk blocks while more data waits to be flushed or compacted than maxMemtables and
// maxSublevels allow.
func (fl *flusher) waitForDisk(s *Store) error {
	// Look at the metrics of Pebble only once per half a memtable.
	if fl.bytesSinceCheck < s.opts.Bounds.FlushBytes/2 {
		return nil
	}
	fl.bytesSinceCheck = 0

	for waited := false; ; waited = true {
		m := s.db.Metrics()
		if m.MemTable.Size <= uint64(maxMemtables*s.opts.Bounds.FlushBytes) &&
			int(m.Levels[0].Sublevels) <= maxSublevels {
			return nil
		}
		if !waited {
			fl.waitCount.Add(1)
			if notify := s.opts.Listener.Waited; notify != nil {
				notify()
			}
		}
		select {
		case <-fl.flushOrCompactionEnded:
		case <-s.state.Down():
			if s.state.Failure() != nil {
				return s.state.StopError()
			}
			// The store is being closed, and Close flushes everything that was written.
			return nil
		}
	}
}

// Flush writes everything that is folded to disk, including the position, and waits until it is
// there. An error is final, as in [Store.Fold].
func (s *Store) Flush() error {
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := s.state.StopError(); err != nil {
		return err
	}
	if err := s.flush.flushAndWait(s); err != nil {
		return s.state.Fail(err)
	}
	return nil
}

// Compact flushes the store and then compacts all of its tables at once, which background
// compactions would do over time. It may take minutes. Folding and queries continue meanwhile.
// Compact stops if the store fails or is closed.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.Flush(); err != nil {
		return err
	}
	s.dbUse.RLock()
	defer s.dbUse.RUnlock()
	if err := s.state.StopError(); err != nil {
		return err
	}

	// Pebble retries a failed flush forever, and never ends a compaction in which a fatal error
	// occurs. It waits for either only until the context ends.
	pebbleCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.state.Down():
			cancel()
		case <-pebbleCtx.Done():
		}
	}()

	first := []byte{0}
	last := projections.AppendPrefix(nil, projections.StoreShard, 0xff)
	err := s.db.Compact(pebbleCtx, first, last, true)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case pebbleCtx.Err() != nil:
		return s.state.StopError()
	case err != nil:
		return s.state.Fail(err)
	}
	return nil
}

// flushIfDue starts a flush if one is due. It returns the time until the next flush will be due, or
// 0 if nothing is left for which to start one.
func (s *Store) flushIfDue(now time.Time) (time.Duration, error) {
	s.folding.Lock()
	defer s.folding.Unlock()

	fl := &s.flush
	fl.recordFinishedFlush(s)

	wait := s.opts.Bounds.FlushEvery
	switch {
	case !fl.dirty && s.fold.envelopesSinceCheckpoint == 0:
		fl.dirtySince = time.Time{}
		return 0, nil
	case !fl.dirty && s.fold.envelopesSinceCheckpoint < s.opts.Bounds.FlushEnvelopes:
		// Only the position is new, and losing it costs little.
		wait *= 10
	}

	if fl.dirtySince.IsZero() {
		fl.dirtySince = now
	}
	if left := wait - now.Sub(fl.dirtySince); left > 0 {
		return left, nil
	}

	if err := s.state.StopError(); err != nil {
		return 0, err
	}
	fl.dirtySince = time.Time{}
	return 0, fl.startFlush(s)
}
