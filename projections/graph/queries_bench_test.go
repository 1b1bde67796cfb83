package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	benchUsers   = 10_000
	benchFollows = 100_000
	benchBoard   = "videos"
)

// benchUserID returns the id of the user with a number, as large systems have them.
func benchUserID(user int) string { return fmt.Sprint(1_000_000_000_000 + user) }

// openBenchView folds 10⁵ follows of 10⁴ users into a store on disk. Each tenth follow is of a
// board of the followee. The first hundred users have some two hundred followers each. It returns a
// view of the store, and the follower and followee of each follow.
func openBenchView(b *testing.B, p projections.Projection) (*projections.View, [][2]string) {
	b.Helper()
	store, err := store.Open(store.Options{
		Dir: b.TempDir(), Projection: p, Cache: store.NewCache(256 << 20),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	var (
		r     = rand.New(rand.NewPCG(1, 1))
		d     = events.NewDecoder(events.Cursor{})
		pairs = make([][2]string, benchFollows)
		evs   []*skeinv1.Event
	)
	for i := range pairs {
		a := r.IntN(benchUsers)
		u := int(benchUsers * math.Pow(r.Float64(), 3))
		if a == u {
			u = (u + 1) % benchUsers
		}
		pairs[i] = [2]string{benchUserID(a), benchUserID(u)}
		ev := &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{
			UserFollowed: &skeinv1.UserFollowed{UserId: benchUserID(a), TargetUserId: benchUserID(u)},
		}}
		if i%10 == 0 {
			ev.Kind = &skeinv1.Event_BoardFollowed{BoardFollowed: &skeinv1.BoardFollowed{
				UserId: benchUserID(a), Board: &skeinv1.Board{OwnerId: benchUserID(u), BoardId: benchBoard},
			}}
		}
		if evs = append(evs, ev); len(evs) < events.MaxEnvelopeEvents {
			continue
		}
		data, err := events.EncodeEnvelope(evs)
		if err != nil {
			b.Fatal(err)
		}
		env, err := d.Decode(uint64(i), events.Micros(i)*1000, data)
		if err != nil {
			b.Fatal(err)
		}
		if err := store.Fold([]*events.Envelope{env}); err != nil {
			b.Fatal(err)
		}
		evs = evs[:0]
	}
	if err := store.Flush(); err != nil {
		b.Fatal(err)
	}
	view, err := store.View()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := view.Close(); err != nil {
			b.Error(err)
		}
	})
	return view, pairs
}

// BenchmarkQueries asks one question at a time about 10⁵ follows that are in the block cache.
func BenchmarkQueries(b *testing.B) {
	view, pairs := openBenchView(b, graph.New())
	q := graph.NewQueries(view)
	for _, c := range []struct {
		name string
		ask  func(follower, user string) error
	}{
		{"User/yes", func(follower, user string) error {
			_, err := q.UserFollow(follower, user)
			return err
		}},
		{"User/no", func(follower, user string) error {
			_, err := q.UserFollow(user, follower)
			return err
		}},
		{"Board", func(follower, user string) error {
			_, err := q.BoardFollow(follower, user, benchBoard)
			return err
		}},
		{"Relationship", func(follower, user string) error {
			_, err := q.Relationship(follower, user)
			return err
		}},
		{"UserCounts", func(_, user string) error {
			_, err := q.UserCounts(user)
			return err
		}},
		{"BoardCounts", func(_, user string) error {
			_, err := q.BoardCounts(user, benchBoard)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				p := pairs[i%len(pairs)]
				if err := c.ask(p[0], p[1]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCached asks questions about 10⁵ follows that are answered from memory.
func BenchmarkCached(b *testing.B) {
	view, pairs := openBenchView(b, graph.NewWith(querycache.New(querycache.DefaultBytes)))
	q := graph.NewCachedQueries(view)
	users := make([]string, 25)
	follows := make([]graph.Follow, 25)
	askAboutUsers := func(i int) error {
		for j := range users {
			users[j] = pairs[(i*31+j*7)%len(pairs)][1]
		}
		return q.UserFollows(pairs[i%len(pairs)][0], users, follows)
	}
	askAboutUser := func(i int) error {
		p := pairs[i%len(pairs)]
		_, err := q.UserFollow(p[0], p[1])
		return err
	}
	for range 3 { // until the edges of every user are cached
		for i := range pairs {
			if err := askAboutUser(i); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, ask := range map[string]func(i int) error{"User": askAboutUser, "Users": askAboutUsers} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := ask(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkUsers asks about 25 users at once, two of which the follower follows.
func BenchmarkUsers(b *testing.B) {
	view, pairs := openBenchView(b, graph.New())
	q := graph.NewQueries(view)
	follows := make([]graph.Follow, 25)
	users := make([]string, len(follows))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for j := range users {
			users[j] = pairs[(i*31+j*7)%len(pairs)][1]
		}
		if err := q.UserFollows(pairs[i%len(pairs)][0], users, follows); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkList reads first pages of 50 whose rows are in the block cache. The list of a board is a
// merge, and a user follows ten others only.
func BenchmarkList(b *testing.B) {
	view, _ := openBenchView(b, graph.New())
	q := graph.NewQueries(view)
	for name, kind := range map[string]graph.ListKind{
		"Followers": graph.Followers, "Following": graph.Following, "BoardFollowers": graph.BoardFollowers,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			entries := 0
			for i := 0; b.Loop(); i++ {
				list := graph.List{Kind: kind, User: benchUserID(i % 100), Board: benchBoard}
				page, _, err := q.List(b.Context(), list, nil, 50)
				if err != nil {
					b.Fatal(err)
				}
				entries += len(page)
			}
			b.ReportMetric(float64(entries)/float64(b.N), "entries/op")
		})
	}
}
