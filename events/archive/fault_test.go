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

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
)

var errCrash = errors.New("crash")

// faultyBucket is a bucket that fails at its nth operation and ever after, before it or when it was done.
type faultyBucket struct {
	bucket.Bucket

	mu    sync.Mutex
	left  int
	after bool
}

// fails counts an operation. late: it fails when it was done.
func (f *faultyBucket) nextFault() (now, late bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	return f.left < 0 || f.left == 0 && !f.after, f.left == 0 && f.after
}

func (f *faultyBucket) run(op func() error) error {
	now, late := f.nextFault()
	if now {
		return errCrash
	}
	err := op()
	if late {
		return errCrash
	}
	return err
}

func (f *faultyBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	return f.run(func() error { return f.Bucket.Put(ctx, name, r, size) })
}

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

func (f *faultyBucket) List(ctx context.Context, prefix string) (objects []bucket.Object, err error) {
	err = f.run(func() error {
		objects, err = f.Bucket.List(ctx, prefix)
		return err
	})
	return objects, err
}

func (f *faultyBucket) Delete(ctx context.Context, name string) error {
	return f.run(func() error { return f.Bucket.Delete(ctx, name) })
}

// history is a small log of both classes in three parts.
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

// I3: wherever sealing, a new epoch, scrubbing or sweeping is interrupted, the archive is whole: what it was, or what it was to be.
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
			for _, after := range []bool{false, true} {
				for n := 1; ; n++ {
					if !crashAt(t, parts[:2], change, n, after) {
						if n < 3 {
							t.Errorf("it made %d operations", n)
						}
						break
					}
				}
			}
		})
	}
}

// crashAt interrupts a change at its nth operation, and returns false if it has fewer. Afterwards the archive must be in the state before
// the change or after it, and the repeated change must succeed.
func crashAt(t *testing.T, before [][]*events.Envelope, change func(context.Context, *Archive) error, n int, after bool) bool {
	t.Helper()
	ctx := t.Context()
	content := func(a *Archive) string {
		envs, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1<<20) //nolint:contextcheck // of the test
		if err != nil {
			t.Fatalf("operation %d: %v", n, err)
		}
		repeats, err := a.Repeats(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		fmt.Fprintln(&text, a.End(), a.Epoch(), a.Predecessors(), repeats)
		for _, env := range envs {
			fmt.Fprintln(&text, *env)
		}
		return text.String()
	}
	model := mustOpen(t, newMemoryBucket())
	mustSeal(t, model, before...)
	was := content(model)
	if err := change(ctx, model); err != nil {
		t.Fatal(err)
	}
	is := content(model)

	b := newMemoryBucket()
	mustSeal(t, mustOpen(t, b), before...)
	faulty := &faultyBucket{Bucket: b, left: 1 << 30}
	a := mustOpen(t, faulty)
	faulty.left, faulty.after = n, after
	err := change(ctx, a)
	crashed := err != nil
	if crashed && !errors.Is(err, errCrash) {
		t.Fatalf("operation %d: %v", n, err)
	}
	a = mustOpen(t, b)
	now := content(a)
	if now != was && now != is || !crashed && now != is {
		t.Fatalf("operation %d (after: %v): the archive holds\n%s", n, after, now)
	}
	if err := a.Check(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if now == was && was != is {
		if err := change(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(mustOpen(t, b)); got != is {
		t.Fatalf("operation %d: once more, the archive holds\n%s", n, got)
	}
	return crashed
}

// A flipped bit anywhere, a missing or a cut object is found by reading as well as by checking, and named.
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
		t.Fatal(len(objects), err)
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
		checkDamage(t, a, o.Name, "cut")
		if o.Name != ManifestName {
			if err := b.Delete(ctx, o.Name); err != nil {
				t.Fatal(err)
			}
			checkDamage(t, a, o.Name, "missing")
		}
		write(whole)
	}
	if err := a.Check(ctx, nil); err != nil {
		t.Error(err)
	}
}

// TestBytesAfterSegmentAreReported appends to each segment. A check names it, and the log can still be read.
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
		err = a.Check(t.Context(), nil)
		if expected := fmt.Sprintf("bytes follow its end, at byte %d", s.bytes); !errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), s.name) || !strings.Contains(err.Error(), expected) {
			t.Errorf("check of %s: %v, expected %q", s.name, err, expected)
		}
		if err := a.CheckReadable(t.Context(), nil); err != nil {
			t.Errorf("%s can be read: %v", s.name, err)
		}
		if err := b.Put(t.Context(), s.name, bytes.NewReader(whole), int64(len(whole))); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func checkDamage(t *testing.T, a *Archive, name, what string) {
	t.Helper()
	// A byte of a version may be that of a newer one.
	found := func(err error) bool { return errors.Is(err, ErrDamaged) || errors.Is(err, ErrVersion) }
	err := a.Check(t.Context(), nil)
	if !found(err) || !strings.Contains(err.Error(), name) {
		t.Fatalf("%s: %s: check says %v", name, what, err)
	}
	if name == ManifestName {
		return
	}
	_, err = readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1<<20)
	if _, err2 := a.Repeats(t.Context(), 1); !found(err) && !found(err2) {
		t.Fatalf("%s: %s: reading says %v, %v", name, what, err, err2)
	}
}
