package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// feedRuns is how often at most what takes long is measured.
	feedRuns = 3
	// postsTogether is how many posts are in an envelope, envelopesTogether how many envelopes are folded at once.
	postsTogether, envelopesTogether = 100, 10
	// longActive is longer than all posts together: every reader with an inbox keeps it.
	longActive = 20 * 365 * 24 * time.Hour
	// pushAll is the threshold at which everything is pushed.
	pushAll = -1
)

// feedSize is how much is measured of the home feed.
type feedSize struct {
	// boards and posts are how many are made up; of a file that is given so many posts are taken, the last ones.
	boards, posts int
	// deliveries are those of one measurement of the fan-out.
	deliveries int
	// rounds is how often in a run an envelope of ordinary posts is timed.
	rounds int
	// threshold is that of the inbox; the default one at the default number of readers.
	threshold int64
}

func (b *bench) feedSize() feedSize {
	threshold := min(inbox.DefaultSettings().Threshold, int64(b.opts.Readers/10))
	if b.opts.Quick {
		return feedSize{boards: 1200, posts: 20_000, deliveries: 50_000, rounds: 20, threshold: threshold}
	}
	return feedSize{boards: 2500, posts: 300_000, deliveries: 1_500_000, rounds: 300, threshold: threshold}
}

// feed measures the home feed: posts that come to inboxes, and pages that are read.
func (b *bench) feed(ctx context.Context) error {
	size := b.feedSize()
	boards, posts := makePosts(size.boards, size.posts)
	if b.opts.Posts != "" {
		var err error
		if boards, posts, err = readPosts(b.opts.Posts, size.posts); err != nil {
			return err
		}
	}
	w, err := newFeedWorld(boards, posts, b.opts.Readers)
	if err != nil {
		return err
	}
	if err := b.feedFanOut(ctx, w, size); err != nil {
		return err
	}
	return b.feedHome(ctx, w, size)
}

// openFeed opens an empty store of home feeds.
func (b *bench) openFeed(w *feedWorld, threshold int64) (*folder, error) {
	settings := inbox.DefaultSettings()
	settings.Threshold, settings.Active = threshold, longActive
	hot := graph.NewHotCache(graph.DefaultHotBytes)
	return openProjection(b.dir, w.start(), func() projections.Projection { return inbox.NewWith(settings, hot) })
}

// loadFollows folds the follows, those of a large author (0: none), and then the activity of all who have an inbox.
func (f *folder) loadFollows(w *feedWorld, large int) error {
	return f.load(len(w.follows)+large+w.active(), func(i int) *skeinv1.Event {
		if i < len(w.follows) {
			return w.followed(w.follows[i])
		}
		if i -= len(w.follows); i < large {
			return userFollowed(w.largeFollower(i), largeAuthor)
		}
		return readerActive(uint32(i - large))
	})
}

// sealed is an envelope as it comes from a log.
type sealed struct {
	stamp events.Micros
	data  []byte
}

// seal makes envelopes of posts, each with the time of its last one.
func (w *feedWorld) seal(posts []feedPost) ([]sealed, error) {
	var made []sealed
	for together := range slices.Chunk(posts, postsTogether) {
		evs := make([]*skeinv1.Event, len(together))
		for i, p := range together {
			evs[i] = pinCreated(w.boards[p.board], p.id)
		}
		data, err := events.EncodeEnvelope(evs)
		if err != nil {
			return nil, err
		}
		made = append(made, sealed{together[len(together)-1].at, data})
	}
	return made, nil
}

// foldSealed decodes and folds envelopes, some at a time, and brings them to disk.
func (f *folder) foldSealed(ctx context.Context, log []sealed) error {
	for together := range slices.Chunk(log, envelopesTogether) {
		if err := ctx.Err(); err != nil {
			return err
		}
		envs := make([]*events.Envelope, len(together))
		for i, s := range together {
			var err error
			if envs[i], err = f.decode(s.stamp, s.data); err != nil {
				return err
			}
		}
		if err := f.store.Fold(envs); err != nil {
			return err
		}
	}
	return f.store.Flush()
}

// feedFanOut measures how fast posts come to the inboxes of all followers, and the bytes that they take there.
func (b *bench) feedFanOut(ctx context.Context, w *feedWorld, size feedSize) (err error) {
	f, err := b.openFeed(w, pushAll)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	b.say("folding %d follows of %d boards", len(w.follows), len(w.boards))
	if err := f.loadFollows(w, 0); err != nil {
		return err
	}
	empty, err := f.compacted(ctx)
	if err != nil {
		return err
	}
	runs := w.cut(min(b.opts.Runs, feedRuns), size.deliveries)
	peers := [...]feedKind{feedLists, feedSets}
	var servers [len(peers)]*redisServer
	for i := range peers {
		if servers[i], err = startRedis(ctx, b.tools.redisServer, b.dir, everysec); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers[i].close()) }()
	}
	if err := b.fanOutRows(ctx, w, f, runs, peers[:], servers[:]); err != nil {
		return err
	}
	full, err := f.compacted(ctx)
	if err != nil {
		return err
	}
	pushed := w.posts[runs[0].from:]
	if err := f.checkPages(ctx, w.light, func(r feedReader) []string { return w.namesOf(pushed, r.boards) }); err != nil {
		return err
	}
	deliveries := float64(w.deliveries(pushed))
	row := b.row("feed-bytes", "bytes a delivery", "bytes", "skein: the directory of the compacted store, less that "+
		"before the first post; the pins themselves and their outboxes are in it. Redis: used_memory of the lists and "+
		"sets alone, less that of an empty server; posts stand in them as numbers, which they hold as such.")
	row.series(mySelf).add(measurement{value: float64(full-empty) / deliveries})
	for i, kind := range peers {
		memory, err := servers[i].memory(ctx)
		if err != nil {
			return err
		}
		row.series(kind.memoryName()).add(measurement{value: memory / deliveries})
		row.compare(mySelf, kind.memoryName(), 0, true)
	}
	b.say("  %-18s %s", row.ID, figure(row.series(mySelf).Median))
	return nil
}

const mySelf = "skein"

// fanOutRows measures the fan-out of some runs of posts.
func (b *bench) fanOutRows(
	ctx context.Context, w *feedWorld, f *folder, runs []postRun, peers []feedKind, servers []*redisServer,
) error {
	row := b.row("feed-fanout", "fan-out, durable", "deliveries/s", fmt.Sprintf("the newest posts, pushed to all "+
		"followers, %s deliveries a run; each run goes on where the one before ended, so inboxes grow. skein: decode and "+
		"fold envelopes of %d posts until all are flushed, threshold infinite. Redis: the same deliveries in pipelines of "+
		"%d over 2 connections, encoded by hand, AOF everysec, until the last reply. %d readers, all with an inbox.",
		figure(float64(w.deliveries(w.of(runs[0])))), postsTogether, deliveriesTogether, w.active()))
	core := b.row("feed-fanout-core", "fan-out, durable, by processor time", "deliveries/s", "the same measurements, by "+
		"seconds of one core: of skein all threads, flushes, compactions and garbage collection included; of Redis the "+
		"server alone, without the program that sends.")
	core.series(mySelf)
	contenders := []contender{{mySelf, inTurn(runs, func(ctx context.Context, run postRun) (measurement, error) {
		posts := w.of(run)
		log, err := w.seal(posts)
		if err != nil {
			return measurement{}, err
		}
		used, err := cpuTime()
		if err != nil {
			return measurement{}, err
		}
		begin := time.Now()
		if err := f.foldSealed(ctx, log); err != nil {
			return measurement{}, err
		}
		m := rate(w.deliveries(posts), begin)
		now, err := cpuTime()
		core.series(mySelf).add(measurement{value: float64(w.deliveries(posts)) / (now - used).Seconds()})
		return m, err
	})}}
	followers := w.followers()
	for i, kind := range peers {
		core.series(kind.name())
		contenders = append(contenders, contender{
			kind.name(), inTurn(runs, func(ctx context.Context, run postRun) (measurement, error) {
				took, used, err := servers[i].fanOut(ctx, w, kind, followers, run)
				n := float64(w.deliveries(w.of(run)))
				core.series(kind.name()).add(measurement{value: n / used.Seconds()})
				return measurement{value: n / took.Seconds()}, err
			}),
		})
	}
	if err := b.alternateTimes(ctx, len(runs), row, contenders...); err != nil {
		return err
	}
	core.compare(mySelf, "", 800_000, false)
	for _, kind := range peers {
		row.compare(mySelf, kind.name(), 3, false)
		core.compare(mySelf, kind.name(), 3, false)
	}
	return nil
}

// inTurn measures with one run after the other.
func inTurn[T any](
	runs []T, measure func(context.Context, T) (measurement, error),
) func(context.Context) (measurement, error) {
	next := 0
	return func(ctx context.Context) (measurement, error) {
		next++
		return measure(ctx, runs[next-1])
	}
}

// feedHome loads all posts with the default threshold, reads pages, and lets a large author post.
func (b *bench) feedHome(ctx context.Context, w *feedWorld, size feedSize) (err error) {
	f, err := b.openFeed(w, size.threshold)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	b.say("folding %d follows, threshold %d", len(w.follows)+b.opts.BigUser, size.threshold)
	if err := f.loadFollows(w, b.opts.BigUser); err != nil {
		return err
	}
	b.say("folding %d posts", len(w.posts))
	log, err := w.seal(w.posts)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := f.foldSealed(ctx, log); err != nil {
		return err
	}
	m := rate(len(w.posts), begin)
	pushed := 0
	for _, p := range w.posts {
		if p.board >= celebrities {
			pushed += w.pushes[p.board]
		}
	}
	row := b.row("feed-load", "loading posts, default threshold", "posts/s", fmt.Sprintf("%d posts on %d boards, of which "+
		"the followers of the %d most popular pull: %s deliveries (%s/s). From the first envelope to the flush.",
		len(w.posts), len(w.boards), celebrities, figure(float64(pushed)),
		figure(float64(pushed)*m.value/float64(len(w.posts)))))
	row.series(mySelf).add(m)
	row.compare(mySelf, "", 0, false)
	b.say("  %-18s %s posts/s", row.ID, figure(m.value))
	if err := b.feedPages(ctx, w, f); err != nil {
		return err
	}
	return b.feedDelay(ctx, w, f, size)
}

// largeAuthor is followed by [Options.BigUser] users.
const largeAuthor = "large"

// largeFollower numbers the followers of the large author: readers with an inbox first, but none whose pages are measured.
func (w *feedWorld) largeFollower(i int) uint32 {
	if i < w.readers {
		return uint32(i)
	}
	return uint32(i + w.users() - w.readers)
}

// feedDelay measures whether a post of an author with many followers delays the posts behind it.
func (b *bench) feedDelay(ctx context.Context, w *feedWorld, f *folder, size feedSize) error {
	alone, behind := "ordinary posts alone", fmt.Sprintf("behind a post to %s followers", figure(float64(b.opts.BigUser)))
	row := b.row("feed-delay", "no post delays anybody: envelope of posts until visible, p99", "µs", fmt.Sprintf("an "+
		"envelope of %d posts on boards below the threshold, alone or folded together with an envelope before it that holds "+
		"one post of the large author; %d of each a run, in turn. Default threshold.", postsTogether, size.rounds))
	r, made := rand.New(rand.NewPCG(9, 0)), 0
	post := func(owner string) *skeinv1.Event {
		made++
		return pinCreated(owner, fmt.Sprintf("new%d", made))
	}
	for run := range min(b.opts.Runs, feedRuns) {
		times := map[string][]float64{}
		for round := range 2 * size.rounds {
			var evs []*skeinv1.Event
			for range postsTogether {
				evs = append(evs, post(w.boards[celebrities+r.IntN(len(w.boards)-celebrities)]))
			}
			var envs []*events.Envelope
			name := alone
			if round%2 == run%2 {
				name = behind
				env, err := f.envelope([]*skeinv1.Event{post(largeAuthor)})
				if err != nil {
					return err
				}
				envs = append(envs, env)
			}
			env, err := f.envelope(evs)
			if err != nil {
				return err
			}
			begin := time.Now()
			if err := f.store.Fold(append(envs, env)); err != nil {
				return err
			}
			times[name] = append(times[name], micros(time.Since(begin)))
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		for _, name := range []string{behind, alone} {
			m := latency(times[name])
			row.series(name).add(m)
			b.say("  %-18s run %d  %-44s %s µs", row.ID, run+1, name, figure(m.value))
		}
	}
	row.compare(behind, alone, maxConstant, true)
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// latency is a measurement of times in microseconds, whose value is the time that 99 of 100 do not exceed.
func latency(times []float64) measurement {
	slices.Sort(times)
	at := func(percent int) float64 { return times[min(len(times)-1, len(times)*percent/100)] }
	return measurement{value: at(99), p50: at(50) / 1000, p99: at(99) / 1000}
}
