package events

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skein-feed/skein/proto/protoscan"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Topic groups the kinds of events that are about the same subject. Each kind has one topic.
type Topic uint8

// The topics.
const (
	TopicRelations           Topic = iota + 1 // relations between users: follows and their settings, blocks, mutes
	TopicContent                              // users, boards and pins begin and cease to exist, or change
	TopicSeen                                 // items that users have played and were served
	TopicItems                                // reactions to items, and scores of items
	TopicMarkers                              // times up to which users have read their feeds
	TopicImports                              // ends of imports
	TopicHidden                               // items that users hide
	TopicNotificationMarkers                  // times up to which users have seen and read their notifications
)

// kindInfo describes a kind. An event has a user, who acts, and some kinds also have a peer, the
// other user whom the event concerns.
type kindInfo struct {
	topic Topic
	// recordName is the name that importers use for records of the kind. A kind without this name
	// cannot be backfilled.
	recordName string
	// fields are the fields of the kind's message.
	fields []messageField
	// removes is true for a kind that ends something, such as a follow. Of two backfills with the
	// same time, the one whose kind removes counts as the later.
	removes bool
	// comparesEncoding is true if, of two backfills of the kind with the same time, the one whose
	// encoding is greater, byte by byte, counts as the later. Only backfills of such a kind have
	// [Event.Encoded].
	comparesEncoding bool
	// mutual is true if the event means the same for the peer as for the user, as a block does.
	mutual bool
	// beginsFollow is true if the event makes the user follow the peer or one of the peer's boards.
	// endsFollow is true if it ends the user's follows of the peer and of all the peer's boards.
	beginsFollow, endsFollow bool
}

// kindTable describes every kind. The conversion from and to messages, the validation, the decoder,
// the archive, the files of builds and the importers read this table, so none of them must change
// for a new kind.
var kindTable = [lastKind + 1]kindInfo{
	UserFollowed:    {topic: TopicRelations, recordName: "follows", fields: userAndTarget, beginsFollow: true},
	UserUnfollowed:  {topic: TopicRelations, recordName: "unfollows", fields: userAndTarget, removes: true, endsFollow: true},
	BoardFollowed:   {topic: TopicRelations, recordName: "board_follows", fields: userAndBoard, beginsFollow: true},
	BoardUnfollowed: {topic: TopicRelations, recordName: "board_unfollows", fields: userAndBoard, removes: true},
	UserBlocked:     {topic: TopicRelations, recordName: "blocks", fields: userAndTarget, removes: true, mutual: true, endsFollow: true},
	UserUnblocked:   {topic: TopicRelations, fields: userAndTarget, mutual: true},
	UserMuted: {topic: TopicRelations, recordName: "mutes", fields: []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldPeer},
		{number: 3, field: FieldUntil, optional: true},
	}},
	UserUnmuted: {topic: TopicRelations, fields: userAndTarget},
	FollowSettingsSet: {topic: TopicRelations, recordName: "follow_settings", fields: []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldPeer},
		{number: 3, field: FieldSettings, setting: SettingHideRepins, optional: true},
		{number: 4, field: FieldSettings, setting: SettingNotify, optional: true},
		{number: 5, field: FieldSettings, setting: SettingFavorite, optional: true},
	}},

	UserDeleted: {topic: TopicContent, fields: []messageField{{number: 1, field: FieldUser}}},
	BoardCreated: {topic: TopicContent, recordName: "boards", comparesEncoding: true, fields: []messageField{
		{number: 1, message: namedBoard},
		{number: 2, field: FieldTitle, optional: true},
	}},
	BoardDeleted: {topic: TopicContent, fields: []messageField{{number: 1, message: namedBoard}}},
	PinCreated: {topic: TopicContent, recordName: "pins", comparesEncoding: true, fields: []messageField{
		{number: 1, message: ownPin},
		{number: 2, field: FieldBoard, optional: true},
		{number: 3, field: FieldItem, optional: true}, // empty: an item with the id of the pin
		{number: 4, message: otherPin, optional: true},
		{number: 5, field: FieldAttributes, optional: true},
	}},
	PinMoved: {topic: TopicContent, fields: []messageField{
		{number: 1, message: ownPin},
		{number: 2, field: FieldBoard, optional: true},
	}},
	PinDeleted: {topic: TopicContent, fields: []messageField{
		{number: 1, message: ownPin},
		{number: 2, message: otherPin, optional: true},
	}},
	PinEdited: {topic: TopicContent, fields: []messageField{
		{number: 1, message: ownPin},
		{number: 2, field: FieldAttributes, optional: true},
	}},

	Played: {topic: TopicSeen, recordName: "plays", fields: userAndItem},
	Served: {topic: TopicSeen, recordName: "served", fields: []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldItems},
	}},
	SeenCleared: {topic: TopicSeen, fields: []messageField{{number: 1, field: FieldUser}}},

	Reacted:   {topic: TopicItems, recordName: "reactions", fields: reaction},
	Unreacted: {topic: TopicItems, fields: reaction},
	ItemScored: {topic: TopicItems, fields: []messageField{
		{number: 1, field: FieldItem},
		{number: 2, field: FieldScore, optional: true},
	}},

	FeedRead: {topic: TopicMarkers, fields: []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldRead},
	}},

	BackfillClosed: {topic: TopicImports, fields: []messageField{{number: 1, field: FieldSource, optional: true}}},

	ItemHidden: {topic: TopicHidden, recordName: "hidden_items", fields: userAndItem},
	ItemShown:  {topic: TopicHidden, fields: userAndItem},

	NotificationsSeen: {topic: TopicNotificationMarkers, fields: []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldRead},
	}},
	NotificationsRead: {topic: TopicNotificationMarkers, fields: []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldRead},
		{number: 3, field: FieldGroup, optional: true},
	}},
}

// Fields that the messages of several kinds have.
var (
	userAndTarget = []messageField{{number: 1, field: FieldUser}, {number: 2, field: FieldPeer}}
	userAndBoard  = []messageField{{number: 1, field: FieldUser}, {number: 2, message: peersBoard}}
	userAndItem   = []messageField{{number: 1, field: FieldUser}, {number: 2, field: FieldItem}}

	reaction = []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldItem},
		{number: 3, field: FieldReaction, optional: true}, // empty: a like
		{number: 4, message: otherPin, optional: true},
	}

	// Fields of the messages Board and Pin. peersBoard may be the default board, whose id is empty;
	// namedBoard may not.
	peersBoard = []messageField{{number: 1, field: FieldPeer}, {number: 2, field: FieldBoard, optional: true}}
	namedBoard = []messageField{{number: 1, field: FieldUser}, {number: 2, field: FieldBoard}}
	ownPin     = []messageField{{number: 1, field: FieldUser}, {number: 2, field: FieldPin}}
	otherPin   = []messageField{{number: 1, field: FieldRepinUser}, {number: 2, field: FieldRepinPin}}
)

// messageField says where in an [Event] the value of a field of a proto message is stored.
type messageField struct {
	// number is the number of the field in the message.
	number protowire.Number
	// field is the field of the Event. It is not used if message is set.
	field Field
	// setting is the bit of [Event.Settings] that stores the value, if field is FieldSettings.
	setting FollowSettings
	// message describes the fields of the value if the value is a message, Board or Pin; otherwise
	// it is nil.
	message []messageField
	// optional is true if the value may be empty or, if it is a message, missing.
	optional bool
}

// Field is a field of [Event] that only some kinds have.
type Field uint8

// The fields, in the order in which [Validate] checks them.
const (
	FieldUser Field = iota
	FieldPeer
	FieldBoard
	FieldPin
	FieldItem
	FieldTitle
	FieldAttributes
	FieldRepinUser
	FieldRepinPin
	FieldItems
	FieldRead
	FieldSource
	FieldScore
	FieldReaction
	FieldSettings
	FieldUntil
	FieldGroup
)

// FieldSet is a set of fields. Bit n stands for field n.
type FieldSet uint32

// Has reports whether the field is in the set.
func (s FieldSet) Has(f Field) bool { return s>>f&1 == 1 }

// All returns the fields of the set, in order.
func (s FieldSet) All() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for rest := s; rest != 0; rest &= rest - 1 {
			if !yield(Field(bits.TrailingZeros32(uint32(rest)))) {
				return
			}
		}
	}
}

// Fields returns the fields that events of the kind have. Of the source, it contains only that of
// [BackfillClosed], and not the source that every backfill has.
func (k Kind) Fields() FieldSet {
	if k > lastKind {
		return 0
	}
	return kindShapes[k].fields
}

// Topic returns the topic of the kind, or 0 if this version does not know the kind.
func (k Kind) Topic() Topic {
	if k > lastKind {
		return 0
	}
	return kindTable[k].topic
}

// KindsAbout returns the kinds of the given topics.
func KindsAbout(topics ...Topic) (s KindSet) {
	for _, k := range AllKinds.Slice() {
		if slices.Contains(topics, k.Topic()) {
			s |= 1 << k
		}
	}
	return s
}

// IsMutual reports whether an event of the kind means the same for the peer as for the user, as a
// block does.
func (k Kind) IsMutual() bool { return k <= lastKind && kindTable[k].mutual }

// BeginsFollow reports whether an event of the kind makes the user follow the peer, or a board of
// the peer.
func (k Kind) BeginsFollow() bool { return k <= lastKind && kindTable[k].beginsFollow }

// EndsFollow reports whether an event of the kind ends the user's follows of the peer and of all
// the peer's boards.
func (k Kind) EndsFollow() bool { return k <= lastKind && kindTable[k].endsFollow }

// Backfillable reports whether events of the kind may be backfilled.
func (k Kind) Backfillable() bool { return k <= lastKind && kindTable[k].recordName != "" }

// ParseRecords returns the kind whose records have the given name in importers, such as "follows".
// It returns false if there is none.
func ParseRecords(name string) (Kind, bool) {
	for k := range kindTable {
		if name != "" && kindTable[k].recordName == name {
			return Kind(k), true
		}
	}
	return 0, false
}

// TextField returns a pointer to the field f of the event if f is an id or another single text, and
// nil for any other field.
func (ev *Event) TextField(f Field) *string {
	switch f {
	case FieldUser:
		return &ev.User
	case FieldPeer:
		return &ev.Peer
	case FieldBoard:
		return &ev.Board
	case FieldPin:
		return &ev.Pin
	case FieldItem:
		return &ev.Item
	case FieldTitle:
		return &ev.Title
	case FieldRepinUser:
		return &ev.RepinUser
	case FieldRepinPin:
		return &ev.RepinPin
	case FieldSource:
		return &ev.Source
	case FieldReaction:
		return &ev.Reaction
	case FieldGroup:
		return &ev.Group
	default:
		return nil
	}
}

// valueForm says how a value is encoded and validated.
type valueForm uint8

const (
	formID valueForm = iota
	formTitle
	formAttributes
	formItems
	formTime
	formScore
	formSetting
	formMessage
	formReaction
)

// formOfField returns the form of a field of an event.
func formOfField(f Field) valueForm {
	switch f {
	case FieldTitle:
		return formTitle
	case FieldAttributes:
		return formAttributes
	case FieldItems:
		return formItems
	case FieldRead, FieldUntil:
		return formTime
	case FieldScore:
		return formScore
	case FieldReaction:
		return formReaction
	case FieldSettings:
		return formSetting
	default:
		return formID
	}
}

// maxFieldNumber is the highest number of a field in the message of a kind. It is one less than a
// power of two, so that the decoder can use it as a mask.
const maxFieldNumber = 7

// messageShape is a message that [kindTable] describes, in the form that the decoder, the
// conversions and the validation use.
type messageShape struct {
	// byNumber[n] is the field with the number n. Its tag is 0 if there is no such field.
	byNumber [maxFieldNumber + 1]fieldShape
	// required are the fields of the event that must not be empty.
	required FieldSet
}

// fieldShape is a field of a messageShape.
type fieldShape struct {
	tag      uint32 // number and wire type, as encoded before the value
	form     valueForm
	field    Field
	bit      FieldSet // the set that contains only the field
	optional bool
	// setting is the bit that a formSetting sets.
	setting FollowSettings
	// limit is the maximum length of an id in bytes.
	limit int
	// message is set for formMessage.
	message *messageShape
	// descriptor is the field in the proto. path is the path from the message Event to the field,
	// such as "pin_created.pin.pin_id".
	descriptor protoreflect.FieldDescriptor
	path       string
}

// kindShape is a row of [kindTable], combined with the descriptors of the proto.
type kindShape struct {
	messageShape
	// descriptor is the field of the Event message that holds the kind's message.
	descriptor protoreflect.FieldDescriptor
	// name is the name of the descriptor.
	name string
	// values are all fields that are not messages, including those of a Board or Pin, in the order
	// in which they are validated.
	values []fieldShape
	// fields are the fields of the Event that values set.
	fields FieldSet
	// hasDerivedFields is true if [Event.FillDerivedFields] can change events of the kind.
	hasDerivedFields bool
	// peerPath is the path of the peer's id, or empty if the kind has no peer.
	peerPath string
}

//nolint:gochecknoglobals // computed from kindTable and the proto, and never changed
var (
	kindOneof  = (*skeinv1.Event)(nil).ProtoReflect().Descriptor().Oneofs().ByName("kind")
	kindShapes = newKindShapes()
)

// newKindShapes returns the shapes of all kinds.
func newKindShapes() (shapes [lastKind + 1]kindShape) {
	for _, k := range AllKinds.Slice() {
		s := &shapes[k]
		s.descriptor = kindOneof.Fields().ByNumber(protowire.Number(k))
		s.name = string(s.descriptor.Name())
		s.messageShape = newMessageShape(s.descriptor.Message(), kindTable[k].fields, s.name+".")

		s.hasDerivedFields = kindTable[k].comparesEncoding
		s.values = s.leafFields()
		slices.SortFunc(s.values, func(a, b fieldShape) int { return cmp.Compare(a.field, b.field) })
		for _, value := range s.values {
			s.fields |= 1 << value.field
			if value.field == FieldPeer {
				s.peerPath = value.path
			}
		}
	}
	return shapes
}

// leafFields returns the fields of the message that are not messages themselves, including those of
// its Board or Pin.
func (shape *messageShape) leafFields() (values []fieldShape) {
	for i := range shape.byNumber {
		switch f := &shape.byNumber[i]; {
		case f.tag == 0: // the message has no field with this number
		case f.form == formMessage:
			values = append(values, f.message.leafFields()...)
		default:
			values = append(values, *f)
		}
	}
	return values
}

// newMessageShape returns the shape of a message with these fields. path is the prefix of their
// paths, such as "pin_created.".
func newMessageShape(d protoreflect.MessageDescriptor, fields []messageField, path string) (m messageShape) {
	for _, described := range fields {
		f := &m.byNumber[described.number]
		f.descriptor = d.Fields().ByNumber(described.number)
		f.path = path + string(f.descriptor.Name())
		f.optional = described.optional
		if described.message != nil {
			inner := newMessageShape(f.descriptor.Message(), described.message, f.path+".")
			f.form = formMessage
			f.message = &inner
			f.tag = protoscan.TagOf(described.number, protowire.BytesType)
			// What a missing message would have to contain is not required.
			if !f.optional {
				m.required |= inner.required
			}
			continue
		}

		f.field = described.field
		f.bit = 1 << described.field
		f.form = formOfField(described.field)
		f.setting = described.setting
		f.limit = MaxIDBytes
		f.tag = protoscan.TagOf(described.number, protowire.BytesType)
		switch f.field {
		case FieldSource:
			f.limit = MaxSourceBytes
		case FieldGroup:
			f.limit = MaxGroupBytes
		case FieldScore, FieldSettings:
			f.tag = protoscan.TagOf(described.number, protowire.VarintType)
		}
		if !f.optional {
			m.required |= 1 << f.field
		}
	}
	return m
}
