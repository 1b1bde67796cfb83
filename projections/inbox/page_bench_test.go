package inbox_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
)

// feeds is a store on disk of 50 readers who follow 1000 of 5000 authors, 20 of whom are pulled by
// all.
func feeds(b *testing.B) (*store.Store, func(i int) string) {
	b.Helper()
	const readers, authors, large, threshold, posts = 50, 5000, 20, 10, 100_000
	settings := inbox.DefaultSettings()
	settings.Threshold = threshold
	s := newBenchStore(b, inbox.NewWith(settings, querycache.New(querycache.DefaultBytes)))
	reader := func(i int) string { return fmt.Sprint(1_000_000_000_000 + i*7919) }
	author := func(i int) string { return fmt.Sprint(2_000_000_000_000 + i*104729) }
	r := rand.New(rand.NewPCG(1, 2))
	for i := range readers {
		for _, fan := range usersNear(reader(i), threshold) {
			for a := range large {
				s.add(events.Event{Kind: events.UserFollowed, User: fan, Peer: author(a)})
			}
		}
	}
	for i := range readers {
		for n, a := range r.Perm(authors) {
			if a < large || n < 1000 {
				s.add(events.Event{Kind: events.UserFollowed, User: reader(i), Peer: author(a)})
			}
		}
	}
	for n := range posts {
		s.add(events.Event{Kind: events.PinCreated, User: author(r.IntN(authors)), Pin: fmt.Sprint(n)})
		if n%50 == 0 {
			s.add(events.Event{Kind: events.PinCreated, User: author(r.IntN(large)), Pin: fmt.Sprint("l", n)})
		}
	}
	s.flush()
	return s.Store, reader
}

// BenchmarkPage reads pages of 20 of feeds of 1000 followees, 20 of whom are pulled.
func BenchmarkPage(b *testing.B) {
	s, reader := feeds(b)
	for name, order := range map[string]inbox.Order{"newest": inbox.Newest, "trending": inbox.Trending} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				v, err := s.View()
				if err != nil {
					b.Fatal(err)
				}
				f := inbox.Feed{Reader: reader(n % 50)}
				if order == inbox.Trending {
					f = rankByHeat(f, 1000, v.Cursor(), nil)
				}
				page, err := inbox.CachedQuery(v).Feed(b.Context(), f, nil, 20)
				if err != nil {
					b.Fatal(err)
				}
				if len(page.Pins) != 20 {
					b.Fatalf("got %d pins, want 20", len(page.Pins))
				}
				if err := v.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
