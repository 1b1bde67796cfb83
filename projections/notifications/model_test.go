package notifications

import (
	"context"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
)

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func openStore(t failer, keep int, bounds store.Bounds) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: New(Settings{Keep: keep}), Bounds: bounds})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func closeStore(t failer, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// withView calls do with queries over the present view of a store.
func withView(t failer, s *store.Store, keep int, do func(q *Queries)) {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	do(NewQueries(v, Settings{Keep: keep}))
	if err := v.Close(); err != nil {
		t.Fatalf("close the view: %v", err)
	}
}

// modelSources answers what groups need from the model.
type modelSources struct{ *model.Graph }

func (m modelSources) Pin(owner, id string) (Pin, bool, error) {
	pins := m.Pins(owner)
	i := slices.IndexFunc(pins, func(p model.Pin) bool { return p.ID == id })
	if i < 0 {
		return Pin{}, false, nil
	}
	return Pin{Item: pins[i].Item, RepinOwner: pins[i].RepinOwner, RepinPin: pins[i].RepinPin}, true, nil
}

func (m modelSources) Hides(user, actor string) (bool, error) {
	isActor := func(e model.Entry) bool { return e.User == actor }
	isUser := func(e model.Entry) bool { return e.User == user }
	return slices.ContainsFunc(m.Muted(user), isActor) || slices.ContainsFunc(m.Blocked(user), isActor) ||
		slices.ContainsFunc(m.Blocked(actor), isUser), nil
}

// Followers returns the followers of the model, newest first.
func (m modelSources) Followers(_ context.Context, user string, since events.Micros, n int) (list []Follower, err error) {
	for _, e := range m.Graph.Followers(user, model.None) {
		if e.Since <= since && len(list) < n {
			list = append(list, Follower{e.User, e.Since})
		}
	}
	return list, nil
}

// modelRows returns the newest notifications of a kind that the model keeps, in the form of the
// projection.
func modelRows(g *model.Graph, user string, kind Kind, keep int) (list []Notification) {
	for _, n := range g.NotificationRows(user, keep) {
		k := Reacted
		if n.Kind == events.PinCreated {
			k = Repinned
		}
		if k == kind && len(list) < keep {
			list = append(list, Notification{
				Kind: k, Pin: n.Pin, Actor: n.Actor, Item: n.Item, Reaction: n.Reaction, Repin: n.Repin, Since: n.Since,
			})
		}
	}
	return list
}

// modelGroup is what a group and a group of the model have in common.
type modelGroup struct {
	Kind       Kind
	Pin, Item  string
	Day        int64
	Actors     []string
	ActorCount int
	Newest     events.Micros
}

// modelGroups returns the groups of the model in the form of [modelGroup].
func modelGroups(g *model.Graph, user string, keep int) (list []modelGroup) {
	kinds := map[events.Kind]Kind{events.UserFollowed: Followed, events.Reacted: Reacted, events.PinCreated: Repinned}
	for _, n := range g.Notifications(user, keep) {
		list = append(list, modelGroup{
			kinds[n.Kind], n.Pin, n.Item, n.Day, n.Actors[:min(len(n.Actors), MaxActors)], len(n.Actors), n.Newest,
		})
	}
	return list
}

// summaries returns groups in the form of [modelGroup].
func summaries(groups []Group) (list []modelGroup) {
	for _, g := range groups {
		var actors []string
		for _, a := range g.Actors {
			actors = append(actors, a.Actor)
		}
		list = append(list, modelGroup{g.Kind, g.Pin, g.Item, g.Day, actors, g.ActorCount, g.Newest})
	}
	return list
}

// readAll reads the pages of a list of groups, each with at most size groups.
func readAll(t failer, q *Queries, src Sources, user string, size int) (all []Group) {
	t.Helper()
	var after PageCursor
	for {
		page, next, err := q.Groups(t.(interface{ Context() context.Context }).Context(), src, user, after, size)
		if err != nil {
			t.Fatalf("groups of %s: %v", user, err)
		}
		if len(page) > size || len(page) < size && next != nil {
			t.Fatalf("groups of %s: got a page of %d groups, next %x, want %d, or the last page", user, len(page), next, size)
		}
		all = append(all, page...)
		if next == nil {
			return all
		}
		after = next
	}
}

// checkUser compares everything that the store says about a user with the model.
func checkUser(t failer, q *Queries, g *model.Graph, user string, keep int) {
	t.Helper()
	for _, kind := range storedKinds {
		got, err := q.Newest(user, kind)
		if err != nil {
			t.Fatalf("notifications of %s: %v", user, err)
		}
		if diff := cmp.Diff(modelRows(g, user, kind, keep), got, cmpopts.IgnoreUnexported(Notification{})); diff != "" {
			t.Fatalf("notifications of %s of kind %d (-want +got):\n%s", user, kind, diff)
		}
	}

	markers, err := q.Markers(user)
	if err != nil {
		t.Fatalf("markers of %s: %v", user, err)
	}
	if diff := cmp.Diff(g.Markers(user), model.NotificationMarkers(markers), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("markers of %s (-want +got):\n%s", user, diff)
	}

	want := modelGroups(g, user, keep)
	for _, size := range []int{1, 2, 100} {
		if diff := cmp.Diff(want, summaries(readAll(t, q, modelSources{g}, user, size))); diff != "" {
			t.Fatalf("groups of %s, %d on a page (-want +got):\n%s", user, size, diff)
		}
	}
	checkUnseen(t, q, g, user, want)
}

// checkUnseen compares the number of unseen groups with the groups of the model.
func checkUnseen(t failer, q *Queries, g *model.Graph, user string, groups []modelGroup) {
	t.Helper()
	seen := g.Markers(user).Seen
	want := 0
	for _, group := range groups {
		if group.Newest > seen {
			want++
		}
	}
	for _, limit := range []int{0, 2, 100} {
		ctx := t.(interface{ Context() context.Context }).Context()
		got, more, err := q.CountUnseen(ctx, modelSources{g}, user, seen, limit, func(string) {})
		if err != nil {
			t.Fatalf("unseen groups of %s: %v", user, err)
		}
		if got != min(want, limit) {
			t.Fatalf("unseen groups of %s up to %d: got %d, want %d", user, limit, got, min(want, limit))
		}
		if wantMore := want > limit; more != wantMore {
			t.Fatalf("more than %d unseen groups of %s: got %v, want %v", limit, user, more, wantMore)
		}
	}
}

// TestNotificationsAreThoseOfTheModel folds generated histories, and compares rows, markers, groups
// and counts at every envelope.
func TestNotificationsAreThoseOfTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keep := rapid.SampledFrom([]int{1, 2, 4, 1000}).Draw(t, "keep")
		bounds := rapid.SampledFrom([]store.Bounds{{}, {BatchBytes: 1}}).Draw(t, "bounds")
		history := histories.History(t, histories.Options{Notifications: true})

		s := openStore(t, keep, bounds)
		defer closeStore(t, s)
		folded := 0
		for _, env := range histories.Envelopes(history) {
			if err := s.Fold([]*events.Envelope{env}); err != nil {
				t.Fatalf("fold: %v", err)
			}
			folded += len(env.Events)
			g := model.New(history[:folded]).At(env.Cursor.LastTime)
			withView(t, s, keep, func(q *Queries) {
				for _, user := range g.Users() {
					checkUser(t, q, g, user, keep)
				}
			})
		}
	})
}

// TestBackfilledRepinsOfOneTimeNotifyInAnyOrder checks that the order of arrival does not decide
// what a notification shows, if a re-pin was imported more than once with the same time.
func TestBackfilledRepinsOfOneTimeNotifyInAnyOrder(t *testing.T) {
	const at = histories.Start - 10
	repins := []events.Event{
		{Kind: events.PinCreated, User: "bob", Pin: "p2", Item: "9", Board: "z", Attributes: []byte("z")},
		{Kind: events.PinCreated, User: "bob", Pin: "p2", Item: "10", Board: "a"},
		{Kind: events.PinCreated, User: "bob", Pin: "p2", Item: "10", Board: "b"},
		{Kind: events.PinCreated, User: "bob", Pin: "p2", Item: "8"},
	}
	for i := range repins {
		repins[i].Backfill = true
		repins[i].Source = "import"
		repins[i].Time = at
		repins[i].RepinUser = "ann"
		repins[i].RepinPin = "p1"
	}
	want := []Notification{{Kind: Repinned, Pin: "p1", Actor: "bob", Item: "10", Repin: "p2", Since: at}}

	for _, order := range [][]int{{0, 1, 2, 3}, {1, 0, 3, 2}, {2, 3, 1, 0}, {3, 2, 0, 1}} {
		s := openStore(t, 1000, store.Bounds{})
		var history []events.Event
		for n, i := range order {
			ev := repins[i]
			ev.Seq = uint64(n + 1)
			ev.Offset = uint64(n + 1)
			history = append(history, ev)
			cursor := events.Cursor{Log: events.LogID{1}, Epoch: 1, Seq: ev.Seq, LastTime: histories.Start + events.Micros(n)}
			env := &events.Envelope{Cursor: cursor, Kinds: events.Kinds(ev.Kind), Events: []events.Event{ev}}
			if err := s.Fold([]*events.Envelope{env}); err != nil {
				t.Fatalf("fold: %v", err)
			}
		}

		withView(t, s, 1000, func(q *Queries) {
			got, err := q.Newest("ann", Repinned)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Notification{})); diff != "" {
				t.Errorf("arrival in the order %v (-want +got):\n%s", order, diff)
			}
		})
		if diff := cmp.Diff(want, modelRows(model.New(history), "ann", Repinned, 1000)); diff != "" {
			t.Errorf("model, arrival in the order %v (-want +got):\n%s", order, diff)
		}
		closeStore(t, s)
	}
}

// TestErasedUserLeavesNoRow checks that no row names a user who was deleted, as actor or as
// recipient.
func TestErasedUserLeavesNoRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := histories.History(t, histories.Options{Notifications: true, Without: events.Kinds(events.UserDeleted)})
		envs := histories.Envelopes(history)
		last := envs[len(envs)-1].Cursor
		users := model.New(history).Users()
		if len(users) == 0 {
			return // the history only ends backfills
		}

		// Delete a user at the end of the history.
		user := rapid.SampledFrom(users).Draw(t, "user")
		last.Seq++
		last.LastTime++
		envs = append(envs, &events.Envelope{Cursor: last, Kinds: events.Kinds(events.UserDeleted), Events: []events.Event{
			{Kind: events.UserDeleted, Seq: last.Seq, Time: last.LastTime, User: user},
		}})

		s := openStore(t, 3, store.Bounds{BatchBytes: 1})
		defer closeStore(t, s)
		if err := s.Fold(envs); err != nil {
			t.Fatalf("fold: %v", err)
		}

		v, err := s.View()
		if err != nil {
			t.Fatalf("view: %v", err)
		}
		defer func() { _ = v.Close() }()
		it := v.Iter(nil, nil)
		for it.Next() {
			if projections.IsRuntimeKey(it.Key()) {
				continue
			}
			d, err := DescribeRow(it.Key(), it.Value())
			if err != nil {
				t.Fatalf("row %x: %v", it.Key(), err)
			}
			for _, f := range append(d.Key(), d.Value()...) {
				if f.Value == user && (f.Name == "A" || f.Name == "B") {
					t.Fatalf("%s was deleted, want no row with the id, but there is %s", user, d)
				}
			}
		}
		if err := it.Close(); err != nil {
			t.Fatalf("rows: %v", err)
		}
	})
}
