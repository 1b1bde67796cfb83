package store

import (
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store/internal/storestate"
)

// State is what a projection is doing.
type State = storestate.State

// The states of a projection.
const (
	// Starting: the store is open, and Run was not called yet.
	Starting = storestate.Starting
	// CatchingUp: the fold has not yet reached the position that the log had when Run began.
	CatchingUp = storestate.CatchingUp
	// Ready: the fold has reached the position that the log had when Run began. The state stays
	// until the projection stops, even if the fold falls behind again.
	Ready = storestate.Ready
	// Rebuilding: a [live.Live] is Ready, and another generation of it is being folded, for a
	// rebuild or a rollback.
	Rebuilding = storestate.Rebuilding
	// Failed: the projection has stopped because of an error, and answers nothing.
	Failed = storestate.Failed
	// Stopped: Run has ended without an error, or the store is closed.
	Stopped = storestate.Stopped
	// Outdated: the generation of a [live.Live] was built by another version of the fold, or with
	// other settings, than the program has. It is not folded any further. Until it is rebuilt, it
	// answers from its last position if this program can read its rows.
	Outdated = storestate.Outdated
	// Held: the fold waits in front of a hole of the log ([events.ErrHole]). Queries are answered
	// from the position before the hole. The fold continues by itself when the hole is closed or
	// accepted.
	Held = storestate.Held
)

// Status describes a projection at one moment.
type Status struct {
	Name        string
	Version     uint32
	Fingerprint string
	Generation  uint32
	// Unreadable is set if the state is Outdated and this program cannot read the rows, so that no
	// query is answered.
	Unreadable bool
	// Damaged is set if the state is Failed because files or rows are damaged. A rebuild from the
	// log repairs that.
	Damaged bool
	// Previous is the generation that a rollback would restore; 0 means none. Only a [live.Live]
	// sets Previous, Damaged and Unreadable, and has the states Rebuilding and Outdated.
	Previous uint32
	State    State
	// Error is the reason for Failed, Outdated or Held.
	Error error
	// Cursor is the last whole position that queries see. Flushed is the last one that is known to
	// be on disk: a crash now would leave at least the rows up to there.
	Cursor, Flushed events.Cursor
	// Head is the last sequence that the log is known to have. Behind is the number of sequences
	// between Cursor and Head.
	Head, Behind uint64
	// Rejects is the number of malformed events in the log up to Cursor.
	Rejects uint64
	// DiskBytes is the size of the files of the store; 0 means that it is not known.
	DiskBytes uint64
	// Format is the format major version of the files of the storage engine; 0 means that it is not
	// known.
	Format uint32
}

// Answers reports whether queries are answered, provided that there is a whole position.
func (st Status) Answers() bool { return st.State != Failed && st.State != Stopped && !st.Unreadable }

// Lag returns the age of the last event that queries see. It returns 0 if queries see the head of
// the log, or no event at all.
func (st Status) Lag(now time.Time) time.Duration {
	if st.Behind == 0 || st.Cursor.LastTime == 0 {
		return 0
	}
	return max(0, now.Sub(st.Cursor.LastTime.Time()))
}

// Status describes the projection. It is meant for people and metrics. It is too slow to be called
// by every query.
func (s *Store) Status() Status {
	// Update Flushed, but do not wait for a fold that is running. The fold updates it, too.
	if s.folding.TryLock() {
		s.flush.recordFinishedFlush(s)
		s.folding.Unlock()
	}

	st := Status{
		Name:        s.Name(),
		Version:     s.fingerprint.Version,
		Fingerprint: s.fingerprint.String(),
		Generation:  s.generation,
		Flushed:     *s.flush.flushed.Load(),
	}
	st.State, st.Error = s.state.State()
	if p := s.current.Load(); p != nil {
		st.Cursor = p.Cursor
		st.Rejects = p.Rejects
	}

	s.dbUse.RLock()
	if s.db != nil && !s.isBroken() {
		st.DiskBytes = s.db.Metrics().DiskSpaceUsage()
		st.Format = uint32(s.db.FormatMajorVersion())
	}
	s.dbUse.RUnlock()

	// The head is only known once Run has seen it, but there are events up to the cursor.
	st.Head = max(s.state.Head(), st.Cursor.Seq)
	st.Behind = st.Head - st.Cursor.Seq
	return st
}

// Listener is notified of what metrics are made of. Each function may be nil. The functions must be
// quick and must not call the store, because some are called while it is locked.
type Listener struct {
	// StateChanged is called with each new state, and with the reason for Failed or Held.
	StateChanged func(State, error)
	// Folded is called at the end of every successful call of Fold.
	Folded func(FoldInfo)
	// Flushed and Compacted are called for each flush and each compaction that the storage engine
	// has completed.
	Flushed, Compacted func(FlushInfo)
	// Waited is called each time the fold begins to wait for flushes and compactions.
	Waited func()
	// CutOver is called when a [live.Live] has cut over to another generation.
	CutOver func(CutOverInfo)
}

// FoldInfo describes one call of Fold.
type FoldInfo struct {
	// Envelopes is the number of envelopes that were folded, and LogBytes their size in the log.
	// Events is the number of their events that were folded or ignored.
	Envelopes, LogBytes, Events int
	// Ignored is the number of backfills that were ignored because they were imported before or
	// their source is closed. Repeats and Rejects are the numbers of repeated and of malformed
	// events that the reader of the log has found.
	Ignored, Repeats, Rejects int
	// Commits is the number of commits, and Bytes their total size.
	Commits, Bytes int
	// Oldest is the log time of the first envelope, or 0 if there was no envelope.
	Oldest events.Micros
	// Traces are the traces that the envelopes name. Began is the time at which the fold of the
	// first envelope with a trace ended.
	Traces []string
	Began  time.Time
}

// count adds an envelope that was folded.
func (i *FoldInfo) count(env *events.Envelope) {
	if i.Envelopes == 0 {
		i.Oldest = env.Cursor.LastTime
	}
	i.Envelopes++
	i.LogBytes += env.Bytes
	i.Repeats += env.Repeats
	i.Rejects += len(env.Rejects)
	if len(env.Traces) > 0 {
		if len(i.Traces) == 0 {
			i.Began = time.Now()
		}
		i.Traces = append(i.Traces, env.Traces...)
	}
}

// FlushInfo describes a flush or a compaction that has ended: the size of the tables that it wrote,
// and how long it took.
type FlushInfo struct {
	Bytes    int64
	Duration time.Duration
}

// CutOverInfo describes a cut-over to another generation.
type CutOverInfo struct {
	// From and To are the old and the new generation.
	From, To uint32
	// Seq is the position of the first view of the new generation.
	Seq uint64
	// Pause is how long no new position became visible. Queries were answered meanwhile.
	Pause time.Duration
}

// Engine has figures about the storage engine of a store. Counters start at 0 when the store is
// opened.
type Engine struct {
	// MemtableBytes is the size of the memtables, with rows that are not yet in a table.
	MemtableBytes uint64
	// Sublevels is the number of tables of level 0 that a lookup may have to search.
	// ReadAmplification is that number for all levels.
	Sublevels, ReadAmplification int
	// CompactionDebt is the number of bytes that must be compacted until all levels have their
	// intended size. Compacting is the number of compactions that are running.
	CompactionDebt uint64
	Compacting     int64
	// Flushes and Compactions count those that have ended. FlushedBytes and CompactedBytes are what
	// they wrote.
	Flushes, Compactions         uint64
	FlushedBytes, CompactedBytes uint64
	// TableHits and TableMisses count how often a table was found open, and how often it had to be
	// opened.
	TableHits, TableMisses uint64
	// Snapshots is the number of open snapshots: one for the position that is served, and more
	// while older views are open.
	Snapshots int
	// SlowDisk counts disk operations that took seconds. Waits counts how often the fold began to
	// wait for flushes and compactions.
	SlowDisk, Waits uint64
}

// Engine returns figures about the storage engine. ok is false if the store is closed or broken.
// Engine is meant for metrics. It is too slow to be called by every query.
func (s *Store) Engine() (e Engine, ok bool) {
	s.dbUse.RLock()
	defer s.dbUse.RUnlock()
	if s.db == nil || s.isBroken() {
		return Engine{}, false
	}

	m := s.db.Metrics()
	e = Engine{
		MemtableBytes:     m.MemTable.Size,
		Sublevels:         int(m.Levels[0].Sublevels),
		ReadAmplification: m.ReadAmp(),
		CompactionDebt:    m.Compact.EstimatedDebt,
		Compacting:        m.Compact.NumInProgress,
		Flushes:           uint64(m.Flush.Count),
		Compactions:       uint64(m.Compact.Count),
		TableHits:         uint64(m.FileCache.Hits),
		TableMisses:       uint64(m.FileCache.Misses),
		Snapshots:         m.Snapshots.Count,
		SlowDisk:          s.slowDisk.Load(),
		Waits:             s.flush.waitCount.Load(),
	}
	for i := range m.Levels {
		level := &m.Levels[i]
		e.FlushedBytes += level.TableBytesFlushed
		e.CompactedBytes += level.TableBytesCompacted
	}
	return e, true
}
