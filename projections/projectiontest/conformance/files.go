package conformance

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
)

// FilesWith returns the files below the directory that contain an id, as text or in the encoding of
// keys. A store that is open may remove files meanwhile.
func FilesWith(t testing.TB, dir, id string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		var data []byte
		if err == nil && !d.IsDir() {
			data, err = os.ReadFile(name)
		}
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		if containsID(data, id) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// With reports whether any row contains an id, as text or in the encoding of keys.
func (rows Rows) With(id string) bool {
	return slices.ContainsFunc(rows, func(row Row) bool { return containsID(row.Key, id) || containsID(row.Value, id) })
}

// containsID reports whether data contains an id as text or in the encoding of keys. It looks for
// the encoding without its tag and without zeros at its end.
func containsID(data []byte, id string) bool {
	encoded := bytes.TrimRight(events.AppendID(nil, id)[1:], "\x00")
	return bytes.Contains(data, []byte(id)) || bytes.Contains(data, encoded)
}
