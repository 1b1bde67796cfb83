package seen

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// maxServed is how many served items are kept per user.
const maxServed = 100

// serve is the last time that an item was served.
type serve struct {
	// stamp orders serves by time. The stamp of a live serve is greater than that of any backfilled
	// one.
	stamp uint64
	// index is the index of the item in its event.
	index byte
	// item is the id of the item in its key form.
	item []byte
}

// liveStampBit is set in the stamps of live serves, because all history comes before all live
// events.
const liveStampBit = 1 << 63

// stampOf returns the stamp of the serves of an event.
func stampOf(ev *events.Event) uint64 {
	if ev.Backfill {
		return uint64(ev.Time)
	}
	return uint64(ev.Time) | liveStampBit
}

// compareServes sorts serves by time, the newest first. Those of one event are in the order in
// which the event names them. Serves of backfills with equal time and index are sorted by id, so
// that the order does not depend on arrival.
func compareServes(a, b serve) int {
	return cmp.Or(cmp.Compare(b.stamp, a.stamp), cmp.Compare(a.index, b.index), bytes.Compare(a.item, b.item))
}

// newestServes sorts serves and returns the newest serve of each item, for at most [maxServed]
// items. It can be applied to groups of serves first, and then to the results: what is not among
// the newest of its group is not among the newest of all.
func newestServes(serves []serve) []serve {
	slices.SortFunc(serves, compareServes)
	newest := serves[:0]
	items := make(map[string]bool, maxServed)
	for _, s := range serves {
		if items[string(s.item)] {
			continue
		}
		items[string(s.item)] = true
		newest = append(newest, s)
		if len(newest) == maxServed {
			break
		}
	}
	return newest
}

// versionServes is the first byte of a row of serves.
const versionServes = 1

// appendServes appends a row of serves, which must be sorted. After the version byte, the row has
// the serves of each stamp, the newest first: the stamp in 8 bytes, the number of its serves (1
// byte), and of each serve its index (1 byte) and the id in its key form.
func appendServes(dst []byte, serves []serve) []byte {
	dst = append(dst, versionServes)
	for len(serves) > 0 {
		// A row has at most maxServed serves, so their number fits into a byte.
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

// decodeServes appends the serves of a row. They share the memory of the row.
func decodeServes(dst []serve, row []byte) ([]serve, error) {
	if len(row) < 2 || row[0] != versionServes {
		return dst, projections.RowError("serves", row)
	}
	first := len(dst)
	for rest := row[1:]; len(rest) > 0; {
		if len(rest) < 9 || rest[8] == 0 {
			return dst, projections.RowError("serves", row)
		}
		stamp := binary.BigEndian.Uint64(rest)
		n := rest[8]
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
			dst = append(dst, s)
			rest = after
		}
	}
	if len(dst)-first > maxServed {
		return dst, projections.RowError("serves", row)
	}
	return dst, nil
}

// mergeServes appends the row of the newest serves of some rows.
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

// addServes merges the items of an event into the row of the user.
func (f *Seen) addServes(ev *events.Event) {
	serves := make([]serve, len(ev.Items))
	for i, item := range ev.Items {
		// An event has at most events.MaxServedItems items, so an index fits into a byte.
		serves[i] = serve{stampOf(ev), byte(i), events.AppendID(nil, item)}
	}
	f.value = appendServes(f.value[:0], newestServes(serves))
	f.key = servedKey(f.key[:0], ev.User)
	f.batch.Merge(f.key, f.value)
}
