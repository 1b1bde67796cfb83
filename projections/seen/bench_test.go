package seen_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// fourMonths folds plays of one user in four months, three of which are sealed.
func fourMonths(b *testing.B, s seen.Settings, plays int) *store.Store {
	b.Helper()
	store := openMem(b, s)
	seq := uint64(0)
	for m := range 4 {
		at := monthStart(2026, 5+m)
		var envs []*events.Envelope
		for i := range plays {
			seq++
			at += 1000
			envs = append(envs, envelope(seq, events.Event{
				Kind: events.Played, Time: at, User: "reader", Item: strconv.Itoa(m*plays + i),
			}))
		}
		if err := store.Fold(envs); err != nil {
			b.Fatal(err)
		}
	}

	// Two weeks later, all closed months are sealed.
	seq++
	err := store.Fold([]*events.Envelope{envelope(seq, events.Event{
		Kind: events.Played, Time: monthStart(2026, 8) + 14*day, User: "other", Item: "1",
	})})
	if err != nil {
		b.Fatal(err)
	}
	return store
}

// BenchmarkFilter asks about 10 000 candidates over four months of 3300 plays each, and about a
// page of 20.
func BenchmarkFilter(b *testing.B) {
	s := seen.DefaultSettings()
	store := fourMonths(b, s, 3300)
	v, err := store.View()
	if err != nil {
		b.Fatal(err)
	}
	q := seen.Query(v, s)
	for _, n := range []int{20, 10_000} {
		numbers := make([]uint64, n)
		texts := make([]string, n)
		r := rand.New(rand.NewPCG(2, 2))
		for i := range numbers {
			numbers[i] = 1<<20 + r.Uint64N(1<<40)
			if i%10 == 0 { // a tenth was played
				numbers[i] = r.Uint64N(4 * 3300)
			}
			texts[i] = fmt.Sprintf("item-%d", numbers[i])
		}
		var out []uint32
		b.Run(fmt.Sprintf("%d/numeric", n), func(b *testing.B) {
			for b.Loop() {
				out, _, err = q.FilterNumeric(seen.Question{User: "reader"}, numbers, out[:0])
				if err != nil {
					b.Fatal(err)
				}
				if len(out) < n*8/10 {
					b.Fatalf("got %d unseen items, want at least %d", len(out), n*8/10)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/texts", n), func(b *testing.B) {
			for b.Loop() {
				out, _, err = q.Filter(seen.Question{User: "reader"}, texts, out[:0])
				if err != nil {
					b.Fatal(err)
				}
				if len(out) < n*8/10 {
					b.Fatalf("got %d unseen items, want at least %d", len(out), n*8/10)
				}
			}
		})
	}
	if err := v.Close(); err != nil {
		b.Fatal(err)
	}
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPlays folds plays of 10^5 users in envelopes of 100, a month of log time in all.
func BenchmarkPlays(b *testing.B) {
	store, err := store.Open(store.Options{Dir: b.TempDir(), Projection: seen.New(seen.DefaultSettings())})
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	users := make([]string, 100_000)
	for i := range users {
		users[i] = strconv.Itoa(1_000_000 + i)
	}
	items := make([]string, 1_000_000)
	for i := range items {
		items[i] = strconv.Itoa(1<<40 + i)
	}

	// Fold 2000 envelopes at a time. Only the folds are timed.
	at := monthStart(2026, 5)
	seq := uint64(0)
	step := 28 * day / events.Micros(max(b.N, 1))
	b.ResetTimer()
	spent := time.Duration(0)
	for left := b.N; left > 0; {
		b.StopTimer()
		var envs []*events.Envelope
		for len(envs) < 2000 && left > 0 {
			n := min(100, left)
			evs := make([]events.Event, n)
			for i := range evs {
				at += step
				evs[i] = events.Event{Kind: events.Played, Time: at, User: users[r.IntN(len(users))], Item: items[r.IntN(len(items))]}
			}
			seq++
			envs = append(envs, envelope(seq, evs...))
			left -= n
		}
		b.StartTimer()
		start := time.Now()
		if err := store.Fold(envs); err != nil {
			b.Fatal(err)
		}
		spent += time.Since(start)
	}
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}
