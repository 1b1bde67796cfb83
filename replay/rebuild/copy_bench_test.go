package rebuild_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/rebuild"
)

// BenchmarkResizeCopies resizes a node that has a third of the partitions to two thirds, with
// 200,000 follows: from another node, and from the log.
func BenchmarkResizeCopies(b *testing.B) {
	const follows, users = 200_000, 100_000

	// Publish the follows.
	w := newTestLog(b)
	random := rand.New(rand.NewPCG(1, 2))
	var last uint64
	for range follows / 1000 {
		evs := make([]*skeinv1.Event, 1000)
		for i := range evs {
			evs[i] = &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
				UserId: fmt.Sprint("u", random.IntN(users)), TargetUserId: fmt.Sprint("v", random.IntN(users)),
			}}}
		}
		res, err := w.publisher.Publish(b.Context(), evs, eventlog.PublishOptions{})
		if err != nil {
			b.Fatal(err)
		}
		last = res.Position.Seq
	}

	firstThird := everyNth(0, 3)
	secondThird := everyNth(1, 3)
	twoThirds := firstThird
	_ = secondThird.Each(func(p uint8) error {
		twoThirds.Add(p)
		return nil
	})

	for _, p := range all.Constructors(all.Settings{}) {
		l := w.openLive(p, store.Options{Partitioned: true})
		other := w.openLive(p, store.Options{Partitioned: true})
		for resized, to := range map[*live.Live]events.Partitions{other: secondThird, l: firstThird} {
			if _, err := rebuild.Resize(b.Context(), resized, to, w.subscribeKinds, rebuild.Options{}); err != nil {
				b.Fatal(err)
			}
			if err := resized.WaitFor(b.Context(), last); err != nil {
				b.Fatal(err)
			}
		}

		for name, sources := range map[string]func() []rebuild.Source{
			"copied": func() []rebuild.Source { return []rebuild.Source{w.newSource(other)} },
			"built":  nil,
		} {
			b.Run(fmt.Sprintf("%s/%s", l.Name(), name), func(b *testing.B) {
				for b.Loop() {
					_, err := rebuild.Resize(b.Context(), l, twoThirds, w.subscribeKinds, rebuild.Options{Sources: sources})
					if err != nil {
						b.Fatal(err)
					}

					// Go back to a third, which does not count.
					b.StopTimer()
					if _, err := rebuild.Resize(b.Context(), l, firstThird, w.subscribeKinds, rebuild.Options{}); err != nil {
						b.Fatal(err)
					}
					if err := l.DeletePrevious(b.Context()); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
		}
	}
}
