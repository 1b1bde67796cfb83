package inbox

import (
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
	"github.com/skein-feed/skein/projections/internal/hiddenitems"
	"github.com/skein-feed/skein/projections/querycache"
)

// Settings are the settings of the fold, which are part of the fingerprint (I4), and Keep, which
// only concerns pages.
type Settings struct {
	// Threshold is the number of followers of an owner, or of boards of the owner, in one partition
	// up to which the owner's pins are pushed to inboxes. Above it, pages read the owner's outbox.
	// A negative threshold pushes everything. The default of 39 per partition is about 10 000
	// followers in all partitions.
	Threshold int64
	// Keep is how many entries an inbox keeps in memory, and how many pins of a feed are ranked by
	// heat. It changes no row. Default 1000.
	Keep int
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings { return Settings{Threshold: 39, Keep: 1000} }

// Check returns an error that names a setting that is out of its bounds, if there is one.
func (s Settings) Check() error {
	if s.Keep < 1 || s.Keep > 1_000_000 {
		return fmt.Errorf("inbox: keep is %d, not 1 to 1000000 entries", s.Keep)
	}
	return nil
}

// Inbox is the projection. It has scratch memory, so an Inbox folds into one store, from one
// goroutine.
type Inbox struct {
	settings Settings
	graph    *graph.Graph
	// cache bounds what queries keep in memory; nil means that they keep nothing.
	cache *querycache.Cache
	// hidden folds the items that readers hide.
	hidden hiddenitems.Fold

	batch *projections.Batch
	// ev is the event that is folded. It points to eventCopy, because an allocation for each event
	// would cost more than the copy.
	ev        *events.Event
	eventCopy events.Event
	// queries read the batch.
	queries *graph.Queries
	// key and value are scratch memory. The batch copies what it is given.
	key, value []byte
	// regionUsers is scratch memory for the users of a region that a function reads before it
	// writes. Such functions must not be nested.
	regionUsers regionUserList
}

var (
	_ projections.Projection       = (*Inbox)(nil)
	_ projections.SettingsProvider = (*Inbox)(nil)
	_ projections.IteratedOnly     = (*Inbox)(nil)
	_ projections.QueryCacher      = (*Inbox)(nil)
	_ projections.Regional         = (*Inbox)(nil)
)

// New returns the projection without a cache for queries.
func New(s Settings) *Inbox { return NewWith(s, nil) }

// NewWith returns the projection with a cache for [CachedQuery], which changes no row; nil means no
// cache.
func NewWith(s Settings, cache *querycache.Cache) *Inbox {
	f := &Inbox{settings: s, graph: graph.NewOutEnds(cache), cache: cache, hidden: hiddenitems.NewFold(hiddenItems)}
	f.graph.Observe(f.applyRelationChange)
	return f
}

// NewQueryCache returns the cache of a store that has just been opened: for whom readers follow,
// for the newest pins of outboxes, and for inboxes. It is part of [projections.QueryCacher].
func (f *Inbox) NewQueryCache() projections.QueryCache {
	if f.cache == nil {
		return nil
	}
	return inboxcache.New(f.cache, f.graph.NewQueryCache(), f.settings.Keep)
}

// Name returns "inbox".
func (*Inbox) Name() string { return "inbox" }

// Version is the version of the fold and its rows:
//
//   - 2: The rows of the graph are those of its version 2.
//   - 3: A pin keeps what says when it left the board of its history.
//   - 4: Heat is left to counters.
//   - 5: Partitions fold alone.
//   - 6: A pin keeps whether it is a re-pin, and a reader has a read marker.
//   - 7: The position of an event decides whether the users of a region are counted.
//   - 8: Entries of inboxes are no longer rows.
//   - 9: No row says what an inbox lacks.
//   - 10: The rows of the graph are those of its version 4.
//   - 11: The rows of the graph are those of its version 5. A re-pin keeps which pin it repeats, and a reader has hidden items.
//   - 12: A pin keeps its last edit.
//   - 13: Of several moves of a pin in a row, the first and the last are kept.
func (*Inbox) Version() uint32 { return 13 }

// Config returns the settings.
func (f *Inbox) Config() Settings { return f.settings }

// Settings returns the settings that are part of the fingerprint. All negative thresholds mean the
// same, so they are one setting.
func (f *Inbox) Settings() map[string]string {
	return map[string]string{"threshold": fmt.Sprint(max(f.settings.Threshold, -1))}
}

// Kinds returns the kinds of events that change pins, read markers, hidden items and the relations
// of the embedded graph.
func (f *Inbox) Kinds() []events.Kind {
	return append(f.graph.Kinds(), events.PinEdited, events.PinDeleted, events.FeedRead, events.ItemHidden, events.ItemShown)
}

// Apply folds one event.
func (f *Inbox) Apply(ev events.Event, b *projections.Batch) error {
	if f.batch != b {
		f.batch = b
		f.queries = graph.NewQueries(b)
	}
	f.eventCopy = ev
	f.ev = &f.eventCopy

	switch ev.Kind {
	case events.PinCreated:
		return f.createPin()
	case events.PinMoved:
		return f.movePin()
	case events.PinEdited:
		return f.editPin()
	case events.PinDeleted:
		return f.deletePin()
	case events.BoardDeleted:
		// The graph folds the end of the board, too, after its pins have ended.
		if err := f.deleteBoard(); err != nil {
			return err
		}
	case events.UserDeleted:
		return f.eraseUser()
	case events.FeedRead:
		return f.moveReadMarker()
	case events.ItemHidden, events.ItemShown:
		return f.hideOrShowItem()
	}
	return f.graph.Apply(ev, b)
}

// hideOrShowItem folds what a reader hides. An inbox does not change: whether an item is hidden is
// decided when a page is read.
func (f *Inbox) hideOrShowItem() error {
	if f.ev.Backfill {
		if erased, err := f.graph.IsErased(*f.ev, f.batch, f.ev.User); err != nil || erased {
			return err
		}
	}
	if inboxes := f.cacheWithInboxes(); inboxes != nil {
		inboxes.ForgetHiddenItems(events.AppendID(nil, f.ev.User), f.batch.Version())
	}
	return f.hidden.Apply(f.ev, f.batch)
}

// setOrDelete writes a row, or deletes it if the value is empty.
func (f *Inbox) setOrDelete(key, value []byte) {
	if len(value) == 0 {
		f.batch.Delete(key)
		return
	}
	f.batch.Set(key, value)
}

// hasRow reports whether there is a row with the key.
func (f *Inbox) hasRow(key []byte) (bool, error) {
	_, ok, err := f.batch.Get(key)
	return ok, err
}
