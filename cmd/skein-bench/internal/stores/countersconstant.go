package stores

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/counters"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// countedOp is something that must cost the same however much is counted already.
type countedOp struct {
	id, title string
	// few and many name what it is done to.
	few, many string
	times     [2][]float64
}

// countedSides are who an operation is done to: the side with little, and the one with much.
const (
	fewSide = iota
	manySide
)

// smallOwner and largeOwner have a board each.
const smallOwner, largeOwner = "small", "large"

func ownerOf(side int) string {
	if side == manySide {
		return largeOwner
	}
	return smallOwner
}

// countersConstant measures a play of an item with very many plays against one of a fresh item, and a pin on a board with
// very many pins against one on a board with ten.
func countersConstant(ctx context.Context, b *measure.Bench, c *countersStore) error {
	n := b.Opts.BigUser
	w := &countedWorld{c: c, items: b.Opts.Items, r: rand.New(rand.NewPCG(23, 0))}
	b.Say("folding %d pins of one board, and %d plays of one item", n, n)
	if err := w.load(n); err != nil {
		return err
	}
	many := measure.Figure(float64(n))
	ops := []*countedOp{
		{id: "counters-play", title: "one more play", few: "a fresh item", many: "an item with " + many + " plays"},
		{id: "counters-pin", title: "one more pin", few: "a board with 10 pins", many: "a board with " + many + " pins"},
		{id: "counters-unpin", title: "one pin less", few: "a board with 10 pins", many: "a board with " + many + " pins"},
	}
	rows := make([]*measure.Row, len(ops))
	for i, op := range ops {
		rows[i] = b.Row(op.id, "constant cost: "+op.title, "µs", "")
	}
	rows[0].Note = fmt.Sprintf("in process, in the store with all items. %d operations are timed at a time, committed together and "+
		"visible, %d times a run, the two in turn: medians. The pins show random ones of the items that were played, which no "+
		"other pin on the boards shows.",
		measure.Group, measure.Rounds)
	for run := range b.Opts.Runs {
		for _, op := range ops {
			op.times = [2][]float64{}
		}
		for round := range measure.Rounds {
			sides := []int{fewSide, manySide}
			if (run+round)%2 == 1 {
				slices.Reverse(sides)
			}
			for _, side := range sides {
				if err := w.round(side, ops); err != nil {
					return err
				}
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		for i, op := range ops {
			for side, name := range []string{op.few, op.many} {
				m := measure.Measurement{Value: measure.Median(op.times[side])}
				rows[i].SeriesOf(name).Add(m)
				b.Say("  %-18s run %d  %-44s %s µs", op.id, run+1, name, measure.Figure(m.Value))
			}
		}
	}
	for i, op := range ops {
		rows[i].Compare(op.many, op.few, maxConstant, true)
	}
	return w.check(n)
}

// countedWorld is what the timed operations are done to.
type countedWorld struct {
	c     *countersStore
	items int
	r     *rand.Rand
	// made counts the pins and fresh items that were made, played the timed plays of the item with many.
	made, played int
}

// popularItem has many plays. No other play is of it.
const popularItem = workload.FirstID - 1

// load folds the pins of both boards, those of the small one spread over those of the large one, and the plays.
func (w *countedWorld) load(n int) error {
	every := n/smallUser + 1
	return w.c.Load(2+n+smallUser+n, func(i int) *skeinv1.Event {
		switch i {
		case 0, 1:
			return boardCreated(ownerOf(i))
		}
		if i -= 2; i < n+smallUser {
			if i%every == every-1 {
				return w.pin(smallOwner, i, 0)
			}
			return w.pin(largeOwner, i, 0)
		}
		return playedEvent(uint32(w.r.IntN(players)), popularItem)
	})
}

// pin pins a random item of the first or the second half of them. The boards have the first half: what is timed shows what
// no other pin on them does.
func (w *countedWorld) pin(owner string, number, half int) *skeinv1.Event {
	item := workload.FirstID + half*(w.items/2) + w.r.IntN(w.items/2)
	return &skeinv1.Event{Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
		Pin:     &skeinv1.Pin{OwnerId: owner, PinId: strconv.Itoa(number)},
		BoardId: timedBoard, ItemId: strconv.Itoa(item),
	}}}
}

func unpin(owner string, number int) *skeinv1.Event {
	return &skeinv1.Event{Kind: &skeinv1.Event_PinDeleted{PinDeleted: &skeinv1.PinDeleted{
		Pin: &skeinv1.Pin{OwnerId: owner, PinId: strconv.Itoa(number)},
	}}}
}

// firstMade is above the numbers of the pins that were loaded.
const firstMade = 1 << 40

// round times each operation on one side.
func (w *countedWorld) round(side int, ops []*countedOp) error {
	owner, first := ownerOf(side), firstMade+w.made
	w.made += measure.Group
	for i, event := range []func(n int) *skeinv1.Event{
		func(n int) *skeinv1.Event {
			item := uint64(popularItem)
			if side == fewSide {
				item = uint64(2*firstMade + n) // fresh
			} else {
				w.played++
			}
			return playedEvent(uint32(w.r.IntN(players)), item)
		},
		func(n int) *skeinv1.Event { return w.pin(owner, n, 1) },
		func(n int) *skeinv1.Event { return unpin(owner, n) },
	} {
		evs := make([]*skeinv1.Event, measure.Group)
		for n := range evs {
			evs[n] = event(first + n)
		}
		env, err := w.c.Envelope(evs)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := w.c.Store.Fold([]*events.Envelope{env}); err != nil {
			return err
		}
		ops[i].times[side] = append(ops[i].times[side], measure.Micros(time.Since(begin))/measure.Group)
	}
	return nil
}

// check fails unless everything was counted.
func (w *countedWorld) check(n int) error {
	return w.c.ask(func(q *counters.Queries) error {
		item, err := q.Item(strconv.Itoa(popularItem))
		if err != nil {
			return err
		}
		small, err := q.BoardPins(smallOwner, timedBoard)
		if err != nil {
			return err
		}
		large, err := q.BoardPins(largeOwner, timedBoard)
		if err != nil {
			return err
		}
		if item.Plays != int64(n+w.played) || small != smallUser || large != int64(n) {
			return fmt.Errorf("%d plays, %d and %d pins were counted, not %d, %d and %d",
				item.Plays, small, large, n+w.played, smallUser, n)
		}
		return nil
	})
}
