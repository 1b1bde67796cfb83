package protoscan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

// sampleMessage returns a message with a number in field 1, a text in field 2 and a message with a
// number in field 2000, whose tag has two bytes.
func sampleMessage() []byte {
	inner := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 300)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "héllo")
	return protowire.AppendBytes(protowire.AppendTag(b, 2000, protowire.BytesType), inner)
}

func TestNextReturnsRangesOfValues(t *testing.T) {
	data := protowire.AppendFixed32(protowire.AppendTag(sampleMessage(), 3, protowire.Fixed32Type), 1)

	var got []Field
	for i := 0; i < len(data); {
		f, next := Next(data, i)
		if next < 0 {
			t.Fatalf("Next at offset %d: the field is malformed, expected a field", i)
		}
		got = append(got, f)
		i = next
	}

	want := []Field{
		{Number: 1, Type: protowire.VarintType, From: 1, To: 3},
		{Number: 2, Type: protowire.BytesType, From: 5, To: 11},
		{Number: 2000, Type: protowire.BytesType, From: 14, To: 16},
		{Number: 3, Type: protowire.Fixed32Type, From: 17, To: 21},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// TestMalformedBytesAreRefused: neither a truncated message nor an overlong length is read beyond
// its end.
func TestMalformedBytesAreRefused(t *testing.T) {
	whole := sampleMessage()
	ends := map[int]bool{0: true, 3: true, 11: true, len(whole): true} // where a field ends
	for n := range len(whole) + 1 {
		data := whole[:n]
		i := 0
		for i >= 0 && i < n {
			_, i = Next(data, i)
		}
		if isWhole := i >= 0; isWhole != ends[n] {
			t.Errorf("the first %d bytes: well formed is %v, expected %v", n, isWhole, ends[n])
		}
	}

	tests := map[string][]byte{
		"length beyond the end": {0x12, 0x05, 'a'},
		"field 0":               {0x02, 0x01, 'a'},
		"endless number":        {0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"tag without value":     {0x08},
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			if _, next := Next(data, 0); next >= 0 {
				t.Errorf("Next returned offset %d, expected a negative one", next)
			}

			c := NewCursor(data)
			if tag := c.Tag(); tag&7 == uint32(protowire.VarintType) {
				c.Varint()
			} else {
				c.Message(tag)
			}
			if c.OK() {
				t.Error("the cursor is OK, expected it to fail")
			}
		})
	}
}

func TestCursorReadsWhatLibrariesWrite(t *testing.T) {
	type message struct {
		Number, Inner uint64
		Text          string
	}
	var got message
	c := NewCursor(sampleMessage())
	if n := c.Count(TagOf(2, protowire.BytesType)); n != 1 {
		t.Errorf("Count of field 2 is %d, expected 1", n)
	}
	for c.More() {
		switch tag := c.Tag(); tag {
		case TagOf(1, protowire.VarintType):
			got.Number = c.Varint()
		case TagOf(2, protowire.BytesType):
			got.Text = c.Text(tag)
		case TagOf(2000, protowire.BytesType):
			inner := c.Message(tag)
			inner.Tag()
			got.Inner = inner.Varint()
		}
	}
	if !c.OK() {
		t.Fatal("the cursor failed, expected it to read the whole message")
	}
	if diff := cmp.Diff(message{Number: 300, Inner: 7, Text: "héllo"}, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestTextMustBeUTF8(t *testing.T) {
	data := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "\xff")
	c := NewCursor(data)
	if text := c.Text(c.Tag()); c.OK() {
		t.Errorf("Text returned %q, expected the cursor to fail", text)
	}
}
