package gateway

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// keepIn keeps the stores in the given directories.
func keepIn(dirs map[string]string) func(*worldOptions) {
	return func(o *worldOptions) { o.dirs = dirs }
}

// shutDown ends a process, so that another one can open its stores.
func (w *world) shutDown() {
	w.t.Helper()
	if err := w.stop(); err != nil {
		w.t.Fatal(err)
	}
	w.closeStores()
}

// mustBeOutdated fails the test unless the store answers from an outdated generation.
func mustBeOutdated(t *testing.T, l *live.Live) {
	t.Helper()
	if st := l.Status(); st.State != store.Outdated || st.Unreadable {
		t.Fatalf("got the store of %s in the state %s (%v), want a readable one that is outdated", st.Name, st.State, st.Error)
	}
}

// TestOutdatedSeenIsAskedWithItsOwnSettings checks that the windows of answers are those of the
// store, whatever settings the program has (I10).
func TestOutdatedSeenIsAskedWithItsOwnSettings(t *testing.T) {
	w := newWorld(t)
	at := w.publish(history(played("ann", "1"), 1, 1), history(played("ann", "2"), 2, 2), history(played("ann", "3"), 3, 3))
	items := []string{"1", "2", "3"}
	withSettings := func(s seen.Settings) func(*worldOptions) { return func(o *worldOptions) { o.seen = &s } }

	stored := seen.Settings{Window: 2, Retention: 3, FalsePositives: 0.001}
	dirs := map[string]string{"seen": t.TempDir()}
	before := w.replica(keepIn(dirs), withSettings(stored))
	ask(before, before.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: items, AtLeast: at})
	before.shutDown()

	for name, present := range map[string]seen.Settings{
		"longer":  {Window: 4, Retention: 12, FalsePositives: 0.001},
		"shorter": {Window: 1, Retention: 1, FalsePositives: 0.001},
	} {
		t.Run(name, func(t *testing.T) {
			now := w.replica(keepIn(dirs), withSettings(present))
			mustBeOutdated(t, now.seen)
			for window, want := range map[int32]struct {
				unseen []uint32
				months int32
			}{0: {[]uint32{1, 2}, 2}, 1: {[]uint32{0, 1, 2}, 1}, 3: {[]uint32{2}, 3}, 12: {[]uint32{2}, 3}} {
				res := ask(now, now.seenClient.FilterSeen, &skeinv1.FilterSeenRequest{UserId: "ann", ItemIds: items, WindowMonths: window, AtLeast: at})
				if diff := cmp.Diff(want.unseen, res.GetUnseenIndexes()); diff != "" || res.GetMonthsRead() != want.months {
					t.Errorf("window %d: got %d months, want %d; unseen (-want +got):\n%s", window, res.GetMonthsRead(), want.months, diff)
				}
			}
			now.shutDown()
		})
	}
}

// TestOutdatedNotificationsAreThoseThatTheStoreKeeps checks that an answer has as many notifications
// as the settings of the store say, and none of those that the store has not dropped yet.
func TestOutdatedNotificationsAreThoseThatTheStoreKeeps(t *testing.T) {
	w := newWorld(t, withFeeds)
	const keep = 4
	var at string
	for _, pin := range []string{"p1", "p2", "p3", "p4", "p5"} {
		at = w.publish(pinned("ann", "", pin), reactedTo("bob", "ann", pin, ""))
	}
	withKeep := func(n int) func(*worldOptions) {
		return func(o *worldOptions) { o.notifications = &notifications.Settings{Keep: n} }
	}

	dirs := map[string]string{"notifications": t.TempDir()}
	before := w.replica(withFeeds, keepIn(dirs), withKeep(keep))
	want := groupsOf(before, at)
	if len(want) != keep {
		t.Fatalf("got %d groups from a store that keeps %d notifications", len(want), keep)
	}
	before.shutDown()

	for name, present := range map[string]int{"more": 1000, "fewer": 1} {
		t.Run(name, func(t *testing.T) {
			now := w.replica(withFeeds, keepIn(dirs), withKeep(present))
			mustBeOutdated(t, now.notifications)
			if diff := cmp.Diff(want, groupsOf(now, at)); diff != "" {
				t.Errorf("groups of the outdated store (-want +got):\n%s", diff)
			}
			now.shutDown()
		})
	}
}

// groupsOf returns the pins of ann's groups of notifications.
func groupsOf(w *world, at string) (pins []string) {
	res := ask(w, w.notifyClient.ReadNotifications, &skeinv1.ReadNotificationsRequest{UserId: "ann", AtLeast: at})
	for _, g := range res.GetGroups() {
		pins = append(pins, g.GetPin().GetPinId())
	}
	return pins
}
