package placement

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// golden is a value that nodes of this version write: when it changes, nodes of two versions in one cluster no longer agree.
func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatalf("%v; it would be\n%s", err, got)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestMemberValueFormat(t *testing.T) {
	want := memberValue{V: 1, Instance: "RUN", Member: Member{
		Name: "node-1", Addr: "10.0.0.1:7411", Zone: "a", Weight: 2, Position: "1-17", Seen: time.Now(),
	}}
	for p := range uint8(10) {
		want.Serves.Add(7 * p)
	}
	data, err := encode(want)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "member.json", data)
	want.Seen = time.Time{}
	if got, err := decodeMember("node.node-1", data); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := decodeMember("node.node-2", data); err == nil {
		t.Error("a node with the key of another")
	}
}

func TestTableValueFormat(t *testing.T) {
	want := Place([]Member{{Name: "a", Weight: 1, Zone: "x"}, {Name: "b", Weight: 1, Zone: "x"}, {Name: "c", Weight: 2, Zone: "y"}}, 2)
	want.Revision = 17
	data, err := encodeTable(&want)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "table.json", data)
	got, err := decodeTable(data)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestLeaseValueFormat(t *testing.T) {
	data, err := encode(leaseValue{V: 1, Holder: "RUN", Name: "node-1", Counter: 17})
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "controller.json", data)
}

func TestMalformedValuesAreRejected(t *testing.T) {
	for _, c := range []struct {
		value   string
		version bool
	}{
		{``, false},
		{`{}`, true},
		{`{"v":2}`, true},
		{`{"v":1}`, false},
		{`{"v":"1"}`, false},
		{`{"v":1,"name":"a","addr":"a"}`, false},
		{`{"v":1,"name":"a","addr":"a:1","serves":"00"}`, false},
		{`{"v":1,"name":7,"nodes":7}`, false},
		{`{"v":1,"nodes":[["a"]]}`, false},
	} {
		if _, err := decodeMember("node.a", []byte(c.value)); err == nil || errors.Is(err, ErrVersion) != c.version {
			t.Errorf("a member %q: %v", c.value, err)
		}
		if _, err := decodeTable([]byte(c.value)); err == nil || errors.Is(err, ErrVersion) != c.version {
			t.Errorf("a table %q: %v", c.value, err)
		}
	}
}
