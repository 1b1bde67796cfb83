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
	first := string(programs.AppendFollow(nil, UserID(g.Edges[0].Follower), UserID(g.Edges[0].Followee), "1700000000000000"))
	if want := "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n" + first; !strings.HasPrefix(string(data), want) {
		t.Errorf("%.200s", data)
	}
	if n := bytes.Count(data, []byte("EXEC")); n != 300 {
		t.Errorf("%d transactions", n)
	}
}
