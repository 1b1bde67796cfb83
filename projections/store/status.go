package store

import (
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store/internal/storestate"
)

// State is what a projection is doing.
type State = storestate.State

// States. Ready is having caught up with the head of the log as of the start; it stays until the projection stops, whatever the lag.
const (
	Starting   = storestate.Starting
	CatchingUp = storestate.CatchingUp
	Ready      = storestate.Ready
	// Rebuilding is a [live.Live] that is Ready while another generation is folded beside it: a rebuild, or a rollback.
	Rebuilding = storestate.Rebuilding
	Failed     = storestate.Failed
	Stopped    = storestate.Stopped
	// Outdated is a [live.Live] whose generation was built by another fold, or with other settings, than the program has: it does
	// not continue, and answers from its last position, if its rows can be read, until it is rebuilt.
	Outdated = storestate.Outdated
	// Held is in front of a hole of the log ([events.ErrHole]): queries are answered from there, and the fold continues by
	// itself when the hole is closed or accepted.
	Held = storestate.Held
)

// Status is what is known of a projection at one moment.
type Status struct {
	Name        string
	Version     uint32
	Fingerprint string
	Generation  uint32
	// Unreadable tells of an Outdated one that this program cannot read: it answers nothing.
	Unreadable bool
	// Damaged tells of a Failed one that its files or rows are, and not the log: a rebuild heals it.
	Damaged bool
	// Previous is the generation that a rollback would restore; 0 means none. Only a [live.Live] has it, as well as the states
	// Rebuilding and Outdated.
	Previous uint32
	State    State
	// Error says why the state is Failed, Outdated or Held.
	Error error
	// Cursor is the last whole position that queries see, Flushed the last that is known to be on disk: what a crash
	// now would leave.
	Cursor, Flushed events.Cursor
	// Head is the last sequence that the log is known to have, Behind how many envelopes are left up to there.
	Head, Behind uint64
	// Rejects counts the malformed events of the log.
	Rejects uint64
	// DiskBytes is what the files of the store take.
	DiskBytes uint64
	// Format is the engine's format of the files; 0 means not known.
	Format uint32
}

// Answers reports whether queries are answered, once there is a whole position.
func (st Status) Answers() bool { return st.State != Failed && st.State != Stopped && !st.Unreadable }

// Lag returns how old the last event is that queries see, if there are later ones; 0 means there are none.
func (st Status) Lag(now time.Time) time.Duration {
	if st.Behind == 0 || st.Cursor.LastTime == 0 {
		return 0
	}
	return max(0, now.Sub(st.Cursor.LastTime.Time()))
}

// Status reports how the projection is. It is for people and metrics: not for every query.
func (s *Store) Status() Status {
	if s.folding.TryLock() {
		s.flush.recordFinishedFlush(s)
		s.folding.Unlock()
	}
	st := Status{
		Name: s.Name(), Version: s.fingerprint.Version,
		Fingerprint: s.fingerprint.String(), Generation: s.generation,
		Flushed: *s.flush.flushed.Load(),
	}
	st.State, st.Error = s.state.State()
	if p := s.current.Load(); p != nil {
		st.Cursor, st.Rejects = p.Cursor, p.Rejects
	}
	s.dbUse.RLock()
	if s.db != nil && !s.broken.Load() {
		st.DiskBytes = s.db.Metrics().DiskSpaceUsage()
		st.Format = uint32(s.db.FormatMajorVersion())
	}
	s.dbUse.RUnlock()
	st.Head = max(s.state.Head(), st.Cursor.Seq)
	st.Behind = st.Head - st.Cursor.Seq
	return st
}

// Listener gets what metrics are made of. The functions may be nil. They must be quick, and must not call the store:
// some are called while it is locked.
type Listener struct {
	// StateChanged gets the new state and, for Failed, why.
	StateChanged func(State, error)
	// Folded is called once per call of Fold that went well.
	Folded func(FoldInfo)
	// Flushed and Compacted are called for each piece of work of the storage engine.
	Flushed, Compacted func(FlushInfo)
	// Waited is called each time the fold begins to wait for flushes and compactions.
	Waited func()
	// CutOver is called when a [live.Live] has cut over to another generation.
	CutOver func(CutOverInfo)
}

// FoldInfo is what one call of Fold did.
type FoldInfo struct {
	// Envelopes and LogBytes were read, Events of them were folded or ignored.
	Envelopes, LogBytes, Events int
	// Ignored backfills were imported before, or their source is closed. Repeats and Rejects are those of the reader.
	Ignored, Repeats, Rejects int
	// Commits of so many Bytes were made.
	Commits, Bytes int
	// Oldest is the log time of the first of the envelopes; 0 means there was none.
	Oldest events.Micros
	// Traces are those of the envelopes, and Began is when the first envelope was folded that has any.
	Traces []string
	Began  time.Time
}

func (i *FoldInfo) count(env *events.Envelope) {
	if i.Envelopes == 0 {
		i.Oldest = env.Cursor.LastTime
	}
	i.Envelopes++
	i.LogBytes += env.Bytes
	i.Repeats += env.Repeats
	if len(env.Traces) > 0 {
		if len(i.Traces) == 0 {
			i.Began = time.Now()
		}
		i.Traces = append(i.Traces, env.Traces...)
	}
	i.Rejects += len(env.Rejects)
}

// FlushInfo is a flush or a compaction that has ended.
type FlushInfo struct {
	Bytes    int64
	Duration time.Duration
}

// CutOverInfo is a cut-over to another generation.
type CutOverInfo struct {
	// From and To are the generations.
	From, To uint32
	// Seq is the position that the new one showed first.
	Seq uint64
	// Pause is how long nothing new became visible. Queries were answered meanwhile.
	Pause time.Duration
}

// Engine is what the storage engine of a store tells of itself. Counters begin with the opening of the store.
type Engine struct {
	// MemtableBytes are in memory and not yet in a table.
	MemtableBytes uint64
	// Sublevels is how many tables of level 0 one lookup may ask, ReadAmplification how many of all levels.
	Sublevels, ReadAmplification int
	// CompactionDebt is how many bytes are to be compacted until the tables are in order, Compacting how many compactions are
	// under way.
	CompactionDebt uint64
	Compacting     int64
	// Flushes and Compactions have ended, and wrote so many bytes.
	Flushes, Compactions         uint64
	FlushedBytes, CompactedBytes uint64
	// TableHits and TableMisses count lookups of open tables.
	TableHits, TableMisses uint64
	// Snapshots are open: one for the position that is served, and more while older ones are read.
	Snapshots int
	// SlowDisk counts operations that took the disk seconds, Waits how often the fold began to wait for flushes and
	// compactions.
	SlowDisk, Waits uint64
}

// Engine reports how the storage engine is; not ok: there is none at the moment. It is for metrics: not for every query.
func (s *Store) Engine() (e Engine, ok bool) {
	s.dbUse.RLock()
	defer s.dbUse.RUnlock()
	if s.db == nil || s.broken.Load() {
		return Engine{}, false
	}
	m := s.db.Metrics()
	e = Engine{
		MemtableBytes: m.MemTable.Size,
		Sublevels:     int(m.Levels[0].Sublevels), ReadAmplification: m.ReadAmp(),
		CompactionDebt: m.Compact.EstimatedDebt, Compacting: m.Compact.NumInProgress,
		Flushes: uint64(m.Flush.Count), Compactions: uint64(m.Compact.Count),
		TableHits: uint64(m.FileCache.Hits), TableMisses: uint64(m.FileCache.Misses),
		Snapshots: m.Snapshots.Count, SlowDisk: s.slowDisk.Load(), Waits: s.flush.waitCount.Load(),
	}
	for i := range m.Levels {
		level := &m.Levels[i]
		e.FlushedBytes += level.TableBytesFlushed
		e.CompactedBytes += level.TableBytesCompacted
	}
	return e, true
}
