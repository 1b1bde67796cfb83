package projections

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/events"
)

// RowForm says how the rows with a tag are described to people.
type RowForm struct {
	// Name is the name of this kind of row.
	Name string
	// Parts lists the parts of the key after the tag, separated by spaces, with the names of the
	// table in keys.go of the projection:
	//
	//	^since, ^created, ^until  a time, newest first
	//	since             a time, oldest first
	//	^seq              a sequence, highest first
	//	hash              16 bytes
	//	part              the partition of the id that follows, 1 byte
	//
	// Every other name is an id. The key begins with the shard of the first id.
	Parts string
	// Remote is set if the key begins with the first shard of the partition of its second id (see
	// [AppendPartition]).
	Remote bool
	// MonthKeyed is set if the key has a month before the tag, counted from January 1970, and the
	// shard after the tag.
	MonthKeyed bool
	// Value adds the fields of the value to the description. nil means that the value is empty.
	Value func(d *Description, row []byte) error
	// Special maps the names of parts that only this projection has to functions that read them.
	Special map[string]func(d *Description) error
	// Rest, if not nil, is called instead of Value. It also reads the bytes of the key that follow
	// the parts.
	Rest func(d *Description, rest, row []byte) error
	// Store is set if the rows belong to the store as a whole. A key without an id then begins with
	// [StoreShard].
	Store bool
}

// Description describes one row to people: its kind, and named fields in the order of key and
// value.
type Description struct {
	// Kind is the name of the kind of row.
	Kind string
	// Shard is the shard of the first id of the key, or StoreShard.
	Shard events.Shard
	// About is the first id of the key, and ID the last one. Both are empty if the key has no id.
	About, ID string

	// rest is the part of the key that is not read yet.
	rest   []byte
	fields []Field
	// keyFieldCount is the number of fields that belong to the key. It is -1 until InValue is
	// called.
	keyFieldCount int
	// namePrefix is put before the names of the fields that follow.
	namePrefix string
	idCount    int
	// nextIDPartition is one more than the partition that the next id must belong to. 0 means any
	// partition.
	nextIDPartition int
}

// Field is a named part of a row.
type Field struct {
	// Name is unique among the fields of a row.
	Name string
	// Value is a string, int64, uint64, bool, [events.Micros] or []byte.
	Value any
	// text is the form of the field in [Description.String], with a leading separator.
	text string
}

// NewDescription begins the description of a row whose fields the caller adds: those of the key,
// until [Description.InValue], then those of the value.
func NewDescription(kind string, shard events.Shard) *Description {
	return &Description{Kind: kind, Shard: shard, keyFieldCount: -1}
}

// Key returns the fields that were read from the key.
func (d *Description) Key() []Field {
	if d.keyFieldCount < 0 {
		return d.fields
	}
	return d.fields[:d.keyFieldCount]
}

// Value returns the fields that were read from the value.
func (d *Description) Value() []Field {
	if d.keyFieldCount < 0 {
		return nil
	}
	return d.fields[d.keyFieldCount:]
}

// String returns the description in one line: shard, kind, and the fields.
func (d *Description) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%04x %s", uint16(d.Shard), d.Kind)
	for i := range d.fields {
		out.WriteString(d.fields[i].text)
	}
	return out.String()
}

// RowKinds returns the names of all forms, sorted and without repeats.
func RowKinds(forms ...map[Tag]RowForm) (kinds []string) {
	for _, formsByTag := range forms {
		for _, form := range formsByTag {
			kinds = append(kinds, form.Name)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Text returns the description in one line, or the error if err is not nil. It takes the results of
// a function such as [DescribeForm].
func Text(d *Description, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return d.String(), nil
}

// DescribeForm describes a row of a projection that has these forms. It returns [ErrCorrupt] for a
// row that no fold can have written, because it has an unknown tag, is truncated, or is in the
// shard of another id.
func DescribeForm(forms map[Tag]RowForm, key, value []byte) (*Description, error) {
	d, err := describeRow(forms, key, value)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return d, err
}

// describeRow implements [DescribeForm]. Its errors need not wrap [ErrCorrupt].
func describeRow(forms map[Tag]RowForm, key, value []byte) (*Description, error) {
	if len(key) < PrefixLen {
		return nil, RowError("key", key)
	}

	form, ok := forms[Tag(key[2])]
	if !ok {
		return nil, RowError("key without a tag of the projection", key)
	}
	d := &Description{Kind: form.Name, Shard: events.Shard(binary.BigEndian.Uint16(key)), rest: key[PrefixLen:], keyFieldCount: -1}
	if err := d.readKey(&form); err != nil {
		return nil, fmt.Errorf("%w: %s key %x", err, form.Name, key)
	}

	if form.Rest != nil {
		if err := form.Rest(d, d.rest, value); err != nil {
			return nil, err
		}
		return d, nil
	}

	d.InValue()
	if len(d.rest) != 0 {
		return nil, RowError(form.Name+" key", key)
	}
	if form.Value == nil && len(value) != 0 {
		return nil, RowError(form.Name, value)
	}
	if form.Value != nil {
		if err := form.Value(d, value); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// readKey reads the parts of a key that follow the tag, and checks the shard of the key.
func (d *Description) readKey(form *RowForm) error {
	if form.MonthKeyed {
		month := int(d.Shard)
		b, err := d.Cut(2)
		if err != nil {
			return err
		}
		d.Shard = events.Shard(binary.BigEndian.Uint16(b))
		d.Field("month", fmt.Sprintf("%04d-%02d", 1970+month/12, month%12+1))
	}

	parts := strings.Fields(form.Parts)
	for i, part := range parts {
		if err := d.readKeyPart(part, form.Special); err != nil {
			return ErrCorrupt
		}

		// Most keys are in the shard of their first id. A hash has no shard to compare with.
		idShard := events.ShardOf(d.ID)
		foreign := i == 0 && part != "hash" && d.Shard != idShard
		if form.Remote {
			foreign = d.idCount == 2 && d.Shard != FirstShard(idShard.Partition())
		}
		if foreign {
			return fmt.Errorf("%w: in a foreign shard", ErrCorrupt)
		}
	}
	if form.Store && d.idCount == 0 && d.Shard != StoreShard {
		return fmt.Errorf("%w: in a foreign shard", ErrCorrupt)
	}
	return nil
}

// readKeyPart reads one part of a key and adds a field for it.
func (d *Description) readKeyPart(name string, special map[string]func(*Description) error) (err error) {
	switch name {
	case "^since", "^created", "^until":
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
			d.Uint("seq", ^binary.BigEndian.Uint64(b))
		}
		return err
	case "part":
		b, err := d.Cut(1)
		if err == nil {
			d.nextIDPartition = int(b[0]) + 1
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
	if d.ID, d.rest, err = events.CutID(d.rest); err != nil {
		return err
	}
	if d.nextIDPartition > 0 && d.nextIDPartition != int(events.ShardOf(d.ID).Partition())+1 {
		return ErrCorrupt
	}
	d.nextIDPartition = 0
	if d.idCount++; d.idCount == 1 {
		d.About = d.ID
	}
	d.Name(name, d.ID)
	return nil
}

// InValue ends the fields of the key: all fields that are added later belong to the value. A
// function in [RowForm.Rest] calls it.
func (d *Description) InValue() { d.keyFieldCount = len(d.fields) }

// Cut returns the next n bytes of the key and advances behind them. It returns [ErrCorrupt] if
// fewer are left.
func (d *Description) Cut(n int) ([]byte, error) {
	if len(d.rest) < n {
		return nil, ErrCorrupt
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b, nil
}

// Add adds a field. text is its form in [Description.String]. If the row has a field of this name
// already, Add appends a number to the name.
func (d *Description) Add(name string, value any, text string) {
	d.fields = append(d.fields, Field{Name: d.uniqueName(d.namePrefix + name), Value: value, text: text})
}

// uniqueName returns the name, or the name with the lowest number that makes it unique among the
// fields so far.
func (d *Description) uniqueName(name string) string {
	taken := func(name string) bool {
		return slices.ContainsFunc(d.fields, func(f Field) bool { return f.Name == name })
	}
	if !taken(name) {
		return name
	}
	for n := 2; ; n++ {
		if other := name + "." + strconv.Itoa(n); !taken(other) {
			return other
		}
	}
}

// Field adds a text field, in the form name=value.
func (d *Description) Field(name, value string) { d.Add(name, value, " "+name+"="+value) }

// Quoted adds a text field that may contain spaces, in the form name="value".
func (d *Description) Quoted(name, value string) {
	d.Add(name, value, fmt.Sprintf(" %s=%q", name, value))
}

// Bytes adds a field of bytes that may not be valid text, in quoted form.
func (d *Description) Bytes(name string, value []byte) {
	d.Add(name, value, fmt.Sprintf(" %s=%q", name, value))
}

// Int adds a signed number.
func (d *Description) Int(name string, n int64) { d.Add(name, n, fmt.Sprintf(" %s=%d", name, n)) }

// Uint adds an unsigned number.
func (d *Description) Uint(name string, n uint64) { d.Add(name, n, fmt.Sprintf(" %s=%d", name, n)) }

// Name adds an id. The empty id, which is that of the default board, appears as "".
func (d *Description) Name(field, id string) {
	text := id
	if id == "" {
		text = `""`
	}
	d.Add(field, id, " "+field+"="+text)
}

// Time adds a time, in UTC with microseconds.
func (d *Description) Time(name string, t events.Micros) {
	d.Add(name, t, " "+name+"="+t.Time().Format("2006-01-02T15:04:05.000000Z"))
}

// Flag adds a field that consists of its name alone, if set is true.
func (d *Description) Flag(name string, set bool) {
	if set {
		d.Add(name, true, " "+name)
	}
}

// Section begins a group of fields. The names of the fields that follow get the name of the group
// as a prefix. If the row has the group already, the group gets a number.
func (d *Description) Section(name string) {
	d.namePrefix = ""
	d.Add(name, true, " "+name+":")
	d.namePrefix = d.fields[len(d.fields)-1].Name + "."
}

// Entry begins the n-th group of fields of a list, counted from 1. The names of the fields that
// follow get the prefix list.n. Entry itself adds no field.
func (d *Description) Entry(list string, n int) { d.namePrefix = list + "." + strconv.Itoa(n) + "." }
