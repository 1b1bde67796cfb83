package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/querycache"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// maxLongRuns is the largest number of runs of rows that take long.
	maxLongRuns = 3
	// postsPerEnvelope is how many posts are in an envelope, and envelopesPerFold how many
	// envelopes are folded at once.
	postsPerEnvelope = 100
	envelopesPerFold = 10
	// pushAllThreshold is the threshold at which everything is pushed.
	pushAllThreshold = -1
)

// feedSize says how much of the home feed is measured.
type feedSize struct {
	// boards and posts are how many are made up. Of a file of posts, the last ones are taken, as
	// many as posts says.
	boards, posts int
	// deliveries is the number of deliveries of one measurement of the fan-out.
	deliveries int
	// threshold is the threshold of the inbox in one partition. It is so low that the celebrities
	// are above it in each partition.
	threshold int64
}

// newFeedSize returns the size of a run, or the smaller one of a smoke test.
func newFeedSize(b *measure.Bench) feedSize {
	threshold := min(inbox.DefaultSettings().Threshold, int64(b.Opts.Readers/20/events.NumPartitions))
	if b.Opts.Quick {
		return feedSize{boards: 1200, posts: 20_000, deliveries: 50_000, threshold: threshold}
	}
	return feedSize{boards: 2500, posts: 300_000, deliveries: 1_500_000, threshold: threshold}
}

// MeasureFeed measures the home feed: how posts are delivered to inboxes, and how pages are read.
func MeasureFeed(ctx context.Context, b *measure.Bench) error {
	size := newFeedSize(b)
	boards, posts := makePosts(size.boards, size.posts)
	if b.Opts.Posts != "" {
		var err error
		if boards, posts, err = readPosts(b.Opts.Posts, size.posts); err != nil {
			return err
		}
	}
	w, err := newFeedWorld(boards, posts, b.Opts.Readers)
	if err != nil {
		return err
	}
	if err := measureFanOut(ctx, b, w, size); err != nil {
		return err
	}
	return measureFeedReads(ctx, b, w, size)
}

// feedStore is a store of home feeds, and what it keeps in memory.
type feedStore struct {
	*workload.BenchStore
	cache *querycache.Cache
}

// inboxCacheBytes is the size of the cache of inboxes. It is so large that no reader's inbox is
// dropped.
const inboxCacheBytes = 1 << 30

// openFeedStore opens an empty store of home feeds.
func openFeedStore(b *measure.Bench, w *feedWorld, threshold int64) (*feedStore, error) {
	settings := inbox.DefaultSettings()
	settings.Threshold = threshold
	cache := querycache.New(inboxCacheBytes)
	f, err := workload.OpenStore(b.Dir, w.startTime(), func() projections.Projection { return inbox.NewWith(settings, cache) })
	return &feedStore{f, cache}, err
}

// loadFollows folds the follows.
func (f *feedStore) loadFollows(w *feedWorld) error {
	return f.FoldEvents(len(w.follows), func(i int) *skeinv1.Event { return w.followEvent(w.follows[i]) })
}

// createInboxes reads a page for each reader, which creates the reader's inbox. All follows must be
// folded before, because a follow drops the inbox.
func (f *feedStore) createInboxes(ctx context.Context, w *feedWorld) error {
	for reader := range w.inboxCount() {
		if _, err := f.readPage(ctx, uint32(reader)); err != nil {
			return err
		}
	}
	return nil
}

// encodedEnvelope is an envelope as it comes from a log.
type encodedEnvelope struct {
	logTime events.Micros
	data    []byte
}

// encodeEnvelope makes an envelope of events, which the log takes at logTime.
func encodeEnvelope(logTime events.Micros, evs []*skeinv1.Event) (encodedEnvelope, error) {
	data, err := events.EncodeEnvelope(evs)
	return encodedEnvelope{logTime, data}, err
}

// encodePosts makes envelopes of posts. The time of each envelope is that of its last post.
func (w *feedWorld) encodePosts(posts []feedPost) ([]encodedEnvelope, error) {
	var log []encodedEnvelope
	for chunk := range slices.Chunk(posts, postsPerEnvelope) {
		evs := make([]*skeinv1.Event, len(chunk))
		for i, p := range chunk {
			evs[i] = workload.PinCreated(w.boards[p.board], p.id)
		}
		env, err := encodeEnvelope(chunk[len(chunk)-1].createdAt, evs)
		if err != nil {
			return nil, err
		}
		log = append(log, env)
	}
	return log, nil
}

// foldEncoded decodes and folds envelopes, several at a time, and flushes the store to disk.
func foldEncoded(ctx context.Context, f *workload.BenchStore, log []encodedEnvelope) error {
	for chunk := range slices.Chunk(log, envelopesPerFold) {
		if err := ctx.Err(); err != nil {
			return err
		}
		envs := make([]*events.Envelope, len(chunk))
		for i, encoded := range chunk {
			env, err := f.DecodeNext(encoded.logTime, encoded.data)
			if err != nil {
				return err
			}
			envs[i] = env
		}
		if err := f.Store.Fold(envs); err != nil {
			return err
		}
	}
	return f.Store.Flush()
}

// measureFanOut measures how fast posts are delivered to the inboxes of all followers, and the
// bytes that they take there.
func measureFanOut(ctx context.Context, b *measure.Bench, w *feedWorld, size feedSize) (err error) {
	f, err := openFeedStore(b, w, pushAllThreshold)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()

	b.Logf("folding %d follows of %d boards", len(w.follows), len(w.boards))
	if err := f.loadFollows(w); err != nil {
		return err
	}
	empty, err := f.CompactedBytes(ctx)
	if err != nil {
		return err
	}
	if err := f.createInboxes(ctx, w); err != nil {
		return err
	}
	bytesOfEmptyInboxes := f.cache.Stats().Bytes

	runs := w.lastRuns(min(b.Opts.Runs, maxLongRuns), size.deliveries)
	peers := [...]redisFeedKind{feedsAsLists, feedsAsSortedSets}
	var servers [len(peers)]feedRedis
	for i := range peers {
		if servers[i].Redis, err = programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.Everysec); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers[i].Close()) }()
	}
	if err := measureFanOutRows(ctx, b, w, f, runs, peers[:], servers[:]); err != nil {
		return err
	}

	// The pages are checked before the store is compacted, because a compaction opens the store
	// anew, without inboxes.
	inMemory := f.cache.Stats().Bytes - bytesOfEmptyInboxes
	pushed := w.posts[runs[0].from:]
	if err := f.checkPages(ctx, w.light, func(r feedReader) []string { return w.expectedPage(pushed, r.boards) }); err != nil {
		return err
	}
	full, err := f.CompactedBytes(ctx)
	if err != nil {
		return err
	}

	deliveries := float64(w.countDeliveries(pushed))
	row := b.AddRow("feed-bytes", "bytes a delivery", "bytes", "skein in memory: what inboxes count against the "+
		"bound of the cache; on disk: the directory of the compacted store, with the pins themselves and their outboxes; both less what "+
		"was there before the first post. Redis: used_memory of the lists and sets alone, "+
		"less that of an empty server; posts stand in them as numbers, which they hold as such.")
	const memory, onDisk = "skein in memory", "skein on disk"
	row.SeriesOf(memory).Add(measure.Measurement{Value: float64(inMemory) / deliveries})
	// In a smoke test, compactions change the size of the store by more than the pins take.
	if !b.Opts.Quick {
		row.SeriesOf(onDisk).Add(measure.Measurement{Value: float64(full-empty) / deliveries})
		row.Compare(onDisk, "", 0, true)
	}
	for i, kind := range peers {
		used, err := servers[i].Memory(ctx)
		if err != nil {
			return err
		}
		row.SeriesOf(kind.memorySeriesName()).Add(measure.Measurement{Value: used / deliveries})
		row.Compare(memory, kind.memorySeriesName(), 0, true)
	}
	b.Logf("  %-18s %s", row.ID, measure.FormatFigure(row.SeriesOf(memory).Median))
	return nil
}

// measureFanOutRows measures the fan-out of some runs of posts.
func measureFanOutRows(
	ctx context.Context, b *measure.Bench, w *feedWorld, f *feedStore, runs []postRange, peers []redisFeedKind, servers []feedRedis,
) error {
	row := b.AddRow("feed-fanout", "fan-out, durable", "deliveries/s", fmt.Sprintf("the newest posts, pushed to all "+
		"followers, %s deliveries a run; each run goes on where the one before ended, so inboxes grow. skein: decode and "+
		"fold envelopes of %d posts until all are flushed, threshold infinite. Redis: the same deliveries in pipelines of "+
		"%d over 2 connections, encoded by hand, AOF everysec, until the last reply. %d readers, all with an inbox, which skein has in memory.",
		measure.FormatFigure(float64(w.countDeliveries(w.postsIn(runs[0])))), postsPerEnvelope, deliveriesPerPipeline, w.inboxCount()))
	core := b.AddRow("feed-fanout-core", "fan-out, durable, by processor time", "deliveries/s", "the same measurements, by "+
		"seconds of one core: of skein all threads, flushes, compactions and garbage collection included; of Redis the "+
		"server alone, without the program that sends.")
	core.SeriesOf(measure.Skein)

	fold := func(ctx context.Context, run postRange) (measure.Measurement, error) {
		posts := w.postsIn(run)
		log, err := w.encodePosts(posts)
		if err != nil {
			return measure.Measurement{}, err
		}

		watch, err := measure.StartStopwatch()
		if err != nil {
			return measure.Measurement{}, err
		}
		if err := foldEncoded(ctx, f.BenchStore, log); err != nil {
			return measure.Measurement{}, err
		}
		took, used := watch.Read()
		deliveries := float64(w.countDeliveries(posts))
		core.SeriesOf(measure.Skein).Add(measure.Measurement{Value: deliveries / used.Seconds()})
		return measure.Measurement{Value: deliveries / took.Seconds()}, nil
	}
	contenders := []measure.Contender{{Name: measure.Skein, Measure: measureNextRun(runs, fold)}}
	followers := w.homeFeedKeysByBoard()
	for i, kind := range peers {
		core.SeriesOf(kind.seriesName())
		contenders = append(contenders, measure.Contender{
			Name: kind.seriesName(), Measure: measureNextRun(runs, func(ctx context.Context, run postRange) (measure.Measurement, error) {
				took, used, err := servers[i].deliverToFollowers(ctx, w, kind, followers, run)
				n := float64(w.countDeliveries(w.postsIn(run)))
				core.SeriesOf(kind.seriesName()).Add(measure.Measurement{Value: n / used.Seconds()})
				return measure.Measurement{Value: n / took.Seconds()}, err
			}),
		})
	}
	if err := b.MeasureRunsInTurn(ctx, len(runs), row, contenders...); err != nil {
		return err
	}

	core.Compare(measure.Skein, "", 800_000, false)
	for _, kind := range peers {
		row.Compare(measure.Skein, kind.seriesName(), 3, false)
		core.Compare(measure.Skein, kind.seriesName(), 3, false)
	}
	return nil
}

// measureNextRun returns a function that measures with the next of the runs each time it is called.
func measureNextRun[T any](
	runs []T, measureRun func(context.Context, T) (measure.Measurement, error),
) func(context.Context) (measure.Measurement, error) {
	next := 0
	return func(ctx context.Context) (measure.Measurement, error) {
		next++
		return measureRun(ctx, runs[next-1])
	}
}

// measureFeedReads loads all posts with the default threshold and reads pages.
func measureFeedReads(ctx context.Context, b *measure.Bench, w *feedWorld, size feedSize) (err error) {
	f, err := openFeedStore(b, w, size.threshold)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()

	b.Logf("folding %d follows, threshold %d", len(w.follows), size.threshold)
	if err := f.loadFollows(w); err != nil {
		return err
	}
	if err := f.createInboxes(ctx, w); err != nil {
		return err
	}

	b.Logf("folding %d posts", len(w.posts))
	log, err := w.encodePosts(w.posts)
	if err != nil {
		return err
	}
	if err := foldEncoded(ctx, f.BenchStore, log); err != nil {
		return err
	}
	return measureFeedPages(ctx, b, w, f)
}
