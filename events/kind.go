package events

import (
	"fmt"
	"math/bits"
)

// Kind is the kind of an event. Its number is the number of its field in the oneof of the message
// Event, and never changes.
type Kind uint8

// The kinds of events. proto/skein/v1/event.proto says what each means.
const (
	UserFollowed      Kind = 10
	UserUnfollowed    Kind = 11
	BoardFollowed     Kind = 12
	BoardUnfollowed   Kind = 13
	BoardCreated      Kind = 14
	BoardDeleted      Kind = 15
	PinCreated        Kind = 16
	PinMoved          Kind = 17
	PinDeleted        Kind = 18
	UserBlocked       Kind = 19
	UserUnblocked     Kind = 20
	UserMuted         Kind = 21
	UserUnmuted       Kind = 22
	UserDeleted       Kind = 23
	Reacted           Kind = 25
	Unreacted         Kind = 26
	Played            Kind = 27
	Served            Kind = 28
	SeenCleared       Kind = 29
	ItemScored        Kind = 30
	BackfillClosed    Kind = 31
	FeedRead          Kind = 34
	FollowSettingsSet Kind = 35
	ItemHidden        Kind = 36
	ItemShown         Kind = 37
	PinEdited         Kind = 38
	NotificationsSeen Kind = 39
	NotificationsRead Kind = 40

	firstKind = UserFollowed
	lastKind  = NotificationsRead
	// unusedNumbers are the numbers between firstKind and lastKind that no kind has. The message
	// Event reserves them. Older logs have events with 32 and 33 (former_kinds.go).
	unusedNumbers KindSet = 1<<24 | 1<<formerRepinsHidden | 1<<formerRepinsShown
)

// String returns the name of the kind's field in the message Event, such as user_followed.
func (k Kind) String() string {
	if k.Valid() {
		return kindShapes[k].name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Valid reports whether this version of the program knows the kind.
func (k Kind) Valid() bool { return AllKinds.Has(k) }

// ParseKind parses the result of [Kind.String]. It returns false if no kind has the name.
func ParseKind(name string) (Kind, bool) {
	for _, k := range AllKinds.Slice() {
		if kindShapes[k].name == name {
			return k, true
		}
	}
	return 0, false
}

// KindSet is a set of kinds. Bit n stands for kind n.
type KindSet uint64

// Kinds returns the set of the given kinds.
func Kinds(kinds ...Kind) KindSet {
	var s KindSet
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// AllKinds is the set of all kinds that this version of the program knows.
const AllKinds KindSet = (1<<(lastKind+1) - 1) &^ (1<<firstKind - 1) &^ unusedNumbers

// Has reports whether the kind is in the set.
func (s KindSet) Has(k Kind) bool { return s>>k&1 == 1 }

// Slice returns the kinds of the set in ascending order of their numbers.
func (s KindSet) Slice() []Kind {
	kinds := make([]Kind, 0, bits.OnesCount64(uint64(s)))
	for ; s != 0; s &= s - 1 {
		kinds = append(kinds, Kind(bits.TrailingZeros64(uint64(s))))
	}
	return kinds
}
