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
	// start is the recorded start of the import. Records without a time get it as their time, and
	// so do records with a later time: the log would replace a later time by its own time, which is
	// different in every run.
	start events.Micros
	shape *shape
}

// translate returns the events that a record stands for, each of a different kind, so that all can
// have the number of the record as offset. clamped reports that the time of the record was after
// the start and was replaced by it.
func (t *translator) translate(r *record) (evs []*skeinv1.Event, clamped bool, err error) {
	if r.err != nil {
		return nil, false, r.err
	}
	at := t.start
	if t.shape.hasTime() {
		at, clamped, err = t.shape.timeUnit.parseRecordTime(r.fields[when], t.start)
		if err != nil {
			return nil, false, err
		}
	}

	evs, err = t.recordEvents(r)
	if err != nil {
		return nil, false, err
	}
	occurred := timestamppb.New(at.Time())
	for _, ev := range evs {
		ev.Source = t.source
		ev.Offset = r.number
		ev.OccurredAt = occurred
		// The service would reject the event for the same reason, but only after others were sent.
		if refused := events.Validate(ev); refused != nil {
			return nil, false, errors.New(refused.Message)
		}
	}
	return evs, clamped, nil
}

// describe describes a record to people, with the time that its events get.
func (t *translator) describe(r *record) string {
	evs, _, err := t.translate(r)
	if err != nil {
		return "cannot be taken: " + err.Error()
	}
	f := r.fields
	f[item] = cmp.Or(f[item], f[pin])
	columns := kinds[t.kind]
	var values []any
	for _, as := range columns.inSentence {
		values = append(values, f[as])
	}

	var b strings.Builder
	fmt.Fprintf(&b, columns.sentence, values...)
	if f[title] != "" {
		fmt.Fprintf(&b, " titled %q", f[title])
	}
	if t.kind == Boards && f[follower] != "" {
		fmt.Fprintf(&b, ", which %s follows", f[follower])
	}
	if t.kind == Reactions {
		fmt.Fprintf(&b, " with %s", events.ReactionName(f[reactionKind]))
	}
	if t.kind == FollowSettings {
		set := evs[0].GetFollowSettingsSet()
		fmt.Fprintf(&b, " hide_repins %t, notify %t, favorite %t", set.GetHideRepins(), set.GetNotify(), set.GetFavorite())
	}
	if end := evs[0].GetUserMuted().GetUntil(); end != nil {
		fmt.Fprintf(&b, " until %s", end.AsTime().Format(time.RFC3339Nano))
	}
	fmt.Fprintf(&b, ", %s", evs[0].GetOccurredAt().AsTime().Format(time.RFC3339Nano))
	if !t.shape.hasTime() {
		b.WriteString(", the start of the import")
	}
	return b.String()
}

// recordEvents returns the facts of a record as events, without time, source and offset. It does
// not check their fields, which the validation of the events does: it rejects, for example, a
// re-pin that has the owner of the pin but not the pin.
//
// A record of a board may stand for two facts. If it has a follower, it says that the follower
// follows the board. If it has a title, or no follower, it says that the board exists.
func (t *translator) recordEvents(r *record) (evs []*skeinv1.Event, err error) {
	f := &r.fields
	if t.kind != Boards || f[follower] == "" || f[title] != "" {
		ev := events.Event{Kind: t.kind.event()}
		for as, field := range kinds[t.kind].fields {
			*ev.TextField(field) = f[as]
		}
		ev.Reaction = events.ReactionOf(ev.Reaction)
		ev.Attributes, err = attributesOf(r)
		if err != nil {
			return nil, err
		}
		ev.Settings, err = parseSettings(r)
		if err != nil {
			return nil, err
		}
		ev.Until, err = t.shape.timeUnit.parseUntil(f[until])
		if err != nil {
			return nil, err
		}
		evs = append(evs, ev.Proto())
	}
	if t.kind == Boards && f[follower] != "" {
		follow := events.Event{Kind: events.BoardFollowed, User: f[follower], Peer: f[owner], Board: f[board]}
		evs = append(evs, follow.Proto())
	}
	return evs, nil
}

// parseSettings reads the settings of a follow. A setting without a value is off.
func parseSettings(r *record) (settings events.FollowSettings, err error) {
	for _, column := range []struct {
		role    role
		setting events.FollowSettings
	}{
		{hideRepins, events.SettingHideRepins}, {notify, events.SettingNotify}, {favorite, events.SettingFavorite},
	} {
		switch strings.ToLower(r.fields[column.role]) {
		case "true", "t", "yes", "y", "1":
			settings |= column.setting
		case "false", "f", "no", "n", "0", "":
		default:
			return 0, fmt.Errorf("%s must be true, false or empty, not %q", column.role, r.fields[column.role])
		}
	}
	return settings, nil
}

// attributesOf returns the attributes of a record. It does not check their length.
func attributesOf(r *record) ([]byte, error) {
	text := r.fields[attributes]
	packed := r.fields[attributesBase64]
	if packed == "" {
		return []byte(text), nil
	}
	if text != "" {
		return nil, errors.New("attributes must be empty where attributes_base64 is given: a pin has one of them")
	}
	// Accept both alphabets of base64, with and without padding.
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

// subject identifies the fact of a record for --first, which imports each fact once: a follower
// follows a user or board, an owner has a pin, a user has played an item or reacted to it with a
// kind.
type subject [3]string

// subjectOf returns the subject of a record.
func (k Kind) subjectOf(r *record) (s subject) {
	columns := kinds[k]
	if columns.subject == nil {
		columns.subject = columns.required
	}
	for i, as := range columns.subject {
		s[i] = r.fields[as]
	}
	if k == Reactions {
		s[2] = events.ReactionOf(s[2])
	}
	return s
}

func microsOf(t time.Time) events.Micros { return events.Micros(t.UnixMicro()) }
