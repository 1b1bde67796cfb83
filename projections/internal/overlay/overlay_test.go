package overlay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
)

// silentLogger is a logger of Pebble that logs nothing.
type silentLogger struct{}

func (silentLogger) Infof(string, ...any)  {}
func (silentLogger) Errorf(string, ...any) {}
func (silentLogger) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// joinValues concatenates values, so that the result shows the order in which they were merged.
func joinValues(dst, _ []byte, values [][]byte) ([]byte, error) {
	return append(dst, bytes.Join(values, nil)...), nil
}

// joinMerger is joinValues in the form that Pebble uses.
type joinMerger struct{ value []byte }

func (j *joinMerger) MergeNewer(value []byte) error {
	j.value = append(j.value, value...)
	return nil
}

func (j *joinMerger) MergeOlder(value []byte) error {
	j.value = append(bytes.Clone(value), j.value...)
	return nil
}

func (j *joinMerger) Finish(bool) ([]byte, io.Closer, error) { return j.value, nil, nil }

// openTestDB opens a database in memory as a store does.
func openTestDB(t testing.TB) *pebble.DB {
	t.Helper()
	db, err := pebble.Open("db", &pebble.Options{
		FS: vfs.NewMem(), DisableWAL: true, FormatMajorVersion: pebble.FormatNewest, MemTableSize: 32 << 20,
		CacheSize: 256 << 20, Logger: silentLogger{},
		Merger: &pebble.Merger{Name: "join", Merge: func(_, value []byte) (pebble.ValueMerger, error) {
			return &joinMerger{bytes.Clone(value)}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// appendPrefix appends a shard and a tag.
func appendPrefix(dst []byte, shard events.Shard, tag byte) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(shard)), tag)
}

// newTestKeys returns keys under few prefixes, some of them prefixes of others.
func newTestKeys(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = append(appendPrefix(nil, events.Shard(i%3), byte(0x10+i%2)), fmt.Sprint(i)...)
	}
	return keys
}

// TestOverlayShowsWhatBatchShows performs the same random operations on an overlay and on an
// indexed batch of Pebble, and compares what they show.
func TestOverlayShowsWhatBatchShows(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		db := openTestDB(t)
		want := openTestDB(t)
		batch := want.NewIndexedBatch()
		var o Overlay
		o.Init(db, r.IntN(3)*5000, joinValues)
		var flushing []<-chan struct{}
		keys := newTestKeys(40 + r.IntN(200))
		key := func() []byte { return keys[r.IntN(len(keys))] }

		for step := range 3000 {
			switch r.IntN(20) {
			default:
				k := key()
				got, ok, err := o.Get(k)
				value, closer, wantErr := batch.Get(k)
				if err != nil || ok != (wantErr == nil) || !bytes.Equal(got, value) {
					t.Fatalf("seed %d, step %d: get %x: got %x, a row: %v, error %v, want %x, error %v",
						seed, step, k, got, ok, err, value, wantErr)
				}
				if wantErr == nil {
					_ = closer.Close()
				}
			case 0, 1, 2, 3, 4, 5:
				k := key()
				value := bytes.Repeat([]byte{byte(r.IntN(3))}, r.IntN(40)*r.IntN(2)*r.IntN(60))
				o.Set(k, value)
				_ = batch.Set(k, value, nil)
			case 6, 7, 8, 9:
				k := key()
				o.Delete(k)
				_ = batch.Delete(k, nil)
			case 12, 13, 14:
				k := key()
				value := fmt.Appendf(nil, "%04d.", step)[:r.IntN(6)]
				o.Merge(k, value)
				_ = batch.Merge(k, value, nil)
			case 15:
				if r.IntN(10) > 0 {
					continue
				}
				lower, upper := key(), key()
				if bytes.Compare(lower, upper) > 0 {
					lower, upper = upper, lower
				}
				o.DeleteRange(lower, upper)
				_ = batch.DeleteRange(lower, upper, nil)
			case 10:
				lower, upper := key(), key()
				if r.IntN(2) == 0 {
					lower = lower[:PrefixLen]
					upper = PrefixEnd(lower)
				}
				compareScans(t, &o, batch, lower, upper, key())
			case 11:
				if r.IntN(5) > 0 {
					continue
				}
				if err := o.Commit(); err != nil {
					t.Fatal(err)
				}
				if o.dirtyBytes != 0 || len(o.dirty) != 0 || (o.Memory() > o.maxCleanBytes && len(o.rows) > 0) {
					t.Fatalf("after a commit: got %d dirty rows of %d bytes and %d bytes in memory, want 0, 0 and at most %d",
						len(o.dirty), o.dirtyBytes, o.Memory(), o.maxCleanBytes)
				}
				if err := want.Apply(batch, pebble.NoSync); err != nil {
					t.Fatal(err)
				}
				batch = want.NewIndexedBatch()

				// The database may change between commits, and a flush may end.
				switch r.IntN(6) {
				case 0, 1:
					flushed := beginFlush(t, &o)
					flushing = append(flushing, flushed)
					if r.IntN(2) == 0 {
						<-flushed
					}
				case 2: // a flush that Pebble begins by itself, because a memtable is full
					if err := errors.Join(db.Flush(), want.Flush()); err != nil {
						t.Fatal(err)
					}
				case 3: // a repair
					k := key()
					if err := errors.Join(db.Set(k, k, pebble.NoSync), want.Set(k, k, pebble.NoSync)); err != nil {
						t.Fatal(err)
					}
					o.DatabaseChanged()
				}
				if n := len(flushing); n > 0 && r.IntN(2) == 0 {
					<-flushing[n-1]
					flushing = nil
					o.FlushEnded()
				}
			}
		}
		compareScans(t, &o, batch, nil, nil, key())
		o.Close()
		if err := batch.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyRowsAreInOrder checks that an iterator over all rows has them in the order of their keys
// if they are so many that they are first sorted by shard, and that two commits write them.
func TestManyRowsAreInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	db := openTestDB(t)
	want := openTestDB(t)
	var o Overlay
	o.Init(db, 0, joinValues)
	defer o.Close()

	// The second commit sorts fewer rows in the memory of the first one.
	for _, n := range []int{5000, 2000} {
		batch := want.NewIndexedBatch()
		for range n {
			key := appendPrefix(nil, events.Shard(r.IntN(1<<16)>>r.IntN(12)), byte(0x10+r.IntN(3)))
			key = fmt.Append(key, r.IntN(100))
			value := fmt.Append(nil, r.IntN(1000))
			o.Set(key, value)
			_ = batch.Set(key, value, nil)
		}
		compareScans(t, &o, batch, nil, nil, appendPrefix(nil, 1<<10, 0x11))

		if err := errors.Join(o.Commit(), want.Apply(batch, pebble.NoSync)); err != nil {
			t.Fatal(err)
		}
		batch = want.NewIndexedBatch()
		compareScans(t, &o, batch, nil, nil, appendPrefix(nil, 1<<10, 0x11))
		if err := batch.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// beginFlush starts a flush as a store does, and returns the channel that is closed at its end.
func beginFlush(t *testing.T, o *Overlay) <-chan struct{} {
	t.Helper()
	o.BeforeFlush()
	flushed, err := o.db.AsyncFlush()
	if err != nil {
		t.Fatal(err)
	}
	o.FlushStarted()
	return flushed
}

// compareScans compares an iterator of an overlay with one of a batch, from the first row on and
// after a seek.
func compareScans(t *testing.T, o *Overlay, batch *pebble.Batch, lower, upper, from []byte) {
	t.Helper()
	if upper != nil && bytes.Compare(lower, upper) > 0 {
		lower, upper = upper, lower
	}
	var scans Scans
	it := o.Iter(lower, upper, &scans)
	want, err := batch.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		t.Fatal(err)
	}

	compareRow := func(move string, ok, wantOK bool) {
		t.Helper()
		if ok != wantOK {
			t.Fatalf("%s in %x–%x: got a row: %v, want a row: %v with key %x", move, lower, upper, ok, wantOK, want.Key())
		}
		if ok && (!bytes.Equal(it.Key(), want.Key()) || !bytes.Equal(it.Value(), want.Value())) {
			t.Fatalf("%s in %x–%x: got the row %x = %x, want %x = %x",
				move, lower, upper, it.Key(), it.Value(), want.Key(), want.Value())
		}
	}

	compareRow("first", it.Next(), want.First())
	for want.Valid() {
		compareRow("next", it.Next(), want.Next())
	}
	compareRow("seek", it.SeekGE(from), want.SeekGE(from))
	for want.Valid() {
		compareRow("next after seek", it.Next(), want.Next())
	}

	if err := errors.Join(it.Close(), want.Close()); err != nil || scans.Open() != 0 {
		t.Fatalf("close: got error %v and %d open iterators, want none", err, scans.Open())
	}
}

// TestUnchangedRowsAreNotWritten checks that a row that changes back and forth is written once, and
// that a row that is created and deleted, or set to the value that it has, is not written.
func TestUnchangedRowsAreNotWritten(t *testing.T) {
	db := openTestDB(t)
	var o Overlay
	o.Init(db, 1<<20, nil)
	defer o.Close()
	keys := newTestKeys(4)

	o.Set(keys[0], []byte("same"))
	if err := o.Commit(); err != nil {
		t.Fatal(err)
	}

	// From now on, the overlay knows that this row does not exist.
	if _, ok, err := o.Get(keys[2]); ok || err != nil {
		t.Fatalf("missing row: got a row: %v, error %v, want neither", ok, err)
	}

	o.Set(keys[0], []byte("same"))
	for i := range 100 {
		o.Set(keys[1], []byte(fmt.Sprint(i)))
		o.Set(keys[2], []byte("here"))
		o.Delete(keys[2])
	}

	if len(o.dirty) != 2 || o.dirtyBytes != 2*nodeBytes+len(keys[1])+len("99")+len(keys[2]) {
		t.Errorf("got %d dirty rows of %d bytes, want the two rows that were set and deleted", len(o.dirty), o.dirtyBytes)
	}

	if err := o.Commit(); err != nil {
		t.Fatal(err)
	}
	if n := o.batch.Count(); n != 1 {
		t.Errorf("got %d rows written by the commit, want 1", n)
	}
}

// BenchmarkOverlay writes as a fold does: it looks up a row that mostly does not exist and writes
// it, and increments one of several counts. It compares the overlay with an indexed batch of
// Pebble.
func BenchmarkOverlay(b *testing.B) {
	const commitEvery = 20_000
	edge := func(dst []byte, r *rand.Rand) []byte {
		return fmt.Appendf(appendPrefix(dst, events.Shard(r.IntN(events.NumShards)), 0x10), "%016x", r.Uint64())
	}
	count := func(dst []byte, r *rand.Rand) []byte {
		n := r.IntN(50_000)
		return fmt.Appendf(appendPrefix(dst, events.Shard(n%events.NumShards), 0x11), "%08d", n)
	}

	value := make([]byte, 8)
	b.Run("overlay", func(b *testing.B) {
		var o Overlay
		o.Init(openTestDB(b), 4<<20, nil)
		r := rand.New(rand.NewPCG(1, 1))
		var k1, k2 []byte
		for i := range b.N {
			k1, k2 = edge(k1[:0], r), count(k2[:0], r)
			for _, k := range [][]byte{k1, k2} {
				if _, _, err := o.Get(k); err != nil {
					b.Fatal(err)
				}
				value[0]++
				o.Set(k, value)
			}
			if i%commitEvery == 0 {
				if err := o.Commit(); err != nil {
					b.Fatal(err)
				}
			}
		}
		o.Close()
	})
	b.Run("indexed batch", func(b *testing.B) {
		db := openTestDB(b)
		batch := db.NewIndexedBatch()
		r := rand.New(rand.NewPCG(1, 1))
		var k1, k2 []byte
		for i := range b.N {
			k1, k2 = edge(k1[:0], r), count(k2[:0], r)
			for _, k := range [][]byte{k1, k2} {
				if _, closer, err := batch.Get(k); err == nil {
					_ = closer.Close()
				} else if !errors.Is(err, pebble.ErrNotFound) {
					b.Fatal(err)
				}
				value[0]++
				_ = batch.Set(k, value, nil)
			}
			if i%commitEvery == 0 {
				if err := db.Apply(batch, pebble.NoSync); err != nil {
					b.Fatal(err)
				}
				batch = db.NewIndexedBatch()
			}
		}
		_ = batch.Close()
	})
}

// TestReadRowsStayInMemory checks that rows that were read stay in memory while there is space,
// however many others are written, and that those that were read last stay if there is not.
func TestReadRowsStayInMemory(t *testing.T) {
	const rowCount = 1000
	key := func(tag byte, i int) []byte { return fmt.Appendf(appendPrefix(nil, 1, tag), "%08d", i) }
	for _, test := range []struct {
		name          string
		maxCleanBytes int
		// wantAll and wantNone say whether all or none of the rows that were read first must still
		// be in memory.
		wantAll, wantNone bool
	}{
		{"enough space", 1 << 20, true, false},
		{"too little space", 100 << 10, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var o Overlay
			o.Init(openTestDB(t), test.maxCleanBytes, joinValues)
			defer o.Close()
			written := 0
			write := func(n int) {
				for range n {
					o.Set(key(0x10, written), []byte("value"))
					written++
					if o.Size() > 50<<10 {
						if err := o.Commit(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := o.Commit(); err != nil {
					t.Fatal(err)
				}
			}

			// readRows reads rows and returns how many of them were not in memory.
			readRows := func(from, to int) uint64 {
				var n uint64
				for i := from; i < to; i++ {
					if row, _ := o.findRow(key(0x11, i), xxh3.Hash(key(0x11, i))); row < 0 {
						n++
					}
					if _, ok, err := o.Get(key(0x11, i)); err != nil || !ok {
						t.Fatalf("row %d: got a row: %v, error %v, want the row", i, ok, err)
					}
				}
				return n
			}

			for i := range 2 * rowCount {
				o.Set(key(0x11, i), []byte("value"))
			}
			if err := o.Commit(); err != nil {
				t.Fatal(err)
			}

			// The rows that are read first stay in memory, or not, while many others are written.
			o.Reset()
			readRows(0, rowCount)
			write(200_000)
			if n := readRows(0, rowCount); (n == 0) != test.wantAll || (n == rowCount) != test.wantNone {
				t.Errorf("got %d of %d rows that were not in memory, want none: %v, want all: %v",
					n, rowCount, test.wantAll, test.wantNone)
			}

			write(20_000)
			readRows(rowCount, rowCount+200)
			write(20_000)
			if n := readRows(rowCount, rowCount+200); n != 0 {
				t.Errorf("got %d of the 200 rows that were read last not in memory, want 0", n)
			}
		})
	}
}
