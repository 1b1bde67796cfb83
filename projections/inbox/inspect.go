package inbox

import (
	"encoding/binary"
	"maps"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/pinstore"
)

// RowKinds returns the names of the kinds of rows that [DescribeRow] describes.
func RowKinds() []string { return append(graph.RowKinds(), projections.RowKinds(rowForms)...) }

// DescribeRow describes a row of the store, also one of the embedded graph, for people. It returns
// [projections.ErrCorrupt] for a row that the inbox cannot have written.
func DescribeRow(key, value []byte) (*projections.Description, error) {
	if len(key) >= 3 {
		if tag := projections.Tag(key[2]); tag >= projections.FirstGraphTag && tag <= projections.LastGraphTag {
			return graph.DescribeRow(key, value)
		}
	}
	return projections.DescribeForm(rowForms, key, value)
}

//nolint:gochecknoglobals // a table that never changes
var rowForms = withHiddenItems(map[projections.Tag]projections.RowForm{
	tagPin:           {Name: "pin", Parts: "B p", Value: pinstore.Describe},
	tagOutbox:        {Name: "outbox", Parts: "B ^created p", Value: describeBoard},
	tagBoardOutbox:   {Name: "board-outbox", Parts: "B b ^created p"},
	tagPossibleBoard: {Name: "possible-board", Parts: "B b p"},
	tagPinCount:      {Name: "pin-count", Parts: "B", Value: describeCount},
	tagBoardPinCount: {Name: "board-pin-count", Parts: "B b", Value: describeCount},
	tagBoardDeleted:  {Name: "board-deleted", Parts: "B b", Value: describeBoardDeletion},
	tagReadMarker:    {Name: "read", Parts: "A", Value: describeReadMarker},
	tagPull:          {Name: "pull", Parts: "A B", Rest: describePull},
	tagPulledOwner:   {Name: "pulled", Parts: "B in", Special: map[string]func(*projections.Description) error{"in": describePartition}},
	tagRepinOf:       {Name: "re-pin-of", Parts: "C part B p"},
})

// withHiddenItems adds the rows of package hiddenitems.
func withHiddenItems(forms map[projections.Tag]projections.RowForm) map[projections.Tag]projections.RowForm {
	maps.Copy(forms, hiddenItems.Forms())
	return forms
}

func describeBoard(d *projections.Description, row []byte) error {
	d.Name("b", string(row))
	return nil
}

func describeCount(d *projections.Description, row []byte) error {
	n, k := projections.Uvarint(row)
	if k != len(row) || n == 0 {
		return errRow("count", row)
	}
	d.Int("count", int64(n))
	return nil
}

func describeBoardDeletion(d *projections.Description, row []byte) error {
	if len(row) != 8 {
		return errRow("board deletion", row)
	}
	d.Time("first", events.Micros(binary.BigEndian.Uint64(row)))
	return nil
}

func describeReadMarker(d *projections.Description, row []byte) error {
	read, err := decodeReadMarker(row)
	d.Time("up-to", read)
	return err
}

func describePull(d *projections.Description, rest, row []byte) error {
	if len(rest) > 0 {
		board, tail, err := events.CutID(rest)
		if err != nil || len(tail) != 0 {
			return errRow("pull key", rest)
		}
		d.Name("b", board)
	}
	if len(row) != 0 {
		return errRow("pull", row)
	}
	return nil
}

func describePartition(d *projections.Description) error {
	b, err := d.Cut(1)
	if err == nil {
		d.Int("partition", int64(b[0]))
	}
	return err
}
