package projections

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/skein-feed/skein/events"
)

// IsRuntimeKey tells whether a row belongs to the runtime and not to the projection.
func IsRuntimeKey(key []byte) bool { return len(key) >= 3 && Tag(key[2]) <= LastRuntimeTag }

// IsCheckpoint tells whether a row is that of the position: of all rows the only one in which two folds of one log up to one
// position may differ.
func IsCheckpoint(key []byte) bool { return bytes.Equal(key, checkpointKey) }

// DescribeKey tells people in one line what a row of the runtime says. It returns [ErrCorrupt] for a row that the
// runtime cannot have written. The rows of a projection are described by its own package, by [Describe].
func DescribeKey(key, value []byte) (string, error) {
	if !IsRuntimeKey(key) || events.Shard(binary.BigEndian.Uint16(key)) != StoreShard {
		return "", fmt.Errorf("%w: key %x", ErrCorrupt, key)
	}
	rest := key[3:]
	text, err := describeRuntime(Tag(key[2]), rest, value)
	return fmt.Sprintf("%04x %s", uint16(StoreShard), text), err
}

func describeRuntime(tag Tag, rest, value []byte) (string, error) {
	bad := fmt.Errorf("%w: runtime row %02x %x: %x", ErrCorrupt, byte(tag), rest, value)
	switch tag {
	case tagFormat:
		if len(value) == 4 {
			return fmt.Sprintf("format version=%d", binary.BigEndian.Uint32(value)), nil
		}
	case tagFingerprint:
		return fmt.Sprintf("fingerprint %s", value), nil
	case tagCheckpoint:
		c, p, err := parseCheckpoint(value)
		text := fmt.Sprintf("checkpoint log=%x epoch=%d seq=%d last-time=%s", c.Log, c.Epoch, c.Seq,
			c.LastTime.Time().Format("2006-01-02T15:04:05.000000Z"))
		if p != (progress{}) {
			text += fmt.Sprintf(" in-progress: seq=%d slot=%d step=%d", p.Seq, p.Slot, p.Step)
		}
		return text, err
	case tagBackfill:
		if len(rest) >= 2 && len(value) == 8 {
			return fmt.Sprintf("backfill kind=%v source=%s highest-offset=%d", events.Kind(rest[0]), rest[1:],
				binary.BigEndian.Uint64(value)), nil
		}
	case tagClosed:
		return fmt.Sprintf("backfill-closed source=%q", rest), nil
	case tagRejectCount:
		if len(value) == 8 {
			return fmt.Sprintf("rejects count=%d", binary.BigEndian.Uint64(value)), nil
		}
	case tagReject:
		r, err := parseReject(value)
		return fmt.Sprintf("reject number=%d seq=%d slot=%d: %s", r.Number, r.Seq, r.Slot, r.Rejection.Message), err
	}
	return "", bad
}

// RowForm says how the rows with a tag are read by people.
type RowForm struct {
	// Name is the kind of row.
	Name string
	// Parts are what the key has after the tag, as the table in keys.go of the projection names it: ^since, ^created (a
	// time, newest first), since (a time, oldest first), ^seq (a sequence, highest first), hash (16 bytes); any other name is
	// an id, and the first id is the one whose shard the key begins with.
	Parts string
	// Dated: a month (of 12 a year, from January 1970) stands before the tag, the shard after it.
	Dated bool
	// Value describes the value; nil: there is none.
	Value func(d *Description, row []byte) error
	// Special reads parts that no other projection has.
	Special map[string]func(d *Description) error
}

// Description is one row in words: the name of the form and fields.
type Description struct {
	// ID is the last id of the key.
	ID string

	out  strings.Builder
	rest []byte
}

// Describe tells what a row says, of a projection with these forms. It fails for a row that no fold can have written: of no
// form, cut, or under the shard of another id.
func Describe(forms map[Tag]RowForm, key, value []byte) (string, error) {
	if len(key) < 3 {
		return "", fmt.Errorf("%w: key %x", ErrCorrupt, key)
	}
	form, ok := forms[Tag(key[2])]
	if !ok {
		return "", fmt.Errorf("%w: key %x has no tag of the projection", ErrCorrupt, key)
	}
	shard := events.Shard(binary.BigEndian.Uint16(key))
	d := Description{rest: key[3:]}
	if month := int(shard); form.Dated {
		b, err := d.Cut(2)
		if err != nil {
			return "", fmt.Errorf("%w: %s key %x", ErrCorrupt, form.Name, key)
		}
		shard = events.Shard(binary.BigEndian.Uint16(b))
		fmt.Fprintf(&d.out, "%04x %s month=%04d-%02d", uint16(shard), form.Name, 1970+month/12, month%12+1)
	} else {
		fmt.Fprintf(&d.out, "%04x %s", uint16(shard), form.Name)
	}
	for i, part := range strings.Fields(form.Parts) {
		if err := d.part(part, form.Special); err != nil {
			return "", fmt.Errorf("%w: %s key %x", ErrCorrupt, form.Name, key)
		}
		if i == 0 && part != "hash" && shard != events.ShardOf(d.ID) {
			return "", fmt.Errorf("%w: %s in a foreign shard %x", ErrCorrupt, form.Name, key)
		}
	}
	if len(d.rest) != 0 || form.Value == nil && len(value) != 0 {
		return "", fmt.Errorf("%w: %s %x: %x", ErrCorrupt, form.Name, key, value)
	}
	if form.Value != nil {
		if err := form.Value(&d, value); err != nil {
			return "", err
		}
	}
	return d.out.String(), nil
}

// part cuts one part of a key.
func (d *Description) part(name string, special map[string]func(*Description) error) (err error) {
	switch name {
	case "^since", "^created":
		b, err := d.Cut(8)
		if err == nil {
			d.Time(name[1:], events.Micros(^binary.BigEndian.Uint64(b)))
		}
		return err
	case "since":
		b, err := d.Cut(8)
		if err == nil {
			d.Time(name, events.Micros(binary.BigEndian.Uint64(b)))
		}
		return err
	case "^seq":
		b, err := d.Cut(8)
		if err == nil {
			d.Field("seq", fmt.Sprint(^binary.BigEndian.Uint64(b)))
		}
		return err
	case "hash":
		b, err := d.Cut(16)
		if err == nil {
			d.Field(name, hex.EncodeToString(b))
		}
		return err
	}
	if read := special[name]; read != nil {
		return read(d)
	}
	if d.ID, d.rest, err = events.CutID(d.rest); err == nil {
		d.Name(name, d.ID)
	}
	return err
}

// Cut takes the next n bytes of the key.
func (d *Description) Cut(n int) ([]byte, error) {
	if len(d.rest) < n {
		return nil, ErrCorrupt
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b, nil
}

// Field writes name=value.
func (d *Description) Field(name, value string) { fmt.Fprintf(&d.out, " %s=%s", name, value) }

// Name writes an id; the empty one is that of a default board.
func (d *Description) Name(field, id string) {
	if id == "" {
		id = `""`
	}
	d.Field(field, id)
}

// Time writes a time.
func (d *Description) Time(name string, t events.Micros) {
	d.Field(name, t.Time().Format("2006-01-02T15:04:05.000000Z"))
}

// Flag writes a name, if it is set.
func (d *Description) Flag(name string, set bool) {
	if set {
		fmt.Fprintf(&d.out, " %s", name)
	}
}
