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
	unchecked int
	// since is the time at which Run first saw rows to flush; zero means that there are none.
	since time.Time

	// underWay is the flush that was begun last, and the position that it brings to disk.
	underWay       <-chan struct{}
	underWayCursor events.Cursor
	flushed        atomic.Pointer[events.Cursor]

	// waits counts how often the fold began to wait for it.
	waits atomic.Uint64
	// relief is signalled when a flush or compaction ends.
	relief chan struct{}
}

func (fl *flusher) init() { fl.relief = make(chan struct{}, 1) }

func (fl *flusher) wrote(bytes int) {
	fl.dirty = true
	fl.unchecked += bytes
}

func (fl *flusher) relieve() {
	select {
	case fl.relief <- struct{}{}:
	default:
	}
}

// begin starts to flush everything, the position included, without waiting.
func (fl *flusher) begin(s *Store) error {
	if s.fold.unsaved > 0 {
		if err := s.fold.write(s.fold.progress); err != nil {
			return err
		}
		s.fold.publish()
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
	fl.underWay, fl.underWayCursor, fl.dirty = done, s.fold.cursor, false
	return nil
}

// poll notes a flush that has ended.
func (fl *flusher) poll(s *Store) {
	select {
	case <-fl.underWay:
		cursor := fl.underWayCursor
		fl.flushed.Store(&cursor)
		fl.underWay = nil
		s.fold.batch.Rows().FlushEnded()
	default:
	}
}

// close flushes everything and waits for it.
func (fl *flusher) close(s *Store) error {
	if err := fl.begin(s); err != nil || fl.underWay == nil {
		return err
	}
	for {
		select {
		case <-fl.underWay:
			fl.poll(s)
			return nil
		case <-fl.relief:
			// A flush that fails is retried for ever.
			if err := s.state.Failure(); err != nil {
				return err
			}
		}
	}
}

// pressure waits while more rows wait to be flushed or compacted than the bounds allow.
func (fl *flusher) pressure(s *Store) error {
	if fl.unchecked < s.opts.Bounds.FlushBytes/2 {
		return nil
	}
	fl.unchecked = 0
	for waited := false; ; waited = true {
		m := s.db.Metrics()
		if m.MemTable.Size <= uint64(maxMemtables*s.opts.Bounds.FlushBytes) &&
			int(m.Levels[0].Sublevels) <= maxSublevels {
			return nil
		}
		if !waited {
			fl.waits.Add(1)
			if told := s.opts.Listener.Waited; told != nil {
				told()
			}
		}
		select {
		case <-fl.relief:
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
	if err := s.flush.close(s); err != nil {
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
	s.using.RLock()
	defer s.using.RUnlock()
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
func (s *Store) flushInTime(now time.Time) (time.Duration, error) {
	s.folding.Lock()
	defer s.folding.Unlock()
	fl := &s.flush
	fl.poll(s)
	wait := s.opts.Bounds.FlushEvery
	switch {
	case !fl.dirty && s.fold.unsaved == 0:
		fl.since = time.Time{}
		return 0, nil
	case !fl.dirty && s.fold.unsaved < s.opts.Bounds.FlushEnvelopes:
		wait *= 10
	}
	if fl.since.IsZero() {
		fl.since = now
	}
	if left := wait - now.Sub(fl.since); left > 0 {
		return left, nil
	}
	if err := s.state.Stopped(); err != nil {
		return 0, err
	}
	fl.since = time.Time{}
	return 0, fl.begin(s)
}
