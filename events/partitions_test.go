package events

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPartitionsSurviveEncoding checks that a set has exactly the partitions that were added, and
// that parsing its text gives the same set.
func TestPartitionsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set, again Partitions
		added := map[uint8]bool{}
		for _, p := range rapid.SliceOf(rapid.Uint8()).Draw(t, "partitions") {
			set.Add(p)
			added[p] = true
		}

		for p := range NumPartitions {
			if set.Has(uint8(p)) != added[uint8(p)] {
				t.Fatalf("Has(%d): got %v, want %v", p, set.Has(uint8(p)), added[uint8(p)])
			}
		}

		text, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &again); err != nil || again != set {
			t.Fatalf("set after encoding as %s: got %s and error %v, want %s", text, &again, err, &set)
		}
		if got := set.Len(); got != len(added) {
			t.Fatalf("partitions of the set: got %d, want %d", got, len(added))
		}
	})

	var some Partitions
	for _, p := range []uint8{0, 3, 4, 255} {
		some.Add(p)
	}
	if want := "98" + strings.Repeat("0", 61) + "1"; some.String() != want {
		t.Errorf("text: got %s, want %s", &some, want)
	}

	// The home of a user is in one partition.
	var ann Partitions
	ann.AddHome("ann")
	if !ann.Has(ShardOf("ann").Partition()) || ann.Len() != 1 {
		t.Errorf("home of ann: got %s, want only partition %d", &ann, ShardOf("ann").Partition())
	}
	if some.Intersects(&ann) {
		t.Errorf("intersection of %s and %s: got one, want none", &some, &ann)
	}
	if !some.Intersects(&some) {
		t.Errorf("intersection of %s with itself: got none, want one", &some)
	}

	var all Partitions
	all.AddAll()
	if all != AllPartitions() || all.Len() != NumPartitions {
		t.Errorf("all partitions: got %s, want %d", &all, NumPartitions)
	}

	for _, text := range []string{"", "00", some.String() + "00", "x" + some.String()[1:]} {
		if parsed, err := ParsePartitions(text); err == nil {
			t.Errorf("ParsePartitions(%q): got %s, want an error", text, &parsed)
		}
	}
}
