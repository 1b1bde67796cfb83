package disk

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections"
)

// TestGenerationsFileKeepsItsFormat pins the content of the file, because later versions must read
// it.
func TestGenerationsFileKeepsItsFormat(t *testing.T) {
	want, err := os.ReadFile("testdata/generations.golden")
	if err != nil {
		t.Fatal(err)
	}

	fs := vfs.NewMem()
	g := Generations{Version: 1, Live: 12, Previous: 11}
	if err := WriteGenerations(fs, "", g); err != nil {
		t.Fatal(err)
	}

	got, err := ReadFile(fs, GenerationsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got the file\n%s\nwant\n%s", got, want)
	}
	if read, found, err := ReadGenerations(fs, ""); err != nil || !found || read != g {
		t.Errorf("got %+v, found %v, error %v, want %+v", read, found, err, g)
	}
}

// TestImpossibleGenerationsAreReported checks that a file that is damaged, or of a later program,
// is an error.
func TestImpossibleGenerationsAreReported(t *testing.T) {
	for text, corrupt := range map[string]bool{
		"":                                  true,
		"{":                                 true,
		`{"version":1}`:                     true,
		`{"version":1,"live":1,"former":1}`: true,
		`{"version":1,"live":-1}`:           true,
		`{"version":2,"live":1}`:            false, // of a later program
	} {
		fs := vfs.NewMem()
		if err := WriteFile(fs, GenerationsFile, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if g, _, err := ReadGenerations(fs, ""); err == nil || errors.Is(err, projections.ErrCorrupt) != corrupt {
			t.Errorf("file %q: got %+v, error %v, want corrupt: %v", text, g, err, corrupt)
		}
	}
}

// TestHighestGenerationIsLiveWithoutFile checks that the highest generation is live if there is no
// file, as in releases that did not have the file.
func TestHighestGenerationIsLiveWithoutFile(t *testing.T) {
	fs := vfs.NewMem()
	for _, test := range []struct {
		make string
		live uint32
	}{{"x", 1}, {"000001", 1}, {"000003", 3}, {"000002", 3}, {"12", 3}, {"shadow-000009", 3}, {"1000000", 1_000_000}} {
		if err := fs.MkdirAll("p/"+test.make, 0o755); err != nil {
			t.Fatal(err)
		}
		g, found, err := ReadGenerations(fs, "p")
		if err != nil || found || g != (Generations{Live: test.live}) {
			t.Errorf("with directory %s: got %+v, found %v, error %v, want live %d without a file", test.make, g, found, err, test.live)
		}
	}
}

// TestRemoveStaleKeepsGenerationsInUse checks that RemoveStale removes other generations than the
// live and the previous one and, if it is told to, temporary directories. It keeps what its caller
// keeps.
func TestRemoveStaleKeepsGenerationsInUse(t *testing.T) {
	fs := vfs.NewMem()
	for _, name := range []string{"000001", "000002", "000003", "000004", "shadow-000003", "other"} {
		if err := fs.MkdirAll("p/"+name+"/below", 0o755); err != nil {
			t.Fatal(err)
		}
	}

	g := Generations{Live: 3, Previous: 2}
	isFourth := func(dir string) bool { return fs.PathBase(dir) == "000004" }
	if removed, err := RemoveStale(fs, "p", g, false, isFourth); err != nil || !slices.Equal(removed, []string{"000001"}) {
		t.Errorf("got removed %v, error %v, want generation 1", removed, err)
	}
	want := []string{"000004", "shadow-000003"}
	if removed, err := RemoveStale(fs, "p", g, true, nil); err != nil || !slices.Equal(removed, want) {
		t.Errorf("got removed %v, error %v, want %v", removed, err, want)
	}
	if removed, err := RemoveStale(fs, "none", g, true, nil); err != nil || len(removed) > 0 {
		t.Errorf("a directory that does not exist: got removed %v, error %v, want nothing", removed, err)
	}

	left, _ := fs.List("p")
	slices.Sort(left)
	if want := "000002 000003 other"; strings.Join(left, " ") != want {
		t.Errorf("got the directories %v, want %s", left, want)
	}
}

// TestGenerationsSurvivePowerCut checks that a power cut at any write leaves the old or the new
// file, and the new one once the call has returned.
func TestGenerationsSurvivePowerCut(t *testing.T) {
	disk := vfs.NewCrashableMem()
	if err := disk.MkdirAll("p", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := SyncDir(disk, ""); err != nil {
		t.Fatal(err)
	}
	var allowed []Generations
	cuts := 0
	random := rand.New(rand.NewPCG(1, 2))

	// checkCut reads the file as a power cut at this moment would leave it.
	checkCut := func(unsynced int) {
		t.Helper()
		cuts++
		g, found, err := ReadGenerations(disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: random}), "p")
		g.Version = 0
		if err != nil || !slices.Contains(allowed, g) || found != (g.Live != 1) {
			t.Errorf("cut %d: got %+v, found %v, error %v, want one of %+v", cuts, g, found, err, allowed)
		}
	}
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			checkCut(0)
			checkCut(100)
		}
		return nil
	}))

	last := Generations{Live: 1}
	for n := uint32(2); n < 6; n++ {
		next := Generations{Live: n, Previous: n - 1}
		allowed = []Generations{last, next}
		if err := WriteGenerations(fs, "p", next); err != nil {
			t.Fatal(err)
		}
		allowed = []Generations{next}
		checkCut(0)
		last = next
	}
	if cuts < 20 {
		t.Errorf("got %d cuts, want at least 20", cuts)
	}
}
