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
	read := func(data []byte) error {
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
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		if err := read(whole[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut at %d: got %v, expected ErrDamaged", i, err)
		}
		other := bytes.Clone(whole)
		other[i] ^= 1 << (i % 8)
		if err := read(other); !errors.Is(err, ErrDamaged) {
			t.Errorf("another bit at %d: got %v, expected ErrDamaged", i, err)
		}
	}
}

// Whatever fits into memory, the sorter returns every record once and in order.
func TestSorterReturnsEveryRecordOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := &Sorter{Dir: t.TempDir(), MaxRecords: 20}
	want := map[string]bool{}
	for range 3000 { // 150 files: they are merged in between
		record := fmt.Sprint("record ", rng.IntN(1000))
		want[record] = true
		if err := s.Add([]byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if len(s.Files) >= maxFiles {
		t.Errorf("%d files, expected fewer than %d", len(s.Files), maxFiles)
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
	if !slices.IsSortedFunc(got, bytes.Compare) || len(got) != len(want) {
		t.Errorf("%d records, expected %d in order", len(got), len(want))
	}
	for _, record := range got {
		if !want[string(record)] {
			t.Errorf("%q was never added", record)
		}
	}
}

// TestTooLongRecordIsRefused demands that a record which a Reader would take for damage is not
// written.
func TestTooLongRecordIsRefused(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "records"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Discard()
	if err := w.Add(make([]byte, maxRecordBytes)); err != nil {
		t.Errorf("the longest record: %v", err)
	}
	if err := w.Add(bytes.Repeat([]byte{1}, maxRecordBytes+1)); !errors.Is(err, errTooLong) {
		t.Errorf("a longer record: got the error %v, expected %v", err, errTooLong)
	}
}
