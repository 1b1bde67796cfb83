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

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/snapshot"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// memoryBucket is a bucket in memory, whose operations can be made to fail.
type memoryBucket struct {
	mu      sync.Mutex
	objects map[string]object
	// outcomeOf decides how an operation ends. The operations are counted from 0. Nil lets all
	// operations succeed.
	outcomeOf  func(number int, op, name string) outcome
	operations int // so far
}

// object is an object of a bucket.
type object struct {
	data []byte
	time time.Time
}

// outcome is what happens to an operation.
type outcome int

const (
	// success means that the operation is performed.
	success outcome = iota
	// failsBefore means that the operation fails and is not performed.
	failsBefore
	// failsAfter means that the operation fails although it was performed.
	failsAfter
)

var errFault = errors.New("the bucket cannot be reached")

func newMemoryBucket() *memoryBucket { return &memoryBucket{objects: map[string]object{}} }

// clone returns a bucket with the same objects and no faults.
func (m *memoryBucket) clone() *memoryBucket {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memoryBucket{objects: maps.Clone(m.objects)}
}

// setOutcomes makes a function decide how each operation from now on ends.
func (m *memoryBucket) setOutcomes(outcomeOf func(number int, op, name string) outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomeOf = outcomeOf
}

// perform counts an operation and performs it, unless it fails before.
func (m *memoryBucket) perform(ctx context.Context, op, name string, operation func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}

	result := success
	if m.outcomeOf != nil {
		result = m.outcomeOf(m.operations, op, name)
	}
	m.operations++
	if result == failsBefore {
		return errFault
	}

	err := operation()
	if err == nil && result == failsAfter {
		err = errFault
	}
	return err
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

// testProcess is a process with stores and a scheduler of their snapshots.
type testProcess struct {
	fs        store.FS
	stores    []*store.Store
	scheduler *snapshot.Scheduler
}

// newTestProcess opens empty stores of projections, which are closed with the test. Small memtables
// lead to many tables.
func newTestProcess(t *testing.T, b bucket.Bucket, list ...projections.Projection) *testProcess {
	t.Helper()
	return newTestProcessWith(t, snapshot.Options{Bucket: b}, list...)
}

// newTestProcessWith returns a process like [newTestProcess], whose scheduler has these options.
func newTestProcessWith(t *testing.T, o snapshot.Options, list ...projections.Projection) *testProcess {
	t.Helper()
	n := &testProcess{fs: vfs.NewMem()}
	cache := store.NewCache(16 << 20)
	t.Cleanup(cache.Unref)

	var stores []snapshot.Store
	for _, p := range list {
		s, err := store.Open(store.Options{
			FS: n.fs, Dir: "data/stores", Projection: p, Cache: cache,
			Bounds: store.Bounds{BatchBytes: 4 << 10, FlushBytes: 16 << 10},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close %s: got %v, expected no error", p.Name(), err)
			}
		})
		n.stores = append(n.stores, s)
		stores = append(stores, s)
	}

	o.FS = n.fs
	o.Scratch = "data/snapshots"
	o.Stores = func() []snapshot.Store { return stores }
	n.scheduler = snapshot.New(o)
	return n
}

// fold folds the envelopes into all stores.
func (n *testProcess) fold(t *testing.T, envs []*events.Envelope) {
	t.Helper()
	for _, s := range n.stores {
		conformance.Fold(t, s, envs)
	}
}

// mustTake takes a snapshot, and checks that the copies that were made for it are removed.
func (n *testProcess) mustTake(t *testing.T, name string) snapshot.Report {
	t.Helper()
	r, err := n.scheduler.Take(t.Context(), name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if copies, _ := n.fs.List("data/snapshots"); len(copies) > 0 {
		t.Errorf("after the snapshot %s was taken: got the copies %v, expected that they are removed", name, copies)
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

	wantGenerations := 1
	if err != nil {
		wantGenerations = 0
	}
	if names, _ := fs.List("data/" + p.Name()); len(names) != wantGenerations {
		t.Errorf("after the restore returned %v: got the generations %v, expected %d", err, names, wantGenerations)
	}
	return fs, err
}

// mustRestore restores a snapshot and compares its rows with a fold of the log up to its position.
// Then it folds the rest, and compares again.
func mustRestore(
	t *testing.T, b bucket.Bucket, name string, newProjection func() projections.Projection, envs []*events.Envelope,
) {
	t.Helper()
	fs, err := restoreInMemory(t, b, name, newProjection())
	if err != nil {
		t.Fatal(err)
	}
	s := conformance.Open(t, fs, newProjection(), store.Bounds{})
	defer conformance.Close(t, s)

	n := conformance.IndexAfter(envs, s.Cursor())
	if n == 0 {
		t.Errorf("the restored snapshot %q has folded nothing, expected some envelopes", name)
	}
	want := conformance.Straight(t, newProjection(), envs[:n])
	conformance.RowsOf(t, s).MustEqual(t, want, "%s at %d", name, s.Cursor().Seq)

	conformance.Fold(t, s, envs[n:])
	want = conformance.Straight(t, newProjection(), envs)
	conformance.RowsOf(t, s).MustEqual(t, want, "%s after the tail", name)
}

// newGraph is the constructor of the projection graph.
func newGraph() projections.Projection { return graph.New() }

// makeLog returns a log with a history. Its id is logID.
func makeLog(history []events.Event) []*events.Envelope {
	envs := histories.Envelopes(history)
	for _, env := range envs {
		env.Cursor.Log, env.Cursor.Epoch = logID, 1
	}
	return envs
}

var logID = events.LogID{1, 2, 3}

// makeFollows returns a log with n events of the graph.
func makeFollows(n int) []*events.Envelope { return makeLog(histories.Fixed(1, n)) }

// allConstructors returns the constructors of all projections.
func allConstructors() (list []func() projections.Projection) {
	for i := range all.All(all.Settings{}) {
		list = append(list, func() projections.Projection { return all.All(all.Settings{})[i] })
	}
	return list
}
