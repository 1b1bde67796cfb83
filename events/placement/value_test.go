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

// checkGolden compares a value that nodes write with its golden file. If the value changed, nodes
// of two versions in one cluster would no longer agree.
func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatalf("%v; got\n%s", err, got)
	}
	if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestMemberValueFormat checks that the value of a member has the golden format and is decoded
// unchanged, except for the time at which it was seen.
func TestMemberValueFormat(t *testing.T) {
	want := memberValue{V: 1, Instance: "RUN", Member: Member{
		Name: "node-1", Addr: "10.0.0.1:7411", Zone: "a", Weight: 2, LastSeen: time.Now(),
		Announcement: Announcement{State: "serving", PartitionChange: "copying", Position: "1-17"},
	}}
	for p := range uint8(10) {
		want.Serves.Add(7 * p)
	}

	data, err := encodeValue(want)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "member.json", data)

	want.LastSeen = time.Time{}
	if got, err := decodeMember("node.node-1", data); err != nil || got != want {
		t.Errorf("decoded member: got %+v and error %v, want %+v", got, err, want)
	}
	if _, err := decodeMember("node.node-2", data); err == nil {
		t.Error("member under the key of another node: got no error, want one")
	}
}

// TestTableValueFormat checks that the value of a table has the golden format and is decoded
// unchanged.
func TestTableValueFormat(t *testing.T) {
	want := Place([]Member{{Name: "a", Weight: 1, Zone: "x"}, {Name: "b", Weight: 1, Zone: "x"}, {Name: "c", Weight: 2, Zone: "y"}}, 2)
	want.Revision = 17
	data, err := encodeTable(&want)
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "table.json", data)

	got, err := decodeTable(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded table (-want +got):\n%s", diff)
	}
}

// TestLeaseValueFormat checks that the value of a lease has the golden format.
func TestLeaseValueFormat(t *testing.T) {
	data, err := encodeValue(leaseValue{V: 1, Holder: "RUN", Name: "node-1", Counter: 17})
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "controller.json", data)
}

// TestMalformedValuesAreRejected checks that malformed values are rejected, and values of another
// version with ErrVersion.
func TestMalformedValuesAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		value          string
		isOtherVersion bool
	}{
		"empty":                   {``, false},
		"no version":              {`{}`, true},
		"version 2":               {`{"v":2}`, true},
		"nothing but the version": {`{"v":1}`, false},
		"version as text":         {`{"v":"1"}`, false},
		"address without a port":  {`{"v":1,"name":"a","addr":"a"}`, false},
		"truncated partitions":    {`{"v":1,"name":"a","addr":"a:1","serves":"00"}`, false},
		"numbers instead of text": {`{"v":1,"name":7,"nodes":7}`, false},
		"table of one partition":  {`{"v":1,"nodes":[["a"]]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, memberErr := decodeMember("node.a", []byte(test.value))
			_, tableErr := decodeTable([]byte(test.value))
			for decoded, err := range map[string]error{"member": memberErr, "table": tableErr} {
				if err == nil {
					t.Errorf("%s of %q: got no error, want one", decoded, test.value)
				}
				if got := errors.Is(err, ErrVersion); got != test.isOtherVersion {
					t.Errorf("%s of %q: got error %v, want %v: %v", decoded, test.value, err, ErrVersion, test.isOtherVersion)
				}
			}
		})
	}
}
