package notifications

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/store"
)

// openSources has every pin, hides nobody, and knows no followers. The cost of lookups in other
// projections is not measured.
type openSources struct{}

func (openSources) Pin(owner, _ string) (Pin, bool, error) {
	return Pin{Item: "i", RepinOwner: "ann", RepinPin: "p"}, owner != "", nil
}
func (openSources) Hides(string, string) (bool, error) { return false, nil }

func (openSources) Followers(context.Context, string, events.Micros, int) ([]Follower, error) {
	return nil, nil
}

// reactions returns n envelopes with 100 reactions each, to 50 pins of a recipient, over some days.
func reactions(n int, recipient func(i int) string) []*events.Envelope {
	const start, minute = 1_700_000_000_000_000, 60_000_000
	envs := make([]*events.Envelope, n)
	for e := range envs {
		env := &events.Envelope{Kinds: events.Kinds(events.Reacted)}
		for slot := range 100 {
			i := 100*e + slot
			env.Events = append(env.Events, events.Event{
				Kind: events.Reacted, Seq: uint64(e + 1), Slot: uint16(slot), Time: events.Micros(start + i*minute),
				User: fmt.Sprint("fan-", i), Item: "i", RepinUser: recipient(i), RepinPin: fmt.Sprint("p", i%50),
			})
		}
		env.Cursor = events.Cursor{Seq: uint64(e + 1), LastTime: events.Micros(start + (100*e+99)*minute)}
		envs[e] = env
	}
	return envs
}

func openBench(b *testing.B) *store.Store {
	b.Helper()
	s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: New(DefaultSettings())})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkFold folds reactions to the pins of 1000 recipients, each of whom soon has more than are
// kept.
func BenchmarkFold(b *testing.B) {
	for _, recipients := range []int{1, 1000} {
		b.Run(fmt.Sprintf("recipients=%d", recipients), func(b *testing.B) {
			s := openBench(b)
			envs := reactions(max(1, b.N/100), func(i int) string { return fmt.Sprint("user-", i%recipients) })
			b.ResetTimer()
			if err := s.Fold(envs); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkRead reads the badge and a page of 20 groups of a user with 1000 notifications.
func BenchmarkRead(b *testing.B) {
	s := openBench(b)
	if err := s.Fold(reactions(10, func(int) string { return "ann" })); err != nil {
		b.Fatal(err)
	}
	v, err := s.View()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = v.Close() })
	q := NewQueries(v, DefaultSettings())

	b.Run("badge", func(b *testing.B) {
		for range b.N {
			if n, _, err := q.CountUnseen(b.Context(), openSources{}, "ann", 0, 100, func(string) {}); err != nil || n == 0 {
				b.Fatalf("got %d unseen groups, error %v", n, err)
			}
		}
	})
	b.Run("page", func(b *testing.B) {
		for range b.N {
			if page, _, err := q.Groups(b.Context(), openSources{}, "ann", nil, 20); err != nil || len(page) != 20 {
				b.Fatalf("got %d groups, error %v", len(page), err)
			}
		}
	})
}
