package inbox

import (
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
	"github.com/skein-feed/skein/projections/querycache"
)

// Settings are what the fold reads, which is part of the fingerprint (I4), and Keep, which pages read.
type Settings struct {
	// Threshold: the pins of a user are not pushed to inboxes but read from outboxes, in each partition where more follow the user
	// or a board of the user. Negative: everything is pushed. Default 39: some 10 000 of all.
	Threshold int64
	// Keep is how many entries an inbox keeps in memory, and how many of a feed are ranked by heat. It changes no row. Default 1000.
	Keep int
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings { return Settings{Threshold: 39, Keep: 1000} }

// Check reports which setting is out of its bounds.
func (s Settings) Check() error {
	if s.Keep < 1 || s.Keep > 1_000_000 {
		return fmt.Errorf("inbox: keep is %d, not 1 to 1000000 entries", s.Keep)
	}
	return nil
}

// Inbox is the projection. It holds scratch space: one Inbox folds into one store, from one goroutine.
type Inbox struct {
	settings Settings
	graph    *graph.Graph
	// cache bounds what queries keep; nil means nothing.
	cache *querycache.Cache

	batch *projections.Batch
	ev    *events.Event
	// event is that of ev: an allocation for each would cost more than the copy.
	eventCopy events.Event
	// queries are over the batch.
	queries *graph.Queries
	// key and value are scratch: the batch copies what it is given.
	key, value []byte
	// met is scratch for what a walk over rows meets. No walk is made within another.
	readKeys keyList
}

var (
	_ projections.Projection  = (*Inbox)(nil)
	_ projections.Configured  = (*Inbox)(nil)
	_ projections.Walked      = (*Inbox)(nil)
	_ projections.QueryCacher = (*Inbox)(nil)
	_ projections.Regional    = (*Inbox)(nil)
)

// New returns the projection.
func New(s Settings) *Inbox { return NewWith(s, nil) }

// NewWith returns the projection with a cache for [CachedQuery], which changes no row; nil means none.
func NewWith(s Settings, cache *querycache.Cache) *Inbox {
	f := &Inbox{settings: s, graph: graph.NewOut(cache), cache: cache}
	f.graph.Observe(f.applyRelationChange)
	return f
}

// NewQueryCache is part of [projections.QueryCacher]: what is kept is whom readers follow, the newest pins of outboxes, and inboxes.
func (f *Inbox) NewQueryCache() projections.QueryCache {
	if f.cache == nil {
		return nil
	}
	return inboxcache.New(f.cache, f.graph.NewQueryCache(), f.settings.Keep)
}

// Name returns "inbox".
func (*Inbox) Name() string { return "inbox" }

// Version is the version of the fold and its rows. Since 2 the rows of the graph are those of its version 2; since 3 a pin keeps what tells
// when it left the board of its history; since 4 heat is left to counters; since 5 partitions fold alone; since 6 a pin keeps whether it is
// a re-pin, and a reader the read marker; since 7 the position of an event decides whether growth is looked at; since 8 no row is an entry
// of an inbox; since 9 none says what an inbox lacks; since 10 the rows of the graph are those of its version 4.
func (*Inbox) Version() uint32 { return 10 }

// Config returns the settings.
func (f *Inbox) Config() Settings { return f.settings }

// Settings is part of the fingerprint.
func (f *Inbox) Settings() map[string]string {
	return map[string]string{"threshold": fmt.Sprint(max(f.settings.Threshold, -1))}
}

// Kinds are those of the graph, and what makes pins and read markers.
func (f *Inbox) Kinds() []events.Kind {
	return append(f.graph.Kinds(), events.PinDeleted, events.FeedRead)
}

// Apply folds one event.
func (f *Inbox) Apply(ev events.Event, b *projections.Batch) error {
	if f.batch != b {
		f.batch, f.queries = b, graph.Query(b)
	}
	f.eventCopy, f.ev = ev, &f.eventCopy
	switch ev.Kind {
	case events.PinCreated:
		return f.createPin()
	case events.PinMoved:
		return f.movePin()
	case events.PinDeleted:
		return f.deletePin()
	case events.BoardDeleted:
		if err := f.deleteBoard(); err != nil {
			return err
		}
	case events.UserDeleted:
		return f.eraseUser()
	case events.FeedRead:
		return f.moveReadMarker()
	}
	return f.graph.Apply(ev, b)
}

// put writes a row, or removes it when the value says that there is nothing to keep.
func (f *Inbox) setOrDelete(key, value []byte) {
	if len(value) == 0 {
		f.batch.Delete(key)
		return
	}
	f.batch.Set(key, value)
}

// has reports whether there is a row with the key.
func (f *Inbox) hasRow(key []byte) (bool, error) {
	_, ok, err := f.batch.Get(key)
	return ok, err
}

// drainChunk is how many rows are read ahead between two places where the fold of a large event may be cut.
const rowsPerStep = 256

// drain calls do with what follows the prefix in each key below it, and Step between chunks. do removes the row, so what
// is done is not met again when the event is cut.
func (f *Inbox) eachRowInSteps(prefix []byte, do func(rest []byte) error) error {
	upper := projections.PrefixEnd(prefix)
	keys := &f.readKeys
	for {
		keys.reset()
		it := f.batch.Iter(prefix, upper)
		for keys.len() < rowsPerStep && it.Next() {
			keys.add(it.Key())
		}
		if err := it.Close(); err != nil {
			return err
		}
		for i := range keys.len() {
			if err := do(keys.at(i)[len(prefix):]); err != nil {
				return err
			}
		}
		if keys.len() < rowsPerStep {
			return nil
		}
		if err := f.batch.Step(); err != nil {
			return err
		}
	}
}
