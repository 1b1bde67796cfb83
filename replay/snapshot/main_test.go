package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryBucket is a bucket in memory, whose operations can be made to fail.
type memoryBucket struct {
	mu      sync.Mutex
	objects map[string]object
	// fault is asked before each operation, with its number from 0 on.
	fault func(n int, op, name string) outcome
	n     int
}

type object struct {
	data []byte
	time time.Time
}

// outcome is what happens to an operation.
type outcome int

const (
	done outcome = iota
	// undone: it fails, and nothing has happened.
	undone
	// unknown: it fails, but it has happened.
	unknown
)

var errFault = errors.New("the bucket cannot be reached")

func newMemoryBucket() *memoryBucket { return &memoryBucket{objects: map[string]object{}} }

// clone returns a bucket with the same objects and no faults.
func (m *memoryBucket) clone() *memoryBucket {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memoryBucket{objects: maps.Clone(m.objects)}
}

// setOutcomes makes f decide how each operation from now on ends.
func (m *memoryBucket) setOutcomes(f func(n int, op, name string) outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

func (m *memoryBucket) perform(ctx context.Context, op, name string, f func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	out := done
	if m.fault != nil {
		out = m.fault(m.n, op, name)
	}
	m.n++
	if out == undone {
		return errFault
	}
	if err := f(); err != nil || out == done {
		return err
	}
	return errFault
}

// Put and the next four methods implement bucket.Bucket.
func (m *memoryBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if int64(len(data)) != size {
		return fmt.Errorf("%d bytes instead of %d", len(data), size)
	}
	return m.perform(ctx, "put", name, func() error {
		m.objects[name] = object{data, time.Now()}
		return nil
	})
}

func (m *memoryBucket) Get(ctx context.Context, name string, offset, length int64) (r io.ReadCloser, err error) {
	err = m.perform(ctx, "get", name, func() error {
		o, ok := m.objects[name]
		if !ok {
			return bucket.ErrNotFound
		}
		data := o.data[offset:]
		if length >= 0 {
			data = data[:length]
		}
		r = io.NopCloser(bytes.NewReader(data))
		return nil
	})
	return r, err
}

func (m *memoryBucket) List(ctx context.Context, prefix string) (list []bucket.Object, err error) {
	err = m.perform(ctx, "list", prefix, func() error {
		for _, name := range slices.Sorted(maps.Keys(m.objects)) {
			if strings.HasPrefix(name, prefix) {
				o := m.objects[name]
				list = append(list, bucket.Object{Name: name, Size: int64(len(o.data)), Time: o.time})
			}
		}
		return nil
	})
	return list, err
}

func (m *memoryBucket) Delete(ctx context.Context, name string) error {
	return m.perform(ctx, "delete", name, func() error {
		delete(m.objects, name)
		return nil
	})
}

func (m *memoryBucket) String() string { return "memory" }

// objectNames returns the names of the objects with a prefix.
func (m *memoryBucket) objectNames(prefix string) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// testProcess is a process with stores and a keeper of snapshots.
type testProcess struct {
	fs     store.FS
	stores []*store.Store
	keeper *snapshot.Scheduler
}

// newTestProcess opens empty stores of projections, which are closed with the test. Small memtables
// lead to many tables.
func newTestProcess(t *testing.T, b bucket.Bucket, list ...projections.Projection) *testProcess {
	t.Helper()
	return newTestProcessWith(t, snapshot.Options{Bucket: b}, list...)
}

func newTestProcessWith(t *testing.T, o snapshot.Options, list ...projections.Projection) *testProcess {
	t.Helper()
	n := &testProcess{fs: vfs.NewMem()}
	cache := store.NewCache(16 << 20)
	t.Cleanup(cache.Unref)
	var stores []snapshot.Store
	for _, p := range list {
		s, err := store.Open(store.Options{
			FS: n.fs, Dir: "data/stores", Projection: p, Cache: cache, Bounds: store.Bounds{BatchBytes: 4 << 10, FlushBytes: 16 << 10},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		n.stores, stores = append(n.stores, s), append(stores, s)
	}
	o.FS, o.Scratch, o.Stores = n.fs, "data/snapshots", func() []snapshot.Store { return stores }
	n.keeper = snapshot.New(o)
	return n
}

func (n *testProcess) fold(t *testing.T, envs []*events.Envelope) {
	t.Helper()
	for _, s := range n.stores {
		conformance.Fold(t, s, envs)
	}
}

// take takes a snapshot, which must succeed.
func (n *testProcess) take(t *testing.T, name string) snapshot.Report {
	t.Helper()
	r, err := n.keeper.Take(t.Context(), name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := n.fs.List("data/snapshots"); len(left) > 0 {
		t.Errorf("copies are left: %v", left)
	}
	return r
}

// restoreInMemory restores into an empty file system. If it fails, it checks that nothing is left
// behind.
func restoreInMemory(t *testing.T, b bucket.Bucket, name string, p projections.Projection) (store.FS, error) {
	t.Helper()
	fs := vfs.NewMem()
	_, err := snapshot.Restore(t.Context(), snapshot.RestoreOptions{
		Bucket: b, Snapshot: name, Projection: p, FS: fs, Dir: "data",
	})
	left, _ := fs.List("data/" + p.Name())
	if want := map[bool]int{true: 0, false: 1}[err != nil]; len(left) != want {
		t.Errorf("restored with the error %v: there is %v", err, left)
	}
	return fs, err
}

// mustRestore restores a snapshot and compares its rows with a fold of the log up to its position.
// Then it folds the rest, and compares again.
func mustRestore(t *testing.T, b bucket.Bucket, name string, p func() projections.Projection, envs []*events.Envelope) {
	t.Helper()
	fs, err := restoreInMemory(t, b, name, p())
	if err != nil {
		t.Fatal(err)
	}
	s := conformance.Open(t, fs, p(), store.Bounds{})
	defer conformance.Close(t, s)
	n := conformance.IndexAfter(envs, s.Cursor())
	if n == 0 {
		t.Errorf("%s is at the beginning", name)
	}
	conformance.RowsOf(t, s).MustEqual(t, conformance.Straight(t, p(), envs[:n]), "%s at %d", name, s.Cursor().Seq)
	conformance.Fold(t, s, envs[n:])
	conformance.RowsOf(t, s).MustEqual(t, conformance.Straight(t, p(), envs), "%s after the tail", name)
}

func newGraph() projections.Projection { return graph.New() }

// makeLog returns a log with a history.
func makeLog(history []events.Event) []*events.Envelope {
	envs := histories.Envelopes(history)
	for _, env := range envs {
		env.Cursor.Log, env.Cursor.Epoch = logID, 1
	}
	return envs
}

var logID = events.LogID{1, 2, 3}

func follows(n int) []*events.Envelope { return makeLog(histories.Fixed(1, n)) }

// allConstructors returns the constructors of all projections.
func allConstructors() (list []func() projections.Projection) {
	for i := range all.All(all.Settings{}) {
		list = append(list, func() projections.Projection { return all.All(all.Settings{})[i] })
	}
	return list
}
