package eventlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/events"
)

// TestCursorAtContinuesLikeFullRead checks that a subscriber at CursorAt of any sequence gets exactly
// the rest of what a reader of the whole log got, with the same times, whatever is archived and
// trimmed, and whatever the hub has read before. The history has repeats, malformed events and a
// clock that jumps.
func TestCursorAtContinuesLikeFullRead(t *testing.T) {
	t.Parallel()
	histories := 6
	if testing.Short() {
		histories = 2
	}
	runInBubble(t, func(t *testing.T) {
		for n := range histories {
			l := mustOpenLog(t, Config{Dir: t.TempDir()})
			appendHistory(t, l, drawHistory(30).Example(n))
			all := readWholeLog(t, l)

			archive := &memoryArchive{envs: all}
			l.SetArchive(archive)
			rng := rand.New(rand.NewPCG(2, uint64(n)))

			for cut := 0; cut < len(all); cut += 1 + rng.IntN(14) {
				archive.setLength(cut)
				first := trimSome(t, l, rng)
				h, _ := runHub(t, l, HubOptions{})
				if rng.IntN(2) == 0 { // the hub has read the whole log before
					readEnvelopes(t, mustSubscribe(t, h, l.Start()), uint64(len(all)))
				}
				for _, i := range rng.Perm(len(all)) {
					what := fmt.Sprintf("history %d, %d archived, first %d", n, cut, first)
					checkReadFromPosition(t, h, all, uint64(i), what)
				}

				h.Close()
			}

			closeLog(t, l)
		}
	})
}

// checkReadFromPosition checks that a subscriber at CursorAt(seq) gets the history after seq.
func checkReadFromPosition(t *testing.T, h *Hub, all []*events.Envelope, seq uint64, what string) {
	t.Helper()
	c, err := h.CursorAt(testContext(t), seq)
	if err != nil || c.Seq != seq {
		t.Fatalf("%s: CursorAt(%d): got %+v and error %v, want that sequence", what, seq, c, err)
	}
	s, err := h.SubscribeDetached(c, events.AllKinds)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	checkSameEnvelopes(t, what, readEnvelopes(t, s, uint64(len(all))), all, seq)
}

// TestCursorAtFailsOutsideTheLog checks that CursorAt fails after the end of the log, and before the
// sequence from which the log has everything that a reader needs.
func TestCursorAtFailsOutsideTheLog(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(40).Example(3))
		all := readWholeLog(t, l)
		head := uint64(len(all))

		archive := &memoryArchive{envs: all, archivedLen: 30}
		l.SetArchive(archive)
		h, _ := runHub(t, l, HubOptions{})

		if _, err := h.CursorAt(testContext(t), head+1); !errors.Is(err, events.ErrPositionAhead) {
			t.Errorf("CursorAt after the head: got error %v, want %v", err, events.ErrPositionAhead)
		}

		if seq, err := h.EarliestSeq(testContext(t)); seq != 0 || err != nil {
			t.Errorf("earliest with an archive: got %d and error %v, want 0", seq, err)
		}

		readEnvelopes(t, mustSubscribe(t, h, all[34].Cursor), 36) // the hub remembers waypoints there
		limit, err := l.trimLimit(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Trim(testContext(t), limit); err != nil {
			t.Fatal(err)
		}

		// Once the archive is lost, CursorAt fails before the start of the stream.
		archive.setLength(0)
		info, err := l.Head(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.CursorAt(testContext(t), info.First-1); !errors.Is(err, events.ErrTrimmed) {
			t.Errorf("CursorAt before the stream: got error %v, want %v", err, events.ErrTrimmed)
		}

		earliest, err := h.EarliestSeq(testContext(t))
		if err != nil || earliest < info.First || earliest > head {
			t.Fatalf("earliest: got %d and error %v, want between %d and %d", earliest, err, info.First, head)
		}
		checkReadFromPosition(t, h, all, earliest, "from the earliest")
	})
}

// TestWaypointsAreBounded checks that the number of waypoints is bounded, and that they are spread
// over the log, in whatever order readers pass them.
func TestWaypointsAreBounded(t *testing.T) {
	const n = 100_000
	rng := rand.New(rand.NewPCG(3, 4))
	for name, order := range map[string][]int{"rising": nil, "random": rng.Perm(n)} {
		t.Run(name, func(t *testing.T) {
			checkWaypoints(t, n, order)
		})
	}

	var w waypoints
	w.remember(events.Cursor{Seq: 7})
	if _, ok := w.lastAtOrBefore(8); ok {
		t.Error("cursor of the archive: got a waypoint, want none")
	}
}

// checkWaypoints passes the sequences 1 to n in the given order, or in rising order if it is nil,
// and checks the waypoints that are remembered.
func checkWaypoints(t *testing.T, n int, order []int) {
	t.Helper()
	var w waypoints
	for i := range n {
		if order != nil {
			i = order[i]
		}
		w.remember(events.Cursor{Seq: uint64(i) + 1, WarmSeq: uint64(i)/100*100 + 1, Checksum: 1})
	}

	if len(w.cursors) > maxWaypoints || len(w.cursors) < maxWaypoints/4 {
		t.Errorf("waypoints: got %d, want %d to %d", len(w.cursors), maxWaypoints/4, maxWaypoints)
	}
	maxGap := 8 * uint64(n) / maxWaypoints
	for i := 1; i < len(w.cursors); i++ {
		previous, seq := w.cursors[i-1].Seq, w.cursors[i].Seq
		if seq <= previous || seq-previous > maxGap {
			t.Fatalf("waypoint after %d: got %d, want one at most %d later", previous, seq, maxGap)
		}
	}

	middle := uint64(n) / 2
	if c, ok := w.lastAtOrBefore(middle); !ok || c.Seq > middle || c.Seq < middle-maxGap {
		t.Errorf("last waypoint up to %d: got %+v (%v), want one at most %d before", middle, c, ok, maxGap)
	}
	w.removeTrimmed(middle)
	if c, ok := w.lastAtOrBefore(middle); ok {
		t.Errorf("last waypoint up to %d after trimming there: got %+v, want none", middle, c)
	}
}

// TestDetachedSubscriberDoesNotMoveTheRing checks that a detached subscriber never moves the ring
// that the others share. It gets every envelope, also while it is the only subscriber.
func TestDetachedSubscriberDoesNotMoveTheRing(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(12).Example(5))
		all := readWholeLog(t, l)

		h, _ := runHub(t, l, HubOptions{})
		detached, err := h.SubscribeDetached(all[5].Cursor, events.AllKinds)
		if err != nil {
			t.Fatal(err)
		}

		checkSameEnvelopes(t, "alone", readEnvelopes(t, detached, 12), all, 6)

		h.mu.Lock()
		if h.hasPosition {
			t.Error("ring with only a detached subscriber: got a position, want none")
		}
		h.mu.Unlock()

		attached := mustSubscribe(t, h, l.Start())
		readEnvelopes(t, attached, 12)

		// Both are in the ring now, and the detached subscriber stays there when the other one
		// stops reading.
		for seq := uint64(13); seq <= 14; seq++ {
			appendHistory(t, l, drawHistory(1).Example(1))
			readEnvelopes(t, attached, seq)
			readEnvelopes(t, detached, seq)
		}

		h.mu.Lock()
		if detached.ownReader != nil {
			t.Error("detached subscriber near the ring: got its own reader, want the ring")
		}
		h.mu.Unlock()

		attached.Close()
		appendHistory(t, l, drawHistory(3).Example(1))
		readEnvelopes(t, detached, 17)
	})
}
