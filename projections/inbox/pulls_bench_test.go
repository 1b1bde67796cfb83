package inbox_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
)

// BenchmarkPulls reads pages of 20 of feeds of 1000 followees, of whom 0, 200 or all are pulled.
func BenchmarkPulls(b *testing.B) {
	const readers, followees, posts = 20, 1000, 40_000
	for _, pulls := range []int{0, 200, 1000} {
		b.Run(fmt.Sprint(pulls), func(b *testing.B) {
			settings := inbox.DefaultSettings()
			settings.Threshold = 1
			s := newBenchStore(b, inbox.NewWith(settings, querycache.New(querycache.DefaultBytes)))
			reader := func(i int) string { return fmt.Sprint(1_000_000_000_000 + i*7919) }
			author := func(i, n int) string { return fmt.Sprint(2_000_000_000_000 + (i*followees+n)*104729) }

			for i := range readers {
				fan := usersNear(reader(i), 1)[0]
				for n := range followees {
					s.add(events.Event{Kind: events.UserFollowed, User: reader(i), Peer: author(i, n)})
					if n < pulls {
						s.add(events.Event{Kind: events.UserFollowed, User: fan, Peer: author(i, n)})
					}
				}
			}

			for n := range posts {
				s.add(events.Event{Kind: events.PinCreated, User: author(n%readers, n*31%followees), Pin: fmt.Sprint(n)})
			}

			s.compact()
			readPages(b, s.Store, func(n int) inbox.Feed { return inbox.Feed{Reader: reader(n % readers)} })
		})
	}
}

// BenchmarkPosts folds posts of an owner with 5, 200 or 10⁶ followers, all of them active readers.
// An operation is a post.
func BenchmarkPosts(b *testing.B) {
	for _, followers := range []int{5, 200, 1_000_000} {
		b.Run(fmt.Sprint(followers), func(b *testing.B) {
			s := newBenchStore(b, inbox.NewWith(inbox.DefaultSettings(), querycache.New(1<<30)))
			name := func(i int) string { return fmt.Sprint(1_000_000_000_000 + i*7919) }
			for i := range followers {
				s.add(events.Event{Kind: events.UserFollowed, User: name(i), Peer: "bob"})
			}
			s.readFirstPages(followers, name)

			s.flush()
			b.ResetTimer()
			b.ReportAllocs()
			for n := range b.N {
				s.add(events.Event{Kind: events.PinCreated, User: "bob", Pin: fmt.Sprint(n)})
			}
			s.flush()
		})
	}
}

// compact writes everything to disk, and returns once nothing is left to compact.
func (s *benchStore) compact() {
	s.b.Helper()
	s.flush()
	if err := s.Compact(s.b.Context()); err != nil {
		s.b.Fatal(err)
	}
}

// readPages reads the first 20 pins of feeds.
func readPages(b *testing.B, s *store.Store, feed func(n int) inbox.Feed) {
	b.Helper()
	b.ReportAllocs()
	var durations []time.Duration
	for n := 0; b.Loop(); n++ {
		began := time.Now()
		v, err := s.View()
		if err != nil {
			b.Fatal(err)
		}
		page, err := inbox.CachedQuery(v).Feed(b.Context(), feed(n), nil, 20)
		if err != nil {
			b.Fatal(err)
		}
		if len(page.Pins) != 20 {
			b.Fatalf("got %d pins, want 20", len(page.Pins))
		}
		if err := v.Close(); err != nil {
			b.Fatal(err)
		}
		durations = append(durations, time.Since(began))
	}
	slices.Sort(durations)
	b.ReportMetric(float64(durations[len(durations)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(durations[len(durations)*99/100].Nanoseconds()), "p99-ns")
}
