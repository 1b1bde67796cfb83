package seen_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// player is a user with many plays. Item i was played in month i % 5 after the first.
type player struct {
	name  string
	items []uint64
}

// newPlayers returns players with the given numbers of plays, of items below 2^40.
func newPlayers(sizes ...int) (all []player) {
	for _, n := range sizes {
		r := rand.New(rand.NewPCG(uint64(n), 3))
		p := player{name: fmt.Sprint("player", n)}
		for range n {
			p.items = append(p.items, r.Uint64N(1<<40))
		}
		all = append(all, p)
	}
	return all
}

// TestNoFalseNegative checks that nothing that was played in the window is ever unseen, however many
// plays there are, at any moment while months are sealed and late plays arrive (I10). Of the items
// that were not played, no larger share may be taken for seen than the settings allow.
func TestNoFalseNegative(t *testing.T) {
	s := seen.DefaultSettings()
	j := newTestLog(t, s, store.Options{})
	defer j.close()
	all := newPlayers(1, 10, 1000, 10_000, 100_000)

	// Each player plays in five months. One in ten plays of the middle months arrives late.
	const months = 5
	for m := range months {
		j.advanceTo(monthStart(2026, 5+m))
		for _, p := range all {
			var evs []events.Event
			for i := m; i < len(p.items); i += months {
				evs = append(evs, newPlays(p.name, strconv.FormatUint(p.items[i], 10))...)
			}
			if m > 0 && m < months-1 {
				evs = evs[len(evs)/10:]
			}
			j.add(evs...)
		}
		for _, after := range []events.Micros{0, day, 3 * day, 8 * day} {
			j.maintainAt(monthStart(2026, 5+m) + day + after)
			for _, p := range all {
				j.checkHasSeen(t, p, m, false)
			}
		}
	}

	// The late plays arrive after their months were sealed.
	j.maintainAt(monthStart(2026, 9) + 2*week)
	for m := 1; m < months-1; m++ {
		for _, p := range all {
			var items []string
			for i := m; i < len(p.items); i += months {
				items = append(items, strconv.FormatUint(p.items[i], 10))
			}
			j.add(newBackfills(monthStart(2026, 5+m), p.name, items[:len(items)/10]...)...)
		}
	}

	// Everything is seen at once, and while maintenance goes on.
	for range 3 {
		for _, p := range all {
			j.checkHasSeen(t, p, months-1, true)
		}
		j.maintainAt(j.now + 4*day)
	}
	for _, p := range all {
		j.checkFalsePositives(t, p)
	}
}

// checkHasSeen checks that a player has seen the plays of the window that ends with a month, and also
// those that arrived late if late is set.
func (j *testLog) checkHasSeen(t *testing.T, p player, lastMonth int, late bool) {
	t.Helper()
	var items []uint64
	for m := max(0, lastMonth-3); m <= lastMonth; m++ {
		count := (len(p.items) - m + 4) / 5
		for k, i := 0, m; i < len(p.items); k, i = k+1, i+5 {
			if late || m == 0 || m == 4 || k >= count/10 {
				items = append(items, p.items[i])
			}
		}
	}
	if unseen := j.findUnseenNumeric(t, p.name, items); len(unseen) > 0 {
		t.Fatalf("month %d: %s has not seen %d of %d played items, want all seen", lastMonth, p.name, len(unseen), len(items))
	}

	// A page of few items is compared with filters in another way than many candidates.
	for _, page := range [][]uint64{items[:min(20, len(items))], items[max(0, len(items)-20):]} {
		if unseen := j.findUnseenNumeric(t, p.name, page); len(unseen) > 0 {
			t.Fatalf("month %d: %s has not seen the items with indexes %v of a page, want all seen", lastMonth, p.name, unseen)
		}
	}
}

// findUnseenNumeric returns the indexes of the items that a user has not seen.
func (j *testLog) findUnseenNumeric(t *testing.T, user string, items []uint64) []uint32 {
	t.Helper()
	v, err := j.store.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	unseen, _, err := seen.Query(v, j.settings).FilterNumeric(seen.Question{User: user}, items, nil)
	if err != nil {
		t.Fatal(err)
	}
	return unseen
}

// checkFalsePositives asks about items that no user has played.
func (j *testLog) checkFalsePositives(t *testing.T, p player) {
	t.Helper()
	probes := 2_000_000
	if testing.Short() {
		probes = 200_000
	}

	// Many items per question, because each question reads the filters again.
	items := make([]uint64, 100_000)
	positives := 0
	next := uint64(1) << 41
	for tried := 0; tried < probes; tried += len(items) {
		for i := range items {
			items[i] = next
			next++
		}
		positives += len(items) - len(j.findUnseenNumeric(t, p.name, items))
	}

	share := float64(positives) / float64(probes)
	t.Logf("%s: %.4f %% of %d", p.name, 100*share, probes)
	if share > j.settings.FalsePositives {
		t.Errorf("%s: %.4f %% of the unseen items are taken for seen, want at most %.4f %%",
			p.name, 100*share, 100*j.settings.FalsePositives)
	}
}
