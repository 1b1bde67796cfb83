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

// RowForm says how the rows with a tag are read by people.
type RowForm struct {
	// Name is the kind of row.
	Name string
	// Parts are what the key has after the tag, as the table in keys.go of the projection names it: ^since, ^created (a
	// time, newest first), since (a time, oldest first), ^seq (a sequence, highest first), hash (16 bytes), part (the
	// partition of the id that follows, one byte); any other name is an id, and the first id is the one whose shard the key
	// begins with.
	Parts string
	// Remote: the key begins with the first shard of the partition of its second id, as [AppendPartition] has it.
	Remote bool
	// Dated: a month, counted from January 1970, stands before the tag, where others have the shard, which stands after it.
	Dated bool
	// Value describes the value; nil means there is none.
	Value func(d *Description, row []byte) error
	// Special reads parts that no other projection has.
	Special map[string]func(d *Description) error
	// Rest, if not nil, takes the place of Value. It also reads what the key has after the parts.
	Rest func(d *Description, rest, row []byte) error
	// Store: the rows are the store's, whose shard their keys begin with, unless they have an id.
	Store bool
}

// Description is one row in words: its kind, and named fields in the order in which key and value have them.
type Description struct {
	// Kind is the name of the form.
	Kind string
	// Shard is that of the first id of the key, or that of the store.
	Shard events.Shard
	// About is the first id of the key; empty means it has none. ID is the last.
	About, ID string

	rest   []byte
	fields []Field
	// keyed is how many of the fields are of the key; -1 means all so far.
	keyFieldCount int
	// under stands before the names of the fields that follow.
	namePrefix string
	idCount    int
	// home is one more than the partition that the next id must be of; 0 means any.
	nextIDPartition int
}

// Field is a named part of a row.
type Field struct {
	// Name is unique among the fields of a row.
	Name string
	// Value is a string, int64, uint64, bool, [events.Micros] or []byte.
	Value any
	// text is the field as people read it.
	text string
}

// NewDescription begins the description of a row whose fields the caller adds: those of the key, until [Description.InValue], then those of
// the value.
func NewDescription(kind string, shard events.Shard) *Description {
	return &Description{Kind: kind, Shard: shard, keyFieldCount: -1}
}

// Key returns the fields of the key.
func (d *Description) Key() []Field {
	if d.keyFieldCount < 0 {
		return d.fields
	}
	return d.fields[:d.keyFieldCount]
}

// Value returns the fields of the value.
func (d *Description) Value() []Field {
	if d.keyFieldCount < 0 {
		return nil
	}
	return d.fields[d.keyFieldCount:]
}

// String returns the row in one line.
func (d *Description) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%04x %s", uint16(d.Shard), d.Kind)
	for i := range d.fields {
		out.WriteString(d.fields[i].text)
	}
	return out.String()
}

// RowKinds returns the names of forms, sorted.
func RowKinds(forms ...map[Tag]RowForm) (kinds []string) {
	for _, of := range forms {
		for _, form := range of {
			kinds = append(kinds, form.Name)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// Text returns a description in one line, or the error.
func Text(d *Description, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return d.String(), nil
}

// DescribeForm describes a row of a projection with these forms. It returns [ErrCorrupt] for a row that no fold can have
// written: of no form, cut, or under the shard of another id.
func DescribeForm(forms map[Tag]RowForm, key, value []byte) (*Description, error) {
	d, err := describeRow(forms, key, value)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return d, err
}

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

// describeKey reads the parts of a key.
func (d *Description) readKey(form *RowForm) error {
	if form.Dated {
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
		of := events.ShardOf(d.ID)
		foreign := i == 0 && part != "hash" && d.Shard != of
		if form.Remote {
			foreign = d.idCount == 2 && d.Shard != events.Shard(of.Partition())<<5
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

// part cuts one part of a key.
func (d *Description) readKeyPart(name string, special map[string]func(*Description) error) (err error) {
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

// InValue says that the fields of the value follow. It is called by the Rest of a form.
func (d *Description) InValue() { d.keyFieldCount = len(d.fields) }

// Cut takes the next n bytes of the key.
func (d *Description) Cut(n int) ([]byte, error) {
	if len(d.rest) < n {
		return nil, ErrCorrupt
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b, nil
}

// Add adds a field, with the text that people read. A name that the row has already gets a number.
func (d *Description) Add(name string, value any, text string) {
	d.fields = append(d.fields, Field{Name: d.uniqueName(d.namePrefix + name), Value: value, text: text})
}

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

// Field says name=value.
func (d *Description) Field(name, value string) { d.Add(name, value, " "+name+"="+value) }

// Quoted says name="value", of text that may hold spaces.
func (d *Description) Quoted(name, value string) {
	d.Add(name, value, fmt.Sprintf(" %s=%q", name, value))
}

// Bytes says what may be no text.
func (d *Description) Bytes(name string, value []byte) {
	d.Add(name, value, fmt.Sprintf(" %s=%q", name, value))
}

// Int says a number.
func (d *Description) Int(name string, n int64) { d.Add(name, n, fmt.Sprintf(" %s=%d", name, n)) }

// Uint says a number.
func (d *Description) Uint(name string, n uint64) { d.Add(name, n, fmt.Sprintf(" %s=%d", name, n)) }

// Name says an id; the empty one is that of a default board.
func (d *Description) Name(field, id string) {
	text := id
	if id == "" {
		text = `""`
	}
	d.Add(field, id, " "+field+"="+text)
}

// Time says a time.
func (d *Description) Time(name string, t events.Micros) {
	d.Add(name, t, " "+name+"="+t.Time().Format("2006-01-02T15:04:05.000000Z"))
}

// Flag says a name, if it is set.
func (d *Description) Flag(name string, set bool) {
	if set {
		d.Add(name, true, " "+name)
	}
}

// Section begins a group of fields, which have their names under that of the group. A group that comes again has a number.
func (d *Description) Section(name string) {
	d.namePrefix = ""
	d.Add(name, true, " "+name+":")
	d.namePrefix = d.fields[len(d.fields)-1].Name + "."
}

// Entry begins the next of a list of groups of fields, from 1. It says nothing by itself.
func (d *Description) Entry(list string, n int) { d.namePrefix = list + "." + strconv.Itoa(n) + "." }
