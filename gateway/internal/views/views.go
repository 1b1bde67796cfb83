package views

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/gateway/cluster/peers"
	"github.com/skein-feed/skein/gateway/internal/call"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// Views are the stores of a process as its methods read them: each at a position that a call may demand.
type Views struct {
	// Log and hub are those that the stores fold.
	Log *eventlog.Log
	Hub *eventlog.Hub
	// Graph is the graph; inbox, seen and counters may be nil.
	Graph, Inbox, Seen, Counters *Store
	// All are all projections of the process.
	All []*live.Live
	// Keys sign page tokens.
	Keys pagetoken.KeyRing
	// Wait is how long a read waits for a position that it demands.
	Wait time.Duration
	// Peers are the other nodes of a cluster; nil means that the stores hold all partitions.
	Peers *peers.Peers
	// seenSettings are those that seen was folded with.
	seenSettings seen.Settings
}

// New fails if a store is not of the projection that it is given as.
func New(v Views) (*Views, error) {
	var err error
	if v.Seen != nil {
		v.seenSettings, err = seenSettingsOf(v.Seen.Live)
	}
	return &v, err
}

// Store is a projection, and what the process remembers of it between calls.
type Store struct {
	*live.Live
	positionTexts Positions
	// CaughtUp is set when the store has once been at the head of the log, and stays.
	CaughtUp atomic.Bool
}

// NewStore is nil for nil.
func NewStore(serving *live.Live) *Store {
	if serving == nil {
		return nil
	}
	return &Store{Live: serving}
}

// Rebuilding reports whether the store has not caught up with the log for the first time.
func (s *Store) Rebuilding() bool {
	if !s.CaughtUp.Load() && s.Status().State.CaughtUp() {
		s.CaughtUp.Store(true)
	}
	return !s.CaughtUp.Load()
}

// StatusOf reports how a projection is. One that waits, as for disk, has not heard lately how long the log is: this process has.
func (s *Views) StatusOf(store *live.Live) store.Status {
	st := store.Status()
	st.Head = max(st.Head, s.Hub.Head())
	st.Behind = st.Head - st.Cursor.Seq
	return st
}

// StoreView is a store at one position, for the whole of one answer. It must be closed.
type StoreView struct {
	View *projections.View
	// At is the position of the view, and position its text.
	At       events.Position
	Position string
	// round has the questions to other nodes. It is nil outside of a cluster.
	remote *peers.RemoteBatch
}

// Newest is the greatest position that the answer shows anything of: that of the view, or of another node that was asked.
func (o *StoreView) Newest() events.Position {
	if o.remote == nil {
		return o.At
	}
	return o.remote.Newest()
}

// Newest is the greatest of some stores. The next page demands it, or it would show what this one knew to be gone.
func Newest(opened ...*StoreView) (newest events.Position) {
	for _, o := range opened {
		if at := o.Newest(); at.Seq >= newest.Seq {
			newest = at
		}
	}
	return newest
}

// RunUntilResolved runs query over some open stores. While a run lacks answers of other nodes, RunUntilResolved fetches them and runs query
// again; it returns the result of the last run, or the error of a fetch.
//
// query must be pure: it runs several times, so it must overwrite the whole of its answer in each run, and leave nothing half-written of
// a run that lacked answers. It must not send anything or change state.
func RunUntilResolved(ctx context.Context, query func() error, opened ...*StoreView) error {
	for {
		err := query()
		wanting := false
		for _, o := range opened {
			if o.remote == nil || !o.remote.Wanting() {
				continue
			}
			wanting = true
			if err := o.remote.Fetch(ctx); err != nil {
				return err
			}
		}
		if !wanting {
			return err
		}
	}
}

// Close closes the view.
func (o *StoreView) Close() { _ = o.View.Close() }

// Graph is the graph at one position.
type Graph struct {
	*graph.Queries
	StoreView
}

// Inbox is the inbox at one position.
type Inbox struct {
	*inbox.Queries
	StoreView
	// Rebuilding reports that the store had not caught up with the log for the first time.
	Rebuilding bool
}

// OpenAt returns the graph at a position that contains at_least.
func (s *Views) OpenAt(ctx context.Context, x *call.Info, atLeast string) (*Graph, error) {
	d, err := DemandOf(atLeast)
	if err != nil {
		return nil, err
	}
	return s.Open(ctx, x, d)
}

// Open returns the graph at a position that contains all that is demanded. x may be nil.
func (s *Views) Open(ctx context.Context, x *call.Info, demands ...Demand) (*Graph, error) {
	o, err := s.openStore(ctx, s.Graph, x, demands)
	if err != nil {
		return nil, err
	}
	g := &Graph{Queries: graph.NewCachedQueries(o.View), StoreView: o}
	if o.remote != nil {
		g.WithRemote(o.remote)
	}
	return g, nil
}

// OpenFeed returns the inbox at a position that contains all that is demanded.
func (s *Views) OpenFeed(ctx context.Context, x *call.Info, demands ...Demand) (*Inbox, error) {
	// Asked before the view is taken: a view of a store that has caught up lacks nothing that had to be built again.
	rebuilding := s.Inbox.Rebuilding()
	o, err := s.openStore(ctx, s.Inbox, x, demands)
	if err != nil {
		return nil, err
	}
	r := &Inbox{Queries: inbox.CachedQuery(o.View), StoreView: o, Rebuilding: rebuilding}
	if o.remote != nil {
		r.WithRemote(o.remote)
	}
	return r, nil
}

// Seen is the seen store at one position.
type Seen struct {
	*seen.Queries
	StoreView
}

// OpenSeen returns the seen store at a position that contains all that is demanded.
func (s *Views) OpenSeen(ctx context.Context, x *call.Info, demands ...Demand) (*Seen, error) {
	o, err := s.openStore(ctx, s.Seen, x, demands)
	if err != nil {
		return nil, err
	}
	return &Seen{Queries: seen.Query(o.View, s.seenSettings), StoreView: o}, nil
}

// settingsOfSeen are those that a store was folded with.
func seenSettingsOf(store *live.Live) (seen.Settings, error) {
	p, ok := store.Projection().(*seen.Seen)
	if !ok {
		return seen.Settings{}, fmt.Errorf("gateway: the store of %s is not that of seen", store.Name())
	}
	return p.Config(), nil
}

// Candidates are items by their ids, or by their numbers.
type Candidates struct {
	Items   []string
	Numeric []uint64
}

// Len returns how many there are.
func (c Candidates) Len() int { return len(c.Items) + len(c.Numeric) }

// Unseen returns the indexes of the candidates that are not seen, and how many months of plays were read. It is the one
// filter of FilterSeen and of feeds.
func (r *Seen) Unseen(x seen.Question, c Candidates) (unseen []uint32, months int, err error) {
	unseen = make([]uint32, 0, c.Len())
	if len(c.Numeric) > 0 {
		return r.FilterNumeric(x, c.Numeric, unseen)
	}
	return r.Filter(x, c.Items, unseen)
}

// Counters is the counters at one position.
type Counters struct {
	*counters.Queries
	StoreView
}

// OpenCounters returns the counters at a position that contains all that is demanded.
func (s *Views) OpenCounters(ctx context.Context, x *call.Info, demands ...Demand) (*Counters, error) {
	o, err := s.openStore(ctx, s.Counters, x, demands)
	if err != nil {
		return nil, err
	}
	c := &Counters{Queries: counters.NewQueries(o.View), StoreView: o}
	if o.remote != nil {
		c.WithRemote(o.remote)
	}
	return c, nil
}

// openStore returns a store at a position that contains all that is demanded. x may be nil.
func (s *Views) openStore(
	ctx context.Context, store *Store, x *call.Info, demands []Demand,
) (o StoreView, err error) {
	view, err := store.View()
	if err != nil {
		return o, err
	}
	for _, d := range demands {
		if d.isEmpty() || s.contains(view, d.Position) {
			continue
		}
		_ = view.Close()
		if err := s.Await(ctx, store.Live, d); err != nil {
			return o, err
		}
		if view, err = store.View(); err != nil {
			return o, err
		}
	}
	at := s.Log.Position(view.Cursor().Seq)
	if x != nil {
		x.Lag = max(0, int64(s.Hub.Head())-int64(at.Seq))
	}
	o = StoreView{View: view, At: at, Position: store.positionTexts.Of(at)}
	if s.Peers != nil {
		o.remote = peers.NewRemoteBatch(s.Peers, view.Partitions(), at)
	}
	return o, nil
}

// Positions makes the text of a position once, not once an answer.
type Positions struct{ last atomic.Pointer[positionText] }

type positionText struct {
	pos  events.Position
	text string
}

// Of returns a position as the text that the API gives.
func (p *Positions) Of(pos events.Position) string {
	if last := p.last.Load(); last != nil && last.pos == pos {
		return last.text
	}
	named := &positionText{pos: pos, text: pos.String()}
	p.last.Store(named)
	return named.text
}
