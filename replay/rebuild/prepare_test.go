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

// inboxBefore has another setting than the inbox of [newInboxNow], as the inbox of an earlier
// version of the program.
func inboxBefore() projections.Projection {
	s := inbox.DefaultSettings()
	s.Threshold = 500
	return inbox.New(s)
}

func newInboxNow() projections.Projection { return inbox.New(inbox.DefaultSettings()) }

// openOnDisk opens an inbox of some partitions in a directory, and has it follow the log until stop
// is called.
func (w *testLog) openOnDisk(dir string, p func() projections.Projection, partitioned bool) (opened *live.Live, stop func()) {
	w.t.Helper()
	l, err := live.Open(live.Options{
		Options: store.Options{FS: vfs.Default, Dir: dir, Partitioned: partitioned}, New: p, Log: w.log.ID(), Epoch: w.log.Epoch(),
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
			w.t.Error(err)
		}
		<-done
	}
}

// target is what is prepared in a directory.
func (w *testLog) target(dir string, held *events.Partitions) rebuild.Target {
	return rebuild.Target{
		New: newInboxNow, Dir: dir, Partitions: held, Log: w.log.ID(),
		Epoch: func(context.Context) (uint32, error) { return w.log.Epoch(), nil },
	}
}

// TestPreparedGenerationHasTheRowsOfTheLog: a generation is prepared in two calls beside a
// projection that follows the log, of all partitions or, as on a node of a cluster, of some.
func TestPreparedGenerationHasTheRowsOfTheLog(t *testing.T) {
	for name, partitions := range map[string]events.Partitions{"all partitions": events.AllPartitions(), "a third of them": everyNth(0, 3)} {
		t.Run(name, func(t *testing.T) {
			w := newTestLog(t)
			dir := t.TempDir()
			w.publish(50)
			partitioned := partitions != events.AllPartitions()
			l, stop := w.openOnDisk(dir, inboxBefore, partitioned)
			if partitioned {
				if _, err := rebuild.Resize(t.Context(), l, partitions, w.subscribeKinds, rebuild.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			held, err := live.PartitionsOnDisk(vfs.Default, dir, "inbox")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := rebuild.Prepare(t.Context(), w.target(dir, held), w.subscribeKinds, rebuild.Options{}); err != nil {
					t.Fatal(err)
				}
				w.publish(20)
			}
			stop()

			l, stop = w.openOnDisk(dir, newInboxNow, partitioned)
			defer stop()
			if st := l.Status(); st.Error != nil || st.Generation < 2 {
				t.Errorf("generation %d is %s: %v", st.Generation, st.State, st.Error)
			}
			w.checkRows(l, w.publish(1))
		})
	}
}

// TestPreparationThatFailsIsNotUsed: an interrupted preparation begins again, and one that an
// erasure has overtaken leaves nothing.
func TestPreparationThatFailsIsNotUsed(t *testing.T) {
	w := newTestLog(t)
	dir := t.TempDir()
	w.publish(30)
	_, stop := w.openOnDisk(dir, inboxBefore, false)
	stop()

	interrupted, interrupt := context.WithCancel(t.Context())
	subscribe := func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
		if from != (events.Cursor{}) {
			interrupt() // the build is finished, and its rest is to be folded
		}
		return w.subscribeKinds(from, kinds)
	}
	w.publish(1)
	target := w.target(dir, nil)
	target.Epoch = func(context.Context) (uint32, error) { return w.log.Epoch(), interrupted.Err() }
	if _, err := rebuild.Prepare(interrupted, target, subscribe, rebuild.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v, want %v", err, context.Canceled)
	}
	l, stop := w.openOnDisk(dir, newInboxNow, false)
	if st := l.Status(); st.State != store.Outdated {
		t.Errorf("after an interrupted preparation, generation %d is %s, want %s", st.Generation, st.State, store.Outdated)
	}
	stop()

	target = w.target(dir, nil)
	asked := uint32(0)
	target.Epoch = func(context.Context) (uint32, error) {
		asked++
		return asked, nil
	}
	if _, err := rebuild.Prepare(t.Context(), target, w.subscribeKinds, rebuild.Options{}); !errors.Is(err, rebuild.ErrLogChanged) {
		t.Errorf("in another epoch: %v, want %v", err, rebuild.ErrLogChanged)
	}
	if _, err := os.Stat(filepath.Join(dir, "inbox", "prepared")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was prepared from the epoch before an erasure is still there: %v", err)
	}
}

// singleEnvelopes is a subscription that returns one envelope at a time. It calls read with the
// sequence of each.
type singleEnvelopes struct {
	store.Subscription

	read func(seq uint64)
}

func (s singleEnvelopes) Next(ctx context.Context, _ int) ([]*events.Envelope, error) {
	envs, err := s.Subscription.Next(ctx, 1)
	for _, env := range envs {
		s.read(env.Seq())
	}
	return envs, err
}

// TestInterruptedReadingContinues interrupts preparations after they have read half of the log. The
// next one reads the rest, and a tenth of the log again at most. If what was saved is damaged, it
// reads the whole log again.
func TestInterruptedReadingContinues(t *testing.T) {
	for name, isDamaged := range map[string]bool{"whole": false, "damaged": true} {
		t.Run(name, func(t *testing.T) {
			w := newTestLog(t)
			dir := t.TempDir()
			last := w.publish(40)
			_, stop := w.openOnDisk(dir, inboxBefore, false)
			stop()

			prepare := func(ctx context.Context, read func(seq uint64)) error {
				subscribe := func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
					sub, err := w.subscribeKinds(from, kinds)
					return singleEnvelopes{sub, read}, err
				}
				_, err := rebuild.Prepare(ctx, w.target(dir, nil), subscribe, rebuild.Options{})
				return err
			}
			ctx, interrupt := context.WithCancel(t.Context())
			err := prepare(ctx, func(seq uint64) {
				if seq == last/2 {
					interrupt()
				}
			})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted: got error %v, want %v", err, context.Canceled)
			}
			wantFirst := last/2 - last/10
			if isDamaged {
				wantFirst = 1
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
			if first < wantFirst || isDamaged && first > wantFirst {
				t.Errorf("the next preparation read from sequence %d on, want %d", first, wantFirst)
			}
			l, stop := w.openOnDisk(dir, newInboxNow, false)
			defer stop()
			w.checkRows(l, last)
		})
	}
}
