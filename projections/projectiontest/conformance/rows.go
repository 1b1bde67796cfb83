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

// Rows are all rows of a store in the order of their keys.
type Rows []Row

// RowsOf returns all rows of a store, those of the runtime too. It makes the store flush the rows in memory first.
func RowsOf(t testing.TB, s *store.Store) Rows {
	t.Helper()
	rows, err := FlushedRows(s)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// FlushedRows is [RowsOf] where a test must not end, as in a goroutine of the storage engine. Its error is
// [projections.ErrNotReady] if the store is in the middle of an envelope.
func FlushedRows(s *store.Store) (Rows, error) {
	if err := s.Flush(); err != nil {
		return nil, err
	}
	return rowsOf(s)
}

func rowsOf(s *store.Store) (rows Rows, err error) {
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

// Own returns the rows without those of the runtime.
func (rows Rows) Own() (own Rows) {
	for _, row := range rows {
		if projections.Tag(row.Key[2]) > projections.LastRuntimeTag {
			own = append(own, row)
		}
	}
	return own
}

// String returns a line for each row: the key and the value in hexadecimal digits.
func (rows Rows) String() string {
	var sb strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&sb, "%x = %x\n", row.Key, row.Value)
	}
	return sb.String()
}

// Diff describes where rows differ from what is wanted, at most ten rows; empty means nowhere.
func (rows Rows) Diff(want Rows) string {
	var diff []string
	for len(rows) > 0 || len(want) > 0 {
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
			diff = append(diff, fmt.Sprintf("too much: %x = %x", rows[0].Key, rows[0].Value))
		case order > 0:
			diff = append(diff, fmt.Sprintf("missing:  %x = %x", want[0].Key, want[0].Value))
		case !bytes.Equal(rows[0].Value, want[0].Value):
			diff = append(diff, fmt.Sprintf("is:       %x = %x\n  not: %x", rows[0].Key, rows[0].Value, want[0].Value))
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

// MustEqual fails the test if the rows are not those that are wanted.
func (rows Rows) MustEqual(t testing.TB, want Rows, format string, args ...any) {
	t.Helper()
	if diff := rows.Diff(want); diff != "" {
		t.Fatalf("%s:\n%s", fmt.Sprintf(format, args...), diff)
	}
}

// CheckKeys fails if a key of the projection has a tag that is not in its range, or does not stand under the shard of
// the first id in it, before or after the tag, or, of rows of a whole partition, that of the partition, or that of store-wide rows.
func CheckKeys(t testing.TB, c Case, rows Rows) {
	t.Helper()
	own := 0
	for _, row := range rows {
		key := row.Key
		if len(key) < 3 {
			t.Fatalf("key %x has no shard and tag", key)
		}
		shard, tag := events.Shard(binary.BigEndian.Uint16(key)), projections.Tag(key[2])
		if tag <= projections.LastRuntimeTag {
			if shard != projections.StoreShard {
				t.Errorf("key %x: the runtime's rows stand in the shard of the store", key)
			}
			continue
		}
		own++
		of := c.Tags
		if embedded, ok := tagRanges[of.Embeds]; ok && !of.has(tag) {
			of = embedded
		}
		if !of.has(tag) {
			t.Errorf("key %x: tag %#x is not in %#x–%#x", key, tag, c.Tags.First, c.Tags.Last)
		}
		if shard == projections.StoreShard || slices.Contains(of.Hashed, tag) {
			continue
		}
		rest := key[3:]
		if slices.Contains(of.Dated, tag) && len(rest) >= 2 {
			shard, rest = events.Shard(binary.BigEndian.Uint16(rest)), rest[2:]
		}
		id, rest, err := events.CutID(rest)
		if err == nil && slices.Contains(of.Remote, tag) {
			shard, err = remoteShard(shard, &id, rest)
		}
		if err != nil {
			t.Errorf("key %x: what follows shard and tag: %v", key, err)
		} else if want := events.ShardOf(id); shard != want {
			t.Errorf("key %x: shard %d, but %q is of shard %d", key, shard, id, want)
		}
	}
	if own == 0 {
		t.Error("the histories make no rows")
	}
}

// remoteShard replaces the remote id by that of the home, which follows it, and returns the home's shard if the row stands under the
// first shard of its partition.
func remoteShard(shard events.Shard, id *string, rest []byte) (events.Shard, error) {
	home, _, err := events.CutID(rest)
	if err != nil {
		return shard, err
	}
	*id = home
	if of := events.ShardOf(home); shard == events.Shard(of.Partition())<<5 {
		return of, nil
	}
	return shard, nil
}

// UpdateGolden is the environment variable that has golden files written anew.
const UpdateGolden = "SKEIN_UPDATE_GOLDEN"

// CheckGolden compares rows with a file. They differ only if the fold or the encoding of its rows changed: then the
// version of the projection must rise, or stores that exist would be read wrongly.
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
	if len(want) != len(rows)+1 {
		t.Fatalf("%d rows, %s has %d", len(rows), file, len(want)-1)
	}
}
