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

// Topic is what events of a kind are about.
type Topic uint8

// The topics.
const (
	// TopicRelations is what one user is to another.
	TopicRelations Topic = iota + 1
	// TopicContent is which users, boards and pins exist.
	TopicContent
	// TopicSeen is what a user has played and was served.
	TopicSeen
	// TopicItems is what makes items popular, apart from plays: likes and scores.
	TopicItems
	// TopicMarkers is up to where users have read their feeds.
	TopicMarkers
	// TopicImports is the end of imports.
	TopicImports
)

// kindInfo describes one kind.
type kindInfo struct {
	topic Topic
	// records is what importers call records of the kind. Events of a kind without that name cannot be backfilled.
	records string
	// fields are the fields of the kind's message.
	fields []messageField
	// removes: of two backfills at the same time, one of a kind that removes counts as the later.
	removes bool
	// encoded: of two backfills at the same time, the one with the larger encoding counts as the later, so [Event.Encoded] is set.
	encoded bool
	// mutual: the event concerns the peer as it concerns the user.
	mutual bool
	// begins and ends: the user follows one more user, or one fewer.
	begins, ends bool
}

// kindTable describes every kind. The conversion from and to messages, the check of events, the decoder, the archive, the files of builds
// and the importers follow from it; so a new kind needs a row here and none of them needs to know it.
var kindTable = [lastKind + 1]kindInfo{
	UserFollowed:    {topic: TopicRelations, records: "follows", fields: userAndTarget, begins: true},
	UserUnfollowed:  {topic: TopicRelations, records: "unfollows", fields: userAndTarget, removes: true, ends: true},
	BoardFollowed:   {topic: TopicRelations, records: "board_follows", fields: userAndBoard, begins: true},
	BoardUnfollowed: {topic: TopicRelations, records: "board_unfollows", fields: userAndBoard, removes: true},
	UserBlocked:     {topic: TopicRelations, records: "blocks", fields: userAndTarget, removes: true, mutual: true, ends: true},
	UserUnblocked:   {topic: TopicRelations, fields: userAndTarget, mutual: true},
	UserMuted:       {topic: TopicRelations, records: "mutes", fields: userAndTarget},
	UserUnmuted:     {topic: TopicRelations, fields: userAndTarget},
	RepinsHidden:    {topic: TopicRelations, records: "hidden_repins", fields: userAndTarget},
	RepinsShown:     {topic: TopicRelations, fields: userAndTarget},

	UserDeleted: {topic: TopicContent, fields: []messageField{{number: 1, field: FieldUser}}},
	BoardCreated: {topic: TopicContent, records: "boards", encoded: true, fields: []messageField{
		{number: 1, message: namedBoard},
		{number: 2, field: FieldTitle, optional: true},
	}},
	BoardDeleted: {topic: TopicContent, fields: []messageField{{number: 1, message: namedBoard}}},
	PinCreated: {topic: TopicContent, records: "pins", encoded: true, fields: []messageField{
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
	PinDeleted: {topic: TopicContent, fields: []messageField{{number: 1, message: ownPin}}},

	Played: {topic: TopicSeen, records: "plays", fields: userAndItem},
	Served: {topic: TopicSeen, records: "served", fields: []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldItems},
	}},
	SeenCleared: {topic: TopicSeen, fields: []messageField{{number: 1, field: FieldUser}}},

	Liked:   {topic: TopicItems, records: "likes", fields: userAndItem},
	Unliked: {topic: TopicItems, fields: userAndItem},
	ItemScored: {topic: TopicItems, fields: []messageField{
		{number: 1, field: FieldItem},
		{number: 2, field: FieldScore, optional: true},
	}},

	FeedRead: {topic: TopicMarkers, fields: []messageField{
		{number: 1, field: FieldUser},
		{number: 2, field: FieldRead},
	}},

	BackfillClosed: {topic: TopicImports, fields: []messageField{{number: 1, field: FieldSource, optional: true}}},
}

// The fields that messages of several kinds have.
var (
	userAndTarget = []messageField{{number: 1, field: FieldUser}, {number: 2, field: FieldPeer}}
	userAndBoard  = []messageField{{number: 1, field: FieldUser}, {number: 2, message: peersBoard}}
	userAndItem   = []messageField{{number: 1, field: FieldUser}, {number: 2, field: FieldItem}}

	// Boards and pins in messages. An empty board id is that of the default board.
	peersBoard = []messageField{{number: 1, field: FieldPeer}, {number: 2, field: FieldBoard, optional: true}}
	namedBoard = []messageField{{number: 1, field: FieldUser}, {number: 2, field: FieldBoard}}
	ownPin     = []messageField{{number: 1, field: FieldUser}, {number: 2, field: FieldPin}}
	otherPin   = []messageField{{number: 1, field: FieldRepinUser}, {number: 2, field: FieldRepinPin}}
)

// messageField describes a field of a message: what it is in the flat [Event].
type messageField struct {
	number protowire.Number
	// field is where the event has the value, unless it is a message.
	field Field
	// message has the fields of a Board or Pin.
	message []messageField
	// optional: the value may be empty or, of a message, missing.
	optional bool
}

// Field is a field of [Event] that depends on its kind.
type Field uint8

// The fields, in the order in which they are checked.
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
)

// FieldSet is a set of fields: bit n is field n.
type FieldSet uint16

// Has reports whether the field is in the set.
func (s FieldSet) Has(f Field) bool { return s>>f&1 == 1 }

// All returns the fields of the set, in order.
func (s FieldSet) All() iter.Seq[Field] {
	return func(yield func(Field) bool) {
		for rest := s; rest != 0; rest &= rest - 1 {
			if !yield(Field(bits.TrailingZeros16(uint16(rest)))) {
				return
			}
		}
	}
}

// Fields returns which fields events of the kind have. A backfill has a source, too.
func (k Kind) Fields() FieldSet {
	if k > lastKind {
		return 0
	}
	return kindShapes[k].fields
}

// Topic returns what events of the kind are about; 0 if this version does not know the kind.
func (k Kind) Topic() Topic {
	if k > lastKind {
		return 0
	}
	return kindTable[k].topic
}

// KindsAbout returns the kinds of some topics.
func KindsAbout(topics ...Topic) (s KindSet) {
	for _, k := range AllKinds.Slice() {
		if slices.Contains(topics, k.Topic()) {
			s |= 1 << k
		}
	}
	return s
}

// IsMutual reports whether an event of the kind concerns the peer as it concerns the user.
func (k Kind) IsMutual() bool { return k <= lastKind && kindTable[k].mutual }

// BeginsFollow reports whether an event of the kind lets the user follow the peer, or a board of the peer.
func (k Kind) BeginsFollow() bool { return k <= lastKind && kindTable[k].begins }

// EndsFollow reports whether an event of the kind ends the user's follows of the peer and of all the peer's boards.
func (k Kind) EndsFollow() bool { return k <= lastKind && kindTable[k].ends }

// Backfillable reports whether events of the kind may be backfilled.
func (k Kind) Backfillable() bool { return k <= lastKind && kindTable[k].records != "" }

// ParseRecords returns the kind of the records that importers call by a name, such as "follows".
func ParseRecords(name string) (Kind, bool) {
	for k := range kindTable {
		if name != "" && kindTable[k].records == name {
			return Kind(k), true
		}
	}
	return 0, false
}

// Text returns where the event has a field that is one text, and nil for any other field.
func (ev *Event) Text(f Field) *string {
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
	default:
		return nil
	}
}

// valueForm is how a value is encoded and checked.
type valueForm uint8

const (
	formID valueForm = iota
	formTitle
	formAttributes
	formItems
	formTime
	formScore
	formMessage
)

// formOf returns the form of a field of an event.
func formOf(f Field) valueForm {
	switch f {
	case FieldTitle:
		return formTitle
	case FieldAttributes:
		return formAttributes
	case FieldItems:
		return formItems
	case FieldRead:
		return formTime
	case FieldScore:
		return formScore
	default:
		return formID
	}
}

// maxFieldNumber is the highest number of a field in a message of a kind. Field tables have one more entry, a power of two.
const maxFieldNumber = 7

// messageShape is a message of [kindTable] as the decoder, the conversions and the check need it.
type messageShape struct {
	// byNumber has the fields, by their numbers. Other entries have tag 0.
	byNumber [maxFieldNumber + 1]fieldShape
	// required are the fields of the event that may not be empty.
	required FieldSet
}

// fieldShape is a field of a messageShape.
type fieldShape struct {
	tag      uint32
	form     valueForm
	field    Field
	bit      FieldSet // of the field
	optional bool
	// limit is the greatest length of an id, in bytes.
	limit int
	// message is set for formMessage.
	message *messageShape
	// descriptor is the field in the proto, and path the names that lead to it in the Event message.
	descriptor protoreflect.FieldDescriptor
	path       string
}

// kindShape is what follows from a row of [kindTable] and from the proto.
type kindShape struct {
	messageShape
	// descriptor is the field of the Event message that holds the kind's message.
	descriptor protoreflect.FieldDescriptor
	// name is that of the descriptor.
	name string
	// values has the fields that are no messages, those in a Board or Pin too, in the order in which they are checked.
	values []fieldShape
	fields FieldSet
	// completes: [Event.Complete] changes events of the kind.
	completes bool
	// peerPath is the path of the peer's id.
	peerPath string
}

//nolint:gochecknoglobals // computed from kindTable and the proto, and immutable from then on
var (
	kindOneof  = (*skeinv1.Event)(nil).ProtoReflect().Descriptor().Oneofs().ByName("kind")
	kindShapes = shapesOfKinds()
)

func shapesOfKinds() (shapes [lastKind + 1]kindShape) {
	for _, k := range AllKinds.Slice() {
		s := &shapes[k]
		s.descriptor = kindOneof.Fields().ByNumber(protowire.Number(k))
		s.name = string(s.descriptor.Name())
		s.messageShape = shapeOfMessage(s.descriptor.Message(), kindTable[k].fields, s.name+".")

		s.completes = kindTable[k].encoded
		s.values = s.valuesOf()
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

// valuesOf returns the fields of a message and of those in it, without the messages themselves.
func (shape *messageShape) valuesOf() (values []fieldShape) {
	for i := range shape.byNumber {
		switch f := &shape.byNumber[i]; {
		case f.tag == 0:
		case f.form == formMessage:
			values = append(values, f.message.valuesOf()...)
		default:
			values = append(values, *f)
		}
	}
	return values
}

// shapeOfMessage returns the shape of a message to which a path leads.
func shapeOfMessage(d protoreflect.MessageDescriptor, fields []messageField, path string) (m messageShape) {
	for _, described := range fields {
		f := &m.byNumber[described.number]
		f.descriptor = d.Fields().ByNumber(described.number)
		f.path = path + string(f.descriptor.Name())
		f.optional = described.optional
		if described.message != nil {
			inner := shapeOfMessage(f.descriptor.Message(), described.message, f.path+".")
			f.form, f.message = formMessage, &inner
			f.tag = protoscan.TagOf(described.number, protowire.BytesType)
			if !f.optional {
				m.required |= inner.required
			}
			continue
		}

		f.field, f.bit, f.form, f.limit = described.field, 1<<described.field, formOf(described.field), MaxIDBytes
		f.tag = protoscan.TagOf(described.number, protowire.BytesType)
		switch f.field {
		case FieldSource:
			f.limit = MaxSourceBytes
		case FieldScore:
			f.tag = protoscan.TagOf(described.number, protowire.VarintType)
		}
		if !f.optional {
			m.required |= 1 << f.field
		}
	}
	return m
}
