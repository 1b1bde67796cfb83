package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	smallUser   = 10
	maxConstant = 1.5
)

// operation is something that must cost the same whatever the number of followers.
type operation int

const (
	opCount operation = iota
	opPage
	opFollow
	opUnfollow
	opExclude
	numOperations
	// untimed puts things back.
	untimed
)

func (op operation) row() (id, title string) {
	switch op {
	case opCount:
		return "constant-count", "counts of a user and of a board"
	case opPage:
		return "constant-page", "first 10 followers"
	case opFollow:
		return "constant-follow", "follow"
	case opUnfollow:
		return "constant-unfollow", "unfollow"
	case opExclude:
		return "constant-exclusion", "exclusion of a board"
	}
	return "", ""
}

// targetStore is a store with followed users whose operations are timed.
type targetStore struct{ *workload.Folder }

// target is a followed user whose operations are timed.
type target struct {
	name  string
	id    string
	times [numOperations][]float64
}

// Constant compares the cost of operations on a user with few followers, and on one with very many, in one store.
func Constant(ctx context.Context, b *measure.Bench) (err error) {
	store, err := workload.OpenFolder(b.Dir)
	if err != nil {
		return err
	}
	f := targetStore{store}
	defer func() { err = errors.Join(err, f.Close()) }()
	small := &target{name: fmt.Sprintf("%d followers", smallUser), id: workload.UserID(0)}
	big := &target{name: measure.Figure(float64(b.Opts.BigUser)) + " followers", id: workload.UserID(1)}
	b.Say("folding %s", big.name)
	if err := f.loadTargets(small, big, b.Opts.BigUser); err != nil {
		return err
	}
	var report constantRows
	for op := range report {
		id, title := operation(op).row()
		report[op] = b.Row(id, "constant cost: "+title, "µs", "")
	}
	fresh := uint32(b.Opts.BigUser + 100)
	// First all reads: the rows that the writes remove again would lie in their way.
	for _, phase := range []func(*target) error{f.readRound, func(t *target) error {
		fresh += measure.Group
		return f.writeRound(t, fresh-measure.Group)
	}} {
		for run := range b.Opts.Runs {
			if err := constantRun(ctx, b, run, &report, phase, small, big); err != nil {
				return err
			}
		}
	}
	for _, row := range report {
		row.Compare(big.name, small.name, maxConstant, true)
	}
	report[opCount].Note = fmt.Sprintf("in process, in one store on disk. %d operations are timed at a time, those that "+
		"write committed together and visible, %d times a run, the two users in turn: medians. Decoding the log is left "+
		"out. While it is measured the small user has %d to %d followers.", measure.Group, measure.Rounds, smallUser, smallUser+measure.Group)
	return nil
}

type constantRows [numOperations]*measure.Row

// constantRun times a phase on both users in turn.
func constantRun(
	ctx context.Context, b *measure.Bench, run int, report *constantRows, phase func(*target) error, targets ...*target,
) error {
	for _, t := range targets {
		t.times = [numOperations][]float64{}
	}
	for round := range measure.Rounds {
		order := slices.Clone(targets)
		if (run+round)%2 == 1 {
			slices.Reverse(order)
		}
		for _, t := range order {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := phase(t); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	for op, row := range report {
		for _, t := range targets {
			if len(t.times[op]) > 0 {
				m := measure.Measurement{Value: measure.Median(t.times[op])}
				row.SeriesOf(t.name).Add(m)
				b.Say("  %-18s run %d  %-44s %s µs", row.ID, run+1, t.name, measure.Figure(m.Value))
			}
		}
	}
	return nil
}

const timedBoard = "videos"

// loadTargets gives both users a board and their followers. Those of the small user come spread over those of the big one:
// what was written not long ago stands in more levels of the store, which is not what is measured.
func (f targetStore) loadTargets(small, big *target, followers int) error {
	setup := []*skeinv1.Event{boardCreated(small.id), boardCreated(big.id)}
	every := followers/smallUser + 1
	return f.Load(len(setup)+followers+smallUser, func(i int) *skeinv1.Event {
		if i < len(setup) {
			return setup[i]
		}
		i -= len(setup)
		if i%every == every-1 {
			return workload.UserFollowed(uint32(i+2), small.id)
		}
		return workload.UserFollowed(uint32(i+2), big.id)
	})
}

// writeRound times the operations that write on one user, with followers from number fresh on, who are no followers
// afterwards.
func (f targetStore) writeRound(t *target, fresh uint32) error {
	for _, step := range []struct {
		op    operation
		event func(uint32, string) *skeinv1.Event
	}{
		{opFollow, workload.UserFollowed},
		{opUnfollow, workload.UserUnfollowed},
		{untimed, workload.UserFollowed},
		{opExclude, boardUnfollowed},
		{untimed, workload.UserUnfollowed},
	} {
		evs := make([]*skeinv1.Event, measure.Group)
		for i := range evs {
			evs[i] = step.event(fresh+uint32(i), t.id)
		}
		env, err := f.Envelope(evs)
		if err != nil {
			return err
		}
		if err := t.time(step.op, func() error { return f.Store.Fold([]*events.Envelope{env}) }); err != nil {
			return err
		}
	}
	return nil
}

// readRound times the operations that read on one user.
func (f targetStore) readRound(t *target) error {
	counts := func(q *graph.Queries) error {
		_, err := q.UserCounts(t.id)
		if err != nil {
			return err
		}
		_, err = q.BoardCounts(t.id, timedBoard)
		return err
	}
	page := func(q *graph.Queries) error {
		page, _, err := q.List(context.Background(), graph.List{Kind: graph.Followers, User: t.id}, nil, smallUser)
		if err == nil && len(page) != smallUser {
			return fmt.Errorf("a page of %d", len(page))
		}
		return err
	}
	for _, step := range []struct {
		op  operation
		ask func(q *graph.Queries) error
	}{{opCount, counts}, {opPage, page}} {
		err := t.time(step.op, func() error {
			for range measure.Group {
				if err := f.Ask(step.ask); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// time runs a group of operations and notes what one of them took.
func (t *target) time(op operation, run func() error) error {
	begin := time.Now()
	if err := run(); err != nil {
		return err
	}
	if op != untimed {
		t.times[op] = append(t.times[op], float64(time.Since(begin).Nanoseconds())/1000/measure.Group)
	}
	return nil
}

func boardUnfollowed(follower uint32, user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{
		UserId: workload.UserID(follower), Board: &skeinv1.Board{OwnerId: user, BoardId: timedBoard},
	}}}
}

func boardCreated(user string) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_BoardCreated{BoardCreated: &skeinv1.BoardCreated{
		Board: &skeinv1.Board{OwnerId: user, BoardId: timedBoard},
	}}}
}
