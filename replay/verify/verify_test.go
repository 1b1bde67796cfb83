package verify_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/verify"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// newProjection returns the i-th projection. Its settings have so low a threshold that feeds read
// some owners' pins from outboxes.
func newProjection(i int) projections.Projection {
	small := inbox.DefaultSettings()
	small.Threshold = 5
	return all.All(all.Settings{Inbox: small})[i]
}

// testStore is a live store of a projection on a file system of its own.
type testStore struct {
	t     testing.TB
	index int // the index of the projection, see newProjection
	fs    *vfs.MemFS
	log   *memlog.Log
	store *store.Store
	// held are the partitions of the store; nil means all.
	held *events.Partitions
}

// newTestStore returns a store of the i-th projection that has folded the envelopes.
func newTestStore(t testing.TB, i int, envs []*events.Envelope) *testStore {
	return newPartitionedTestStore(t, i, envs, nil)
}

// newPartitionedTestStore returns a store like [newTestStore], which holds only some partitions.
func newPartitionedTestStore(t testing.TB, i int, envs []*events.Envelope, held *events.Partitions) *testStore {
	f := &testStore{t: t, index: i, fs: vfs.NewMem(), log: memlog.New(envs...), held: held}
	f.open()
	conformance.Fold(t, f.store, envs)
	t.Cleanup(func() { conformance.Close(t, f.store) })
	return f
}

func (f *testStore) open() {
	var err error
	f.store, err = store.Open(store.Options{FS: f.fs, Dir: "data", Projection: newProjection(f.index), Partitions: f.held})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *testStore) options() verify.Options {
	return verify.Options{
		FS: f.fs, Dir: "data/scratch",
		New:       func() projections.Projection { return newProjection(f.index) },
		Subscribe: f.log.Subscribe,
	}
}

// damage changes the files of the store while the store is closed.
func (f *testStore) damage(change func(db *pebble.DB) error) {
	f.t.Helper()
	dir := f.store.Dir()
	conformance.Close(f.t, f.store)

	db, err := pebble.Open(dir, &pebble.Options{
		FS: f.fs, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: discardLogger{},
		Merger: store.EngineMerger(newProjection(f.index)),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := errors.Join(change(db), db.Flush(), db.Close()); err != nil {
		f.t.Fatal(err)
	}

	f.open()
}

// discardLogger is a Pebble logger that discards everything.
type discardLogger struct{}

func (discardLogger) Infof(string, ...any)              {}
func (discardLogger) Errorf(string, ...any)             {}
func (discardLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// corruption maps the key of a row to what was done to the row: "drop", "flip" or "invent".
type corruption map[string]string

// corrupt drops, changes or invents up to perTag rows of every tag.
func (f *testStore) corrupt(seed uint64, perTag int) corruption {
	f.t.Helper()

	// Choose among the rows of each tag.
	rows := conformance.RowsOf(f.t, f.store)
	byTag := map[byte]conformance.Rows{}
	for _, row := range rows {
		if store.Repairable(row.Key) {
			byTag[row.Key[2]] = append(byTag[row.Key[2]], row)
		}
	}

	random := rand.New(rand.NewPCG(seed, 3))
	done := corruption{}
	f.damage(func(db *pebble.DB) (err error) {
		for _, tag := range slices.Sorted(maps.Keys(byTag)) {
			for range perTag {
				row := byTag[tag][random.IntN(len(byTag[tag]))]
				if done[string(row.Key)] != "" {
					continue
				}

				switch random.IntN(3) {
				case 0:
					done[string(row.Key)] = "drop"
					err = errors.Join(err, db.Delete(row.Key, nil))
				case 1:
					done[string(row.Key)] = "flip"
					value := append([]byte{}, row.Value...)
					if len(value) == 0 {
						value = []byte{1}
					} else {
						value[random.IntN(len(value))] ^= 1 << random.IntN(8)
					}
					err = errors.Join(err, db.Set(row.Key, value, nil))
				default:
					key := append(bytes.Clone(row.Key), 'x')
					done[string(key)] = "invent"
					err = errors.Join(err, db.Set(key, row.Value, nil))
				}
			}
		}
		return err
	})
	return done
}

// checkEqual checks that the store is equal to the log, and that no shadow is left behind.
func (f *testStore) checkEqual() {
	f.t.Helper()
	if r, err := verify.Verify(f.t.Context(), f.store, f.options()); err != nil || !r.Equal {
		f.t.Errorf("got %v, %v, expected that the store is equal to the log", r, err)
	}
	if names, _ := f.fs.List("data/scratch"); len(names) > 0 {
		f.t.Errorf("got the files %q after the verification, expected that the shadow is removed", names)
	}
}

// forEachProjection runs a subtest for each projection.
func forEachProjection(t *testing.T, test func(t *testing.T, i int)) {
	for i, p := range all.All(all.Settings{}) {
		t.Run(p.Name(), func(t *testing.T) { test(t, i) })
	}
}

// Verify finds exactly the rows that were damaged, in their partitions, and Repair changes only
// these.
func TestDamagedRowsAreFoundAndRepaired(t *testing.T) {
	envs := memlog.NewWorld(1, 200).Envelopes(800)
	forEachProjection(t, func(t *testing.T, i int) {
		f := newTestStore(t, i, envs)
		f.checkEqual()
		want := conformance.RowsOf(t, f.store)

		done := f.corrupt(7, 6)
		countByKind := map[string]int{}
		for _, kind := range done {
			countByKind[kind]++
		}
		if len(countByKind) < 3 {
			t.Fatalf("got the damage %v, expected some rows dropped, flipped and invented", countByKind)
		}

		// Verify finds all damaged rows, in their partitions, and repairs none.
		o := f.options()
		o.Listed = 1 << 20
		r, err := verify.Verify(t.Context(), f.store, o)
		if err != nil {
			t.Fatal(err)
		}
		wantPartitions := map[int]uint64{}
		for key := range done {
			wantPartitions[projections.PartitionOf(newProjection(i), []byte(key))]++
		}
		if r.Equal || r.Differences != uint64(len(done)) || r.Repaired != 0 {
			t.Errorf("verify: got equal %v, %d differences, %d repaired, expected %d differences, none repaired\n%v",
				r.Equal, r.Differences, r.Repaired, len(done), r)
		}
		if diff := cmp.Diff(wantPartitions, r.Partitions); diff != "" {
			t.Errorf("verify: differences by partition (-want +got):\n%s", diff)
		}

		// The report tells dropped, flipped and invented rows apart.
		for _, d := range r.Listed {
			got := "flip"
			switch {
			case d.Expected == nil:
				got = "invent"
			case d.Found == nil:
				got = "drop"
			}
			if want := done[string(d.Key)]; got != want {
				t.Errorf("got a difference of the kind %q, expected %q: %v", got, want, d)
			}
		}

		// Repair changes these rows and no others.
		r, err = verify.Repair(t.Context(), f.store, f.options())
		if err != nil {
			t.Fatal(err)
		}
		if !r.Equal || r.Rounds != 1 || r.Repaired != uint64(len(done)) || r.Differences != uint64(len(done)) {
			t.Errorf("repair: got equal %v, %d rows of %d repaired in %d rounds, expected %d of %d in one round\n%v",
				r.Equal, r.Repaired, r.Differences, r.Rounds, len(done), len(done), r)
		}
		conformance.RowsOf(t, f.store).MustEqual(t, want, "after the repair")
		f.checkEqual()

		// The repair is on disk.
		conformance.Close(t, f.store)
		f.open()
		f.checkEqual()
	})
}

// A row is in the partition of the first user or item in its description, even if a month comes
// first in the key. A row of a region is in the partition of one of them.
func TestRowIsInThePartitionOfItsFirstID(t *testing.T) {
	envs := memlog.NewWorld(2, 100).Envelopes(400)
	forEachProjection(t, func(t *testing.T, i int) {
		f := newTestStore(t, i, envs)
		for _, row := range conformance.RowsOf(t, f.store) {
			description, err := all.DescribeRow(f.store.Name(), row.Key, row.Value)
			if err != nil {
				t.Fatal(err)
			}
			p := newProjection(i)
			got := projections.PartitionOf(p, row.Key)
			want := projections.StoreWide
			if description.Shard < events.NumShards {
				want = int(description.Shard.Partition())
			}

			// A row of a region may be in the partition of any user in its key.
			if r, ok := p.(projections.Regional); ok {
				if _, ok := r.RegionHome(row.Key); ok {
					isOwner := func(f projections.Field) bool {
						id, ok := f.Value.(string)
						return ok && int(events.ShardOf(id).Partition()) == got
					}
					if !slices.ContainsFunc(description.Key(), isOwner) {
						t.Fatalf("got partition %d, expected that of a user in the key of %s", got, description)
					}
					continue
				}
			}
			if got != want {
				t.Fatalf("got partition %d, expected %d: %s", got, want, description)
			}
		}
	})
}

// If only some partitions are selected, all differences in these are found and repaired, and no row
// of another partition is changed.
func TestOnlySelectedPartitionsAreRepaired(t *testing.T) {
	envs := memlog.NewWorld(2, 200).Envelopes(800)
	forEachProjection(t, func(t *testing.T, i int) {
		f := newTestStore(t, i, envs)
		done := f.corrupt(8, 12)

		// Select every third partition.
		var selected events.Partitions
		for p := 0; p < events.NumPartitions; p += 3 {
			selected.Add(uint8(p))
		}
		wantRepaired := map[int]uint64{} // damaged rows by selected partition
		damagedElsewhere := uint64(0)
		for key := range done {
			p := projections.PartitionOf(newProjection(i), []byte(key))
			if p%3 == 0 && p != projections.StoreWide {
				wantRepaired[p]++
			} else {
				damagedElsewhere++
			}
		}
		if len(wantRepaired) < 3 || damagedElsewhere < 3 {
			t.Fatalf("%d selected partitions and %d rows of others are damaged, expected at least 3 of each",
				len(wantRepaired), damagedElsewhere)
		}

		o := f.options()
		o.Partitions = &selected
		r, err := verify.Repair(t.Context(), f.store, o)
		if err != nil || !r.Equal {
			t.Fatalf("repair: got %v, %v, expected that the selected partitions are equal", r, err)
		}
		if diff := cmp.Diff(wantRepaired, r.Partitions); diff != "" {
			t.Errorf("repair: differences by partition (-want +got):\n%s", diff)
		}

		r, err = verify.Verify(t.Context(), f.store, f.options())
		if err != nil || r.Differences != damagedElsewhere {
			t.Errorf("after the repair: got %v, %v, expected the %d differences in other partitions", r, err, damagedElsewhere)
		}
	})
}

// busyStore is a store that its log overtakes: 20 events are folded before each view and before
// each repair.
//
// The positions of the comparison and of the repairs follow from the code, not from the speed of
// the machine. That matters, because errors spread with each event that is folded between the two,
// and a fold that meets an impossible row stops.
type busyStore struct {
	*testStore
	*store.Store
	ctx   context.Context
	world *memlog.World
}

// View implements verify.Store.
func (s busyStore) View() (*projections.View, error) {
	if err := s.appendAndFold(); err != nil {
		return nil, err
	}
	return s.Store.View()
}

// Repair implements verify.Store.
func (s busyStore) Repair(ctx context.Context, heal func(events.Cursor, projections.Reader, *store.Repair) error) error {
	if err := s.appendAndFold(); err != nil {
		return err
	}
	return s.Store.Repair(ctx, heal)
}

// appendAndFold appends envelopes to the log and waits until the store has folded them.
func (s busyStore) appendAndFold() error {
	more := s.world.Envelopes(20)
	s.log.Append(more...)
	return s.WaitFor(s.ctx, more[len(more)-1].Seq())
}

// A damaged store is verified and repaired while it folds and is read. No read fails, and in the
// end the store is equal, whatever errors have spread.
func TestRepairWhileServing(t *testing.T) {
	forEachProjection(t, func(t *testing.T, i int) {
		world := memlog.NewWorld(3, 150)
		f := newTestStore(t, i, world.Envelopes(800))
		dropped := f.dropLists(9)
		if len(dropped) < 10 {
			t.Fatalf("%d rows were dropped, expected at least 10", len(dropped))
		}

		// Fold and read until the repair has ended.
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			if err := f.store.Run(ctx, f.log.Subscribe); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil {
				view, err := f.store.View()
				if err != nil {
					t.Errorf("open a view during the repair: got %v, expected no error", err)
					return
				}
				it := view.Iter(nil, nil)
				for range 100 {
					it.Next()
				}
				if err := errors.Join(it.Close(), view.Close()); err != nil {
					t.Errorf("read during the repair: got %v, expected no error", err)
				}
			}
		})

		r, err := verify.Repair(ctx, busyStore{f, f.store, ctx, world}, f.options())
		if err != nil {
			t.Fatalf("repair: got %v, %v, expected no error", r, err)
		}
		if !r.Equal {
			t.Fatalf("repair: got %v, expected that the store is equal to the log", r)
		}

		// Events may make rows of lists by heat equal before the repair does, as those of an item
		// that is played.
		hasRepaired := r.Repaired > 0 || r.Differences > 0 && newProjection(i).Name() == "counters"
		if !hasRepaired {
			t.Fatalf("repair: got %d repaired rows and %d differences after %d rows were dropped, expected some repaired",
				r.Repaired, r.Differences, len(dropped))
		}
		t.Logf("%d rows dropped, %d repaired in %d rounds, at %d", len(dropped), r.Repaired, r.Rounds, r.At)

		cancel()
		wg.Wait()
		f.checkEqual()
	})
}

// The log is ahead of the view that a shadow is compared with. The shadow must stop at the position
// of the view, also if it has read envelopes beyond it.
func TestShadowStopsAtSequence(t *testing.T) {
	envs := memlog.NewWorld(3, 150).Envelopes(300)
	f := newTestStore(t, 0, envs)
	shadow, err := verify.OpenShadow(f.options())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := shadow.Close(); err != nil {
			t.Error(err)
		}
	}()

	// The first call builds the store of the shadow, the others fold into it.
	for _, i := range []int{99, 149, 249, 299} {
		want := envs[i].Seq()
		if err := shadow.FoldTo(t.Context(), want, replay.Pace{}); err != nil {
			t.Fatal(err)
		}
		if got := shadow.Seq(); got != want {
			t.Fatalf("the shadow is at %d, expected %d", got, want)
		}
	}
}

// A comparison at several positions finds the same differences, in as many rows, as one at a single
// position. While the store folds, it finds nothing that is not true.
func TestComparisonAtSeveralPositionsFindsTheSame(t *testing.T) {
	world := memlog.NewWorld(4, 150)
	envs := world.Envelopes(800)
	forEachProjection(t, func(t *testing.T, i int) {
		f := newTestStore(t, i, envs)
		f.corrupt(7, 6)

		atOnePosition, err := verify.Verify(t.Context(), f.store, f.options())
		if err != nil {
			t.Fatal(err)
		}

		// With the shortest Hold, the comparison opens new views as often as it can.
		o := f.options()
		o.Hold = 1
		atSeveral, err := verify.Verify(t.Context(), f.store, o)
		if err != nil {
			t.Fatal(err)
		}
		if atSeveral.Rows <= 256 {
			t.Fatalf("got %d compared rows, expected more than the 256 that are compared at one position", atSeveral.Rows)
		}
		hasSameText := func(a, b verify.Difference) bool { return a.String() == b.String() }
		if atSeveral.Rows != atOnePosition.Rows || atSeveral.Differences != atOnePosition.Differences ||
			!slices.EqualFunc(atSeveral.Listed, atOnePosition.Listed, hasSameText) {
			t.Fatalf("got\n%v\nexpected the differences at a single position\n%v", atSeveral, atOnePosition)
		}

		if _, err := verify.Repair(t.Context(), f.store, f.options()); err != nil {
			t.Fatal(err)
		}

		// Let the store fold something before each view, that is, whenever the comparison continues
		// at another position.
		more := memlog.NewWorld(4, 150)
		more.Envelopes(800)
		before := f.store.Cursor().Seq
		moving := movingStore{f.store, func() {
			next := more.Envelopes(1)
			f.log.Append(next...)
			conformance.Fold(t, f.store, next)
		}}

		o = f.options()
		o.Hold = 1
		r, err := verify.Verify(t.Context(), moving, o)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Equal || r.At < before+3 {
			t.Errorf("got %v at %d, expected an equal store at position %d or later", r, r.At, before+3)
		}
	})
}

// A repair that is interrupted reports what it has repaired by then. If it has repaired nothing, it
// has no report.
func TestInterruptedRepairReportsItsWork(t *testing.T) {
	envs := memlog.NewWorld(4, 150).Envelopes(500)
	forEachProjection(t, func(t *testing.T, i int) {
		f := newTestStore(t, i, envs)
		done := f.corrupt(7, 6)
		reported := uint64(0)

		// Interrupt each repair one view later, until one is not interrupted.
		for views := 0; ; views++ {
			ctx, cancel := context.WithCancel(t.Context())
			viewsLeft := views
			countView := func() {
				if viewsLeft == 0 {
					cancel()
				}
				viewsLeft--
			}
			r, err := verify.Repair(ctx, movingStore{f.store, countView}, f.options())
			cancel()

			if err == nil {
				if r.Differences > 0 {
					t.Errorf("the last repair: got %v, expected no difference", r)
				}
				if reported < uint64(len(done)) {
					t.Errorf("got %d repaired rows in the reports of interrupted repairs, expected at least %d", reported, len(done))
				}
				return
			}

			if !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted at view %d: got %v, expected %v", views, err, context.Canceled)
			}
			if views == 0 && r != nil {
				t.Fatalf("interrupted at the first view: got the report %v, expected none before a repair", r)
			}
			if r != nil {
				reported += r.Repaired
				if r.Equal || r.Repaired == 0 {
					t.Errorf("interrupted at view %d: got %v, expected a report of repaired rows", views, r)
				}
			}
		}
	})
}

// movingStore is a store that calls a function before each view, for example to fold an envelope.
type movingStore struct {
	*store.Store
	beforeView func()
}

// View implements verify.Store.
func (m movingStore) View() (*projections.View, error) {
	m.beforeView()
	return m.Store.View()
}

// dropLists drops rows of lists. A fold does not fail without them; a fold that meets an impossible
// row stops.
func (f *testStore) dropLists(seed uint64) corruption {
	f.t.Helper()
	listTags := map[int][]byte{
		0: {0x13, 0x1a, 0x15},
		1: {0x41, 0x42},
		2: {0x60, 0x61, 0x62},
		3: {0x74, 0x7a, 0x7b},
		4: {0x91},
	}[f.index]

	random := rand.New(rand.NewPCG(seed, 4))
	done := corruption{}
	rows := conformance.RowsOf(f.t, f.store)
	f.damage(func(db *pebble.DB) (err error) {
		for _, row := range rows {
			if !bytes.Contains(listTags, row.Key[2:3]) || random.IntN(10) > 0 {
				continue
			}
			done[string(row.Key)] = "drop"
			err = errors.Join(err, db.Delete(row.Key, nil))
		}
		return err
	})
	return done
}

// overtakenStore is a store that calls a function before each repair, that is, just before its fold
// is stopped.
type overtakenStore struct {
	*store.Store
	beforeRepair func()
}

// Repair implements verify.Store.
func (s overtakenStore) Repair(ctx context.Context, heal func(events.Cursor, projections.Reader, *store.Repair) error) error {
	s.beforeRepair()
	return s.Store.Repair(ctx, heal)
}

// A row that differed when the stores were compared, and is right at the position at which the fold
// is stopped, is not changed.
func TestRepairAtExactPosition(t *testing.T) {
	w := memlog.NewWorld(6, 5)
	f := newTestStore(t, 0, []*events.Envelope{
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}),
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "cid"}),
	})
	var dropped []byte
	for _, row := range conformance.RowsOf(t, f.store) {
		if text, err := all.Describe("graph", row.Key, row.Value); err == nil && strings.Contains(text, " follower B=bob") {
			dropped = row.Key
		}
	}

	// Drop the row of a follow that ends before the repair.
	f.damage(func(db *pebble.DB) error { return db.Delete(dropped, nil) })
	live := overtakenStore{f.store, func() {
		more := w.Envelope(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"})
		f.log.Append(more)
		conformance.Fold(t, f.store, []*events.Envelope{more})
	}}

	r, err := verify.Repair(t.Context(), live, f.options())
	if err != nil {
		t.Fatal(err)
	}
	if !r.Equal || r.Differences != 1 || r.Repaired != 0 || r.Rounds != 1 {
		t.Errorf("got equal %v, %d differences, %d rows repaired in %d rounds, expected one difference, none repaired, in one round\n%v",
			r.Equal, r.Differences, r.Repaired, r.Rounds, r)
	}
}

// A report describes rows in the words that people read.
func TestReportInWords(t *testing.T) {
	w := memlog.NewWorld(4, 5)
	f := newTestStore(t, 0, []*events.Envelope{
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}),
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "cid", Peer: "bob"}),
	})
	counts := conformance.Row{}
	for _, row := range conformance.RowsOf(t, f.store) {
		if text, err := all.Describe("graph", row.Key, row.Value); err == nil && strings.Contains(text, "user-counts A=bob") {
			counts = row
		}
	}

	f.damage(func(db *pebble.DB) error { return db.Set(counts.Key, []byte{0, 0, 7}, nil) })
	o := f.options()
	var progress replay.Progress
	o.Progress = &progress
	r, err := verify.Verify(t.Context(), f.store, o)
	if err != nil {
		t.Fatal(err)
	}

	text := r.String()
	for _, part := range []string{
		"graph differs from the log at 2 in 1 of ", "expected [", "user-counts A=bob followers=2]",
		"found [", "user-counts A=bob followers=7]", fmt.Sprintf("partition %d", events.ShardOf("bob").Partition()),
	} {
		if !strings.Contains(text, part) {
			t.Errorf("got the report\n%s\nexpected that it contains %q", text, part)
		}
	}
	if got := progress.Now(); got.Phase != replay.Comparing || got.Unit != "rows" || got.Done != r.Rows {
		t.Errorf("got the progress %+v, expected phase %v with %d rows done", got, replay.Comparing, r.Rows)
	}
}

// A row whose values cannot be merged ends an iterator, but does not hide other rows.
func TestUnreadableRowHidesNoOther(t *testing.T) {
	envs := memlog.NewWorld(5, 100).Envelopes(600)
	f := newTestStore(t, 2, envs)
	want := conformance.RowsOf(t, f.store)

	// Overwrite some rows with values that cannot be merged, and add such rows under keys that no
	// row should have.
	var damaged []conformance.Row
	f.damage(func(db *pebble.DB) (err error) {
		for n, row := range want {
			isMerged := row.Key[2] == 0x62 || row.Key[2] == 0x60
			if !isMerged || n%5 != 0 {
				continue
			}
			key := bytes.Clone(row.Key)
			if n%2 == 0 {
				key = append(key, 'x')
			}
			damaged = append(damaged, conformance.Row{Key: key, Value: row.Value})
			err = errors.Join(err, db.Set(key, []byte{0xff, 0xff}, nil))
		}
		return errors.Join(err, db.Flush())
	})

	// Each value can be read alone, but the two cannot be merged when the row is read.
	f.damage(func(db *pebble.DB) (err error) {
		for _, row := range damaged {
			err = errors.Join(err, db.Merge(row.Key, row.Value, nil))
		}
		return err
	})

	// A compaction merges the values, too, and a store that folds would stop for good. So the store
	// is opened for reading only.
	conformance.Close(t, f.store)
	live, err := store.Open(store.Options{FS: f.fs, Dir: "data", Projection: newProjection(2), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conformance.Close(t, live)

	o := f.options()
	o.Listed = 1 << 20
	shadow, err := verify.OpenShadow(o)
	if err != nil {
		t.Fatal(err)
	}
	defer shadow.Close()
	if err := shadow.FoldTo(t.Context(), envs[len(envs)-1].Seq(), replay.Pace{}); err != nil {
		t.Fatal(err)
	}

	liveView, err := live.View()
	if err != nil {
		t.Fatal(err)
	}
	defer liveView.Close()
	shadowView, err := shadow.View()
	if err != nil {
		t.Fatal(err)
	}
	defer shadowView.Close()

	comparison, err := verify.Compare(t.Context(), liveView, shadowView, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(damaged) < 5 || comparison.Differences != uint64(len(damaged)) {
		t.Fatalf("got %d differences, expected the %d rows that cannot be read, at least 5", comparison.Differences, len(damaged))
	}
	for _, d := range comparison.Listed {
		isAdded := bytes.HasSuffix(d.Key, []byte("x"))
		if d.Unreadable == nil || !strings.Contains(d.String(), "cannot be read") {
			t.Errorf("got the difference %v, expected that it says that the row cannot be read", d)
		}
		if (d.Expected == nil) != isAdded {
			t.Errorf("got the difference %v, expected that the row should not exist: %v", d, isAdded)
		}
	}

	if _, err := verify.Compare(t.Context(), shadowView, liveView, o); err == nil {
		t.Error("compared with a shadow that cannot be read: got no error, expected one")
	}
}
