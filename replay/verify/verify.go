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

// Store is the live store: a [store.Store], or a [live.Live] with several generations.
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
	// At is the last sequence at which the stores were compared. There are several after a repair, and when a comparison takes longer than
	// [Options.Hold]. Rows is the number of rows in the last comparison.
	At, Rows uint64
	// Differences is the number of rows that differed in the first comparison, Left in the last. Equal reports whether Left is 0.
	Differences, Left uint64
	Equal             bool
	// Partitions has the differences of the first comparison by partition, or [projections.StoreWide].
	Partitions map[int]uint64
	// Listed are the first of these differences, up to [Options.Listed].
	Listed []Difference
	// Rounds is the number of rounds of repair, Repaired the number of rows that they have changed.
	Rounds   int
	Repaired uint64
	Took     time.Duration
	// Files is the result of reading the files: the comparison may have found rows in the cache, which proves nothing about the files.
	// Unread says why they were not read.
	Files  store.FileCheck
	Unread string
}

// Damaged reports whether tables on disk are damaged. A repair does not help; a rebuild writes new tables.
func (r *Report) Damaged() bool { return len(r.Files.Damaged) > 0 }

// repaired returns the report of an interrupted run if it has repaired a row or found damage, else nil.
func (r *Report) repaired() *Report {
	if r.Repaired == 0 && !r.Damaged() {
		return nil
	}
	r.Equal = false
	return r
}

// String returns the result in one line for people, and each listed difference in another line.
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

// Verify compares a live store with a shadow of it, each row at a common position. It holds nothing: the store continues to serve and to
// fold. A difference is no error, but a result in the report.
func Verify(ctx context.Context, live Store, o Options) (*Report, error) {
	return run(ctx, live, o, false)
}

// Repair verifies a live store, and writes the rows of the log where rows differ, inside its fold. It does not touch equal rows. Readers
// never fail; writes wait while some thousand rows are read and written. The fold may have derived new wrong rows from wrong ones during
// the repair, so Repair verifies again, for up to three rounds. If it is interrupted after it has repaired rows, it returns the report
// together with the error.
func Repair(ctx context.Context, live Store, o Options) (*Report, error) {
	return run(ctx, live, o, true)
}

// maxRounds bounds the rounds of one call of Repair.
const maxRounds = 3

func run(ctx context.Context, live Store, o Options, repair bool) (r *Report, err error) {
	o.fill()
	o.compareTime = func(ctx context.Context, rows int64) time.Duration { return compareTime(ctx, live, o, rows) }
	began := time.Now()
	if err := o.hold(live); err != nil {
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
		// A round with more differences than keys fit into memory does not count: the next one continues its work.
		if r.Rounds++; n > 0 && len(c.keys) == maxKeys {
			r.Rounds = 1
		}
		o.Logger.Warn("rows were repaired", "projection", live.Name(), "rows", n, "round", r.Rounds)
	}
}

// ErrNotHeld means that a partition that was to be compared is not held by the store.
var ErrNotHeld = errors.New("the store does not hold the partition")

// errResized means that the store was replaced by one of other partitions, so that the shadow is none of it.
var errResized = errors.New("the store holds other partitions than when the verification began: start it again")

// hold notes the partitions of the live store.
func (o *Options) hold(live Store) error {
	v, err := live.View()
	if err != nil {
		return err
	}
	held := v.Partitions()
	if err := v.Close(); err != nil {
		return err
	}
	o.held = &held
	if o.Partitions == nil {
		return nil
	}
	missing := o.Partitions.Without(&held)
	return missing.Each(func(partition uint8) error { return fmt.Errorf("%w: %d", ErrNotHeld, partition) })
}

// checkFiles reads the files of the live store. It does not if only some partitions are wanted, because every table has rows of all.
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

// compareAll compares all rows. If one position would be held for too long, it continues at another, so that each row is compared at one
// of them. A row that goes wrong after it was compared is left to the next verification.
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

// compareAt takes a view of the live store, folds the shadow to its position, and compares the rows from a key onwards.
func compareAt(ctx context.Context, live Store, shadow *Shadow, o *Options, r *Report, c *Comparison, key []byte) (next []byte, err error) {
	if err := approach(ctx, live, shadow, o); err != nil {
		return nil, err
	}
	v, err := live.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if v.Partitions() != *o.held {
		return nil, errResized
	}
	r.At, o.down = v.Cursor().Seq, v.Down()
	if err := shadow.FoldTo(ctx, r.At, replay.Pace{}); err != nil {
		return nil, err
	}
	s, err := shadow.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	o.Progress.StartPhase(replay.Comparing, "rows", max(c.Rows, uint64(shadow.rows)))
	o.Progress.SetDone(c.Rows)
	return c.from(ctx, v, s, o, key)
}

// nearby is the lag, in envelopes, that the shadow may have when a view is taken or the fold is held.
const nearby = 512

// approach folds the shadow until it is near the live store, which continues to fold. It begins at the pace, and doubles its speed with
// every lap after which it is not near, so that it arrives in the end.
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
		o.Progress.StartPhase(replay.CatchingUp, "envelopes", seq-at)
		o.Progress.SetAfterPhase(shadow.compare)
		if err := shadow.FoldTo(ctx, seq, pace); err != nil {
			return err
		}
		pace.Share = min(2*pace.Share, 1)
	}
}
