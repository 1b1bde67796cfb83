package counters

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/projectiontest/model"
	"github.com/skein-feed/skein/projections/store"
)

// sizes holds settings, and values for the constants of the same names. With small values, short
// histories reach every case.
type sizes struct {
	Settings
	maxPinsByName, maxListsByScore int
	maxComputedPins, maxRowsPerPin int64
}

func defaultSizes() sizes {
	return sizes{DefaultSettings(), maxPinsByName, maxListsByScore, maxComputedPins, maxRowsPerPin}
}

func drawSizes(t *rapid.T) sizes {
	s := defaultSizes()
	s.ReactionWeights = rapid.SampledFrom([]string{"", "like=4,save=3"}).Draw(t, "reaction weights")
	s.HalfLife = rapid.SampledFrom([]time.Duration{time.Second, 24 * time.Hour}).Draw(t, "half-life")
	s.maxPinsByName = rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "named")
	s.maxListsByScore = rapid.SampledFrom([]int{1, 2, 64}).Draw(t, "listed")
	s.maxComputedPins = rapid.SampledFrom([]int64{0, 2, 256}).Draw(t, "computed")
	s.maxRowsPerPin = rapid.SampledFrom([]int64{0, 2}).Draw(t, "rows per pin") // 0: no limit
	return s
}

func (s sizes) projection() *Counters {
	c := New(s.Settings)
	c.maxPinsByName = s.maxPinsByName
	c.maxListsByScore = s.maxListsByScore
	return c
}

func (s sizes) query(v *projections.View) *Queries {
	q := NewQueries(v)
	q.maxComputedPins = s.maxComputedPins
	q.maxRowsPerPin = s.maxRowsPerPin
	return q
}

// drawHistory draws a history about pins, or one about plays in which hours and months pass.
func drawHistory(t *rapid.T) []events.Event {
	plays := rapid.Bool().Draw(t, "plays")
	return histories.History(t, histories.Options{Feeds: !plays, Plays: plays})
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

var someBounds = []store.Bounds{{}, {BatchBytes: 1}}

func openStore(t failer, s sizes, bounds store.Bounds) *store.Store {
	t.Helper()
	store, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: s.projection(), Bounds: bounds})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return store
}

func mustFold(t failer, s *store.Store, env *events.Envelope) {
	t.Helper()
	if err := s.Fold([]*events.Envelope{env}); err != nil {
		t.Fatalf("fold %d: %v", env.Seq(), err)
	}
}

func mustView(t failer, s *store.Store) *projections.View {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatalf("view: %v", err)
	}
	return v
}

func heatSettings(s sizes) model.HeatSettings {
	return model.HeatSettings{
		HalfLife: events.Micros(s.HalfLife.Microseconds()), Play: s.PlayWeight, Repin: s.RepinWeight,
		Reactions: s.projection().reactionWeights,
	}
}

// TestCountersAgreeWithModel checks that, at every position of every history, all counts and lists
// are those of the model (I7), and that the rows of lists follow from the versions and the named
// items. This holds for all limits of lists, and wherever the fold cuts the events.
func TestCountersAgreeWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := drawHistory(t)
		set := drawSizes(t)
		s := openStore(t, set, rapid.SampledFrom(someBounds).Draw(t, "bounds"))
		defer s.Close()

		folded := 0
		for _, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
			folded += len(env.Events)
			compareItems(t, s, set, history[:folded])
		}
	})
}

// TestCountersAgreeWithModelInLongHistories checks the same at some positions of long seeded
// histories, in which much state accumulates.
func TestCountersAgreeWithModelInLongHistories(t *testing.T) {
	n := 600
	if testing.Short() {
		n = 200
	}
	for seed := range uint64(6) {
		history := histories.FixedFeeds(seed, n)
		if seed%2 == 1 {
			history = histories.FixedPlays(seed, n)
		}

		set := defaultSizes()
		set.maxPinsByName = int(seed % 3)
		set.maxListsByScore = []int{1, 64}[seed/3]
		set.maxComputedPins = []int64{0, 256}[seed%2]

		s := openStore(t, set, store.Bounds{})
		folded := 0
		for i, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
			folded += len(env.Events)
			if i%24 == 0 || folded == len(history) {
				compareItems(t, s, set, history[:folded])
			}
		}

		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFoldInStepsLeavesTheSameRows checks that a fold that commits after every event leaves the same
// rows as one that commits each envelope at once.
func TestFoldInStepsLeavesTheSameRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs := histories.Envelopes(drawHistory(t))
		set := drawSizes(t)
		var rows [2]map[string]string
		for i, bounds := range someBounds {
			s := openStore(t, set, bounds)
			for _, env := range envs {
				mustFold(t, s, env)
			}
			rows[i] = readRows(t, s)
			s.Close()
		}

		if !maps.Equal(rows[0], rows[1]) { // cmp.Diff is slow
			t.Fatalf("rows of a fold in steps (+) differ from those of a fold in one step (-):\n%s", cmp.Diff(rows[0], rows[1]))
		}
	})
}

// readRows returns the rows of the projection by key, without those of the store itself.
func readRows(t failer, s *store.Store) map[string]string {
	t.Helper()
	v := mustView(t, s)
	defer v.Close()

	rows := map[string]string{}
	it := v.Iter(nil, nil)
	for it.Next() {
		if !projections.IsRuntimeKey(it.Key()) {
			rows[string(it.Key())] = string(it.Value())
		}
	}
	if err := it.Close(); err != nil {
		t.Fatalf("rows: %v", err)
	}
	return rows
}

// compareItems compares every answer about pins, items and lists with that of the model.
func compareItems(t failer, s *store.Store, set sizes, history []events.Event) {
	t.Helper()
	want := model.New(history)
	v := mustView(t, s)
	defer v.Close()
	q := set.query(v)
	compare := func(got, want any, format string, args ...any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("at %d: %s: -want +got\n%s\nafter\n%s", v.Cursor().Seq, fmt.Sprintf(format, args...), diff, formatHistory(history))
		}
	}
	heats := model.Heats(history, heatSettings(set))
	compareTrending := func(owner string, board *string) {
		t.Helper()
		list := toTrendingItems(want.Top(model.Scope{Owner: owner, Board: board}, heats))
		compare(readList(t, q, Scope{owner, board}, 2), list, "list of %q", owner)
	}

	compareTrending("", nil)

	// Each user's counts, reactions and list.
	for _, user := range append(want.Users(), "stranger") {
		got, err := q.UserCounts(user)
		if err != nil {
			t.Fatalf("counts of %s: %v", user, err)
		}
		compare(got.Pins, int64(len(want.Pins(user))), "pins of %s", user)
		compare(got.Plays, int64(want.PlaysBy(user)), "plays by %s", user)
		for _, kind := range someKinds {
			var items []ReactedItem
			for _, r := range want.Reactions(user, kind) {
				items = append(items, ReactedItem(r))
			}
			compare(readReactions(t, q, user, kind, 2), items, "reactions %q of %s", kind, user)
		}
		compareTrending(user, nil)
	}

	// Each board's count and list.
	for _, b := range append(want.BoardsMentioned(), model.BoardID{Owner: "stranger"}) {
		got, err := q.BoardPins(b.Owner, b.Board)
		if err != nil {
			t.Fatalf("counts of board %s of %s: %v", b.Board, b.Owner, err)
		}
		compare(got, int64(len(want.BoardPins(b.Owner, b.Board))), "pins on board %q of %s", b.Board, b.Owner)
		compareTrending(b.Owner, &b.Board)
	}

	// Each item's counts and reactions.
	for _, item := range itemsIn(history) {
		got, err := q.ItemCounts(item)
		if err != nil {
			t.Fatalf("counts of item %s: %v", item, err)
		}
		compareReactions(t, q, want, item, got, compare)
		got.OtherKinds = 0 // compared by compareReactions
		c := want.ItemCounts(item)
		compare(got, ItemCounts{Plays: int64(c.Plays), Likes: int64(c.Likes), Repins: int64(c.Repins)}, "counts of item %s", item)
	}

	auditLists(t, v, set, want, history)
}

// readList reads all pages of a list, and checks that each but the last is full and has a new page
// cursor.
func readList(t failer, q *Queries, s Scope, n int) (all []TrendingItem) {
	t.Helper()
	var after PageCursor
	for {
		page, next, err := q.Trending(context.Background(), s, after, n)
		if err != nil {
			t.Fatalf("list %+v: %v", s, err)
		}
		all = append(all, page...)
		if next == nil {
			return all
		}
		if len(page) != n {
			t.Fatalf("a page before the last has %d items, want %d", len(page), n)
		}
		if bytes.Equal(next, after) {
			t.Fatalf("a page has the page cursor %x of the page before, want a new one", next)
		}
		after = next
	}
}

// someKinds are the kinds of reactions in histories, and one kind that is in none.
var someKinds = []string{"", "save", "_bookmark", "nothing"}

// compareReactions compares the reactions to an item with those of the model: how many there are by
// kind, who reacted, and what each user has of them.
func compareReactions(
	t failer, q *Queries, want *model.Graph, item string, counts ItemCounts, compare func(got, want any, format string, args ...any),
) {
	t.Helper()
	// The counts by kind.
	var byKind []ReactionCount
	for _, c := range want.ReactionCounts(item) {
		byKind = append(byKind, ReactionCount{c.Reaction, int64(c.Count)})
	}
	first, err := q.ReactionCounts(item, counts, nil)
	if err != nil {
		t.Fatalf("reactions to %s: %v", item, err)
	}
	compare(first, byKind, "reactions to %s by kind", item)

	// The users who reacted with each kind, and their number.
	named, err := q.ReactionCounts(item, counts, someKinds)
	if err != nil {
		t.Fatalf("reactions to %s: %v", item, err)
	}
	for i, kind := range someKinds {
		var reactors []Reactor
		for _, r := range want.Reactors(item, kind) {
			reactors = append(reactors, Reactor(r))
		}
		got, total := readReactors(t, q, item, kind, 2)
		compare(got, reactors, "who reacted to %s with %q", item, kind)
		compare(total, int64(len(reactors)), "how many reacted to %s with %q", item, kind)
		compare(named[i], ReactionCount{kind, int64(len(reactors))}, "how many reacted to %s with %q, asked by name", item, kind)
	}

	// The reactions of each user.
	for _, user := range append(want.Users(), "stranger") {
		own, err := q.OwnReactions(user, item)
		if err != nil {
			t.Fatalf("reactions of %s to %s: %v", user, item, err)
		}
		compare(own, want.OwnReactions(user, item), "reactions of %s to %s", user, item)
	}
}

// readReactions reads all pages of a user's reactions, and checks that each but the last is full
// and has a new page cursor.
func readReactions(t failer, q *Queries, user, kind string, n int) (all []ReactedItem) {
	t.Helper()
	var after PageCursor
	for {
		page, next, err := q.Reactions(context.Background(), user, kind, after, n)
		if err != nil {
			t.Fatalf("reactions of %s: %v", user, err)
		}
		all = append(all, page...)
		if next == nil {
			return all
		}
		if len(page) != n {
			t.Fatalf("a page before the last has %d reactions, want %d", len(page), n)
		}
		if bytes.Equal(next, after) {
			t.Fatalf("a page has the page cursor %x of the page before, want a new one", next)
		}
		after = next
	}
}

// readReactors reads all pages of those who reacted to an item, and checks them as readReactions
// does. It also returns the length of the list, which every page must state.
func readReactors(t failer, q *Queries, item, kind string, n int) (all []Reactor, total int64) {
	t.Helper()
	var after PageCursor
	for first := true; ; first = false {
		page, next, err := q.Reactors(context.Background(), item, kind, after, n)
		if err != nil {
			t.Fatalf("who reacted to %s: %v", item, err)
		}
		if !first && page.Total != total {
			t.Fatalf("who reacted to %s: a page states %d users, want %d as the page before", item, page.Total, total)
		}
		total = page.Total

		all = append(all, page.Reactors...)
		if next == nil {
			return all, total
		}
		if len(page.Reactors) != n {
			t.Fatalf("a page before the last has %d users, want %d", len(page.Reactors), n)
		}
		if bytes.Equal(next, after) {
			t.Fatalf("a page has the page cursor %x of the page before, want a new one", next)
		}
		after = next
	}
}

func toTrendingItems(want []model.TrendingItem) (list []TrendingItem) {
	for _, h := range want {
		list = append(list, TrendingItem(h))
	}
	return list
}

// itemsIn returns the items of a history, and one that is in none.
func itemsIn(history []events.Event) []string {
	items := []string{"nothing"}
	for i := range history {
		if ev := &history[i]; ev.Item != "" && !slices.Contains(items, ev.Item) {
			items = append(items, ev.Item)
		}
	}
	return items
}

// auditLists derives the rows of all lists from the stored versions and named items, and compares
// them with the rows of the store.
func auditLists(t failer, v *projections.View, set sizes, want *model.Graph, history []events.Event) {
	t.Helper()
	a := auditor{
		ended:  map[uint8]map[uint64]endedVersion{},
		queues: map[uint8]versionQueue{},
		items:  map[string]itemRow{},
		named:  map[ownerPin]map[string]bool{},
		pins:   map[string]int{},
		listed: map[string]map[string]bool{},
		shown:  map[string]string{},
		lists:  map[string]string{},
	}
	it := v.Iter(nil, nil)
	for it.Next() {
		if err := a.readRow(it.Key(), it.Value()); err != nil {
			t.Fatalf("%x: %v", it.Key(), err)
		}
	}
	if err := it.Close(); err != nil {
		t.Fatalf("rows: %v", err)
	}

	// The row of an item counts the lists that have it by score, and keeps their limit.
	for item, row := range a.items {
		if row.listsByScore != int64(len(a.listed[item])) {
			t.Fatalf("%s is in the lists %v by score, and its row counts %d\nafter\n%s",
				item, a.listed[item], row.listsByScore, formatHistory(history))
		}
		if row.listsByScore > int64(set.maxListsByScore) {
			t.Fatalf("%s is in %d lists by score, want at most %d\nafter\n%s",
				item, row.listsByScore, set.maxListsByScore, formatHistory(history))
		}
	}

	// A list has an item by score if more pins than the limit named items of its partition. With a
	// small limit of lists, it may have the item by name instead.
	for key, items := range a.named {
		for item := range items {
			naming := a.pins[ownerPartition(key.owner, item)]
			wantByScore := naming > set.maxPinsByName
			if byScore := a.listed[item][key.owner]; byScore != wantByScore && set.maxListsByScore >= 64 {
				t.Fatalf("the list of %s has %s by score: got %v, want %v, because %d pins named items of its partition\nafter\n%s",
					key.owner, item, byScore, wantByScore, naming, formatHistory(history))
			}
		}
	}

	// The rows of the store are those that follow from the versions and the named items.
	lists, found := a.deriveLists(t, v)
	for what, diff := range map[string]string{
		"lists":                  cmp.Diff(lists, a.lists),
		"queues":                 cmp.Diff(a.deriveQueues(), a.queues, cmp.AllowUnexported(versionQueue{})),
		"ended versions by item": cmp.Diff(found, a.countEnded()),
		"what is shown":          cmp.Diff(a.deriveShown(t, want), a.shown),
	} {
		if diff != "" {
			t.Fatalf("%s: -want +got\n%s\nafter\n%s", what, diff, formatHistory(history))
		}
	}
	if n := a.countEnded(); n > len(history) {
		t.Fatalf("%d ended versions are stored, want at most %d, the number of events", n, len(history))
	}
}

// auditor collects the rows from which lists are derived, and the rows of lists.
type auditor struct {
	// ended has the ended versions of each partition by number, and queues the row of its queue.
	ended  map[uint8]map[uint64]endedVersion
	queues map[uint8]versionQueue
	items  map[string]itemRow
	// named has the items that each pin named.
	named map[ownerPin]map[string]bool
	// pins counts, by ownerPartition, the pins by which an owner named items of a partition.
	pins map[string]int
	// listed has, for each item, the owners whose lists have it by score.
	listed map[string]map[string]bool
	// shown and lists have the rows with the tags of shown items and of lists, by key.
	shown, lists map[string]string
}

// ownerPin identifies a pin.
type ownerPin struct{ owner, pin string }

// ownerPartition returns the key of auditor.pins: the owner, and the partition of the item.
func ownerPartition(owner, item string) string { return fmt.Sprint(owner, " ", itemPartition(item)) }

// readRow records a row, if its tag is one of those that the auditor needs.
func (a *auditor) readRow(key, row []byte) (err error) {
	rest := key[3:]
	switch projections.Tag(key[2]) {
	case tagItem:
		item, err := cutLastID(rest)
		if err != nil {
			return err
		}
		a.items[item], err = decodeItem(row)
		return err
	case tagItemLists:
		item, owner, err := cutLastTwoIDs(rest)
		if a.listed[item] == nil {
			a.listed[item] = map[string]bool{}
		}
		a.listed[item][owner] = true
		return err
	case tagNamedItem:
		owner, rest, err := events.CutID(rest)
		if err != nil {
			return err
		}
		item, pin, err := cutNamedItem(rest)
		id := ownerPin{owner, pin}
		if a.named[id] == nil {
			a.named[id] = map[string]bool{}
		}
		a.named[id][item] = true
		a.pins[ownerPartition(owner, item)]++
		return err
	case tagShownItem:
		a.shown[string(key)] = string(row)
	case tagGlobalList, tagOwnerList:
		a.lists[string(key)] = string(row)
	case tagEndedVersion:
		partition := keyPartition(key)
		if a.ended[partition] == nil {
			a.ended[partition] = map[uint64]endedVersion{}
		}
		a.ended[partition][binary.BigEndian.Uint64(rest)], err = decodeEndedVersion(row)
	case tagVersionQueue:
		a.queues[keyPartition(key)], err = decodeVersionQueue(row)
	}
	return err
}

func keyPartition(key []byte) uint8 { return events.Shard(binary.BigEndian.Uint16(key)).Partition() }

// deriveLists derives the rows of all lists. The result found is the number of ended versions that
// the rows of items refer to.
func (a *auditor) deriveLists(t failer, v *projections.View) (lists map[string]string, found int) {
	lists = map[string]string{}

	// Entries by name.
	for key, items := range a.named {
		for item := range items {
			if !a.listed[item][key.owner] {
				lists[string(nameEntryKey(nil, ownerListPrefix(key.owner), item))] = ""
			}
		}
	}

	// Entries by score, one per version.
	for item, row := range a.items {
		prefixes := [][]byte{globalListPrefix()}
		for owner := range a.listed[item] {
			prefixes = append(prefixes, ownerListPrefix(owner))
		}
		versions, err := readVersions(v, item, &row)
		if err != nil {
			t.Fatalf("versions of %s: %v", item, err)
		}
		for i, v := range versions {
			to := ""
			if i > 0 {
				to = string(appendUvarint(v.toSeq))
				found++
			}
			for _, prefix := range prefixes {
				lists[string(scoreEntryKey(nil, prefix, item, v.score, v.fromSeq))] = to
			}
		}
	}
	return lists, found
}

// countEnded returns the number of ended versions.
func (a *auditor) countEnded() (n int) {
	for _, ended := range a.ended {
		n += len(ended)
	}
	return n
}

// deriveQueues derives the queue of each partition from its ended versions, which must have
// consecutive numbers up to the last one that was given.
func (a *auditor) deriveQueues() map[uint8]versionQueue {
	queues := map[uint8]versionQueue{}
	for partition, stored := range a.queues {
		want := versionQueue{last: stored.last, length: uint64(len(a.ended[partition]))}
		if want.length > 0 {
			want.firstEndedAt = a.ended[partition][want.last-want.length+1].endedAt
		}
		queues[partition] = want
	}

	// A partition without a row of its queue must have no ended versions. The entry here makes the
	// comparison fail if it has some.
	for partition := range a.ended {
		if _, ok := a.queues[partition]; !ok {
			queues[partition] = versionQueue{length: uint64(len(a.ended[partition]))}
		}
	}
	return queues
}

// deriveShown derives the rows of what living pins show, and checks that the items of all of them
// were named.
func (a *auditor) deriveShown(t failer, want *model.Graph) map[string]string {
	shown := map[string]string{}
	for _, owner := range want.Users() {
		for _, pin := range want.Pins(owner) {
			shown[string(projections.AppendKey(nil, tagShownItem, owner, pin.Item, pin.ID))] = pin.Board
			if !a.named[ownerPin{owner, pin.ID}][pin.Item] {
				t.Fatalf("pin %s of %s exists, but no row says that it named %s", pin.ID, owner, pin.Item)
			}
		}
	}
	return shown
}

// appendUvarint encodes n independently of the code under test.
func appendUvarint(n uint64) (b []byte) {
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// formatHistory returns a history as text, with one event per line.
func formatHistory(history []events.Event) string {
	var b strings.Builder
	for i := range history {
		ev := &history[i]
		fmt.Fprintf(&b, "%d.%d %v", ev.Seq, ev.Slot, ev.Kind)
		if ev.Backfill {
			fmt.Fprintf(&b, " (%s %d)", ev.Source, ev.Offset)
		}
		fmt.Fprintf(&b, " at %d user=%s peer=%s board=%q pin=%s item=%s score=%d repin=%s/%s\n", ev.Time-histories.Start, ev.User,
			ev.Peer, ev.Board, ev.Pin, ev.Item, ev.Score, ev.RepinUser, ev.RepinPin)
	}
	return b.String()
}
