package stores

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// smallFollowerCount is how many followers the small user has.
	smallFollowerCount = 10
	// maxCostRatio is how much more a follow of the big user may cost than one of the small user.
	maxCostRatio = 1.5
)

// followedUser is a user to whom followers are added.
type followedUser struct {
	name string
	id   string
}

// MeasureFollowCost compares the cost of a follow of a user with few followers, and of one with
// very many, in one store.
func MeasureFollowCost(ctx context.Context, b *measure.Bench) (err error) {
	f, err := workload.OpenGraphStore(b.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()

	small := followedUser{fmt.Sprintf("%d followers", smallFollowerCount), workload.UserID(0)}
	big := followedUser{measure.FormatFigure(float64(b.Opts.BigUser)) + " followers", workload.UserID(1)}
	b.Logf("folding %s", big.name)
	if err := loadFollowers(f, small, big, b.Opts.BigUser); err != nil {
		return err
	}

	row := b.AddRow("constant-follow", "constant cost: follow", "µs", fmt.Sprintf("in process, in one store on disk. %d follows are timed at "+
		"a time, committed together and visible, %d times a run, the two users in turn: medians. Decoding the log is left out. The followers "+
		"unfollow at once, so the small user has %d to %d.", measure.OperationsPerGroup, measure.GroupsPerRun,
		smallFollowerCount, smallFollowerCount+measure.OperationsPerGroup))
	row.SeriesOf(small.name) // adds the series of the small user first, which is the order of the table

	// Each group needs followers who do not follow yet.
	fresh := uint32(b.Opts.BigUser + 100)
	for run := range b.Opts.Runs {
		times := map[string][]float64{}
		for round := range measure.GroupsPerRun {
			for _, user := range measure.RunOrder(run+round, []followedUser{small, big}) {
				took, err := timeFollows(f, user, fresh)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return fmt.Errorf("%s: %w", user.name, err)
				}
				times[user.name] = append(times[user.name], took)
				fresh += measure.OperationsPerGroup
			}
		}

		for _, user := range []followedUser{small, big} {
			median := measure.Median(times[user.name])
			row.SeriesOf(user.name).Add(measure.Measurement{Value: median})
			b.Logf("  %-18s run %d  %-44s %s µs", row.ID, run+1, user.name, measure.FormatFigure(median))
		}
	}
	row.Compare(big.name, small.name, maxCostRatio, true)
	return nil
}

// loadFollowers gives both users their followers. Those of the small user are spread over those of
// the big one, because recent rows are in more levels of the store, which is not what is measured.
func loadFollowers(f *workload.BenchStore, small, big followedUser, followers int) error {
	every := followers/smallFollowerCount + 1
	return f.FoldEvents(followers+smallFollowerCount, func(i int) *skeinv1.Event {
		if i%every == every-1 {
			return workload.UserFollowed(uint32(i+2), small.id)
		}
		return workload.UserFollowed(uint32(i+2), big.id)
	})
}

// timeFollows returns what one follow takes, in microseconds, of a group of followers from number
// fresh on. They unfollow afterwards.
func timeFollows(f *workload.BenchStore, user followedUser, fresh uint32) (float64, error) {
	fold := func(event func(uint32, string) *skeinv1.Event) (float64, error) {
		evs := make([]*skeinv1.Event, measure.OperationsPerGroup)
		for i := range evs {
			evs[i] = event(fresh+uint32(i), user.id)
		}
		env, err := f.NextEnvelope(evs)
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		err = f.Store.Fold([]*events.Envelope{env})
		return measure.Micros(time.Since(begin)) / measure.OperationsPerGroup, err
	}
	took, err := fold(workload.UserFollowed)
	if err != nil {
		return 0, err
	}
	_, err = fold(workload.UserUnfollowed)
	return took, err
}
