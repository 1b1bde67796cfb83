package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// feedPageSize is the number of posts of a page.
const feedPageSize = 20

// minTimedCalls is the smallest number of calls that are timed. There must be enough for a 99th
// percentile.
const minTimedCalls = 200

// readPage reads the first page of a home feed, with a new view of the store, as the service does
// for each call.
func (f *feedStore) readPage(ctx context.Context, reader uint32) (page inbox.Page, err error) {
	v, err := f.Store.View()
	if err != nil {
		return page, err
	}
	page, err = inbox.CachedQuery(v).Feed(ctx, inbox.Feed{Reader: workload.UserID(reader)}, nil, feedPageSize)
	return page, errors.Join(err, v.Close())
}

// userWithoutPins is a user who pins nothing.
const userWithoutPins = "plain"

// dropInbox folds a follow and an unfollow of the reader, which drops the reader's inbox. The next
// page then merges all outboxes.
func (f *feedStore) dropInbox(reader uint32) error {
	env, err := f.NextEnvelope([]*skeinv1.Event{workload.UserFollowed(reader, userWithoutPins), workload.UserUnfollowed(reader, userWithoutPins)})
	if err != nil {
		return err
	}
	return f.Store.Fold([]*events.Envelope{env})
}

// postName names a post for comparing.
func (w *feedWorld) postName(p feedPost) string { return w.boards[p.board] + " " + p.id }

// expectedPage returns the names of the posts on the first page of a reader who follows the boards.
// The posts are in the order of time.
func (w *feedWorld) expectedPage(posts []feedPost, boards []uint32) []string {
	var names []string
	for _, p := range slices.Backward(posts) {
		if _, ok := slices.BinarySearch(boards, p.board); ok {
			names = append(names, w.postName(p))
		}
		if len(names) == feedPageSize {
			break
		}
	}
	return names
}

// checkPages returns an error unless the first pages of the readers have the wanted posts.
func (f *feedStore) checkPages(ctx context.Context, readers []feedReader, want func(feedReader) []string) error {
	for _, r := range readers {
		page, err := f.readPage(ctx, r.number)
		if err != nil {
			return err
		}
		var names []string
		for i := range page.Pins {
			names = append(names, page.Pins[i].Owner+" "+page.Pins[i].ID)
		}
		if w := want(r); !slices.Equal(names, w) {
			return fmt.Errorf("skein gives %s %q, not %q", workload.UserID(r.number), names, w)
		}
	}
	return nil
}

// readerClass is a kind of reader whose pages are measured.
type readerClass struct {
	id, title, note string
	readers         []feedReader
	// dropInboxBeforePage says that the readers have no inbox before each page.
	dropInboxBeforePage bool
	// redisLists returns the keys of the lists that Redis merges for a page of a reader.
	redisLists func(feedReader) []string
	// maxRatio is the target for the time of skein divided by the time of Redis; 0 means that there
	// is no target.
	maxRatio float64
}

// readerClasses returns the kinds of readers, in the order of the table.
func (w *feedWorld) readerClasses() []readerClass {
	outboxKeys := func(boards []uint32) (keys []string) {
		for _, board := range boards {
			keys = append(keys, outboxKey(board))
		}
		return keys
	}
	follows := len(w.heavy[0].boards)
	return []readerClass{
		{
			id: "feed-page-light", title: fmt.Sprintf("of %d followees, all pushed", len(w.light[0].boards)),
			note: fmt.Sprintf("in process, a new view of the store for each page, one goroutine, the store as the fold left it; "+
				"%d readers in turn, of the heavy and the returning ones %d. Redis: go-redis, over the loopback; LRANGE of the "+
				"reader's list, then one pipeline of %d HMGET.", len(w.light), len(w.heavy), feedPageSize),
			readers:    w.light,
			redisLists: func(r feedReader) []string { return []string{homeFeedKey(r.number)} },
		},
		{
			id: "feed-page-heavy", title: fmt.Sprintf("of %d followees, %d of them above the threshold", follows, celebrityCount),
			note: fmt.Sprintf("Redis: one pipeline of LRANGE of the reader's list and of the %d newest of each of the %d, merged "+
				"in the client, then one of %d HMGET.", feedPageSize, celebrityCount, feedPageSize),
			readers: w.heavy,
			redisLists: func(r feedReader) []string {
				return append(outboxKeys(r.boards[:celebrityCount]), homeFeedKey(r.number))
			},
			maxRatio: 0.5,
		},
		{
			id: "feed-page-returning", title: fmt.Sprintf("of %d followees, without an inbox, as after a follow", follows),
			note: fmt.Sprintf("before each page, not timed, its reader follows a user and unfollows, so skein drops the inbox and "+
				"merges all outboxes. Redis: one pipeline of LRANGE of the %d newest of each followee, "+
				"merged in the client, then one of %d HMGET.", feedPageSize, feedPageSize),
			readers:             w.returning,
			dropInboxBeforePage: true,
			redisLists:          func(r feedReader) []string { return outboxKeys(r.boards) },
		},
	}
}

// measureFeedPages measures the first page of light, heavy and returning readers.
func measureFeedPages(ctx context.Context, b *measure.Bench, w *feedWorld, f *feedStore) (err error) {
	server, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile)
	if err != nil {
		return err
	}
	s := feedRedis{server}
	defer func() { err = errors.Join(err, s.Close()) }()
	b.Logf("loading outboxes and home feeds into redis")
	if err := s.loadFeeds(ctx, w); err != nil {
		return err
	}

	const peer = "redis lists"
	for _, class := range w.readerClasses() {
		// Both must give the right pages before they are timed. This also warms their caches.
		want := func(r feedReader) []string { return w.expectedPage(w.posts, r.boards) }
		if err := f.checkPages(ctx, class.readers, want); err != nil {
			return err
		}
		for _, r := range class.readers {
			page, err := s.readPage(ctx, class.redisLists(r)...)
			if err != nil {
				return err
			}
			if names := redisPostNames(page); !slices.Equal(names, want(r)) {
				return fmt.Errorf("redis gives %s %q, not %q", workload.UserID(r.number), names, want(r))
			}
		}

		row := b.AddRow(class.id, "page of 20, "+class.title+", p99", "µs", class.note)
		prepareNothing := func(feedReader) error { return nil }
		prepareSkein := prepareNothing
		if class.dropInboxBeforePage {
			prepareSkein = func(r feedReader) error { return f.dropInbox(r.number) }
		}
		err := b.MeasureInTurn(ctx, row,
			measure.Contender{Name: measure.Skein, Measure: timePages(b, class.readers, prepareSkein, func(ctx context.Context, r feedReader) error {
				_, err := f.readPage(ctx, r.number)
				return err
			})},
			measure.Contender{Name: peer, Measure: timePages(b, class.readers, prepareNothing, func(ctx context.Context, r feedReader) error {
				_, err := s.readPage(ctx, class.redisLists(r)...)
				return err
			})})
		if err != nil {
			return err
		}
		row.Compare(measure.Skein, peer, class.maxRatio, true)
	}
	return nil
}

// timePages returns a function that reads pages of the readers in turn, for a third of the time of
// a measurement. The time of prepare, which is called before each page, does not count.
func timePages[R any](
	b *measure.Bench, readers []R, prepare func(R) error, read func(context.Context, R) error,
) func(context.Context) (measure.Measurement, error) {
	return func(ctx context.Context) (measure.Measurement, error) {
		return sampleLatencies(b, func(i int) (time.Duration, error) {
			r := readers[i%len(readers)]
			if err := prepare(r); err != nil {
				return 0, err
			}
			begin := time.Now()
			err := read(ctx, r)
			return time.Since(begin), err
		})
	}
}
