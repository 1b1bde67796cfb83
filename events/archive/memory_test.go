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

// memoryBucket is a bucket in memory: tests with thousands of archives would wait for the disk else.
type memoryBucket struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func newMemoryBucket() *memoryBucket { return &memoryBucket{objects: map[string][]byte{}} }

func (m *memoryBucket) String() string { return "memory" }

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

func (m *memoryBucket) Delete(ctx context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return ctx.Err()
}
