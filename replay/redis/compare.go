package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// CompareOptions say which Redis is compared with which service.
type CompareOptions struct {
	// Of the Options, a comparison uses URL, Mapping, State, Commands, PageSize, Patience, LogID, Observe, Notice and Now.
	Options
	// AtLeast is a position that the answers must contain; empty means the position of the last run with this state.
	AtLeast  string
	Graph    skeinv1connect.GraphServiceClient
	Feed     skeinv1connect.FeedServiceClient
	Seen     skeinv1connect.SeenServiceClient
	Counters skeinv1connect.CounterServiceClient
	// Tolerance is the largest difference between two times that does not count. An application that writes to both systems gives
	// them times of two clocks.
	Tolerance time.Duration
	// Asked is called with the number of lists and counts that were queried, and of all, from several goroutines; nil disables it.
	Asked func(done, total int)
	// Difference is called with each of the first 100 differences; nil disables it.
	Difference func(string)
}

// Comparison is the result of [Compare].
type Comparison struct {
	KeyCounts
	// Lists and Counts are the numbers of lists and counts that were compared, Entries the number of entries that Redis has for them.
	Lists, Counts, Entries uint64
	// Rejected is the number of elements of Redis that the service cannot have. Each is reported like a difference.
	Rejected uint64
	// Held is how long commands to Redis have waited for the limit.
	Held time.Duration
	// Missing entries are in Redis only, and Extra entries in the service only. OtherTimes have different times in the two, OtherTexts
	// different titles, boards, items or attributes. OtherCounts are counts that differ.
	Missing, Extra, OtherTimes, OtherTexts, OtherCounts uint64
}

// Differences returns the number of all differences.
func (c *Comparison) Differences() uint64 {
	return c.Missing + c.Extra + c.OtherTimes + c.OtherTexts + c.OtherCounts
}

const toldDifferences = 100

// comparer compares the facts of Redis with the answers of the service. Both are sorted by list and entry, on disk, so that memory is
// bounded.
type comparer struct {
	CompareOptions
	from keyspace
	dir  string
	// now is when Redis was read. A later time in Redis was clamped by the import, to a time that is unknown here.
	now events.Micros
	// rejected are hashes of the rejected elements. A scan may return one twice, but it counts once.
	rejected map[xxh3.Uint128]struct{}

	mu sync.Mutex
	// want has the entries from Redis, got those from the service.
	want, got *sorter
	// blocked are hashes of the pairs of users of whom one blocks the other. No imported follow holds between them.
	blocked map[xxh3.Uint128]struct{}
	found   Comparison
	told    int
	asked   int
	total   int
}

// Compare reads a Redis, and queries a service for all its facts. It reports entries that are missing in the service, additional ones, and
// those with another time or text. It compares the lists of users and boards that are in Redis now, or that earlier runs of the
// import with the same state have published. It does not find a list that only the service has.
func Compare(ctx context.Context, o CompareOptions) (_ *Comparison, err error) {
	r, end, err := dial(o.Options)
	if err != nil {
		return nil, err
	}
	defer end()
	o.Options = r.Options
	found, err := compare(ctx, o, r.from)
	if found != nil {
		found.Held = r.heldBack()
	}
	return found, err
}

func compare(ctx context.Context, o CompareOptions, from keyspace) (_ *Comparison, err error) {
	unlock, err := lock(o.State)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := loadState(o.State)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.State, "compare-")
	if err != nil {
		return nil, err
	}
	defer removeAll(dir, &err)
	c := &comparer{
		CompareOptions: o, from: from, dir: dir, blocked: map[xxh3.Uint128]struct{}{},
		now: events.Micros(o.Now().UnixMicro()), rejected: map[xxh3.Uint128]struct{}{},
		// The two share a directory, so their files have different ranges of numbers.
		want: &sorter{dir: dir}, got: &sorter{dir: dir, number: 1 << 30},
	}
	c.found.KeyCounts = newKeyCounts(o.Mapping)
	if err := c.readRedis(ctx); err != nil {
		return &c.found, err
	}
	if s != nil && s.LogID == o.LogID {
		if c.AtLeast == "" {
			c.AtLeast = s.Position
		}
		if err := c.readKnown(s); err != nil {
			return &c.found, err
		}
	}
	if err := c.want.flush(); err != nil {
		return &c.found, err
	}
	if err := c.ask(ctx); err != nil {
		return &c.found, err
	}
	if err := c.got.flush(); err != nil {
		return &c.found, err
	}
	return &c.found, c.diff()
}

// readRedis reads Redis, and sorts the entries of lists that its facts make.
func (c *comparer) readRedis(ctx context.Context) error {
	total, err := c.from.size(ctx)
	if err != nil {
		return err
	}
	rd := &reading{
		from: c.from, mapping: c.Mapping, start: c.now, counts: &c.found.KeyCounts, fact: c.expect,
		reject: c.cannot,
	}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		if cursor, err = rd.step(ctx, cursor); err != nil {
			return err
		}
		c.Observe(Progress{Keys: c.found.Scanned, Total: uint64(total), Elements: c.found.elements()})
	}
	return nil
}

// cannot counts an element that the service cannot have.
func (c *comparer) cannot(r *reject) error {
	h := xxh3.Hash128(r.append(nil))
	if _, again := c.rejected[h]; again {
		return nil
	}
	c.rejected[h] = struct{}{}
	c.differ(&c.found.Rejected, "%s %s: Redis has it, skein cannot: rule %d: %s", quote(r.key), quote(r.element), r.rule, r.reason)
	return nil
}

func (c *comparer) expect(f *fact) error {
	if f.kind == events.UserBlocked {
		c.blocked[pairHash(f.user, f.peer)], c.blocked[pairHash(f.peer, f.user)] = struct{}{}, struct{}{}
	}
	return f.entries(func(e *entry) error { return c.want.add(e.record()) })
}

func pairHash(a, b string) xxh3.Uint128 { return xxh3.HashString128(a + "\x00" + b) }

// readKnown adds the lists of published facts, so that entries which Redis has deleted since are found as extra. Plays are an exception: a
// play that Redis has deleted still counts.
func (c *comparer) readKnown(s *state) error {
	if s.Known == "" {
		return nil
	}
	known, err := openRecords(filepath.Join(c.State, s.Known))
	if err != nil {
		return err
	}
	defer func() { _ = known.Close() }() // it was only read
	for {
		record, err := nextOrNil(known)
		if err != nil || record == nil {
			return err
		}
		f, err := decodeFact(record)
		if err != nil {
			return err
		}
		err = f.entries(func(e *entry) error {
			if f.kind != events.Played {
				e = &entry{list: e.list}
			}
			return c.want.add(e.record())
		})
		if err != nil {
			return err
		}
	}
}

func nextOrNil(from records) ([]byte, error) {
	record, err := from.next()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return record, err
}

// eachList calls do once for every list of a fact in Redis or from an earlier run, in order.
func (c *comparer) eachList(do func(listOf) error) error {
	want, err := c.want.merge()
	if err != nil {
		return err
	}
	defer func() { _ = want.Close() }() // it was only read
	var last listOf
	for {
		record, err := nextOrNil(want)
		if err != nil || record == nil {
			return err
		}
		e, err := decodeEntry(record)
		if err != nil {
			return err
		}
		if e.list == last {
			continue
		}
		last = e.list
		if err := do(last); err != nil {
			return err
		}
	}
}

const (
	askWorkers = 4
	askKeys    = 1000
)

// ask queries the service for all lists and counts, and sorts the answers.
func (c *comparer) ask(ctx context.Context) error {
	if err := c.eachList(func(l listOf) error {
		c.total++
		if l.kind.counted() {
			c.found.Counts++
		} else {
			c.found.Lists++
		}
		return nil
	}); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(askWorkers)
	var counts []listOf
	flush := func() {
		if some := counts; len(some) > 0 {
			counts = nil
			g.Go(func() error { return c.askCounts(ctx, some) })
		}
	}
	err := c.eachList(func(l listOf) error {
		if !l.kind.counted() {
			g.Go(func() error { return c.askList(ctx, l) })
			return ctx.Err()
		}
		if counts = append(counts, l); len(counts) == askKeys {
			flush()
		}
		return ctx.Err()
	})
	flush()
	if werr := g.Wait(); werr != nil {
		return werr
	}
	return err
}

// answered adds the entries of an answer.
func (c *comparer) answered(lists int, entries []entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked += lists; lists > 0 && c.Asked != nil {
		c.Asked(c.asked, c.total)
	}
	for i := range entries {
		if err := c.got.add(entries[i].record()); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparer) differ(count *uint64, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*count++
	if c.told++; c.told <= toldDifferences && c.Difference != nil {
		c.Difference(fmt.Sprintf(format, args...))
	}
}

// diff compares both sides, in order.
func (c *comparer) diff() error {
	wantRecords, err := c.want.merge()
	if err != nil {
		return err
	}
	defer func() { _ = wantRecords.Close() }() // it was only read
	gotRecords, err := c.got.merge()
	if err != nil {
		return err
	}
	defer func() { _ = gotRecords.Close() }() // it was only read
	d := &diffing{comparer: c}
	if d.wants, err = newGroups(wantRecords); err != nil {
		return err
	}
	if d.gots, err = newGroups(gotRecords); err != nil {
		return err
	}
	return d.run()
}

// diffing is a walk through both sides. want and got are the next groups; nil means that the side has ended.
type diffing struct {
	*comparer
	wants, gots *groups
	want, got   *group
}

func (d *diffing) nextWant() (err error) {
	for {
		if d.want, err = d.wants.next(); err != nil || d.want == nil {
			return err
		}
		if d.want.id == "" { // the list alone
			continue
		}
		d.found.Entries++
		if !d.holdsNot(d.want) {
			return nil
		}
	}
}

func (d *diffing) nextGot() (err error) {
	d.got, err = d.gots.next()
	return err
}

// holdsNot reports whether a follow has no effect because one of the two users blocks the other.
func (d *diffing) holdsNot(g *group) bool {
	if g.list.kind > listBoardFollowers {
		return false
	}
	_, ok := d.blocked[pairHash(g.list.owner, g.id)]
	return ok
}

func (d *diffing) run() error {
	if err := errors.Join(d.nextWant(), d.nextGot()); err != nil {
		return err
	}
	for d.want != nil || d.got != nil {
		var err error
		switch at := d.list(); {
		case at.kind == listServed:
			err = d.served(at)
		case at.kind.counted():
			err = d.count(at)
		default:
			err = d.entry()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list returns the list that comes next on either side.
func (d *diffing) list() listOf {
	switch {
	case d.got == nil:
		return d.want.list
	case d.want == nil || bytes.Compare(d.got.key, d.want.key) < 0:
		return d.got.list
	}
	return d.want.list
}

// entry compares one entry of a list.
func (d *diffing) entry() error {
	var order int
	switch {
	case d.got == nil:
		order = -1
	case d.want == nil:
		order = 1
	default:
		order = bytes.Compare(d.want.key, d.got.key)
	}
	switch {
	case order < 0:
		d.differ(&d.found.Missing, "%s: %s is missing: Redis has it, since %s", d.want.list, d.want.name(), stamp(d.want.since()))
		return d.nextWant()
	case order > 0:
		d.differ(&d.found.Extra, "%s: %s is extra: Redis does not have it, skein has, since %s",
			d.got.list, d.got.name(), stamp(d.got.since()))
		return d.nextGot()
	}
	want, got := d.want.since(), d.got.since()
	if apart := (want - got); want != timeless && want <= d.now && max(apart, -apart) > events.Micros(d.Tolerance.Microseconds()) {
		d.differ(&d.found.OtherTimes, "%s: %s has another time: Redis has %s, skein has %s",
			d.want.list, d.want.name(), stamp(want), stamp(got))
	}
	if want, got := d.want.text(), d.got.text(); want != got && (want != "" || d.want.list.kind == listPins) {
		words := strconv.Quote
		if d.want.list.kind == listPins {
			words = pinWords
		}
		d.differ(&d.found.OtherTexts, "%s: %s: Redis has %s, skein has %s", d.want.list, d.want.name(), words(want), words(got))
	}
	return errors.Join(d.nextWant(), d.nextGot())
}

// maxServed is the number of served items that the service keeps of a user.
const maxServed = 100

// served compares the items that were served to a user. Redis may have more of them than the service keeps.
func (d *diffing) served(of listOf) error {
	got := map[string]bool{}
	for d.got != nil && d.got.list == of {
		got[d.got.id] = false
		if err := d.nextGot(); err != nil {
			return err
		}
	}
	var missing []string
	n := 0
	for d.want != nil && d.want.list == of {
		if _, ok := got[d.want.id]; ok {
			got[d.want.id] = true
		} else if len(missing) < maxServed {
			missing = append(missing, d.want.id)
		}
		n++
		if err := d.nextWant(); err != nil {
			return err
		}
	}
	for item, known := range got {
		if !known {
			d.differ(&d.found.Extra, "%s: %s is extra: Redis does not have it", of, item)
		}
	}
	if n > maxServed {
		missing = missing[:max(0, maxServed-len(got))]
	}
	for _, item := range missing {
		d.differ(&d.found.Missing, "%s: %s is missing: Redis has it", of, item)
	}
	return nil
}

// count compares the number of plays or likes.
func (d *diffing) count(of listOf) error {
	got := 0
	for d.got != nil && d.got.list == of {
		n, err := strconv.Atoi(d.got.first)
		if err != nil {
			return fmt.Errorf("%w: %w", errRecord, err)
		}
		got = n
		if err := d.nextGot(); err != nil {
			return err
		}
	}
	want := 0
	for d.want != nil && d.want.list == of {
		if of.kind == countLikesOf {
			want++
		} else {
			want += max(d.want.timed, 1)
		}
		if err := d.nextWant(); err != nil {
			return err
		}
	}
	if got != want {
		d.differ(&d.found.OtherCounts, "%s: Redis has %d, skein has %d", of, want, got)
	}
	return nil
}
