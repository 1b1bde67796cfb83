package importer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/internal/comparison"
)

// expectFile adds the entries that the records of a file stand for to the comparer. It shares only
// the reading of records with an import. It uses neither events, log nor projections, so that a
// comparison finds mistakes in those.
func expectFile(ctx context.Context, o CompareOptions, c *comparison.Comparer) error {
	return eachRecord(ctx, o, func(r *record, at events.Micros) error {
		for _, e := range o.Kind.entries(r, at) {
			if err := c.Expect(e); err != nil {
				return err
			}
		}
		return nil
	})
}

// entries returns the entries of lists and counts that a record stands for. An entry without an id
// names a list that is to be compared even if it is empty.
func (k Kind) entries(r *record, at events.Micros) []comparison.Entry {
	entry := func(kind comparison.ListKind, owner, id string) comparison.Entry {
		return comparison.Entry{List: comparison.List{Kind: kind, Owner: owner}, ID: id, At: at}
	}
	switch k {
	case Follows:
		a, b := r.fields[follower], r.fields[user]
		return []comparison.Entry{
			entry(comparison.Following, a, b), entry(comparison.Followers, b, a),
			entry(comparison.Following, b, ""), entry(comparison.Followers, a, ""),
		}
	case Boards:
		return boardEntries(r, at)
	case Pins:
		pinEntry := entry(comparison.Pins, r.fields[owner], r.fields[pin])
		pinEntry.Text = comparison.PinText(pinOf(r))
		return []comparison.Entry{
			pinEntry, {List: comparison.List{Kind: comparison.BoardPins, Owner: r.fields[owner], Board: r.fields[board]}},
		}
	case Blocks:
		return []comparison.Entry{entry(comparison.Blocked, r.fields[user], r.fields[blocked])}
	case Mutes:
		return []comparison.Entry{entry(comparison.Muted, r.fields[user], r.fields[muted])}
	case HiddenItems:
		return []comparison.Entry{entry(comparison.HiddenItems, r.fields[user], r.fields[item])}
	case Reactions:
		return comparison.ReactionEntries(r.fields[user], r.fields[item], r.fields[reactionKind], at)
	case Plays:
		of, by := entry(comparison.PlaysOf, r.fields[item], r.fields[user]), entry(comparison.PlaysBy, r.fields[user], r.fields[item])
		of.Text = string(binary.BigEndian.AppendUint64(nil, r.number)) // every record counts, also one that repeats another
		by.Text = of.Text
		return []comparison.Entry{of, by}
	}
	return nil
}

// boardEntries returns the entries of a record about a board. The record says that the board
// exists, that a user follows it, or both.
func boardEntries(r *record, at events.Micros) []comparison.Entry {
	by, of, name := r.fields[follower], r.fields[owner], r.fields[board]
	entry := func(kind comparison.ListKind, owner, ofBoard, id, board, text string) comparison.Entry {
		return comparison.Entry{List: comparison.List{Kind: kind, Owner: owner, Board: ofBoard}, ID: id, Board: board, At: at, Text: text}
	}
	users, entries := []string{of}, []comparison.Entry{entry(comparison.BoardFollowers, of, name, "", "", "")}
	if by != "" {
		users = append(users, by)
		entries = append(entries,
			entry(comparison.FollowedBoards, by, "", of, name, ""), entry(comparison.BoardFollowers, of, name, by, "", ""),
			entry(comparison.ImplicitFollowing, by, "", of, "", name), entry(comparison.ImplicitFollowers, of, "", by, "", name),
		)
	}
	if name != "" { // the default board always exists, and is on no list
		text := ""
		if by == "" || r.fields[title] != "" {
			text = comparison.TitleText(r.fields[title])
		}
		entries = append(entries, entry(comparison.Boards, of, "", of, name, text))
	}
	for _, u := range users {
		for _, kind := range []comparison.ListKind{
			comparison.ImplicitFollowing, comparison.ImplicitFollowers, comparison.FollowedBoards, comparison.Boards,
		} {
			entries = append(entries, entry(kind, u, "", "", "", ""))
		}
	}
	return entries
}

// pinOf returns the pin that a valid record stands for.
func pinOf(r *record) *skeinv1.PinCreated {
	attached, _ := attributesOf(r) // the record is a good one
	made := &skeinv1.PinCreated{
		Pin:     &skeinv1.Pin{OwnerId: r.fields[owner], PinId: r.fields[pin]},
		BoardId: r.fields[board], Attributes: attached,
	}
	if r.fields[item] != r.fields[pin] {
		made.ItemId = r.fields[item]
	}
	if r.fields[repinOwner] != "" {
		made.RepinOf = &skeinv1.Pin{OwnerId: r.fields[repinOwner], PinId: r.fields[repinPin]}
	}
	return made
}

// eachRecord calls do with each valid record of a file, and its time.
func eachRecord(ctx context.Context, o CompareOptions, do func(r *record, at events.Micros) error) error {
	reading := Options{Kind: o.Kind, Path: o.Path, Format: o.Format, MaxRejects: o.MaxRejects}
	reading.SetDefaults()
	in, err := newInspection(reading, microsOf(o.StartedAt))
	if err != nil {
		return err
	}
	s, err := in.findShape(ctx)
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
		if r.err != nil || !o.Kind.isValid(&r) || (o.First && o.Kind.isRepeat(seen, &r)) {
			continue
		}
		// The service does not list a mute that has ended.
		if end, err := s.timeUnit.parseUntil(r.fields[until]); err != nil || end != 0 && end <= microsOf(o.StartedAt) {
			continue
		}
		if err := do(&r, at); err != nil {
			return err
		}
	}
}

// isValid reports whether the ids of a record are valid, each and together.
func (k Kind) isValid(r *record) bool {
	id := func(r *record, as role) bool { return events.ValidateID(r.fields[as]) == nil }
	a := r.fields[follower]
	switch k {
	case Follows:
		return id(r, follower) && id(r, user) && a != r.fields[user]
	case Plays, HiddenItems:
		return id(r, user) && id(r, item)
	case Reactions:
		hasNoPin := r.fields[pinOwner] == "" && r.fields[pin] == ""
		return id(r, user) && id(r, item) && events.IsReaction(r.fields[reactionKind]) && (hasNoPin || id(r, pinOwner) && id(r, pin))
	case Unfollows, FollowSettings:
		return id(r, follower) && id(r, user) && a != r.fields[user]
	case BoardUnfollows:
		return id(r, follower) && id(r, owner) && (r.fields[board] == "" || id(r, board)) && a != r.fields[owner]
	case Blocks:
		return id(r, user) && id(r, blocked) && r.fields[user] != r.fields[blocked]
	case Mutes:
		return id(r, user) && id(r, muted) && r.fields[user] != r.fields[muted]
	case Pins:
		return isValidPin(r)
	}
	named := id(r, board) || (r.fields[board] == "" && a != "" && r.fields[title] == "")
	titled := len(r.fields[title]) <= events.MaxTitleBytes && utf8.ValidString(r.fields[title])
	return id(r, owner) && named && titled && (a == "" || id(r, follower) && a != r.fields[owner])
}

// isValidPin reports whether the fields of a record of pins are valid, each and together.
func isValidPin(r *record) bool {
	id := func(as role) bool { return events.ValidateID(r.fields[as]) == nil }
	none := func(as role) bool { return r.fields[as] == "" }
	attached, err := attributesOf(r)
	return id(owner) && id(pin) && (none(board) || id(board)) && (none(item) || id(item)) &&
		(none(repinOwner) && none(repinPin) || id(repinOwner) && id(repinPin)) &&
		err == nil && len(attached) <= events.MaxAttributesBytes
}
