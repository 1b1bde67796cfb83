package importer

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The service has no lists of plays and likes, only counts, so these are compared. A file of plays gives the number of plays of every item
// and of every user; each record counts, repeats included. A file of likes gives the number of users who like an item, each once.

// tally is a count of an item, or of a user.
type tally struct {
	user, item string // one of them is empty
}

// String names the tally for people.
func (t tally) String() string {
	if t.user != "" {
		return "by " + t.user
	}
	return "of " + t.item
}

func (t tally) key() *skeinv1.CounterKey {
	if t.user != "" {
		return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: t.user}}
	}
	return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: t.item}}
}

// tallied reports whether files of this kind are compared by counts.
func (k Kind) tallied() bool { return k == Plays || k == Likes }

// expectTallies counts the records of a file of plays or likes.
func expectTallies(ctx context.Context, o CompareOptions) (map[tally]int64, error) {
	want, likes := map[tally]int64{}, map[[2]string]bool{}
	err := eachRecord(ctx, o, func(r *record, _ events.Micros) {
		u, i := r.fields[user], r.fields[item]
		if o.Kind == Plays {
			want[tally{item: i}]++
			want[tally{user: u}]++
			return
		}
		if !likes[[2]string{u, i}] {
			likes[[2]string{u, i}] = true
			want[tally{item: i}]++
		}
	})
	return want, err
}

// tallies compares all tallies of a file.
func (c *comparer) tallies(ctx context.Context) error {
	want, err := expectTallies(ctx, c.CompareOptions)
	if err != nil {
		return err
	}
	keys := make([]tally, 0, len(want))
	for t := range want {
		keys = append(keys, t)
		if t.user != "" {
			c.found.Users++
		} else {
			c.found.Items++
		}
	}
	slices.SortFunc(keys, func(a, b tally) int {
		return cmp.Or(events.CompareIDs(a.user, b.user), events.CompareIDs(a.item, b.item))
	})
	c.total = len(keys)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(compareWorkers)
	for some := range slices.Chunk(keys, comparePage) {
		g.Go(func() error { return c.someTallies(ctx, some, want) })
	}
	if err = g.Wait(); connect.CodeOf(err) == connect.CodeUnimplemented {
		err = fmt.Errorf("%w: the service does not count: %w", ErrNothingToCompare, err)
	}
	return err
}

// someTallies compares the tallies of one call. It only reads want, so several goroutines may share it.
func (c *comparer) someTallies(ctx context.Context, keys []tally, want map[tally]int64) error {
	req := &skeinv1.BatchGetCountersRequest{AtLeast: c.AtLeast}
	for _, t := range keys {
		req.Keys = append(req.Keys, t.key())
	}
	res, err := ask(ctx, c, c.Counters.BatchGetCounters, req)
	if err != nil {
		return err
	}
	if len(res.GetCounters()) != len(keys) {
		return fmt.Errorf("%d counters for %d keys", len(res.GetCounters()), len(keys))
	}
	for i, t := range keys {
		got := res.GetCounters()[i].GetPlayCount()
		if c.Kind == Likes {
			got = int64(res.GetCounters()[i].GetLikeCount())
		}
		if got != want[t] {
			c.differ("%s %s: got %d, want %d", c.Kind, t, got, want[t])
		}
	}
	c.step(len(keys))
	return nil
}
