package workload

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
)

func TestAOFHasOneTransactionPerFollow(t *testing.T) {
	g := NewGraph(100, 300, 1)
	path := filepath.Join(t.TempDir(), programs.AOFName)
	if err := WriteAOF(g, path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	first := g.Edges[0]
	wantPrefix := "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n" +
		string(programs.AppendFollow(nil, UserID(first.Follower), UserID(first.Followee), "1700000000000000"))
	if !strings.HasPrefix(string(data), wantPrefix) {
		t.Errorf("beginning of the file: got %.200q, want %q", data, wantPrefix)
	}
	if got := bytes.Count(data, []byte("EXEC")); got != 300 {
		t.Errorf("transactions: got %d, want 300", got)
	}
}
