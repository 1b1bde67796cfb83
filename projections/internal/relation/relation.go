// Package relation has the facts about a relation that a user begins and ends, such as a reaction
// to an item or the hiding of an item. It derives from them whether the relation holds.
//
// Backfilled facts come before all live ones in the order of facts, but may arrive after them. So
// both are kept apart, and a row says the same in whichever order events arrive.
package relation

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Facts are what is known about one relation. The zero Facts have no row.
type Facts struct {
	// BackfillTime is the time of the latest backfilled beginning, or 0. There are no backfilled
	// ends.
	BackfillTime events.Micros
	// LiveTime is the time of the first live beginning since the last live end, or 0. Repetitions
	// do not move it.
	LiveTime events.Micros
	// HasLiveEnd is set once there was a live end. Backfilled beginnings come before it and so do
	// not count.
	HasLiveEnd bool
}

// The flags with which a row begins. Each time that is not 0 follows in 8 bytes, big endian.
const (
	flagBackfilled byte = 1 << iota
	flagLive
	flagEnded
	allFlags = flagBackfilled | flagLive | flagEnded
)

// backfillHolds reports whether a backfilled beginning counts.
func (f Facts) backfillHolds() bool { return f.BackfillTime != 0 && !f.HasLiveEnd }

// Holds reports whether the relation holds: a live event began it, or a backfilled one did and no
// live event ended it.
func (f Facts) Holds() bool { return f.LiveTime != 0 || f.backfillHolds() }

// Since returns the time at which a relation that holds began, by the rule for all relations in
// docs/semantics.md: a backfilled beginning that counts decides, because it came before the live
// one.
func (f Facts) Since() events.Micros {
	if f.backfillHolds() {
		return f.BackfillTime
	}
	return f.LiveTime
}

// AppendRow appends the value of a row. It appends nothing for the zero Facts.
func (f Facts) AppendRow(dst []byte) []byte {
	if f == (Facts{}) {
		return dst
	}

	flags := len(dst)
	dst = append(dst, 0)
	if f.BackfillTime != 0 {
		dst[flags] |= flagBackfilled
		dst = binary.BigEndian.AppendUint64(dst, uint64(f.BackfillTime))
	}
	if f.LiveTime != 0 {
		dst[flags] |= flagLive
		dst = binary.BigEndian.AppendUint64(dst, uint64(f.LiveTime))
	}
	if f.HasLiveEnd {
		dst[flags] |= flagEnded
	}
	return dst
}

// Decode reads a value that AppendRow wrote. what describes the row in the error for any other
// value.
func Decode(what string, row []byte) (f Facts, err error) {
	if len(row) == 0 || row[0] == 0 || row[0]&^allFlags != 0 {
		return f, projections.RowError(what, row)
	}

	flags := row[0]
	rest := row[1:]
	f.HasLiveEnd = flags&flagEnded != 0
	for _, beginning := range []struct {
		flag byte
		time *events.Micros
	}{
		{flagBackfilled, &f.BackfillTime},
		{flagLive, &f.LiveTime},
	} {
		if flags&beginning.flag == 0 {
			continue
		}
		if len(rest) < 8 {
			return Facts{}, projections.RowError(what, row)
		}
		*beginning.time = events.Micros(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
		if *beginning.time <= 0 {
			return Facts{}, projections.RowError(what, row)
		}
	}
	if len(rest) != 0 {
		return Facts{}, projections.RowError(what, row)
	}
	return f, nil
}

// Describe adds the facts to the description of a row. endName is the name of the flag that says
// that there was a live end.
func (f Facts) Describe(d *projections.Description, endName string) {
	if f.BackfillTime != 0 {
		d.Time("backfilled", f.BackfillTime)
	}
	if f.LiveTime != 0 {
		d.Time("live", f.LiveTime)
	}
	d.Flag(endName, f.HasLiveEnd)
}
