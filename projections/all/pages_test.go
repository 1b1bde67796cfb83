package all_test

import (
	"errors"
	"testing"

	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/store"
)

// beginInbox reads a page of a feed, which creates the inbox of its reader.
func beginInbox(t testing.TB, s *store.Store, reader string) {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	_, err = inbox.CachedQuery(v).Feed(t.Context(), inbox.Feed{Reader: reader}, nil, 20)
	if err := errors.Join(err, v.Close()); err != nil {
		t.Fatal(err)
	}
}
