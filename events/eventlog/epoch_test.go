package eventlog

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
)

// restoreLog restores a log into a new directory, from an archive that has all its envelopes.
func restoreLog(t *testing.T, archive *memoryArchive, r RestoredState) (*Log, Config) {
	t.Helper()
	cfg := Config{Dir: t.TempDir(), Existing: true, Logger: slog.New(slog.DiscardHandler)}

	_, err := Open(testContext(t), cfg)
	if !errors.Is(err, events.ErrNoLog) || !strings.Contains(err.Error(), "restore") {
		t.Fatalf("Open before the restore: got error %v, want %v with %q", err, events.ErrNoLog, "restore")
	}
	if err := Restore(testContext(t), cfg, r); err != nil {
		t.Fatal(err)
	}
	if err := Restore(testContext(t), cfg, r); !errors.Is(err, events.ErrLogExists) {
		t.Fatalf("second restore: got error %v, want %v", err, events.ErrLogExists)
	}

	l := mustOpenLog(t, cfg)
	l.SetArchive(archive)
	return l, cfg
}

// TestNewEpochContinuesCursorsTimesAndRepeats checks that in a log that continues in a new epoch,
// cursors of the epoch before are valid, times still rise, and an event id that was seen within the
// horizon before the epoch is a repeat, wherever a reader starts (I5, I6).
func TestNewEpochContinuesCursorsTimesAndRepeats(t *testing.T) {
	t.Parallel()
	histories := 8
	if testing.Short() {
		histories = 2
	}
	runInBubble(t, func(t *testing.T) {
		for n := range histories {
			// The new epoch continues after 15 of the 20 envelopes.
			old := mustOpenLog(t, Config{Dir: t.TempDir()})
			appendHistory(t, old, drawHistory(20).Example(n))
			all := readWholeLog(t, old)
			const head = 15
			headCursor := all[head-1].Cursor
			repeats, err := old.RepeatsAt(testContext(t), headCursor)
			if err != nil {
				t.Fatal(err)
			}
			closeLog(t, old)

			past := &memoryArchive{envs: all[:head:head], archivedLen: head, repeats: repeats}
			l, cfg := restoreLog(t, past, RestoredState{
				ID: old.ID(), Epoch: 2, Predecessors: []Predecessor{{1, head}}, Head: headCursor,
			})
			if l.Epoch() != 2 || l.EpochStart().Seq != head || l.ID() != old.ID() {
				t.Fatalf("restored log: got epoch %d of log %x from %+v, want epoch 2 of log %x from %d",
					l.Epoch(), l.ID(), l.EpochStart(), old.ID(), head)
			}

			// The new history may have a clock that runs back, and repeats of events of the epoch
			// before.
			next := drawHistory(20).Example(n + 100)
			appendHistory(t, l, next)
			whole := readFromCursor(t, l, l.Start(), head+20, 1<<20)
			checkContinued(t, whole, all, headCursor)
			if err := checkRepeats(whole, all[:head], next); err != nil {
				t.Fatalf("history %d: %v", n, err)
			}

			// Every cursor continues, also after a restart. A store from the epoch before has a cursor of
			// that epoch.
			for range 2 {
				for seq := range uint64(head + 20) {
					var from events.Cursor
					switch {
					case seq == 0:
						from = l.Start()
					case seq <= head:
						from = all[seq-1].Cursor
					default:
						from = whole[seq-1].Cursor
					}
					if err := l.CheckCursor(testContext(t), from); err != nil {
						t.Fatalf("cursor %+v: %v", from, err)
					}
					got := readFromCursor(t, l, from, head+20, 1<<20)
					checkSameEnvelopes(t, fmt.Sprintf("history %d", n), got, whole, seq)
				}

				closeLog(t, l)
				l = mustOpenLog(t, cfg)
				l.SetArchive(past)
			}

			checkRejectsCursorsBeyond(t, l, all[head].Cursor)
			closeLog(t, l)
		}
	})
}

// checkContinued checks that sequences and times rise across the epochs, and that the envelopes up
// to the head are the old ones.
func checkContinued(t *testing.T, whole, old []*events.Envelope, head events.Cursor) {
	t.Helper()
	last := events.Cursor{}
	for i, env := range whole {
		c := env.Cursor
		if c.Seq != last.Seq+1 || c.LastTime < last.LastTime || c.Epoch != 2 || c.Log != head.Log {
			t.Fatalf("cursor after %+v: got %+v, want the next sequence, a later time and epoch 2", last, c)
		}
		for _, ev := range env.Events {
			if !ev.Backfill && ev.Time <= last.LastTime {
				t.Fatalf("event time: got %d, want more than %d", ev.Time, last.LastTime)
			}
		}

		if c.Seq <= head.Seq && !equalInArchive(env, old[i]) {
			t.Fatalf("envelope %d in the new epoch: got %+v, want %+v", c.Seq, env, old[i])
		}
		last = c
	}
}

// checkRepeats finds the repeats of the new epoch with a model that forgets nothing, and returns an
// error if a reader returned one of them.
func checkRepeats(whole, before []*events.Envelope, next []historyStep) error {
	seen := map[string]events.Micros{}

	// Repeats that were dropped before the epoch are not in the model, so it finds fewer repeats.
	for _, env := range before {
		for _, ev := range env.Events {
			if ev.ID != "" {
				seen[fmt.Sprint(ev.User, ev.Kind, ev.ID)] = env.Cursor.LastTime
			}
		}
	}

	for i, step := range next {
		env := whole[len(before)+i]
		if step.garbage {
			continue
		}
		for _, ev := range env.Events {
			key := fmt.Sprint(ev.User, ev.Kind, ev.ID)
			seenTime, ok := seen[key]
			if ok && ev.ID != "" && env.Cursor.LastTime-seenTime <= events.Horizon-1000 {
				return fmt.Errorf("sequence %d: got event %s, want it dropped as a repeat of time %d", env.Seq(), key, seenTime)
			}
		}

		for _, ev := range env.Events {
			if ev.ID != "" {
				seen[fmt.Sprint(ev.User, ev.Kind, ev.ID)] = env.Cursor.LastTime
			}
		}
	}

	return nil
}

// checkRejectsCursorsBeyond checks that the log rejects the cursor, which is after the last
// sequence that the new epoch continues from, and accepts the position before it.
func checkRejectsCursorsBeyond(t *testing.T, l *Log, beyond events.Cursor) {
	t.Helper()
	ctx := testContext(t)
	if err := l.CheckPosition(ctx, beyond.Position()); !errors.Is(err, events.ErrOtherEpoch) {
		t.Errorf("position beyond: got error %v, want %v", err, events.ErrOtherEpoch)
	}

	below := beyond
	below.Seq--
	if err := l.CheckPosition(ctx, below.Position()); err != nil {
		t.Errorf("position of the epoch before: got error %v, want none", err)
	}
	_, err := l.AdoptCursor(beyond)
	if !errors.Is(err, events.ErrOtherEpoch) || !strings.Contains(err.Error(), "rebuild the store") {
		t.Errorf("adopt a cursor beyond: got error %v, want %v with %q", err, events.ErrOtherEpoch, "rebuild the store")
	}

	if err := l.CheckCursor(ctx, beyond); !errors.Is(err, events.ErrOtherEpoch) {
		t.Errorf("check of a cursor beyond: got error %v, want %v", err, events.ErrOtherEpoch)
	}
	if _, err := NewHub(l, HubOptions{}).Subscribe(beyond); !errors.Is(err, events.ErrOtherEpoch) {
		t.Errorf("subscriber beyond: got error %v, want %v", err, events.ErrOtherEpoch)
	}

	later := beyond
	later.Epoch = 9
	if _, err := l.AdoptCursor(later); !errors.Is(err, events.ErrOtherEpoch) {
		t.Errorf("cursor of a later epoch: got error %v, want %v", err, events.ErrOtherEpoch)
	}
}

// TestRepeatIsDroppedAcrossEpochs tests I6: a repeat in a new epoch of an event from just before it
// is dropped, for the first reader of the epoch and for one that starts later.
func TestRepeatIsDroppedAcrossEpochs(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		old := mustOpenLog(t, Config{Dir: t.TempDir()})
		repeated := []historyStep{{events: newFollows(0, 1)}, {wait: time.Minute, events: newFollows(1, 2)}}
		for i := range repeated {
			repeated[i].events[0].EventId = "once"
		}
		appendHistory(t, old, repeated)

		// A dropped repeat is remembered, too: the events below come 25 minutes after the first,
		// but only 12 minutes after this repeat.
		another := newFollow(2)
		another.EventId = "other"
		appendHistory(t, old, []historyStep{{wait: 12 * time.Minute, events: append(repeated[0].events, another)}})

		all := readWholeLog(t, old)
		head := all[2].Cursor
		repeats, err := old.RepeatsAt(testContext(t), head)
		if err != nil || len(repeats) != 6 { // two for each id
			t.Fatalf("repeats at the end of the old epoch: got %v and error %v, want 6", repeats, err)
		}
		closeLog(t, old)

		past := &memoryArchive{envs: all, archivedLen: 3, repeats: repeats}
		l, _ := restoreLog(t, past, RestoredState{ID: old.ID(), Epoch: 2, Predecessors: []Predecessor{{1, 3}}, Head: head})
		appendHistory(t, l, []historyStep{
			{wait: 12 * time.Minute, events: repeated[0].events}, // 12 minutes after a repeat: dropped
			{wait: time.Second, events: repeated[1].events},      // 24 minutes after the first and only one: kept
			{wait: time.Second, events: repeated[1].events},
		})

		wantRepeats := map[uint64]int{3: 1, 4: 1, 6: 1}
		for from := range uint64(6) {
			c := l.Start()
			if from > 0 {
				c = readFromCursor(t, l, l.Start(), from, 1)[from-1].Cursor
			}
			for _, env := range readFromCursor(t, l, c, 6, 1<<20) {
				if want := wantRepeats[env.Seq()]; env.Repeats != want {
					t.Errorf("reader from %d: got %d repeats at %d, want %d", from, env.Repeats, env.Seq(), want)
				}
			}
		}

		// Early in the epoch, a reader remembers event ids of both epochs.
		early := readFromCursor(t, l, l.Start(), 4, 1)[3].Cursor
		if repeats, err = l.RepeatsAt(testContext(t), early); err != nil || len(repeats) != 4 {
			t.Errorf("repeats early in the new epoch: got %v and error %v, want 4", repeats, err)
		}
	})
}

// TestNewEpochNeedsItsArchive checks that without its archive, a reader of a new epoch cannot know
// the event ids of before the epoch and cannot read the envelopes of before it.
func TestNewEpochNeedsItsArchive(t *testing.T) {
	ctx := testContext(t)
	ns := startTestServer(t, server.Options{})
	cfg := Config{URL: ns.ClientURL()}
	id := events.LogID{7}

	// The time of the head is far in the future, because the clock was wrong.
	head := events.Cursor{Log: id, Epoch: 2, Seq: 100, LastTime: 1 << 60}
	r := RestoredState{ID: id, Epoch: 3, Predecessors: []Predecessor{{1, 60}, {2, 100}}, Head: head}
	for wantText, spoil := range map[string]func(*RestoredState){
		"rise":       func(r *RestoredState) { r.Predecessors = []Predecessor{{2, 60}, {1, 100}} },
		"not fall":   func(r *RestoredState) { r.Predecessors = []Predecessor{{1, 160}, {2, 100}} },
		"below 2":    func(r *RestoredState) { r.Epoch = 2 },
		"names them": func(r *RestoredState) { r.Predecessors = nil },
		"ends at":    func(r *RestoredState) { r.Head.Seq++ },
		"is of log":  func(r *RestoredState) { r.ID[3]++ },
	} {
		t.Run(wantText, func(t *testing.T) {
			wrong := r
			spoil(&wrong)
			err := Restore(ctx, cfg, wrong)
			if err == nil || !strings.Contains(err.Error(), wantText) {
				t.Errorf("Restore: got error %v, want one with %q", err, wantText)
			}
		})
	}

	if err := Restore(ctx, cfg, r); err != nil {
		t.Fatal(err)
	}
	l := mustOpenLog(t, cfg)
	headNow, err := l.Head(ctx)
	if err != nil || headNow.First != 101 || headNow.Last != 100 {
		t.Errorf("new stream: got %d to %d and error %v, want 101 to 100", headNow.First, headNow.Last, err)
	}

	// The end of epoch 1 may have been an erasure.
	if got, want := l.LastErasure(), (Erasure{1, 60}); got != want {
		t.Errorf("last erasure: got %v, want %v", got, want)
	}
	if err := l.CheckPosition(ctx, head.Position()); err != nil {
		t.Errorf("position of the head: got error %v, want none", err)
	}
	for _, c := range []events.Cursor{l.Start(), l.EpochStart(), head} {
		if err := l.CheckCursor(ctx, c); !errors.Is(err, events.ErrTrimmed) {
			t.Errorf("%+v without an archive: got error %v, want %v", c, err, events.ErrTrimmed)
		}
	}

	// With an archive, readers continue with the first event of the epoch.
	l.SetArchive(&memoryArchive{})
	res := mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1))
	if res.Position.Seq != 101 || res.Position.Epoch != 3 {
		t.Errorf("position of the first event: got %+v, want 101 in epoch 3", res.Position)
	}

	for _, c := range []events.Cursor{l.EpochStart(), head} {
		envs := readFromCursor(t, l, c, 101, 1)
		if len(envs) != 1 || envs[0].Events[0].Time != head.LastTime+1 {
			t.Errorf("after the head: got %+v, want one envelope at time %d", envs, head.LastTime+1)
		}
	}

	wrong := head
	wrong.LastTime--
	if err := l.CheckCursor(ctx, wrong); !errors.Is(err, events.ErrRewritten) {
		t.Errorf("cursor at the head with another time: got error %v, want %v", err, events.ErrRewritten)
	}
	if got := l.Predecessors(); len(got) != 2 || got[1] != (Predecessor{2, 100}) {
		t.Errorf("predecessors: got %v, want %v", got, r.Predecessors)
	}
}
