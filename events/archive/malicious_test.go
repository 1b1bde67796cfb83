package archive

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/skein-feed/skein/events/bucket"
)

// forgeManifest changes the manifest of an archive and gives it a valid checksum.
func forgeManifest(t *testing.T, b *memoryBucket, change func(*manifestJSON)) {
	t.Helper()
	var j manifestJSON
	if err := json.Unmarshal(b.objects[ManifestName], &j); err != nil {
		t.Fatal(err)
	}
	change(&j)
	data, err := marshalManifest(&j)
	if err != nil {
		t.Fatal(err)
	}
	b.objects[ManifestName] = data
}

// TestMaliciousManifestIsReportedAsDamage checks that a malicious manifest with a valid checksum is
// reported as damage, before any object that it names is opened.
func TestMaliciousManifestIsReportedAsDamage(t *testing.T) {
	for name, change := range map[string]func(*manifestJSON){
		"path traversal":           func(j *manifestJSON) { j.Segments[0].Name = objectPrefix + "../../secret" },
		"an absolute path":         func(j *manifestJSON) { j.Segments[0].Name = "/etc/passwd" },
		"a snapshot's manifest":    func(j *manifestJSON) { j.Segments[0].Name = "snapshots/one/graph.json" },
		"the manifest itself":      func(j *manifestJSON) { j.Segments[0].Name = ManifestName },
		"a segment twice":          func(j *manifestJSON) { j.Segments = append(j.Segments[:1:1], j.Segments...) },
		"one object twice":         func(j *manifestJSON) { j.Segments[1].Name = j.Segments[0].Name },
		"event ids that are facts": func(j *manifestJSON) { j.Recent = []recentJSON{{j.Segments[0].objectJSON, 1}} },
		"ids of elsewhere":         func(j *manifestJSON) { j.Repeats = &objectJSON{Name: "snapshots/one/graph.json"} },
		"a negative size":          func(j *manifestJSON) { j.Segments[0].Bytes = -1 },
		"a size of nothing":        func(j *manifestJSON) { j.Segments[0].Bytes = 0 },
		"the largest size":         func(j *manifestJSON) { j.Segments[0].Bytes = math.MaxInt64 },
		"a range without an end":   func(j *manifestJSON) { j.Segments[1].Last = math.MaxUint64 },
		"a range that runs back":   func(j *manifestJSON) { j.Segments[0].First, j.Segments[0].Last = 2, 1 },
		"more events than it has":  func(j *manifestJSON) { j.Segments[0].Events = math.MaxUint64 },
	} {
		t.Run(name, func(t *testing.T) {
			b := writeArchive(t, newEnvelopeOfEveryKind())
			forgeManifest(t, b, change)
			a, err := Open(t.Context(), b, testLog)
			if err == nil {
				err = a.Check(t.Context(), nil)
			}
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, bucket.ErrName) {
				t.Errorf("open and check: got error %v, want %v or %v", err, ErrDamaged, bucket.ErrName)
			}
		})
	}
}

// TestArchiveBombsTakeLittleMemory checks that data that decompresses to far more than its size is
// rejected before it takes much memory.
func TestArchiveBombsTakeLittleMemory(t *testing.T) {
	zeros := make([]byte, maxChunk+1)
	bomb := compressor().EncodeAll(zeros, nil)
	newChunk := func(claimedSize int) []byte {
		b := binary.AppendUvarint(nil, uint64(claimedSize))
		return append(binary.AppendUvarint(b, uint64(len(bomb))), bomb...)
	}

	for name, data := range map[string][]byte{
		"more than it claims":      newChunk(100),
		"more than the limit":      newChunk(maxChunk + 1),
		"claims exactly the limit": newChunk(maxChunk),
	} {
		t.Run(name, func(t *testing.T) {
			allocated := measureAllocation(func() {
				c := &columnReader{rest: data, decompressBudget: maxBlockBytes}
				if got := c.readChunk(); got != nil || !c.failed {
					t.Errorf("chunk: got %d bytes, want it rejected", len(got))
				}
			})
			if allocated > 2*maxChunk {
				t.Errorf("allocated bytes for a chunk of %d: got %d, want at most %d", len(data), allocated, 2*maxChunk)
			}
		})
	}

	// Many valid chunks together exceed the limit of a block.
	good := appendChunk(nil, zeros[:maxChunk])
	c := &columnReader{rest: bytes.Repeat(good, 100), decompressBudget: maxBlockBytes}
	chunks := 0
	allocated := measureAllocation(func() {
		for !c.failed {
			if c.readChunk() != nil {
				chunks++
			}
		}
	})
	if chunks != maxBlockBytes/maxChunk {
		t.Errorf("chunks of a block: got %d, want %d", chunks, maxBlockBytes/maxChunk)
	}
	if allocated > 2*maxBlockBytes {
		t.Errorf("allocated bytes for a block: got %d, want at most %d", allocated, 2*maxBlockBytes)
	}
}

// measureAllocation returns how many bytes a function allocates.
func measureAllocation(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
