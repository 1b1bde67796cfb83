package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// listName is a list of the graph or of pins.
type listName string

const (
	following      listName = "following"
	followers      listName = "followers"
	ownBoards      listName = "boards"
	followedBoards listName = "followed boards"
	boardFollowers listName = "followers of the board"
	blockedUsers   listName = "blocked users"
	mutedUsers     listName = "muted users"
	userPins       listName = "pins"
	boardPins      listName = "pins of the board"
)

// boardID names a board.
type boardID struct{ owner, board string }

// listKey names a list of one user or board.
type listKey struct {
	list listName
	of   boardID
}

// String names the list for people.
func (k listKey) String() string {
	if k.list == boardFollowers || k.list == boardPins {
		return fmt.Sprintf("%s %q of %s", k.list, k.of.board, k.of.owner)
	}
	return fmt.Sprintf("%s of %s", k.list, k.of.owner)
}

// entry is an entry of a list. The list determines which fields are set.
type entry struct {
	user, board, title    string
	pin, item, attributes string
	since                 events.Micros
}

// String is the entry for people.
func (e entry) String() string {
	if e.pin != "" {
		return fmt.Sprintf("pin %s of %s on board %q, item %s, attributes %q, since %s",
			e.pin, e.user, e.board, e.item, e.attributes, stamp(e.since))
	}
	text := e.user
	if e.board != "" {
		text += fmt.Sprintf(" board %s %q", e.board, e.title)
	}
	return text + " since " + stamp(e.since)
}

func stamp(t events.Micros) string { return t.Time().Format("2006-01-02T15:04:05.999999Z") }

// life has the facts of a file about a board.
type life struct {
	created, titled events.Micros
	title           string
	encoded         string
}

// expectation is the state that a file alone would produce: all lists of all its users and boards.
type expectation struct {
	kind   Kind
	lists  map[listKey][]entry
	users  []string
	boards []boardID
	// follows are all follows that hold, for the checks of pairs.
	follows map[pair]events.Micros
	pairs   []pair
}

// expect computes the expectation from the records of a file. It shares only the reading of records with an import, not the events, the
// log and the projections, so it finds mistakes in those. Its rules: the latest follow of a pair counts; a board begins with its
// earliest mention and has its latest title; the earliest record of a pin counts.
func expect(ctx context.Context, o CompareOptions) (*expectation, error) {
	x := &expectation{kind: o.Kind, lists: map[listKey][]entry{}, follows: map[pair]events.Micros{}}
	switch o.Kind {
	case Pins:
		return x, x.pins(ctx, o)
	case Blocks:
		return x, x.usersOfUsers(ctx, o, blockedUsers, blocked)
	case Mutes:
		return x, x.usersOfUsers(ctx, o, mutedUsers, muted)
	}
	lives := map[boardID]life{}
	err := eachRecord(ctx, o, func(r *record, at events.Micros) {
		p := pairOf(r)
		if p.follower != "" {
			x.follows[p] = max(x.follows[p], at)
		}
		if b := (boardID{p.owner, p.board}); b.board != "" {
			lives[b] = lives[b].mentioned(r, b, at)
		}
	})
	x.summarise(lives)
	return x, err
}

// usersOfUsers makes the lists of the users whom every user in the file blocks or mutes. The latest record of a pair counts.
func (x *expectation) usersOfUsers(ctx context.Context, o CompareOptions, list listName, target role) error {
	since := map[[2]string]events.Micros{}
	err := eachRecord(ctx, o, func(r *record, at events.Micros) {
		k := [2]string{r.fields[user], r.fields[target]}
		since[k] = max(since[k], at)
	})
	users := map[string]struct{}{}
	for k, at := range since {
		users[k[0]] = struct{}{}
		of := listKey{list, boardID{owner: k[0]}}
		x.lists[of] = append(x.lists[of], entry{user: k[1], since: at})
	}
	x.sort(users)
	return err
}

// eachRecord calls do for each valid record of a file, with its time.
func eachRecord(ctx context.Context, o CompareOptions, do func(r *record, at events.Micros)) error {
	reading := Options{Kind: o.Kind, Path: o.Path, Format: o.Format, MaxRejects: o.MaxRejects}
	reading.setDefaults()
	in, err := newInspection(reading, microsOf(o.StartedAt))
	if err != nil {
		return err
	}
	s, err := in.run(ctx)
	if err != nil {
		return err
	}
	f, err := openFile(o.Path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	records, err := newRecordReader(f, s)
	if err != nil {
		return err
	}

	seen := map[subject]struct{}{}
	for {
		r, err := records.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at := microsOf(o.StartedAt)
		if s.hasTime() && r.err == nil {
			at, _, r.err = s.timeUnit.parse(r.fields[when], at)
		}
		if r.err != nil || !o.Kind.good(&r) || (o.First && o.Kind.repeats(seen, &r)) {
			continue
		}
		do(&r, at)
	}
}

// good reports whether the ids of a record are valid together.
func (k Kind) good(r *record) bool {
	id := func(r *record, as role) bool { return events.ValidateID(r.fields[as]) == nil }
	a := r.fields[follower]
	switch k {
	case Follows:
		return id(r, follower) && id(r, user) && a != r.fields[user]
	case Plays, Likes:
		return id(r, user) && id(r, item)
	case Unfollows:
		return id(r, follower) && id(r, user) && a != r.fields[user]
	case BoardUnfollows:
		return id(r, follower) && id(r, owner) && (r.fields[board] == "" || id(r, board)) && a != r.fields[owner]
	case Blocks:
		return id(r, user) && id(r, blocked) && r.fields[user] != r.fields[blocked]
	case Mutes:
		return id(r, user) && id(r, muted) && r.fields[user] != r.fields[muted]
	case HiddenRepins:
		return id(r, user) && id(r, hidden) && r.fields[user] != r.fields[hidden]
	case Pins:
		return goodPin(r)
	}
	named := id(r, board) || (r.fields[board] == "" && a != "" && r.fields[title] == "")
	titled := len(r.fields[title]) <= events.MaxTitleBytes && utf8.ValidString(r.fields[title])
	return id(r, owner) && named && titled && (a == "" || id(r, follower) && a != r.fields[owner])
}

func (l life) mentioned(r *record, b boardID, at events.Micros) life {
	if l == (life{}) || at < l.created {
		l.created = at
	}
	if r.fields[follower] != "" && r.fields[title] == "" {
		return l
	}
	// Of two titles at the same time, the larger encoding counts.
	encoded, _ := proto.Marshal(&skeinv1.BoardCreated{
		Board: &skeinv1.Board{OwnerId: b.owner, BoardId: b.board}, Title: r.fields[title],
	})
	if at > l.titled || (at == l.titled && string(encoded) > l.encoded) {
		l.titled, l.title, l.encoded = at, r.fields[title], string(encoded)
	}
	return l
}

// summarise makes the lists.
func (x *expectation) summarise(lives map[boardID]life) {
	users := map[string]struct{}{}
	add := func(list listName, of boardID, e entry) {
		x.lists[listKey{list, of}] = append(x.lists[listKey{list, of}], e)
	}
	implicit := map[[2]string]events.Micros{}
	for p, since := range x.follows {
		x.pairs = append(x.pairs, p)
		peer := p.user + p.owner // one of them is empty
		users[p.follower], users[peer] = struct{}{}, struct{}{}
		if x.kind == Boards {
			add(followedBoards, boardID{owner: p.follower}, entry{user: p.owner, board: p.board, since: since})
			add(boardFollowers, boardID{p.owner, p.board}, entry{user: p.follower, since: since})
			if _, ok := lives[boardID{p.owner, p.board}]; !ok {
				lives[boardID{p.owner, p.board}] = life{} // a default board, which no record begins
			}
		}
		if t, ok := implicit[[2]string{p.follower, peer}]; !ok || since < t {
			implicit[[2]string{p.follower, peer}] = since
		}
	}
	for ab, since := range implicit {
		add(following, boardID{owner: ab[0]}, entry{user: ab[1], since: since})
		add(followers, boardID{owner: ab[1]}, entry{user: ab[0], since: since})
	}
	for b, l := range lives {
		users[b.owner] = struct{}{}
		x.boards = append(x.boards, b)
		if b.board != "" {
			add(ownBoards, boardID{owner: b.owner}, entry{user: b.owner, board: b.board, title: l.title, since: l.created})
		}
	}
	x.sort(users)
}

// sort sorts lists as the service does, and the pairs from which checks are drawn in a fixed order, so that the same seed draws the same
// checks.
func (x *expectation) sort(users map[string]struct{}) {
	for _, list := range x.lists {
		slices.SortFunc(list, newestFirst)
	}
	for u := range users {
		x.users = append(x.users, u)
	}
	slices.SortFunc(x.users, events.CompareIDs)
	slices.SortFunc(x.boards, func(a, b boardID) int {
		return cmp.Or(events.CompareIDs(a.owner, b.owner), events.CompareIDs(a.board, b.board))
	})
	slices.SortFunc(x.pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.follower, b.follower), cmp.Compare(a.user, b.user), cmp.Compare(a.owner, b.owner),
			cmp.Compare(a.board, b.board))
	})
}

// newestFirst is the order of every list.
func newestFirst(a, b entry) int {
	return cmp.Or(cmp.Compare(b.since, a.since), events.CompareIDs(a.user, b.user), events.CompareIDs(a.pin, b.pin),
		events.CompareIDs(a.board, b.board))
}
