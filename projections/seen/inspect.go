package seen

import (
	"maps"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// RowKinds returns the names of the kinds of rows that [DescribeRow] describes.
func RowKinds() []string { return projections.RowKinds(rowForms) }

// DescribeRow describes a row of the store for people, see [projections.DescribeForm].
func DescribeRow(key, value []byte) (*projections.Description, error) {
	return projections.DescribeForm(rowForms, key, value)
}

//nolint:gochecknoglobals // a table that never changes
var rowForms = withHiddenItems(map[projections.Tag]projections.RowForm{
	tagPlays:      {Name: "plays", Parts: "A", MonthKeyed: true, Value: describeFingerprints},
	tagSealed:     {Name: "sealed", Parts: "A", MonthKeyed: true, Value: describeSealed},
	tagServed:     {Name: "served", Parts: "A", Value: describeServed},
	tagClosedUser: {Name: "closed", Parts: "hash", Value: describeClosedUser},
	tagPlan:       {Name: "plan", Value: describePlan},
	tagTick:       {Name: "tick", Value: describeTick},
})

// withHiddenItems adds the rows of package hiddenitems.
func withHiddenItems(forms map[projections.Tag]projections.RowForm) map[projections.Tag]projections.RowForm {
	maps.Copy(forms, hiddenItems.Forms())
	return forms
}

func describeClosedUser(d *projections.Description, row []byte) error {
	if len(row) != 1 || row[0] != closedByClearing && row[0] != closedByDeletion {
		return projections.RowError("closed user", row)
	}
	d.Flag("deleted", row[0] == closedByDeletion)
	return nil
}

func describeFingerprints(d *projections.Description, row []byte) error {
	fingerprints, err := decodeFingerprints(nil, row)
	if err == nil {
		d.Int("fingerprints", int64(len(fingerprints)))
		d.Int("bytes", int64(len(row)))
	}
	return err
}

func describeSealed(d *projections.Description, row []byte) error {
	b, err := decodeBloom(row)
	if err == nil {
		d.Int("bloom", int64(b.n))
		d.Int("hashes", int64(b.k))
		d.Int("bytes", int64(len(row)))
	}
	return err
}

func describeServed(d *projections.Description, row []byte) error {
	serves, err := decodeServes(nil, row)
	if err != nil {
		return err
	}
	for i, s := range serves {
		item, _, err := events.CutID(s.item)
		if err != nil {
			return err
		}
		order := "live"
		if s.stamp&liveStampBit == 0 {
			order = "backfilled"
		}
		d.Entry("serve", i+1)
		d.Name(order, item)
		d.Time("at", events.Micros(s.stamp&^liveStampBit))
	}
	return nil
}

func describePlan(d *projections.Description, row []byte) error {
	p, err := decodePlan(row)
	if err != nil {
		return err
	}
	for i, m := range p {
		d.Entry("month", i+1)
		d.Field("month", m.month.String())
		if m.late > 0 {
			d.Time("late", events.Micros(m.late*tickLength))
		}
	}
	return nil
}

func describeTick(d *projections.Description, row []byte) error {
	tick, err := decodeTick(row)
	if err == nil {
		d.Time("visited-until", events.Micros(tick*tickLength))
	}
	return err
}
