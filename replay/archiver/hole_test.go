package archiver

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// If a file of the stream is damaged in a part that is archived, the log can still be read
// completely, event ids are still known, and stores continue where they are.
func TestDamagedStreamFileIsReadFromArchive(t *testing.T) {
	w := openLog(t, t.TempDir(), nil)
	w.publish(20, 0)
	w.publishFollow("harmed", "once")
	w.publish(20, 0)
	w.archiveUpTo(30)
	whole, at := w.readEvents(41), w.cursors(41)
	w.stop()
	w.damageMessage("harmed")
	w = openLog(t, w.dir, nil)
	defer func() { w.stop() }()
	for _, seq := range []uint64{0, 20, 21, 30, 36, 41} {
		if err := w.log.CheckCursor(t.Context(), at[seq]); err != nil {
			t.Errorf("a store at sequence %d: %v", seq, err)
		}
	}
	if got := w.readEvents(41); !reflect.DeepEqual(got, whole) {
		t.Errorf("the log is\n%+v, was\n%+v", got, whole)
	}
	if got := w.cursors(41); got[21].Checksum != 0 || !reflect.DeepEqual(got[31:], at[31:]) {
		t.Errorf("cursors are\n%+v, were\n%+v", got, at)
	}
	w.publishFollow("harmed", "once")
	if got := w.readEvents(42)[41]; len(got.Events) > 0 || got.Repeats != 1 {
		t.Errorf("published again: %+v", got)
	}
}

// damageMessage damages the stored message that contains the text. The log must be closed.
func (w *testLog) damageMessage(text string) {
	w.t.Helper()
	blocks, err := filepath.Glob(filepath.Join(w.logDir(), "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil {
		w.t.Fatal(err)
	}
	done := false
	for _, name := range blocks {
		data, err := os.ReadFile(name)
		if err != nil {
			w.t.Fatal(err)
		}
		if i := bytes.Index(data, []byte(text)); i >= 0 {
			data[i] ^= 0x55
			if err := os.WriteFile(name, data, 0o600); err != nil {
				w.t.Fatal(err)
			}
			done = true
		}
	}
	if !done {
		w.t.Fatalf("no file of the stream holds %q", text)
	}
}
