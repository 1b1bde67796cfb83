package disk

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
)

// TestPreparedGolden pins the content of the file, because later versions must read it.
func TestPreparedGolden(t *testing.T) {
	want, err := os.ReadFile("testdata/prepared.golden")
	if err != nil {
		t.Fatal(err)
	}
	fs := vfs.NewMem()
	p := Prepared{
		Version:     preparedVersion,
		Fingerprint: "0123456789abcdef0123456789abcdef",
		Log:         "00112233445566778899aabbccddeeff",
		Epoch:       3,
	}
	if err := WritePrepared(fs, "", p); err != nil {
		t.Fatal(err)
	}

	got, err := ReadFile(fs, preparedFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got the file\n%s\nwant\n%s", got, want)
	}
	if read, found, err := ReadPrepared(fs, ""); err != nil || !found || read != p {
		t.Errorf("got %+v, found %v, error %v, want %+v", read, found, err, p)
	}
}

// TestPreparedFileThatCannotBeRead checks that a file that is damaged, or of a later version, is
// found and is an error.
func TestPreparedFileThatCannotBeRead(t *testing.T) {
	for text, isCorrupt := range map[string]bool{"": true, "{": true, `{"version":2}`: false} {
		fs := vfs.NewMem()
		if err := WriteFile(fs, preparedFile, []byte(text)); err != nil {
			t.Fatal(err)
		}
		p, found, err := ReadPrepared(fs, "")
		if !found {
			t.Errorf("file %q: got found false, want true", text)
		}
		if err == nil || errors.Is(err, projections.ErrCorrupt) != isCorrupt {
			t.Errorf("file %q: got %+v, error %v, want an error, corrupt: %v", text, p, err, isCorrupt)
		}
	}
}
