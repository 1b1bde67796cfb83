package importer

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// translator turns the records of one import into events.
type translator struct {
	kind   Kind
	source string
	// start is the recorded start of the import: the time of records without one, and the latest time that a record may
	// have. The log would clamp a later time to its own, which differs in every run. Clamped here, it is the same in all runs.
	start events.Micros
	shape *shape
}

// events returns the events of a record, each of a different kind, so that all can have the record's offset. It reports whether the time of
// the record was after the start and was replaced by it.
func (t *translator) events(r *record) (evs []*skeinv1.Event, clamped bool, err error) {
	if r.err != nil {
		return nil, false, r.err
	}
	at := t.start
	if t.shape.hasTime() {
		if at, clamped, err = t.shape.timeUnit.parse(r.fields[when], t.start); err != nil {
			return nil, false, err
		}
	}
	if evs, err = t.say(r); err != nil {
		return nil, false, err
	}
	occurred := timestamppb.New(at.Time())
	for _, ev := range evs {
		ev.Source, ev.Offset, ev.OccurredAt = t.source, r.number, occurred
		if refused := events.Validate(ev); refused != nil {
			return nil, false, errors.New(refused.Message)
		}
	}
	return evs, clamped, nil
}

// understood describes a record for people, with the time that its events get.
func (t *translator) understood(r *record) string {
	evs, _, err := t.events(r)
	if err != nil {
		return "cannot be taken: " + err.Error()
	}
	f := &r.fields
	var b strings.Builder
	switch t.kind {
	case Follows:
		fmt.Fprintf(&b, "%s follows %s", f[follower], f[user])
	case Boards:
		fmt.Fprintf(&b, "%s has board %q", f[owner], f[board])
		if f[title] != "" {
			fmt.Fprintf(&b, " titled %q", f[title])
		}
		if f[follower] != "" {
			fmt.Fprintf(&b, ", which %s follows", f[follower])
		}
	case Pins:
		fmt.Fprintf(&b, "%s made pin %s on board %q, which shows item %s",
			f[owner], f[pin], f[board], cmp.Or(f[item], f[pin]))
	case Plays:
		fmt.Fprintf(&b, "%s played %s", f[user], f[item])
	case Likes:
		fmt.Fprintf(&b, "%s likes %s", f[user], f[item])
	case Unfollows:
		fmt.Fprintf(&b, "%s no longer follows %s", f[follower], f[user])
	case BoardUnfollows:
		fmt.Fprintf(&b, "%s no longer follows board %q of %s", f[follower], f[board], f[owner])
	case Blocks:
		fmt.Fprintf(&b, "%s blocks %s", f[user], f[blocked])
	case Mutes:
		fmt.Fprintf(&b, "%s mutes %s", f[user], f[muted])
	case HiddenRepins:
		fmt.Fprintf(&b, "%s hides the re-pins of %s", f[user], f[hidden])
	}
	fmt.Fprintf(&b, ", %s", evs[0].GetOccurredAt().AsTime().Format(time.RFC3339Nano))
	if !t.shape.hasTime() {
		b.WriteString(", the start of the import")
	}
	return b.String()
}

// say returns the facts of a record as events, without time, source and offset.
func (t *translator) say(r *record) ([]*skeinv1.Event, error) {
	switch t.kind {
	case Follows:
		return t.follows(r), nil
	case Boards:
		return t.boards(r), nil
	case Pins:
		return t.pins(r)
	case Plays:
		return []*skeinv1.Event{{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{
			UserId: r.fields[user], ItemId: r.fields[item],
		}}}}, nil
	case Likes:
		return []*skeinv1.Event{{Kind: &skeinv1.Event_Liked{Liked: &skeinv1.Liked{
			UserId: r.fields[user], ItemId: r.fields[item],
		}}}}, nil
	case Unfollows:
		return []*skeinv1.Event{{Kind: &skeinv1.Event_UserUnfollowed{UserUnfollowed: &skeinv1.UserUnfollowed{
			UserId: r.fields[follower], TargetUserId: r.fields[user],
		}}}}, nil
	case BoardUnfollows:
		return []*skeinv1.Event{{Kind: &skeinv1.Event_BoardUnfollowed{BoardUnfollowed: &skeinv1.BoardUnfollowed{
			UserId: r.fields[follower], Board: &skeinv1.Board{OwnerId: r.fields[owner], BoardId: r.fields[board]},
		}}}}, nil
	case Blocks:
		return []*skeinv1.Event{{Kind: &skeinv1.Event_UserBlocked{UserBlocked: &skeinv1.UserBlocked{
			UserId: r.fields[user], TargetUserId: r.fields[blocked],
		}}}}, nil
	case Mutes:
		return []*skeinv1.Event{{Kind: &skeinv1.Event_UserMuted{UserMuted: &skeinv1.UserMuted{
			UserId: r.fields[user], TargetUserId: r.fields[muted],
		}}}}, nil
	case HiddenRepins:
		return []*skeinv1.Event{{Kind: &skeinv1.Event_RepinsHidden{RepinsHidden: &skeinv1.RepinsHidden{
			UserId: r.fields[user], TargetUserId: r.fields[hidden],
		}}}}, nil
	}
	return nil, fmt.Errorf("cannot import %q", t.kind)
}

func (t *translator) follows(r *record) []*skeinv1.Event {
	return []*skeinv1.Event{{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
		UserId: r.fields[follower], TargetUserId: r.fields[user],
	}}}}
}

// boards returns up to two events: a record with a follower says that the board is followed; a record with a title, or without a
// follower, says that the board exists.
func (t *translator) boards(r *record) []*skeinv1.Event {
	b := &skeinv1.Board{OwnerId: r.fields[owner], BoardId: r.fields[board]}
	var evs []*skeinv1.Event
	if r.fields[follower] == "" || r.fields[title] != "" {
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_BoardCreated{
			BoardCreated: &skeinv1.BoardCreated{Board: b, Title: r.fields[title]},
		}})
	}
	if r.fields[follower] != "" {
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_BoardFollowed{
			BoardFollowed: &skeinv1.BoardFollowed{UserId: r.fields[follower], Board: b},
		}})
	}
	return evs
}

// pins returns the event of a pin. It does not check its fields: the validation of the event rejects, for example, the owner of a
// re-pinned pin without the pin.
func (t *translator) pins(r *record) ([]*skeinv1.Event, error) {
	attached, err := attachedTo(r)
	if err != nil {
		return nil, err
	}
	made := &skeinv1.PinCreated{
		Pin:     &skeinv1.Pin{OwnerId: r.fields[owner], PinId: r.fields[pin]},
		BoardId: r.fields[board], ItemId: r.fields[item], Attributes: attached,
	}
	if r.fields[repinOwner] != "" || r.fields[repinPin] != "" {
		made.RepinOf = &skeinv1.Pin{OwnerId: r.fields[repinOwner], PinId: r.fields[repinPin]}
	}
	return []*skeinv1.Event{{Kind: &skeinv1.Event_PinCreated{PinCreated: made}}}, nil
}

// attachedTo reads the attributes of a record. It does not check their length.
func attachedTo(r *record) ([]byte, error) {
	text, packed := r.fields[attributes], r.fields[attributesBase64]
	if packed == "" {
		return []byte(text), nil
	}
	if text != "" {
		return nil, errors.New("attributes must be empty where attributes_base64 is given: a pin has one of them")
	}
	encoding := base64.StdEncoding
	if strings.ContainsAny(packed, "-_") {
		encoding = base64.URLEncoding
	}
	if !strings.HasSuffix(packed, "=") {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	data, err := encoding.DecodeString(packed)
	if err != nil {
		return nil, fmt.Errorf("attributes_base64 must be base64 of at most %d bytes", events.MaxAttributesBytes)
	}
	return data, nil
}

// pair is a follower and the followed user or board.
type pair struct{ follower, user, owner, board string }

// String returns the pair for people.
func (p pair) String() string {
	if p.user != "" {
		return p.follower + " → " + p.user
	}
	return fmt.Sprintf("%s → board %q of %s", p.follower, p.board, p.owner)
}

func pairOf(r *record) pair {
	return pair{r.fields[follower], r.fields[user], r.fields[owner], r.fields[board]}
}

// subject identifies the fact of a record for --first, which takes each fact once: a follower follows a user or board, an owner has a
// pin, a user played or likes an item.
type subject [3]string

func (k Kind) subjectOf(r *record) subject {
	f := &r.fields
	switch k {
	case Boards, BoardUnfollows:
		return subject{f[follower], f[owner], f[board]}
	case Blocks:
		return subject{f[user], f[blocked]}
	case Mutes:
		return subject{f[user], f[muted]}
	case HiddenRepins:
		return subject{f[user], f[hidden]}
	case Pins:
		return subject{f[owner], f[pin]}
	case Plays, Likes:
		return subject{f[user], f[item]}
	}
	return subject{f[follower], f[user]}
}

func microsOf(t time.Time) events.Micros { return events.Micros(t.UnixMicro()) }
