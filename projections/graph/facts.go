package graph

import "github.com/skein-feed/skein/events"

// factOrder is the place of a fact in the order of the facts about an edge (I5). 0 means that there
// is no such fact. Backfills come first, by their time, then live facts, by theirs. The order of a
// live fact is unique. Two backfills may have the same order; a removal then counts as the later
// one.
type factOrder uint64

// liveBit is set in the order of a live fact, so that every live fact is above every backfill.
const liveBit factOrder = 1 << 63

// factOrderOf returns the order of an event. One is added to the time, because an order of 0 means
// no fact and a time may be 0.
func factOrderOf(ev *events.Event) factOrder {
	order := factOrder(ev.Time) + 1
	if !ev.Backfill {
		order |= liveBit
	}
	return order
}

// time returns the time of the fact, or -1 for the order 0.
func (o factOrder) time() events.Micros { return events.Micros(o&^liveBit) - 1 }

// orElse returns o, or other if o is 0.
func (o factOrder) orElse(other factOrder) factOrder {
	if o != 0 {
		return o
	}
	return other
}

// toggle holds the facts about something that a user begins and ends: a block or a mute. Live and
// backfilled facts are kept apart, because a backfilled beginning may arrive after live facts and
// still comes before them in the order.
type toggle struct {
	// liveBegin is the first live fact that began what holds. It is 0 after a live end.
	liveBegin factOrder
	// liveEnd is the first live end after the latest live beginning, or the first of all. Once all
	// backfills are closed, an end without a beginning is not recorded.
	liveEnd factOrder
	// backfillBegin is the latest backfilled beginning. There are no backfilled ends.
	backfillBegin factOrder
}

// begin records a beginning, live or backfilled.
func (s *toggle) begin(order factOrder) {
	switch {
	case order < liveBit:
		s.backfillBegin = max(s.backfillBegin, order)
	case s.liveBegin == 0: // a live beginning that repeats what holds is not newer
		s.liveBegin = order
	}
}

// end records a live end. An end without a beginning is recorded too, for a backfilled beginning
// that may still arrive.
func (s *toggle) end(order factOrder, backfillsClosed bool) {
	endsSomething := s.holds()
	isRepeat := s.liveBegin == 0 && s.liveEnd != 0
	if isRepeat || !endsSomething && backfillsClosed {
		return
	}
	s.liveBegin = 0
	s.liveEnd = order
}

// holds reports whether the latest fact is a beginning.
func (s *toggle) holds() bool {
	return s.liveBegin != 0 || (s.liveEnd == 0 && s.backfillBegin != 0)
}

// since returns the time of the beginning, if the toggle holds. A backfilled beginning that no live
// fact ended decides.
func (s *toggle) since() events.Micros {
	if s.liveEnd == 0 && s.backfillBegin != 0 {
		return s.backfillBegin.time()
	}
	return s.liveBegin.time()
}

func (s *toggle) state() state {
	if !s.holds() {
		return state{}
	}
	return state{holds: true, since: s.since()}
}

// state says whether a follow, block or mute holds, and since when. The zero state does not hold.
type state struct {
	holds bool
	since events.Micros
	// settings are those of a follow.
	settings events.FollowSettings
}

// muteFacts holds the facts about a mute. The latest mute says until when the user is muted. A live
// mute that comes after the one before it has ended begins a new mute, like the first one after an
// unmute.
type muteFacts struct {
	facts toggle
	// liveUntil is the end of the latest live mute, and backfillUntil that of facts.backfillBegin.
	// 0 means that there is no end, or no such mute.
	liveUntil, backfillUntil events.Micros
}

// begin records a mute, live or backfilled, that ends at a time. An until of 0 means that it has no
// end.
func (m *muteFacts) begin(order factOrder, until events.Micros) {
	if order < liveBit {
		// Of two backfills of the same time the one that ends later counts as the later.
		later := order == m.facts.backfillBegin && m.backfillUntil != 0 && (until == 0 || until > m.backfillUntil)
		if order > m.facts.backfillBegin || later {
			m.facts.backfillBegin = order
			m.backfillUntil = until
		}
		return
	}

	if m.facts.liveBegin != 0 && m.liveUntil != 0 && m.liveUntil <= order.time() {
		m.facts.liveBegin = 0
		m.facts.liveEnd = (factOrder(m.liveUntil) + 1) | liveBit
	}
	m.facts.begin(order)
	m.liveUntil = until
}

// end records an unmute.
func (m *muteFacts) end(order factOrder, backfillsClosed bool) {
	m.facts.end(order, backfillsClosed)
	if m.facts.liveBegin == 0 {
		m.liveUntil = 0
	}
}

// isSet reports whether the latest fact is a mute. The mute may have ended since then.
func (m *muteFacts) isSet() bool { return m.facts.holds() }

// until returns when the mute ends, if it is set. 0 means that it has no end.
func (m *muteFacts) until() events.Micros {
	if m.facts.liveBegin != 0 {
		return m.liveUntil
	}
	return m.backfillUntil
}

// hasTimedEnd reports whether the latest fact is a mute with an end, even if the mute has ended
// since.
func (m *muteFacts) hasTimedEnd() bool { return m.isSet() && m.until() != 0 }

// holdsAt reports whether the mute holds at a log time.
func (m *muteFacts) holdsAt(now events.Micros) bool {
	return m.isSet() && (m.until() == 0 || now < m.until())
}

// since returns the time of the beginning, if the mute is set.
func (m *muteFacts) since() events.Micros {
	// A backfilled mute that had ended before the first live one does not say since when the live
	// one holds.
	live := m.facts.liveBegin
	if live != 0 && m.backfillUntil != 0 && m.backfillUntil <= live.time() {
		return live.time()
	}
	return m.facts.since()
}

// endlessState returns the mute as a state if it has no end.
func (m *muteFacts) endlessState() state {
	if !m.isSet() || m.until() != 0 {
		return state{}
	}
	return state{holds: true, since: m.since()}
}

// settingsFact is the latest fact about the settings of a follow. A fact is dropped as soon as an
// unfollow or a block is later, because no later event can make it count again.
type settingsFact struct {
	// order is 0 if there is no fact.
	order    factOrder
	settings events.FollowSettings
}

// isBefore reports whether other counts as the later of two facts. Of two backfills of the same
// time that is the one with more settings, taken as a number.
func (s settingsFact) isBefore(other settingsFact) bool {
	if s.order != other.order {
		return s.order < other.order
	}
	return s.settings < other.settings
}

// edge holds the facts of user A about user B. In the terms of docs/semantics.md, F is followLive,
// or else followBackfill; U is the later of unfollowLive and unfollowBackfill.
type edge struct {
	// followLive is the first live follow that was no repeat when it came (see
	// latestPossibleLiveEnd). It is 0 while unfollowLive is later. It may be older than an unblock.
	followLive factOrder
	// unfollowLive is the latest live unfollow, or block in either direction.
	unfollowLive factOrder
	// followBackfill and unfollowBackfill are the latest of their kind. A block counts as an
	// unfollow.
	followBackfill, unfollowBackfill factOrder
	// block, mute and settings are facts of A about B, and blockedBy is the block of A by B. The
	// in-end has neither mute nor settings.
	block, blockedBy toggle
	mute             muteFacts
	settings         settingsFact
	// implicitSince is the earliest of the board follows that hold, as a fact order without
	// liveBit, while A does not follow B explicitly. 0 means that A does not follow B implicitly.
	implicitSince factOrder
	// hasBoards is set once the two users have had a board edge, and stays. Until then a change of
	// the edge need not look for board edges.
	hasBoards bool
}

// isBlocked reports whether a block in either direction holds, so that no follow does.
func (e *edge) isBlocked() bool { return e.blockedBy.holds() || e.block.holds() }

// isBlockedLive reports whether a live block holds in either direction, so that live follows are
// ignored. Backfilled blocks do not count here: whether a live follow is void would then depend on
// whether it arrived before or after the block.
func (e *edge) isBlockedLive() bool { return e.blockedBy.liveBegin != 0 || e.block.liveBegin != 0 }

// latestFollow is F of docs/semantics.md.
func (e *edge) latestFollow() factOrder { return e.followLive.orElse(e.followBackfill) }

// latestUnfollow is U of docs/semantics.md: the latest fact that ended a follow.
func (e *edge) latestUnfollow() factOrder { return max(e.latestLiveEnd(), e.unfollowBackfill) }

// latestLiveEnd returns the latest live fact that ended a follow: an unfollow, a block, or the end
// of a backfilled block. The end of a live block is no such fact: the block itself had ended all
// follows, and live follows were ignored while it stood.
func (e *edge) latestLiveEnd() factOrder {
	latest := e.unfollowLive
	for _, block := range []*toggle{&e.block, &e.blockedBy} {
		if block.backfillBegin != 0 {
			latest = max(latest, block.liveEnd)
		}
	}
	return latest
}

// latestPossibleLiveEnd returns the latest live fact that ended a follow, or that may turn out to
// have ended one. A live follow after this fact is no repeat. It is later than latestLiveEnd after
// an unblock that ended nothing, because the backfilled block that it ended may still arrive.
func (e *edge) latestPossibleLiveEnd() factOrder {
	return max(e.unfollowLive, e.block.liveEnd, e.blockedBy.liveEnd)
}

// explicitSince reports whether A follows B explicitly, and since when.
func (e *edge) explicitSince() (since events.Micros, ok bool) {
	follow := e.latestFollow()
	// A follow and an unfollow may only be equal if both are backfilled. The removal is then the
	// later one.
	if follow <= e.latestUnfollow() || e.isBlocked() {
		return 0, false
	}

	// Where no live fact has ended the follow, it holds since the backfilled follow, even if there
	// is a live one, too.
	if e.latestLiveEnd() == 0 && e.followBackfill > e.unfollowBackfill {
		return e.followBackfill.time(), true
	}
	return follow.time(), true
}

// explicitState is [edge.explicitSince] as a state.
func (e *edge) explicitState() state {
	since, holds := e.explicitSince()
	if !holds {
		return state{}
	}
	return state{true, since, e.settings.settings}
}

func (e *edge) implicitState() state {
	if e.implicitSince == 0 {
		return state{}
	}
	return state{true, e.implicitSince.time(), e.settings.settings}
}

// lowerImplicit sets implicitSince to the time of a board follow, if that is earlier. It ignores
// other relations.
func (e *edge) lowerImplicit(r relation) {
	if r.kind != relationFollow {
		return
	}
	since := factOrder(r.since) + 1
	if e.implicitSince == 0 || since < e.implicitSince {
		e.implicitSince = since
	}
}

// isFollow reports whether A follows B explicitly or implicitly, so that lists of follows show the
// edge.
func (e *edge) isFollow() bool {
	_, explicit := e.explicitSince()
	return explicit || e.implicitSince != 0
}

// isUnlisted reports whether the edge has facts but is in no list of follows. An in-end then needs
// a row of its own that leads to it.
func (e *edge) isUnlisted() bool { return *e != edge{} && !e.isFollow() }

// hasEffect reports whether anything holds by the edge, or will hold without another fact about it:
// a follow, a block, a mute, or settings of a follow that may begin later.
func (e *edge) hasEffect() bool {
	return e.isFollow() || e.isBlocked() || e.mute.isSet() || e.settings.settings != 0
}

// dropEndedSettings drops the settings if an unfollow or a block is later.
func (e *edge) dropEndedSettings() {
	// They may only be equal if both are backfilled. The removal is then the later one.
	if e.settings.order <= e.latestUnfollow() {
		e.settings = settingsFact{}
	}
}

// followSettings returns the settings of the follow of B by A. Without a follow there are none.
func (e *edge) followSettings() events.FollowSettings {
	if !e.isFollow() {
		return 0
	}
	return e.settings.settings
}

// settingState returns whether the follow has a setting, and when the settings were set.
func (e *edge) settingState(setting events.FollowSettings) state {
	if !e.followSettings().Has(setting) {
		return state{}
	}
	return state{holds: true, since: e.settings.order.time()}
}

// currentFollow reports how A follows B, and since when.
func (e *edge) currentFollow() Follow {
	if since, ok := e.explicitSince(); ok {
		return Follow{Explicit, since}
	}
	if e.implicitSince != 0 {
		return Follow{Implicit, e.implicitSince.time()}
	}
	return Follow{}
}

// boardEdge holds the facts of a user about one board of another. In the terms of
// docs/semantics.md, f is followLive, or else followBackfill, and u is unfollowLive, or else
// unfollowBackfill.
type boardEdge struct {
	// followLive is the first live follow that was no repeat when it came (see
	// edge.latestPossibleLiveEnd). It may be older than the fact that has ended it since.
	followLive factOrder
	// unfollowLive is the same for the exclusion.
	unfollowLive factOrder
	// followBackfill and unfollowBackfill are the latest of their kind.
	followBackfill, unfollowBackfill factOrder
}

type relationKind byte

const (
	relationNone    relationKind = 0
	relationFollow  relationKind = 1
	relationExclude relationKind = 2
)

// relation is what holds between a user and a board, apart from the follow of the board's owner.
type relation struct {
	kind  relationKind
	since events.Micros
}

// relation derives what holds between a user and a board, from the facts about the board and the
// edge to its owner. The deletion of a board removes its facts, so all facts here are newer than
// the latest deletion.
func (b *boardEdge) relation(owner *edge) relation {
	if owner.isBlocked() {
		return relation{}
	}

	// The names are those of docs/semantics.md: small for the board, large for its owner.
	f := b.followLive.orElse(b.followBackfill)
	u := b.unfollowLive.orElse(b.unfollowBackfill)
	U := owner.latestUnfollow()

	if f > u && f > U {
		// Where no live fact has ended the follow, it holds since the backfilled one.
		noLiveEnd := b.unfollowLive == 0 && owner.latestLiveEnd() == 0
		if noLiveEnd && b.followBackfill > b.unfollowBackfill && b.followBackfill > owner.unfollowBackfill {
			return relation{relationFollow, b.followBackfill.time()}
		}
		return relation{relationFollow, f.time()}
	}

	// A board follow and unfollow may only be equal if both are backfilled. The removal is then the
	// later one.
	if u == 0 || u < f || u <= U || u < owner.latestFollow() {
		return relation{}
	}
	if _, ok := owner.explicitSince(); !ok {
		return relation{} // only a follower of the owner can exclude a board
	}
	return relation{relationExclude, u.time()}
}

// board is the row of a board that exists. The default board has no row: it always exists.
type board struct {
	// createdLive is the live fact that began the present life of the board. It is 0 if a backfill
	// had begun it before.
	createdLive factOrder
	// createdBackfill is the earliest backfilled mention. A board that was ever deleted has none.
	createdBackfill factOrder
	// titleOrder is the latest board_created, and title is what it says.
	titleOrder factOrder
	title      string
	// titleEventBytes is that event as it is encoded, if it is a backfill. It decides between
	// backfills of equal times.
	titleEventBytes string
}

func (b *board) exists() bool { return b.createdLive != 0 || b.createdBackfill != 0 }

func (b *board) created() events.Micros { return b.createdBackfill.orElse(b.createdLive).time() }
