package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"
)

// A manifest is a list of records, each a whole edit of the store, written through before the next is begun. It is framed in blocks
// of 32 KiB, each of chunks of: checksum (4), length (2), type (1), payload. A record is one full chunk, or a first one, middle ones
// and a last one.
//
// Pebble ends reading at the first record that is not whole, whatever follows: that is right for a record that a power cut has torn,
// which nothing follows. Of a manifest that is damaged before its end it would take an older state for the present one. Worse, the
// first record says which tables there are, and only the second up to which sequence number they go: without it rows that are
// there are not seen, and new ones are taken for older than those in the tables.
const (
	manifestBlock  = 32 << 10
	manifestHeader = 7
	fullChunk      = 1
	firstChunk     = 2
	lastChunk      = 4
)

// CheckManifest returns [ErrCorrupt] if the manifest of a store is damaged where no power cut can have done it.
func CheckManifest(fs FS, dir string) error {
	desc, err := pebble.Peek(dir, fs)
	if err != nil || !desc.Exists {
		return nil //nolint:nilerr // the opening that follows says it better
	}
	content, err := ReadFile(fs, desc.ManifestFilename)
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.ManifestFilename, err)
	}
	records, end := wholeRecords(content)
	for at := end + 1; at < len(content); at++ {
		if n, kind := wholeChunk(content, at); n > 0 && (kind == fullChunk || kind == firstChunk) {
			return fmt.Errorf("%w: %s has records behind a damaged one at %d", ErrCorrupt, desc.ManifestFilename, end)
		}
	}
	// The very first manifest begins without any table, so that there is nothing to be got wrong.
	if records < 2 && fs.PathBase(desc.ManifestFilename) != "MANIFEST-000001" {
		return fmt.Errorf("%w: %s has only %d whole records", ErrCorrupt, desc.ManifestFilename, records)
	}
	return nil
}

// wholeRecords counts the records at the beginning that are whole, and returns where they end.
func wholeRecords(content []byte) (records, end int) {
	for at := 0; at < len(content); {
		if rest := manifestBlock - at%manifestBlock; rest < manifestHeader {
			at += rest // what is left of a block is not used
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

// wholeChunk returns the length and the type of the chunk at an offset; 0 means there is none.
func wholeChunk(content []byte, at int) (n int, kind byte) {
	room := min(len(content)-at, manifestBlock-at%manifestBlock)
	if room < manifestHeader {
		return 0, 0
	}
	kind = content[at+6]
	n = manifestHeader + int(binary.LittleEndian.Uint16(content[at+4:]))
	if kind < fullChunk || kind > lastChunk || n > room {
		return 0, 0
	}
	sum := crc32.Checksum(content[at+6:at+n], crc32.MakeTable(crc32.Castagnoli))
	if binary.LittleEndian.Uint32(content[at:]) != (sum>>15|sum<<17)+0xa282ead8 {
		return 0, 0
	}
	return n, kind
}
