package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// flusher bounds what a crash would lose from memory and a start would have to fold again.
type flusher struct {
	// dirty reports whether rows were written since the last flush began.
	dirty bool
	// unchecked bytes were written since pressure last looked.
	bytesSinceCheck int
	// since is the time at which Run first saw rows to flush; zero means that there are none.
	dirtySince time.Time

	// underWay is the flush that was begun last, and the position that it brings to disk.
	flushDone   <-chan struct{}
	flushCursor events.Cursor
	flushed     atomic.Pointer[events.Cursor]

	// waits counts how often the fold began to wait for it.
	waitCount atomic.Uint64
	// relief is signalled when a flush or compaction ends.
	flushOrCompactionEnded chan struct{}
}

func (fl *flusher) init() { fl.flushOrCompactionEnded = make(chan struct{}, 1) }

func (fl *flusher) recordWrite(bytes int) {
	fl.dirty = true
	fl.bytesSinceCheck += bytes
}

func (fl *flusher) signalEnd() {
	select {
	case fl.flushOrCompactionEnded <- struct{}{}:
	default:
	}
}

// begin starts to flush everything, the position included, without waiting.
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
	s.fold.batch.Rows().FlushBegins()
	if p := s.current.Load(); p != nil {
		p.Rows.DropIterator()
	}
	done, err := s.db.AsyncFlush()
	if err != nil {
		return err
	}
	s.fold.batch.Rows().FlushBegun()
	fl.flushDone, fl.flushCursor, fl.dirty = done, s.fold.cursor, false
	return nil
}

// poll notes a flush that has ended.
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

// close flushes everything and waits for it.
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
			// A flush that fails is retried for ever.
			if err := s.state.Failure(); err != nil {
				return err
			}
		}
	}
}

// pressure waits while more rows wait to be flushed or compacted than the bounds allow.
func (fl *flusher) waitForDisk(s *Store) error {
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
			if told := s.opts.Listener.Waited; told != nil {
				told()
			}
		}
		select {
		case <-fl.flushOrCompactionEnded:
		case <-s.state.Down():
			if s.state.Failure() != nil {
				return s.state.Stopped()
			}
			return nil // it is being closed, and all that is written is flushed
		}
	}
}

// Flush brings everything that is folded to disk, the position included, and waits for it.
func (s *Store) Flush() error {
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := s.state.Stopped(); err != nil {
		return err
	}
	if err := s.flush.flushAndWait(s); err != nil {
		return s.state.Fail(err)
	}
	return nil
}

// Compact brings the tables of the store into order, as compactions would in time, and what is in memory to disk before. It
// may take minutes; folding and queries continue.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.Flush(); err != nil {
		return err
	}
	s.dbUse.RLock()
	defer s.dbUse.RUnlock()
	if err := s.state.Stopped(); err != nil {
		return err
	}
	first := []byte{0}
	last := projections.AppendPrefix(nil, projections.StoreShard, 0xff)
	if err := s.db.Compact(ctx, first, last, true); err != nil && ctx.Err() == nil {
		return s.state.Fail(err)
	}
	return ctx.Err()
}

// flushInTime begins a flush if something is due, and returns how long nothing will be; 0 means nothing is waiting.
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
		wait *= 10
	}
	if fl.dirtySince.IsZero() {
		fl.dirtySince = now
	}
	if left := wait - now.Sub(fl.dirtySince); left > 0 {
		return left, nil
	}
	if err := s.state.Stopped(); err != nil {
		return 0, err
	}
	fl.dirtySince = time.Time{}
	return 0, fl.startFlush(s)
}
