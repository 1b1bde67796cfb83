package eventlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/events"
)

// From every position of a history, with repeats, malformed events and a clock that jumps, one gets exactly the rest of what
// a reader of the whole got, with the same times: whatever is archived and trimmed, and whatever the hub has read before.
func TestCursorAtContinuesLikeFullRead(t *testing.T) {
	histories := 6
	if testing.Short() {
		histories = 2
	}
	runInBubble(t, func(t *testing.T) {
		for n := range histories {
			l := mustOpenLog(t, Config{Dir: t.TempDir()})
			appendHistory(t, l, drawHistory(30).Example(n))
			all := readWholeLog(t, l)
			past := &memoryArchive{envs: all}
			l.SetArchive(past)
			rng := rand.New(rand.NewPCG(2, uint64(n)))
			for cut := 0; cut < len(all); cut += 1 + rng.IntN(14) {
				past.setLength(cut)
				first := trimSome(t, l, rng)
				h, _ := runHub(t, l, HubOptions{})
				if rng.IntN(2) == 0 { // a fold that has caught up
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

// fromPosition reads the history after a sequence.
func checkReadFromPosition(t *testing.T, h *Hub, all []*events.Envelope, seq uint64, what string) {
	t.Helper()
	c, err := h.CursorAt(testContext(t), seq)
	if err != nil || c.Seq != seq {
		t.Fatalf("%s: at %d: %+v, %v", what, seq, c, err)
	}
	s, err := h.SubscribeBeside(c, events.AllKinds)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	checkSameEnvelopes(t, what, readEnvelopes(t, s, uint64(len(all))), all, seq)
}

func TestCursorAtFailsOutsideTheLog(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(40).Example(3))
		all := readWholeLog(t, l)
		head := uint64(len(all))
		past := &memoryArchive{envs: all, archivedLen: 30}
		l.SetArchive(past)
		h, _ := runHub(t, l, HubOptions{})
		if _, err := h.CursorAt(testContext(t), head+1); !errors.Is(err, events.ErrPositionAhead) {
			t.Errorf("beyond the head: %v", err)
		}
		if seq, err := h.Earliest(testContext(t)); seq != 0 || err != nil {
			t.Errorf("with an archive: %d, %v", seq, err)
		}
		readEnvelopes(t, mustSubscribe(t, h, all[34].Cursor), 36) // known to the hub
		limit, err := l.trimLimit(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Trim(testContext(t), limit); err != nil {
			t.Fatal(err)
		}
		// The archive is lost.
		past.setLength(0)
		info, err := l.Head(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.CursorAt(testContext(t), info.First-1); !errors.Is(err, events.ErrTrimmed) {
			t.Errorf("at the boundary: %v", err)
		}
		earliest, err := h.Earliest(testContext(t))
		if err != nil || earliest < info.First || earliest > head {
			t.Fatalf("earliest %d of %d to %d, %v", earliest, info.First, head, err)
		}
		checkReadFromPosition(t, h, all, earliest, "from the earliest")
	})
}

// Waypoints are bounded, and lie everywhere, in whatever order they are met.
func TestWaypointsAreBounded(t *testing.T) {
	const n = 100_000
	rng := rand.New(rand.NewPCG(3, 4))
	for name, order := range map[string][]int{"rising": nil, "any": rng.Perm(n)} {
		var w waypoints
		for i := range n {
			if order != nil {
				i = order[i]
			}
			w.remember(events.Cursor{Seq: uint64(i) + 1, WarmSeq: uint64(i)/100*100 + 1, Checksum: 1})
		}
		if len(w.cursors) > maxWaypoints || len(w.cursors) < maxWaypoints/4 {
			t.Errorf("%s: %d are kept", name, len(w.cursors))
		}
		for i := 1; i < len(w.cursors); i++ {
			if gap := w.cursors[i].Seq - w.cursors[i-1].Seq; w.cursors[i].Seq <= w.cursors[i-1].Seq || gap > 8*n/maxWaypoints {
				t.Fatalf("%s: %d after %d", name, w.cursors[i].Seq, w.cursors[i-1].Seq)
			}
		}
		if c, ok := w.lastAtOrBefore(n / 2); !ok || c.Seq > n/2 || c.Seq < n/2-8*n/maxWaypoints {
			t.Error(name, c, ok)
		}
		w.removeTrimmed(n / 2)
		if c, ok := w.lastAtOrBefore(n / 2); ok {
			t.Error(name, c)
		}
	}
	var w waypoints
	w.remember(events.Cursor{Seq: 7})
	if _, ok := w.lastAtOrBefore(8); ok {
		t.Error("an archived cursor is noted")
	}
}

// Who subscribes beside others never moves the ring that they share, and is served all the same, also alone.
func TestDetachedSubscriberDoesNotMoveTheRing(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(12).Example(5))
		all := readWholeLog(t, l)
		h, _ := runHub(t, l, HubOptions{})
		beside, err := h.SubscribeBeside(all[5].Cursor, events.AllKinds)
		if err != nil {
			t.Fatal(err)
		}
		checkSameEnvelopes(t, "alone", readEnvelopes(t, beside, 12), all, 6)
		h.mu.Lock()
		if h.hasPosition {
			t.Error("it has placed the ring")
		}
		h.mu.Unlock()
		fold := mustSubscribe(t, h, l.Start())
		readEnvelopes(t, fold, 12)
		// Both are in the ring now, and stay when the fold stops reading.
		for seq := uint64(13); seq <= 14; seq++ {
			appendHistory(t, l, drawHistory(1).Example(1))
			readEnvelopes(t, fold, seq)
			readEnvelopes(t, beside, seq)
		}
		h.mu.Lock()
		if beside.ownReader != nil {
			t.Error("it does not share the ring")
		}
		h.mu.Unlock()
		fold.Close()
		appendHistory(t, l, drawHistory(3).Example(1))
		readEnvelopes(t, beside, 17)
	})
}
