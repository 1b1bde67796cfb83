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
	stores := map[string]*store.Store{}
	for _, p := range all.All(all.Settings{}) {
		s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: p})
		if err != nil {
			t.Fatal(err)
		}
		stores[s.Name()] = s
	}

	a, err := Open(t.Context(), stores["graph"], stores["inbox"], stores["counters"], Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if a.isStoreClosing() {
		t.Error("before a store closes: isStoreClosing returned true, expected false")
	}

	// Close a store while the audit rests. The store waits until the audit has closed its views.
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(a.sleepUnlessClosing(t.Context(), time.Hour), a.Close()) }()
	if err := stores["inbox"].Close(); err != nil {
		t.Errorf("close of the store: got %v, expected no error", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("rest of the audit: got %v, expected no error", err)
	}

	if err := a.openViews(t.Context()); err == nil {
		t.Error("openViews of a closed store returned no error, expected one")
	}
	for name, s := range stores {
		if err := s.Close(); err != nil {
			t.Errorf("close %s: got %v, expected no error", name, err)
		}
	}
}
