package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// seenRates counts false positives, at several numbers of plays.
func seenRates(ctx context.Context, b *measure.Bench, size seenSize) error {
	rows := make([]*measure.Row, len(size.rates))
	for i, d := range size.rates {
		rows[i] = b.Row(fmt.Sprintf("seen-false-%d", d.plays),
			fmt.Sprintf("false positives over %d months of %d plays", seenWindow, d.plays), "of 10⁶ unseen candidates", "")
	}
	rows[0].Note = fmt.Sprintf("%s questions in all of each kind, about items that nobody played, as many of each number of "+
		"plays, to %s users. Three months are closed and sealed, one is open. No item that was played is taken for unseen.",
		measure.Figure(float64(size.probes*len(rows))), userCounts(size.rates))
	for _, fingerprints := range []bool{false, true} {
		if err := seenRatesOf(ctx, b, size, fingerprints, rows); err != nil {
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

func seenRatesOf(ctx context.Context, b *measure.Bench, size seenSize, fingerprints bool, rows []*measure.Row) (err error) {
	f, err := openSeen(b, fingerprints)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
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
				return fmt.Errorf("%d items that %s played are taken for unseen", unseen, workload.UserID(first))
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
		row.SeriesOf(name).Add(measure.Measurement{Value: float64(found) / float64(probes) * 1e6})
		row.Compare(name, "", maxFalsePositives*1e6, true)
		b.Say("  %-18s %-44s %d of %d", row.ID, name, found, probes)
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
