package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
)

// Store is the live store that is verified: a [store.Store], or a [live.Live], which has several
// generations.
type Store interface {
	Name() string
	View() (*projections.View, error)
	Repair(ctx context.Context, heal func(at events.Cursor, rows projections.Reader, m *store.Repair) error) error
	Flush() error
	CheckFiles(ctx context.Context, dir string, rest func(context.Context, time.Duration) error) (store.FileCheck, error)
}

var _ Store = (*store.Store)(nil)

// Report is the outcome of a verification or repair.
type Report struct {
	Projection string
	// At is the sequence of the last position at which rows were compared. There may be several
	// positions: a repair compares again, and a comparison that takes longer than [Options.Hold]
	// continues at a later position.
	At uint64
	// Rows is the number of rows in the last comparison.
	Rows uint64
	// Differences is the number of rows that differed in the first comparison, and Remaining in the
	// last one. Equal reports whether Remaining is 0.
	Differences, Remaining uint64
	Equal                  bool
	// Partitions counts the differences of the first comparison by partition, or
	// [projections.StoreWide].
	Partitions map[int]uint64
	// Listed are the first of these differences, up to [Options.Listed].
	Listed []Difference
	// Rounds is the number of rounds of repair. Repaired is the number of rows that they have
	// changed.
	Rounds   int
	Repaired uint64
	Took     time.Duration
	// Files is the result of reading the store's files. They are read separately, because the
	// comparison may have found rows in the cache, which proves nothing about the files.
	Files store.FileCheck
	// FilesSkipped says why the files were not read; empty if they were.
	FilesSkipped string
}

// Damaged reports whether tables on disk are damaged. A repair does not help then; a rebuild writes
// new tables.
func (r *Report) Damaged() bool {
	return len(r.Files.Damaged) > 0
}

// unlessUnchanged returns the report of an interrupted run if the run has repaired a row or found
// damage, and otherwise nil.
func (r *Report) unlessUnchanged() *Report {
	if r.Repaired == 0 && !r.Damaged() {
		return nil
	}
	r.Equal = false
	return r
}

// String reports the result to people in one line, followed by one line for each listed difference.
func (r *Report) String() string {
	var sb strings.Builder
	switch {
	case r.Differences == 0:
		fmt.Fprintf(&sb, "%s is equal to the log at %d: %d rows", r.Projection, r.At, r.Rows)
	case r.Equal:
		fmt.Fprintf(&sb, "%s is equal to the log at %d: %d rows, of which %d differed; %d were repaired",
			r.Projection, r.At, r.Rows, r.Differences, r.Repaired)
	default:
		fmt.Fprintf(&sb, "%s differs from the log at %d in %d of %d rows", r.Projection, r.At, r.Remaining, r.Rows)
		if r.Rounds > 0 {
			fmt.Fprintf(&sb, ", after %d were repaired in %d rounds", r.Repaired, r.Rounds)
		}
	}

	switch {
	case r.FilesSkipped != "":
		fmt.Fprintf(&sb, "; its files on disk were not read: %s", r.FilesSkipped)
	case r.Damaged():
		fmt.Fprintf(&sb, "; of %d tables on disk %d are damaged", r.Files.Tables, len(r.Files.Damaged))
		for _, d := range r.Files.Damaged {
			fmt.Fprintf(&sb, "\ndamaged: %s", d)
		}
	default:
		fmt.Fprintf(&sb, "; its %d tables on disk, %s, were read and are whole", r.Files.Tables, events.FormatSize(r.Files.Bytes))
	}

	for _, d := range r.Listed {
		fmt.Fprintf(&sb, "\n%v", d)
	}
	if more := r.Differences - uint64(len(r.Listed)); more > 0 {
		fmt.Fprintf(&sb, "\nand %d more", more)
	}
	return sb.String()
}

// Verify compares a live store with a shadow of it, each row at a position that both have. The live
// store continues to serve and to fold. Differences are not an error; the report lists them.
func Verify(ctx context.Context, live Store, o Options) (*Report, error) {
	return verifyAndRepair(ctx, live, o, false)
}

// Repair verifies a live store and repairs the rows that differ. It does not touch equal rows.
// Readers are not affected; writes wait while some thousand rows are read and written. During the
// repair the fold may have derived new wrong rows from wrong ones, so Repair verifies again, for up
// to three rounds. If Repair is interrupted after it has repaired rows, it returns the report
// together with the error.
func Repair(ctx context.Context, live Store, o Options) (*Report, error) {
	return verifyAndRepair(ctx, live, o, true)
}

// maxRounds limits the rounds of one call of Repair. If rows still differ after that, a fold or a
// machine makes new wrong rows, and more rounds would not help.
const maxRounds = 3

// verifyAndRepair does what Verify does and, if repair is true, what Repair does.
func verifyAndRepair(ctx context.Context, live Store, o Options, repair bool) (r *Report, err error) {
	o.setDefaults()
	o.estimateCompareTime = func(ctx context.Context, rows int64) time.Duration { return estimateCompareTime(ctx, live, o, rows) }

	startTime := time.Now()
	if err := o.setLivePartitions(live); err != nil {
		return nil, fmt.Errorf("verify %s: %w", live.Name(), err)
	}

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
			return r.unlessUnchanged(), fmt.Errorf("verify %s: %w", live.Name(), err)
		}
		if r.Rounds == 0 {
			// The report lists the differences of the first comparison.
			r.Differences = c.Differences
			r.Partitions = c.Partitions
			r.Listed = c.Listed
		}
		r.Rows = c.Rows
		r.Remaining = c.Differences
		r.Equal = c.Differences == 0
		r.Took = time.Since(startTime)
		if r.Equal || !repair || r.Rounds == maxRounds {
			return r, nil
		}

		repaired, err := repairRows(ctx, live, shadow, c.differingKeys)
		r.Repaired += repaired
		if err != nil {
			return r.unlessUnchanged(), fmt.Errorf("repair %s, after %d rows: %w", live.Name(), r.Repaired, err)
		}

		// If there were more differences than the comparison remembers, the next round continues
		// the work of this one, and the rounds are counted from the first one again. As each such
		// round repairs rows, the loop ends.
		r.Rounds++
		if repaired > 0 && len(c.differingKeys) == maxKeys {
			r.Rounds = 1
		}
		o.Logger.Warn("rows were repaired", "projection", live.Name(), "rows", repaired, "round", r.Rounds)
	}
}

// ErrNotHeld means that [Options.Partitions] has a partition that the live store does not hold.
var ErrNotHeld = errors.New("the store does not hold the partition")

// errResized means that the live store was replaced by one of other partitions, with which the
// shadow cannot be compared.
var errResized = errors.New("the store holds other partitions than when the verification began: start it again")

// setLivePartitions sets livePartitions and returns [ErrNotHeld] if Partitions has others.
func (o *Options) setLivePartitions(live Store) error {
	v, err := live.View()
	if err != nil {
		return err
	}
	held := v.Partitions()
	if err := v.Close(); err != nil {
		return err
	}

	o.livePartitions = &held
	if o.Partitions == nil {
		return nil
	}
	missing := o.Partitions.Without(&held)
	return missing.Each(func(partition uint8) error { return fmt.Errorf("%w: %d", ErrNotHeld, partition) })
}

// checkFiles reads the files of the live store, unless only some partitions are compared: every
// table has rows of all partitions.
func checkFiles(ctx context.Context, live Store, o *Options, r *Report) error {
	if o.Partitions != nil {
		r.FilesSkipped = "only some partitions were compared"
		return nil
	}

	files, err := live.CheckFiles(ctx, o.FS.PathJoin(o.Dir, "files"), o.Pace.Rest)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.Files = files
	if err != nil {
		r.FilesSkipped = err.Error()
	}
	if r.Damaged() {
		o.Logger.Error("files of a store are damaged: rebuild it", "projection", live.Name(), "damaged", files.Damaged)
	}
	return nil
}

// compareAll compares all rows. A view is held for [Options.Hold] at most, so the rows may be
// compared at several positions, each row at one of them. If a row goes wrong after it was
// compared, the next verification finds that.
func compareAll(ctx context.Context, live Store, shadow *Shadow, o *Options, r *Report) (*Comparison, error) {
	c := &Comparison{Partitions: map[int]uint64{}}
	var key []byte // nil begins with the first row
	for {
		next, err := compareAtOnePosition(ctx, live, shadow, o, r, c, key)
		if err != nil || next == nil {
			return c, err
		}
		key = next
	}
}

// compareAtOnePosition takes a view of the live store, folds the shadow to its position, and
// compares the rows from key on. It returns the key at which the comparison must continue at a
// later position; nil means that all rows were compared.
func compareAtOnePosition(
	ctx context.Context, live Store, shadow *Shadow, o *Options, r *Report, c *Comparison, key []byte,
) (next []byte, err error) {
	if err := catchUpShadow(ctx, live, shadow, o); err != nil {
		return nil, err
	}

	v, err := live.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if v.Partitions() != *o.livePartitions {
		return nil, errResized
	}

	r.At = v.Cursor().Seq
	o.storeClosing = v.Down()
	// Fold at full speed, because the view of the live store is open meanwhile.
	if err := shadow.FoldTo(ctx, r.At, replay.Pace{}); err != nil {
		return nil, err
	}
	shadowView, err := shadow.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shadowView.Close()) }()

	o.Progress.StartPhase(replay.Comparing, "rows", max(c.Rows, uint64(shadow.builtRows)))
	o.Progress.SetDone(c.Rows)
	return c.compareFrom(ctx, v, shadowView, o, key)
}

// maxLag is how many envelopes the shadow may be behind the live store when a view is taken or the
// live fold is stopped. It then folds these at full speed.
const maxLag = 512

// catchUpShadow folds the shadow until it is at most maxLag behind the live store, which continues
// to fold. It works at the pace at first, and at twice the speed after each time that the live
// store has moved on too far, so that it arrives in the end.
func catchUpShadow(ctx context.Context, live Store, shadow *Shadow, o *Options) error {
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
		if seq <= at+maxLag {
			return nil
		}
		o.Progress.StartPhase(replay.CatchingUp, "envelopes", seq-at)
		o.Progress.SetAfterPhase(shadow.timeToCompare)
		if err := shadow.FoldTo(ctx, seq, pace); err != nil {
			return err
		}
		pace.Share = min(2*pace.Share, 1)
	}
}
