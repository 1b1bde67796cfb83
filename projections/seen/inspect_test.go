package seen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestDescribeRowKnowsEveryRow describes every row that long histories make, and demands every kind
// of row among them.
func TestDescribeRowKnowsEveryRow(t *testing.T) {
	met := map[string]string{}
	for seed := range uint64(6) {
		s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: New(DefaultSettings())})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Fold(histories.Envelopes(histories.FixedPlays(seed, 400))); err != nil {
			t.Fatal(err)
		}
		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		it := v.Iter(nil, nil)
		for it.Next() {
			if projections.IsRuntimeKey(it.Key()) {
				continue
			}
			text, err := projections.Text(DescribeRow(it.Key(), it.Value()))
			if err != nil {
				t.Errorf("%x = %x: %v", it.Key(), it.Value(), err)
				continue
			}
			met[strings.Fields(text)[1]] = text
			mustRefuse(t, text, it.Key(), it.Value())
		}
		for _, err := range []error{it.Close(), v.Close(), s.Close()} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, form := range rowForms {
		if met[form.Name] == "" {
			t.Errorf("no history makes a row of kind %s", form.Name)
		}
		t.Log(met[form.Name])
	}
}

// mustRefuse describes what is like a row and is none: with a key that is cut or in another shard,
// or with a value that is cut, prolonged, or of another version.
func mustRefuse(t *testing.T, text string, key, value []byte) {
	t.Helper()
	refuse := func(what string, key, value []byte) {
		t.Helper()
		if got, err := projections.Text(DescribeRow(key, value)); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("%s: %s: %q, %v", text, what, got, err)
		}
	}
	if tag := projections.Tag(key[2]); tag != tagPlan && tag != tagTick {
		refuse("a cut key", key[:len(key)-1], value)
		other := bytes.Clone(key)
		if tag == tagPlays || tag == tagSealed {
			other[4] ^= 1
		} else {
			other[1] ^= 1
		}
		if tag != tagClosedUser {
			refuse("another shard", other, value)
		}
	}
	refuse("a longer key", append(bytes.Clone(key), 0), value)
	if len(value) == 0 {
		refuse("a value", key, []byte{0})
		return
	}
	refuse("no value", key, nil)
	refuse("a cut value", key, value[:len(value)-1])
	refuse("a longer value", key, append(bytes.Clone(value), 0))
	refuse("another version", key, append([]byte{9}, value[1:]...))
}

// TestDescribeRowReadsMonthOfKey: a month stands in the key in two bytes, before the tag.
func TestDescribeRowReadsMonthOfKey(t *testing.T) {
	key := monthKey(nil, 671, tagPlays, "ann")
	if binary.BigEndian.Uint16(key) != 671 {
		t.Fatalf("%x", key)
	}
	text, err := projections.Text(DescribeRow(key, appendFingerprint(nil, 5)))
	if want := " plays month=2025-12 A=ann fingerprints=1 bytes=8"; err != nil || !strings.HasSuffix(text, want) {
		t.Errorf("%q (%v), want %q", text, err, want)
	}
}
