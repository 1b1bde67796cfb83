package workload

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// BenchStore is a store on disk, and folds events into it without a log. It makes the envelopes
// itself, and decodes them as a reader of the log does.
type BenchStore struct {
	dir   string
	cache *store.Cache
	Store *store.Store
	// newProjection makes the projection whose rows the store has. Each opening of the store needs
	// a new one.
	newProjection func() projections.Projection

	decoder *events.Decoder
	// startTime is the log time from which envelopes count.
	startTime events.Micros
	// seq is the sequence of the last envelope that was decoded.
	seq uint64
}

// OpenGraphStore opens an empty store of the projection graph, in a new directory below parent.
func OpenGraphStore(parent string) (*BenchStore, error) {
	return OpenStore(parent, FirstFollow, func() projections.Projection { return graph.New() })
}

// OpenStore opens an empty store of a projection, in a new directory below parent. The envelopes
// count their times from begin.
func OpenStore(parent string, begin events.Micros, newProjection func() projections.Projection) (*BenchStore, error) {
	dir, err := os.MkdirTemp(parent, "store-")
	if err != nil {
		return nil, err
	}
	f := &BenchStore{
		dir:           dir,
		cache:         store.NewCache(CacheBytes),
		newProjection: newProjection,
		decoder:       events.NewDecoder(events.Cursor{}),
		startTime:     begin,
	}
	if err := f.open(); err != nil {
		f.cache.Unref()
		return nil, err
	}
	return f, nil
}

// open opens the store in the directory of the folder.
func (f *BenchStore) open() (err error) {
	f.Store, err = store.Open(store.Options{Dir: f.dir, Projection: f.newProjection(), Cache: f.cache})
	return err
}

// ReopenStore opens a store that a service has closed. The next envelope follows the last one that
// the service has folded.
func ReopenStore(dir string, newProjection func() projections.Projection) (*BenchStore, error) {
	f := &BenchStore{dir: dir, cache: store.NewCache(CacheBytes), newProjection: newProjection}
	if err := f.open(); err != nil {
		f.cache.Unref()
		return nil, err
	}
	view, err := f.Store.View()
	if err != nil {
		return nil, errors.Join(err, f.CloseAndKeepFiles())
	}
	cursor := view.Cursor()
	// The decoder would first want the envelopes since WarmSeq, to know the event ids in them.
	// There is no log that has them, and no event here has an id.
	cursor.WarmSeq = 0
	cursor.WarmTime = 0
	f.decoder = events.NewDecoder(cursor)
	f.seq = cursor.Seq
	f.startTime = cursor.LastTime
	return f, view.Close()
}

// BytesAfterClose returns the size of the files of the store. It closes the store before, so that
// flushes and compactions in the background have ended, and opens it again.
func (f *BenchStore) BytesAfterClose() (bytes int64, err error) {
	if err := f.Store.Close(); err != nil {
		return 0, err
	}
	bytes, err = f.diskBytes()
	if err != nil {
		return 0, err
	}
	return bytes, f.open()
}

// CompactedBytes compacts the store, so that all rows are in its last level, and returns the size
// of its files.
func (f *BenchStore) CompactedBytes(ctx context.Context) (bytes int64, err error) {
	if err := f.Store.Compact(ctx); err != nil {
		return 0, err
	}
	return f.BytesAfterClose()
}

// CloseAndRemove closes the store and removes its files.
func (f *BenchStore) CloseAndRemove() error {
	return errors.Join(f.CloseAndKeepFiles(), os.RemoveAll(f.dir))
}

// CloseAndKeepFiles closes the store and keeps its files.
func (f *BenchStore) CloseAndKeepFiles() error {
	err := f.Store.Close()
	f.cache.Unref()
	return err
}

// NextEnvelope makes the next envelope from events. Its time is a millisecond after that of the
// envelope before.
func (f *BenchStore) NextEnvelope(evs []*skeinv1.Event) (*events.Envelope, error) {
	data, err := events.EncodeEnvelope(evs)
	if err != nil {
		return nil, err
	}
	return f.DecodeNext(f.startTime+events.Micros(f.seq+1)*1000, data)
}

// DecodeNext decodes the next envelope, which the log would have taken at the time stamp.
func (f *BenchStore) DecodeNext(stamp events.Micros, data []byte) (*events.Envelope, error) {
	f.seq++
	return f.decoder.Decode(f.seq, stamp, data)
}

// FoldEvents folds n events in full envelopes, several envelopes at a time, and then flushes the
// store to disk. The function event returns the i-th event.
func (f *BenchStore) FoldEvents(n int, event func(i int) *skeinv1.Event) error {
	const envelopesPerFold = 10
	var (
		evs  []*skeinv1.Event
		envs []*events.Envelope
	)
	for i := range n {
		evs = append(evs, event(i))
		isLast := i == n-1
		if len(evs) < events.MaxEnvelopeEvents && !isLast {
			continue
		}

		env, err := f.NextEnvelope(evs)
		if err != nil {
			return err
		}
		evs = evs[:0]
		envs = append(envs, env)
		if len(envs) < envelopesPerFold && !isLast {
			continue
		}

		if err := f.Store.Fold(envs); err != nil {
			return err
		}
		envs = envs[:0]
	}
	return f.Store.Flush()
}

// FoldGraph folds the follows of a graph as live events. The function id gives users their ids.
func (f *BenchStore) FoldGraph(g *Graph, id func(uint32) string) error {
	return f.FoldEvents(len(g.Edges), func(i int) *skeinv1.Event { return &skeinv1.Event{Kind: Followed(g.Edges[i], id)} })
}

// QueryCached opens a view of the store, calls question with queries of the view, and closes the
// view. The queries use the cache of the projection, as those of the service do.
func (f *BenchStore) QueryCached(question func(q *graph.Queries) error) error {
	v, err := f.Store.View()
	if err != nil {
		return err
	}
	return errors.Join(question(graph.NewCachedQueries(v)), v.Close())
}

// Query does the same with queries that read rows from the store and do not use the cache.
func (f *BenchStore) Query(question func(q *graph.Queries) error) error {
	v, err := f.Store.View()
	if err != nil {
		return err
	}
	return errors.Join(question(graph.NewQueries(v)), v.Close())
}

// diskBytes returns the size of all files of the store. Files may disappear meanwhile, because the
// store removes them in the background.
func (f *BenchStore) diskBytes() (n int64, err error) {
	err = filepath.Walk(f.dir, func(_ string, info os.FileInfo, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	return n, err
}
