package events

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPartitionsSurviveEncoding: a set has what was added, and is the same again when its text is read.
func TestPartitionsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set, again Partitions
		in := map[uint8]bool{}
		for _, p := range rapid.SliceOf(rapid.Uint8()).Draw(t, "partitions") {
			set.Add(p)
			in[p] = true
		}
		for p := range NumPartitions {
			if set.Has(uint8(p)) != in[uint8(p)] {
				t.Fatalf("%d is in it: %v", p, set.Has(uint8(p)))
			}
		}
		text, err := json.Marshal(set)
		if err == nil {
			err = json.Unmarshal(text, &again)
		}
		if err != nil || again != set || set.Len() != len(in) {
			t.Fatalf("%s: %s, %v", text, &again, err)
		}
	})
	var ann, some, all Partitions
	ann.AddHome("ann")
	for _, p := range []uint8{0, 3, 4, 255} {
		some.Add(p)
	}
	if want := "98" + strings.Repeat("0", 61) + "1"; some.String() != want {
		t.Errorf("%s, want %s", &some, want)
	}
	if !ann.Has(ShardOf("ann").Partition()) || ann.Len() != 1 || some.Meets(&ann) || !some.Meets(&some) {
		t.Errorf("%s has a partition in common with %s", &ann, &some)
	}
	if all.AddAll(); all != AllPartitions() || all.Len() != NumPartitions {
		t.Errorf("all are %s", &all)
	}
	for _, text := range []string{"", "00", some.String() + "00", "x" + some.String()[1:]} {
		if parsed, err := ParsePartitions(text); err == nil {
			t.Errorf("%q: %s", text, &parsed)
		}
	}
}
