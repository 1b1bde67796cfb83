package notifications

import (
	"encoding/hex"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// RowKinds returns the names of the kinds of rows that [DescribeRow] describes.
func RowKinds() []string { return projections.RowKinds(rowForms) }

// DescribeRow describes a row of notifications for people. It returns [projections.ErrCorrupt] for
// a row that notifications cannot have written.
func DescribeRow(key, value []byte) (*projections.Description, error) {
	return projections.DescribeForm(rowForms, key, value)
}

var rowForms = map[projections.Tag]projections.RowForm{
	tagFact:         {Name: "fact", Parts: "A B", Remote: true, Rest: describeFact},
	tagEntry:        {Name: "notification", Parts: "B", Rest: describeEntry},
	tagEnded:        {Name: "ended-fact", Parts: "B", Rest: describeEnded},
	tagState:        {Name: "user", Parts: "B", Value: describeState},
	tagGroupMarkers: {Name: "group-markers", Parts: "B", Value: describeGroupMarkers},
	tagTombstone:    {Name: "tombstone", Store: true, Rest: describeTombstone},
}

// describeKind adds the kind of a notification.
func describeKind(d *projections.Description, kind Kind) {
	name := map[Kind]string{Reacted: "reacted", Repinned: "repinned"}[kind]
	d.Field("k", name)
}

// describeID adds the parts of a fact that follow the recipient and the kind.
func describeID(d *projections.Description, id *factID, withActor bool) {
	d.Name("p", id.pin)
	if withActor {
		d.Name("A", id.actor)
	}
	if id.kind == Repinned {
		d.Name("q", id.repin)
		return
	}
	d.Name("i", id.item)
	d.Field("reaction", events.ReactionName(id.reaction))
}

func describeFact(d *projections.Description, rest, value []byte) error {
	kind, rest, err := cutKind(rest)
	if err != nil {
		return err
	}
	id := factID{kind: kind}
	if id.pin, rest, err = events.CutID(rest); err != nil {
		return err
	}
	if err := id.cutDetail(rest); err != nil {
		return err
	}
	describeKind(d, kind)
	describeID(d, &id, false)

	d.InValue()
	f, err := decodeFact(value, kind)
	if f.backfillTime != 0 {
		d.Time("backfilled", f.backfillTime)
	}
	if f.liveTime != 0 {
		d.Time("live", f.liveTime)
	}
	d.Flag("ended", f.hasLiveEnd)
	return err
}

func describeEntry(d *projections.Description, rest, value []byte) error {
	kind, rest, err := cutKind(rest)
	if err != nil {
		return err
	}
	id, since, err := cutEntryKey(d.ID, kind, rest)
	if err != nil {
		return err
	}
	describeKind(d, kind)
	d.Time("since", since)
	describeID(d, &id, true)

	d.InValue()
	seq, encodedItem, err := splitEntryValue(value, kind)
	d.Uint("seq", seq)
	if err != nil || kind != Repinned {
		return err
	}
	item, _, err := events.CutID(encodedItem)
	d.Name("i", item)
	return err
}

func describeEnded(d *projections.Description, rest, value []byte) error {
	kind, rest, err := cutKind(rest)
	if err != nil {
		return err
	}
	id, err := cutEndedKey(d.ID, kind, rest)
	if err != nil {
		return err
	}
	if len(value) != 0 {
		return projections.RowError("end of a fact", value)
	}
	describeKind(d, kind)
	describeID(d, &id, true)
	d.InValue()
	return nil
}

func describeState(d *projections.Description, row []byte) error {
	s, err := decodeState(row)
	if err != nil || len(row) == 0 {
		return projections.RowError("state of a user", row)
	}
	d.Int("reacted", s.reacted)
	d.Int("repinned", s.repinned)
	if s.seen != 0 {
		d.Time("seen", s.seen)
	}
	if s.read != 0 {
		d.Time("read", s.read)
	}
	return nil
}

func describeGroupMarkers(d *projections.Description, row []byte) error {
	markers, err := decodeGroupMarkers(row)
	if err == nil && len(markers) == 0 {
		err = projections.RowError("markers of groups", row)
	}
	for i, m := range markers {
		d.Entry("groups", i+1)
		d.Field("group", m.group)
		d.Time("read", m.time)
	}
	return err
}

func describeTombstone(d *projections.Description, rest, value []byte) error {
	if len(rest) != 16 || len(value) != 0 {
		return projections.RowError("tombstone", rest)
	}
	d.Field("hash", hex.EncodeToString(rest))
	return nil
}
