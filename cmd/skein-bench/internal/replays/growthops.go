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

// growthOp is an operation that should cost the same in stores of all sizes. It either reads, and
// then has the function read, or it folds events.
type growthOp struct {
	id, title string
	// read asks the store once. i counts the calls, so that each call can ask about another user.
	read func(s *growthStore, i int) error
	// timedEvent makes an event that is folded. A group of events is committed together, and time
	// ends when reads show them.
	timedEvent func(follower uint32, followee string) *skeinv1.Event
	// before and after make events that are folded before and after the timed ones, and not timed.
	// They may be nil.
	before, after func(follower uint32, followee string) *skeinv1.Event
}

// growthStore is an open graph store of one size.
type growthStore struct {
	*workload.BenchStore
	*growthSize
	// times has the times of each operation in the current run, by its id, in microseconds.
	times map[string][]float64
	// nextFollower is the number of the next user who has no follows yet.
	nextFollower uint32
}

// growthOps returns the operations that are measured.
func growthOps() []growthOp {
	// cached reads as the service does, with the cache of the projection. fromRows reads without
	// it.
	cached := func(ask func(q *graph.Queries, s *growthStore, i int) error) func(s *growthStore, i int) error {
		return func(s *growthStore, i int) error {
			return s.QueryCached(func(q *graph.Queries) error { return ask(q, s, i) })
		}
	}
	fromRows := func(ask func(q *graph.Queries, s *growthStore, i int) error) func(s *growthStore, i int) error {
		return func(s *growthStore, i int) error {
			return s.Query(func(q *graph.Queries) error { return ask(q, s, i) })
		}
	}
	return []growthOp{
		{id: "check", title: "point check", read: cached(askCheck)},
		{id: "filter", title: "25-way filter", read: cached(askFilter)},
		{id: "check-rows", title: "point check, from rows", read: fromRows(askCheck)},
		{id: "filter-rows", title: "25-way filter, from rows", read: fromRows(askFilter)},
		{id: "list", title: "newest 50 followers", read: fromRows(askList)},
		{id: "counts", title: "counts of a user", read: fromRows(askCounts)},
		{id: "follow", title: "follow", timedEvent: workload.UserFollowed, after: workload.UserUnfollowed},
		{id: "unfollow", title: "unfollow", before: workload.UserFollowed, timedEvent: workload.UserUnfollowed},
	}
}

// askCheck asks whether a probe follows another one. In every second call it does.
func askCheck(q *graph.Queries, s *growthStore, i int) error {
	isFollowing := i%2 == 0
	follower := i % probes
	followee := follower
	if !isFollowing {
		followee = (i + probes/2) % probes
	}
	f, err := q.UserFollow(workload.UserID(s.log.probeFollower(follower)), workload.UserID(s.log.probeFollowee(followee)))
	if err != nil {
		return err
	}
	if (f.Kind == graph.Explicit) != isFollowing {
		return errors.New("a wrong answer")
	}
	return nil
}

// askFilter asks which of some probes another probe follows.
func askFilter(q *graph.Queries, s *growthStore, i int) error {
	users := make([]string, workload.FilterSize)
	follows := make([]graph.Follow, workload.FilterSize)
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
	// Every fourth of the probes is asked about, and half of all probes are followed.
	const expected = (probes/2 + 3) / 4
	if found != expected {
		return fmt.Errorf("%d are followed, not %d", found, expected)
	}
	return nil
}

// askList reads the newest followers of a probe.
func askList(q *graph.Queries, s *growthStore, i int) error {
	followers := graph.List{Kind: graph.Followers, User: workload.UserID(s.log.probeFollowee(i % probes))}
	page, _, err := q.List(context.Background(), followers, nil, workload.PageSize)
	if err != nil {
		return err
	}
	if len(page) != probes/2 {
		return fmt.Errorf("a page of %d", len(page))
	}
	return nil
}

// askCounts reads how many followers a probe has.
func askCounts(q *graph.Queries, s *growthStore, i int) error {
	counts, err := q.UserCounts(workload.UserID(s.log.probeFollowee(i % probes)))
	if err != nil {
		return err
	}
	if counts.Followers != probes/2 {
		return fmt.Errorf("%d followers", counts.Followers)
	}
	return nil
}

// openGrowthStore opens the graph store of a size. No service may use it.
func openGrowthStore(g *growthSize) (*growthStore, error) {
	f, err := workload.ReopenStore(filepath.Join(g.data, "stores"), func() projections.Projection {
		return graph.NewWith(querycache.New(querycache.DefaultBytes))
	})
	return &growthStore{
		BenchStore:   f,
		growthSize:   g,
		times:        map[string][]float64{},
		nextFollower: uint32(g.log.users + 2*probes), // the last users of the log are the probes
	}, err
}

// measureOperations times the operations in the stores of all sizes, in turn.
func measureOperations(ctx context.Context, b *measure.Bench, all []*growthSize) (err error) {
	var stores []*growthStore
	defer func() {
		for _, s := range stores {
			err = errors.Join(err, s.CloseAndKeepFiles())
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
		row := b.AddRow("growth-"+op.id, "growth: "+op.title+", p50", "µs", "")
		if i == 0 {
			row.Note = fmt.Sprintf("in process, of %d users who follow and are followed by %d others in a store of any size, so that what is "+
				"asked is in the caches. %d operations are timed at a time, those that write committed together and visible, %d times a run, "+
				"the sizes in turn: medians.", 2*probes, probes/2, measure.OperationsPerGroup, measure.GroupsPerRun)
		}
		for run := range b.Opts.Runs {
			if err := timeRun(ctx, op, run, stores); err != nil {
				return fmt.Errorf("%s: %w", op.title, err)
			}
			for _, s := range stores {
				row.SeriesOf(s.name).Add(measure.Measurement{Value: measure.Median(s.times[op.id])})
				b.Logf("  %-18s run %d  %-30s %s µs", row.ID, run+1, s.name, measure.FormatFigure(measure.Median(s.times[op.id])))
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

// timeRun times an operation in all stores. Groups of operations alternate between the stores, so
// that what changes on the machine affects all alike.
func timeRun(ctx context.Context, op growthOp, run int, stores []*growthStore) error {
	for _, s := range stores {
		s.times[op.id] = nil
	}
	for round := range measure.GroupsPerRun + 1 {
		order := slices.Clone(stores)
		if (run+round)%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			took, err := s.timeGroup(op, round)
			if err := errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if round > 0 { // the first round only fills the caches
				s.times[op.id] = append(s.times[op.id], took)
			}
		}
	}
	return nil
}

// timeGroup does an operation several times, and returns the time of one in microseconds.
func (s *growthStore) timeGroup(op growthOp, round int) (float64, error) {
	if op.timedEvent == nil {
		return timePerOperation(func() error {
			for i := range measure.OperationsPerGroup {
				if err := op.read(s, round*measure.OperationsPerGroup+i); err != nil {
					return err
				}
			}
			return nil
		})
	}

	// Each event has a new follower, so that no event repeats an earlier one.
	firstFollower := s.nextFollower
	s.nextFollower += measure.OperationsPerGroup
	fold := func(event func(uint32, string) *skeinv1.Event) (took float64, err error) {
		if event == nil {
			return 0, nil
		}
		evs := make([]*skeinv1.Event, measure.OperationsPerGroup)
		for i := range evs {
			evs[i] = event(firstFollower+uint32(i), workload.UserID(s.log.probeFollowee((round+i)%probes)))
		}
		env, err := s.NextEnvelope(evs)
		if err != nil {
			return 0, err
		}
		return timePerOperation(func() error { return s.Store.Fold([]*events.Envelope{env}) })
	}

	if _, err := fold(op.before); err != nil {
		return 0, err
	}
	took, err := fold(op.timedEvent)
	if err != nil {
		return 0, err
	}
	_, err = fold(op.after)
	return took, err
}

// timePerOperation runs a group of operations, and returns the time of one in microseconds.
func timePerOperation(run func() error) (float64, error) {
	begin := time.Now()
	err := run()
	return measure.Micros(time.Since(begin)) / measure.OperationsPerGroup, err
}
