package seen

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// maxServed is how many served items are kept of a user.
const maxServed = 100

// serve is the last time that an item was served.
type serve struct {
	// stamp orders serves: that of a live one is greater than that of any backfilled one.
	stamp uint64
	// index is that of the item in its event.
	index byte
	// item is the id in its key form.
	item []byte
}

const liveServe = 1 << 63

func stampOf(ev *events.Event) uint64 {
	if ev.Backfill {
		return uint64(ev.Time)
	}
	return uint64(ev.Time) | liveServe
}

// compareServes puts the newest first: by time, the items of one event as it names them, equal backfills by id.
func compareServes(a, b serve) int {
	return cmp.Or(cmp.Compare(b.stamp, a.stamp), cmp.Compare(a.index, b.index), bytes.Compare(a.item, b.item))
}

// newestServes sorts serves and keeps the newest of each item, at most [maxServed] items. It may be applied to groups first and then to
// their results: what is not among the newest of its group is not among the newest of all.
func newestServes(serves []serve) []serve {
	slices.SortFunc(serves, compareServes)
	kept := serves[:0]
	seen := make(map[string]bool, maxServed)
	for _, s := range serves {
		if seen[string(s.item)] {
			continue
		}
		seen[string(s.item)] = true
		if kept = append(kept, s); len(kept) == maxServed {
			break
		}
	}
	return kept
}

// The row of serves: a version byte; then, newest first, those of each stamp: the stamp in 8 bytes, their number, and of
// each its index and the id in its key form.
const versionServes = 1

func appendServes(dst []byte, serves []serve) []byte {
	dst = append(dst, versionServes)
	for len(serves) > 0 {
		n := 1
		for n < len(serves) && serves[n].stamp == serves[0].stamp {
			n++
		}
		dst = append(binary.BigEndian.AppendUint64(dst, serves[0].stamp), byte(n))
		for _, s := range serves[:n] {
			dst = append(append(dst, s.index), s.item...)
		}
		serves = serves[n:]
	}
	return dst
}

// decodeServes appends the serves of a row, which share its memory.
func decodeServes(dst []serve, row []byte) ([]serve, error) {
	if len(row) < 2 || row[0] != versionServes {
		return dst, projections.RowError("serves", row)
	}
	first := len(dst)
	for rest := row[1:]; len(rest) > 0; {
		if len(rest) < 9 || rest[8] == 0 {
			return dst, projections.RowError("serves", row)
		}
		stamp, n := binary.BigEndian.Uint64(rest), rest[8]
		if len(dst) > first && dst[len(dst)-1].stamp <= stamp {
			return dst, projections.RowError("serves", row)
		}
		rest = rest[9:]
		for range n {
			if len(rest) == 0 {
				return dst, projections.RowError("serves", row)
			}
			index := rest[0]
			_, after, err := events.CutID(rest[1:])
			if err != nil {
				return dst, projections.RowError("serves", row)
			}
			s := serve{stamp, index, rest[1 : len(rest)-len(after)]}
			if n := len(dst); n > first && compareServes(dst[n-1], s) >= 0 {
				return dst, projections.RowError("serves", row)
			}
			dst, rest = append(dst, s), after
		}
	}
	if len(dst)-first > maxServed {
		return dst, projections.RowError("serves", row)
	}
	return dst, nil
}

// mergeServes returns the row of the newest serves of some rows.
func mergeServes(dst []byte, rows [][]byte) ([]byte, error) {
	var all []serve
	var err error
	for _, row := range rows {
		if all, err = decodeServes(all, row); err != nil {
			return dst, err
		}
	}
	return appendServes(dst, newestServes(all)), nil
}

// served notes what was sent to a user.
func (f *Seen) served(ev *events.Event) {
	serves := make([]serve, len(ev.Items))
	for i, item := range ev.Items {
		serves[i] = serve{stampOf(ev), byte(i), events.AppendID(nil, item)}
	}
	f.value = appendServes(f.value[:0], newestServes(serves))
	f.key = servedKey(f.key[:0], ev.User)
	f.b.Merge(f.key, f.value)
}
