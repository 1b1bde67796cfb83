package comparison

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
	"github.com/skein-feed/skein/replay/internal/recordfile"
)

// Options configure a [Comparer].
type Options struct {
	// Dir is an existing directory for temporary files.
	Dir string
	// Origin is the name of the source in messages for people, such as "Redis".
	Origin string
	// Exclusive means that all that the service knows about the users of the source came from the
	// source. Then counts of lists that the source does not have must be 0, and a board that has no
	// title in the source must have none in the service.
	Exclusive bool
	// AtLeast is a position of the log. Every query asks for answers that contain the log up to it.
	AtLeast  string
	Graph    skeinv1connect.GraphServiceClient
	Feed     skeinv1connect.FeedServiceClient
	Seen     skeinv1connect.SeenServiceClient
	Counters skeinv1connect.CounterServiceClient
	// Patience is for how long a query is repeated if the service does not answer it.
	Patience time.Duration
	// Latest is the latest time that is compared. The import has replaced later times by the time
	// at which it started, which is unknown here.
	Latest events.Micros
	// Tolerance is how far two times may be apart to count as equal.
	Tolerance time.Duration
	// Pairs is the number of random pairs that are checked in addition to the lists. Seed
	// determines which ones.
	Pairs int
	Seed  uint64
	// Observe is called from several goroutines with the number of queries that were answered and
	// of all queries; it may be nil.
	Observe func(done, total int)
	// Difference is called with the description of each of the first 100 differences, by one
	// goroutine at a time; it may be nil.
	Difference func(string)
}

// Result is the result of a comparison.
type Result struct {
	// Lists and Counts are the numbers of lists and of counts that were compared. Entries is the
	// number of entries that the source has in them. Pairs is the number of random pairs that were
	// checked.
	Lists, Counts, Entries, Pairs uint64
	// Missing counts the entries that only the source has, and Extra those that only the service
	// has.
	Missing, Extra uint64
	// OtherTimes counts the entries whose times differ. OtherTexts counts the entries whose titles
	// differ, or the boards, items or attributes of pins.
	OtherTimes, OtherTexts uint64
	// OtherCounts counts the counts and total sizes that differ. Unordered counts the entries that
	// an answer lists in the wrong place.
	OtherCounts, Unordered uint64
}

// Differences returns the number of all differences.
func (r *Result) Differences() uint64 {
	return r.Missing + r.Extra + r.OtherTimes + r.OtherTexts + r.OtherCounts + r.Unordered
}

const (
	// maxReported is how many differences are described to Options.Difference.
	maxReported = 100
	// queryWorkers is how many queries are sent at a time.
	queryWorkers = 4
	// pageSize and counterBatch are the most that the service answers in one call. followCountBatch
	// is less, to keep the calls short.
	pageSize         = 1000
	counterBatch     = 1000
	followCountBatch = 100
)

// Comparer compares expected entries with the answers of a service. Call [Comparer.Expect] and
// [Comparer.ExpectBlock] first, and then [Comparer.Run] once.
type Comparer struct {
	Options
	// expected holds the entries of the source.
	expected *recordfile.Sorter
	// blocked has the hashes of all pairs of users of whom one blocks the other. An imported follow
	// between them has no effect.
	blocked map[xxh3.Uint128]struct{}

	// mu guards the fields below while queries run.
	mu sync.Mutex
	// answered holds the entries that the service has returned.
	answered *recordfile.Sorter
	result   Result
	// reportedDifferences is the number of differences so far. Only the first ones are reported.
	reportedDifferences int
	// doneQueries and totalQueries are for Options.Observe.
	doneQueries, totalQueries int
}

// New returns a comparer without expected entries.
func New(o Options) *Comparer {
	return &Comparer{
		Options: o,
		blocked: map[xxh3.Uint128]struct{}{},
		// The two share a directory, so the numbers in their file names must not overlap.
		expected: &recordfile.Sorter{Dir: o.Dir},
		answered: &recordfile.Sorter{Dir: o.Dir, Number: 1 << 30},
	}
}

// MakeDir makes a directory for the temporary files of one comparison. It is made in the directory
// inside, or in the default directory for temporary files if inside is empty. The returned function
// removes it and joins its own error to *err.
func MakeDir(inside string) (dir string, remove func(err *error), err error) {
	dir, err = os.MkdirTemp(inside, "compare-")
	if err != nil {
		return "", nil, fmt.Errorf("cannot keep what is compared: %w", err)
	}
	return dir, func(err *error) { *err = errors.Join(*err, os.RemoveAll(dir)) }, nil
}

// Expect adds an entry that the service must have. An entry without an id only makes Run query its
// list.
func (c *Comparer) Expect(e Entry) error {
	return c.expected.Add(e.encode())
}

// ExpectBlock records that one of two users blocks the other. Follows between them are not expected
// then.
func (c *Comparer) ExpectBlock(a, b string) {
	c.blocked[pairHash(a, b)] = struct{}{}
	c.blocked[pairHash(b, a)] = struct{}{}
}

// pairHash returns a hash that identifies an ordered pair of users. It takes less memory than their
// ids.
func pairHash(a, b string) xxh3.Uint128 { return xxh3.HashString128(a + "\x00" + b) }

// isBlocked reports whether a follow has no effect because one of the two users blocks the other.
func (c *Comparer) isBlocked(e *Entry) bool {
	if !e.List.Kind.isFollowList() {
		return false
	}
	_, ok := c.blocked[pairHash(e.List.Owner, e.ID)]
	return ok
}

// Run queries the service and compares. If it fails, the result has what was found before the
// error.
func (c *Comparer) Run(ctx context.Context) (*Result, error) {
	if err := c.expected.Flush(); err != nil {
		return &c.result, err
	}
	sample, err := c.preparePairs()
	if err != nil {
		return &c.result, err
	}
	if err := c.expected.Flush(); err != nil {
		return &c.result, err
	}
	if err := c.queryAll(ctx, sample.pairs); err != nil {
		return &c.result, err
	}
	if err := c.answered.Flush(); err != nil {
		return &c.result, err
	}
	return &c.result, c.compareSides()
}

// preparePairs reads through the expected entries. It draws the random pairs, and adds the expected
// entries of the lists of pins per board: on which board a pin is, is known only when all records
// about the pin have been added.
func (c *Comparer) preparePairs() (*pairSample, error) {
	s := newPairSample(c.Pairs, c.Seed)
	err := c.eachExpected(func(g *group) error {
		if g.List.Kind == Pins && g.ID != "" {
			list := List{BoardPins, g.List.Owner, pinContentOf(g.text()).board}
			return c.Expect(Entry{List: list, ID: g.ID, At: g.since(), Text: g.text()})
		}
		if !c.isBlocked(&g.Entry) {
			s.offer(g)
		}
		return nil
	})
	if err != nil || c.Pairs == 0 {
		return s, err
	}

	// A pair that was drawn at random may be a follow of the source, so read all entries again.
	s.draw(c.Pairs)
	return s, c.eachExpected(func(g *group) error {
		if !c.isBlocked(&g.Entry) {
			s.setIfFollow(g)
		}
		return nil
	})
}

// eachExpected calls do for each group of expected entries, in order. That includes the groups that
// only name a list.
func (c *Comparer) eachExpected(do func(*group) error) error {
	records, err := c.expected.Merge()
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }() // it was only read
	groups, err := newGroupReader(records)
	if err != nil {
		return err
	}
	for {
		g, err := groups.readGroup()
		if err != nil || g == nil {
			return err
		}
		if err := do(g); err != nil {
			return err
		}
	}
}

// eachList calls do once for each list that an expected entry names, in order.
func (c *Comparer) eachList(do func(List) error) error {
	records, err := c.expected.Merge()
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }() // it was only read

	var last List
	for {
		record, err := records.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		e, err := decodeEntry(record)
		if err != nil {
			return err
		}
		if e.List == last {
			continue
		}
		last = e.List
		if err := do(last); err != nil {
			return err
		}
	}
}

// queryAll queries the service for all lists, counts and pairs, and adds the answers to c.answered.
func (c *Comparer) queryAll(ctx context.Context, pairs []pair) error {
	// Count first, so that Observe can be told the total.
	err := c.eachList(func(l List) error {
		c.totalQueries++
		if l.Kind.isCount() {
			c.result.Counts++
		} else {
			c.result.Lists++
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.totalQueries += len(pairs)

	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(queryWorkers)
	counters := &listBatch{size: counterBatch, run: func(lists []List) {
		g.Go(func() error { return c.queryCounters(ctx, lists) })
	}}
	users := &listBatch{size: followCountBatch, run: func(lists []List) {
		g.Go(func() error { return c.queryUserCounts(ctx, lists) })
	}}
	boards := &listBatch{size: followCountBatch, run: func(lists []List) {
		g.Go(func() error { return c.queryBoardCounts(ctx, lists) })
	}}
	err = c.eachList(func(l List) error {
		switch {
		case l.Kind.isCount():
			counters.add(l)
		case l.Kind == BoardFollowers:
			boards.add(List{boardFollowCounts, l.Owner, l.Board})
		case l.Kind <= Muted:
			users.add(List{followCounts, l.Owner, ""})
		}
		if !l.Kind.isCount() {
			g.Go(func() error { return c.queryList(ctx, l) })
		}
		return ctx.Err()
	})
	for _, b := range []*listBatch{counters, users, boards} {
		b.flush()
	}

	for len(pairs) > 0 && ctx.Err() == nil {
		next := pairs[:min(len(pairs), pageSize)]
		pairs = pairs[len(next):]
		g.Go(func() error { return c.queryPairs(ctx, next) })
	}

	// An error of a query says more than the end of ctx that it causes.
	if queryErr := g.Wait(); queryErr != nil {
		return queryErr
	}
	return err
}

// listBatch collects lists that are queried in one call. A list that is added twice in a row counts
// once.
type listBatch struct {
	size  int
	run   func([]List)
	lists []List
}

// add adds a list. If the batch is full, it first queries the lists that were added before.
func (b *listBatch) add(l List) {
	if n := len(b.lists); n > 0 && b.lists[n-1] == l {
		return
	}
	if len(b.lists) == b.size {
		b.flush()
	}
	b.lists = append(b.lists, l)
}

// flush queries the lists that were added since the last flush.
func (b *listBatch) flush() {
	if len(b.lists) > 0 {
		b.run(b.lists)
		b.lists = nil
	}
}

// addAnswer adds entries that the service has returned. queries is the number of queries that are
// completed by them.
func (c *Comparer) addAnswer(queries int, entries []Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doneQueries += queries
	if queries > 0 && c.Observe != nil {
		c.Observe(c.doneQueries, c.totalQueries)
	}
	for i := range entries {
		if err := c.answered.Add(entries[i].encode()); err != nil {
			return err
		}
	}
	return nil
}

// Differ increments *count, which must be a field of the result, and reports the difference if it
// is one of the first.
func (c *Comparer) Differ(count *uint64, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count++
	c.reportedDifferences++
	if c.reportedDifferences <= maxReported && c.Difference != nil {
		c.Difference(fmt.Sprintf(format, args...))
	}
}
