package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
)

// errCrash is the error of a faultyBucket.
var errCrash = errors.New("crash")

// faultyBucket is a bucket whose operations fail from some operation on, like those of a process
// that has crashed.
type faultyBucket struct {
	bucket.Bucket

	mu sync.Mutex
	// operationsLeft is the number of operations up to and including the first one that fails.
	operationsLeft int
	// failAfterwards is true if the first operation that fails is carried out before it fails.
	failAfterwards bool
}

// nextFault counts an operation. It returns whether the operation fails before it is carried out,
// and whether it fails after that.
func (f *faultyBucket) nextFault() (failBefore, failAfter bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.operationsLeft--
	isFirstFault := f.operationsLeft == 0
	return f.operationsLeft < 0 || isFirstFault && !f.failAfterwards, isFirstFault && f.failAfterwards
}

// run carries out an operation, unless the bucket fails before it.
func (f *faultyBucket) run(op func() error) error {
	failBefore, failAfter := f.nextFault()
	if failBefore {
		return errCrash
	}
	err := op()
	if failAfter {
		return errCrash
	}
	return err
}

// Put is part of [bucket.Bucket].
func (f *faultyBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	return f.run(func() error { return f.Bucket.Put(ctx, name, r, size) })
}

// Get is part of [bucket.Bucket].
func (f *faultyBucket) Get(ctx context.Context, name string, offset, length int64) (r io.ReadCloser, err error) {
	err = f.run(func() error {
		r, err = f.Bucket.Get(ctx, name, offset, length)
		return err
	})
	if errors.Is(err, errCrash) && r != nil {
		r.Close()
		return nil, err
	}
	return r, err
}

// List is part of [bucket.Bucket].
func (f *faultyBucket) List(ctx context.Context, prefix string) (objects []bucket.Object, err error) {
	err = f.run(func() error {
		objects, err = f.Bucket.List(ctx, prefix)
		return err
	})
	return objects, err
}

// Delete is part of [bucket.Bucket].
func (f *faultyBucket) Delete(ctx context.Context, name string) error {
	return f.run(func() error { return f.Bucket.Delete(ctx, name) })
}

// buildHistory returns a small log with both classes, in three parts of four envelopes.
func buildHistory() [][]*events.Envelope {
	part := func(from uint64) (envs []*events.Envelope) {
		for seq := from; seq < from+4; seq++ {
			kind := events.Played
			if seq%2 == 0 {
				kind = events.UserFollowed
			}
			env := newEnvelope(seq, kind, 3)
			env.Events[2].ID = fmt.Sprint("e", seq%3)
			envs = append(envs, env)
		}

		return envs
	}

	return [][]*events.Envelope{part(1), part(5), part(9)}
}

// TestCrashAtEveryOperation tests I3: wherever sealing, beginning an epoch, scrubbing or sweeping is
// interrupted, the archive is in the state before the change or after it.
func TestCrashAtEveryOperation(t *testing.T) {
	parts := buildHistory()
	for name, change := range map[string]func(ctx context.Context, a *Archive) error{
		"seal": func(ctx context.Context, a *Archive) error {
			w := a.Writer()
			if err := w.Add(parts[2]...); err != nil {
				return err
			}
			_, err := w.Seal(ctx)
			return err
		},
		"epoch": func(ctx context.Context, a *Archive) error {
			return a.BeginEpoch(ctx, 2, a.End())
		},
		"scrub": func(ctx context.Context, a *Archive) error {
			_, err := a.Scrub(ctx, func(ev *events.Event) (*events.Event, bool) { return ev, ev.Slot != 1 }, nil, nil)
			return err
		},
		"sweep": func(ctx context.Context, a *Archive) error { return a.Sweep(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, afterwards := range []bool{false, true} {
				for n := 1; ; n++ {
					if crashAt(t, parts[:2], change, n, afterwards) {
						continue
					}
					if n < 3 {
						t.Errorf("operations of the change: got %d, want at least 2", n-1)
					}
					break
				}
			}
		})
	}
}

// describeStoredContent returns the content of an archive, and the event ids that are stored for epoch
// 1 or would be stored for a later epoch, as text.
func describeStoredContent(t *testing.T, a *Archive) string {
	t.Helper()
	repeats, err := a.Repeats(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return describeArchive(t, a, repeats)
}

// crashAt interrupts a change before its nth operation, or after it if afterwards is true. It returns
// false if the change has fewer operations. In both cases the archive must then be in the state before
// the change or after it, and a change that was lost must succeed when it is repeated.
func crashAt(t *testing.T, before [][]*events.Envelope, change func(context.Context, *Archive) error, n int, afterwards bool) bool {
	t.Helper()
	ctx := t.Context()

	// The model shows the content before the change and after it.
	model := mustOpen(t, newMemoryBucket())
	mustSeal(t, model, before...)
	oldContent := describeStoredContent(t, model)
	if err := change(ctx, model); err != nil {
		t.Fatal(err)
	}
	newContent := describeStoredContent(t, model)

	b := newMemoryBucket()
	mustSeal(t, mustOpen(t, b), before...)
	faulty := &faultyBucket{Bucket: b, operationsLeft: 1 << 30}
	a := mustOpen(t, faulty)
	faulty.operationsLeft, faulty.failAfterwards = n, afterwards
	err := change(ctx, a)
	crashed := err != nil
	if crashed && !errors.Is(err, errCrash) {
		t.Fatalf("crash at operation %d: got error %v, want %v", n, err, errCrash)
	}

	a = mustOpen(t, b)
	content := describeStoredContent(t, a)
	if content != newContent && (!crashed || content != oldContent) {
		t.Fatalf("crash at operation %d (after it: %v): content (-want +got):\n%s", n, afterwards, cmp.Diff(newContent, content))
	}
	if err := a.Check(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Sweep(ctx); err != nil {
		t.Fatal(err)
	}

	// The process that crashed repeats the change after its restart.
	if content == oldContent && oldContent != newContent {
		if err := change(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	if got := describeStoredContent(t, mustOpen(t, b)); got != newContent {
		t.Fatalf("change repeated after a crash at operation %d: content (-want +got):\n%s", n, cmp.Diff(newContent, got))
	}
	return crashed
}

// TestDamagedObjectIsNamed checks that a flipped bit anywhere in an object, a truncated object and a
// missing object are all found by a check, which names the object, and by reading.
func TestDamagedObjectIsNamed(t *testing.T) {
	ctx := t.Context()
	b := newMemoryBucket()
	a := mustOpen(t, b)
	mustSeal(t, a, buildHistory()...)
	if err := a.BeginEpoch(ctx, 2, a.End()); err != nil {
		t.Fatal(err)
	}
	objects, err := b.List(ctx, "")
	if err != nil || len(objects) != 8 {
		t.Fatalf("objects: got %d and error %v, want 8", len(objects), err)
	}

	for _, o := range objects {
		whole, err := readObject(ctx, b, o.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		write := func(data []byte) {
			if err := b.Put(ctx, o.Name, bytes.NewReader(data), int64(len(data))); err != nil {
				t.Fatal(err)
			}
		}

		for i := range whole {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << (i % 8)
			write(flipped)
			checkDamage(t, a, o.Name, fmt.Sprintf("flipped byte %d of %d", i, len(whole)))
		}

		write(whole[:len(whole)-1])
		checkDamage(t, a, o.Name, "truncated")
		if o.Name != ManifestName {
			if err := b.Delete(ctx, o.Name); err != nil {
				t.Fatal(err)
			}
			checkDamage(t, a, o.Name, "missing")
		}

		write(whole) // the object is as before
	}

	if err := a.Check(ctx, nil); err != nil {
		t.Error(err)
	}
}

// TestBytesAfterSegmentAreReported appends bytes to each segment. A check names the segment, and
// the log can still be read.
func TestBytesAfterSegmentAreReported(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	mustSeal(t, a, buildHistory()...)
	for _, s := range a.currentManifest().segments {
		whole, err := readObject(t.Context(), b, s.name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		longer := append(bytes.Clone(whole), "more"...)
		if err := b.Put(t.Context(), s.name, bytes.NewReader(longer), int64(len(longer))); err != nil {
			t.Fatal(err)
		}

		// The check names the segment, but reading does not need the bytes after it.
		err = a.Check(t.Context(), nil)
		want := fmt.Sprintf("bytes follow its end, at byte %d", s.bytes)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), s.name) || !strings.Contains(err.Error(), want) {
			t.Errorf("check of %s: got error %v, want %v with the name and %q", s.name, err, ErrDamaged, want)
		}
		if err := a.CheckReadable(t.Context(), nil); err != nil {
			t.Errorf("check that %s can be read: got error %v, want none", s.name, err)
		}

		if err := b.Put(t.Context(), s.name, bytes.NewReader(whole), int64(len(whole))); err != nil {
			t.Fatal(err)
		}
	}

	if err := a.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// checkDamage checks that a check names the damaged object, and that reading fails.
func checkDamage(t *testing.T, a *Archive, name, what string) {
	t.Helper()

	// A flipped byte in the version may make it a newer version.
	isDamage := func(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrVersion) }

	err := a.Check(t.Context(), nil)
	if !isDamage(err) || !strings.Contains(err.Error(), name) {
		t.Fatalf("%s: %s: check: got error %v, want damage of this object", name, what, err)
	}
	if name == ManifestName {
		return
	}

	_, err = readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1<<20)
	if _, repeatsErr := a.Repeats(t.Context(), 1); !isDamage(err) && !isDamage(repeatsErr) {
		t.Fatalf("%s: %s: read: got errors %v and %v, want damage", name, what, err, repeatsErr)
	}
}
