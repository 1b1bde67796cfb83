package verify

import (
	"testing"
	"time"

	"github.com/skein-feed/skein/replay"
)

// A comparison does not rest while a store waits for its view to be closed.
func TestComparisonDoesNotRestWhileStoreCloses(t *testing.T) {
	// With such a small share, the rest after a second of work would take years.
	closing := make(chan struct{})
	p := restTimer{pace: replay.Pace{Share: 1e-9}, workStart: time.Now().Add(-time.Second), storeClosing: closing}
	if p.isStoreClosing() {
		t.Error("before the store closes: isStoreClosing returned true, expected false")
	}

	close(closing)
	if err := p.rest(t.Context()); err != nil {
		t.Errorf("rest while the store closes: got %v, expected no error", err)
	}
	if !p.isStoreClosing() {
		t.Error("while the store closes: isStoreClosing returned false, expected true")
	}
}
