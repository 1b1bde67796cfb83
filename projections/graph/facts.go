package graph

import (
	"cmp"

	"github.com/skein-feed/skein/events"
)

// factOrder is the place of a fact in the order of all facts (docs/semantics.md). The greater of
// two factOrders is that of the later fact, and 0 means that there is no such fact. Backfilled
// facts come first, ordered by their time, then live facts, ordered by theirs. The order of a live
// fact is unique. Two backfilled facts of the same time have the same order. Of a follow and its
// removal, the removal then counts as the later one; [muteFacts.recordMute] and
// [settingsFact.isBefore] have the rules for mutes and settings.
type factOrder uint64

// liveBit is set in the order of a live fact, so that every live fact is above every backfill.
const liveBit factOrder = 1 << 63

// factOrderOf returns the order of the fact that an event states.
func factOrderOf(ev *events.Event) factOrder {
	order := backfillOrderAt(ev.Time)
	if !ev.Backfill {
		order |= liveBit
	}
	return order
}

// backfillOrderAt returns the order of a backfilled fact that happened at a time. One is added to
// the time, because an order of 0 means that there is no fact, and a time may be 0.
func backfillOrderAt(at events.Micros) factOrder { return factOrder(at) + 1 }

// time returns the time of the fact, or -1 for the order 0.
func (o factOrder) time() events.Micros { return events.Micros(o&^liveBit) - 1 }

// toggle holds the facts about a block or a mute: when it began and when it ended. Live and
// backfilled facts are stored apart, because a backfilled beginning may arrive after live facts and
// still comes before them in the order.
type toggle struct {
	// liveBegin is the live fact that began the block or mute, and not one that repeated it. It is
	// 0 if there was no live beginning, or if a live end was recorded after it.
	liveBegin factOrder
	// liveEnd is the latest live end that did not repeat another end. It stays when a live
	// beginning follows, and is 0 if no live end was recorded. Once all backfills are closed, an
	// end without a beginning is not recorded.
	liveEnd factOrder
	// backfillBegin is the latest backfilled beginning. There are no backfilled ends.
	backfillBegin factOrder
}

// recordBegin records a beginning, live or backfilled.
func (t *toggle) recordBegin(order factOrder) {
	switch {
	case order < liveBit:
		t.backfillBegin = max(t.backfillBegin, order)
	case t.liveBegin == 0: // otherwise it repeats what holds, and the first time stays
		t.liveBegin = order
	}
}

// recordEnd records a live end; backfilled ends do not exist. While a backfilled beginning may
// still arrive, an end without a beginning is recorded too, because it ends that beginning.
func (t *toggle) recordEnd(order factOrder, backfillsClosed bool) {
	isRepeat := t.liveBegin == 0 && t.liveEnd != 0
	if isRepeat || !t.holds() && backfillsClosed {
		return
	}
	t.liveBegin = 0
	t.liveEnd = order
}

// holds reports whether the latest fact is a beginning.
func (t *toggle) holds() bool {
	return t.liveBegin != 0 || (t.liveEnd == 0 && t.backfillBegin != 0)
}

// since returns the time of the beginning. The caller must check first that the toggle holds.
func (t *toggle) since() events.Micros {
	// No live fact has ended the backfilled beginning, so a live beginning only repeats it.
	if t.liveEnd == 0 && t.backfillBegin != 0 {
		return t.backfillBegin.time()
	}
	return t.liveBegin.time()
}

// relation returns the block or mute as a relation.
func (t *toggle) relation() userRelation {
	if !t.holds() {
		return userRelation{}
	}
	return userRelation{holds: true, since: t.since()}
}

// userRelation is a relation between two users, such as a follow, a block or a mute. The zero
// userRelation does not hold.
type userRelation struct {
	holds bool
	// since is the time in the key of the relation's list row. For the lists of favorites and of
	// notifying follows, it is the time at which the settings were set.
	since events.Micros
	// settings are those of the follow, for the value of the list row. They are 0 for a block or a
	// mute, and in the lists of favorites and of notifying follows.
	settings events.FollowSettings
}

// muteFacts holds the facts about a mute. A mute ends with an unmute, or by itself at the time that
// the latest mute event names. A live mute event that comes after such an end begins a new mute.
type muteFacts struct {
	toggle toggle
	// liveUntil is when the mute of the latest live mute event ends by itself, and backfillUntil
	// the same for the event of toggle.backfillBegin. 0 means that the mute has no end, or that
	// there is no such mute.
	liveUntil, backfillUntil events.Micros
}

// recordMute records a mute, live or backfilled, that ends by itself at the time until. An until of
// 0 means that it has no end.
func (m *muteFacts) recordMute(order factOrder, until events.Micros) {
	if order < liveBit {
		// Of two backfills of the same time, the one that ends later counts as the later fact.
		sameTimeLaterEnd := order == m.toggle.backfillBegin &&
			m.backfillUntil != 0 && (until == 0 || until > m.backfillUntil)
		if order > m.toggle.backfillBegin || sameTimeLaterEnd {
			m.toggle.backfillBegin = order
			m.backfillUntil = until
		}
		return
	}

	// If the live mute before this one has ended by itself, record that end. Otherwise this mute
	// would count as a repeat, and hold since the time of the mute before it.
	if m.toggle.liveBegin != 0 && m.liveUntil != 0 && m.liveUntil <= order.time() {
		m.toggle.liveBegin = 0
		m.toggle.liveEnd = backfillOrderAt(m.liveUntil) | liveBit
	}
	m.toggle.recordBegin(order)
	m.liveUntil = until
}

// recordUnmute records an unmute, which is always live.
func (m *muteFacts) recordUnmute(order factOrder, backfillsClosed bool) {
	m.toggle.recordEnd(order, backfillsClosed)
	if m.toggle.liveBegin == 0 {
		m.liveUntil = 0
	}
}

// latestIsMute reports whether the latest fact is a mute. The mute may have ended by itself since.
func (m *muteFacts) latestIsMute() bool { return m.toggle.holds() }

// until returns when the mute ends by itself, or 0 if the mute has no end. The caller must check
// first that the latest fact is a mute.
func (m *muteFacts) until() events.Micros {
	if m.toggle.liveBegin != 0 {
		return m.liveUntil
	}
	return m.backfillUntil
}

// hasTimedEnd reports whether the latest fact is a mute that ends by itself. The mute may have
// ended since.
func (m *muteFacts) hasTimedEnd() bool { return m.latestIsMute() && m.until() != 0 }

// holdsAt reports whether the mute holds at a log time.
func (m *muteFacts) holdsAt(now events.Micros) bool {
	return m.latestIsMute() && (m.until() == 0 || now < m.until())
}

// since returns when the mute began. The caller must check first that the latest fact is a mute.
func (m *muteFacts) since() events.Micros {
	// A backfilled mute that ended by itself before the live one began is another mute.
	live := m.toggle.liveBegin
	if live != 0 && m.backfillUntil != 0 && m.backfillUntil <= live.time() {
		return live.time()
	}
	return m.toggle.since()
}

// endlessMute returns the mute as a relation if it has no end. Mutes with an end are in another
// list (timed_mutes.go), because whether they hold depends on the time at which they are read.
func (m *muteFacts) endlessMute() userRelation {
	if !m.latestIsMute() || m.until() != 0 {
		return userRelation{}
	}
	return userRelation{holds: true, since: m.since()}
}

// settingsFact is the latest fact about the settings of a follow. [edge.dropEndedSettings] drops it
// once a later unfollow or block is known, because no event can make it count again.
type settingsFact struct {
	// order is 0 if there is no fact.
	order    factOrder
	settings events.FollowSettings
}

// isBefore reports whether other counts as the later of the two facts. Of two backfills of the same
// time, that is the one whose settings are the greater number, whatever order they arrive in.
func (s settingsFact) isBefore(other settingsFact) bool {
	if s.order != other.order {
		return s.order < other.order
	}
	return s.settings < other.settings
}

// edge holds the facts of user A about user B.
type edge struct {
	// followLive is the latest live follow that did not repeat an earlier one when it arrived (see
	// latestPossibleFollowEnd). A live unfollow or block sets it to 0. An unblock does not, so
	// followLive may be older than the liveEnd of a block.
	followLive factOrder
	// unfollowLive is the latest live unfollow, or live block in either direction.
	unfollowLive factOrder
	// followBackfill and unfollowBackfill are the latest backfilled follow and the latest
	// backfilled unfollow, or block in either direction.
	followBackfill, unfollowBackfill factOrder
	// block, mute and settings are facts of A about B, and blockedBy has the facts about the block
	// of A by B. The in-end has neither mute nor settings.
	block, blockedBy toggle
	mute             muteFacts
	settings         settingsFact
	// implicitSince is derived from the board edges. It is the time of the earliest board follow
	// that holds, encoded by [backfillOrderAt] even if that follow is live. It is 0 if no board
	// follow holds, or if A follows B explicitly. It is stored with the edge, because a query of
	// the edge does not read the board edges.
	implicitSince factOrder
	// mayHaveBoardEdges is set with the first board edge of the two users, and stays set until all
	// facts of the edge are dropped. While it is not set, neither a change of the edge nor a query
	// looks for board edges.
	mayHaveBoardEdges bool
}

// isBlocked reports whether a block in either direction holds, so that no follow does.
func (e *edge) isBlocked() bool { return e.blockedBy.holds() || e.block.holds() }

// isBlockedLive reports whether a live block holds in either direction, so that live follows are
// ignored. Backfilled blocks do not count here: otherwise, whether a live follow is void would
// depend on which of the two arrives first, the follow or the block.
func (e *edge) isBlockedLive() bool { return e.blockedBy.liveBegin != 0 || e.block.liveBegin != 0 }

// latestFollow returns the latest follow, which is F in docs/semantics.md.
func (e *edge) latestFollow() factOrder { return cmp.Or(e.followLive, e.followBackfill) }

// latestUnfollow returns the latest fact that ended a follow, which is U in docs/semantics.md.
func (e *edge) latestUnfollow() factOrder { return max(e.latestLiveFollowEnd(), e.unfollowBackfill) }

// latestLiveFollowEnd returns the latest live fact that ended a follow: an unfollow, a block, or
// the end of a backfilled block. The end of a live block need not count, because the block itself
// had ended all follows, and live follows were ignored while it stood. If there is also a
// backfilled block, liveEnd counts even if it ended a live block, which changes no relation.
func (e *edge) latestLiveFollowEnd() factOrder {
	latest := e.unfollowLive
	for _, block := range []*toggle{&e.block, &e.blockedBy} {
		if block.backfillBegin != 0 {
			latest = max(latest, block.liveEnd)
		}
	}
	return latest
}

// latestPossibleFollowEnd returns the latest live fact that ended a follow, or that may turn out to
// have ended one. A live follow after this fact is not a repeat. An unblock that ended nothing is
// such a fact, though latestLiveFollowEnd ignores it: the backfilled block that it ended may still
// arrive.
func (e *edge) latestPossibleFollowEnd() factOrder {
	return max(e.unfollowLive, e.block.liveEnd, e.blockedBy.liveEnd)
}

// explicitSince reports whether A follows B explicitly, and since when.
func (e *edge) explicitSince() (since events.Micros, ok bool) {
	follow := e.latestFollow()
	// Without a follow, follow is 0. Otherwise, the two can be equal only if both are backfilled.
	// The unfollow is then the later one.
	if follow <= e.latestUnfollow() || e.isBlocked() {
		return 0, false
	}

	// If no live fact has ended the backfilled follow, a live follow only repeats it.
	if e.latestLiveFollowEnd() == 0 && e.followBackfill > e.unfollowBackfill {
		return e.followBackfill.time(), true
	}
	return follow.time(), true
}

// explicitFollow returns the explicit follow as a relation.
func (e *edge) explicitFollow() userRelation {
	since, holds := e.explicitSince()
	if !holds {
		return userRelation{}
	}
	return userRelation{true, since, e.settings.settings}
}

// implicitFollow returns the implicit follow as a relation.
func (e *edge) implicitFollow() userRelation {
	if e.implicitSince == 0 {
		return userRelation{}
	}
	return userRelation{true, e.implicitSince.time(), e.settings.settings}
}

// lowerImplicitSince sets implicitSince to the time of a board follow, if that is earlier than
// implicitSince or if implicitSince is 0. It ignores relations that are no board follow.
func (e *edge) lowerImplicitSince(r boardRelation) {
	if r.kind != relationFollow {
		return
	}
	since := backfillOrderAt(r.since)
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

// isUnlisted reports whether the edge has facts but no follow, so that no list of follows shows it.
// At the in-end, an unlisted edge has a row in tagUnlistedInEdges, by which a deletion finds it. At
// the out-end, a deletion finds every edge by its row in the region, so unlisted edges are only
// counted.
func (e *edge) isUnlisted() bool { return *e != edge{} && !e.isFollow() }

// hasEffect reports whether the edge has a follow, a block, a mute, or settings that apply to a
// follow, even one that begins later. A mute that has ended by itself counts, because no event says
// that it has ended.
func (e *edge) hasEffect() bool {
	return e.isFollow() || e.isBlocked() || e.mute.latestIsMute() || e.settings.settings != 0
}

// dropEndedSettings drops the settings if an unfollow or a block is later.
func (e *edge) dropEndedSettings() {
	// If there are settings, the two can be equal only if both are backfilled. The unfollow is then
	// the later one.
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

// followWithSetting returns the follow as a relation that holds if the follow has the setting. Its
// time is when the settings were set.
func (e *edge) followWithSetting(setting events.FollowSettings) userRelation {
	if !e.followSettings().Has(setting) {
		return userRelation{}
	}
	return userRelation{holds: true, since: e.settings.order.time()}
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

// boardEdge holds the facts of a user about one board of another.
type boardEdge struct {
	// followLive and unfollowLive are the latest live follow and unfollow of the board that did not
	// repeat an earlier one when they arrived (see [eventFold.followOrUnfollowBoardAtEnd]). They
	// stay when a later fact ends them, so the later of the two counts.
	followLive, unfollowLive factOrder
	// followBackfill and unfollowBackfill are the latest backfilled follow and unfollow.
	followBackfill, unfollowBackfill factOrder
}

// boardRelationKind is a kind of relation between a user and a board.
type boardRelationKind byte

const (
	relationNone    boardRelationKind = 0
	relationFollow  boardRelationKind = 1
	relationExclude boardRelationKind = 2
)

// boardRelation is a relation between a user and a board: a board follow, an exclusion, or none.
// The user's follow of the owner is not part of it.
type boardRelation struct {
	kind  boardRelationKind
	since events.Micros
}

// relation derives the relation between a user and a board from the facts about the board and from
// the edge to its owner. The deletion of a board removes all facts about it, so no fact here is
// older than the latest deletion.
func (b *boardEdge) relation(owner *edge) boardRelation {
	if owner.isBlocked() {
		return boardRelation{}
	}

	follow := cmp.Or(b.followLive, b.followBackfill)       // f in docs/semantics.md
	unfollow := cmp.Or(b.unfollowLive, b.unfollowBackfill) // u in docs/semantics.md
	ownerUnfollow := owner.latestUnfollow()                // U in docs/semantics.md

	if follow > unfollow && follow > ownerUnfollow {
		// If no live fact has ended the backfilled follow, a live follow only repeats it.
		hasLiveEnd := b.unfollowLive != 0 || owner.latestLiveFollowEnd() != 0
		backfillEnd := max(b.unfollowBackfill, owner.unfollowBackfill)
		if !hasLiveEnd && b.followBackfill > backfillEnd {
			return boardRelation{relationFollow, b.followBackfill.time()}
		}
		return boardRelation{relationFollow, follow.time()}
	}

	// Follow and unfollow of the board can be equal only if both are backfilled. The unfollow is
	// then the later one.
	if unfollow == 0 || unfollow < follow || unfollow <= ownerUnfollow || unfollow < owner.latestFollow() {
		return boardRelation{}
	}
	if _, ok := owner.explicitSince(); !ok {
		return boardRelation{} // only a follower of the owner can exclude a board
	}
	return boardRelation{relationExclude, unfollow.time()}
}

// boardRow is the row of a board that exists. The zero boardRow stands for a board without a row.
// The default board has no row, though it always exists.
type boardRow struct {
	// createdLive is the live fact since which the board exists. It is 0 if the board existed
	// already by a backfilled mention when the first live one arrived.
	createdLive factOrder
	// createdBackfill is the earliest backfilled mention. A board that was ever deleted has none.
	createdBackfill factOrder
	// titleOrder is the order of the latest board_created, and title is the title that this event
	// gives. titleOrder is 0 if the board was only mentioned by other events.
	titleOrder factOrder
	title      string
	// titleEventBytes is the encoded event that gives the title, if that is a backfill. Of two
	// backfills of the same time, the one with the greater bytes counts as the later.
	titleEventBytes string
}

// exists reports whether the board exists. The zero boardRow does not.
func (b *boardRow) exists() bool { return b.createdLive != 0 || b.createdBackfill != 0 }

// created returns the time since when the board exists. The caller must check exists first.
func (b *boardRow) created() events.Micros {
	return cmp.Or(b.createdBackfill, b.createdLive).time()
}
