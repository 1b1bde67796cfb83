package audit

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/store"
)

// A store that must be closed, for example after a cut-over, does not wait for an audit that rests.
// The audit continues with other views.
func TestClosingStoreDoesNotWaitForAudit(t *testing.T) {
	var stores []*store.Store
	for _, p := range all.All(all.Settings{}) {
		s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: p})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	named := func(name string) *store.Store {
		for _, s := range stores {
			if s.Name() == name {
				return s
			}
		}
		t.Fatal(name)
		return nil
	}
	a, err := Open(t.Context(), named("graph"), named("inbox"), named("counters"), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if a.isStoreClosing() {
		t.Error("it is down")
	}
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(a.sleepUnlessClosing(t.Context(), time.Hour), a.Close()) }()
	if err := named("inbox").Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := a.openViews(t.Context()); err == nil {
		t.Error("a closed store has a view")
	}
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
