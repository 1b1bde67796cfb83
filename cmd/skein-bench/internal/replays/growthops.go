package replays

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/querycache"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// growthOp is an operation that must cost the same in a store of any size.
type growthOp struct {
	id, title string
	// run does it once, the i-th time.
	run func(s *growthStore, i int) error
	// written: events, a group of them committed together and visible. Preparation and cleanup are not timed.
	before, written, after func(follower uint32, user string) *skeinv1.Event
}

// growthStore is an open graph of some size.
type growthStore struct {
	*workload.Folder
	*growthSize
	ops map[string][]float64
	// fresh is the next number of a user without follows.
	fresh uint32
}

func growthOps() []growthOp {
	cached := func(ask func(q *graph.Queries, s *growthStore, i int) error) func(s *growthStore, i int) error {
		return func(s *growthStore, i int) error {
			return s.AskCached(func(q *graph.Queries) error { return ask(q, s, i) })
		}
	}
	read := func(ask func(q *graph.Queries, s *growthStore, i int) error) func(s *growthStore, i int) error {
		return func(s *growthStore, i int) error {
			return s.Ask(func(q *graph.Queries) error { return ask(q, s, i) })
		}
	}
	return []growthOp{
		{id: "check", title: "point check", run: cached(askCheck)},
		{id: "filter", title: "25-way filter", run: cached(askFilter)},
		{id: "check-rows", title: "point check, from rows", run: read(askCheck)},
		{id: "filter-rows", title: "25-way filter, from rows", run: read(askFilter)},
		{id: "list", title: "newest 50 followers", run: read(askList)},
		{id: "counts", title: "counts of a user", run: read(askCounts)},
		{id: "follow", title: "follow", written: workload.UserFollowed, after: workload.UserUnfollowed},
		{id: "unfollow", title: "unfollow", before: workload.UserFollowed, written: workload.UserUnfollowed},
	}
}

// askCheck asks about two probes, of whom every second time one follows the other.
func askCheck(q *graph.Queries, s *growthStore, i int) error {
	from, to := i%probes, (i+i%2*probes/2)%probes
	f, err := q.UserFollow(workload.UserID(s.log.probeFollower(from)), workload.UserID(s.log.probeFollowee(to)))
	if err == nil && (f.Kind == graph.Explicit) != (i%2 == 0) {
		err = errors.New("a wrong answer")
	}
	return err
}

func askFilter(q *graph.Queries, s *growthStore, i int) error {
	users, follows := make([]string, workload.FilterSize), make([]graph.Follow, workload.FilterSize)
	for j := range users {
		users[j] = workload.UserID(s.log.probeFollowee((i + 4*j) % probes))
	}
	if err := q.UserFollows(workload.UserID(s.log.probeFollower(i%probes)), users, follows); err != nil {
		return err
	}
	found := 0
	for _, f := range follows {
		if f.Kind == graph.Explicit {
			found++
		}
	}
	if want := (probes/2 + 3) / 4; found != want {
		return fmt.Errorf("%d are followed, not %d", found, want)
	}
	return nil
}

func askList(q *graph.Queries, s *growthStore, i int) error {
	followers := graph.List{Kind: graph.Followers, User: workload.UserID(s.log.probeFollowee(i % probes))}
	page, _, err := q.List(context.Background(), followers, nil, workload.PageSize)
	if err == nil && len(page) != probes/2 {
		err = fmt.Errorf("a page of %d", len(page))
	}
	return err
}

func askCounts(q *graph.Queries, s *growthStore, i int) error {
	c, err := q.UserCounts(workload.UserID(s.log.probeFollowee(i % probes)))
	if err == nil && c.Followers != probes/2 {
		err = fmt.Errorf("%d followers", c.Followers)
	}
	return err
}

// openGrowthStore opens the graph of a data directory that no service uses.
func openGrowthStore(g *growthSize) (*growthStore, error) {
	f, err := workload.ReopenFolder(filepath.Join(g.data, "stores"), func() projections.Projection {
		return graph.NewWith(querycache.New(querycache.DefaultBytes))
	})
	return &growthStore{Folder: f, growthSize: g, ops: map[string][]float64{}, fresh: uint32(g.log.users + 2*probes)}, err
}

// measureOperations times operations in the stores of all sizes, in turn.
func measureOperations(ctx context.Context, b *measure.Bench, all []*growthSize) (err error) {
	var stores []*growthStore
	defer func() {
		for _, s := range stores {
			err = errors.Join(err, s.CloseAndKeep())
		}
	}()
	for _, g := range all {
		s, err := openGrowthStore(g)
		if err != nil {
			return err
		}
		stores = append(stores, s)
	}
	for i, op := range growthOps() {
		row := b.Row("growth-"+op.id, "growth: "+op.title+", p50", "µs", "")
		if i == 0 {
			row.Note = fmt.Sprintf("in process, of %d users who follow and are followed by %d others in a store of any size, so that what is "+
				"asked is in the caches. %d operations are timed at a time, those that write committed together and visible, %d times a run, "+
				"the sizes in turn: medians.", 2*probes, probes/2, measure.Group, measure.Rounds)
		}
		for run := range b.Opts.Runs {
			if err := timeRun(ctx, op, run, stores); err != nil {
				return fmt.Errorf("%s: %w", op.title, err)
			}
			for _, s := range stores {
				row.SeriesOf(s.name).Add(measure.Measurement{Value: measure.Median(s.ops[op.id])})
				b.Say("  %-18s run %d  %-30s %s µs", row.ID, run+1, s.name, measure.Figure(measure.Median(s.ops[op.id])))
			}
		}
		for _, s := range stores {
			if s.costs.Micros == nil {
				s.costs.Micros = map[string]float64{}
			}
			s.costs.Micros[op.id] = row.SeriesOf(s.name).Median
		}
		row.Compare(stores[len(stores)-1].name, stores[0].name, maxGrowth, true)
	}
	return nil
}

// timeRun times an operation in each store, in turn.
func timeRun(ctx context.Context, op growthOp, run int, stores []*growthStore) error {
	for _, s := range stores {
		s.ops[op.id] = nil
	}
	for round := range measure.Rounds + 1 {
		order := slices.Clone(stores)
		if (run+round)%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			took, err := s.timeGroup(op, round)
			if err := errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 { // the first fills the caches
				s.ops[op.id] = append(s.ops[op.id], took)
			}
		}
	}
	return nil
}

// timeGroup does an operation some times, and returns what one took, in microseconds.
func (s *growthStore) timeGroup(op growthOp, round int) (float64, error) {
	if op.written == nil {
		return timePerOperation(func() error {
			for i := range measure.Group {
				if err := op.run(s, round*measure.Group+i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	first := s.fresh
	s.fresh += measure.Group
	fold := func(event func(uint32, string) *skeinv1.Event) (took float64, err error) {
		if event == nil {
			return 0, nil
		}
		evs := make([]*skeinv1.Event, measure.Group)
		for i := range evs {
			evs[i] = event(first+uint32(i), workload.UserID(s.log.probeFollowee((round+i)%probes)))
		}
		env, err := s.Envelope(evs)
		if err != nil {
			return 0, err
		}
		return timePerOperation(func() error { return s.Store.Fold([]*events.Envelope{env}) })
	}
	if _, err := fold(op.before); err != nil {
		return 0, err
	}
	took, err := fold(op.written)
	if err != nil {
		return 0, err
	}
	_, err = fold(op.after)
	return took, err
}

// each returns what one operation of a group takes, in microseconds.
func timePerOperation(run func() error) (float64, error) {
	begin := time.Now()
	err := run()
	return measure.Micros(time.Since(begin)) / measure.Group, err
}
