package seen_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

const (
	may2026 = (2026-1970)*12 + 4
	week    = 7 * day
)

// crowd has users play an item each.
func crowd(n int, items ...string) (evs []events.Event) {
	for i := range n {
		evs = append(evs, plays(fmt.Sprint("user", i), items...)...)
	}
	return evs
}

// TestSealingSpreads: the users of a month that is over are sealed over the seven days after its
// end, about as many on each, and each once.
func TestSealingSpreads(t *testing.T) {
	const users = 5000
	j := journalOf(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	j.at(monthStart(2026, 5)).add(crowd(users, "1")...)
	for d := events.Micros(1); d < 31; d++ {
		j.tick(monthStart(2026, 5) + d*day) // the month is not over
	}
	if open, sealed := j.count(may2026, openRow), j.count(may2026, sealedRow); open != users || sealed != 0 {
		t.Fatalf("%d open and %d sealed rows in a month that is not over", open, sealed)
	}
	j.tick(monthStart(2026, 6) - 1000)
	before := 0
	for d := range events.Micros(30) {
		// Two events a day, so that visits are many and few.
		j.tick(monthStart(2026, 6) + d*day + day/3)
		j.tick(monthStart(2026, 6) + d*day + day - 1000)
		open, sealed := j.count(may2026, openRow), j.count(may2026, sealedRow)
		if open+sealed != users {
			t.Fatalf("day %d: %d open and %d sealed rows", d, open, sealed)
		}
		const mean = users / 7.0
		if today := float64(sealed - before); d < 7 && math.Abs(today-mean) > 5*math.Sqrt(mean) {
			t.Errorf("day %d: %.0f are sealed, want about %.0f", d, today, mean)
		}
		if d >= 7 && open > 0 {
			t.Errorf("day %d: %d are open", d, open)
		}
		before = sealed
	}
	j.rebuilt(t)
}

// TestMaintenanceAfterAPause: after a time without events that is longer than a round, each shard
// is visited once, at the next event, wherever the round before was left.
func TestMaintenanceAfterAPause(t *testing.T) {
	const users = 2000
	for _, begun := range []events.Micros{0, 1, 3, 6} {
		for _, pause := range []events.Micros{week + day, week + 4*day, 9 * week} {
			j := journalOf(t, seen.DefaultSettings(), store.Options{})
			j.at(monthStart(2026, 5)).add(crowd(users, "1")...)
			j.tick(monthStart(2026, 6) - 1000) // the maintenance is at work
			j.tick(monthStart(2026, 6) + begun*day)
			if n := j.count(may2026, openRow); n < users/10 {
				t.Fatalf("%d users are left after %d days", n, begun)
			}
			j.tick(monthStart(2026, 6) + begun*day + pause)
			if open, sealed := j.count(may2026, openRow), j.count(may2026, sealedRow); open != 0 || sealed != users {
				t.Errorf("%d days, then a pause of %d: %d users are open, %d sealed", begun, pause/day, open, sealed)
			}
			j.rebuilt(t)
			j.close()
		}
	}
}

// TestExpiryAfterAPause: the same for a month that is dropped.
func TestExpiryAfterAPause(t *testing.T) {
	const users = 2000
	for _, begun := range []events.Micros{1, 3, 6} {
		j := journalOf(t, seen.DefaultSettings(), store.Options{})
		j.at(monthStart(2026, 5)).add(crowd(users, "1")...)
		j.tick(monthStart(2026, 11) - 1000)
		j.tick(monthStart(2026, 11) + begun*day)
		if n := j.count(may2026, sealedRow); n < users/10 || n == users {
			t.Fatalf("%d users are left after %d days", n, begun)
		}
		j.tick(monthStart(2026, 11) + begun*day + week + 4*day)
		if n := j.count(may2026, sealedRow) + j.count(may2026, openRow); n != 0 {
			t.Errorf("%d days, then a pause: %d rows are left", begun, n)
		}
		if n := j.plans(); n != 0 {
			t.Errorf("%d partitions still think of a month without rows", n)
		}
		j.rebuilt(t)
		j.close()
	}
}

// TestEveryShardIsVisitedOnceAWeek: whatever the times of events, a user is never left for longer
// than a week.
func TestEveryShardIsVisitedOnceAWeek(t *testing.T) {
	j := journalOf(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	j.at(monthStart(2026, 6))
	// A user appears in the closed month each time, and is sealed within a week.
	steps := []events.Micros{day / 5, 3 * day, day / 24, 6*day + day/2, 60_000_000, day, 2 * day}
	appeared := map[string]events.Micros{}
	for i := range 60 {
		user := fmt.Sprint("late", i)
		j.add(backfills(monthStart(2026, 5), user, "1")...)
		appeared[user] = j.now
		j.tick(j.now + steps[i%len(steps)])
		j.rows(func(key, _ []byte) {
			if projections.Tag(key[2]) != openRow {
				return
			}
			user, _, err := events.CutID(key[5:])
			if err != nil {
				t.Fatal(err)
			}
			if age := j.now - appeared[user]; age > week+2*60_000_000 {
				t.Fatalf("%s is open for %d days", user, age/day)
			}
		})
	}
	j.rebuilt(t)
}

// TestLateBackfillsAreFoundBesideFilter: plays of a month that is sealed stand beside the filter
// and are found, round after round. A user who comes late only is sealed like others.
func TestLateBackfillsAreFoundBesideFilter(t *testing.T) {
	s := exact()
	j := journalOf(t, s, store.Options{})
	j.at(monthStart(2026, 5)).add(plays("ann", numbers(0, 500)...)...)
	j.tick(monthStart(2026, 6))
	j.tick(monthStart(2026, 6) + week)
	j.add(backfills(monthStart(2026, 5)+day, "ann", numbers(400, 300)...)...)
	j.add(backfills(monthStart(2026, 5)+day, "bob", numbers(0, 10)...)...)
	check := func(when string, open int) {
		t.Helper()
		if unseen := j.ask("ann", 2, numbers(0, 710)...); len(unseen) != 10 || unseen[0] != 700 {
			t.Errorf("%s: ann has not seen %v", when, unseen)
		}
		if unseen := j.ask("bob", 2, numbers(0, 20)...); len(unseen) != 10 || unseen[0] != 10 {
			t.Errorf("%s: bob has not seen %v", when, unseen)
		}
		if n := j.count(may2026, openRow); n != open {
			t.Errorf("%s: %d open rows, want %d", when, n, open)
		}
	}
	check("at once", 2)
	j.tick(j.now + week)
	check("after a round", 1)
	j.add(backfills(monthStart(2026, 5)+2*day, "ann", numbers(695, 5)...)...)
	j.tick(j.now + week)
	j.tick(j.now + week)
	check("after two rounds more", 1)
	if n := j.count(may2026, sealedRow); n != 2 {
		t.Errorf("%d sealed rows", n)
	}
	// Another month has nothing of it.
	if unseen := j.ask("ann", 1, numbers(0, 710)...); len(unseen) != 710 {
		t.Errorf("%d items are unseen in the month in which they were imported", len(unseen))
	}
	j.rebuilt(t)
	j.close()
}

// TestPlaysBeyondTheCalendarAreFound: what the calendar has no months for is of its first or last
// one, and is kept and found there.
func TestPlaysBeyondTheCalendarAreFound(t *testing.T) {
	j := journalOf(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	j.add(backfills(-5, "ann", "0")...) // the log itself begins in 1970
	j.at(day).add(plays("ann", "1")...)
	if unseen := j.ask("ann", 6, "0", "1", "2"); len(unseen) != 1 || unseen[0] != 2 {
		t.Errorf("%v are unseen in 1970", unseen)
	}
	for i, year := range []int{7431, 9999, 200_000} {
		items := numbers(10*i, 3)
		j.at(monthStart(year, 6)).add(plays("ann", items...)...)
		j.add(backfills(j.now-40*day, "ann", "77")...)
		j.tick(j.now + 3*week)
		if unseen := j.ask("ann", 1, append(items, "99")...); len(unseen) != 1 || unseen[0] != 3 {
			t.Errorf("%v are unseen in %d", unseen, year)
		}
	}
	j.rebuilt(t)
}
