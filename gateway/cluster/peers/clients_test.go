package peers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	peerv1 "github.com/skein-feed/skein/proto/skein/peer/v1"
	"github.com/skein-feed/skein/proto/skein/peer/v1/peerv1connect"
)

// TestRotatedAddressesDoNotGrowMemory gives one member new addresses and another one new names
// again and again, as anyone who can write to the bucket of the cluster could. Peers must keep only
// what belongs to current members, and must always keep the client of a member that stays.
func TestRotatedAddressesDoNotGrowMemory(t *testing.T) {
	t.Parallel()
	steady := Node{Name: "steady", Addr: "127.0.0.1:1", Serves: events.AllPartitions()}
	p := newTestPeers(t)
	members := []Node{steady}
	p.nodes = func() []Node { return members }
	ask := func(n *Node) any {
		return clientFor[peerv1.AskRequest, peerv1.AskResponse](p, p.calls, n, peerv1connect.PeerServiceAskProcedure)
	}
	flush := func(n *Node) any {
		return clientFor[peerv1.FlushRequest, peerv1.FlushResponse](p, p.calls, n, peerv1connect.PeerServiceFlushProcedure)
	}
	want := ask(&steady)

	var gone Node
	for i := range 100 {
		moving := Node{Name: "moving", Addr: fmt.Sprintf("127.0.0.1:%d", 1000+i)}
		renamed := Node{Name: fmt.Sprintf("renamed-%d", i), Addr: "127.0.0.1:2"}
		members = []Node{steady, moving, renamed}
		for _, n := range []*Node{&moving, &renamed} {
			ask(n)
			flush(n)
			p.suspect(n.Name)
			p.recordLatency(n.Name, askProcedure, time.Millisecond)
			p.setClockOffset(n.Name, time.Hour)
			p.logBadAnswer(n.Name, errors.New("bad"))
		}
		if gone.Name != "" {
			ask(&gone) // a call that began before the node left
		}
		gone = renamed
	}

	for name, size := range map[string]struct{ got, most int }{
		"clients":          {len(p.clients.clients), 5}, // ask of steady, and both methods of the two others
		"suspected":        {len(p.suspected), 2},
		"usualLatency":     {len(p.usualLatency), 2},
		"clockOffsets":     {len(p.clockOffsets), 2},
		"lastBadAnswerLog": {len(p.lastBadAnswerLog), 2},
	} {
		if size.got > size.most {
			t.Errorf("%s has %d entries, expected at most %d", name, size.got, size.most)
		}
	}
	if got := ask(&steady); got != want {
		t.Error("the client of a member that stayed was made anew, expected the kept one")
	}
}
