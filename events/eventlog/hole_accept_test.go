package eventlog

import (
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
)

// TestAcceptedHoleReachesOtherProcesses checks that when one process accepts a hole of an external
// log, the readers of other processes continue after it, also one that waits in front of it.
func TestAcceptedHoleReachesOtherProcesses(t *testing.T) {
	url := startTestServer(t, server.Options{}).ClientURL()
	l := mustOpenLog(t, Config{URL: url})
	other := mustOpenLog(t, Config{URL: url})
	p := newPublisher(t, l, PublisherOptions{})
	for n := range 10 {
		mustPublish(t, p, newFollows(n, n+1))
	}

	deleteMessages(t, l, 5)
	h, _ := runHub(t, other, HubOptions{})
	s := mustSubscribe(t, h, other.Start())
	ctx := testContext(t)

	// Read until the hole.
	read := uint64(0) // the number of envelopes
	for {
		envs, err := s.Next(ctx, 1<<20)
		if errors.Is(err, events.ErrHole) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		read += uint64(len(envs))
	}

	if read != 4 {
		t.Errorf("envelopes before the hole: got %d, want 4", read)
	}

	if err := l.AcceptHole(ctx, SeqRange{5, 5}); err != nil {
		t.Fatal(err)
	}
	got := readAcrossHole(t, s, 10)
	if len(got) != 6 {
		t.Fatalf("envelopes from the hole on: got %d, want 6", len(got))
	}
	if len(got[0].Rejects) != 1 || len(got[0].Events) != 0 {
		t.Errorf("envelope in the hole: got %+v, want one reject and no events", got[0])
	}
	if holes := other.AcceptedHoles(); len(holes) != 1 || holes[0] != (SeqRange{5, 5}) {
		t.Errorf("accepted holes in the other process: got %v, want %v", holes, []SeqRange{{5, 5}})
	}
	if holes, err := other.Holes(ctx); len(holes) > 0 || err != nil {
		t.Errorf("missing ranges: got %v and error %v, want none", holes, err)
	}
}
