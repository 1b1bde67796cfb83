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

// realm has users and items about which only one writer publishes, and its ledger. Within a realm
// the order of facts is known, and so is every answer.
type realm struct {
	f      *soak
	name   string
	seed   uint64
	random *rand.Rand

	ledger   *ledger
	events   int
	batches  int
	position string // of the last acknowledgement
	// begun is how many batches were sent at least once.
	begun atomic.Int64
	// compared is the round of the traffic up to which the realm was compared as a whole.
	compared atomic.Int64
}

const (
	realmUsers = 12
	realmItems = 30
	// realmPins is how many pins a user has about.
	realmPins = 25
)

func newRealm(f *soak, seed uint64, n int) *realm {
	return &realm{
		f: f, name: fmt.Sprint("w", n), seed: seed, random: rand.New(rand.NewPCG(seed, uint64(n)+1)), ledger: newLedger(),
	}
}

func (w *realm) user(n int) string { return fmt.Sprintf("%s-user%d", w.name, n) }
func (w *realm) item(n int) string { return fmt.Sprintf("%s-item%d", w.name, n) }

// The first event of each batch is a play of one item, the last of another: a view with the batch
// has both.
func (w *realm) bell(n int) string { return fmt.Sprintf("%s-bell%d", w.name, n) }
func (w *realm) ringer() string    { return w.name + "-ringer" }

func (w *realm) someone() string { return w.user(w.random.IntN(realmUsers)) }

func (w *realm) two() (a, b string) {
	n := w.random.IntN(realmUsers)
	return w.user(n), w.user((n + 1 + w.random.IntN(realmUsers-1)) % realmUsers)
}

func (w *realm) something() string {
	return w.item(min(w.random.IntN(realmItems), w.random.IntN(realmItems)))
}

// event makes up a fact.
func (w *realm) event() *skeinv1.Event {
	a, b := w.two()
	switch n := w.random.IntN(100); {
	case n < 20:
		return userFollowed(a, b)
	case n < 28:
		return unfollow(a, b)
	case n < 30:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{UserId: a, TargetUserId: b}}}
	case n < 34:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserUnblocked{UserUnblocked: &skeinv1.UserUnblocked{UserId: a, TargetUserId: b}}}
	case n < 36:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{UserId: a, TargetUserId: b}}}
	case n < 38:
		return &skeinv1.Event{Kind: &skeinv1.Event_UserUnmuted{UserUnmuted: &skeinv1.UserUnmuted{UserId: a, TargetUserId: b}}}
	case n < 60:
		return w.pin(a)
	case n < 72:
		return &skeinv1.Event{Kind: &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: a, ItemId: w.something()}}}
	case n < 77:
		return &skeinv1.Event{Kind: &skeinv1.Event_Unreacted{Unreacted: &skeinv1.Unreacted{UserId: a, ItemId: w.something()}}}
	case n < 92:
		return played(a, w.something())
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_Served{
		Served: &skeinv1.Served{UserId: a, ItemIds: []string{w.something(), w.bell(2)}},
	}}
}

// pin makes a pin of a user or, if there are enough, ends one.
func (w *realm) pin(owner string) *skeinv1.Event {
	pins := w.ledger.pins[owner]
	if w.random.IntN(2*realmPins) < len(pins) {
		return &skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{
			PinDeleted: &skeinv1.PinDeleted{Pin: pins[w.random.IntN(len(pins))].GetPin()},
		}}
	}
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin:     &skeinv1.Pin{OwnerId: owner, PinId: fmt.Sprint("pin", w.events)},
		BoardId: [...]string{"", "art", "cats"}[w.random.IntN(3)], ItemId: w.something(),
	}}}
}

// run publishes, and compares what it holds, until the context ends.
func (w *realm) run(ctx context.Context, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ctx.Err() == nil {
		round := w.f.round.Load()
		w.publish(ctx)
		if w.compared.Load() < round {
			if w.compareAll(ctx); ctx.Err() == nil {
				w.compared.Store(round)
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

// publish publishes some facts as one batch, again and again with the same event ids until they are
// acknowledged.
func (w *realm) publish(ctx context.Context) {
	w.f.gate.RLock()
	defer w.f.gate.RUnlock()
	if ctx.Err() != nil {
		return
	}
	req := &skeinv1.PublishRequest{}
	add := func(ev *skeinv1.Event) {
		w.events++
		ev.EventId = fmt.Sprintf("%x-%s-%d", w.seed, w.name, w.events)
		req.Events = append(req.Events, ev)
		w.ledger.apply(ev) // no comparison runs before it is acknowledged
	}
	add(played(w.ringer(), w.bell(0)))
	for range w.random.IntN(14) {
		add(w.event())
	}
	add(played(w.ringer(), w.bell(1)))
	w.batches++
	w.begun.Add(1)
	began := time.Now()
	for try := 0; ; try++ {
		api := w.f.doors[(w.batches+try)%len(w.f.doors)]
		call, cancel := context.WithTimeout(ctx, writeTime)
		res, err := api.Events().Publish(call, connect.NewRequest(req))
		cancel()
		if err == nil {
			w.position = res.Msg.GetPosition()
			w.f.did("Publish")
			w.f.mu.Lock()
			w.f.operations["Publish, events"] += len(req.GetEvents())
			w.f.mu.Unlock()
			w.f.writes.answered()
			return
		}
		if !w.f.failed(ctx, "Publish by "+w.name, err) && ctx.Err() == nil {
			w.f.accuse(isLost, "%s can continue no more: %v", w.name, err)
			<-ctx.Done()
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > ackTime {
			w.f.accuse(isLost, "%s: for %v a batch was not acknowledged: %v", w.name, ackTime, err)
			<-ctx.Done()
			return
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// pause waits before the next try.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// glance reads without any demand, as most clients do, while the writer writes: whatever the state,
// it must be of whole batches, and none that was never sent.
func (w *realm) glance(ctx context.Context, pace time.Duration) {
	random := rand.New(rand.NewPCG(w.seed, uint64(len(w.name))))
	for n := 0; ctx.Err() == nil; n++ {
		api := w.f.doors[n%len(w.f.doors)]
		call, cancel := context.WithTimeout(ctx, readTime)
		w.glanceAt(call, api, random)
		cancel()
		pause(ctx, pace)
	}
}

func (w *realm) glanceAt(ctx context.Context, api *command.Client, random *rand.Rand) {
	user := w.user(random.IntN(realmUsers))
	var name string
	var err error
	switch random.IntN(4) {
	case 0:
		name = "CheckFollows, any state"
		_, err = api.Graph().CheckFollows(ctx, connect.NewRequest(&skeinv1.CheckFollowsRequest{Pairs: w.somePairs(random)}))
	case 1:
		name = "ReadFeed, any state"
		_, err = api.Feed().ReadFeed(ctx, connect.NewRequest(&skeinv1.ReadFeedRequest{ReaderId: user, HideSeen: true}))
	default:
		name = "BatchGetCounters, any state"
		var res *connect.Response[skeinv1.BatchGetCountersResponse]
		res, err = api.Counters().BatchGetCounters(ctx, connect.NewRequest(&skeinv1.BatchGetCountersRequest{
			Keys: []*skeinv1.CounterKey{countItem(w.bell(0)), countItem(w.bell(1)), countUser(w.ringer())},
		}))
		if err == nil {
			c := res.Msg.GetCounters()
			first, last, both := c[0].GetPlayCount(), c[1].GetPlayCount(), c[2].GetPlayCount()
			whole := first == last && both == first+last
			if most := w.begun.Load(); !whole && !w.f.parted || max(first, last) > most || both > 2*most {
				w.f.accuse(isWrong, "%s: of %d batches it shows %d beginnings, %d ends, %d of both at %s", w.name, w.begun.Load(),
					first, last, both, res.Msg.GetPosition())
			}
		}
	}
	if err != nil {
		w.f.failed(context.WithoutCancel(ctx), name, err)
		return
	}
	w.f.did(name)
	w.f.reads.answered()
}

func (w *realm) somePairs(random *rand.Rand) (pairs []*skeinv1.FollowPair) {
	for range 20 {
		n := random.IntN(realmUsers)
		pairs = append(pairs, &skeinv1.FollowPair{
			UserId: w.user(n),
			Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: w.user((n + 1 + random.IntN(realmUsers-1)) % realmUsers)},
		})
	}
	return pairs
}

func countItem(item string) *skeinv1.CounterKey {
	return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_ItemId{ItemId: item}}
}

func countUser(user string) *skeinv1.CounterKey {
	return &skeinv1.CounterKey{Target: &skeinv1.CounterKey_UserId{UserId: user}}
}
