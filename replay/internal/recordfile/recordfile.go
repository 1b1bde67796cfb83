// Package recordfile sorts any number of records on disk, in bounded memory. A [Sorter] sorts
// records, a [Writer] writes a file of sorted records, a [Reader] reads one file, and [Merge] reads
// several files as one.
package recordfile

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events/atomicfile"
)

// The format of a file. Its records are sorted bytewise, and no two are equal.
//
//	"skein records 1\n"
//	per record       number of bytes shared with the record before, number of bytes that follow (uvarints), these bytes
//	at the end       0 0, the number of records (uvarint), xxh3-64 of everything before (8 bytes, big endian)
const magicLine = "skein records 1\n"

// maxRecordBytes is the size of the longest record that a file may have. That is a reject with a
// long key and a long element.
const maxRecordBytes = 16 << 10

// ErrDamaged means that a file in the state directory of an import is damaged.
var ErrDamaged = errors.New("a file of the import's state is damaged; --restart begins a new import")

// errTooLong means that a record is longer than a file may have.
var errTooLong = errors.New("recordfile: the record is too long")

// Writer writes a file of records. The file appears under its name only when Close has written it
// completely to disk.
type Writer struct {
	file *atomicfile.File
	w    *bufio.Writer
	hash *xxh3.Hasher
	last []byte // the last record
	// Count is the number of records that were added.
	Count uint64
	buf   []byte
}

// Create begins to write a file of records.
func Create(path string) (*Writer, error) {
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: f, hash: xxh3.New()}
	w.w = bufio.NewWriterSize(io.MultiWriter(f, w.hash), 256<<10)
	_, err = w.w.WriteString(magicLine)
	return w, err
}

// Add appends a record, which must not sort before the last one. A record that is equal to the last
// one is dropped.
func (w *Writer) Add(record []byte) error {
	if w.Count > 0 && bytes.Equal(record, w.last) {
		return nil
	}
	// A Reader takes a longer record for damage, so refuse it before it is written.
	if len(record) > maxRecordBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", errTooLong, len(record), maxRecordBytes)
	}

	shared := 0
	for shared < min(len(record), len(w.last)) && record[shared] == w.last[shared] {
		shared++
	}

	w.buf = binary.AppendUvarint(w.buf[:0], uint64(shared))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(record)-shared))
	w.buf = append(w.buf, record[shared:]...)
	w.last = append(w.last[:shared], record[shared:]...)
	w.Count++
	_, err := w.w.Write(w.buf)
	return err
}

// Close syncs the file, gives it its name, and returns its checksum.
func (w *Writer) Close() (sum uint64, err error) {
	w.buf = binary.AppendUvarint(append(w.buf[:0], 0, 0), w.Count)
	_, err = w.w.Write(w.buf)
	if err == nil {
		err = w.w.Flush()
	}
	sum = w.hash.Sum64()
	if err == nil {
		_, err = w.file.Write(binary.BigEndian.AppendUint64(nil, sum))
	}
	if err != nil {
		return 0, errors.Join(err, w.file.Close())
	}
	return sum, w.file.Commit()
}

// Discard closes and removes an incomplete file.
func (w *Writer) Discard() { _ = w.file.Close() }

// Records are sorted records, from a file or merged from several.
type Records interface {
	// Next returns the next record, or [io.EOF] after the last one. The record is valid until the
	// next call.
	Next() ([]byte, error)
	io.Closer
}

// Reader reads a file of records. It checks the checksum when it has read the last record.
type Reader struct {
	path   string
	file   *os.File
	r      *bufio.Reader
	hash   *xxh3.Hasher
	record []byte // the last record
	count  uint64 // the number of records that were read
	ended  bool   // the end was read and checked
}

// Open opens a file of records.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, file: f, r: bufio.NewReaderSize(f, 64<<10), hash: xxh3.New()}
	magic := make([]byte, len(magicLine))
	if _, err := io.ReadFull(r.r, magic); err != nil || string(magic) != magicLine {
		_ = f.Close() // it was only read
		return nil, fmt.Errorf("%w: %s does not begin with %q", ErrDamaged, path, magicLine)
	}
	_, _ = r.hash.Write(magic) // hash writes do not fail
	return r, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// ReadByte reads one byte of a number. It makes Reader an io.ByteReader.
func (r *Reader) ReadByte() (byte, error) {
	c, err := r.r.ReadByte()
	if err == nil {
		_, _ = r.hash.Write([]byte{c}) // hash writes do not fail
	}
	return c, err
}

// damagedError returns [ErrDamaged] with the path and, if err is not nil, with err.
func (r *Reader) damagedError(err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s", ErrDamaged, r.path)
	}
	return fmt.Errorf("%w: %s: %w", ErrDamaged, r.path, err)
}

// Next implements [Records].
func (r *Reader) Next() ([]byte, error) {
	if r.ended {
		return nil, io.EOF
	}

	shared, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, r.damagedError(asUnexpectedEOF(err))
	}
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, r.damagedError(asUnexpectedEOF(err))
	}
	if shared == 0 && n == 0 {
		return nil, r.checkEnd()
	}

	// Check before memory is allocated: a damaged length may be anything. The sum of two numbers
	// that were not checked could overflow.
	if shared > uint64(len(r.record)) || n > maxRecordBytes || shared+n > maxRecordBytes {
		return nil, r.damagedError(nil)
	}
	r.record = slices.Grow(r.record[:shared], int(n))[:shared+n]
	if _, err := io.ReadFull(r.r, r.record[shared:]); err != nil {
		return nil, r.damagedError(asUnexpectedEOF(err))
	}
	_, _ = r.hash.Write(r.record[shared:])
	r.count++
	return r.record, nil
}

// checkEnd checks the number of records and the checksum, which follow the last record, and returns
// [io.EOF] if they are right.
func (r *Reader) checkEnd() error {
	count, err := binary.ReadUvarint(r)
	if err != nil || count != r.count {
		return r.damagedError(asUnexpectedEOF(err))
	}
	var sum [8]byte
	if _, err := io.ReadFull(r.r, sum[:]); err != nil {
		return r.damagedError(asUnexpectedEOF(err))
	}
	if binary.BigEndian.Uint64(sum[:]) != r.hash.Sum64() {
		return r.damagedError(errors.New("its checksum is wrong"))
	}
	r.ended = true
	return io.EOF
}

// asUnexpectedEOF replaces [io.EOF], which would look like the regular end of the records.
func asUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Merged merges several sources of sorted records. If several sources have equal records, it
// returns one of them.
type Merged struct {
	heap mergeHeap
	// last is the last record that Next has returned; hasLast is set once there is one.
	last    []byte
	hasLast bool
}

// mergeSource is one of the merged sources, with its next record.
type mergeSource struct {
	from   Records
	record []byte
}

// mergeHeap is a heap of the sources that have not ended. The one with the smallest record comes
// first.
type mergeHeap []mergeSource

func (h mergeHeap) Len() int           { return len(h) }
func (h mergeHeap) Less(i, j int) bool { return bytes.Compare(h[i].record, h[j].record) < 0 }
func (h mergeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *mergeHeap) Push(x any) { *h = append(*h, x.(mergeSource)) } //nolint:forcetypeassert // only Merge pushes

// Pop implements heap.Interface.
func (h *mergeHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// Merge opens several files and merges their records. Close must be called on the result.
func Merge(paths []string) (_ *Merged, err error) {
	m := &Merged{}
	defer func() {
		if err != nil {
			_ = m.Close()
		}
	}()
	for _, path := range paths {
		r, err := Open(path)
		if err != nil {
			return nil, err
		}

		first, err := r.Next()
		if err != nil {
			_ = r.Close() // it was only read
			if errors.Is(err, io.EOF) {
				continue
			}
			return nil, err
		}
		heap.Push(&m.heap, mergeSource{r, first})
	}
	return m, nil
}

// Next implements [Records].
func (m *Merged) Next() ([]byte, error) {
	for len(m.heap) > 0 {
		top := &m.heap[0]
		isRepeat := m.hasLast && bytes.Equal(top.record, m.last)
		if !isRepeat {
			// The record is valid only until its source moves on.
			m.last = append(m.last[:0], top.record...)
			m.hasLast = true
		}

		next, err := top.from.Next()
		switch {
		case err == nil:
			top.record = next
			heap.Fix(&m.heap, 0)
		case errors.Is(err, io.EOF):
			_ = top.from.Close() // it was only read
			heap.Pop(&m.heap)
		default:
			return nil, err
		}

		if !isRepeat {
			return m.last, nil
		}
	}
	return nil, io.EOF
}

// Close closes the files that Next has not read to the end.
func (m *Merged) Close() error {
	for _, h := range m.heap {
		_ = h.from.Close() // it was only read
	}
	m.heap = nil
	return nil
}

// A Sorter writes a file when it holds records of maxBytesInMemory bytes or maxRecordsInMemory
// records.
const (
	maxBytesInMemory   = 64 << 20
	maxRecordsInMemory = 1 << 20
	// maxFiles is the number of files at which a Sorter merges them into one. It limits how many
	// files are open at a time.
	maxFiles = 64
)

// Sorter sorts any number of records in bounded memory. It collects records until its memory is
// full, then writes them to a sorted file. In the end, Merge reads all files as one.
type Sorter struct {
	// Dir is the directory of the files. Files are their names, and Number is the number in the
	// newest name. The owner stores Files and Number if it wants to continue later, and removes
	// files that Files does not contain any more.
	Dir    string
	Files  []string
	Number int
	// MaxRecords is how many records are sorted in memory at a time; 0 means the default.
	MaxRecords int

	// arena has the bytes of the collected records, one after the other, because a slice for each
	// record would take much more memory. ends are the offsets in arena at which they end.
	arena []byte
	ends  []int
}

// Add adds a record. Records may be added in any order.
func (s *Sorter) Add(record []byte) error {
	s.arena = append(s.arena, record...)
	s.ends = append(s.ends, len(s.arena))
	if s.isFull() {
		return s.Flush()
	}
	return nil
}

// isFull reports whether the collected records must be written to a file.
func (s *Sorter) isFull() bool {
	return len(s.arena) >= maxBytesInMemory || len(s.ends) >= s.maxRecords()
}

// IsHalfFull reports whether more than half of the records that fit into memory have been
// collected.
func (s *Sorter) IsHalfFull() bool { return len(s.ends) > s.maxRecords()/2 }

// maxRecords returns the number of records that fit into memory.
func (s *Sorter) maxRecords() int {
	if s.MaxRecords > 0 {
		return s.MaxRecords
	}
	return maxRecordsInMemory
}

// Flush writes the collected records to a new file. If there are too many files then, Flush merges
// them into one.
func (s *Sorter) Flush() error {
	if len(s.ends) == 0 {
		return nil
	}

	list := make([][]byte, len(s.ends))
	begin := 0
	for i, end := range s.ends {
		list[i] = s.arena[begin:end]
		begin = end
	}
	slices.SortFunc(list, bytes.Compare)

	name, w, err := s.createFile()
	if err != nil {
		return err
	}
	for _, record := range list {
		if err := w.Add(record); err != nil {
			w.Discard()
			return err
		}
	}
	if _, err := w.Close(); err != nil {
		return err
	}
	// The file is complete on disk, so the records in memory are not needed any more.
	s.Files = append(s.Files, name)
	s.arena = s.arena[:0]
	s.ends = s.ends[:0]
	return s.mergeFiles()
}

// createFile begins a new file and returns its name.
func (s *Sorter) createFile() (string, *Writer, error) {
	s.Number++
	name := fmt.Sprintf("sorted-%06d", s.Number)
	w, err := Create(filepath.Join(s.Dir, name))
	return name, w, err
}

// mergeFiles merges all files into one if there are too many. The old files stay on disk until the
// owner removes them, because the state that the owner has stored may still name them.
func (s *Sorter) mergeFiles() error {
	if len(s.Files) < maxFiles {
		return nil
	}
	m, err := s.Merge()
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // it was only read

	name, w, err := s.createFile()
	if err != nil {
		return err
	}
	if err := WriteAll(w, m); err != nil {
		return err
	}
	s.Files = []string{name}
	return nil
}

// Merge returns all records that were flushed, sorted.
func (s *Sorter) Merge() (*Merged, error) {
	paths := make([]string, len(s.Files))
	for i, name := range s.Files {
		paths[i] = filepath.Join(s.Dir, name)
	}
	return Merge(paths)
}

// WriteAll writes all records of from to a file and closes the file. It closes the file even if it
// fails.
func WriteAll(w *Writer, from Records) error {
	for {
		record, err := from.Next()
		if errors.Is(err, io.EOF) {
			_, err = w.Close()
			return err
		}
		if err == nil {
			err = w.Add(record)
		}
		if err != nil {
			w.Discard()
			return err
		}
	}
}
