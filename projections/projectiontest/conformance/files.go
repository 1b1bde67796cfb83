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

// FilesWith returns the files below the directory that have an id in them, as text or as keys have it. A store that is open may
// remove files meanwhile.
func FilesWith(t testing.TB, dir, id string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		var data []byte
		if err == nil && !d.IsDir() {
			data, err = os.ReadFile(name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if has(data, id) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// With reports whether a row has an id in it.
func (rows Rows) With(id string) bool {
	return slices.ContainsFunc(rows, func(row Row) bool { return has(row.Key, id) || has(row.Value, id) })
}

func has(data []byte, id string) bool {
	return bytes.Contains(data, []byte(id)) || bytes.Contains(data, bytes.TrimRight(events.AppendID(nil, id)[1:], "\x00"))
}
