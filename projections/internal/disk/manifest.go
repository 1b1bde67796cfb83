package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/projections"
)

// A manifest of Pebble is a list of records. Each record is an edit of the set of tables, and is
// synced before the next is written. The file consists of blocks of 32 KiB, and a block of chunks:
// checksum (4 bytes), length (2), type (1), payload. A record is either one full chunk, or a first
// chunk, any number of middle chunks and a last chunk.
//
// Pebble stops reading at the first incomplete record, and ignores what follows. That is right if a
// power cut has torn the record, because then nothing follows. But if a manifest is damaged before
// its end, Pebble opens it as an older state of the store. Even worse, the first record names the
// tables, and only the second record has the highest sequence number in them. Without the second
// record, Pebble does not show the rows in the tables, and takes new rows for older than those.
const (
	manifestBlock  = 32 << 10 // bytes
	manifestHeader = 7        // bytes
	fullChunk      = 1
	firstChunk     = 2
	lastChunk      = 4
)

// CheckManifest returns [projections.ErrCorrupt] if the manifest of a store is damaged in a way
// that a power cut cannot cause: a complete record follows a damaged one, or the second record is
// missing.
func CheckManifest(fs FS, dir string) error {
	desc, err := pebble.Peek(dir, fs)
	if err != nil || !desc.Exists {
		return nil //nolint:nilerr // the caller opens the store next, and that reports the error better
	}
	content, err := ReadFile(fs, desc.ManifestFilename)
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.ManifestFilename, err)
	}

	// Look for a record anywhere behind the first damaged one.
	records, end := wholeRecords(content)
	for at := end + 1; at < len(content); at++ {
		if n, kind := wholeChunk(content, at); n > 0 && (kind == fullChunk || kind == firstChunk) {
			return fmt.Errorf("%w: %s has records behind a damaged one at %d", projections.ErrCorrupt, desc.ManifestFilename, end)
		}
	}
	// The very first manifest of a store names no table in its first record, so a missing second
	// record loses nothing.
	if records < 2 && fs.PathBase(desc.ManifestFilename) != "MANIFEST-000001" {
		return fmt.Errorf("%w: %s has only %d whole records", projections.ErrCorrupt, desc.ManifestFilename, records)
	}
	return nil
}

// wholeRecords returns the number of complete records before the first damaged one, and the offset
// at which the last of them ends. Padding after that record counts as a part of it, so that the next
// record begins at the offset.
func wholeRecords(content []byte) (records, end int) {
	for at := 0; at < len(content); {
		if rest := manifestBlock - at%manifestBlock; rest < manifestHeader {
			if end == at {
				end = min(at+rest, len(content))
			}
			at += rest // padding that is too short for a chunk
			continue
		}
		n, kind := wholeChunk(content, at)
		if n == 0 {
			break
		}
		at += n
		if kind == fullChunk || kind == lastChunk {
			records++
			end = at
		}
	}
	return records, end
}

// wholeChunk returns the length of the chunk at an offset, including its header, and its type. The
// length is 0 if there is no valid chunk.
func wholeChunk(content []byte, at int) (n int, kind byte) {
	available := min(len(content)-at, manifestBlock-at%manifestBlock)
	if available < manifestHeader {
		return 0, 0
	}
	kind = content[at+6]
	n = manifestHeader + int(binary.LittleEndian.Uint16(content[at+4:]))
	if kind < fullChunk || kind > lastChunk || n > available {
		return 0, 0
	}

	// Pebble stores the checksum in this masked form.
	sum := crc32.Checksum(content[at+6:at+n], crc32.MakeTable(crc32.Castagnoli))
	if binary.LittleEndian.Uint32(content[at:]) != (sum>>15|sum<<17)+0xa282ead8 {
		return 0, 0
	}
	return n, kind
}
