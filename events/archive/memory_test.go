package archive

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/skein-feed/skein/events/bucket"
)

// memoryBucket is a bucket in memory, because tests with thousands of archives would otherwise wait
// for the disk.
type memoryBucket struct {
	mu      sync.Mutex
	objects map[string][]byte
}

// newMemoryBucket returns an empty bucket.
func newMemoryBucket() *memoryBucket { return &memoryBucket{objects: map[string][]byte{}} }

// String is part of [fmt.Stringer].
func (m *memoryBucket) String() string { return "memory" }

// Put is part of [bucket.Bucket].
func (m *memoryBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if int64(len(data)) != size {
		return fmt.Errorf("%d bytes, not %d", len(data), size)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[name] = data
	return ctx.Err()
}

// Get is part of [bucket.Bucket].
func (m *memoryBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.objects[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", bucket.ErrNotFound, name)
	}
	data = data[min(offset, int64(len(data))):]
	if length >= 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return io.NopCloser(bytes.NewReader(data)), ctx.Err()
}

// List is part of [bucket.Bucket].
func (m *memoryBucket) List(ctx context.Context, prefix string) (objects []bucket.Object, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, data := range m.objects {
		if strings.HasPrefix(name, prefix) {
			objects = append(objects, bucket.Object{Name: name, Size: int64(len(data))})
		}
	}

	slices.SortFunc(objects, func(a, b bucket.Object) int { return strings.Compare(a.Name, b.Name) })
	return objects, ctx.Err()
}

// Delete is part of [bucket.Bucket].
func (m *memoryBucket) Delete(ctx context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return ctx.Err()
}
