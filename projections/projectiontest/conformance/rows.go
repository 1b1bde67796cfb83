package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// Row is a key and its value.
type Row struct{ Key, Value []byte }

// Rows has all rows of a store, or some of them, in the order of their keys.
type Rows []Row

// RowsOf flushes a store and returns all of its rows, including those of the runtime.
func RowsOf(t testing.TB, s *store.Store) Rows {
	t.Helper()
	rows, err := FlushedRows(s)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// FlushedRows is [RowsOf] for callers that must not end the test, for example in a goroutine of the
// storage engine. It fails with [projections.ErrNotReady] if the store is in the middle of an
// envelope.
func FlushedRows(s *store.Store) (Rows, error) {
	if err := s.Flush(); err != nil {
		return nil, err
	}
	return readRows(s)
}

// readRows returns all rows that views of a store show.
func readRows(s *store.Store) (rows Rows, err error) {
	v, err := s.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	it := v.Iter(nil, nil)
	for it.Next() {
		rows = append(rows, Row{bytes.Clone(it.Key()), bytes.Clone(it.Value())})
	}
	return rows, it.Close()
}

// Own returns the rows of the projection, without those of the runtime.
func (rows Rows) Own() (own Rows) {
	for _, row := range rows {
		if projections.Tag(row.Key[2]) > projections.LastRuntimeTag {
			own = append(own, row)
		}
	}
	return own
}

// String returns one line per row: the key and the value in hexadecimal digits.
func (rows Rows) String() string {
	var sb strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&sb, "%x = %x\n", row.Key, row.Value)
	}
	return sb.String()
}

// Diff describes how the rows differ from want, up to ten rows. It returns an empty string if they
// are equal.
func (rows Rows) Diff(want Rows) string {
	var diff []string
	for len(rows) > 0 || len(want) > 0 {
		// order is negative if only rows has the next key, positive if only want has it, and 0 if
		// both have it.
		var order int
		switch {
		case len(rows) == 0:
			order = 1
		case len(want) == 0:
			order = -1
		default:
			order = bytes.Compare(rows[0].Key, want[0].Key)
		}

		switch {
		case order < 0:
			diff = append(diff, fmt.Sprintf("unwanted: %x = %x", rows[0].Key, rows[0].Value))
		case order > 0:
			diff = append(diff, fmt.Sprintf("missing:  %x = %x", want[0].Key, want[0].Value))
		case !bytes.Equal(rows[0].Value, want[0].Value):
			diff = append(diff, fmt.Sprintf("differs:  %x = %x\n  want: %x", rows[0].Key, rows[0].Value, want[0].Value))
		}
		if order <= 0 {
			rows = rows[1:]
		}
		if order >= 0 {
			want = want[1:]
		}
	}
	if len(diff) > 10 {
		diff = append(diff[:10], fmt.Sprintf("and %d more", len(diff)-10))
	}
	return strings.Join(diff, "\n")
}

// MustEqual fails the test if the rows differ from want. format and args say what was tested.
func (rows Rows) MustEqual(t testing.TB, want Rows, format string, args ...any) {
	t.Helper()
	if diff := rows.Diff(want); diff != "" {
		t.Fatalf("%s:\n%s", fmt.Sprintf(format, args...), diff)
	}
}

// CheckKeys fails the test if a key of the projection has a tag outside of its range, or a wrong
// shard. The shard must be that of the id that follows. There are exceptions: keys of dated rows
// have the shard behind the tag, keys of a whole partition have its first shard, and keys of the
// store as a whole have the shard of the store.
func CheckKeys(t testing.TB, c Case, rows Rows) {
	t.Helper()
	own := 0
	for _, row := range rows {
		key := row.Key
		if len(key) < 3 {
			t.Fatalf("key %x has no shard and tag, want both", key)
		}

		shard, tag := events.Shard(binary.BigEndian.Uint16(key)), projections.Tag(key[2])
		if tag <= projections.LastRuntimeTag {
			if shard != projections.StoreShard {
				t.Errorf("key %x: got shard %d for a row of the runtime, want the shard of the store", key, shard)
			}
			continue
		}

		own++
		tags := c.Tags
		if embedded, ok := tagRanges[tags.Embeds]; ok && !tags.has(tag) {
			tags = embedded
		}
		if !tags.has(tag) {
			t.Errorf("key %x: got tag %#x, want one from %#x to %#x", key, tag, c.Tags.First, c.Tags.Last)
		}
		if shard == projections.StoreShard || slices.Contains(tags.Hashed, tag) {
			continue
		}

		rest := key[3:]
		if slices.Contains(tags.MonthKeyed, tag) && len(rest) >= 2 {
			shard = events.Shard(binary.BigEndian.Uint16(rest))
			rest = rest[2:]
		}
		id, rest, err := events.CutID(rest)
		if err == nil && slices.Contains(tags.Remote, tag) {
			shard, err = remoteShard(shard, &id, rest)
		}
		if err != nil {
			t.Errorf("key %x: want an id after shard and tag: %v", key, err)
		} else if want := events.ShardOf(id); shard != want {
			t.Errorf("key %x: shard %d, but %q is of shard %d", key, shard, id, want)
		}
	}
	if own == 0 {
		t.Error("got no rows from the histories, want some")
	}
}

// remoteShard checks the key of a row of a whole partition, in which the id of the home follows
// another id. rest is what follows the first id. It sets id to the id of the home. If shard is the
// first shard of the home's partition, it returns the shard of the home, so that CheckKeys finds it
// correct.
func remoteShard(shard events.Shard, id *string, rest []byte) (events.Shard, error) {
	home, _, err := events.CutID(rest)
	if err != nil {
		return shard, err
	}
	*id = home
	homeShard := events.ShardOf(home)
	if shard == projections.FirstShard(homeShard.Partition()) {
		return homeShard, nil
	}
	return shard, nil
}

// UpdateGolden is the environment variable that makes tests write golden files anew.
const UpdateGolden = "SKEIN_UPDATE_GOLDEN"

// CheckGolden compares rows with a file. A difference means that the fold or the encoding of its
// rows has changed. Then the version of the projection must be raised, because existing stores
// would be read incorrectly.
func CheckGolden(t testing.TB, file string, rows Rows) {
	t.Helper()
	if os.Getenv(UpdateGolden) != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(rows.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}

	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with %s=1", err, UpdateGolden)
	}

	want := strings.Split(string(golden), "\n")
	for i, line := range strings.Split(rows.String(), "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("line %d differs from %s:\n%s\nRaise the version of the projection, then write the file anew with %s=1.",
				i+1, file, line, UpdateGolden)
		}
	}
	if len(want) != len(rows)+1 { // the last line is empty
		t.Fatalf("got %d rows, want %d as in %s", len(rows), len(want)-1, file)
	}
}
