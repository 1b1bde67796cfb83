package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// seenRates counts false positives, at several numbers of plays.
func (b *bench) seenRates(ctx context.Context, size seenSize) error {
	rows := make([]*Row, len(size.rates))
	for i, d := range size.rates {
		rows[i] = b.row(fmt.Sprintf("seen-false-%d", d.plays),
			fmt.Sprintf("false positives over %d months of %d plays", seenWindow, d.plays), "of 10⁶ unseen candidates", "")
	}
	rows[0].Note = fmt.Sprintf("%s questions in all of each kind, about items that nobody played, as many of each number of "+
		"plays, to %s users. Three months are closed and sealed, one is open. No item that was played is taken for unseen.",
		figure(float64(size.probes*len(rows))), userCounts(size.rates))
	for _, fingerprints := range []bool{false, true} {
		if err := b.seenRatesOf(ctx, size, fingerprints, rows); err != nil {
			return err
		}
	}
	return nil
}

func userCounts(rates []seenDensity) (text string) {
	for i, d := range rates {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(d.users)
	}
	return text
}

func (b *bench) seenRatesOf(ctx context.Context, size seenSize, fingerprints bool, rows []*Row) (err error) {
	f, err := b.openSeen(fingerprints)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.foldPlays(ctx, classPlays(size.rates...)); err != nil {
		return err
	}
	first := uint32(0)
	for i, d := range size.rates {
		found, probes := 0, 0
		for range d.users {
			unseen, err := f.countUnseen(ctx, first, seenWindow*d.plays, playedItem)
			if err != nil {
				return err
			}
			if unseen > 0 {
				return fmt.Errorf("%d items that %s played are taken for unseen", unseen, userID(first))
			}
			n := size.probes / d.users
			if unseen, err = f.countUnseen(ctx, first, n, unplayedItem); err != nil {
				return err
			}
			found, probes = found+n-unseen, probes+n
			first++
		}
		name := "skein, " + kindOf(fingerprints)
		row := rows[i]
		row.series(name).add(measurement{value: float64(found) / float64(probes) * 1e6})
		row.compare(name, "", maxFalsePositives*1e6, true)
		b.say("  %-18s %-44s %d of %d", row.ID, name, found, probes)
	}
	return nil
}

// countUnseen asks whether a reader has seen n items and counts the unseen.
func (s *seenStore) countUnseen(
	ctx context.Context, reader uint32, n int, item func(reader uint32, n int) uint64,
) (unseen int, err error) {
	const together = 10_000
	items := make([]uint64, n)
	for i := range items {
		items[i] = item(reader, i)
	}
	var out []uint32
	for some := range slices.Chunk(items, together) {
		if out, err = s.unseen(reader, some, out[:0]); err != nil {
			return 0, err
		}
		if unseen += len(out); ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	return unseen, nil
}
