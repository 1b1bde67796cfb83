package bench

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// folder is a store on disk, of a graph if nothing else is said, that is folded from envelopes made here, without a log.
// The envelopes go through the reader's decoder as those of a log do.
type folder struct {
	dir   string
	cache *projections.Cache
	store *projections.Store
	// project makes the projection anew whenever the store is opened.
	project func() projections.Projection

	decoder *events.Decoder
	// begin is the time of the first envelope.
	begin events.Micros
	seq   uint64
	// written are the bytes of tables that flushes and compactions wrote.
	written atomic.Int64
}

func openFolder(parent string) (*folder, error) {
	return openProjection(parent, firstFollow, func() projections.Projection { return graph.New() })
}

func openProjection(parent string, begin events.Micros, project func() projections.Projection) (*folder, error) {
	dir, err := os.MkdirTemp(parent, "store-")
	if err != nil {
		return nil, err
	}
	f := &folder{
		dir: dir, cache: projections.NewCache(cacheBytes), project: project, decoder: events.NewDecoder(events.Cursor{}),
		begin: begin,
	}
	if err := f.open(); err != nil {
		f.cache.Unref()
		return nil, err
	}
	return f, nil
}

func (f *folder) open() (err error) {
	wrote := func(info projections.FlushInfo) { f.written.Add(info.Bytes) }
	f.store, err = projections.Open(projections.Options{
		Dir: f.dir, Projection: f.project(), Cache: f.cache,
		Listener: projections.Listener{Flushed: wrote, Compacted: wrote},
	})
	return err
}

// closedBytes closes the store, which ends what it does in the background, returns its size and opens it again.
func (f *folder) closedBytes() (bytes int64, err error) {
	if err := f.store.Close(); err != nil {
		return 0, err
	}
	if bytes, err = f.diskBytes(); err != nil {
		return 0, err
	}
	return bytes, f.open()
}

// compacted brings every row of the store to the last level and returns its size.
func (f *folder) compacted(ctx context.Context) (bytes int64, err error) {
	if err := f.store.Compact(ctx); err != nil {
		return 0, err
	}
	return f.closedBytes()
}

// close closes the store and removes it.
func (f *folder) close() error {
	err := f.store.Close()
	f.cache.Unref()
	return errors.Join(err, os.RemoveAll(f.dir))
}

// envelope makes the next envelope of the log, a millisecond after the one before.
func (f *folder) envelope(evs []*skeinv1.Event) (*events.Envelope, error) {
	data, err := events.EncodeEnvelope(evs)
	if err != nil {
		return nil, err
	}
	return f.decode(f.begin+events.Micros(f.seq+1)*1000, data)
}

// decode decodes the next envelope of the log.
func (f *folder) decode(stamp events.Micros, data []byte) (*events.Envelope, error) {
	f.seq++
	return f.decoder.Decode(f.seq, stamp, data)
}

// load folds n events in full envelopes, some at a time, and brings them to disk.
func (f *folder) load(n int, event func(i int) *skeinv1.Event) error {
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
		env, err := f.envelope(evs)
		if err != nil {
			return err
		}
		evs, envs = evs[:0], append(envs, env)
		if len(envs) < together && !last {
			continue
		}
		if err := f.store.Fold(envs); err != nil {
			return err
		}
		envs = envs[:0]
	}
	return f.store.Flush()
}

// loadGraph folds the follows of a graph as live ones.
func (f *folder) loadGraph(g *followGraph, id func(uint32) string) error {
	return f.load(len(g.edges), func(i int) *skeinv1.Event { return &skeinv1.Event{Kind: followed(g.edges[i], id)} })
}

// askHot opens a view, asks, and closes it, as the service does for each call about follows.
func (f *folder) askHot(question func(q *graph.Queries) error) error {
	v, err := f.store.View()
	if err != nil {
		return err
	}
	return errors.Join(question(graph.HotQuery(v)), v.Close())
}

// ask does the same without what is kept in memory: rows are read.
func (f *folder) ask(question func(q *graph.Queries) error) error {
	v, err := f.store.View()
	if err != nil {
		return err
	}
	return errors.Join(question(graph.Query(v)), v.Close())
}

// diskBytes returns the size of all files of the store.
func (f *folder) diskBytes() (n int64, err error) {
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
