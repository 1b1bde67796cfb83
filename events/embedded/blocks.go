package embedded

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/highwayhash"
)

// NATS stores the messages of a stream as records in block files. When the server reads a block
// file, it cuts the file off at the first record whose length is wrong, and after a kill also at
// the first one whose checksum is wrong. Whole messages after that record, which were acknowledged,
// would then be lost with the damaged one.
//
// So before the server starts, this file replaces a damaged record that has whole records after it
// by a record of a deleted message, in the form in which the server itself writes one. Then only
// the damaged message is missing, and a reader of the log reports the gap. Damage at the end of a
// file is left to the server, because it is usually the record that was being written when the
// power failed.
//
// A record, as nats-server 2.15.2 writes it, little endian:
//
//	length 4, top bit: has headers | sequence 8, top bits: deleted, tombstone | time 8 | length of the subject 2 |
//	subject | [length of the headers 4] headers and message | checksum 8
//
// The checksum covers sequence, time, subject, headers and message, but none of the lengths.
const (
	recordHeaderBytes = 22 // up to and including the length of the subject
	minRecordBytes    = recordHeaderBytes + highwayhash.Size64
	maxRecordBytes    = 32 << 20
	hasHeadersBit     = uint32(1 << 31)
	deletedBit        = uint64(1 << 63)
	tombstoneBit      = uint64(1 << 62)
	// maxSeqGap is the largest difference between the sequences of the records before and after a
	// damaged part. A larger one means that what looks like a record is not one.
	maxSeqGap = 1 << 24
	// indexFile is the file in which the server caches what the block files contain. If it is
	// missing, the server reads the block files.
	indexFile = "index.db"
)

// repairBlocks repairs the damaged ones among the newest block files of the stream, up to
// o.VerifyBytes bytes of them. It saves a copy of each damaged file beside the data directory
// first.
func repairBlocks(o Options, dir string) error {
	paths, err := findStreamFiles(dir, o.Stream, "msgs/*"+blockSuffix)
	if err != nil {
		return err
	}
	sortBlocks(paths)
	from, err := firstExamined(paths, o.VerifyBytes)
	if err != nil {
		return err
	}

	lastSeq := uint64(0) // of the files so far; 0 means that it is not known
	for _, path := range paths[from:] {
		data, err := os.ReadFile(path)
		if err != nil {
			// The server reports a file that cannot be read, and so does the salvage of the log. Newer
			// files are repaired all the same.
			lastSeq = 0
			continue
		}
		b, err := scanBlock(o.Stream, path, data, lastSeq)
		if err != nil {
			return err
		}
		lastSeq = b.lastSeq
		if len(b.repairs) == 0 {
			continue
		}

		// The copy comes first, because the repair overwrites the damaged bytes, of which a person
		// may still recover something.
		copyPath, err := b.saveCopy(dir)
		if err != nil {
			return fmt.Errorf("keep a copy of the damaged file %s: %w", path, err)
		}
		if err := b.writeRepairs(); err != nil {
			return fmt.Errorf("repair the damaged file %s: %w", path, err)
		}
		o.Logger.Error("log: a file of messages is damaged", "file", path, "copy", copyPath,
			"lost_first", b.repairs[0].firstLost, "lost_last", b.repairs[len(b.repairs)-1].lastLost)
	}
	return nil
}

// firstExamined returns the index of the first path to examine, so that the files from there on
// have at most maxBytes in all.
func firstExamined(paths []string, maxBytes int64) (int, error) {
	from := len(paths)
	for ; from > 0; from-- {
		info, err := os.Stat(paths[from-1])
		if err != nil {
			return 0, err
		}
		maxBytes -= info.Size()
		if maxBytes < 0 {
			break
		}
	}
	return from, nil
}

// sortBlocks sorts the paths of block files by their number, oldest file first.
func sortBlocks(paths []string) {
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(blockNumber(a), blockNumber(b)) })
}

// blockNumber returns the number in the name of a block file.
func blockNumber(path string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), blockSuffix))
	return n
}

// block is the content of one block file, and what must be repaired in it.
type block struct {
	path     string
	data     []byte
	checksum hash.Hash64
	// lastSeq is the highest sequence that was found in this file or an earlier one. It is 0 if
	// none was found yet.
	lastSeq uint64
	repairs []repair
}

// repair replaces one damaged part of a block file.
type repair struct {
	offset int
	// record is written over the damaged part. It has the same length.
	record []byte
	// firstLost and lastLost are the sequences that are lost with the damaged part. None is lost if
	// firstLost > lastLost.
	firstLost, lastLost uint64
}

// scanBlock finds the damaged parts of a block file. lastSeq is the last sequence of the file
// before it, or 0 if that is not known.
func scanBlock(stream, path string, data []byte, lastSeq uint64) (*block, error) {
	// The server hashes the records of each file with a key of its own.
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, blockNumber(path)))
	checksum, err := highwayhash.New64(key[:])
	if err != nil {
		return nil, err
	}

	b := &block{path: path, data: data, checksum: checksum, lastSeq: lastSeq}
	wholeRecords := 0
	for offset := 0; offset < len(data); {
		if seq, length := b.parseRecord(offset); length > 0 {
			wholeRecords++
			if seq&tombstoneBit == 0 {
				b.lastSeq = max(b.lastSeq, seq&^deletedBit)
			}
			offset += length
			continue
		}

		next, seq := b.findNextRecord(offset + 1)
		if next < 0 || next-offset < minRecordBytes {
			break // no whole record follows, or the damaged part is too short for a deleted record
		}
		b.addRepair(offset, next, seq)
		offset = next
	}
	if wholeRecords == 0 {
		b.repairs = nil // the file has a format that this code does not know
	}
	return b, nil
}

// parseRecord returns the sequence, with its top bits, and the length of the record at an offset.
// The length is 0 if there is no record, or a damaged one.
func (b *block) parseRecord(offset int) (seq uint64, length int) {
	rest := b.data[offset:]
	if len(rest) < minRecordBytes {
		return 0, 0
	}

	lengthField := binary.LittleEndian.Uint32(rest)
	length = int(lengthField &^ hasHeadersBit)
	subjectEnd := recordHeaderBytes + int(binary.LittleEndian.Uint16(rest[20:]))
	contentStart := subjectEnd
	if lengthField&hasHeadersBit != 0 {
		contentStart += 4 // the length of the headers is not part of the checksum
	}
	checksumStart := length - highwayhash.Size64
	isPossibleLength := length >= minRecordBytes && length <= min(maxRecordBytes, len(rest))
	if !isPossibleLength || contentStart > checksumStart {
		return 0, 0
	}

	b.checksum.Reset()
	_, _ = b.checksum.Write(rest[4:20])
	_, _ = b.checksum.Write(rest[recordHeaderBytes:subjectEnd])
	_, _ = b.checksum.Write(rest[contentStart:checksumStart])
	if !bytes.Equal(b.checksum.Sum(nil), rest[checksumStart:length]) {
		return 0, 0
	}
	return binary.LittleEndian.Uint64(rest[4:]), length
}

// findNextRecord returns the offset and the sequence of the next whole record of a message, from an
// offset on. The offset is negative if there is none.
func (b *block) findNextRecord(from int) (offset int, seq uint64) {
	for offset := from; offset+minRecordBytes <= len(b.data); offset++ {
		// A plausible sequence is checked first, because that is much cheaper than the checksum.
		seq := binary.LittleEndian.Uint64(b.data[offset+4:]) &^ deletedBit
		isTooFar := b.lastSeq > 0 && seq-b.lastSeq > maxSeqGap
		if seq <= b.lastSeq || isTooFar || seq&tombstoneBit != 0 {
			continue
		}
		if _, length := b.parseRecord(offset); length > 0 {
			return offset, seq
		}
	}
	return -1, 0
}

// addRepair plans to write one deleted record over the damaged part from offset to before next.
// nextSeq is the sequence of the record at next. The deleted record gets the sequence before
// nextSeq. The server then treats all sequences between the records as deleted.
func (b *block) addRepair(offset, next int, nextSeq uint64) {
	r := repair{offset: offset, record: make([]byte, next-offset), firstLost: b.lastSeq + 1, lastLost: nextSeq - 1}
	if b.lastSeq == 0 {
		r.firstLost = nextSeq - 1 // at least this one
	}
	deletedSeq := r.lastLost
	if r.firstLost > r.lastLost {
		deletedSeq = 0 // no sequence is missing: the damaged record was about a message that was deleted anyway
	}

	checksumStart := len(r.record) - highwayhash.Size64
	binary.LittleEndian.PutUint32(r.record, uint32(len(r.record)))
	binary.LittleEndian.PutUint64(r.record[4:], deletedSeq|deletedBit)
	b.checksum.Reset()
	_, _ = b.checksum.Write(r.record[4:20])
	_, _ = b.checksum.Write(r.record[recordHeaderBytes:checksumStart])
	copy(r.record[checksumStart:], b.checksum.Sum(nil))
	b.repairs = append(b.repairs, r)
}

// saveCopy saves the damaged file as it is now, in a new directory beside the data directory, and
// returns the path of the copy.
func (b *block) saveCopy(dir string) (string, error) {
	copyDir := fmt.Sprintf("%s-damaged-%s", strings.TrimRight(dir, "/"), time.Now().UTC().Format("20060102T150405"))
	if err := os.MkdirAll(copyDir, 0o700); err != nil {
		return "", err
	}
	copyPath := filepath.Join(copyDir, filepath.Base(b.path))
	if err := os.WriteFile(copyPath, b.data, 0o600); err != nil { //nolint:gosec // the path is the log's own
		return "", err
	}
	parent := filepath.Dir(copyDir) // has the name of copyDir, which may be new
	return copyPath, errors.Join(syncFile(copyPath, false), syncFile(copyDir, false), syncFile(parent, false))
}

// writeRepairs writes the repairs to the file.
func (b *block) writeRepairs() (err error) {
	// The index describes the file as it was. It must be gone, also after a power failure, before
	// the file changes. Without it the server reads the file.
	index := filepath.Join(filepath.Dir(b.path), indexFile)
	//nolint:gosec // the path is the log's own
	if err := os.Remove(index); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := syncFile(filepath.Dir(b.path), false); err != nil {
		return err
	}

	f, err := os.OpenFile(b.path, os.O_WRONLY, 0) //nolint:gosec // the path is the log's own
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, r := range b.repairs {
		if _, err := f.WriteAt(r.record, int64(r.offset)); err != nil {
			return err
		}
	}
	return f.Sync()
}
