package erase

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/internal/memlog"
)

// smallSettings returns settings with which feeds read the pins of some owners from outboxes after
// a few events. With the default settings that takes thousands.
func smallSettings() all.Settings {
	s := all.Settings{Inbox: inbox.DefaultSettings(), Counters: counters.DefaultSettings()}
	s.Inbox.Threshold = 1
	return s
}

// scrubEnvelopes returns the envelopes as the archive has them after the erasure of a user.
func scrubEnvelopes(envs []*events.Envelope, s *scrubber) (scrubbed []*events.Envelope) {
	for _, env := range envs {
		e := *env
		e.Events, e.Rejects, e.Kinds = nil, nil, 0

		for i := range env.Events {
			if ev, keep := s.scrubEvent(&env.Events[i]); keep {
				e.Events = append(e.Events, *ev)
				e.Kinds |= events.Kinds(ev.Kind)
			}
		}
		for i := range env.Rejects {
			if r, keep := s.scrubReject(&env.Rejects[i]); keep {
				e.Rejects = append(e.Rejects, *r)
			}
		}

		scrubbed = append(scrubbed, &e)
	}
	return scrubbed
}

// lastDeletion returns the position of the last deletion of a user.
func lastDeletion(envs []*events.Envelope, user string) (seq uint64, slot uint16, ok bool) {
	for _, env := range envs {
		for _, ev := range env.Events {
			if ev.Kind == events.UserDeleted && ev.User == user {
				seq, slot, ok = ev.Seq, ev.Slot, true
			}
		}
	}
	return seq, slot, ok
}

// failer is the part of [testing.T] and [rapid.T] that the checks need.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// foldRows folds the envelopes into a new store, and returns its rows.
func foldRows(t failer, p projections.Projection, envs []*events.Envelope) conformance.Rows {
	t.Helper()
	s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: p})
	if err == nil {
		err = s.Fold(envs)
	}
	if err == nil {
		err = s.Flush()
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer s.Close()

	view, err := s.View()
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer view.Close()

	var rows conformance.Rows
	it := view.Iter(nil, nil)
	for it.Next() {
		rows = append(rows, conformance.Row{Key: bytes.Clone(it.Key()), Value: bytes.Clone(it.Value())})
	}
	if err := it.Close(); err != nil {
		t.Fatalf("%v", err)
	}
	return rows
}

// newScrubberOf returns a scrubber for those of the users who are deleted in the log, at their last
// deletions. It returns nil if there are none.
func newScrubberOf(envs []*events.Envelope, set all.Settings, users ...string) *scrubber {
	var deleted []*erasedUser
	for i, user := range users {
		if seq, slot, ok := lastDeletion(envs, user); ok {
			pseudonym := events.NewKeyedHash(envs[0].Cursor.Log).Pseudonym(user)
			deleted = append(deleted, &erasedUser{id: user, pseudonym: pseudonym, number: i + 1, seq: seq, slot: slot})
		}
	}
	if len(deleted) == 0 {
		return nil
	}

	var projectionsOfRows []projections.Projection
	for _, newProjection := range all.Constructors(set) {
		projectionsOfRows = append(projectionsOfRows, newProjection())
	}
	return newScrubber(deleted, projectionsOfRows)
}

// checkFoldsAlike compares the rows of all projections over a log with those over the log without
// some users. It does nothing if none of the users is deleted. Before the deletions, it looks for
// rows with the users' ids outside of the partitions to which their events were delivered. The
// description of the log is part of failures.
func checkFoldsAlike(t failer, set all.Settings, envs []*events.Envelope, description fmt.Stringer, users ...string) {
	t.Helper()
	s := newScrubberOf(envs, set, users...)
	if s == nil {
		return
	}

	scrubbed := scrubEnvelopes(envs, s)
	checkRowsWithIDs(t, set, envs, users, description)
	for _, newProjection := range all.Constructors(set) {
		name := newProjection().Name()
		want := foldRows(t, newProjection(), envs)
		got := foldRows(t, newProjection(), scrubbed)
		for i := range max(len(want), len(got)) {
			if i < len(want) && i < len(got) && bytes.Equal(want[i].Key, got[i].Key) && bytes.Equal(want[i].Value, got[i].Value) {
				continue
			}
			t.Fatalf("%s after the erasure of %s at %d: row %d of the scrubbed log is\n%s\nexpected, as of the original log:\n%s\n%v",
				name, users, s.lastSeq, i, describeRow(name, got, i), describeRow(name, want, i), description)
		}
	}
}

// describeRow describes the i-th row of a projection, for failures.
func describeRow(projection string, rows conformance.Rows, i int) string {
	if i >= len(rows) {
		return "nothing"
	}
	text, err := all.Describe(projection, rows[i].Key, rows[i].Value)
	if err != nil {
		return fmt.Sprintf("%s (%v)", text, err)
	}
	return text
}

// renameUsers returns the log with other ids of some users, which are no ids of pins, boards or
// items, and these ids.
func renameUsers(envs []*events.Envelope, users []string) (renamed []*events.Envelope, names []string) {
	for _, user := range users {
		names = append(names, "erased-"+user)
	}

	for _, env := range envs {
		e := *env
		e.Events = slices.Clone(env.Events)
		for i := range e.Events {
			for _, id := range []*string{&e.Events[i].User, &e.Events[i].Peer, &e.Events[i].RepinUser} {
				if slices.Contains(users, *id) {
					*id = "erased-" + *id
				}
			}
		}
		renamed = append(renamed, &e)
	}
	return renamed, names
}

// checkRowsWithIDs folds the log up to the first deletion of the users. Rows that have an id of one
// of the users must be in the partitions that a scrubber finds: the rows of all other partitions
// are copied, and not built from the scrubbed log.
func checkRowsWithIDs(t failer, set all.Settings, envs []*events.Envelope, users []string, description fmt.Stringer) {
	t.Helper()

	// The scrubber finds the partitions while it scrubs.
	envs, users = renameUsers(envs, users)
	s := newScrubberOf(envs, set, users...)
	scrubEnvelopes(envs, s)

	firstDeletion := s.lastSeq
	var encodedIDs []string
	for _, u := range s.users {
		firstDeletion = min(firstDeletion, u.seq)
		encodedIDs = append(encodedIDs, string(events.AppendID(nil, u.id)))
	}
	end := slices.IndexFunc(envs, func(env *events.Envelope) bool { return env.Seq() >= firstDeletion })

	for _, newProjection := range all.Constructors(set) {
		p := newProjection()
		found := s.partitions[p.Name()]
		for _, row := range foldRows(t, p, envs[:end]) {
			partition := projections.PartitionOf(p, row.Key)
			if partition == projections.StoreWide || found.Has(uint8(partition)) {
				continue
			}
			for i, id := range encodedIDs {
				if bytes.Contains(row.Key, []byte(id)) || bytes.Contains(row.Value, []byte(id)) {
					text, err := all.Describe(p.Name(), row.Key, row.Value)
					t.Fatalf("%s: a row of partition %d, to which no event about %s was delivered, has the id: %s %v\n%v",
						p.Name(), partition, s.users[i].id, text, err, description)
				}
			}
		}
	}
}

// history is a log whose events a failure lists.
type history []events.Event

// String returns the events, one per line.
func (h history) String() string {
	var b bytes.Buffer
	for _, ev := range h {
		fmt.Fprintf(&b, "%d/%d %v backfill=%v user=%q peer=%q board=%q pin=%q item=%q repin=%q\n",
			ev.Seq, ev.Slot, ev.Kind, ev.Backfill, ev.User, ev.Peer, ev.Board, ev.Pin, ev.Item, ev.RepinUser)
	}
	return b.String()
}

// From the deletion of a user on, a fold of the scrubbed log has the same rows as a fold of the
// original log (I12, I4).
func TestScrubbedLogFoldsAlike(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]histories.Options{
		"graph": {}, "feeds": {Feeds: true}, "plays": {Plays: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				evs := histories.History(rt, opt)
				user := rapid.SampledFrom(evs).Draw(rt, "of").User
				if user == "" {
					return
				}

				end := rapid.IntRange(1, len(evs)).Draw(rt, "deleted after")
				evs = insertDeletion(evs, end, user)
				checkFoldsAlike(rt, smallSettings(), histories.Envelopes(evs), history(evs), user)
			})
		})
	}
}

// insertDeletion inserts the deletion of a user, in an envelope of its own, after the envelope of
// the n-th event.
func insertDeletion(evs []events.Event, n int, user string) []events.Event {
	for n < len(evs) && evs[n].Seq == evs[n-1].Seq {
		n++
	}

	before := histories.Envelopes(evs[:n])
	deletion := events.Event{
		Kind: events.UserDeleted, User: user, Seq: evs[n-1].Seq + 1, Time: before[len(before)-1].Cursor.LastTime + 1,
	}
	withDeletion := append(slices.Clone(evs[:n]), deletion)

	// Later live events must have later times than the deletion.
	for _, ev := range evs[n:] {
		ev.Seq++
		if !ev.Backfill {
			ev.Time += 2
		}
		withDeletion = append(withDeletion, ev)
	}

	return withDeletion
}

// TestScrubbedWorldFoldsAlike checks the same with longer logs, in which 40 users do everything.
func TestScrubbedWorldFoldsAlike(t *testing.T) {
	t.Parallel()
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		w := memlog.NewWorld(seed, 40)
		envs := w.Envelopes(1500)
		envs[700].Rejects = append(envs[700].Rejects, events.Reject{Seq: envs[700].Seq(), Slot: -1, Data: []byte("of user3 or user1")})
		users := []string{"user0", "user3", "user17"}

		// Erase one user. In a short test, this is another user for each seed.
		alone := users
		if testing.Short() {
			alone = users[seed:][:1]
		}
		for _, user := range alone {
			deletion := w.Envelope(events.Event{Kind: events.UserDeleted, User: user})
			withDeletion := append(slices.Clip(envs), deletion)
			withDeletion = append(withDeletion, w.Envelopes(100)...)
			checkFoldsAlike(t, smallSettings(), withDeletion, worldSeed(seed), user)
		}

		// Erase all of them together.
		withDeletions := slices.Clip(envs)
		for _, user := range users {
			withDeletions = append(withDeletions, w.Envelope(events.Event{Kind: events.UserDeleted, User: user}))
		}
		withDeletions = append(withDeletions, w.Envelopes(100)...)
		checkFoldsAlike(t, smallSettings(), withDeletions, worldSeed(seed), users...)
	}
}

// TestRejectsBesideDeletionAreScrubbedAsFolded checks the same with rejects in the envelope of the
// deletion. Those before the deletion are about the erased user, and those after it are about a new
// user with the same id.
func TestRejectsBesideDeletionAreScrubbedAsFolded(t *testing.T) {
	const user = "somebody-to-be-erased"
	w := memlog.NewWorld(1, 10)
	envs := w.Envelopes(20)
	deletion := w.Envelope(events.Event{Kind: events.UserDeleted, User: user})
	deletion.Events[0].Slot = 1
	for _, slot := range []int{0, 2} {
		deletion.Rejects = append(deletion.Rejects, events.Reject{Seq: deletion.Seq(), Slot: slot, Data: []byte("about " + user)})
	}
	envs = append(envs, deletion)
	checkFoldsAlike(t, smallSettings(), envs, worldSeed(1), user)

	scrubbed := scrubEnvelopes(envs, newScrubberOf(envs, smallSettings(), user))
	var got []string
	for _, reject := range scrubbed[len(scrubbed)-1].Rejects {
		got = append(got, string(reject.Data))
	}
	if diff := cmp.Diff([]string{"", "about " + user}, got); diff != "" {
		t.Errorf("data of the scrubbed rejects (-want +got):\n%s", diff)
	}
}

// worldSeed describes the log of a world by its seed.
type worldSeed uint64

func (s worldSeed) String() string { return fmt.Sprint("seed ", uint64(s)) }

// The report names every kind of text in which a scrubbed event still contains the id, and no
// other.
func TestScrubberReportsRemainingTexts(t *testing.T) {
	const user = "zoe-to-be-erased"
	const allTexts = "names of import sources, item ids, ids of boards or pins, titles of boards of others, attributes of pins of others"
	for name, c := range map[string]struct {
		event events.Event
		want  string
	}{
		"an event of others without the id": {events.Event{User: "ann", Peer: "bob", Item: "film", Title: "Films"}, ""},
		"the id as the user of an event":    {events.Event{User: user, Peer: "bob"}, ""},
		"a title of the user, which is removed": {events.Event{
			User: user, Title: "of " + user, Items: []string{user}, Attributes: []byte(user),
		}, ""},
		"an import source":  {events.Event{User: "ann", Source: "export-of-" + user}, "names of import sources"},
		"an item":           {events.Event{User: "ann", Item: user + "/film"}, "item ids"},
		"a pin of the user": {events.Event{User: user, Pin: user + "-1"}, "ids of boards or pins"},
		"a later event":     {events.Event{User: "ann", Item: user, Seq: 11}, ""},
		"everything at once": {events.Event{
			User: "ann", Source: user, Item: user, Board: user, Title: user, Attributes: []byte(user),
		}, allTexts},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScrubber([]*erasedUser{{id: user, pseudonym: " p", number: 1, seq: 10}}, nil)
			s.scrubEvent(&c.event)
			if got := s.remaining.describe(false); got != c.want {
				t.Errorf("got %q, expected %q", got, c.want)
			}
		})
	}
}

// With several users, the report names those whose ids remain by their places in the list.
func TestReportNamesUsersByNumber(t *testing.T) {
	s := newScrubber([]*erasedUser{
		{id: "zoe-to-be-erased", pseudonym: " p", number: 1, seq: 10},
		{id: "yan-to-be-erased", pseudonym: " q", number: 3, seq: 10},
	}, nil)

	for _, ev := range []events.Event{
		{User: "ann", Item: "film-of-yan-to-be-erased"},
		{User: "zoe-to-be-erased", Peer: "yan-to-be-erased", Board: "zoe-to-be-erased"},
		{User: "ann", Item: "zoe-to-be-erased/yan-to-be-erased"},
	} {
		s.scrubEvent(&ev)
	}

	const want = "item ids (of user 1, 3), ids of boards or pins (of user 1)"
	if got := s.remaining.describe(true); got != want {
		t.Errorf("got %q, expected %q", got, want)
	}
}

// A textFinder finds the ids that strings.Contains finds.
func TestTextFinderFindsAllIDs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// Ids may have a longer beginning in common than the finder looks at first.
		word := rapid.StringMatching(rapid.SampledFrom([]string{"[abé]{1,12}", "abbabbabb[abé]{1,3}"}).Draw(rt, "words"))
		ids := rapid.SliceOfNDistinct(word, 1, 8, rapid.ID[string]).Draw(rt, "ids")
		text := rapid.StringMatching("[abé]{0,40}(abbabbabb)?[abé]{0,5}").Draw(rt, "text")

		want := map[int]bool{} // indexes of ids
		for i, id := range ids {
			if strings.Contains(text, id) {
				want[i] = true
			}
		}

		got := map[int]bool{}
		newTextFinder(ids).eachID(text, func(i int) { got[i] = true })
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Errorf("ids in %q (-want +got)\n%s", text, diff)
		}
	})
}
