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

// Store is the live store that is verified. It is a [store.Store], or the type Live of package
// projections/live, whose methods call the store of the generation that serves at the time of the
// call. With Live, two calls during one verification may therefore reach different stores.
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
	// positions: Repair compares again after each round, and a comparison continues with a new
	// view, which may be at a later position, when it takes longer than [Options.Hold] or the
	// store of its view begins to close.
	At uint64
	// Rows is the number of rows in the last complete comparison. A row that only one of the two
	// stores has counts, too.
	Rows uint64
	// Differences is the number of rows that differed in the first complete comparison. Remaining
	// is the number of rows that differed in the last complete one.
	Differences, Remaining uint64
	// Equal reports whether Remaining is 0. It is always false if an error has ended the work
	// before the last comparison was complete.
	Equal bool
	// Partitions is the number of differences of the first complete comparison in each partition.
	// Rows that belong to no partition are counted under [projections.StoreWide].
	Partitions map[int]uint64
	// Listed are the first differences of the first complete comparison, up to [Options.Listed].
	Listed []Difference
	// Rounds is the number of complete rounds of repair. If there were more differences than one
	// round can repair, the count starts again: the round that has repaired the first of them
	// counts as round 1, whatever its number was.
	Rounds int
	// Repaired is the number of rows that all rounds together have changed. A row counts once for
	// each round that has changed it.
	Repaired uint64
	// Took is the time from the start to the end of the last complete comparison.
	Took time.Duration
	// Files is the result of reading the files of the live store. The comparison reads the rows
	// through the block cache, so it may not notice that the files are damaged. Files may be
	// incomplete if FilesSkipped is not empty.
	Files store.FileCheck
	// FilesSkipped says why the files were not read, or not all of them. It is empty if all files
	// were read.
	FilesSkipped string
}

// Damaged reports whether tables of the live store are damaged or missing on disk. Repair does not
// help then, because it only writes rows. A rebuild writes new tables.
func (r *Report) Damaged() bool {
	return len(r.Files.Damaged) > 0
}

// afterError returns the report that Verify and Repair return together with an error: r, with Equal
// set to false, if a row was repaired or damaged files were found, and otherwise nil.
func (r *Report) afterError() *Report {
	if r.Repaired == 0 && !r.Damaged() {
		return nil
	}
	r.Equal = false
	return r
}

// String describes the result to people. The first line is a summary. One line for each damaged
// table and one for each listed difference follow, and then the number of the differences that are
// not listed, if there are any.
func (r *Report) String() string {
	var sb strings.Builder
	switch {
	case r.Differences == 0 && !r.Equal:
		fmt.Fprintf(&sb, "the comparison of %s with the log was not finished", r.Projection)
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

	if r.FilesSkipped != "" {
		whichFiles := "were not read"
		if r.Files.Tables > 0 {
			whichFiles = "were not all read"
		}
		fmt.Fprintf(&sb, "; its files on disk %s: %s", whichFiles, r.FilesSkipped)
	}
	switch {
	case r.Damaged():
		fmt.Fprintf(&sb, "; of %d tables on disk %d are damaged", r.Files.Tables, len(r.Files.Damaged))
		for _, d := range r.Files.Damaged {
			fmt.Fprintf(&sb, "\ndamaged: %s", d)
		}
	case r.FilesSkipped == "":
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

// Verify builds a shadow of a live store from the log, and compares the two. It compares each row
// while both stores are at the same position. It also checks the files of the live store, unless
// [Options.Partitions] is set. The live store continues to serve and to fold.
//
// Differing rows and damaged files are not an error: the report has them. If an error ends Verify
// after it has found damaged files, Verify returns the report together with the error.
func Verify(ctx context.Context, live Store, o Options) (*Report, error) {
	return verifyAndRepair(ctx, live, o, false)
}

// Repair verifies a live store as Verify does, and then repairs the rows that differ. It does not
// write rows that are equal. Queries continue to be answered, but the fold of the live store is
// stopped again and again, each time for at most about two thousand rows. Until such a stop ends,
// queries do not see the events that came during the stop.
//
// Before a wrong row is repaired, the fold may derive another wrong row from it. So Repair compares
// all rows again after each round of repair. It gives up after three rounds, and the report says
// how many rows still differ. After a round that had more differences than it can repair, the count
// of rounds starts again. If an error ends Repair after it has repaired rows or found damaged
// files, Repair returns the report together with the error.
func Repair(ctx context.Context, live Store, o Options) (*Report, error) {
	return verifyAndRepair(ctx, live, o, true)
}

// maxRounds is the value of [Report.Rounds] at which Repair gives up. If rows still differ then,
// the fold or the machine probably keeps making wrong rows, and more rounds would not help.
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
			return r.afterError(), fmt.Errorf("verify %s: %w", live.Name(), err)
		}
		if r.Rounds == 0 {
			// Rounds is 0 only at the first comparison.
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
			return r.afterError(), fmt.Errorf("repair %s, after %d rows: %w", live.Name(), r.Repaired, err)
		}

		// The comparison remembers at most maxKeys differing rows. If it has found that many, other
		// rows may differ, too, and the next round must repair them. Such a round does not show
		// that repairs are in vain, so this round counts as the first one, whatever its number is.
		// The loop ends unless the live store keeps getting maxKeys new wrong rows in each round.
		r.Rounds++
		if repaired > 0 && len(c.differingKeys) == maxKeys {
			r.Rounds = 1
		}
		o.Logger.Warn("rows were repaired", "projection", live.Name(), "rows", repaired, "round", r.Rounds)
	}
}

// ErrNotHeld means that [Options.Partitions] has a partition that the live store does not hold. The
// comparison would report all rows of this partition as missing.
var ErrNotHeld = errors.New("the store does not hold the partition")

// errResized means that during the verification, a store that holds other partitions has replaced
// the live store. The shadow was built for the earlier partitions, so it cannot be compared.
var errResized = errors.New("the store holds other partitions than when the verification began: start it again")

// setLivePartitions sets livePartitions to the partitions that the live store holds. It returns
// [ErrNotHeld] if Partitions has a partition that is not among them.
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

// checkFiles checks the files of the live store and puts the result into the report. If Partitions
// is set, it checks nothing, because [store.Store.CheckFiles] always reads all tables. If the check
// fails, the report says why, and the comparison can still be made. checkFiles returns an error
// only if ctx has ended; the report then lacks the damage that was found.
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

// compareAll compares all rows that Partitions selects. A view is held for about [Options.Hold] at
// most, so the rows may be compared at several positions, and each row at one of them. compareAll
// does not notice if a row goes wrong after it was compared; the next comparison does.
func compareAll(ctx context.Context, live Store, shadow *Shadow, o *Options, r *Report) (*Comparison, error) {
	c := &Comparison{Partitions: map[int]uint64{}}
	var key []byte // nil means the first row
	for {
		next, err := compareAtOnePosition(ctx, live, shadow, o, r, c, key)
		if err != nil || next == nil {
			return c, err
		}
		key = next
	}
}

// compareAtOnePosition takes a view of the live store, folds the shadow to the position of the
// view, and compares the rows from key on. It adds the result to c. If it had to stop early, it
// returns the key from which the comparison must continue with a new view; nil means that all rows
// were compared.
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
	// Fold at full speed, because the view is open meanwhile, and keeps files and memory of the
	// live store in use.
	if err := shadow.FoldTo(ctx, r.At, replay.Pace{}); err != nil {
		return nil, err
	}
	shadowView, err := shadow.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shadowView.Close()) }()

	// The shadow may have more rows by now than when it was built, so the total is an estimate.
	o.Progress.StartPhase(replay.Comparing, "rows", max(c.Rows, uint64(shadow.builtRows)))
	o.Progress.SetDone(c.Rows)
	return c.compareFrom(ctx, v, shadowView, o, key)
}

// maxLag is how many sequences the shadow may be behind the live store just before a view is taken
// or the live fold is stopped. The shadow then folds these at full speed, which must not take long.
const maxLag = 512

// catchUpShadow folds the shadow until it is at most maxLag behind the live store. The first fold
// builds the shadow. The live store continues to fold meanwhile, so it may be too far ahead again
// when the shadow arrives. Each time that happens, catchUpShadow doubles the share of the pace, up
// to full speed, because at the pace of o the shadow might never catch up.
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
