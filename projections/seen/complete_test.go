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

// player is a user with many plays: item i was played in month i % 5 after the first.
type player struct {
	name  string
	items []uint64
}

// players have 1 to 100 000 plays each, of items below 2^40.
func players(sizes ...int) (all []player) {
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

// TestNoFalseNegative: nothing that was played in the window is ever unseen, however many plays
// there are, at any moment while months are sealed and late ones come in (I10). And no more of what
// was not played is taken for seen than may be, over the default window, late ones included.
func TestNoFalseNegative(t *testing.T) {
	s := seen.DefaultSettings()
	j := journalOf(t, s, store.Options{})
	defer j.close()
	all := players(1, 10, 1000, 10_000, 100_000)
	const months = 5
	for m := range months {
		j.at(monthStart(2026, 5+m))
		for _, p := range all {
			var evs []events.Event
			for i := m; i < len(p.items); i += months {
				evs = append(evs, plays(p.name, strconv.FormatUint(p.items[i], 10))...)
			}
			if m > 0 && m < months-1 {
				// One play of ten comes when the month has long been sealed.
				evs = evs[len(evs)/10:]
			}
			j.add(evs...)
		}
		for _, after := range []events.Micros{0, day, 3 * day, 8 * day} {
			j.tick(monthStart(2026, 5+m) + day + after)
			for _, p := range all {
				j.mustHaveSeen(t, p, m, false)
			}
		}
	}
	j.tick(monthStart(2026, 9) + 2*week)
	for m := 1; m < months-1; m++ {
		for _, p := range all {
			var items []string
			for i := m; i < len(p.items); i += months {
				items = append(items, strconv.FormatUint(p.items[i], 10))
			}
			j.add(backfills(monthStart(2026, 5+m), p.name, items[:len(items)/10]...)...)
		}
	}
	for range 3 {
		for _, p := range all {
			j.mustHaveSeen(t, p, months-1, true)
		}
		j.tick(j.now + 4*day)
	}
	for _, p := range all {
		j.falsePositives(t, p)
	}
}

// mustHaveSeen asks about the plays of the window that ends with a month; late: those that came
// late, too.
func (j *journal) mustHaveSeen(t *testing.T, p player, now int, late bool) {
	t.Helper()
	var items []uint64
	for m := max(0, now-3); m <= now; m++ {
		count := (len(p.items) - m + 4) / 5
		for k, i := 0, m; i < len(p.items); k, i = k+1, i+5 {
			if late || m == 0 || m == 4 || k >= count/10 {
				items = append(items, p.items[i])
			}
		}
	}
	if unseen := j.askNumbers(t, p.name, items); len(unseen) > 0 {
		t.Fatalf("month %d: %s has not seen %d of %d", now, p.name, len(unseen), len(items))
	}
	// A page is held against sets in another way than many candidates are.
	for _, page := range [][]uint64{items[:min(20, len(items))], items[max(0, len(items)-20):]} {
		if unseen := j.askNumbers(t, p.name, page); len(unseen) > 0 {
			t.Fatalf("month %d: %s has not seen %v of a page", now, p.name, unseen)
		}
	}
}

func (j *journal) askNumbers(t *testing.T, user string, items []uint64) []uint32 {
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

// falsePositives asks about items that no user has played.
func (j *journal) falsePositives(t *testing.T, p player) {
	t.Helper()
	probes := 2_000_000
	if testing.Short() {
		probes = 200_000
	}
	// The more that is asked at once, the less the reading of filters counts.
	items := make([]uint64, 100_000)
	positives, next := 0, uint64(1)<<41
	for tried := 0; tried < probes; tried += len(items) {
		for i := range items {
			items[i] = next
			next++
		}
		positives += len(items) - len(j.askNumbers(t, p.name, items))
	}
	share := float64(positives) / float64(probes)
	t.Logf("%s: %.4f %% of %d", p.name, 100*share, probes)
	if share > j.settings.FalsePositives {
		t.Errorf("%s: %.4f %% of the unseen are taken for seen, want at most %.4f %%", p.name, 100*share, 100*j.settings.FalsePositives)
	}
}
