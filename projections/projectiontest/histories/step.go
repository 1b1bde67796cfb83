package histories

import "github.com/skein-feed/skein/events"

// step is an event, and how it gets into the log.
type step struct {
	// event has no position and, if it is live, no time yet. The time of a backfill is relative to
	// its log time if it is negative or 0.
	event events.Event
	// sharesEnvelope says that the event is in the same envelope as that of the step before.
	sharesEnvelope bool
	// skipsSlot says that the slot before the event has an event that is not part of the history.
	skipsSlot bool
	// pause is how much the clock of the log advances before the envelope, if the envelope has a
	// live event.
	pause events.Micros
	// isEndOfMonth says that the clock then advances further, to the last moment of the month.
	isEndOfMonth bool
	// monthsAgo is the month of a backfill, and the time of the event is then the time since the
	// month began (see timeInMonth). 0 means that the time is not relative to a month.
	monthsAgo int
	// offset is the offset of a backfill, relative to the highest one so far of its source and
	// kind.
	offset int
	// followUps are steps that come directly after this one, and are left out with it.
	followUps []step
}

// generator draws the steps of one history. It has the random choices that hold for the whole
// history.
type generator struct {
	// users is the number of users.
	users int
	// kinds has each kind as often as its weight says, so that one can be drawn by its index.
	kinds []events.Kind
	// backfillShare is how many of six events are backfills, if their kind can be backfilled.
	backfillShare int

	// The other fields are those of Options.
	risingOffsets bool
	feeds, plays  bool
	notifications bool
	without       events.KindSet
}

func newGenerator(d chooser, opt Options) generator {
	g := generator{users: opt.Users, risingOffsets: opt.RisingOffsets, without: opt.Without}

	// At most one of the three is set.
	g.plays = opt.Plays
	g.feeds = opt.Feeds && !opt.Plays
	g.notifications = opt.Notifications && !opt.Feeds && !opt.Plays

	if g.users == 0 {
		g.users = 3 + d.choose(len(userIDs)-2, "users")
	}
	g.backfillShare = 1 + d.choose(5, "share of backfills")
	kinds := graphWeights
	switch {
	case g.plays:
		kinds = playWeights
	case g.feeds:
		kinds = feedWeights
	case g.notifications:
		kinds = notificationWeights
	}

	for _, k := range kinds {
		// Each history lacks some kinds, so that states which these kinds would end last long.
		if opt.Without.Has(k.kind) || !k.inEveryHistory && d.choose(3, "without "+k.kind.String()) == 2 {
			continue
		}
		for range k.weight {
			g.kinds = append(g.kinds, k.kind)
		}
	}
	return g
}

func (g generator) randomStep(d chooser) step {
	s := step{event: g.randomEvent(d)}
	s.sharesEnvelope = d.choose(4, "shares the envelope") == 3
	s.skipsSlot = d.choose(12, "skips a slot") == 11
	s.pause = [...]events.Micros{0, 0, 40, 1_000_000}[d.choose(4, "pause")]

	if s.event.Kind.Backfillable() && d.choose(6, "backfill") >= 6-g.backfillShare {
		g.makeBackfill(d, &s)
	}
	if g.feeds {
		g.addFollowUps(d, &s)
	}
	if g.plays {
		g.spreadOverMonths(d, &s)
	}
	if g.notifications {
		g.spreadOverDays(d, &s)
	}
	return s
}

// randomEvent draws an event.
func (g generator) randomEvent(d chooser) events.Event {
	ev := events.Event{Kind: g.kinds[d.choose(len(g.kinds), "kind")]}
	ev.User = g.randomUser(d)

	// Some histories have their own way to draw the fields of some kinds.
	isComplete := g.feeds && g.setFeedFields(d, &ev) || g.plays && g.setPlayFields(d, &ev) ||
		g.notifications && g.setNotificationFields(d, &ev)
	if isComplete {
		return ev
	}

	switch ev.Kind {
	case events.UserFollowed, events.UserUnfollowed, events.UserBlocked, events.UserUnblocked,
		events.UserUnmuted:
		ev.User, ev.Peer = g.randomPair(d)
	case events.UserMuted:
		ev.User, ev.Peer = g.randomPair(d)
		// Most mutes do not end by themselves. The others end before all live events, at once,
		// after some events, or after about half of the history.
		untils := [...]events.Micros{0, 0, 0, Start - 15, Start + 1, Start + 45, Start + 500, Start + 1_000_030, Start + 3_000_000, 1 << 52}
		ev.Until = untils[d.choose(len(untils), "until")]
	case events.FollowSettingsSet:
		ev.User, ev.Peer = g.randomPair(d)
		ev.Settings = events.FollowSettings(d.choose(int(events.AllFollowSettings)+1, "settings"))
	case events.BoardFollowed, events.BoardUnfollowed:
		ev.User, ev.Peer = g.randomPair(d)
		ev.Board = g.randomBoard(d)
	case events.BoardCreated:
		ev.Board = g.randomNamedBoard(d)
		ev.Title = [...]string{"", "Art", "Arts", "Beta"}[d.choose(4, "title")]
	case events.BoardDeleted:
		ev.Board = g.randomNamedBoard(d)
	case events.PinCreated:
		ev.Board = g.randomBoard(d)
		ev.Pin = [...]string{"p1", "p2"}[d.choose(2, "pin")]
		ev.Item = [...]string{ev.Pin, "p1", "i"}[d.choose(3, "item")]
		if d.choose(4, "re-pin") == 3 {
			ev.RepinUser, ev.RepinPin = g.randomOtherUser(d, ev.User), "p1"
		}
	case events.PinMoved:
		ev.Board = g.randomBoard(d)
		ev.Pin = [...]string{"p1", "p2"}[d.choose(2, "pin")]
	case events.PinDeleted:
		ev.Pin = [...]string{"p1", "p2"}[d.choose(2, "pin")]
	case events.Reacted:
		ev.Item = "p1"
	case events.BackfillClosed:
		ev.User = ""
		ev.Source = [...]string{sources[0], sources[1], ""}[d.choose(3, "source")]
	}
	return ev
}

// randomBoard draws a board, the first one more often.
func (g generator) randomBoard(d chooser) string {
	n := len(boardIDs)
	return boardIDs[min(d.choose(n, "board"), d.choose(n, "board"))]
}

// randomNamedBoard draws a board that is not the default board, so it can be created and deleted.
func (g generator) randomNamedBoard(d chooser) string {
	return boardIDs[min(d.choose(len(boardIDs)-1, "board"), d.choose(len(boardIDs)-1, "board"))]
}

// randomUser draws a user, the first ones more often.
func (g generator) randomUser(d chooser) string {
	return userIDs[min(d.choose(g.users, "user"), d.choose(g.users, "user"))]
}

// randomOtherUser draws a user who is not the given one.
func (g generator) randomOtherUser(d chooser, user string) string {
	if other := g.randomUser(d); other != user {
		return other
	}
	if user == userIDs[0] {
		return userIDs[1]
	}
	return userIDs[0]
}

// randomPair draws two different users. It often draws the same two, so that several events are
// about them.
func (g generator) randomPair(d chooser) (user, peer string) {
	switch d.choose(6, "two") {
	case 0, 1:
		return userIDs[0], userIDs[1]
	case 2:
		return userIDs[1], userIDs[0]
	}
	user = g.randomUser(d)
	return user, g.randomOtherUser(d, user)
}

// makeBackfill makes the event of a step a backfill.
func (g generator) makeBackfill(d chooser, s *step) {
	s.event.Backfill = true
	s.event.Source = sources[d.choose(len(sources), "source")]
	// A few times before all live events, so that many are equal and arrive out of order; the first
	// of all times; or times about now, between those of live events (0 is a time in the future,
	// which the log replaces by now).
	times := [...]events.Micros{Start - 10, Start - 20, Start - 30, Start - 10, Start - 20, 1, -1, -40, 0}
	s.event.Time = times[d.choose(len(times), "time")]

	// Imports may send an event twice, out of order, or leave out offsets.
	s.offset = 1
	if !g.risingOffsets {
		s.offset = [...]int{1, 1, 1, 1, 1, 2, 7, 0, -1, -2}[d.choose(10, "offset")]
	}
	encode(&s.event)
}

// encode sets the encoded bytes of a backfill, which decide the order of two backfills with the
// same time.
func encode(ev *events.Event) {
	// The bytes come from decoding the message of the event. The time and the offset are not part
	// of them, so any valid ones will do.
	whole := *ev
	whole.Time = Start
	whole.Offset = 1
	if read, rejection := events.FromProto(whole.Proto()); rejection == nil {
		ev.Encoded = read.Encoded
	}
}

// flatten returns the steps and their followUps as one list, and cuts it after n steps.
func flatten(steps []step, n int) []step {
	var all []step
	for _, s := range steps {
		all = append(append(all, s), s.followUps...)
	}
	return all[:min(n, len(all))]
}

// assemble returns the events of the steps, with the positions, times and offsets that a log would
// give them.
func assemble(steps []step) []events.Event {
	history := make([]events.Event, 0, len(steps))
	highest := map[string]int{} // by source and kind
	seq := uint64(0)
	last := Start // the log time of the last event
	for len(steps) > 0 {
		// The first n steps are one envelope.
		n := 1
		live := !steps[0].event.Backfill
		for n < len(steps) && steps[n].sharesEnvelope {
			live = live || !steps[n].event.Backfill
			n++
		}

		// The time of an event is max(time of the envelope, last time + 1) + slot. The clock does
		// not advance before envelopes without live events, because lastTime relies on that.
		base := last + 1
		if live {
			base += steps[0].pause
			if steps[0].isEndOfMonth {
				base = monthStart(base, 1) - 1
			}
		}

		seq += 1 + uint64(min(steps[0].pause, 1)) // there may be other messages between the two envelopes
		slot := uint16(0)
		for i, s := range steps[:n] {
			if i > 0 {
				slot++
			}
			if s.skipsSlot {
				slot++
			}

			ev := s.event
			ev.Seq = seq
			ev.Slot = slot
			last = base + events.Micros(slot)
			if ev.Backfill && s.monthsAgo > 0 {
				ev.Time = timeInMonth(last, s.monthsAgo, ev.Time)
			}
			assignTime(&ev, last, s.offset, highest)
			history = append(history, ev)
		}
		steps = steps[n:]
	}
	return history
}

// assignTime gives an event its time, and a backfill its offset.
func assignTime(ev *events.Event, now events.Micros, offset int, highest map[string]int) {
	if !ev.Backfill {
		ev.Time = now
		return
	}
	if ev.Time <= 0 {
		ev.Time += now
	}

	key := ev.Source + " " + ev.Kind.String()
	next := max(1, highest[key]+offset)
	highest[key] = max(highest[key], next)
	ev.Offset = uint64(next)
}
