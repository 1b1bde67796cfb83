package verify

import (
	"testing"
	"time"

	"github.com/skein-feed/skein/replay"
)

// A comparison does not rest while a store waits for its view to be closed.
func TestComparisonDoesNotRestWhileStoreCloses(t *testing.T) {
	down := make(chan struct{})
	p := restTimer{pace: replay.Pace{Share: 1e-9}, workStart: time.Now().Add(-time.Second), storeClosing: down} // a rest of years
	if p.isStoreClosing() {
		t.Error("it is down")
	}
	close(down)
	if err := p.rest(t.Context()); err != nil || !p.isStoreClosing() {
		t.Error(err)
	}
}
