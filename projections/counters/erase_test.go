package counters

import (
	"bytes"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// longIDs maps the users of generated histories to ids of every form that are long enough to be
// searched for in rows.
var longIDs = map[string]string{
	"":    "",
	"ann": "raw-user-one",
	"7":   "8877665544332211001",
	"10":  "9988776655443322110",
	"007": "007-raw-user",
	"bob": "raw-user-two",

	"6ba7b810-9dad-11d1-80b4-00c04fd430c8": "0badcafe-9dad-4dd1-8bbb-00c04fd43099",
}

// deleteUserAndReimport gives the users of a history long ids, deletes one of them at its end, and
// repeats the imports at new offsets.
func deleteUserAndReimport(t *rapid.T, history []events.Event) (all []events.Event, victim string) {
	for i := range history {
		ev := &history[i]
		ev.User = longIDs[ev.User]
		ev.Peer = longIDs[ev.Peer]
		ev.RepinUser = longIDs[ev.RepinUser]
		if ev.Encoded == nil {
			continue
		}
		if read, rejection := events.FromProto(ev.Proto()); rejection == nil {
			ev.Encoded = read.Encoded
		}
	}

	envs := histories.Envelopes(history)
	seq := envs[len(envs)-1].Seq()
	now := envs[len(envs)-1].Cursor.LastTime
	add := func(ev events.Event) {
		seq++
		now++
		if !ev.Backfill {
			ev.Time = now
		}
		ev.Seq = seq
		ev.Slot = 0
		history = append(history, ev)
	}

	victim = longIDs[rapid.SampledFrom([]string{"ann", "7", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}).Draw(t, "deleted")]
	n := len(history)
	add(events.Event{Kind: events.UserDeleted, User: victim})
	for _, ev := range history[:n] {
		if ev.Backfill {
			ev.Offset += 1_000_000
			add(ev)
		}
	}
	return history, victim
}

// TestErasedUserLeavesNoRow checks that, after the deletion of a user, no row has the id, whatever
// imports bring later (I12).
func TestErasedUserLeavesNoRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history, victim := deleteUserAndReimport(t, drawHistory(t))
		set := drawSizes(t)
		s := openStore(t, set, rapid.SampledFrom(someBounds).Draw(t, "bounds"))
		defer s.Close()
		for _, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
		}
		checkNoRowNames(t, s, victim, history)
		compareItems(t, s, set, history)
	})
}

// checkNoRowNames checks that no row has the id of a user, neither as text nor as keys encode it.
func checkNoRowNames(t failer, s *store.Store, user string, history []events.Event) {
	t.Helper()
	id := bytes.TrimRight(events.AppendID(nil, user)[1:], "\x00")
	has := func(b []byte) bool { return bytes.Contains(b, id) || bytes.Contains(b, []byte(user)) }
	for key, value := range readRows(t, s) {
		if has([]byte(key)) || has([]byte(value)) {
			text, err := projections.Text(DescribeRow([]byte(key), []byte(value)))
			t.Fatalf("%s was deleted, want no row with the id, but there is\n%s %v\nafter\n%s", user, text, err, formatHistory(history))
		}
	}
}

// TestErasureInStepsLeavesTheSameRows erases a user with a thousand pins and likes in steps and
// at once. Both must leave the same rows, and keep what others did.
func TestErasureInStepsLeavesTheSameRows(t *testing.T) {
	var rows [2]map[string]string
	for i, bounds := range someBounds {
		set := defaultSizes()
		set.maxPinsByName = 2
		l := newItemLog(t, set)
		l.s.Close()
		l.s = openStore(t, set, bounds)

		var all []events.Event
		for n := range 1200 {
			item := "item" + string(rune('a'+n%26)) + string(rune('a'+n%7))
			all = append(all,
				newPinCreated("bob-to-go", "p"+string(rune('0'+n/1000))+item+string(rune('0'+n%10)), "board"+string(rune('0'+n%4)), item),
				events.Event{Kind: events.Reacted, User: "bob-to-go", Item: item},
				events.Event{Kind: events.Reacted, User: "eve", Item: item},
				events.Event{Kind: events.Played, User: "bob-to-go", Item: item},
				newPinCreated("eve", item, "", item))
		}
		all = append(all, events.Event{Kind: events.BoardDeleted, User: "bob-to-go", Board: "board1"})

		l.addAll(all)
		l.add(events.Event{Kind: events.UserDeleted, User: "bob-to-go"})
		checkNoRowNames(t, l.s, "bob-to-go", nil)
		rows[i] = readRows(t, l.s)

		v := mustView(t, l.s)
		q := NewQueries(v)
		bob, err := q.UserCounts("bob-to-go")
		if err != nil {
			t.Fatal(err)
		}
		if bob != (UserCounts{}) {
			t.Errorf("got counts %+v of the erased user, want none", bob)
		}
		item, err := q.ItemCounts("itemaa")
		if err != nil {
			t.Fatal(err)
		}
		if item.Likes != 1 || item.Plays == 0 {
			t.Errorf("got counts %+v of an item, want the like of eve and the plays", item)
		}
		eve, err := q.UserCounts("eve")
		if err != nil {
			t.Fatal(err)
		}
		if eve.Pins != 182 {
			t.Errorf("got counts %+v of eve, want 182 pins", eve)
		}
		if got := readList(t, q, Scope{Owner: "eve"}, 50); len(got) != 182 {
			t.Errorf("got %d items in the list of eve, want 182", len(got))
		}

		if err := v.Close(); err != nil {
			t.Error(err)
		}
		l.close()
	}

	if !maps.Equal(rows[0], rows[1]) { // cmp.Diff is slow
		t.Errorf("the bounds change the rows (-first bounds +second bounds)\n%s", cmp.Diff(rows[0], rows[1]))
	}
}
