package rebuild_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/rebuild"
)

// newOutdatedInbox returns an inbox with another setting than that of [newInbox], as an earlier
// version of the program has it.
func newOutdatedInbox() projections.Projection {
	s := inbox.DefaultSettings()
	s.Threshold = 500
	return inbox.New(s)
}

// newInbox returns an inbox with the settings of this version of the program.
func newInbox() projections.Projection { return inbox.New(inbox.DefaultSettings()) }

// openOnDisk opens an inbox in a directory, and makes it follow the log until stop is called. A
// partitioned inbox holds the partitions that its generation has.
func (w *testLog) openOnDisk(dir string, p func() projections.Projection, partitioned bool) (opened *live.Live, stop func()) {
	w.t.Helper()
	l, err := live.Open(live.Options{
		Options: store.Options{FS: vfs.Default, Dir: dir, Partitioned: partitioned},
		New:     p, Log: w.log.ID(), Epoch: w.log.Epoch(),
	})
	if err != nil {
		w.t.Fatal(err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(context.Background(), w.subscribe)
	}()
	return l, func() {
		if err := l.Close(); err != nil {
			w.t.Errorf("close the inbox: got %v, expected no error", err)
		}
		<-done
	}
}

// newTarget returns the target of a preparation of the inbox in a directory.
func (w *testLog) newTarget(dir string, held *events.Partitions) rebuild.Target {
	return rebuild.Target{
		New: newInbox, Dir: dir, Partitions: held, Log: w.log.ID(),
		Epoch: func(context.Context) (uint32, error) { return w.log.Epoch(), nil },
	}
}

// TestPreparedGenerationHasTheRowsOfTheLog prepares a generation in two calls while another
// generation follows the log. Both have all partitions or, as on a node of a cluster, some.
func TestPreparedGenerationHasTheRowsOfTheLog(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]events.Partitions{
		"all partitions":  events.AllPartitions(),
		"a third of them": everyNth(0, 3),
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestLog(t)
			dir := t.TempDir()
			w.publish(50)
			partitioned := partitions != events.AllPartitions()
			l, stop := w.openOnDisk(dir, newOutdatedInbox, partitioned)
			if partitioned {
				if _, err := rebuild.Resize(t.Context(), l, partitions, w.subscribeKinds, rebuild.Options{}); err != nil {
					t.Fatal(err)
				}
			}

			// The second call continues after the first one.
			held, err := live.PartitionsOnDisk(vfs.Default, dir, "inbox")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := rebuild.Prepare(t.Context(), w.newTarget(dir, held), w.subscribeKinds, rebuild.Options{}); err != nil {
					t.Fatal(err)
				}
				w.publish(20)
			}
			stop()

			l, stop = w.openOnDisk(dir, newInbox, partitioned)
			defer stop()
			if st := l.Status(); st.Error != nil || st.Generation < 2 {
				t.Errorf("got generation %d in state %s with error %v, want generation 2 or later without an error",
					st.Generation, st.State, st.Error)
			}
			w.checkRows(l, w.publish(1))
		})
	}
}

// TestPreparationThatFailsIsNotUsed interrupts a preparation, and then prepares again while the
// epoch of the log changes, as in an erasure. Neither is used, and the second one leaves nothing.
func TestPreparationThatFailsIsNotUsed(t *testing.T) {
	w := newTestLog(t)
	dir := t.TempDir()
	w.publish(30)
	_, stop := w.openOnDisk(dir, newOutdatedInbox, false)
	stop()

	// Interrupt a preparation when the build is finished, and the tail of the log is to be folded.
	ctx, interrupt := context.WithCancel(t.Context())
	subscribe := func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
		if from != (events.Cursor{}) {
			interrupt()
		}
		return w.subscribeKinds(from, kinds)
	}
	w.publish(1)
	target := w.newTarget(dir, nil)
	target.Epoch = func(context.Context) (uint32, error) { return w.log.Epoch(), ctx.Err() }
	if _, err := rebuild.Prepare(ctx, target, subscribe, rebuild.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted preparation: got %v, want %v", err, context.Canceled)
	}
	l, stop := w.openOnDisk(dir, newInbox, false)
	if st := l.Status(); st.State != store.Outdated {
		t.Errorf("after an interrupted preparation, generation %d is %s, want %s", st.Generation, st.State, store.Outdated)
	}
	stop()

	// While the epoch is the one from which it was built, a start keeps it: it continues.
	prepared := filepath.Join(dir, "inbox", "prepared")
	for epoch, isKept := range map[uint32]bool{w.log.Epoch(): true, w.log.Epoch() + 1: false} {
		copied := t.TempDir()
		if err := os.CopyFS(filepath.Join(copied, "inbox", "prepared"), os.DirFS(prepared)); err != nil {
			t.Fatal(err)
		}
		if err := live.RemoveOutdatedPreparations(vfs.Default, copied, w.log.ID(), epoch); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(copied, "inbox", "prepared")); (err == nil) != isKept {
			t.Errorf("an interrupted preparation at a start in epoch %d: got %v, want that it is kept: %t", epoch, err, isKept)
		}
	}

	// Return another epoch each time.
	target = w.newTarget(dir, nil)
	epoch := uint32(0)
	target.Epoch = func(context.Context) (uint32, error) {
		epoch++
		return epoch, nil
	}
	if _, err := rebuild.Prepare(t.Context(), target, w.subscribeKinds, rebuild.Options{}); !errors.Is(err, rebuild.ErrLogChanged) {
		t.Errorf("a preparation that ends in another epoch: got %v, want %v", err, rebuild.ErrLogChanged)
	}
	if _, err := os.Stat(filepath.Join(dir, "inbox", "prepared")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the preparation: got %v, want that it is removed, because it is of an earlier epoch", err)
	}
}

// singleEnvelopes is a subscription that returns one envelope at a time. It calls onRead with the
// sequence of each.
type singleEnvelopes struct {
	store.Subscription

	onRead func(seq uint64)
}

// Next implements store.Subscription.
func (s singleEnvelopes) Next(ctx context.Context, _ int) ([]*events.Envelope, error) {
	envs, err := s.Subscription.Next(ctx, 1)
	for _, env := range envs {
		s.onRead(env.Seq())
	}
	return envs, err
}

// TestInterruptedReadingContinues interrupts preparations after they have read half of the log. The
// next one reads the rest, and a tenth of the log again at most. If what was saved is damaged, it
// reads the whole log again.
func TestInterruptedReadingContinues(t *testing.T) {
	t.Parallel()
	for name, isDamaged := range map[string]bool{"whole": false, "damaged": true} {
		t.Run(name, func(t *testing.T) {
			w := newTestLog(t)
			dir := t.TempDir()
			last := w.publish(40)
			_, stop := w.openOnDisk(dir, newOutdatedInbox, false)
			stop()

			prepare := func(ctx context.Context, onRead func(seq uint64)) error {
				subscribe := func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
					sub, err := w.subscribeKinds(from, kinds)
					return singleEnvelopes{sub, onRead}, err
				}
				_, err := rebuild.Prepare(ctx, w.newTarget(dir, nil), subscribe, rebuild.Options{})
				return err
			}

			// Interrupt the first preparation.
			ctx, interrupt := context.WithCancel(t.Context())
			err := prepare(ctx, func(seq uint64) {
				if seq == last/2 {
					interrupt()
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted: got error %v, want %v", err, context.Canceled)
			}

			earliest := last/2 - last/10 // the next preparation must not begin before this sequence
			if isDamaged {
				earliest = 1
				saved := filepath.Join(dir, "inbox", "prepared", "inbox", "000001.parts", "saved")
				if err := os.WriteFile(saved, []byte("damaged"), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			first := uint64(0)
			err = prepare(t.Context(), func(seq uint64) {
				if first == 0 {
					first = seq
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if first < earliest {
				t.Errorf("the next preparation read from sequence %d on, want %d or later", first, earliest)
			}
			if isDamaged && first > 1 {
				t.Errorf("after the damage, the next preparation read from sequence %d on, want 1", first)
			}

			l, stop := w.openOnDisk(dir, newInbox, false)
			defer stop()
			w.checkRows(l, last)
		})
	}
}
