package histories

import (
	"math/rand/v2"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// Start is a time before the first live event of every history. Most backfills have one of a few
// times shortly before it.
const Start events.Micros = 1_700_000_000_000_000

// Options say what a history contains. The zero Options suit most tests.
type Options struct {
	// Users is the number of users, 2 to 6. 0 means a random number of at least 3.
	Users int
	// Events is the greatest number of events. 0 means 60.
	Events int
	// Without has the kinds that must not occur.
	Without events.KindSet
	// RisingOffsets gives every backfill a new highest offset, as if imports sent no event twice
	// and none out of order.
	RisingOffsets bool
	// Feeds adds many events about pins, reactions, plays and readers, some of them in very large
	// envelopes.
	Feeds bool
	// Plays makes a history about plays, serves, reactions and their items, over months and years.
	// It overrides Feeds.
	Plays bool
	// Notifications: instead much happens to pins of others, over days.
	Notifications bool
}

// userIDs has ids of every form. The first ones are drawn more often.
var userIDs = [...]string{"ann", "7", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "10", "007", "bob"}

// boardIDs are the boards of every user: two boards with names, and the default board.
var boardIDs = [...]string{"art", "9", ""}

var sources = [...]string{"old", "older"}

// weight says how often a kind is drawn, and whether every history may have it. Other kinds are
// missing from some histories.
type weight struct {
	kind           events.Kind
	weight         int
	inEveryHistory bool
}

// graphWeights are the weights of histories about the graph. Simple kinds come first, because rapid
// shrinks towards the first ones.
var graphWeights = []weight{
	{events.UserFollowed, 12, true},
	{events.BoardFollowed, 12, true},
	{events.UserUnfollowed, 7, false},
	{events.BoardUnfollowed, 10, false},
	{events.BoardCreated, 11, false},
	{events.BoardDeleted, 5, false},
	{events.UserBlocked, 4, false},
	{events.UserUnblocked, 5, false},
	{events.UserMuted, 4, false},
	{events.UserUnmuted, 3, false},
	{events.FollowSettingsSet, 5, false},
	{events.PinCreated, 4, false},
	{events.PinMoved, 2, false},
	{events.PinDeleted, 1, false},
	{events.UserDeleted, 1, false},
	{events.Reacted, 1, false},
	{events.BackfillClosed, 1, false},
}

// chooser is a source of random choices: that of rapid, which can be shrunk, or a seeded one.
type chooser interface {
	// choose returns a number from 0 to n-1. what names the choice for people.
	choose(n int, what string) int
}

type rapidChooser struct{ t *rapid.T }

func (d rapidChooser) choose(n int, what string) int {
	choices := make([]int, n)
	for i := range choices {
		choices[i] = i
	}
	// All numbers are equally likely, which they are not with IntRange.
	return rapid.SampledFrom(choices).Draw(d.t, what)
}

type seededChooser struct{ r *rand.Rand }

func (d seededChooser) choose(n int, _ string) int { return d.r.IntN(n) }

// History draws a history of 1 to opt.Events events.
func History(t *rapid.T, opt Options) []events.Event {
	if opt.Events == 0 {
		opt.Events = 60
	}
	g := newGenerator(rapidChooser{t}, opt)
	steps := rapid.Custom(func(t *rapid.T) step { return g.randomStep(rapidChooser{t}) })
	// By itself, SliceOfN draws about six steps. A random least number gives histories of all
	// lengths.
	least := rapid.SampledFrom([]int{1, 1 + opt.Events/8, 1 + opt.Events/3, 1 + opt.Events/2}).Draw(t, "least")
	return assemble(flatten(rapid.SliceOfN(steps, min(least, opt.Events), opt.Events).Draw(t, "steps"), opt.Events))
}

// Fixed returns a history of n events, which is always the same for a seed. A longer history of the
// same seed begins with the shorter one.
func Fixed(seed uint64, n int) []events.Event { return fixed(seed, n, Options{}) }

// FixedFeeds is [Fixed] with [Options.Feeds].
func FixedFeeds(seed uint64, n int) []events.Event { return fixed(seed, n, Options{Feeds: true}) }

// FixedPlays is [Fixed] with [Options.Plays].
func FixedPlays(seed uint64, n int) []events.Event { return fixed(seed, n, Options{Plays: true}) }

// FixedNotifications is [Fixed] with [Options.Notifications].
func FixedNotifications(seed uint64, n int) []events.Event {
	return fixed(seed, n, Options{Notifications: true})
}

func fixed(seed uint64, n int, opt Options) []events.Event {
	d := seededChooser{rand.New(rand.NewPCG(seed, 0))}
	g := newGenerator(d, opt)
	steps := make([]step, n)
	for i := range steps {
		steps[i] = g.randomStep(d)
	}
	return assemble(flatten(steps, n))
}

// Envelopes groups the events of a history of this package into envelopes, by their sequences.
func Envelopes(history []events.Event) []*events.Envelope {
	var all []*events.Envelope
	last := Start
	for len(history) > 0 {
		n := 1
		for n < len(history) && history[n].Seq == history[0].Seq {
			n++
		}

		env := &events.Envelope{Events: history[:n:n]}
		last = lastTime(last, env.Events)
		env.Cursor = events.Cursor{Seq: history[0].Seq, LastTime: last}
		for _, ev := range env.Events {
			env.Kinds |= events.Kinds(ev.Kind)
		}
		all = append(all, env)
		history = history[n:]
	}
	return all
}

// lastTime returns the log time of the last event of an envelope. It follows from the time of a
// live event. An envelope without live events came in the microsecond after the envelope before,
// because assemble makes histories so. before is the log time of the last event of the envelope
// before.
func lastTime(before events.Micros, envelope []events.Event) events.Micros {
	end := envelope[len(envelope)-1].Slot
	for _, ev := range envelope {
		if !ev.Backfill {
			return ev.Time + events.Micros(end-ev.Slot)
		}
	}
	return before + 1 + events.Micros(end)
}
