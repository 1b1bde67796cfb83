package pinstore

import "github.com/skein-feed/skein/projections"

// Describe describes the row of a pin for people. The pin is the last id of the key.
func Describe(d *projections.Description, row []byte) error {
	p, err := Decode(row, d.ID)
	if err != nil {
		return err
	}
	d.Flag("history-closed", p.HistoryClosed)
	if p.History != nil {
		d.Section("history")
		p.History.describe(d)
	}
	if p.Edit != nil {
		d.Section("edited")
		d.Time("at", p.Edit.At)
		d.Bytes("attributes", p.Edit.Attributes)
	}
	for i := range p.Live {
		f := &p.Live[i]
		switch f.Kind {
		case FactCreated:
			d.Section("created")
			f.Creation.describe(d)
		case FactMoved:
			d.Section("moved")
			d.Time("at", f.At)
			d.Name("b", f.Board)
		case FactBoardDeleted:
			d.Section("board-deleted")
			d.Time("at", f.At)
			d.Name("b", f.Board)
		}
	}
	return nil
}

func (c *Creation) describe(d *projections.Description) {
	d.Time("at", c.Time)
	d.Name("b", c.Board)
	d.Field("i", c.Item)
	d.Flag("repin", c.Repin)
	if c.RepinOwner != "" {
		d.Field("repin-of-user", c.RepinOwner)
	}
	if c.RepinPin != "" {
		d.Field("repin-of", c.RepinPin)
	}
	if len(c.Attributes) > 0 {
		d.Bytes("attributes", c.Attributes)
	}
}
