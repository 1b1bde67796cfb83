package redis

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay/internal/recordfile"
)

var update = flag.Bool("update", false, "write the golden files")

// someFacts returns facts of all kinds, in the order of their records.
func someFacts() []fact {
	return []fact{
		{kind: events.UserFollowed, user: "ann", peer: "bob", at: 5},
		{kind: events.UserFollowed, user: "ann", peer: "bob", at: 1_600_000_000_000_000},
		{kind: events.UserFollowed, user: "ann", peer: "bob", at: timeless},
		{kind: events.UserFollowed, user: "ann", peer: "bobby", at: 1},
		{kind: events.BoardFollowed, user: "ann", peer: "bob", board: "", at: 7},
		{kind: events.BoardFollowed, user: "ann", peer: "bob", board: "b", at: 6},
		{kind: events.BoardCreated, user: "bob", board: "b", at: timeless, text: "B\x00é"},
		{kind: events.PinCreated, user: "bob", board: "b", pin: "p", item: "i", at: 0, text: "\xff\x00"},
		{kind: events.UserBlocked, user: "ann", peer: "dan", at: timeless},
		{kind: events.UserMuted, user: "ann", peer: "dan", at: 1},
		{kind: events.Reacted, user: "ann", item: "i", at: 1},
		{kind: events.Played, user: "ann", item: "i", at: 1},
		{kind: events.Served, user: "ann", item: "i", at: 1},
	}
}

var someReject = reject{rule: 3, key: "k\xff", element: "", reason: "no id"}

// someRecords returns the records of someFacts and someReject.
func someRecords() (list [][]byte) {
	for _, f := range someFacts() {
		list = append(list, f.appendTo(nil))
	}
	return append(list, someReject.appendTo(nil))
}

func mustReadAll(t *testing.T, from recordfile.Records) (list [][]byte) {
	t.Helper()
	for {
		record, err := from.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, bytes.Clone(record))
	}
}

func mustWriteRecords(t *testing.T, path string, list [][]byte) {
	t.Helper()
	w, err := recordfile.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range list {
		if err := w.Add(record); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// The bytes of the files are a format: a later version of skein must be able to read them when it
// continues an import.
func TestRecordEncodingIsStable(t *testing.T) {
	records := someRecords()
	if !slices.IsSortedFunc(records, bytes.Compare) {
		t.Errorf("got the records %q, expected that they are in the order of their facts", records)
	}

	const golden = "testdata/records.golden"
	path := filepath.Join(t.TempDir(), "records")
	mustWriteRecords(t, path, records)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the file differs from the golden file: got\n%q, want\n%q", got, want)
	}

	// Read the golden file.
	r, err := recordfile.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	list := mustReadAll(t, r)
	for i, f := range someFacts() {
		decoded, err := decodeFact(list[i])
		if err != nil {
			t.Errorf("decode the record of %v: got %v, want no error", &f, err)
		}
		if diff := cmp.Diff(f, decoded, cmp.AllowUnexported(fact{})); diff != "" {
			t.Errorf("fact %v from its record (-want +got):\n%s", &f, diff)
		}
	}
	if decoded, err := decodeReject(list[len(list)-1]); err != nil || decoded != someReject {
		t.Errorf("got the reject %+v and %v, want %+v", decoded, err, someReject)
	}
}

// A record that can be decoded is encoded to the same bytes again.
func FuzzDecodeFact(f *testing.F) {
	for _, record := range someRecords() {
		f.Add(record)
	}

	f.Fuzz(func(t *testing.T, record []byte) {
		if r, err := decodeReject(record); err == nil && len(r.appendTo(nil)) > len(record) {
			t.Errorf("the reject %q was decoded to %+v, whose record has more bytes, want at most as many", record, r)
		}

		decoded, err := decodeFact(record)
		if err != nil {
			return
		}
		if got := decoded.appendTo(nil); !bytes.Equal(got, record) {
			t.Errorf("the fact %q was decoded to %+v, whose record is %q, want the same bytes", record, decoded, got)
		}
		if strings.Contains(decoded.user, "\x00") {
			t.Errorf("the fact %q was decoded to the user %q, want no zero byte in it", record, decoded.user)
		}
	})
}
