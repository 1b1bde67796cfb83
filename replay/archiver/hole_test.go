package archiver

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// If a file of the stream is damaged in a part that is archived, the log can still be read
// completely, event ids are still known, and stores continue where they are.
func TestDamagedStreamFileIsReadFromArchive(t *testing.T) {
	w := openLog(t, t.TempDir(), nil)
	w.publish(20, 0)
	w.publishFollow("harmed", "once")
	w.publish(20, 0)
	w.archiveUpTo(30)
	originalEvents := w.readEvents(41)
	originalCursors := w.cursors(41)
	w.stop()

	w.damageMessage("harmed")
	w = openLog(t, w.dir, nil)
	defer func() { w.stop() }()

	for _, seq := range []uint64{0, 20, 21, 30, 36, 41} {
		if err := w.log.CheckCursor(t.Context(), originalCursors[seq]); err != nil {
			t.Errorf("cursor of a store at sequence %d: got %v, expected that it is accepted", seq, err)
		}
	}
	if diff := cmp.Diff(originalEvents, w.readEvents(41)); diff != "" {
		t.Errorf("the log differs after the damage (-before +after):\n%s", diff)
	}

	// The archive keeps no checksums. Envelopes after its end still come from the stream.
	cursors := w.cursors(41)
	if cursors[21].Checksum != 0 {
		t.Errorf("cursor of the damaged message: got checksum %x, expected none, because it is read from the archive", cursors[21].Checksum)
	}
	if diff := cmp.Diff(originalCursors[31:], cursors[31:]); diff != "" {
		t.Errorf("cursors after the end of the archive differ after the damage (-before +after):\n%s", diff)
	}

	w.publishFollow("harmed", "once")
	if got := w.readEvents(42)[41]; len(got.Events) > 0 || got.Repeats != 1 {
		t.Errorf("after the event id was published again: got %+v, expected no event and 1 repeat", got)
	}
}

// damageMessage damages the stored message that contains the text. The log must be closed.
func (w *testLog) damageMessage(text string) {
	w.t.Helper()
	blocks, err := filepath.Glob(filepath.Join(w.logDir(), "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil {
		w.t.Fatal(err)
	}

	isDamaged := false
	for _, name := range blocks {
		data, err := os.ReadFile(name)
		if err != nil {
			w.t.Fatal(err)
		}

		i := bytes.Index(data, []byte(text))
		if i < 0 {
			continue
		}
		data[i] ^= 0x55
		if err := os.WriteFile(name, data, 0o600); err != nil {
			w.t.Fatal(err)
		}
		isDamaged = true
	}

	if !isDamaged {
		w.t.Fatalf("found %q in none of the files %v of the stream", text, blocks)
	}
}
