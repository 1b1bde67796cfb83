package inbox_test

import (
	"fmt"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
)

// benchStore folds events, 500 in an envelope, into a store on disk.
type benchStore struct {
	*store.Store
	b      *testing.B
	cursor events.Cursor
	env    *events.Envelope
}

func newBenchStore(b *testing.B, p projections.Projection) *benchStore {
	b.Helper()
	s, err := store.Open(store.Options{Dir: b.TempDir(), Projection: p})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return &benchStore{
		Store: s, b: b, env: &events.Envelope{}, cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: histories.Start},
	}
}

func (s *benchStore) add(ev events.Event) {
	s.cursor.LastTime++
	ev.Seq = s.cursor.Seq + 1
	ev.Slot = uint16(len(s.env.Events))
	ev.Time = s.cursor.LastTime
	s.env.Kinds |= events.Kinds(ev.Kind)
	s.env.Events = append(s.env.Events, ev)
	if len(s.env.Events) == 500 {
		s.send()
	}
}

// send folds what was added since the last envelope.
func (s *benchStore) send() {
	s.b.Helper()
	if len(s.env.Events) == 0 {
		return
	}
	s.cursor.Seq++
	s.env.Cursor = s.cursor
	if err := s.Fold([]*events.Envelope{s.env}); err != nil {
		s.b.Fatal(err)
	}
	s.env = &events.Envelope{}
}

// flush folds the rest, and writes everything to disk.
func (s *benchStore) flush() {
	s.b.Helper()
	s.send()
	if err := s.Flush(); err != nil {
		s.b.Fatal(err)
	}
}

// readFirstPages lets readers read a page, with which their inboxes begin.
func (s *benchStore) readFirstPages(readers int, name func(i int) string) {
	s.b.Helper()
	s.send()
	for i := range readers {
		mustReadPage(s.b, s.Store, inbox.Feed{Reader: name(i)}, 1)
	}
}

// BenchmarkFanOut folds posts to 2000 followers each, of 50,000 active readers. An operation is a
// delivery.
func BenchmarkFanOut(b *testing.B) {
	const readers, authors, followers = 50_000, 200, 2000
	s := newBenchStore(b, inbox.NewWith(inbox.DefaultSettings(), querycache.New(1<<30)))
	name := func(i int) string { return fmt.Sprint(1_000_000_000_000 + i*7919%readers) }
	for a := range authors {
		for i := range followers {
			s.add(events.Event{Kind: events.UserFollowed, User: name(a*977 + i*23), Peer: fmt.Sprint("author", a)})
		}
	}
	s.readFirstPages(readers, name)

	b.ResetTimer()
	b.ReportAllocs()
	for n := 0; n < b.N; n += followers {
		s.add(events.Event{Kind: events.PinCreated, User: fmt.Sprint("author", n/followers%authors), Pin: fmt.Sprint("p", n)})
	}
	s.flush()
}

// BenchmarkFollow folds follows by active readers of users who have not pinned anything.
func BenchmarkFollow(b *testing.B) {
	const readers = 1000
	s := newBenchStore(b, inbox.New(inbox.DefaultSettings()))
	name := func(i int) string { return fmt.Sprint(1_000_000_000_000 + i*7919) }
	s.send()

	b.ResetTimer()
	b.ReportAllocs()
	for n := range b.N {
		s.add(events.Event{Kind: events.UserFollowed, User: name(n % readers), Peer: name(n/readers + readers + n%77*1000)})
	}
	s.flush()
}
