package counters

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// TestNamedBoards: an item names its boards as long as they are few, also when there were more in between, and its lists follow
// its score throughout.
func TestNamedBoards(t *testing.T) {
	l := newItemLog(t, DefaultSettings())
	defer l.close()
	onBoards := func(n int) {
		t.Helper()
		var boards []string
		for i := range n {
			boards = append(boards, fmt.Sprintf("user%d/b%d", i/2, i))
		}
		v := viewOf(t, l.s)
		defer v.Close()
		key := projections.AppendKey(nil, tagItem, "song")
		row, ok, err := v.Get(key)
		if err != nil || !ok {
			t.Fatalf("on %d boards: found %v, %v", n, ok, err)
		}
		text, err := DescribeKey(key, row)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for word := range strings.FieldsSeq(text) {
			if _, board, ok := strings.Cut(word, "="); ok && strings.Contains(word, "/") {
				got = append(got, board)
			}
		}
		if n > named {
			boards = nil
		}
		if strings.Join(got, " ") != strings.Join(boards, " ") {
			t.Errorf("on %d boards the item names %q: %s", n, got, text)
		}
		audit(t, v, DefaultSettings(), nil)
	}
	const most = named + 2
	for i := range most {
		l.add(creates(fmt.Sprintf("user%d", i/2), fmt.Sprintf("p%d", i), fmt.Sprintf("b%d", i), "song"), scores("song", int64(i)))
		onBoards(i + 1)
	}
	// A second pin on a board changes nothing.
	l.add(creates("user0", "again", "b0", "song"))
	onBoards(most)
	l.add(events.Event{Kind: events.PinDeleted, User: "user0", Pin: "again"})
	for i := most - 1; i > 0; i-- {
		l.add(events.Event{Kind: events.PinDeleted, User: fmt.Sprintf("user%d", i/2), Pin: fmt.Sprintf("p%d", i)}, scores("song", int64(most+i)))
		onBoards(i)
	}
}

// BenchmarkPlays measures plays of items that are each on one board: heat is added, and two lists change beside everybody's.
func BenchmarkPlays(b *testing.B) {
	const items = 10_000
	l := newItemLog(b, DefaultSettings())
	defer l.close()
	var pins []events.Event
	for i := range items {
		pins = append(pins, creates(fmt.Sprint(i%1000), fmt.Sprint(i), "art", fmt.Sprint(1_000_000+i)))
	}
	l.addAll(pins)
	envs := make([]*events.Envelope, 0, b.N/100+1)
	for n := 0; n < b.N; n += 100 {
		env := &events.Envelope{Kinds: events.Kinds(events.Played)}
		for i := range 100 {
			env.Events = append(env.Events, events.Event{
				Kind: events.Played, User: fmt.Sprint(i), Item: fmt.Sprint(1_000_000 + (n+i)*7919%items), Slot: uint16(i),
			})
		}
		envs = append(envs, env)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for _, env := range envs {
		l.cursor.Seq++
		l.cursor.LastTime += 1000
		env.Cursor = l.cursor
		for i := range env.Events {
			env.Events[i].Seq, env.Events[i].Time = l.cursor.Seq, l.cursor.LastTime
		}
		foldOne(b, l.s, env)
	}
}
