package projections

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
	s.using.RLock()
	defer s.using.RUnlock()
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
		Snapshots: m.Snapshots.Count, SlowDisk: s.slowDisk.Load(), Waits: s.flush.waits.Load(),
	}
	for i := range m.Levels {
		level := &m.Levels[i]
		e.FlushedBytes += level.TableBytesFlushed
		e.CompactedBytes += level.TableBytesCompacted
	}
	return e, true
}

// Engine reports how the storage engine of the generation that serves is.
func (l *Live) Engine() (e Engine, ok bool) {
	if s := l.Serving(); s != nil {
		return s.Engine()
	}
	return Engine{}, false
}
