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
	askClient := func(n *Node) any {
		return clientFor[peerv1.AskRequest, peerv1.AskResponse](p, p.calls, n, peerv1connect.PeerServiceAskProcedure)
	}
	flushClient := func(n *Node) any {
		return clientFor[peerv1.FlushRequest, peerv1.FlushResponse](p, p.calls, n, peerv1connect.PeerServiceFlushProcedure)
	}
	steadyClient := askClient(&steady)

	var former Node // the member that was renamed last
	for i := range 100 {
		moving := Node{Name: "moving", Addr: fmt.Sprintf("127.0.0.1:%d", 1000+i)}
		renamed := Node{Name: fmt.Sprintf("renamed-%d", i), Addr: "127.0.0.1:2"}
		members = []Node{steady, moving, renamed}
		for _, n := range []*Node{&moving, &renamed} {
			askClient(n)
			flushClient(n)
			p.suspect(n.Name)
			p.recordLatency(n.Name, askProcedure, time.Millisecond)
			p.setClockOffset(n.Name, time.Hour)
			p.logBadAnswer(n.Name, errors.New("bad"))
		}

		// A call that began before a node left may still ask for its client.
		if i > 0 {
			askClient(&former)
		}
		former = renamed
	}

	for name, c := range map[string]struct{ got, maxWant int }{
		"clients":          {len(p.clients.clients), 5}, // ask of steady, and both methods of the two others
		"suspected":        {len(p.suspected), 2},
		"usualLatency":     {len(p.usualLatency), 2},
		"clockOffsets":     {len(p.clockOffsets), 2},
		"lastBadAnswerLog": {len(p.lastBadAnswerLog), 2},
	} {
		if c.got > c.maxWant {
			t.Errorf("entries of %s: got %d, want at most %d", name, c.got, c.maxWant)
		}
	}
	if askClient(&steady) != steadyClient {
		t.Error("client of the member that stayed: got a new one, want the same as at first")
	}
}
