package importer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
	"github.com/skein-feed/skein/replay/internal/comparison"
)

// CompareOptions say which file is compared with which service.
type CompareOptions struct {
	Kind   Kind
	Path   string
	Format Format
	First  bool
	// MaxRejects is the limit of bad records with which the file was imported.
	MaxRejects MaxRejects
	// StartedAt is the recorded start of the import, as in its [Report].
	StartedAt time.Time
	// AtLeast is a position of the log that contains the import.
	AtLeast string
	// Graph answers for follows, boards, blocks and mutes, Feed answers for pins, Seen answers for
	// hidden items, and Counters answers for plays and reactions.
	Graph    skeinv1connect.GraphServiceClient
	Feed     skeinv1connect.FeedServiceClient
	Seen     skeinv1connect.SeenServiceClient
	Counters skeinv1connect.CounterServiceClient
	// Pairs is the number of random pairs that are checked in addition to all lists and counts, for
	// follows and boards.
	Pairs int
	// Seed determines the pairs: the same seed chooses the same ones.
	Seed uint64
	// Patience is for how long a call is retried if the service does not answer. Default 5 min.
	Patience time.Duration
	// Observe is called from several goroutines with the number of lists, counts and pairs that are
	// done and of all; it may be nil.
	Observe func(done, total int)
	// Difference is called with each of the first 100 differences, by one goroutine at a time; it
	// may be nil.
	Difference func(string)
}

// Comparison is the result of [Compare].
type Comparison = comparison.Result

// ErrNothingToCompare means that a file contains no facts for which the service has an answer.
var ErrNothingToCompare = errors.New("there is nothing to compare with")

// IsComparable reports whether files of the kind can be compared with the service. The service does
// not list follows that have ended, and not settings of follows in the order of an import.
func (k Kind) IsComparable() bool {
	return k != Unfollows && k != BoardUnfollows && k != FollowSettings
}

// Compare reads the file of an import again, and compares all its facts with the answers of a
// running service. For follows and boards, it compares the lists of every user and board, in order
// and with times, every count, and random pairs. For pins, it compares the pins of every owner and
// board; for hidden items, the list of every user; for plays and reactions, the counts of every
// item. Other facts about the same users and items, whether live or from another import, are
// reported as differences. Compare returns [ErrNothingToCompare] for a file without such facts.
func Compare(ctx context.Context, o CompareOptions) (_ *Comparison, err error) {
	if !o.Kind.IsComparable() {
		return nil, fmt.Errorf("%w: the service does not list %s", ErrNothingToCompare, o.Kind)
	}
	setDefault(&o.Patience, DefaultPatience)
	if o.Kind != Follows && o.Kind != Boards {
		o.Pairs = 0
	}
	dir, remove, err := comparison.MakeDir("")
	if err != nil {
		return nil, err
	}
	defer remove(&err)

	c := comparison.New(comparison.Options{
		Dir:        dir,
		Origin:     "the file",
		Exclusive:  true,
		AtLeast:    o.AtLeast,
		Graph:      o.Graph,
		Feed:       o.Feed,
		Seen:       o.Seen,
		Counters:   o.Counters,
		Patience:   o.Patience,
		Latest:     math.MaxInt64,
		Pairs:      o.Pairs,
		Seed:       o.Seed,
		Observe:    o.Observe,
		Difference: o.Difference,
	})
	if err := expectFile(ctx, o, c); err != nil {
		return nil, err
	}
	found, err := c.Run(ctx)
	// A service may lack the projection that answers for the kind.
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		switch o.Kind {
		case Pins:
			err = fmt.Errorf("%w: the service does not list pins: %w", ErrNothingToCompare, err)
		case HiddenItems:
			err = fmt.Errorf("%w: the service does not list hidden items: %w", ErrNothingToCompare, err)
		case Plays, Reactions:
			err = fmt.Errorf("%w: the service does not count: %w", ErrNothingToCompare, err)
		}
	}
	return found, err
}
