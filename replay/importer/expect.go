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
		from := r.fields[follower]
		to := r.fields[user]
		return []comparison.Entry{
			entry(comparison.Following, from, to), entry(comparison.Followers, to, from),
			entry(comparison.Following, to, ""), entry(comparison.Followers, from, ""),
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
		playOf := entry(comparison.PlaysOf, r.fields[item], r.fields[user])
		playBy := entry(comparison.PlaysBy, r.fields[user], r.fields[item])
		// Every record counts, also one that repeats another. The number makes the entries differ.
		playOf.Text = string(binary.BigEndian.AppendUint64(nil, r.number))
		playBy.Text = playOf.Text
		return []comparison.Entry{playOf, playBy}
	}
	return nil
}

// boardEntries returns the entries of a record about a board. The record says that the board
// exists, that a user follows it, or both.
func boardEntries(r *record, at events.Micros) []comparison.Entry {
	by := r.fields[follower]
	of := r.fields[owner]
	name := r.fields[board]
	entry := func(kind comparison.ListKind, owner, ofBoard, id, board, text string) comparison.Entry {
		return comparison.Entry{List: comparison.List{Kind: kind, Owner: owner, Board: ofBoard}, ID: id, Board: board, At: at, Text: text}
	}
	users := []string{of}
	entries := []comparison.Entry{entry(comparison.BoardFollowers, of, name, "", "", "")}
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

	// Entries without an id make the comparer query these lists of both users, even if they are
	// empty.
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
		r, err := records.nextRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at := microsOf(o.StartedAt)
		if s.hasTime() && r.err == nil {
			at, _, r.err = s.timeUnit.parseRecordTime(r.fields[when], at)
		}
		if r.err != nil || !o.Kind.isValid(&r) || (o.First && o.Kind.isRepeat(seen, &r)) {
			continue
		}
		// The service does not list a mute that has ended. Files of other kinds have no such
		// column.
		end, err := s.timeUnit.parseUntil(r.fields[until])
		hasEnded := end != 0 && end <= microsOf(o.StartedAt)
		if err != nil || hasEnded {
			continue
		}
		if err := do(&r, at); err != nil {
			return err
		}
	}
}

// isValid reports whether the ids of a record are valid, each and together.
func (k Kind) isValid(r *record) bool {
	switch k {
	case Follows, Unfollows, FollowSettings:
		return r.hasDifferentIDs(follower, user)
	case Blocks:
		return r.hasDifferentIDs(user, blocked)
	case Mutes:
		return r.hasDifferentIDs(user, muted)
	case BoardUnfollows:
		return r.hasDifferentIDs(follower, owner) && (r.lacks(board) || r.hasID(board))
	case Plays, HiddenItems:
		return r.hasID(user) && r.hasID(item)
	case Reactions:
		hasNoPin := r.lacks(pinOwner) && r.lacks(pin)
		hasPin := r.hasID(pinOwner) && r.hasID(pin)
		return r.hasID(user) && r.hasID(item) && events.IsReaction(r.fields[reactionKind]) && (hasNoPin || hasPin)
	case Pins:
		return isValidPin(r)
	}
	return isValidBoard(r)
}

// hasID reports whether a field is a valid id.
func (r *record) hasID(as role) bool { return events.ValidateID(r.fields[as]) == nil }

// lacks reports whether a field is empty.
func (r *record) lacks(as role) bool { return r.fields[as] == "" }

// hasDifferentIDs reports whether two fields are valid ids and not the same one.
func (r *record) hasDifferentIDs(a, b role) bool {
	return r.hasID(a) && r.hasID(b) && r.fields[a] != r.fields[b]
}

// isValidBoard reports whether the fields of a record of boards are valid, each and together.
func isValidBoard(r *record) bool {
	// Only the follow of a board may name the default board, whose id is empty.
	isDefault := r.lacks(board) && r.lacks(title) && !r.lacks(follower)
	hasBoard := r.hasID(board) || isDefault
	hasValidTitle := len(r.fields[title]) <= events.MaxTitleBytes && utf8.ValidString(r.fields[title])
	return r.hasID(owner) && hasBoard && hasValidTitle && (r.lacks(follower) || r.hasDifferentIDs(follower, owner))
}

// isValidPin reports whether the fields of a record of pins are valid, each and together.
func isValidPin(r *record) bool {
	attached, err := attributesOf(r)
	hasValidAttributes := err == nil && len(attached) <= events.MaxAttributesBytes
	isNoRepin := r.lacks(repinOwner) && r.lacks(repinPin)
	isRepin := r.hasID(repinOwner) && r.hasID(repinPin)
	return r.hasID(owner) && r.hasID(pin) &&
		(r.lacks(board) || r.hasID(board)) &&
		(r.lacks(item) || r.hasID(item)) &&
		(isNoRepin || isRepin) && hasValidAttributes
}
