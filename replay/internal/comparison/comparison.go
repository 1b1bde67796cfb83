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

// Options say what is compared with which service.
type Options struct {
	// Dir is an existing directory for temporary files.
	Dir string
	// Origin names the source of the expected entries for people, such as "Redis".
	Origin string
	// Exclusive reports that the service has nothing else about the users of the source. Then counts of lists that the source does not
	// have must be 0, and a board without a title in the source must have none.
	Exclusive bool
	// AtLeast is a position that the answers must contain.
	AtLeast  string
	Graph    skeinv1connect.GraphServiceClient
	Feed     skeinv1connect.FeedServiceClient
	Seen     skeinv1connect.SeenServiceClient
	Counters skeinv1connect.CounterServiceClient
	// Patience is how long a query is repeated while the service does not answer.
	Patience time.Duration
	// Latest is the latest time that is compared. The import replaced a later one by its start, which is unknown here.
	Latest events.Micros
	// Tolerance is the largest difference between two times that does not count.
	Tolerance time.Duration
	// Pairs is the number of random follows and non-follows that are checked beside all lists, and Seed chooses them.
	Pairs int
	Seed  uint64
	// Observe is called with the number of queries that are answered, and of all, from several goroutines; nil disables it.
	Observe func(done, total int)
	// Difference is called with each of the first 100 differences, one at a time; nil disables it.
	Difference func(string)
}

// Result is the result of a comparison.
type Result struct {
	// Lists and Counts are the numbers of lists and counts that were compared, Entries the number of entries that the source has for them,
	// and Pairs the number of checked pairs.
	Lists, Counts, Entries, Pairs uint64
	// Missing entries are in the source only, and Extra entries in the service only. OtherTimes have different times in the two,
	// OtherTexts different titles, or boards, items or attributes of a pin. OtherCounts are counts and total sizes that differ, Unordered
	// are entries of an answer that are not in the order of their list.
	Missing, Extra, OtherTimes, OtherTexts, OtherCounts, Unordered uint64
}

// Differences returns the number of all differences.
func (r *Result) Differences() uint64 {
	return r.Missing + r.Extra + r.OtherTimes + r.OtherTexts + r.OtherCounts + r.Unordered
}

const (
	shownDifferences = 100
	queryWorkers     = 4
	// pageSize and counterBatch are the most that the service answers at a time; followCountBatch keeps calls short.
	pageSize         = 1000
	counterBatch     = 1000
	followCountBatch = 100
)

// Comparer compares expected entries with the answers of a service. [Comparer.Expect] and [Comparer.ExpectBlock] come before
// [Comparer.Run].
type Comparer struct {
	Options
	// expected and answered have the entries of the two sides.
	expected *recordfile.Sorter
	// blocked has hashes of the pairs of users of whom one blocks the other. No imported follow holds between them.
	blocked map[xxh3.Uint128]struct{}

	mu       sync.Mutex
	answered *recordfile.Sorter
	result   Result
	shown    int
	// done and total are numbers of queries.
	done, total int
}

// New returns a comparer without expected entries.
func New(o Options) *Comparer {
	return &Comparer{
		Options: o, blocked: map[xxh3.Uint128]struct{}{},
		// The two share a directory, so their files have different ranges of numbers.
		expected: &recordfile.Sorter{Dir: o.Dir}, answered: &recordfile.Sorter{Dir: o.Dir, Number: 1 << 30},
	}
}

// MakeDir makes a directory for the temporary files of one comparison inside of a directory; empty means that for temporary files. The
// returned function removes it, and adds its error to err.
func MakeDir(inside string) (dir string, remove func(err *error), err error) {
	if dir, err = os.MkdirTemp(inside, "compare-"); err != nil {
		return "", nil, fmt.Errorf("cannot keep what is compared: %w", err)
	}
	return dir, func(err *error) { *err = errors.Join(*err, os.RemoveAll(dir)) }, nil
}

// Expect adds an entry that the service must have. An entry without an id only names a list.
func (c *Comparer) Expect(e Entry) error { return c.expected.Add(e.encode()) }

// ExpectBlock notes that one of two users blocks the other, so that no follow holds between them.
func (c *Comparer) ExpectBlock(a, b string) {
	c.blocked[pairHash(a, b)], c.blocked[pairHash(b, a)] = struct{}{}, struct{}{}
}

func pairHash(a, b string) xxh3.Uint128 { return xxh3.HashString128(a + "\x00" + b) }

// isBlocked reports whether a follow has no effect because one of the two users blocks the other.
func (c *Comparer) isBlocked(e *Entry) bool {
	if !e.List.Kind.isFollowList() {
		return false
	}
	_, ok := c.blocked[pairHash(e.List.Owner, e.ID)]
	return ok
}

// Run compares. After an error, the result has what was found before.
func (c *Comparer) Run(ctx context.Context) (*Result, error) {
	if err := c.expected.Flush(); err != nil {
		return &c.result, err
	}
	sample, err := c.prepare()
	if err != nil {
		return &c.result, err
	}
	if err := c.expected.Flush(); err != nil {
		return &c.result, err
	}
	if err := c.query(ctx, sample.pairs); err != nil {
		return &c.result, err
	}
	if err := c.answered.Flush(); err != nil {
		return &c.result, err
	}
	return &c.result, c.compareSides()
}

// prepare walks through the expected entries once. It draws a sample, and adds the entries of the lists of pins of boards: which board a pin
// is on is known only when all its records are.
func (c *Comparer) prepare() (*sample, error) {
	s := newSample(c.Pairs, c.Seed)
	err := c.eachExpected(func(g *group) error {
		if g.List.Kind == Pins && g.ID != "" {
			list := List{BoardPins, g.List.Owner, pinContentOf(g.text()).board}
			return c.Expect(Entry{List: list, ID: g.ID, At: g.since(), Text: g.text()})
		}
		if !c.isBlocked(&g.Entry) {
			s.add(g)
		}
		return nil
	})
	if err != nil || c.Pairs == 0 {
		return s, err
	}

	s.draw(c.Pairs)
	return s, c.eachExpected(func(g *group) error {
		if !c.isBlocked(&g.Entry) {
			s.learn(g)
		}
		return nil
	})
}

// eachExpected calls do for each expected entry of a list, and for each list itself, in order.
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
		g, err := groups.read()
		if err != nil || g == nil {
			return err
		}
		if err := do(g); err != nil {
			return err
		}
	}
}

// eachList calls do once for every list of an expected entry, in order.
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

// query queries the service for all lists, counts and pairs. The answers are sorted.
func (c *Comparer) query(ctx context.Context, pairs []pair) error {
	err := c.eachList(func(l List) error {
		c.total++
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
	c.total += len(pairs)

	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(queryWorkers)
	counters := &batch{size: counterBatch, run: func(some []List) { g.Go(func() error { return c.queryCounters(ctx, some) }) }}
	users := &batch{size: followCountBatch, run: func(some []List) { g.Go(func() error { return c.queryUserCounts(ctx, some) }) }}
	boards := &batch{size: followCountBatch, run: func(some []List) { g.Go(func() error { return c.queryBoardCounts(ctx, some) }) }}
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
	for _, b := range []*batch{counters, users, boards} {
		b.flush()
	}
	for len(pairs) > 0 && ctx.Err() == nil {
		some := pairs[:min(len(pairs), pageSize)]
		pairs = pairs[len(some):]
		g.Go(func() error { return c.queryPairs(ctx, some) })
	}
	if failed := g.Wait(); failed != nil {
		return failed
	}
	return err
}

// batch collects lists, of which several are queried together. The same list twice in a row is one.
type batch struct {
	size  int
	run   func([]List)
	lists []List
}

func (b *batch) add(l List) {
	if n := len(b.lists); n > 0 && b.lists[n-1] == l {
		return
	}
	if len(b.lists) == b.size {
		b.flush()
	}
	b.lists = append(b.lists, l)
}

func (b *batch) flush() {
	if len(b.lists) > 0 {
		b.run(b.lists)
		b.lists = nil
	}
}

// addAnswer adds the entries of an answer, which completes so many queries.
func (c *Comparer) addAnswer(queries int, entries []Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done += queries; queries > 0 && c.Observe != nil {
		c.Observe(c.done, c.total)
	}
	for i := range entries {
		if err := c.answered.Add(entries[i].encode()); err != nil {
			return err
		}
	}
	return nil
}

// Differ counts a difference, and reports it if it is one of the first.
func (c *Comparer) Differ(count *uint64, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count++
	if c.shown++; c.shown <= shownDifferences && c.Difference != nil {
		c.Difference(fmt.Sprintf(format, args...))
	}
}
