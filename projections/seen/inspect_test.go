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

// TestDescribeRowKnowsEveryRow describes every row that long histories make, and checks that every
// kind of row is among them.
func TestDescribeRowKnowsEveryRow(t *testing.T) {
	textByKind := map[string]string{}
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
				t.Errorf("describe %x = %x: %v", it.Key(), it.Value(), err)
				continue
			}
			textByKind[strings.Fields(text)[1]] = text
			checkNotDescribed(t, text, it.Key(), it.Value())
		}

		for _, err := range []error{it.Close(), v.Close(), s.Close()} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	for _, form := range rowForms {
		if textByKind[form.Name] == "" {
			t.Errorf("got no row of kind %s from any history, want at least one", form.Name)
		}
		t.Log(textByKind[form.Name])
	}
}

// checkNotDescribed checks that what is like a row, and is none, cannot be described: with a key that
// is cut, longer or in another shard, or with a value that is cut, longer or of another version.
func checkNotDescribed(t *testing.T, text string, key, value []byte) {
	t.Helper()
	checkCorrupt := func(what string, key, value []byte) {
		t.Helper()
		if got, err := projections.Text(DescribeRow(key, value)); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("%s with %s: got %q, error %v, want %v", text, what, got, err, projections.ErrCorrupt)
		}
	}

	if tag := projections.Tag(key[2]); tag != tagPlan && tag != tagTick {
		checkCorrupt("a cut key", key[:len(key)-1], value)
		other := bytes.Clone(key)
		if tag == tagPlays || tag == tagSealed {
			other[4] ^= 1
		} else {
			other[1] ^= 1
		}
		if tag != tagClosedUser {
			checkCorrupt("another shard", other, value)
		}
	}
	checkCorrupt("a longer key", append(bytes.Clone(key), 0), value)

	if len(value) == 0 {
		checkCorrupt("a value", key, []byte{0})
		return
	}
	checkCorrupt("no value", key, nil)
	checkCorrupt("a cut value", key, value[:len(value)-1])
	checkCorrupt("a longer value", key, append(bytes.Clone(value), 0))
	checkCorrupt("another version", key, append([]byte{9}, value[1:]...))
}

// TestDescribeRowReadsMonthOfKey checks that the key has the month in two bytes, before the tag.
func TestDescribeRowReadsMonthOfKey(t *testing.T) {
	key := monthKey(nil, 671, tagPlays, "ann")
	if binary.BigEndian.Uint16(key) != 671 {
		t.Fatalf("got the key %x, want month 671 in its first two bytes", key)
	}
	text, err := projections.Text(DescribeRow(key, appendFingerprint(nil, 5)))
	if err != nil {
		t.Fatal(err)
	}
	if want := " plays month=2025-12 A=ann fingerprints=1 bytes=8"; !strings.HasSuffix(text, want) {
		t.Errorf("got %q, want it to end with %q", text, want)
	}
}
