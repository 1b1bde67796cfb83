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

// The embedded server cuts a file of messages off at the first record whose length or checksum is wrong, when it reads the file
// after a kill, or when a length is wrong. Whole messages behind it, which were acknowledged, would be gone with the damaged one.
// So before the server starts, a damaged record with whole ones behind it is made one that was deleted, as the server itself
// writes it. Then only this record is missing, and a reader of the log reports the gap. Damage at the end of a file is
// left to the server: it is usually the record that was being written when the power was cut.
//
// A record, as nats-server 2.15.2 writes it, little endian:
//
//	length 4, its top bit: has headers | sequence 8, top bits: deleted, tombstone | time 8 | length of the subject 2 |
//	subject | [length of the headers 4] headers and message | checksum 8, of all from the sequence on but for that length
const (
	recordHeader  = 22
	recordLeast   = recordHeader + highwayhash.Size64
	recordMost    = 32 << 20
	recordHeaders = uint32(1 << 31)
	recordDeleted = uint64(1 << 63)
	recordTomb    = uint64(1 << 62)
	// maxSkip is how far sequences may lie apart of a record and the next that is looked for behind a damaged one.
	maxSkip = 1 << 24
	// indexFile says what is in the files of messages. Without it the server reads them.
	indexFile = "index.db"
)

// repairBlocks looks at the newest files of messages of a stream, and repairs those that are damaged. A copy of each stays beside
// the data directory.
func repairBlocks(o Options, dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", o.Stream, "msgs", "*"+blockSuffix))
	if err != nil {
		return err
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(blockNumber(a), blockNumber(b)) })
	left := o.Examined
	from := len(paths)
	for ; from > 0; from-- {
		info, err := os.Stat(paths[from-1])
		if err != nil {
			return err
		}
		if left -= info.Size(); left < 0 {
			break
		}
	}
	last := uint64(0)
	for _, path := range paths[from:] {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // the server reports a file that cannot be read, and so does the salvage of the log
		}
		b, err := scanBlock(o.Stream, path, data, last)
		if err != nil {
			return err
		}
		if last = b.last; len(b.repaired) == 0 {
			continue
		}
		kept, err := b.keep(dir)
		if err != nil {
			return fmt.Errorf("keep a copy of the damaged file %s: %w", path, err)
		}
		if err := b.write(); err != nil {
			return fmt.Errorf("repair the damaged file %s: %w", path, err)
		}
		o.Logger.Error("log: a file of messages is damaged", "file", path, "copy", kept, "lost_first", b.repaired[0].first,
			"lost_last", b.repaired[len(b.repaired)-1].last)
	}
	return nil
}

// blockNumber is the number of a file of messages.
func blockNumber(path string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), blockSuffix))
	return n
}

// block is a file of messages.
type block struct {
	path string
	data []byte
	sum  hash.Hash64
	// last is the highest sequence met.
	last     uint64
	repaired []repaired
}

// repaired is a part of a file that was damaged: what stands there instead, and which sequences that loses.
type repaired struct {
	at          int
	record      []byte
	first, last uint64
}

// scanBlock reads a file of messages, of which the one before ends at a sequence; 0 means it is not known.
func scanBlock(stream, path string, data []byte, last uint64) (*block, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, blockNumber(path)))
	sum, err := highwayhash.New64(key[:])
	if err != nil {
		return nil, err
	}
	b := &block{path: path, data: data, sum: sum, last: last}
	whole := 0
	for at := 0; at < len(data); {
		if seq, n := b.record(at); n > 0 {
			whole++
			if seq&recordTomb == 0 {
				b.last = max(b.last, seq&^recordDeleted)
			}
			at += n
			continue
		}
		next, seq := b.find(at + 1)
		if next < 0 || next-at < recordLeast {
			break
		}
		b.replace(at, next, seq)
		at = next
	}
	if whole == 0 {
		b.repaired = nil // another format than this one knows
	}
	return b, nil
}

// record returns the sequence and the length of the record at an offset; 0 means there is none, or it is damaged.
func (b *block) record(at int) (seq uint64, n int) {
	rest := b.data[at:]
	if len(rest) < recordLeast {
		return 0, 0
	}
	length := binary.LittleEndian.Uint32(rest)
	n, subject := int(length&^recordHeaders), int(binary.LittleEndian.Uint16(rest[20:]))
	start := recordHeader + subject
	if length&recordHeaders != 0 {
		start += 4
	}
	if n < recordLeast || n > recordMost || n > len(rest) || start > n-highwayhash.Size64 {
		return 0, 0
	}
	b.sum.Reset()
	_, _ = b.sum.Write(rest[4:20])
	_, _ = b.sum.Write(rest[recordHeader : recordHeader+subject])
	_, _ = b.sum.Write(rest[start : n-highwayhash.Size64])
	if !bytes.Equal(b.sum.Sum(nil), rest[n-highwayhash.Size64:n]) {
		return 0, 0
	}
	return binary.LittleEndian.Uint64(rest[4:]), n
}

// find returns where the next whole record begins that has a sequence; negative: there is none.
func (b *block) find(at int) (next int, seq uint64) {
	for ; at+recordLeast <= len(b.data); at++ {
		seq := binary.LittleEndian.Uint64(b.data[at+4:]) &^ recordDeleted
		if seq <= b.last || b.last > 0 && seq-b.last > maxSkip || seq&recordTomb != 0 {
			continue
		}
		if _, n := b.record(at); n > 0 {
			return at, seq
		}
	}
	return -1, 0
}

// replace makes what is damaged one deleted record, of the last sequence that is lost by it: the server takes those before it
// for deleted as well.
func (b *block) replace(at, next int, seq uint64) {
	m := repaired{at: at, record: make([]byte, next-at), first: b.last + 1, last: seq - 1}
	if b.last == 0 {
		m.first = seq - 1
	}
	deleted := seq - 1
	if m.first > m.last { // it told of one that was deleted anyway
		deleted = 0
	}
	binary.LittleEndian.PutUint32(m.record, uint32(len(m.record)))
	binary.LittleEndian.PutUint64(m.record[4:], deleted|recordDeleted)
	sum := m.record[len(m.record)-highwayhash.Size64:]
	b.sum.Reset()
	_, _ = b.sum.Write(m.record[4:20])
	_, _ = b.sum.Write(m.record[recordHeader : len(m.record)-highwayhash.Size64])
	copy(sum, b.sum.Sum(nil))
	b.repaired = append(b.repaired, m)
}

// keep copies the file as it was.
func (b *block) keep(dir string) (string, error) {
	to := fmt.Sprintf("%s-damaged-%s", strings.TrimRight(dir, "/"), time.Now().UTC().Format("20060102T150405"))
	if err := os.MkdirAll(to, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(to, filepath.Base(b.path))
	if err := os.WriteFile(name, b.data, 0o600); err != nil { //nolint:gosec // the path is the log's own
		return "", err
	}
	return name, errors.Join(syncFile(name, false), syncFile(to, false))
}

// write repairs the file. The server has to read it, and not to believe what it knows of it.
func (b *block) write() (err error) {
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
	for _, m := range b.repaired {
		if _, err := f.WriteAt(m.record, int64(m.at)); err != nil {
			return err
		}
	}
	return f.Sync()
}
