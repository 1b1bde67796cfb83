package inbox

import (
	"bytes"
	"fmt"
	"strconv"
	"time" //nolint:depguard // for the durations of settings: no clock is read

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// Settings are what the fold reads. They are part of the fingerprint (I4).
type Settings struct {
	// Threshold: the pins of a user with more explicit followers, or on a board with more board follows, are not
	// pushed to inboxes but read from outboxes. Negative: everything is pushed. Default 10 000.
	Threshold int64
	// Keep is how many entries an inbox keeps when it is trimmed, and how many of a feed are ranked by heat. Default 1000.
	Keep int
	// Active is how long after a reader_active event a reader is pushed to. Default 14 days.
	Active time.Duration
	// Short is up to how many edges whom a reader follows is sorted when it is asked for. Default [graph.Short].
	Short int
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings {
	return Settings{
		Threshold: 10_000, Keep: 1000, Active: 14 * 24 * time.Hour, Short: graph.Short,
	}
}

// Check tells which setting is out of its bounds.
func (s Settings) Check() error {
	switch {
	case s.Keep < 1 || s.Keep > 1_000_000:
		return fmt.Errorf("inbox: keep is %d, not 1 to 1000000 entries", s.Keep)
	case s.Active < time.Second:
		return fmt.Errorf("inbox: active is %v, less than a second", s.Active)
	case s.Short < 0 || s.Short > graph.MostShort:
		return fmt.Errorf("inbox: short is %d, not 0 to %d edges", s.Short, graph.MostShort)
	}
	return nil
}

// Inbox is the projection. It holds scratch space: one Inbox folds into one store, from one goroutine.
type Inbox struct {
	settings Settings
	graph    *graph.Graph

	b  *projections.Batch
	ev *events.Event
	// queries are over the batch.
	queries *graph.Queries
	// key and value are scratch: the batch copies what it is given.
	key, value []byte
	// idleKeys are lists to be used again.
	idleKeys []*keyList
}

var (
	_ projections.Projection = (*Inbox)(nil)
	_ projections.Configured = (*Inbox)(nil)
	_ projections.Walked     = (*Inbox)(nil)
	_ projections.Warm       = (*Inbox)(nil)
	_ projections.ListWalker = (*Inbox)(nil)
	_ projections.Prefetcher = (*Inbox)(nil)
	_ projections.Compatible = (*Inbox)(nil)
)

// New returns the projection.
func New(s Settings) *Inbox { return NewWith(s, nil) }

// NewWith returns the projection with a cache for [HotQuery], which changes no row; nil: none.
func NewWith(s Settings, hot *graph.HotCache) *Inbox {
	f := &Inbox{settings: s, graph: graph.NewWith(hot).WithShort(s.Short)}
	f.graph.Observe(f.relationChanged)
	return f
}

// NewHot is part of [projections.Warm]: what is kept is whom readers follow, and the newest pins of outboxes.
func (f *Inbox) NewHot() projections.Hot {
	relations := f.graph.NewHot()
	if relations == nil {
		return nil
	}
	return &kept{relations, newTops()}
}

// Name returns "inbox".
func (*Inbox) Name() string { return "inbox" }

// Version is the version of the fold and its rows. Since 2 the rows of the graph are those of its version 2; since 3 a pin keeps what tells
// when it left the board of its history; since 4 heat is left to counters.
func (*Inbox) Version() uint32 { return 4 }

// Reads reports that the queries read rows of version 3, too, which has rows of heat beside those that they read.
func (*Inbox) Reads(version uint32) bool { return version == 3 || version == 4 }

// Config returns the settings.
func (f *Inbox) Config() Settings { return f.settings }

// Settings is part of the fingerprint.
func (f *Inbox) Settings() map[string]string {
	s := f.settings
	return map[string]string{
		"graph":     fmt.Sprint(f.graph.Version()),
		"short":     strconv.Itoa(s.Short),
		"threshold": fmt.Sprint(max(s.Threshold, -1)),
		"keep":      strconv.Itoa(s.Keep),
		"active":    s.Active.String(),
	}
}

// WalksLists says that pins are pushed to the followers of their owner.
func (*Inbox) WalksLists() {}

// Kinds are those of the graph, and what makes pins and readers.
func (f *Inbox) Kinds() []events.Kind {
	return append(f.graph.Kinds(), events.PinDeleted, events.ReaderActive)
}

// Apply folds one event.
func (f *Inbox) Apply(ev events.Event, b *projections.Batch) error {
	if f.b != b {
		f.b, f.queries = b, graph.Query(b)
	}
	f.ev = &ev
	switch ev.Kind {
	case events.PinCreated:
		return f.pinCreated()
	case events.PinMoved:
		return f.pinMoved()
	case events.PinDeleted:
		return f.pinDeleted()
	case events.BoardDeleted:
		if err := f.boardDeleted(); err != nil {
			return err
		}
	case events.UserDeleted:
		return f.userDeleted()
	case events.ReaderActive:
		return f.readerActive()
	}
	return f.graph.Apply(ev, b)
}

// put writes a row, or removes it when the value says that there is nothing to keep.
func (f *Inbox) put(key, value []byte) {
	if len(value) == 0 {
		f.b.Delete(key)
		return
	}
	f.b.Set(key, value)
}

// has reports whether there is a row with the key.
func (f *Inbox) has(key []byte) (bool, error) {
	_, ok, err := f.b.Get(key)
	return ok, err
}

// drainChunk is how many rows are read ahead between two places where the fold of a large event may be cut.
const drainChunk = 256

// each calls do with what follows the prefix in each key below it, and Step between chunks. do may
// write. Run again after a cut it begins anew, so doing twice must be doing once; with drain, do removes the row, and what
// is done is not met again.
func (f *Inbox) each(prefix []byte, drain bool, do func(rest []byte) error) error {
	lower, upper := prefix, projections.PrefixEnd(prefix)
	keys := f.takeKeys()
	defer f.giveKeys(keys)
	for {
		keys.reset()
		it := f.b.Iter(lower, upper)
		for keys.len() < drainChunk && it.Next() {
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
		if keys.len() < drainChunk {
			return nil
		}
		if !drain {
			lower = append(bytes.Clone(keys.at(keys.len()-1)), 0)
		}
		if err := f.b.Step(); err != nil {
			return err
		}
	}
}
