package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// soakWriter publishes about users and items of its own, about which nobody else publishes. So it
// knows the order of their events, and can compute every answer.
type soakWriter struct {
	soak   *soakTraffic
	name   string
	seed   uint64
	random *rand.Rand

	// expected is what the service should answer after all events so far.
	expected   *expectedState
	eventCount int
	batchCount int
	// lastPosition is the position of the last acknowledgement.
	lastPosition string
	// startedBatches is how many batches were sent at least once. The reader of the writer reads it
	// in another goroutine.
	startedBatches atomic.Int64
	// comparedRound is the last round of the traffic in which the writer has compared everything.
	comparedRound atomic.Int64
}

const (
	usersPerWriter = 12
	itemsPerWriter = 30
	// pinsPerUser is about how many pins a user has.
	pinsPerUser = 25
)

func newSoakWriter(soak *soakTraffic, seed uint64, n int) *soakWriter {
	return &soakWriter{
		soak:     soak,
		name:     fmt.Sprint("w", n),
		seed:     seed,
		random:   rand.New(rand.NewPCG(seed, uint64(n)+1)),
		expected: newExpectedState(),
	}
}

func (w *soakWriter) user(n int) string { return fmt.Sprintf("%s-user%d", w.name, n) }
func (w *soakWriter) item(n int) string { return fmt.Sprintf("%s-item%d", w.name, n) }

// batchMarker returns a marker item. The first event of each batch is a play of marker 0, and the
// last one a play of marker 1. So a state that has only a part of a batch has different counts of
// the two. Marker 2 is served and never played.
func (w *soakWriter) batchMarker(n int) string { return fmt.Sprintf("%s-marker%d", w.name, n) }

// markerUser returns the user who plays the markers.
func (w *soakWriter) markerUser() string { return w.name + "-marker-user" }

func (w *soakWriter) randomUser() string { return w.user(w.random.IntN(usersPerWriter)) }

// randomUserNumbers returns the numbers of two different users.
func randomUserNumbers(random *rand.Rand) (a, b int) {
	a = random.IntN(usersPerWriter)
	distance := 1 + random.IntN(usersPerWriter-1)
	return a, (a + distance) % usersPerWriter
}

// randomUsers returns two different users.
func (w *soakWriter) randomUsers() (a, b string) {
	i, j := randomUserNumbers(w.random)
	return w.user(i), w.user(j)
}

// randomItem returns an item, more often one with a low number.
func (w *soakWriter) randomItem() string {
	return w.item(min(w.random.IntN(itemsPerWriter), w.random.IntN(itemsPerWriter)))
}

// randomEvent makes up the next event.
func (w *soakWriter) randomEvent() *skeinv1.Event {
	a, b := w.randomUsers()
	switch percent := w.random.IntN(100); {
	case percent < 20:
		return userFollowed(a, b)
	case percent < 28:
		return userUnfollowed(a, b)
	case percent < 30:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{UserId: a, TargetUserId: b}}}
	case percent < 34:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserUnblocked{UserUnblocked: &skeinv1.UserUnblocked{UserId: a, TargetUserId: b}}}
	case percent < 36:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: a, TargetUserId: b}}}
	case percent < 38:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserUnmuted{UserUnmuted: &skeinv1.UserUnmuted{UserId: a, TargetUserId: b}}}
	case percent < 60:
		return w.pinEvent(a)
	case percent < 72:
		return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: a, ItemId: w.randomItem()}}}
	case percent < 77:
		return &skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: a, ItemId: w.randomItem()}}}
	case percent < 92:
		return played(a, w.randomItem())
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_Served{
		Served: &skeinv1.Served{UserId: a, ItemIds: []string{w.randomItem(), w.batchMarker(2)}},
	}}
}

// pinEvent returns an event that creates a pin of a user or, more likely the more pins the user
// has, deletes one.
func (w *soakWriter) pinEvent(owner string) *skeinv1.Event {
	// With pinsPerUser pins, a deletion is as likely as a new pin.
	pins := w.expected.pins[owner]
	if w.random.IntN(2*pinsPerUser) < len(pins) {
		return &skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{
			PinDeleted: &skeinv1.PinDeleted{Pin: pins[w.random.IntN(len(pins))].GetPin()},
		}}
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin:     &skeinv1.Pin{OwnerId: owner, PinId: fmt.Sprint("pin", w.eventCount)},
		BoardId: [...]string{"", "art", "cats"}[w.random.IntN(3)], ItemId: w.randomItem(),
	}}}
}

// run publishes and compares answers until the context ends, or until a batch cannot be
// acknowledged. It compares everything once per round of the traffic, and otherwise a few answers
// after each batch.
func (w *soakWriter) run(ctx context.Context, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ctx.Err() == nil {
		// Load the round before the batch. A round that begins later is for the next comparison.
		round := w.soak.compareRound.Load()
		if !w.publishBatch(ctx) {
			return
		}

		if w.comparedRound.Load() < round {
			w.compareAll(ctx)
			if ctx.Err() == nil {
				w.comparedRound.Store(round)
			}
		} else {
			w.compareSome(ctx)
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// publishBatch publishes some events as one batch, again with the same event ids until they are
// acknowledged. It returns false if the context has ended, or if the batch cannot be acknowledged
// any more, which is a finding. The writer must then end and not wait here, because whoever waits
// for the gate would wait for ever.
func (w *soakWriter) publishBatch(ctx context.Context) (acknowledged bool) {
	w.soak.publishGate.RLock()
	defer w.soak.publishGate.RUnlock()
	// The context may have ended while the gate was closed.
	if ctx.Err() != nil {
		return false
	}

	req := &skeinv1.PublishRequest{}
	add := func(ev *skeinv1.Event) {
		w.eventCount++
		ev.EventId = fmt.Sprintf("%x-%s-%d", w.seed, w.name, w.eventCount)
		req.Events = append(req.Events, ev)
		w.expected.apply(ev) // the writer compares nothing before the batch is acknowledged
	}
	add(played(w.markerUser(), w.batchMarker(0)))
	for range w.random.IntN(14) {
		add(w.randomEvent())
	}
	add(played(w.markerUser(), w.batchMarker(1)))

	// Count the batch before it is sent. Otherwise the reader could see more batches than that.
	w.batchCount++
	w.startedBatches.Add(1)

	began := time.Now()
	for attempt := 0; ; attempt++ {
		// Take another client for each batch and each attempt, because one process may be down.
		api := w.soak.clients[(w.batchCount+attempt)%len(w.soak.clients)]
		callCtx, cancel := context.WithTimeout(ctx, writeTime)
		res, err := api.Events().Publish(callCtx, connect.NewRequest(req))
		cancel()
		if err == nil {
			w.lastPosition = res.Msg.GetPosition()
			w.recordPublished(len(req.GetEvents()))
			return true
		}

		again := w.soak.recordError(ctx, "Publish by "+w.name, err)
		if ctx.Err() != nil {
			return false
		}
		if !again {
			w.soak.reportFinding(isLost, "%s cannot continue: %v", w.name, err)
			return false
		}
		if time.Since(began) > ackTime {
			w.soak.reportFinding(isLost, "%s: for %v a batch was not acknowledged: %v", w.name, ackTime, err)
			return false
		}
		sleepOrDone(ctx, 50*time.Millisecond)
	}
}

// recordPublished counts an acknowledged batch of this many events.
func (w *soakWriter) recordPublished(events int) {
	w.soak.countOperation("Publish")
	w.soak.mu.Lock()
	w.soak.operationCounts["Publish, events"] += events
	w.soak.mu.Unlock()
	w.soak.writeGaps.recordAnswer()
}

// sleepOrDone waits for a time, or until the context ends.
func sleepOrDone(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// readAnyState reads without a position, as most clients do, while the writer writes. Whatever the
// state, it must consist of whole batches that were sent.
func (w *soakWriter) readAnyState(ctx context.Context, pace time.Duration) {
	// The writer's own generator is not safe for a second goroutine.
	random := rand.New(rand.NewPCG(w.seed, uint64(len(w.name))))
	for n := 0; ctx.Err() == nil; n++ {
		api := w.soak.clients[n%len(w.soak.clients)]
		callCtx, cancel := context.WithTimeout(ctx, readTime)
		w.readOnce(callCtx, api, random)
		cancel()
		sleepOrDone(ctx, pace)
	}
}

// readOnce makes one random read without a position.
func (w *soakWriter) readOnce(ctx context.Context, api *command.Client, random *rand.Rand) {
	user := w.user(random.IntN(usersPerWriter))
	var name string
	var err error
	switch random.IntN(4) {
	case 0:
		name = "CheckFollows, any state"
		_, err = api.Graph().CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{Pairs: w.randomPairs(random)}))
	case 1:
		name = "ReadFeed, any state"
		_, err = api.Feed().ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: user, HideSeen: true}))
	default:
		name = "BatchGetCounters, any state"
		err = w.readMarkers(ctx, api)
	}
	if err != nil {
		// The context of a call that got no answer in time has ended, but its error must count.
		w.soak.recordError(context.WithoutCancel(ctx), name, err)
		return
	}
	w.soak.countOperation(name)
	w.soak.readGaps.recordAnswer()
}

// readMarkers reads how often the markers were played. Counts that no whole number of the batches
// so far can have are a finding.
func (w *soakWriter) readMarkers(ctx context.Context, api *command.Client) error {
	res, err := api.Counters().BatchGetCounters(ctx, connect.NewRequest(&skeinv1.BatchGetCountersRequest{
		Keys: []*skeinv1.CounterKey{itemKey(w.batchMarker(0)), itemKey(w.batchMarker(1)), userKey(w.markerUser())},
	}))
	if err != nil {
		return err
	}
	counters := res.Msg.GetCounters()
	begins := counters[0].GetPlayCount()
	ends := counters[1].GetPlayCount()
	markerPlays := counters[2].GetPlayCount()

	// Load the number of batches after the answer, which may have batches that were sent meanwhile.
	maxBatches := w.startedBatches.Load()
	isWhole := begins == ends && markerPlays == begins+ends
	isSent := max(begins, ends) <= maxBatches && markerPlays <= 2*maxBatches
	if !isSent || !isWhole && !w.soak.mixesPositions {
		w.soak.reportFinding(isWrong, "%s: got %d begins and %d ends of batches and %d plays of both at %s, want those of at most %d whole batches",
			w.name, begins, ends, markerPlays, res.Msg.GetPosition(), maxBatches)
	}
	return nil
}

// randomPairs returns 20 pairs of different users.
func (w *soakWriter) randomPairs(random *rand.Rand) (pairs []*skeinv1.FollowPair) {
	for range 20 {
		i, j := randomUserNumbers(random)
		pairs = append(pairs, userPair(w.user(i), w.user(j)))
	}
	return pairs
}

// itemKey names the counters of an item.
func itemKey(item string) *skeinv1.CounterKey {
	return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: item}}
}

// userKey names the counters of a user.
func userKey(user string) *skeinv1.CounterKey {
	return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: user}}
}
