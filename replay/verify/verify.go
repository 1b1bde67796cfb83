package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/replay"
)

// Store is the live store: a [projections.Store], or what stands before several generations of one.
type Store interface {
	Name() string
	View() (*projections.View, error)
	Repair(ctx context.Context, heal func(at events.Cursor, rows projections.Reader, m *projections.Repair) error) error
	Flush() error
	CheckFiles(ctx context.Context, dir string, rest func(context.Context, time.Duration) error) (projections.FileCheck, error)
}

var _ Store = (*projections.Store)(nil)

// Report is the outcome of a verification or repair.
type Report struct {
	Projection string
	// At is the sequence at which the stores were compared, the last one if there were several: after repairs, and where one
	// would have been held for longer than [Options.Hold]. Rows were compared the last time.
	At, Rows uint64
	// Differences is how many rows differed at the first comparison, Left at the last. Equal: none is left.
	Differences, Left uint64
	Equal             bool
	// Partitions has the differences of the first comparison by partition, or [projections.StoreWide].
	Partitions map[int]uint64
	// Listed are the first of these differences.
	Listed []Difference
	// Rounds of repair were made, and changed Repaired rows.
	Rounds   int
	Repaired uint64
	Took     time.Duration
	// Files is what was read of the files: rows that are in the cache say nothing of them. Unread says why they were not read.
	Files  projections.FileCheck
	Unread string
}

// Damaged reports whether tables on disk are damaged. A rebuild makes new ones.
func (r *Report) Damaged() bool { return len(r.Files.Damaged) > 0 }

// repaired returns the report of what was interrupted, if anything was repaired or found damaged by then.
func (r *Report) repaired() *Report {
	if r.Repaired == 0 && !r.Damaged() {
		return nil
	}
	r.Equal = false
	return r
}

// String tells people in a line what came out, and each listed difference in a line more.
func (r *Report) String() string {
	var sb strings.Builder
	switch {
	case r.Differences == 0:
		fmt.Fprintf(&sb, "%s is equal to the log at %d: %d rows", r.Projection, r.At, r.Rows)
	case r.Equal:
		fmt.Fprintf(&sb, "%s is equal to the log at %d: %d rows, of which %d differed; %d were repaired",
			r.Projection, r.At, r.Rows, r.Differences, r.Repaired)
	default:
		fmt.Fprintf(&sb, "%s differs from the log at %d in %d of %d rows", r.Projection, r.At, r.Left, r.Rows)
		if r.Rounds > 0 {
			fmt.Fprintf(&sb, ", after %d were repaired in %d rounds", r.Repaired, r.Rounds)
		}
	}
	switch {
	case r.Unread != "":
		fmt.Fprintf(&sb, "; its files on disk were not read: %s", r.Unread)
	case r.Damaged():
		fmt.Fprintf(&sb, "; of %d tables on disk %d are damaged", r.Files.Tables, len(r.Files.Damaged))
		for _, d := range r.Files.Damaged {
			fmt.Fprintf(&sb, "\ndamaged: %s", d)
		}
	default:
		fmt.Fprintf(&sb, "; its %d tables on disk, %s, were read and are whole", r.Files.Tables, events.SizeText(r.Files.Bytes))
	}
	for _, d := range r.Listed {
		fmt.Fprintf(&sb, "\n%v", d)
	}
	if more := r.Differences - uint64(len(r.Listed)); more > 0 {
		fmt.Fprintf(&sb, "\nand %d more", more)
	}
	return sb.String()
}

// Verify compares a live store with a shadow of it, each row at a common position and without holding anything: the store serves
// and folds on. That it differs is no error.
func Verify(ctx context.Context, live Store, o Options) (*Report, error) {
	return run(ctx, live, o, false)
}

// Repair verifies a live store and makes the rows that differ those of the log, inside its fold: equal ones are not touched,
// readers never fail, writes wait for as long as it takes to read and write some thousand rows. Since errors may have spread
// while it ran, it verifies again, for up to three rounds. If it is interrupted after it repaired rows, the report
// comes with the error.
func Repair(ctx context.Context, live Store, o Options) (*Report, error) {
	return run(ctx, live, o, true)
}

// maxRounds bounds the repairs of one call.
const maxRounds = 3

func run(ctx context.Context, live Store, o Options, repair bool) (r *Report, err error) {
	o.fill()
	o.compareTime = func(ctx context.Context, rows int64) time.Duration { return compareTime(ctx, live, o, rows) }
	began := time.Now()
	shadow, err := OpenShadow(o)
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", live.Name(), err)
	}
	defer func() { err = errors.Join(err, shadow.Close()) }()
	r = &Report{Projection: live.Name()}
	if err := checkFiles(ctx, live, &o, r); err != nil {
		return nil, fmt.Errorf("verify %s: %w", live.Name(), err)
	}
	for {
		c, err := compareAll(ctx, live, shadow, &o, r)
		if err != nil {
			return r.repaired(), fmt.Errorf("verify %s: %w", live.Name(), err)
		}
		if r.Rounds == 0 {
			r.Differences, r.Partitions, r.Listed = c.Differences, c.Partitions, c.Listed
		}
		r.Rows, r.Left, r.Equal = c.Rows, c.Differences, c.Differences == 0
		r.Took = time.Since(began)
		if r.Equal || !repair || r.Rounds == maxRounds {
			return r, nil
		}
		n, err := repairRows(ctx, live, shadow, c.keys)
		r.Repaired += n
		if err != nil {
			return r.repaired(), fmt.Errorf("repair %s, after %d rows: %w", live.Name(), r.Repaired, err)
		}
		// What is more than a round can hold is not the spreading of errors.
		if r.Rounds++; n > 0 && len(c.keys) == maxKeys {
			r.Rounds = 1
		}
		o.Logger.Warn("rows were repaired", "projection", live.Name(), "rows", n, "round", r.Rounds)
	}
}

// checkFiles reads the files of the live store, unless only some partitions are wanted: every table has rows of all.
func checkFiles(ctx context.Context, live Store, o *Options, r *Report) error {
	if o.Partitions != nil {
		r.Unread = "only some partitions were compared"
		return nil
	}
	files, err := live.CheckFiles(ctx, o.FS.PathJoin(o.Dir, "files"), o.Pace.Rest)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.Files = files; err != nil {
		r.Unread = err.Error()
	}
	if r.Damaged() {
		o.Logger.Error("files of a store are damaged: rebuild it", "projection", live.Name(), "damaged", files.Damaged)
	}
	return nil
}

// compareAll compares all rows: at one position, or, where that would be held for too long, at several, each row at one of
// them. What has gone wrong behind the walk is met by the next.
func compareAll(ctx context.Context, live Store, shadow *Shadow, o *Options, r *Report) (*Comparison, error) {
	c := &Comparison{Partitions: map[int]uint64{}}
	for key := []byte(nil); ; {
		next, err := compareAt(ctx, live, shadow, o, r, c, key)
		if err != nil || next == nil {
			return c, err
		}
		key = next
	}
}

// compareAt compares from a key on at the position of a view of the live store, which the shadow is folded to.
func compareAt(ctx context.Context, live Store, shadow *Shadow, o *Options, r *Report, c *Comparison, key []byte) (next []byte, err error) {
	if err := approach(ctx, live, shadow, o); err != nil {
		return nil, err
	}
	v, err := live.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	r.At = v.Cursor().Seq
	if err := shadow.FoldTo(ctx, r.At, replay.Pace{}); err != nil {
		return nil, err
	}
	s, err := shadow.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	o.Progress.Start("rows", max(c.Rows, uint64(shadow.rows)))
	o.Progress.Set(c.Rows)
	return c.from(ctx, v, s, o, key)
}

// nearby is how many envelopes the shadow may be behind when a view is taken or the fold is held.
const nearby = 512

// approach folds the shadow until it is near the live store, which moves on meanwhile: at the pace at first, and twice as
// fast for each lap in which it did not come near.
func approach(ctx context.Context, live Store, shadow *Shadow, o *Options) error {
	pace := o.Pace
	for {
		v, err := live.View()
		if err != nil {
			return err
		}
		seq := v.Cursor().Seq
		if err := v.Close(); err != nil {
			return err
		}
		at := shadow.Seq()
		if seq <= at+nearby {
			return nil
		}
		o.Progress.Start("envelopes", seq-at)
		o.Progress.Ahead(shadow.compare)
		if err := shadow.FoldTo(ctx, seq, pace); err != nil {
			return err
		}
		pace.Share = min(2*pace.Share, 1)
	}
}
