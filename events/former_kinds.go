package events

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// The numbers of kinds that newer kinds have replaced. No event of these kinds can be published,
// but older logs have them.
const (
	// formerRepinsHidden was repins_hidden, with the fields user_id and target_user_id.
	formerRepinsHidden Kind = 32
	// formerRepinsShown was repins_shown, with the same fields.
	formerRepinsShown Kind = 33
)

// ReplaceFormerKind returns the kind and the settings as which an event of a former kind is read,
// and the same kind without settings for every other kind.
func ReplaceFormerKind(k Kind) (Kind, FollowSettings) {
	switch k {
	case formerRepinsHidden:
		return FollowSettingsSet, SettingHideRepins
	case formerRepinsShown:
		return FollowSettingsSet, 0
	default:
		return k, 0
	}
}

// replaceFormerKind gives a message of a former kind, which this version knows only as an unknown
// field, the kind as which it is read. It changes no message that has a kind. It returns an error
// if the unknown field is not the message that the former kind had.
func replaceFormerKind(msg *skeinv1.Event) error {
	if msg.GetKind() != nil {
		return nil
	}

	for unknown := msg.ProtoReflect().GetUnknown(); len(unknown) > 0; {
		number, wireType, length := protowire.ConsumeField(unknown)
		if length < 0 {
			return protowire.ParseError(length)
		}
		field := unknown[:length]
		unknown = unknown[length:]
		if wireType != protowire.BytesType || number > protowire.Number(lastKind) {
			continue
		}
		kind, settings := ReplaceFormerKind(Kind(number))
		if kind == Kind(number) {
			continue
		}

		// The former messages have a part of the fields of the new one, with the same numbers.
		_, _, tagLength := protowire.ConsumeTag(field)
		content, _ := protowire.ConsumeBytes(field[tagLength:])
		set := &skeinv1.FollowSettingsSet{}
		if err := proto.Unmarshal(content, set); err != nil {
			return err
		}
		set.HideRepins = settings == SettingHideRepins
		// The former messages had no such fields, so numbers that look like them mean nothing.
		set.Notify = false
		set.Favorite = false
		msg.Kind = &skeinv1.Event_FollowSettingsSet{FollowSettingsSet: set}
	}
	return nil
}
