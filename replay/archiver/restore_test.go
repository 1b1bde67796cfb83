package archiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// archiveUpTo archives the log up to a sequence, and no further.
func (w *testLog) archiveUpTo(seq uint64) {
	w.t.Helper()
	sub, err := w.hub.Subscribe(w.log.Start())
	if end := w.archive.End(); end.Seq > 0 {
		sub, err = w.hub.Subscribe(end)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()

	writer := w.archive.Writer()
	for writer.End().Seq < seq {
		envs, err := sub.Next(w.t.Context(), 1)
		for _, env := range envs {
			if env.Seq() <= seq {
				err = errors.Join(err, writer.Add(env))
			}
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}

	if _, err := writer.Seal(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// cursors returns the cursors after each envelope up to a sequence, which are those that a store
// has.
func (w *testLog) cursors(to uint64) []events.Cursor {
	w.t.Helper()
	sub, err := w.hub.Subscribe(w.log.Start())
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()
	list := []events.Cursor{w.log.Start()}

	for uint64(len(list)) <= to {
		envs, err := sub.Next(w.t.Context(), 1)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, env := range envs {
			list = append(list, env.Cursor)
		}
	}
	return list
}

// publishFollow publishes one follow with an event id, and returns its position.
func (w *testLog) publishFollow(follower, id string) events.Position {
	w.t.Helper()
	p, err := w.log.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Close(context.Background())
	res, err := p.Publish(context.Background(), []*skeinv1.Event{
		{EventId: id, Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: follower, TargetUserId: "ann"}}},
	}, eventlog.PublishOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return res.Position
}

// logDir returns the directory of the stream.
func (w *testLog) logDir() string { return filepath.Join(w.dir, "log") }

// restoreOptions returns options that restore the log, with the positions of stores.
func (w *testLog) restoreOptions(stores map[string]events.Cursor) RestoreOptions {
	w.t.Helper()
	b, err := bucket.NewDir(filepath.Join(w.dir, "bucket"))
	if err != nil {
		w.t.Fatal(err)
	}
	return RestoreOptions{Bucket: b, Stream: eventlog.Config{Dir: w.logDir()}, Stores: stores}
}

// deleteLog deletes the stream. The log must be closed.
func (w *testLog) deleteLog() {
	w.t.Helper()
	if err := os.RemoveAll(w.logDir()); err != nil {
		w.t.Fatal(err)
	}
}

// moveLogAway moves the stream to another place, and returns its configuration. The log must be
// closed.
func (w *testLog) moveLogAway() *eventlog.Config {
	w.t.Helper()
	dir := w.logDir() + "-damaged"
	if err := os.Rename(w.logDir(), dir); err != nil {
		w.t.Fatal(err)
	}
	return &eventlog.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}
}

// mustRestore restores a log.
func mustRestore(t *testing.T, o RestoreOptions) Restored {
	t.Helper()
	r, err := Restore(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRestoreRefusesDamagedArchive damages each segment of an archive in the middle, at the end, or
// completely. A restore names the segment, and changes neither the archive nor the log.
func TestRestoreRefusesDamagedArchive(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := openLog(t, t.TempDir(), nil)
		w.publish(5, time.Minute)
		w.archiveUpTo(3)
		w.archiveUpTo(5)
		end := w.archive.End()
		w.stop()
		w.deleteLog()

		segments, err := filepath.Glob(filepath.Join(w.dir, "bucket", "archive", "[fa]*"))
		if err != nil || len(segments) != 4 {
			t.Fatalf("got the segment files %v and error %v, expected 4 files", segments, err)
		}

		o := w.restoreOptions(nil)
		askedForSpace := false
		o.FreeSpace = func() error {
			askedForSpace = true
			return nil
		}

		for _, segment := range segments {
			whole, err := os.ReadFile(segment)
			if err != nil {
				t.Fatal(err)
			}
			flipped := slices.Clone(whole)
			flipped[len(whole)/2] ^= 1

			for name, damage := range map[string]func() error{
				"a flipped bit": func() error { return os.WriteFile(segment, flipped, 0o600) },
				"cut":           func() error { return os.WriteFile(segment, whole[:len(whole)-1], 0o600) },
				"missing":       func() error { return os.Remove(segment) },
			} {
				if err := damage(); err != nil {
					t.Fatal(err)
				}

				_, err := Restore(t.Context(), o)
				if !errors.Is(err, archive.ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(segment)) {
					t.Errorf("%s, %s: got error %v, expected %q that names the segment",
						filepath.Base(segment), name, err, archive.ErrDamaged)
				}
				if askedForSpace {
					t.Errorf("%s, %s: the restore called FreeSpace, expected that it stops before", filepath.Base(segment), name)
				}
				if _, err := os.Stat(w.logDir()); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s, %s: got %v for the directory of the log, expected that there is none", filepath.Base(segment), name, err)
				}
			}

			if err := os.WriteFile(segment, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		r := mustRestore(t, o)
		if r.Archived != end || r.Epoch != 3 {
			t.Errorf("from the undamaged archive: got %+v, expected epoch 3 after %+v", r, end)
		}
		if !askedForSpace {
			t.Error("from the undamaged archive: FreeSpace was not called, expected a call")
		}
	})
}

// A lost log is restored from its archive and continues. It can be lost and restored again.
func TestLostLogIsRestoredFromArchive(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := openLog(t, t.TempDir(), nil)
		w.publish(12, time.Minute)
		w.publishFollow("x", "once")
		w.publishFollow("y", "twice")
		w.archiveUpTo(13)
		originalEvents := w.readEvents(14)
		cursors := w.cursors(14)
		w.stop()
		w.deleteLog()

		r := mustRestore(t, w.restoreOptions(map[string]events.Cursor{
			"at": cursors[13], "below": cursors[5], "beyond": cursors[14], "new": {},
		}))
		if r.Epoch != 3 || r.Head.Seq != 13 || r.Archived.Seq != 13 || r.Salvaged != nil || len(r.Stores) != 4 {
			t.Fatalf("got %+v, expected epoch 3 with 4 stores, and the log restored from the archive alone up to sequence 13", r)
		}

		// Only the store that has folded the lost envelope 14 must be rebuilt.
		for _, outcome := range r.Stores {
			isBeyond := outcome.Name == "beyond"
			isRefused := errors.Is(outcome.RebuildReason, events.ErrOtherEpoch)
			holdsLost := slices.Equal(outcome.LostSequences, []eventlog.SeqRange{{From: 14, To: 14}})
			if isBeyond != isRefused || isBeyond != (outcome.RebuildReason != nil) {
				t.Errorf("store %s: got the rebuild reason %v, expected that only the store beyond the archive has one, %v",
					outcome.Name, outcome.RebuildReason, events.ErrOtherEpoch)
			}
			if isBeyond != holdsLost {
				t.Errorf("store %s: got the lost sequences %v, expected that only the store beyond the archive has lost 14",
					outcome.Name, outcome.LostSequences)
			}
		}

		// The log has what was archived, and accepts the cursors and positions of before.
		w = openLog(t, w.dir, nil)
		if diff := cmp.Diff(originalEvents[:13], w.readEvents(13)); diff != "" {
			t.Errorf("the restored log differs from the lost log (-lost +restored):\n%s", diff)
		}
		for _, c := range cursors[1:14] {
			if err := w.log.CheckCursor(t.Context(), c); err != nil {
				t.Errorf("cursor at sequence %d: got %v, expected that it is accepted", c.Seq, err)
			}
			if err := w.log.CheckPosition(t.Context(), c.Position()); err != nil {
				t.Errorf("position at sequence %d: got %v, expected that it is accepted", c.Seq, err)
			}
		}
		err := w.log.CheckCursor(t.Context(), cursors[14])
		if !errors.Is(err, events.ErrOtherEpoch) || !strings.Contains(err.Error(), "rebuild") {
			t.Errorf("cursor of a lost sequence: got %v, expected %v with the advice to rebuild", err, events.ErrOtherEpoch)
		}
		if err := w.log.CheckPosition(t.Context(), cursors[14].Position()); !errors.Is(err, events.ErrOtherEpoch) {
			t.Errorf("position of a lost sequence: got %v, expected %v", err, events.ErrOtherEpoch)
		}

		// Event ids that were archived are known for the horizon. Those that were lost count as
		// never published.
		letTimePass(10 * time.Minute)
		if p := w.publishFollow("x", "once"); p.Epoch != 3 || p.Seq != 14 {
			t.Errorf("got %+v, expected sequence 14 in epoch 3", p)
		}
		w.publishFollow("y", "twice")
		letTimePass(16 * time.Minute)
		w.publishFollow("x", "once")
		got := w.readEvents(16)[13:]
		for i, want := range []int{0, 1, 1} {
			if len(got[i].Events) != want {
				t.Errorf("sequence %d: got %+v, expected %d events", 14+i, got[i].Events, want)
			}
		}
		checkTimesRise(t, w.readEvents(16))

		// Lose the log again.
		w.archiveUpTo(15)
		cursorsOfEpoch3 := w.cursors(16)
		eventsOfEpoch3 := w.readEvents(16)
		w.stop()
		w.deleteLog()

		// Both losses count: a store must not be beyond the archive of either epoch.
		r = mustRestore(t, w.restoreOptions(map[string]events.Cursor{
			"archived in epoch 1": cursors[13],
			"lost in epoch 1":     cursors[14],
			"archived in epoch 3": cursorsOfEpoch3[15],
			"lost in epoch 3":     cursorsOfEpoch3[16],
		}))
		for _, outcome := range r.Stores {
			wantContinue := strings.HasPrefix(outcome.Name, "archived")
			if (outcome.RebuildReason == nil) != wantContinue {
				t.Errorf("the second time, store %q: got %+v, expected that it continues: %v", outcome.Name, outcome, wantContinue)
			}
		}

		w = openLog(t, w.dir, nil)
		defer func() { w.stop() }()
		predecessors := []eventlog.Predecessor{{Epoch: 1, Last: 13}, {Epoch: 3, Last: 15}}
		if w.log.Epoch() != 5 || !reflect.DeepEqual(w.log.Predecessors(), predecessors) {
			t.Errorf("got epoch %d after %+v, expected 5 after %+v", w.log.Epoch(), w.log.Predecessors(), predecessors)
		}
		if diff := cmp.Diff(eventsOfEpoch3[:15], w.readEvents(15)); diff != "" {
			t.Errorf("the second time, the restored log differs from the lost log (-lost +restored):\n%s", diff)
		}
		if p := w.publishFollow("y", "twice"); p.Epoch != 5 || p.Seq != 16 {
			t.Errorf("the second time: got %+v, expected sequence 16 in epoch 5", p)
		}
		checkTimesRise(t, w.readEvents(16))
		_, stop := w.startArchiver(Options{})
		w.waitUntilArchived(16, stop)
	})
}

// waitUntilArchived runs an archiver until the log is archived up to a sequence.
func (w *testLog) waitUntilArchived(seq uint64, stop func() error) {
	w.t.Helper()
	letTimePass(2 * time.Hour)
	if got := w.archive.End().Seq; got != seq {
		w.t.Errorf("got the end of the archive at %d, expected %d", got, seq)
	}
	if err := stop(); err != nil {
		w.t.Error(err)
	}
}

// checkTimesRise checks that no live event has a time before that of an earlier one.
func checkTimesRise(t *testing.T, envs []events.Envelope) {
	t.Helper()
	last := events.Micros(0)
	for _, env := range envs {
		for _, ev := range env.Events {
			if ev.Time <= last {
				t.Errorf("sequence %d: got time %d, expected one after %d", env.Seq(), ev.Time, last)
			}
			last = ev.Time
		}
	}
}

// What a stream has after the end of the archive is archived, as its readers knew it, with its
// event ids.
func TestRestoreSalvagesTheStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, archived := range []uint64{1, 5, 13, 14} {
			w := openLog(t, t.TempDir(), nil)
			w.publish(12, time.Minute)
			w.publishFollow("x", "once")
			w.publishFollow("x", "once")
			w.archiveUpTo(archived)
			originalEvents := w.readEvents(14)
			head := w.cursors(14)[14]
			repeats, err := w.log.RepeatsAt(t.Context(), head)
			if err != nil {
				t.Fatal(err)
			}
			w.stop()

			o := w.restoreOptions(map[string]events.Cursor{"graph": head})
			o.Damaged = w.moveLogAway()
			r := mustRestore(t, o)
			if s := r.Salvaged; s == nil || s.Envelopes != 14-archived || len(s.Lost) > 0 || r.Head.Seq != 14 {
				t.Errorf("archived up to %d: got %+v, expected that the other %d envelopes are salvaged", archived, r, 14-archived)
			}
			if s := r.Stores[0]; s.RebuildReason != nil || len(s.LostSequences) > 0 {
				t.Errorf("archived up to %d: got the store %+v, expected that it continues and has lost nothing", archived, s)
			}

			w = openLog(t, w.dir, nil)
			if diff := cmp.Diff(originalEvents, w.readEvents(14)); diff != "" {
				t.Errorf("archived up to %d: the restored log differs from the original (-original +restored):\n%s", archived, diff)
			}
			if kept, err := w.archive.Repeats(t.Context(), w.log.Epoch()); err != nil || !slices.Equal(kept, repeats) {
				t.Errorf("archived up to %d: got the event ids\n%v, %v\nexpected\n%v", archived, kept, err, repeats)
			}

			// The archive must know the event id.
			w.publishFollow("x", "once")
			if got := w.readEvents(15)[14]; len(got.Events) > 0 {
				t.Errorf("archived up to %d: got %+v for an event id that was published before, expected no event", archived, got)
			}
			w.stop()
		}
	})
}

// Of a damaged stream, everything that can be read is archived, and the report names what cannot.
func TestRestoreReportsWhatADamagedStreamLost(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"flipped": func(data []byte) []byte {
			for i := range 2 {
				data[len(data)/2+i] ^= 0x55
			}
			return data
		},
		"truncated": func(data []byte) []byte { return data[:2*len(data)/3] },
		"empty":     func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := openLog(t, t.TempDir(), nil)
			w.publish(40, 0)
			w.archiveUpTo(10)
			originalEvents := w.readEvents(40)
			cursors := w.cursors(40)
			w.stop()

			// Damage the only file of the stream, which has all 40 envelopes.
			o := w.restoreOptions(map[string]events.Cursor{"graph": cursors[40], "seen": cursors[10]})
			o.Damaged = w.moveLogAway()
			blocks, err := filepath.Glob(filepath.Join(o.Damaged.Dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
			if err != nil || len(blocks) != 1 {
				t.Fatalf("got the files %v of the stream and error %v, expected one file", blocks, err)
			}
			data, err := os.ReadFile(blocks[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(blocks[0], damage(data), 0o600); err != nil {
				t.Fatal(err)
			}

			check, err := CheckStream(t.Context(), o.Bucket, *o.Damaged)
			if err != nil || check.Problem == nil {
				t.Errorf("CheckStream of the damaged stream: got %+v, %v, expected a problem and no error", check, err)
			}
			r := mustRestore(t, o)
			t.Logf("%v\n%v", check.Problem, r)

			// The report says which sequences are lost. Only the store "graph" has folded them.
			lost := map[uint64]bool{}
			for _, outcome := range r.Stores {
				if outcome.Name != "graph" {
					if outcome.RebuildReason != nil || len(outcome.LostSequences) > 0 {
						t.Errorf("store %s: got %+v, expected that it continues and has lost nothing", outcome.Name, outcome)
					}
					continue
				}
				for _, lostRange := range outcome.LostSequences {
					for seq := lostRange.From; seq <= lostRange.To; seq++ {
						lost[seq] = true
					}
				}
			}

			// All others are in the log.
			w = openLog(t, w.dir, nil)
			defer func() { w.stop() }()
			restored := w.readEvents(r.Head.Seq)
			for _, env := range restored {
				if diff := cmp.Diff(originalEvents[env.Seq()-1], env); diff != "" {
					t.Errorf("sequence %d: the restored envelope differs from the original (-original +restored):\n%s", env.Seq(), diff)
				}
			}
			if len(lost) == 0 || len(restored)+len(lost) != 40 {
				t.Errorf("got %d restored and %d lost envelopes, expected 40 together, with at least one lost: %v",
					len(restored), len(lost), lost)
			}

			// The first 10 envelopes are archived. Two flipped bytes in the middle lose only what is
			// near them.
			wantAtLeast := 10
			if name == "flipped" {
				wantAtLeast = 15
			}
			if len(restored) < wantAtLeast {
				t.Errorf("got %d restored envelopes, expected at least %d", len(restored), wantAtLeast)
			}

			// The log accepts the cursors of what it has, and refuses those beyond its end.
			for _, env := range restored {
				if lost[env.Seq()] {
					t.Errorf("sequence %d: the report says that it is lost, but it is in the log", env.Seq())
				}
				err := w.log.CheckCursor(t.Context(), cursors[env.Seq()])
				if err != nil {
					t.Errorf("cursor at sequence %d: got %v, expected that it is accepted", env.Seq(), err)
				}
			}
			for seq := range lost {
				if err := w.log.CheckCursor(t.Context(), cursors[seq]); err == nil && seq > r.Head.Seq {
					t.Errorf("cursor at the lost sequence %d: got no error, expected one", seq)
				}
			}

			survivors := slices.DeleteFunc(slices.Clone(originalEvents), func(env events.Envelope) bool {
				return env.Seq() > r.Head.Seq || lost[env.Seq()]
			})
			checkSameRows(t, foldRows(t, restored), foldRows(t, survivors))

			if p := w.publishFollow("z", "z"); p.Seq != r.Head.Seq+1 {
				t.Errorf("got %+v, expected sequence %d", p, r.Head.Seq+1)
			}
		})
	}
}

// foldRows folds the events into all stores, and returns their rows as text, without those of the
// position.
func foldRows(t *testing.T, envs []events.Envelope) (rows map[string]string) {
	t.Helper()
	list := make([]*events.Envelope, len(envs))
	for i := range envs {
		list[i] = &envs[i]
	}

	rows = map[string]string{}
	for _, p := range all.All(all.Settings{}) {
		s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "stores", Projection: p})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Fold(list); err != nil {
			t.Fatal(err)
		}

		view, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		it := view.Iter(nil, nil)
		for it.Next() {
			if !store.IsCheckpoint(it.Key()) {
				rows[p.Name()+string(it.Key())] = string(it.Value())
			}
		}

		if err := errors.Join(it.Close(), view.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

// checkSameRows checks that a fold of the restored log has the rows of a fold of the events that
// survived.
func checkSameRows(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(want) < 50 {
		t.Errorf("the surviving events have %d rows, expected at least 50", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows of the restored log differ from those of the surviving events (-want +got):\n%s", diff)
	}
}

// breakingBucket is a bucket that fails for good after some operations.
type breakingBucket struct {
	bucket.Bucket
	// operationsLeft is the number of operations that still succeed. It is negative once an
	// operation has failed.
	operationsLeft int
	// lastPutArrives means that the first operation that fails is still performed if it is a Put.
	lastPutArrives bool
}

// countOperation counts an operation and returns whether it fails.
func (b *breakingBucket) countOperation() (fails bool) {
	b.operationsLeft--
	return b.operationsLeft < 0
}

func (b *breakingBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	fails := b.countOperation()
	isFirstFailure := b.operationsLeft == -1
	arrives := !fails || b.lastPutArrives && isFirstFailure
	if !arrives {
		return errNoBucket
	}

	err := b.Bucket.Put(ctx, name, r, size)
	if err == nil && fails {
		err = errNoBucket
	}
	return err
}

func (b *breakingBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if b.countOperation() {
		return nil, errNoBucket
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

func (b *breakingBucket) Delete(ctx context.Context, name string) error {
	if b.countOperation() {
		return errNoBucket
	}
	return b.Bucket.Delete(ctx, name)
}

func (b *breakingBucket) List(ctx context.Context, prefix string) ([]bucket.Object, error) {
	if b.countOperation() {
		return nil, errNoBucket
	}
	return b.Bucket.List(ctx, prefix)
}

// A restore is interrupted at each operation on the bucket, and then repeated. Nothing is missing
// then, and no two streams have the same epoch.
func TestInterruptedRestoreCanBeRepeated(t *testing.T) {
	w := openLog(t, t.TempDir(), nil)
	w.publish(6, 0)
	w.archiveUpTo(4)
	originalEvents := w.readEvents(6)
	repeats, err := w.log.RepeatsAt(t.Context(), w.cursors(6)[6])
	if err != nil {
		t.Fatal(err)
	}
	w.stop()

	for _, lastPutArrives := range []bool{false, true} {
		// Let one more operation succeed each time, until a restore is not interrupted.
		for operations := 0; ; operations++ {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
				t.Fatal(err)
			}
			copied := &testLog{t: t, dir: dir}
			o := copied.restoreOptions(nil)
			intact := o.Bucket
			o.Bucket = &breakingBucket{Bucket: intact, operationsLeft: operations, lastPutArrives: lastPutArrives}
			o.Damaged = copied.moveLogAway()

			_, restoreErr := Restore(t.Context(), o)
			if restoreErr != nil && !errors.Is(restoreErr, errNoBucket) {
				t.Fatalf("interrupted after %d operations: got %v, expected %v", operations, restoreErr, errNoBucket)
			}
			if restoreErr != nil {
				o.Bucket = intact
				repeatRestore(t, o, operations)
			}

			// The log has everything, whether the restore was interrupted or not.
			restored := openLog(t, dir, nil)
			if diff := cmp.Diff(originalEvents, restored.readEvents(6)); diff != "" {
				t.Errorf("interrupted after %d operations: the log differs from the original (-original +restored):\n%s", operations, diff)
			}
			if kept, err := restored.archive.Repeats(t.Context(), restored.log.Epoch()); err != nil || !slices.Equal(kept, repeats) {
				t.Errorf("interrupted after %d operations: got the event ids\n%v, %v\nexpected\n%v", operations, kept, err, repeats)
			}
			if err := restored.archive.Check(t.Context(), nil); err != nil {
				t.Errorf("interrupted after %d operations: got %v from the check of the archive, expected no error", operations, err)
			}
			restored.stop()

			if restoreErr == nil {
				if operations < 10 {
					t.Errorf("a restore took %d operations on the bucket, expected at least 10", operations)
				}
				break
			}
		}
	}
}

// TestRestoreContinuesEpochOfErasure restores a log after an erasure that has begun a new epoch in
// the stream and crashed before the archive began it. The archive is the right one, with or without
// damaged files of event ids.
func TestRestoreContinuesEpochOfErasure(t *testing.T) {
	for _, damageIDs := range []bool{false, true} {
		w := openLog(t, t.TempDir(), nil)
		w.publish(4, 0)
		w.archiveUpTo(4)
		_, err := w.log.NextEpoch(t.Context(), 4, nil, func(context.Context, uint64) (events.Cursor, error) {
			return w.archive.End(), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		w.publish(2, 0)
		originalEvents := w.readEvents(6)
		head := w.cursors(6)[6]
		w.stop()

		o := w.restoreOptions(map[string]events.Cursor{"graph": head})
		check, err := CheckStream(t.Context(), o.Bucket, o.Stream)
		if err != nil || check.Problem != nil || check.Epoch != 2 || check.Last != 6 {
			t.Errorf("check of the stream: got %+v, %v, expected no problem in epoch 2 up to sequence 6", check, err)
		}
		if damageIDs {
			files, err := filepath.Glob(filepath.Join(w.dir, "bucket", "archive", "recent-*"))
			if err != nil || len(files) != 1 {
				t.Fatalf("files of event ids: got %v, %v, expected one", files, err)
			}
			if err := os.WriteFile(files[0], []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		o.Damaged = w.moveLogAway()
		r := mustRestore(t, o)
		if s := r.Salvaged; s == nil || s.Envelopes != 2 || len(s.Lost) > 0 || r.Epoch != 4 || r.Head.Seq != 6 {
			t.Errorf("restore: got %+v, expected 2 salvaged envelopes, and epoch 4 after sequence 6", r)
		}
		if s := r.Stores[0]; s.RebuildReason != nil || len(s.LostSequences) > 0 {
			t.Errorf("restore: got the store %+v, expected that it continues and has lost nothing", s)
		}
		if (r.Repeats != nil) != damageIDs {
			t.Errorf("restore: got the recovered event ids %v, expected some: %v", r.Repeats, damageIDs)
		}

		restored := openLog(t, w.dir, nil)
		if epochs := restored.archive.Predecessors(); !slices.Equal(epochs, []eventlog.Predecessor{{Epoch: 1, Last: 4}, {Epoch: 2, Last: 6}}) {
			t.Errorf("epochs of the archive: got %v, expected 1 up to 4 and 2 up to 6", epochs)
		}
		if diff := cmp.Diff(originalEvents, restored.readEvents(6)); diff != "" && !damageIDs {
			t.Errorf("the restored log differs from the original (-original +restored):\n%s", diff)
		}
		restored.stop()
	}
}

// TestRestoreReusesNoEpochOfLostErasure restores a log whose stream is lost after an erasure has
// begun a new epoch in it, and before the archive began that. The lost stream had envelopes in that
// epoch, so the restored log must be in another one: it has other envelopes with their sequences.
func TestRestoreReusesNoEpochOfLostErasure(t *testing.T) {
	w := openLog(t, t.TempDir(), nil)
	w.publish(4, 0)
	w.archiveUpTo(4)
	_, err := w.log.NextEpoch(t.Context(), 4, nil, func(context.Context, uint64) (events.Cursor, error) {
		return w.archive.End(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.publish(2, 0)
	lost := w.cursors(6)[6]
	w.stop()
	w.deleteLog()

	r := mustRestore(t, w.restoreOptions(map[string]events.Cursor{"graph": lost}))
	if r.Epoch == lost.Epoch || r.Head.Seq != 4 {
		t.Errorf("restore: got epoch %d after sequence %d, expected another epoch than %d after sequence 4", r.Epoch, r.Head.Seq, lost.Epoch)
	}
	if got := r.Stores[0].RebuildReason; !errors.Is(got, events.ErrOtherEpoch) {
		t.Errorf("restore: got the rebuild reason %v for a store of the lost epoch, expected %v", got, events.ErrOtherEpoch)
	}

	restored := openLog(t, w.dir, nil)
	defer restored.stop()
	restored.publish(2, 0)
	if err := restored.log.CheckPosition(t.Context(), lost.Position()); !errors.Is(err, events.ErrOtherEpoch) {
		t.Errorf("position of the lost epoch: got %v, expected %v", err, events.ErrOtherEpoch)
	}
}

// repeatRestore restores a log again, after a restore that was interrupted after some operations.
// It checks that the log continues in an epoch of its own, and that the stream is salvaged unless
// the first restore had begun an epoch already.
func repeatRestore(t *testing.T, o RestoreOptions, operations int) {
	t.Helper()
	a, err := openArchive(t.Context(), o.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	epoch := a.Epoch()
	wantSuperseded := epoch > 1

	r := mustRestore(t, o)
	if r.Epoch != epoch+2 {
		t.Errorf("interrupted after %d operations: got epoch %d, expected %d", operations, r.Epoch, epoch+2)
	}
	if wantSalvaged := !wantSuperseded; (r.Salvaged != nil) != wantSalvaged {
		t.Errorf("interrupted after %d operations in epoch %d: got the salvaged envelopes %+v, expected some: %v",
			operations, epoch, r.Salvaged, wantSalvaged)
	}
	if errors.Is(r.Unreadable, ErrSuperseded) != wantSuperseded {
		t.Errorf("interrupted after %d operations in epoch %d: got %v for the stream, expected %v: %v",
			operations, epoch, r.Unreadable, ErrSuperseded, wantSuperseded)
	}
}

// A restore that is refused, because there is a stream, the stream is of another log, or there is
// no archive, changes nothing.
func TestRefusedRestoreChangesNothing(t *testing.T) {
	w := openLog(t, t.TempDir(), nil)
	w.publish(3, 0)
	o := w.restoreOptions(nil)
	stream := eventlog.Config{Dir: w.logDir()}
	if _, err := Restore(t.Context(), o); !errors.Is(err, ErrNoArchive) {
		t.Errorf("restore while nothing is archived: got %v, expected %v", err, ErrNoArchive)
	}

	w.archiveUpTo(3)
	if _, err := CheckStream(t.Context(), o.Bucket, stream); !errors.Is(err, events.ErrLocked) {
		t.Errorf("check of a stream that is open: got %v, expected %v", err, events.ErrLocked)
	}

	w.stop()
	if _, err := Restore(t.Context(), w.restoreOptions(nil)); !errors.Is(err, events.ErrLogExists) {
		t.Errorf("restore over a stream: got %v, expected %v", err, events.ErrLogExists)
	}
	check, err := CheckStream(t.Context(), o.Bucket, stream)
	if err != nil || check.Problem != nil || check.Last != 3 {
		t.Errorf("check of an undamaged stream: got %+v, %v, expected no problem up to sequence 3", check, err)
	}

	// The stream of another log, and a missing one, are not salvaged.
	other := openLog(t, t.TempDir(), nil)
	other.publish(4, 0)
	other.stop()
	damaged := w.moveLogAway()
	o.Damaged = &eventlog.Config{Dir: other.logDir()}
	if _, err := Restore(t.Context(), o); !errors.Is(err, events.ErrOtherLog) {
		t.Errorf("restore from the stream of another log: got %v, expected %v", err, events.ErrOtherLog)
	}
	check, err = CheckStream(t.Context(), o.Bucket, *o.Damaged)
	if err != nil || !errors.Is(check.Problem, events.ErrOtherLog) {
		t.Errorf("check of the stream of another log: got %+v, %v, expected the problem %v", check, err, events.ErrOtherLog)
	}
	check, err = CheckStream(t.Context(), o.Bucket, eventlog.Config{Dir: filepath.Join(t.TempDir(), "none")})
	if err != nil || !errors.Is(check.Problem, events.ErrNoLog) {
		t.Errorf("check of a missing stream: got %+v, %v, expected the problem %v", check, err, events.ErrNoLog)
	}

	a, err := openArchive(t.Context(), o.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if a.Epoch() != 1 {
		t.Errorf("after refused restores, the archive is in epoch %d, expected 1", a.Epoch())
	}

	// An archive that is an old copy does not follow the stream.
	oldCopy := t.TempDir()
	if err := os.CopyFS(oldCopy, os.DirFS(filepath.Join(w.dir, "bucket"))); err != nil {
		t.Fatal(err)
	}
	o.Damaged = damaged
	if r := mustRestore(t, o); r.Epoch != 3 {
		t.Errorf("restore from the right stream: got %+v, expected epoch 3", r)
	}
	o.Bucket, err = bucket.NewDir(oldCopy)
	if err != nil {
		t.Fatal(err)
	}
	o.Damaged = &eventlog.Config{Dir: w.logDir()}
	o.Stream.Dir = filepath.Join(t.TempDir(), "log")
	if _, err := Restore(t.Context(), o); !errors.Is(err, ErrArchiveBehind) {
		t.Errorf("restore from an old copy of the archive: got %v, expected %v", err, ErrArchiveBehind)
	}
}

// TestRestoreReportInWords compares reports with what people are meant to read.
func TestRestoreReportInWords(t *testing.T) {
	cursorAt := func(seq uint64) events.Cursor {
		return events.Cursor{Log: events.LogID{7}, Epoch: 1, Seq: seq, LastTime: events.Micros(1.7e15) + events.Micros(seq)*1e6}
	}
	r := Restored{
		Log: events.LogID{7}, Epoch: 2, Archived: cursorAt(10), Head: cursorAt(40),
		Salvaged: &eventlog.SalvageReport{
			Envelopes: 26, Events: 1, Lost: []eventlog.SeqRange{{From: 12, To: 12}, {From: 20, To: 22}},
		},
		Stores: []StoreOutcome{
			{Name: "counters", Cursor: cursorAt(9)},
			{Name: "graph", Cursor: cursorAt(40), LostSequences: []eventlog.SeqRange{{From: 12, To: 12}}},
			{Name: "seen", Cursor: cursorAt(41), RebuildReason: events.ErrOtherEpoch, LostSequences: []eventlog.SeqRange{{From: 41, To: 41}}},
		},
	}
	const want = `The log 07000000000000000000000000000000 continues in epoch 2 after sequence 40 (2023-11-14T22:14:00Z).
The archive had it up to sequence 10 (2023-11-14T22:13:30Z).
The damaged stream gave 26 envelopes with 1 event.
Lost: 4 envelopes at sequences 12, 20-22.
counters is at sequence 9 and continues.
graph is at sequence 40 and continues; it still has what the log lost at sequence 12, until it is repaired or built again.
seen is at sequence 41 and must be built again: events: another epoch of the log; it still has what the log lost at sequence 41.
`
	if diff := cmp.Diff(want, fmt.Sprint(r)); diff != "" {
		t.Errorf("the report differs (-want +got):\n%s", diff)
	}

	// Nothing could be read of the stream.
	r.Salvaged = nil
	r.Stores = nil
	r.Unreadable = archive.ErrDamaged
	const wantUnreadable = "Nothing was taken from the damaged stream: events: the archive of the log is damaged.\n"
	if got := r.String(); !strings.Contains(got, wantUnreadable) {
		t.Errorf("got the report\n%s\nexpected it to contain\n%s", got, wantUnreadable)
	}

	// There was no stream.
	r.Unreadable = nil
	const wantNoStream = "There was no stream"
	if got := r.String(); !strings.Contains(got, wantNoStream) {
		t.Errorf("got the report\n%s\nexpected it to contain %q", got, wantNoStream)
	}
}
