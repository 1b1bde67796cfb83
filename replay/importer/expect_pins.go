package importer

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// goodPin reports whether the fields of a record of pins are valid together.
func goodPin(r *record) bool {
	id := func(as role) bool { return events.ValidateID(r.fields[as]) == nil }
	none := func(as role) bool { return r.fields[as] == "" }
	attached, err := attachedTo(r)
	return id(owner) && id(pin) && (none(board) || id(board)) && (none(item) || id(item)) &&
		(none(repinOwner) && none(repinPin) || id(repinOwner) && id(repinPin)) &&
		err == nil && len(attached) <= events.MaxAttributesBytes
}

// madePin is the record that creates a pin. Later records about the same pin are ignored.
type madePin struct {
	entry
	encoded string
}

// before reports whether m counts, rather than other. The earlier record counts; of two with the same time, the one with the smaller
// encoding.
func (m *madePin) before(other *madePin) bool {
	return cmp.Or(cmp.Compare(m.since, other.since), cmp.Compare(m.encoded, other.encoded)) < 0
}

func pinOf(r *record, at events.Micros) *madePin {
	attached, _ := attachedTo(r) // the record is a good one
	content := &skeinv1.PinCreated{
		Pin:     &skeinv1.Pin{OwnerId: r.fields[owner], PinId: r.fields[pin]},
		BoardId: r.fields[board], Attributes: attached,
	}
	if r.fields[item] != r.fields[pin] {
		content.ItemId = r.fields[item]
	}
	if r.fields[repinOwner] != "" {
		content.RepinOf = &skeinv1.Pin{OwnerId: r.fields[repinOwner], PinId: r.fields[repinPin]}
	}
	encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(content) // what was read from good ids is UTF-8
	return &madePin{encoded: string(encoded), entry: entry{
		user: r.fields[owner], pin: r.fields[pin], board: r.fields[board], item: cmp.Or(r.fields[item], r.fields[pin]),
		attributes: string(attached), since: at,
	}}
}

// pins makes the lists of the pins of every owner and board in the file.
func (x *expectation) pins(ctx context.Context, o CompareOptions) error {
	made := map[[2]string]*madePin{}
	err := eachRecord(ctx, o, func(r *record, at events.Micros) {
		m := pinOf(r, at)
		if k := [2]string{m.user, m.pin}; made[k] == nil || m.before(made[k]) {
			made[k] = m
		}
	})
	users := map[string]struct{}{}
	for _, m := range made {
		b := boardID{m.user, m.board}
		if users[m.user] = struct{}{}; x.lists[listKey{boardPins, b}] == nil {
			x.boards = append(x.boards, b)
		}
		for _, k := range []listKey{{userPins, boardID{owner: m.user}}, {boardPins, b}} {
			x.lists[k] = append(x.lists[k], m.entry)
		}
	}
	x.sort(users)
	return err
}
