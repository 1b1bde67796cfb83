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
	// MaxRejects is the number of bad records with which the file was imported.
	MaxRejects MaxRejects
	// StartedAt is the recorded start of the import, as its [Report] has it.
	StartedAt time.Time
	// AtLeast is a position that contains the import.
	AtLeast string
	// Graph answers for follows, boards, blocks and mutes, Feed for pins, Counters for plays and likes.
	Graph    skeinv1connect.GraphServiceClient
	Feed     skeinv1connect.FeedServiceClient
	Counters skeinv1connect.CounterServiceClient
	// Pairs is the number of random pairs that are checked beside all lists and counts, for follows and boards.
	Pairs int
	// Seed chooses the pairs: the same seed chooses the same ones.
	Seed uint64
	// Patience is how long a call is retried while the service does not answer. Default 5 min.
	Patience time.Duration
	// Observe is called with the number of lists, counts and pairs that are done, from several goroutines; nil disables it.
	Observe func(done, total int)
	// Difference is called with each of the first 100 differences, one at a time; nil disables it.
	Difference func(string)
}

// Comparison is the result of [Compare].
type Comparison = comparison.Result

// ErrNothingToCompare is returned for a file without facts for which the service has an answer.
var ErrNothingToCompare = errors.New("there is nothing to compare with")

// IsComparable reports whether files of the kind can be compared with the service, which does not list follows that ended, and not whose
// re-pins a user hides.
func (k Kind) IsComparable() bool {
	return k != Unfollows && k != BoardUnfollows && k != HiddenRepins
}

// Compare reads the file of an import again and compares all its facts with the answers of a running service. For follows and boards it
// compares the lists of every user and board, in order and with times, every count, and random pairs; for pins the pins of every owner
// and board; for plays and likes the counts of every item. Other facts about the same users and items, live or from another
// import, appear as differences. It returns [ErrNothingToCompare] for a file without such facts.
func Compare(ctx context.Context, o CompareOptions) (_ *Comparison, err error) {
	if !o.Kind.IsComparable() {
		return nil, fmt.Errorf("%w: the service does not list %s", ErrNothingToCompare, o.Kind)
	}
	def(&o.Patience, DefaultPatience)
	if o.Kind != Follows && o.Kind != Boards {
		o.Pairs = 0
	}
	dir, remove, err := comparison.MakeDir("")
	if err != nil {
		return nil, err
	}
	defer remove(&err)

	c := comparison.New(comparison.Options{
		Dir: dir, Origin: "the file", Exclusive: true, AtLeast: o.AtLeast, Graph: o.Graph, Feed: o.Feed, Counters: o.Counters,
		Patience: o.Patience, Latest: math.MaxInt64, Pairs: o.Pairs, Seed: o.Seed, Observe: o.Observe, Difference: o.Difference,
	})
	if err := expectFile(ctx, o, c); err != nil {
		return nil, err
	}
	found, err := c.Run(ctx)
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		switch o.Kind {
		case Pins:
			err = fmt.Errorf("%w: the service does not list pins: %w", ErrNothingToCompare, err)
		case Plays, Likes:
			err = fmt.Errorf("%w: the service does not count: %w", ErrNothingToCompare, err)
		}
	}
	return found, err
}
