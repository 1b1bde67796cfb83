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

// Folder is a store on disk, of a graph if nothing else is said, that is folded from envelopes made here, without a log.
// The envelopes go through the reader's decoder as those of a log do.
type Folder struct {
	dir   string
	cache *store.Cache
	Store *store.Store
	// project makes the projection anew whenever the store is opened.
	newProjection func() projections.Projection

	decoder *events.Decoder
	// begin is the time of the first envelope.
	begin events.Micros
	seq   uint64
}

// OpenFolder opens an empty store of a graph, in a directory of its own below the parent.
func OpenFolder(parent string) (*Folder, error) {
	return OpenProjection(parent, FirstFollow, func() projections.Projection { return graph.New() })
}

// OpenProjection opens an empty store of a projection, whose log begins at a time.
func OpenProjection(parent string, begin events.Micros, newProjection func() projections.Projection) (*Folder, error) {
	dir, err := os.MkdirTemp(parent, "store-")
	if err != nil {
		return nil, err
	}
	f := &Folder{
		dir: dir, cache: store.NewCache(CacheBytes), newProjection: project, decoder: events.NewDecoder(events.Cursor{}),
		begin: begin,
	}
	if err := f.open(); err != nil {
		f.cache.Unref()
		return nil, err
	}
	return f, nil
}

func (f *Folder) open() (err error) {
	f.Store, err = store.Open(store.Options{Dir: f.dir, Projection: f.newProjection(), Cache: f.cache})
	return err
}

// ReopenFolder opens a store that a service has left, and continues behind its last envelope.
func ReopenFolder(dir string, newProjection func() projections.Projection) (*Folder, error) {
	f := &Folder{dir: dir, cache: store.NewCache(CacheBytes), newProjection: project}
	if err := f.open(); err != nil {
		f.cache.Unref()
		return nil, err
	}
	v, err := f.Store.View()
	if err != nil {
		return nil, errors.Join(err, f.CloseAndKeep())
	}
	at := v.Cursor()
	at.WarmSeq, at.WarmTime = 0, 0 // there is nothing to be read before it
	f.decoder, f.seq, f.startTime = events.NewDecoder(at), at.Seq, at.LastTime
	return f, v.Close()
}

// ClosedBytes closes the store, which ends what it does in the background, returns its size and opens it again.
func (f *Folder) ClosedBytes() (bytes int64, err error) {
	if err := f.Store.Close(); err != nil {
		return 0, err
	}
	if bytes, err = f.diskBytes(); err != nil {
		return 0, err
	}
	return bytes, f.open()
}

// Compacted brings every row of the store to the last level and returns its size.
func (f *Folder) Compacted(ctx context.Context) (bytes int64, err error) {
	if err := f.Store.Compact(ctx); err != nil {
		return 0, err
	}
	return f.ClosedBytes()
}

// Close closes the store and removes it.
func (f *Folder) Close() error { return errors.Join(f.CloseAndKeep(), os.RemoveAll(f.dir)) }

// Leave closes the store and lets it be.
func (f *Folder) CloseAndKeep() error {
	err := f.Store.Close()
	f.cache.Unref()
	return err
}

// Envelope makes the next envelope of the log, a millisecond after the one before.
func (f *Folder) Envelope(evs []*skeinv1.Event) (*events.Envelope, error) {
	data, err := events.EncodeEnvelope(evs)
	if err != nil {
		return nil, err
	}
	return f.Decode(f.startTime+events.Micros(f.seq+1)*1000, data)
}

// Decode decodes the next envelope of the log.
func (f *Folder) Decode(stamp events.Micros, data []byte) (*events.Envelope, error) {
	f.seq++
	return f.decoder.Decode(f.seq, stamp, data)
}

// Load folds n events in full envelopes, some at a time, and brings them to disk.
func (f *Folder) Load(n int, event func(i int) *skeinv1.Event) error {
	const together = 10
	var (
		evs  []*skeinv1.Event
		envs []*events.Envelope
	)
	for i := range n {
		evs = append(evs, event(i))
		last := i == n-1
		if len(evs) < events.MaxEnvelopeEvents && !last {
			continue
		}
		env, err := f.Envelope(evs)
		if err != nil {
			return err
		}
		evs, envs = evs[:0], append(envs, env)
		if len(envs) < together && !last {
			continue
		}
		if err := f.Store.Fold(envs); err != nil {
			return err
		}
		envs = envs[:0]
	}
	return f.Store.Flush()
}

// LoadGraph folds the follows of a graph as live ones.
func (f *Folder) LoadGraph(g *Graph, id func(uint32) string) error {
	return f.Load(len(g.Edges), func(i int) *skeinv1.Event { return &skeinv1.Event{Kind: Followed(g.Edges[i], id)} })
}

// AskCached opens a view, asks, and closes it, as the service does for each call about follows.
func (f *Folder) AskCached(question func(q *graph.Queries) error) error {
	v, err := f.Store.View()
	if err != nil {
		return err
	}
	return errors.Join(question(graph.NewCachedQueries(v)), v.Close())
}

// Ask does the same without what is kept in memory: rows are read.
func (f *Folder) Ask(question func(q *graph.Queries) error) error {
	v, err := f.Store.View()
	if err != nil {
		return err
	}
	return errors.Join(question(graph.NewQueries(v)), v.Close())
}

// diskBytes returns the size of all files of the store.
func (f *Folder) diskBytes() (n int64, err error) {
	err = filepath.Walk(f.dir, func(_ string, info os.FileInfo, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the store has removed it meanwhile
		}
		if err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return err
	})
	return n, err
}
