package inbox_test

import (
	"fmt"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/model/histories"
)

// BenchmarkFanOut folds posts to 2000 followers each, of 50 000 active readers, on disk: an operation is a delivery.
func BenchmarkFanOut(b *testing.B) {
	const readers, authors, followers = 50_000, 200, 2000
	s, err := projections.Open(projections.Options{Dir: b.TempDir(), Projection: inbox.New(inbox.DefaultSettings())})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: histories.Start}
	var list []events.Event
	send := func() {
		c.Seq++
		env := &events.Envelope{Events: list}
		for i := range list {
			c.LastTime++
			list[i].Seq, list[i].Slot, list[i].Time = c.Seq, uint16(i), c.LastTime
			env.Kinds |= events.Kinds(list[i].Kind)
		}
		env.Cursor = c
		if err := s.Fold([]*events.Envelope{env}); err != nil {
			b.Fatal(err)
		}
		list = nil
	}
	add := func(ev events.Event) {
		if list = append(list, ev); len(list) == 500 {
			send()
		}
	}
	name := func(i int) string { return fmt.Sprint(1_000_000_000_000 + i*7919%readers) }
	for i := range readers {
		add(events.Event{Kind: events.ReaderActive, User: name(i)})
	}
	for a := range authors {
		for i := range followers {
			add(events.Event{Kind: events.UserFollowed, User: name(a*977 + i*23), Peer: fmt.Sprint("author", a)})
		}
	}
	send()
	b.ResetTimer()
	b.ReportAllocs()
	for n := 0; n < b.N; n += followers {
		add(events.Event{Kind: events.PinCreated, User: fmt.Sprint("author", n/followers%authors), Pin: fmt.Sprint("p", n)})
	}
	if len(list) > 0 {
		send()
	}
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
}
