package verify

import (
	"testing"
	"time"

	"github.com/skein-feed/skein/replay"
)

// TestPacerIsDown: a comparison does not rest while a store waits for its view.
func TestPacerIsDown(t *testing.T) {
	down := make(chan struct{})
	p := pacer{pace: replay.Pace{Share: 1e-9}, since: time.Now().Add(-time.Second), down: down} // a rest of years
	if p.isDown() {
		t.Error("it is down")
	}
	close(down)
	if err := p.rest(t.Context()); err != nil || !p.isDown() {
		t.Error(err)
	}
}
