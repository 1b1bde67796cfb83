package recordfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func mustWrite(t *testing.T, path string, records ...string) {
	t.Helper()
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		if err := w.Add([]byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func readAll(from Records) (list [][]byte, err error) {
	for {
		record, err := from.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, bytes.Clone(record))
	}
}

// A file that is cut anywhere, or has any bit flipped, is never accepted.
func TestDamagedFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	mustWrite(t, path, "ann\x00bob\x00", "ann\x00bobby\x00", "bob\x00\xff\x00and a text", "bob\x01")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	writeAndRead := func(data []byte) error {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = readAll(r)
		return err
	}
	if err := writeAndRead(whole); err != nil {
		t.Fatal(err)
	}

	for i := range whole {
		if err := writeAndRead(whole[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at %d: got %v, expected ErrDamaged", i, err)
		}
		flipped := bytes.Clone(whole)
		flipped[i] ^= 1 << (i % 8)
		if err := writeAndRead(flipped); !errors.Is(err, ErrDamaged) {
			t.Errorf("a flipped bit at %d: got %v, expected ErrDamaged", i, err)
		}
	}
}

// Whatever fits into memory, the sorter returns every record once and in order.
func TestSorterReturnsEveryRecordOnce(t *testing.T) {
	// Add so many records that the sorter would have 150 files, if it did not merge some in between.
	random := rand.New(rand.NewPCG(1, 2))
	s := &Sorter{Dir: t.TempDir(), MaxRecords: 20}
	want := map[string]bool{}
	for range 3000 {
		record := fmt.Sprint("record ", random.IntN(1000))
		want[record] = true
		if err := s.Add([]byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(s.Files) >= maxFiles {
		t.Errorf("got %d files, expected fewer than %d", len(s.Files), maxFiles)
	}

	m, err := s.Merge()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	got, err := readAll(m)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("got %d records, expected %d", len(got), len(want))
	}
	if !slices.IsSortedFunc(got, bytes.Compare) {
		t.Errorf("got the records %q, expected them in order", got)
	}
	for _, record := range got {
		if !want[string(record)] {
			t.Errorf("got the record %q, which was never added", record)
		}
	}
}

// TestTooLongRecordIsRefused checks that the writer refuses a record that a Reader would take for
// damage.
func TestTooLongRecordIsRefused(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "records"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Discard()
	if err := w.Add(make([]byte, maxRecordBytes)); err != nil {
		t.Errorf("the longest record: got the error %v, expected none", err)
	}
	if err := w.Add(bytes.Repeat([]byte{1}, maxRecordBytes+1)); !errors.Is(err, errTooLong) {
		t.Errorf("a longer record: got the error %v, expected %v", err, errTooLong)
	}
}
