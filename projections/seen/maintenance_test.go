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
	// may2026 is the number of that month, counted from January 1970.
	may2026 = (2026-1970)*12 + 4
	week    = 7 * day
)

// newPlaysOfUsers returns plays of the items by each of n users.
func newPlaysOfUsers(n int, items ...string) (evs []events.Event) {
	for i := range n {
		evs = append(evs, newPlays(fmt.Sprint("user", i), items...)...)
	}
	return evs
}

// TestSealingSpreads checks that the users of a closed month are sealed over the seven days after its
// end, about as many on each day, and each user once.
func TestSealingSpreads(t *testing.T) {
	const users = 5000
	j := newTestLog(t, seen.DefaultSettings(), store.Options{})
	defer j.close()

	// In May itself, nothing is sealed.
	j.advanceTo(monthStart(2026, 5)).add(newPlaysOfUsers(users, "1")...)
	for d := events.Micros(1); d < 31; d++ {
		j.maintainAt(monthStart(2026, 5) + d*day)
	}
	if open, sealed := j.countRows(may2026, openRow), j.countRows(may2026, sealedRow); open != users || sealed != 0 {
		t.Fatalf("got %d open and %d sealed rows in a month that is not over, want %d and 0", open, sealed, users)
	}

	// In June, a seventh of the users is sealed on each of the first seven days. Two events per day
	// make rounds of many users and of few.
	j.maintainAt(monthStart(2026, 6) - 1000)
	before := 0
	for d := range events.Micros(30) {
		j.maintainAt(monthStart(2026, 6) + d*day + day/3)
		j.maintainAt(monthStart(2026, 6) + d*day + day - 1000)
		open, sealed := j.countRows(may2026, openRow), j.countRows(may2026, sealedRow)
		if open+sealed != users {
			t.Fatalf("day %d: got %d open and %d sealed rows, want %d in all", d, open, sealed, users)
		}

		const mean = users / 7.0
		if today := float64(sealed - before); d < 7 && math.Abs(today-mean) > 5*math.Sqrt(mean) {
			t.Errorf("day %d: %.0f users were sealed, want about %.0f", d, today, mean)
		}
		if d >= 7 && open > 0 {
			t.Errorf("day %d: got %d open rows, want none", d, open)
		}
		before = sealed
	}

	j.checkRebuild(t)
}

// TestMaintenanceAfterAPause checks that, after a time without events that is longer than a round,
// the next event visits each shard once, wherever the round before was interrupted.
func TestMaintenanceAfterAPause(t *testing.T) {
	const users = 2000
	for _, begun := range []events.Micros{0, 1, 3, 6} {
		for _, pause := range []events.Micros{week + day, week + 4*day, 9 * week} {
			name := fmt.Sprintf("%d days of maintenance and %d of pause", begun, pause/day)
			t.Run(name, func(t *testing.T) {
				j := newTestLog(t, seen.DefaultSettings(), store.Options{})
				j.advanceTo(monthStart(2026, 5)).add(newPlaysOfUsers(users, "1")...)

				// Maintenance begins, and leaves some users open.
				j.maintainAt(monthStart(2026, 6) - 1000)
				j.maintainAt(monthStart(2026, 6) + begun*day)
				if n := j.countRows(may2026, openRow); n < users/10 {
					t.Fatalf("before the pause: got %d open rows, want at least %d", n, users/10)
				}

				j.maintainAt(monthStart(2026, 6) + begun*day + pause)
				open, sealed := j.countRows(may2026, openRow), j.countRows(may2026, sealedRow)
				if open != 0 || sealed != users {
					t.Errorf("after the pause: got %d open and %d sealed rows, want 0 and %d", open, sealed, users)
				}
				j.checkRebuild(t)
				j.close()
			})
		}
	}
}

// TestExpiryAfterAPause checks the same for a month that is dropped.
func TestExpiryAfterAPause(t *testing.T) {
	const users = 2000
	for _, begun := range []events.Micros{1, 3, 6} {
		t.Run(fmt.Sprintf("%d days of maintenance", begun), func(t *testing.T) {
			j := newTestLog(t, seen.DefaultSettings(), store.Options{})
			j.advanceTo(monthStart(2026, 5)).add(newPlaysOfUsers(users, "1")...)
			j.maintainAt(monthStart(2026, 11) - 1000)
			j.maintainAt(monthStart(2026, 11) + begun*day)
			if n := j.countRows(may2026, sealedRow); n < users/10 || n == users {
				t.Fatalf("before the pause: got %d sealed rows, want at least %d and less than all %d", n, users/10, users)
			}

			j.maintainAt(monthStart(2026, 11) + begun*day + week + 4*day)
			if n := j.countRows(may2026, sealedRow) + j.countRows(may2026, openRow); n != 0 {
				t.Errorf("after the pause: got %d rows, want none", n)
			}
			if n := j.countPlans(); n != 0 {
				t.Errorf("got plans of %d partitions for a month without rows, want none", n)
			}
			j.checkRebuild(t)
			j.close()
		})
	}
}

// TestEveryShardIsVisitedOnceAWeek checks that no user is left open for longer than a week, whatever
// the times of events.
func TestEveryShardIsVisitedOnceAWeek(t *testing.T) {
	j := newTestLog(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	j.advanceTo(monthStart(2026, 6))

	// A user appears in the closed month each time, and must be sealed within a week.
	steps := []events.Micros{day / 5, 3 * day, day / 24, 6*day + day/2, 60_000_000, day, 2 * day}
	appeared := map[string]events.Micros{}
	for i := range 60 {
		user := fmt.Sprint("late", i)
		j.add(newBackfills(monthStart(2026, 5), user, "1")...)
		appeared[user] = j.now
		j.maintainAt(j.now + steps[i%len(steps)])
		j.eachRow(func(key, _ []byte) {
			if projections.Tag(key[2]) != openRow {
				return
			}
			user, _, err := events.CutID(key[5:])
			if err != nil {
				t.Fatal(err)
			}
			if age := j.now - appeared[user]; age > week+2*60_000_000 {
				t.Fatalf("%s has been open for %d days, want at most a week", user, age/day)
			}
		})
	}
	j.checkRebuild(t)
}

// TestLateBackfillsAreFoundBesideFilter checks that late plays of a sealed month are kept beside its
// filter and found, round after round. A user who has only late plays is sealed like others.
func TestLateBackfillsAreFoundBesideFilter(t *testing.T) {
	s := exactSettings()
	j := newTestLog(t, s, store.Options{})
	j.advanceTo(monthStart(2026, 5)).add(newPlays("ann", itemNumbers(0, 500)...)...)
	j.maintainAt(monthStart(2026, 6))
	j.maintainAt(monthStart(2026, 6) + week)
	j.add(newBackfills(monthStart(2026, 5)+day, "ann", itemNumbers(400, 300)...)...)
	j.add(newBackfills(monthStart(2026, 5)+day, "bob", itemNumbers(0, 10)...)...)

	check := func(when string, wantOpen int) {
		t.Helper()
		if unseen := j.findUnseen("ann", 2, itemNumbers(0, 710)...); len(unseen) != 10 || unseen[0] != 700 {
			t.Errorf("%s: got the items %v unseen by ann, want 700 to 709", when, unseen)
		}
		if unseen := j.findUnseen("bob", 2, itemNumbers(0, 20)...); len(unseen) != 10 || unseen[0] != 10 {
			t.Errorf("%s: got the items %v unseen by bob, want 10 to 19", when, unseen)
		}
		if n := j.countRows(may2026, openRow); n != wantOpen {
			t.Errorf("%s: got %d open rows, want %d", when, n, wantOpen)
		}
	}
	check("before a round", 2)
	j.maintainAt(j.now + week)
	check("after a round", 1)
	j.add(newBackfills(monthStart(2026, 5)+2*day, "ann", itemNumbers(695, 5)...)...)
	j.maintainAt(j.now + week)
	j.maintainAt(j.now + week)
	check("after two more rounds", 1)
	if n := j.countRows(may2026, sealedRow); n != 2 {
		t.Errorf("got %d sealed rows, want 2", n)
	}

	// The month in which the late plays were imported has none of them.
	if unseen := j.findUnseen("ann", 1, itemNumbers(0, 710)...); len(unseen) != 710 {
		t.Errorf("got %d unseen items in the month of the import, want 710", len(unseen))
	}
	j.checkRebuild(t)
	j.close()
}

// TestPlaysBeyondTheCalendarAreFound checks that plays before or after the months of the calendar
// belong to its first or last month, and are kept and found there.
func TestPlaysBeyondTheCalendarAreFound(t *testing.T) {
	j := newTestLog(t, seen.DefaultSettings(), store.Options{})
	defer j.close()
	j.add(newBackfills(-5, "ann", "0")...) // the log itself begins in 1970
	j.advanceTo(day).add(newPlays("ann", "1")...)
	if unseen := j.findUnseen("ann", 6, "0", "1", "2"); len(unseen) != 1 || unseen[0] != 2 {
		t.Errorf("got the items %v unseen in 1970, want 2", unseen)
	}

	for i, year := range []int{7431, 9999, 200_000} {
		items := itemNumbers(10*i, 3)
		j.advanceTo(monthStart(year, 6)).add(newPlays("ann", items...)...)
		j.add(newBackfills(j.now-40*day, "ann", "77")...)
		j.maintainAt(j.now + 3*week)
		if unseen := j.findUnseen("ann", 1, append(items, "99")...); len(unseen) != 1 || unseen[0] != 3 {
			t.Errorf("got the indexes %v of unseen items in %d, want 3", unseen, year)
		}
	}
	j.checkRebuild(t)
}
