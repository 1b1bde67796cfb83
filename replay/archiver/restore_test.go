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
			t.Fatal(segments, err)
		}
		o := w.restoreOptions(nil)
		madeRoom := false
		o.FreeSpace = func() error {
			madeRoom = true
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
				if !errors.Is(err, archive.ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(segment)) || madeRoom {
					t.Errorf("%s, %s: got %v, made room %v, expected %v before anything is changed",
						filepath.Base(segment), name, err, madeRoom, archive.ErrDamaged)
				}
				if _, err := os.Stat(w.logDir()); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s, %s: got %v for the log, expected that there is none", filepath.Base(segment), name, err)
				}
			}
			if err := os.WriteFile(segment, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}

		if r := mustRestore(t, o); r.Archived != end || r.Epoch != 2 || !madeRoom {
			t.Errorf("undamaged: got %+v, expected epoch 2 after %+v", r, end)
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
		whole := w.readEvents(14)
		at := w.cursors(14)
		w.stop()
		w.deleteLog()

		r := mustRestore(t, w.restoreOptions(map[string]events.Cursor{"at": at[13], "below": at[5], "beyond": at[14], "new": {}}))
		if r.Epoch != 2 || r.Head.Seq != 13 || r.Archived.Seq != 13 || r.Salvaged != nil || len(r.Stores) != 4 {
			t.Fatalf("got %+v, expected epoch 2 from the archive up to 13", r)
		}
		for _, f := range r.Stores {
			isBeyond := f.Name == "beyond"
			isRefused := errors.Is(f.RebuildReason, events.ErrOtherEpoch)
			holdsLost := slices.Equal(f.LostSequences, []eventlog.SeqRange{{From: 14, To: 14}})
			if isBeyond != isRefused || isBeyond != (f.RebuildReason != nil) || isBeyond != holdsLost {
				t.Errorf("%s: got %+v, expected that only the store beyond the archive is refused", f.Name, f)
			}
		}

		// The log has what was archived, and accepts the cursors and positions of before.
		w = openLog(t, w.dir, nil)
		if got := w.readEvents(13); !reflect.DeepEqual(got, whole[:13]) {
			t.Errorf("got the log\n%+v\nexpected\n%+v", got, whole[:13])
		}
		for _, c := range at[1:14] {
			if err := w.log.CheckCursor(t.Context(), c); err != nil {
				t.Errorf("cursor at sequence %d: got %v, expected that it is accepted", c.Seq, err)
			}
			if err := w.log.CheckPosition(t.Context(), c.Position()); err != nil {
				t.Errorf("position at sequence %d: got %v, expected that it is accepted", c.Seq, err)
			}
		}
		if err := w.log.CheckCursor(t.Context(), at[14]); !errors.Is(err, events.ErrOtherEpoch) || !strings.Contains(err.Error(), "rebuild") {
			t.Errorf("cursor of a lost sequence: got %v, expected %v", err, events.ErrOtherEpoch)
		}
		if err := w.log.CheckPosition(t.Context(), at[14].Position()); !errors.Is(err, events.ErrOtherEpoch) {
			t.Errorf("position of a lost sequence: got %v, expected %v", err, events.ErrOtherEpoch)
		}

		// Event ids that were archived are known for the horizon. Those that were lost count as
		// never published.
		letTimePass(10 * time.Minute)
		if p := w.publishFollow("x", "once"); p.Epoch != 2 || p.Seq != 14 {
			t.Errorf("got %+v, expected sequence 14 in epoch 2", p)
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
		second := w.cursors(16)
		before := w.readEvents(16)
		w.stop()
		w.deleteLog()

		r = mustRestore(t, w.restoreOptions(map[string]events.Cursor{"old": at[13], "older": at[14], "second": second[15], "beyond": second[16]}))
		want := map[string]bool{"old": true, "older": false, "second": true, "beyond": false}
		for _, f := range r.Stores {
			if (f.RebuildReason == nil) != want[f.Name] {
				t.Errorf("%s, the second time: got %+v, expected continues %v", f.Name, f, want[f.Name])
			}
		}

		w = openLog(t, w.dir, nil)
		defer func() { w.stop() }()
		predecessors := []eventlog.Predecessor{{Epoch: 1, Last: 13}, {Epoch: 2, Last: 15}}
		if w.log.Epoch() != 3 || !reflect.DeepEqual(w.log.Predecessors(), predecessors) {
			t.Errorf("got epoch %d after %+v, expected 3 after %+v", w.log.Epoch(), w.log.Predecessors(), predecessors)
		}
		if got := w.readEvents(15); !reflect.DeepEqual(got, before[:15]) {
			t.Errorf("the second time: got the log\n%+v\nexpected\n%+v", got, before[:15])
		}
		if p := w.publishFollow("y", "twice"); p.Epoch != 3 || p.Seq != 16 {
			t.Errorf("the second time: got %+v, expected sequence 16 in epoch 3", p)
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
			whole := w.readEvents(14)
			at := w.cursors(14)
			repeats, err := w.log.RepeatsAt(t.Context(), at[14])
			if err != nil {
				t.Fatal(err)
			}

			w.stop()
			o := w.restoreOptions(map[string]events.Cursor{"graph": at[14]})
			o.Damaged = w.moveLogAway()
			r := mustRestore(t, o)
			if s := r.Salvaged; s == nil || s.Envelopes != 14-archived || len(s.Lost) > 0 || r.Head.Seq != 14 ||
				r.Stores[0].RebuildReason != nil || len(r.Stores[0].LostSequences) > 0 {
				t.Errorf("archived up to %d: got %+v, expected that all the rest is salvaged", archived, r)
			}

			w = openLog(t, w.dir, nil)
			if got := w.readEvents(14); !reflect.DeepEqual(got, whole) {
				t.Errorf("archived up to %d: got the log\n%+v\nexpected\n%+v", archived, got, whole)
			}
			if kept, err := w.archive.Repeats(t.Context(), w.log.Epoch()); err != nil || !slices.Equal(kept, repeats) {
				t.Errorf("archived up to %d: got the event ids\n%v, %v\nexpected\n%v", archived, kept, err, repeats)
			}
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
			whole := w.readEvents(40)
			at := w.cursors(40)
			w.stop()

			o := w.restoreOptions(map[string]events.Cursor{"graph": at[40], "seen": at[10]})
			o.Damaged = w.moveLogAway()
			blocks, err := filepath.Glob(filepath.Join(o.Damaged.Dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
			if err != nil || len(blocks) != 1 {
				t.Fatal(blocks, err)
			}
			data, err := os.ReadFile(blocks[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(blocks[0], damage(data), 0o600); err != nil {
				t.Fatal(err)
			}

			x, err := CheckStream(t.Context(), o.Bucket, *o.Damaged)
			if err != nil || x.Problem == nil {
				t.Errorf("examine: got %+v, %v, expected that something is wrong", x, err)
			}
			r := mustRestore(t, o)
			t.Logf("%v\n%v", x.Problem, r)

			// The report says which sequences are lost.
			lost := map[uint64]bool{}
			for _, f := range r.Stores {
				if f.Name == "graph" {
					for _, h := range f.LostSequences {
						for seq := h.From; seq <= h.To; seq++ {
							lost[seq] = true
						}
					}
				} else if f.RebuildReason != nil || len(f.LostSequences) > 0 {
					t.Errorf("%s: got %+v, expected that it continues", f.Name, f)
				}
			}

			// All others are in the log.
			w = openLog(t, w.dir, nil)
			defer func() { w.stop() }()
			got := w.readEvents(r.Head.Seq)
			for i := range got {
				if !reflect.DeepEqual(got[i], whole[got[i].Seq()-1]) {
					t.Errorf("sequence %d: got another envelope than before", got[i].Seq())
				}
			}
			if len(lost) == 0 || len(got)+len(lost) != 40 || len(got) < 10 || name == "flipped" && len(got) < 15 {
				t.Errorf("got %d envelopes and the lost %v, expected 40 together", len(got), lost)
			}
			for _, env := range got {
				if lost[env.Seq()] {
					t.Errorf("sequence %d: it is in the log, expected that it is lost", env.Seq())
				}
				err := w.log.CheckCursor(t.Context(), at[env.Seq()])
				if err != nil {
					t.Errorf("cursor at sequence %d: got %v, expected that it is accepted", env.Seq(), err)
				}
			}
			for seq := range lost {
				if err := w.log.CheckCursor(t.Context(), at[seq]); err == nil && seq > r.Head.Seq {
					t.Errorf("cursor at the lost sequence %d: got no error, expected one", seq)
				}
			}

			checkSameRows(t, foldRows(t, got), foldRows(t, slices.DeleteFunc(slices.Clone(whole), func(env events.Envelope) bool {
				return env.Seq() > r.Head.Seq || lost[env.Seq()]
			})))
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
	if len(want) < 50 || !reflect.DeepEqual(got, want) {
		t.Errorf("stores of the restored log have %d rows, of what survived %d", len(got), len(want))
	}
}

// breakingBucket is a bucket that fails for good from an operation on. That operation may be
// performed or not.
type breakingBucket struct {
	bucket.Bucket
	left  int
	after bool
}

func (b *breakingBucket) isBroken() bool { b.left--; return b.left < 0 }

func (b *breakingBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	broken := b.isBroken()
	if broken && (!b.after || b.left < -1) {
		return errNoBucket
	}
	if err := b.Bucket.Put(ctx, name, r, size); err != nil || !broken {
		return err
	}
	return errNoBucket
}

func (b *breakingBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if b.isBroken() {
		return nil, errNoBucket
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

func (b *breakingBucket) Delete(ctx context.Context, name string) error {
	if b.isBroken() {
		return errNoBucket
	}
	return b.Bucket.Delete(ctx, name)
}

func (b *breakingBucket) List(ctx context.Context, prefix string) ([]bucket.Object, error) {
	if b.isBroken() {
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
	whole := w.readEvents(6)
	repeats, err := w.log.RepeatsAt(t.Context(), w.cursors(6)[6])
	if err != nil {
		t.Fatal(err)
	}
	w.stop()
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
				t.Fatal(err)
			}
			c := &testLog{t: t, dir: dir}
			o := c.restoreOptions(nil)
			intact := o.Bucket
			o.Bucket = &breakingBucket{Bucket: intact, left: n, after: after}
			o.Damaged = c.moveLogAway()
			_, err := Restore(t.Context(), o)
			if err != nil && !errors.Is(err, errNoBucket) {
				t.Fatal(err)
			}
			if err != nil {
				a, aerr := openArchive(t.Context(), intact)
				if aerr != nil {
					t.Fatal(aerr)
				}
				epoch := a.Epoch()
				o.Bucket = intact
				if r := mustRestore(t, o); r.Epoch != epoch+1 || (r.Salvaged == nil) != (epoch > 1) || errors.Is(r.Unreadable, ErrSuperseded) != (epoch > 1) {
					t.Errorf("interrupted after %d: %+v, the archive was in epoch %d", n, r, epoch)
				}
			}
			c = openLog(t, dir, nil)
			if got := c.readEvents(6); !reflect.DeepEqual(got, whole) {
				t.Errorf("interrupted after %d: the log is\n%+v, was\n%+v", n, got, whole)
			}
			if kept, err := c.archive.Repeats(t.Context(), c.log.Epoch()); err != nil || !slices.Equal(kept, repeats) {
				t.Errorf("interrupted after %d: of event ids is kept\n%v, needed\n%v, %v", n, kept, repeats, err)
			}
			if err := c.archive.Check(t.Context(), nil); err != nil {
				t.Errorf("interrupted after %d: %v", n, err)
			}
			c.stop()
			if err == nil {
				if n < 10 {
					t.Errorf("restoring takes %d operations", n)
				}
				break
			}
		}
	}
}

// A restore that is refused, because there is a stream, the stream is of another log, or there is
// no archive, changes nothing.
func TestRefusedRestoreChangesNothing(t *testing.T) {
	w := openLog(t, t.TempDir(), nil)
	w.publish(3, 0)
	empty := w.restoreOptions(nil)
	if _, err := Restore(t.Context(), empty); !errors.Is(err, ErrNoArchive) {
		t.Errorf("nothing is archived: %v", err)
	}
	w.archiveUpTo(3)
	if _, err := CheckStream(t.Context(), empty.Bucket, eventlog.Config{Dir: w.logDir()}); !errors.Is(err, events.ErrLocked) {
		t.Errorf("examined while it is open: %v", err)
	}
	w.stop()
	if _, err := Restore(t.Context(), w.restoreOptions(nil)); !errors.Is(err, events.ErrLogExists) {
		t.Errorf("over a stream: %v", err)
	}
	x, err := CheckStream(t.Context(), empty.Bucket, eventlog.Config{Dir: w.logDir()})
	if err != nil || x.Problem != nil || x.Last != 3 {
		t.Errorf("examined: %+v, %v", x, err)
	}
	other := openLog(t, t.TempDir(), nil)
	other.publish(4, 0)
	other.stop()
	o := w.restoreOptions(nil)
	o.Damaged = &eventlog.Config{Dir: other.logDir()}
	damaged := w.moveLogAway()
	if _, err := Restore(t.Context(), o); !errors.Is(err, events.ErrOtherLog) {
		t.Errorf("from another stream: %v", err)
	}
	if x, err := CheckStream(t.Context(), o.Bucket, *o.Damaged); err != nil || !errors.Is(x.Problem, events.ErrOtherLog) {
		t.Errorf("examined: %+v, %v", x, err)
	}
	if x, err := CheckStream(t.Context(), o.Bucket, eventlog.Config{Dir: filepath.Join(t.TempDir(), "none")}); err != nil || !errors.Is(x.Problem, events.ErrNoLog) {
		t.Errorf("examined: %+v, %v", x, err)
	}
	a, err := openArchive(t.Context(), o.Bucket)
	if err != nil || a.Epoch() != 1 {
		t.Errorf("what was refused has left the archive in epoch %d, %v", a.Epoch(), err)
	}
	// An archive that is an old copy does not follow the stream.
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(w.dir, "bucket"))); err != nil {
		t.Fatal(err)
	}
	o.Damaged = damaged
	if r := mustRestore(t, o); r.Epoch != 2 {
		t.Errorf("%+v", r)
	}
	if o.Bucket, err = bucket.NewDir(copied); err != nil {
		t.Fatal(err)
	}
	o.Damaged, o.Stream.Dir = &eventlog.Config{Dir: w.logDir()}, filepath.Join(t.TempDir(), "log")
	if _, err := Restore(t.Context(), o); !errors.Is(err, ErrArchiveBehind) {
		t.Errorf("from an old copy of the archive: %v", err)
	}
}

// TestRestoreReportInWords compares reports with what people are meant to read.
func TestRestoreReportInWords(t *testing.T) {
	at := func(seq uint64) events.Cursor {
		return events.Cursor{Log: events.LogID{7}, Epoch: 1, Seq: seq, LastTime: events.Micros(1.7e15) + events.Micros(seq)*1e6}
	}
	r := Restored{
		Log: events.LogID{7}, Epoch: 2, Archived: at(10), Head: at(40),
		Salvaged: &eventlog.SalvageReport{
			Envelopes: 26, Events: 1, Lost: []eventlog.SeqRange{{From: 12, To: 12}, {From: 20, To: 22}},
		},
		Stores: []StoreOutcome{
			{Name: "counters", Cursor: at(9)},
			{Name: "graph", Cursor: at(40), LostSequences: []eventlog.SeqRange{{From: 12, To: 12}}},
			{Name: "seen", Cursor: at(41), RebuildReason: events.ErrOtherEpoch, LostSequences: []eventlog.SeqRange{{From: 41, To: 41}}},
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
	if got := fmt.Sprint(r); got != want {
		t.Errorf("it reads\n%s\nnot\n%s", got, want)
	}
	r.Salvaged, r.Stores, r.Unreadable = nil, nil, archive.ErrDamaged
	if got := r.String(); !strings.Contains(got, "Nothing was taken from the damaged stream: events: the archive of the log is damaged.\n") {
		t.Error(got)
	}
	r.Unreadable = nil
	if got := r.String(); !strings.Contains(got, "There was no stream") {
		t.Error(got)
	}
}
