package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

func openView(t testing.TB, s *store.Store) *projections.View {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// TestViewReadsRowsInOrder checks that iterators show rows in order, within their bounds and after
// a seek, and that Get has the same values.
func TestViewReadsRowsInOrder(t *testing.T) {
	envs := storetest.Follows(10)
	s := storetest.OpenTally(t, store.Options{})
	if err := s.Fold(envs); err != nil {
		t.Fatal(err)
	}

	v := openView(t, s)

	// An iterator over everything shows each row once, with the value that Get returns.
	var keys [][]byte
	all := v.Iter(nil, nil)
	for all.Next() {
		keys = append(keys, bytes.Clone(all.Key()))
		value, ok, err := v.Get(all.Key())
		if err != nil || !ok || !bytes.Equal(value, all.Value()) {
			t.Errorf("row %x: Get returns %x, %v, %v, want %x as the iterator", all.Key(), value, ok, err, all.Value())
		}
	}
	if all.Next() {
		t.Error("Next after the last row: got true, want false")
	}
	if err := errors.Join(all.Close(), all.Close()); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := v.Get([]byte("none")); ok || err != nil {
		t.Errorf("missing row: got a row: %v, error %v, want neither", ok, err)
	}

	// An iterator with bounds shows the rows from the lower bound up to the upper one.
	it := v.Iter(keys[2], keys[8])
	defer func() {
		if err := it.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := 2; i < 8; i++ {
		if !it.Next() {
			t.Fatalf("got no row %d, want %x", i, keys[i])
		}
		if !bytes.Equal(it.Key(), keys[i]) {
			t.Fatalf("got row %d with key %x, want %x", i, it.Key(), keys[i])
		}
	}
	if it.Next() {
		t.Errorf("got the row %x at or above the upper bound %x, want none", it.Key(), keys[8])
	}

	// SeekGE goes to the first row at or after a key, within the bounds.
	for _, test := range []struct {
		target []byte
		want   []byte
	}{{keys[5], keys[5]}, {keys[0], keys[2]}, {append(bytes.Clone(keys[5]), 0), keys[6]}, {keys[8], nil}} {
		ok := it.SeekGE(test.target)
		if ok != (test.want != nil) {
			t.Errorf("seek %x: got a row: %v, want %x", test.target, ok, test.want)
		}
		if ok && !bytes.Equal(it.Key(), test.want) {
			t.Errorf("seek %x: got %x, want %x", test.target, it.Key(), test.want)
		}
	}
	if !it.SeekGE(keys[3]) || !it.Next() {
		t.Fatalf("SeekGE to %x and Next: got no row, want %x", keys[3], keys[4])
	}
	if !bytes.Equal(it.Key(), keys[4]) {
		t.Errorf("SeekGE to %x and Next: got %x, want %x", keys[3], it.Key(), keys[4])
	}
}

// TestViewKeepsItsPosition checks that a view does not show envelopes that are folded after it was
// opened, nor parts of them.
func TestViewKeepsItsPosition(t *testing.T) {
	envs := storetest.Follows(3)
	s := storetest.OpenTally(t, store.Options{})
	old := openView(t, s)
	if old.Cursor() != (events.Cursor{}) {
		t.Errorf("empty store: got position %+v, want the zero cursor", old.Cursor())
	}

	for _, env := range envs {
		if err := s.Fold([]*events.Envelope{env}); err != nil {
			t.Fatal(err)
		}
		if now := openView(t, s); now.Cursor() != env.Cursor {
			t.Errorf("position of a new view: got %+v, want %+v", now.Cursor(), env.Cursor)
		}
	}

	// The first view still has no rows of the projection.
	it := old.Iter(projections.AppendPrefix(nil, 0, 0x10), projections.AppendPrefix(nil, projections.StoreShard, 0))
	if it.Next() {
		t.Errorf("a view of the empty store: got the row %x, want none", it.Key())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestViewsWhileFoldingAreConsistent checks that in every view each count is the length of its list
// (I7) while the store folds with several commits per envelope, and that positions only rise.
func TestViewsWhileFoldingAreConsistent(t *testing.T) {
	n := 3000
	if testing.Short() {
		n = 500
	}
	envs := tally.History(11, n)
	s := storetest.OpenTally(t, store.Options{Bounds: store.Bounds{BatchBytes: 100, FlushBytes: 64 << 10}})

	// Three readers check views until the fold is done.
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			last := uint64(0)
			for rounds := 0; ; rounds++ {
				seq, err := checkCounts(s)
				if err != nil {
					t.Error(err)
					return
				}
				if seq < last {
					t.Errorf("got position %d after %d, want positions that only rise", seq, last)
					return
				}
				last = seq
				select {
				case <-done:
					if last != envs[n-1].Seq() && rounds > 0 {
						continue // the next round must see the last position
					}
					return
				default:
				}
			}
		})
	}

	for rest := envs; len(rest) > 0; rest = rest[min(3, len(rest)):] {
		if err := s.Fold(rest[:min(3, len(rest))]); err != nil {
			t.Error(err)
			break
		}
	}

	close(done)
	wg.Wait()
}

// checkCounts compares the count of each user with the edges that it counts, in one view.
func checkCounts(s *store.Store) (seq uint64, err error) {
	v, err := s.View()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()

	for _, user := range []string{"ann", "bob", "7", "10"} {
		edges := tally.EdgePrefix(user)
		it := v.Iter(edges, projections.PrefixEnd(edges))
		n := uint64(0)
		for it.Next() {
			n++
		}
		if err := it.Close(); err != nil {
			return 0, err
		}
		count, ok, err := v.Get(tally.CountKey(user))
		if err != nil {
			return 0, err
		}
		switch {
		case ok && binary.BigEndian.Uint64(count) != n:
			return 0, fmt.Errorf("%s at %d: got count %d, want the %d edges", user, v.Cursor().Seq, binary.BigEndian.Uint64(count), n)
		case !ok && n != 0:
			return 0, fmt.Errorf("%s at %d: got no count, want the %d edges", user, v.Cursor().Seq, n)
		}
	}
	return v.Cursor().Seq, nil
}

// TestViewWithOpenIteratorReportsIt checks that closing a view with an open iterator returns an
// error, and that the view can be closed once the iterator is.
func TestViewWithOpenIteratorReportsIt(t *testing.T) {
	s := storetest.OpenTally(t, store.Options{})
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	it := v.Iter(nil, nil)
	if err := v.Close(); err == nil {
		t.Error("close with an open iterator: got no error, want one")
	}
	if err := errors.Join(it.Close(), v.Close()); err != nil {
		t.Errorf("second close: got error %v, want none", err)
	}
}

// TestStoreClosesAfterViewLeftIteratorOpen checks that a store can be closed after a view was
// closed with open iterators, as after a panic of a query.
func TestStoreClosesAfterViewLeftIteratorOpen(t *testing.T) {
	s := storetest.OpenTally(t, store.Options{})
	if err := errors.Join(s.Fold(storetest.Follows(3)), s.Flush()); err != nil {
		t.Fatal(err)
	}

	// Leave iterators of a view open.
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if it := v.Iter(nil, nil); !it.Next() {
			t.Fatalf("got no row from an iterator, want one; closing it returned %v", it.Close())
		}
	}

	if err := v.Close(); err == nil {
		t.Error("close of a view with open iterators: got no error, want one")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestClosedStoreWaitsForViewsAndRefusesCalls checks that Close waits until views are closed, and
// that a closed store refuses calls.
func TestClosedStoreWaitsForViewsAndRefusesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.OpenTally(t, store.Options{})
		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}

		closed := make(chan error)
		go func() { closed <- s.Close() }()
		if err := s.WaitFor(t.Context(), 5); !errors.Is(err, projections.ErrClosed) {
			t.Errorf("wait: got error %v, want %v", err, projections.ErrClosed)
		}

		// Close waits for the view, which can be read until then.
		if _, _, err := v.Get([]byte("none")); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("Close returned %v before the view was closed", err)
		default:
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}

		// The store is closed now and refuses every call.
		if _, err := s.View(); !errors.Is(err, projections.ErrClosed) {
			t.Errorf("view: got error %v, want %v", err, projections.ErrClosed)
		}
		if err := s.Fold(storetest.Follows(1)); !errors.Is(err, projections.ErrClosed) {
			t.Errorf("fold: got error %v, want %v", err, projections.ErrClosed)
		}
		if err := s.Flush(); !errors.Is(err, projections.ErrClosed) {
			t.Errorf("flush: got error %v, want %v", err, projections.ErrClosed)
		}
		if err := s.Run(t.Context(), storetest.NewLog().Subscribe); !errors.Is(err, projections.ErrClosed) {
			t.Errorf("run: got error %v, want %v", err, projections.ErrClosed)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second close: got error %v, want none", err)
		}
		if st := s.Status(); st.State != store.Stopped {
			t.Errorf("got status %+v, want state stopped", st)
		}
	})
}

// TestReadOnlyStoreIsReadAndNotChanged checks that a store that is opened only for reading answers,
// and refuses to fold.
func TestReadOnlyStoreIsReadAndNotChanged(t *testing.T) {
	opts := store.Options{FS: vfs.NewMem(), Dir: "data", Projection: tally.New(), ReadOnly: true}
	if _, err := store.Open(opts); !errors.Is(err, projections.ErrNoStore) {
		t.Fatalf("open without a store: got error %v, want %v", err, projections.ErrNoStore)
	}

	opts.ReadOnly = false
	s := storetest.OpenTally(t, opts)
	if err := s.Fold(storetest.Follows(2)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	opts.ReadOnly = true
	s = storetest.OpenTally(t, opts)
	if c := s.Status().Cursor; c.Seq != 2 {
		t.Errorf("got position %+v, want sequence 2", c)
	}
	if err := s.Fold(storetest.Follows(3)); !errors.Is(err, projections.ErrStopped) {
		t.Errorf("fold: got error %v, want %v", err, projections.ErrStopped)
	}
	if err := s.Flush(); err != nil {
		t.Errorf("flush: got error %v, want none", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Settings decide what is folded, but not how rows are read. The version decides both.
	opts.Projection = &tally.Tally{Copies: 1}
	if s, err := store.Open(opts); err != nil {
		t.Errorf("other settings: got error %v, want none", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}

	// A store of another version cannot be read.
	opts.Projection = laterVersion{tally.New()}
	if _, err := store.Open(opts); !errors.Is(err, projections.ErrFingerprint) {
		t.Errorf("later version: got error %v, want %v", err, projections.ErrFingerprint)
	}
}

// laterVersion is a later version of a tally.
type laterVersion struct{ *tally.Tally }

func (laterVersion) Version() uint32 { return 2 }

// TestHighestGenerationIsOpened checks that a store without a given generation opens the highest
// one.
func TestHighestGenerationIsOpened(t *testing.T) {
	fs := vfs.NewMem()
	// Generation 0 stands for the highest one, which is 1 in an empty directory, and 3 at the end.
	for _, test := range []struct{ open, want uint32 }{{0, 1}, {3, 3}, {2, 2}, {0, 3}} {
		s := storetest.OpenTally(t, store.Options{FS: fs, Generation: test.open})
		if st := s.Status(); st.Generation != test.want {
			t.Errorf("open generation %d: got %d, want %d", test.open, st.Generation, test.want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	s := storetest.OpenTally(t, store.Options{FS: fs})
	if st := s.Status(); st.Generation != 3 || s.Dir() != "data/tally/000003" {
		t.Errorf("got generation %d in %s, want generation 3 in data/tally/000003", st.Generation, s.Dir())
	}
}
