package views

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// Views opens views of the stores of a process, each at a position that the call may demand.
type Views struct {
	// Log is the log that the stores fold, and Hub reads it for them.
	Log *eventlog.Log
	Hub *eventlog.Hub
	// Graph is required. The others are nil if the process does not have them.
	Graph, Inbox, Seen, Counters, Notifications *Store
	// All are all projections of the process.
	All []*live.Live
	// Keys sign page tokens.
	Keys pagetoken.KeyRing
	// Wait is how long a read waits for a position that it demands.
	Wait time.Duration
	// Peers are the other nodes of the cluster. It is nil outside of a cluster, where the stores
	// hold all partitions.
	Peers *peers.Peers
}

// New returns a copy of v that is ready to use. It fails if v.Seen is not the seen projection, or
// v.Notifications not the notifications projection.
func New(v Views) (*Views, error) {
	if v.Seen != nil {
		if _, ok := v.Seen.Projection().(*seen.Seen); !ok {
			return nil, wrongStoreError(v.Seen, "seen")
		}
	}
	if v.Notifications != nil {
		if _, ok := v.Notifications.Projection().(*notifications.Notifications); !ok {
			return nil, wrongStoreError(v.Notifications, "notifications")
		}
	}
	return &v, nil
}

func wrongStoreError(store *Store, want string) error {
	return fmt.Errorf("gateway: the store of %s is not that of %s", store.Name(), want)
}

// Store is a projection, with what is kept about it between calls.
type Store struct {
	*live.Live
	positionTexts PositionTexts
	// CaughtUp is set once the store has reached the head of the log. It is never unset.
	CaughtUp atomic.Bool
}

// NewStore returns the Store of a projection, or nil if serving is nil.
func NewStore(serving *live.Live) *Store {
	if serving == nil {
		return nil
	}
	return &Store{Live: serving}
}

// Rebuilding reports whether the store has not yet caught up with the log since the process began.
func (s *Store) Rebuilding() bool {
	if !s.CaughtUp.Load() && s.Status().State.CaughtUp() {
		s.CaughtUp.Store(true)
	}
	return !s.CaughtUp.Load()
}

// StatusOf returns the status of a projection, with the newest head of the log that the process
// knows. A projection that waits, for example for disk space, does not read the log, so the head in
// its own status may be old.
func (s *Views) StatusOf(store *live.Live) store.Status {
	st := store.Status()
	st.Head = max(st.Head, s.Hub.Head())
	st.Behind = st.Head - st.Cursor.Seq
	return st
}

// StoreView is a store at one position, from which one call is answered. The method must close it.
type StoreView struct {
	View *projections.View
	// At is the position of the view, and Position its text.
	At       events.Position
	Position string
	// remote collects the lookups that other nodes must answer. It is nil outside of a cluster.
	remote *peers.RemoteBatch
}

// newest returns the newest position of which the answer may show anything: that of the view, or
// that of an answer of another node.
func (o *StoreView) newest() events.Position {
	if o.remote == nil {
		return o.At
	}
	return o.remote.Newest()
}

// NextPagePosition returns the position that the token of the next page demands, after a page that
// was read from some views. It is the newest of their positions, because the next page could
// otherwise show what this page already knew to be deleted.
//
// An outdated store never reaches the position of the others, so a token that demands it would end
// the session until the store is rebuilt. If one of the stores is outdated, the next page demands
// the position of this page, which is the oldest one (I9). No store of this process goes back, so
// the next page has the same or newer views if this process answers it.
func NextPagePosition(opened ...*StoreView) (next events.Position) {
	for _, o := range opened {
		if o.View.IsOutdated() {
			return oldest(opened).At
		}
		if at := o.newest(); at.Seq >= next.Seq {
			next = at
		}
	}
	return next
}

// OldestPosition returns the text of the oldest position of some views. An answer that is read from
// all of them contains what that position contains, and may contain more.
func OldestPosition(opened ...*StoreView) string { return oldest(opened).Position }

// oldest returns the view with the oldest position.
func oldest(opened []*StoreView) *StoreView {
	return slices.MinFunc(opened, func(a, b *StoreView) int { return cmp.Compare(a.At.Seq, b.At.Seq) })
}

// RunUntilResolved runs query over some open stores. While a run lacks answers of other nodes,
// RunUntilResolved fetches them and runs query again; it returns the result of the last run, or the
// error of a fetch.
//
// query must be pure: it runs several times, so it must overwrite the whole of its answer in each
// run, and leave nothing half-written of a run that lacked answers. It must not send anything or
// change state.
func RunUntilResolved(ctx context.Context, query func() error, opened ...*StoreView) error {
	for {
		err := query()
		isUnresolved := false
		for _, o := range opened {
			if o.remote == nil || !o.remote.Unresolved() {
				continue
			}
			isUnresolved = true
			// All stores that lack answers fetch them before the next run, which saves runs.
			if err := o.remote.Fetch(ctx); err != nil {
				return err
			}
		}
		// An error of a run that lacked answers does not count, because the run may have failed for
		// that reason.
		if !isUnresolved {
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
	// Rebuilding says that the store had not yet caught up with the log since the process began.
	Rebuilding bool
}

// OpenGraphAt returns the graph at a position that contains at_least. info may be nil.
func (s *Views) OpenGraphAt(ctx context.Context, info *call.Info, atLeast string) (*Graph, error) {
	d, err := DemandOf(atLeast)
	if err != nil {
		return nil, err
	}
	return s.OpenGraph(ctx, info, d)
}

// OpenGraph returns the graph at a position that contains all demands. info may be nil.
func (s *Views) OpenGraph(ctx context.Context, info *call.Info, demands ...Demand) (*Graph, error) {
	o, err := s.openStore(ctx, s.Graph, info, demands)
	if err != nil {
		return nil, err
	}
	g := &Graph{Queries: graph.NewCachedQueries(o.View), StoreView: o}
	if o.remote != nil {
		g.WithRemote(o.remote)
	}
	return g, nil
}

// OpenInbox returns the inbox at a position that contains all demands. info may be nil.
func (s *Views) OpenInbox(ctx context.Context, info *call.Info, demands ...Demand) (*Inbox, error) {
	// This is read before the view is taken. If the store has caught up by now, the view lacks no
	// rows that had to be rebuilt.
	rebuilding := s.Inbox.Rebuilding()
	o, err := s.openStore(ctx, s.Inbox, info, demands)
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

// OpenSeen returns the seen store at a position that contains all demands. info may be nil.
func (s *Views) OpenSeen(ctx context.Context, info *call.Info, demands ...Demand) (*Seen, error) {
	o, err := s.openStore(ctx, s.Seen, info, demands)
	if err != nil {
		return nil, err
	}
	// The store may be outdated and have other settings than the program. It keeps the months of
	// its own retention, and an answer must neither miss one of them nor depend on how many older
	// ones it has not deleted yet (I10).
	settings, err := seen.ParseSettings(o.View.Settings())
	if err != nil {
		o.Close()
		return nil, err
	}
	return &Seen{Queries: seen.Query(o.View, settings), StoreView: o}, nil
}

// Candidates are items that may have been seen, by text id or by numeric id. Only one of the two
// slices is set.
type Candidates struct {
	Items   []string
	Numeric []uint64
}

// Len returns the number of candidates.
func (c Candidates) Len() int { return len(c.Items) + len(c.Numeric) }

// Unseen returns the indexes of the candidates that the user of the question has not seen, and how
// many months of plays were read. FilterSeen and feeds both use it.
func (r *Seen) Unseen(q seen.Question, c Candidates) (unseen []uint32, months int, err error) {
	unseen = make([]uint32, 0, c.Len())
	if len(c.Numeric) > 0 {
		return r.FilterNumeric(q, c.Numeric, unseen)
	}
	return r.Filter(q, c.Items, unseen)
}

// Counters is the counters projection at one position.
type Counters struct {
	*counters.Queries
	StoreView
}

// OpenCounters returns the counters at a position that contains all demands. info may be nil.
func (s *Views) OpenCounters(ctx context.Context, info *call.Info, demands ...Demand) (*Counters, error) {
	o, err := s.openStore(ctx, s.Counters, info, demands)
	if err != nil {
		return nil, err
	}
	c := &Counters{Queries: counters.NewQueries(o.View), StoreView: o}
	if o.remote != nil {
		c.WithRemote(o.remote)
	}
	return c, nil
}

// Notifications is the notifications projection at one position.
type Notifications struct {
	*notifications.Queries
	StoreView
	// Rebuilding says that the store had not yet caught up with the log since the process began.
	Rebuilding bool
}

// OpenNotifications returns the notifications at a position that contains all demands. info may be
// nil.
func (s *Views) OpenNotifications(ctx context.Context, info *call.Info, demands ...Demand) (*Notifications, error) {
	rebuilding := s.Notifications.Rebuilding() // before the view is taken, as in OpenInbox
	o, err := s.openStore(ctx, s.Notifications, info, demands)
	if err != nil {
		return nil, err
	}
	// As in OpenSeen: an outdated store keeps as many notifications as its own settings say.
	settings, err := notifications.ParseSettings(o.View.Settings())
	if err != nil {
		o.Close()
		return nil, err
	}
	return &Notifications{Queries: notifications.NewQueries(o.View, settings), StoreView: o, Rebuilding: rebuilding}, nil
}

// openStore returns a store at a position that contains all demands, and waits for it if necessary.
// It raises the lag in info to that of the store, so that a call that opens several stores has the
// lag of the one that is furthest behind. info may be nil.
func (s *Views) openStore(
	ctx context.Context, store *Store, info *call.Info, demands []Demand,
) (o StoreView, err error) {
	view, err := store.View()
	if err != nil {
		return o, err
	}
	// Nearly always the view contains all demands already, so it is opened before any wait.
	for _, d := range demands {
		if d.isEmpty() || s.contains(view, d.Position) {
			continue
		}
		// The store needs no view while it is waited for. The next view also contains what the last
		// one did.
		_ = view.Close()
		if err := s.Await(ctx, store.Live, d); err != nil {
			return o, err
		}
		view, err = store.View()
		if err != nil {
			return o, err
		}
	}

	position := s.Log.Position(view.Cursor().Seq)
	if info != nil {
		info.Lag = max(info.Lag, 0, int64(s.Hub.Head())-int64(position.Seq))
	}
	o = StoreView{View: view, At: position, Position: store.positionTexts.Of(position)}
	if s.Peers != nil {
		o.remote = peers.NewRemoteBatch(s.Peers, view.Partitions(), position)
	}
	return o, nil
}

// PositionTexts caches the text of the last position, which many answers in a row share. It may be
// used concurrently.
type PositionTexts struct{ last atomic.Pointer[positionText] }

type positionText struct {
	pos  events.Position
	text string
}

// Of returns the text of a position, as the API returns it.
func (p *PositionTexts) Of(pos events.Position) string {
	last := p.last.Load()
	if last != nil && last.pos == pos {
		return last.text
	}
	// Two calls with different positions may overwrite each other's text, which only costs making
	// it again.
	current := &positionText{pos: pos, text: pos.String()}
	p.last.Store(current)
	return current.text
}
